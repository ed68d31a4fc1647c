"""The watermark of several inputs, some of which may be idle.

The rule is the lowest watermark of the inputs that are active and aligned. An idle input is left
out. One that comes back behind the result stays out until it has caught up, so that the result
never waits for what it has passed. When all are idle, the result goes to the highest of them, once.
The result never goes back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from topo.event_time import BEFORE_ALL


@dataclass
class _Input:
    watermark: int = BEFORE_ALL
    idle: bool = False
    aligned: bool = True


class WatermarkMerger:
    """The watermark of a fixed set of inputs."""

    def __init__(self, inputs: Iterable[Hashable], merge: str = "min") -> None:
        self._inputs = {name: _Input() for name in inputs}
        self._merge = max if merge == "max" else min
        self.watermark = BEFORE_ALL

    def add(self, name: Hashable) -> None:
        """Add an input, if it is not known."""
        self._inputs.setdefault(name, _Input())

    def retire(self, name: Hashable, into: Hashable) -> None:
        """Forget an input; how far it came is from now on another one's, which is idle.

        The watermark moves with `advance`: the other one may have to hold it first.
        """
        ended, idle = self._inputs.pop(name), self._inputs[into]
        idle.watermark = max(idle.watermark, ended.watermark)

    def observe(self, name: Hashable, watermark: int) -> None:
        """Take an active input's watermark; an idle one's is ignored, and so is a lower one."""
        known = self._inputs[name]
        if known.idle or watermark <= known.watermark:
            return
        known.watermark = watermark
        self._align(known)
        self.advance()

    def set_idle(self, name: Hashable, idle: bool = True) -> None:
        """Leave an input out, or take it in again."""
        known = self._inputs[name]
        if known.idle == idle:
            return
        known.idle = idle
        if idle:
            known.aligned = False
        else:
            self._align(known)
        self.advance()

    def _align(self, known: _Input) -> None:
        if known.watermark >= self.watermark:
            known.aligned = True

    @property
    def all_idle(self) -> bool:
        return all(known.idle for known in self._inputs.values())

    def is_idle(self, name: Hashable) -> bool:
        return self._inputs[name].idle

    def of(self, name: Hashable) -> int:
        """Return one input's watermark."""
        return self._inputs[name].watermark

    def holding_back(self) -> list[Hashable]:
        """Return the active inputs that keep the watermark where it is."""
        active = {name: one for name, one in self._inputs.items() if not one.idle and one.aligned}
        lowest = min((one.watermark for one in active.values()), default=None)
        return [name for name, one in active.items() if one.watermark == lowest]

    def advance(self) -> None:
        """Let the watermark go as far as the inputs are."""
        if not self._inputs:
            return
        if self.all_idle:
            found = max(known.watermark for known in self._inputs.values())
        else:
            aligned = [k.watermark for k in self._inputs.values() if k.aligned and not k.idle]
            if not aligned:
                return
            spoken = [w for w in aligned if w > BEFORE_ALL]
            # The fastest counts only once all have spoken.
            found = self._merge(aligned) if len(spoken) == len(aligned) else BEFORE_ALL
        self.watermark = max(self.watermark, found)

    def state(self) -> Any:
        """Return what `restore` takes."""
        inputs = {name: (k.watermark, k.idle, k.aligned) for name, k in self._inputs.items()}
        return self.watermark, inputs

    def restore(self, state: Any) -> None:
        """Take over what `state` returned; inputs that are not there any more are left out."""
        self.watermark, inputs = state
        saved: Mapping[Hashable, tuple[int, bool, bool]] = inputs
        for name, values in saved.items():
            if name in self._inputs:
                self._inputs[name] = _Input(*values)


class IdleTimer:
    """Tells when an input has had nothing for too long: `idle_after` without activity."""

    def __init__(self, idle_after: float) -> None:
        if idle_after <= 0:
            raise ValueError(f"an input is idle after some time; got {idle_after!r}")
        self._idle_after = idle_after
        self.since: float | None = None

    def restore(self, since: float | None) -> None:
        """Take over since when nothing came, as it was saved."""
        self.since = since

    def active(self) -> None:
        """Note that the input has something."""
        self.since = None

    def is_idle(self, now: float) -> bool:
        """Return True if nothing came for long enough; the time runs from the first call."""
        if self.since is None:
            self.since = now
            return False
        return now - self.since >= self._idle_after

    def due(self) -> float | None:
        """Return when the input will be idle if nothing comes."""
        return None if self.since is None else self.since + self._idle_after
