"""What goes round in one slot's part of a level: the laps of its tasks, all together.

Nothing waits for room on a loop, so nothing can wait for ever. What bounds memory is that spouts
are not asked while much goes round, and that a topology whose laps multiply what they get is
ended with the name of the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from topo.errors import TopoError
from topo.runtime.laps import Laps
from topo.runtime.task import Task, TaskEnvironment
from topo.topology.model import Topology
from topo.wire.frame import PackedFrame

_MB = 1 << 20
_PAUSING_SHARE = 32


@dataclass(frozen=True)
class Round:
    """What waits for the next lap at one moment, and how to name it when it is forgotten."""

    frames: Sequence[PackedFrame] = ()
    upto: Mapping[int, int] = field(default_factory=dict)
    """The number of the last frame of each task that has some."""

    @property
    def nbytes(self) -> int:
        """The bytes of the frames."""
        return sum(frame.nbytes for frame in self.frames)


class Roundabout:
    """The laps of the tasks that feed loops."""

    def __init__(self, setting: TaskEnvironment, tasks: Iterable[Task]) -> None:
        self._topology = setting.topology
        self._most_bytes: int = setting.conf["topology.loop.max.mb"] * _MB
        self._feeding: dict[int, tuple[Task, Laps]] = {
            task.id: (task, task.laps) for task in tasks if task.laps is not None
        }
        self._before = 0  # how many tuples went round in the last batch

    def __bool__(self) -> bool:
        """True iff a task feeds a loop."""
        return bool(self._feeding)

    @property
    def count(self) -> int:
        """The tuples that wait for the next batch."""
        return sum(laps.count for _, laps in self._feeding.values())

    @property
    def nbytes(self) -> int:
        """Their bytes."""
        return sum(laps.nbytes for _, laps in self._feeding.values())

    def counts(self) -> dict[str, int]:
        """Return how many tuples each component has on its loops."""
        counts: dict[str, int] = {}
        for task, laps in self._feeding.values():
            counts[task.component_id] = counts.get(task.component_id, 0) + laps.count
        return counts

    def waiting(self) -> Round:
        """Return all that waits."""
        frames = [frame for _, laps in self._feeding.values() for frame in laps]
        upto = {task: laps.last for task, (_, laps) in self._feeding.items() if laps.last}
        return Round(frames, upto)

    def drop(self, ends: Mapping[int, int]) -> None:
        """Forget what the present batch has taken: each task's frames up to a number."""
        for task, upto in ends.items():
            if task in self._feeding:
                self._feeding[task][1].drop(upto)

    def take(self) -> Round:
        """Return all that waits, and forget it: the present batch works on it."""
        lap = self.waiting()
        self.drop(lap.upto)
        return lap

    def meet_ackers(self, incarnations: Mapping[int, int]) -> None:
        """Add what goes round to the trees that an acker has lost; before the batch takes it."""
        for task, laps in self._feeding.values():
            roots, edges = laps.owed_to(incarnations)
            if len(roots):
                task.updates.ack(roots, edges)

    def check(self) -> None:
        """Raise an error if more goes round than a slot may hold."""
        if not self._feeding:
            return
        before, self._before = self._before, self.count
        if self.nbytes <= self._most_bytes:
            return
        counts = self.counts()
        most = max(counts, key=counts.__getitem__)
        times = f", {self.count / before:.1f} times as many as a lap before" if before else ""
        raise TopoError(
            f"{rounds_in_words(self._topology, {most: counts[most]})}{times}: they take "
            f"{self.nbytes / _MB:,.0f} MB in one slot",
            code="loop-grows",
            hint="emit less over the loop than comes in, or raise topology.loop.max.mb "
            f"({self._most_bytes // _MB} now)",
        )


def is_too_full(nbytes: int, most_mb: int) -> bool:
    """Return True if so much goes round in a slot that its spouts have to wait."""
    return nbytes > most_mb * _MB // _PAUSING_SHARE


def rounds_in_words(topology: Topology, counts: Mapping[str, int]) -> str:
    """Return what goes round, in words: "3 tuples go round from 'parse' to 'crawl'"; or ""."""
    return ", ".join(
        f"{count:,} {'tuple goes' if count == 1 else 'tuples go'} round from {name!r} to "
        f"{_listed(topology.loops_from(name))}"
        for name, count in counts.items()
        if count
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names))
