"""Tasks that do not come to an end: which one each slot on this machine is at, and since when.

A component that hangs, in a request without a timeout or in a deadlock, raises nothing, and what
its process could say of itself it would say too late. But each slot process notes its task beside
its socket, for whoever finds it dead; the driver reads that while it lives. Nothing in the process
is asked, so it does not matter if the kernel has stopped it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topo.engine.spark.process.doing import doing_now

_LOOK_SECS = 0.5
_NAMED_SECS = 10.0
_MOST_NAMED = 3


@dataclass(frozen=True)
class Hang:
    """A task that a slot has been at for a while, in one batch."""

    slot: int
    task: str
    """Its component and number, in words."""
    secs: float


class Hangs:
    """The tasks of the slots whose processes listen at `paths`. It belongs to the run's thread."""

    def __init__(
        self, paths: Sequence[str], monotonic: Callable[[], float] = time.perf_counter
    ) -> None:
        self._paths = paths
        self._monotonic = monotonic
        self._looked = -_LOOK_SECS
        self._since: dict[int, tuple[tuple[int, str], float]] = {}

    def look(self, batch: int) -> None:
        """Look what the slots execute in this batch, unless that was seen a moment ago."""
        now = self._monotonic()
        if now - self._looked < _LOOK_SECS:
            return
        self._looked = now
        for slot, path in enumerate(self._paths):
            at = (batch, doing_now(path))
            if slot not in self._since or self._since[slot][0] != at:
                self._since[slot] = at, now

    def forget(self, slot: int) -> None:
        """Begin anew with a slot whose process is ended: the next one is not at it that long."""
        self._since.pop(slot, None)

    def longer_than(self, secs: float) -> list[Hang]:
        """Return the tasks that have taken longer, at the last look."""
        return [
            Hang(slot, task, self._looked - since)
            for slot, ((_, task), since) in self._since.items()
            if task and self._looked - since > secs
        ]

    @property
    def words(self) -> str:
        """The sentence on tasks that may be why a batch makes no progress; "" if there is none."""
        longest = sorted(self.longer_than(_NAMED_SECS), key=lambda hang: -hang.secs)
        return ", ".join(
            f"{hang.task} has been executed for {hang.secs:.0f} s" for hang in longest[:_MOST_NAMED]
        )
