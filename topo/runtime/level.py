"""One level of a slot from batch to batch: what every engine does at the end of one, in one order.

`SlotTasks` runs the tasks over a batch. A `SlotLevel` has what is to be known from one batch to the
next: whether the tasks have had their last tick, whether they are closed, and how large their saved
state is. The engines differ in how a batch comes to its end, and in how that which it leaves behind
becomes durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from topo.metrics.counters import TaskMetrics
from topo.runtime.input_times import Marks
from topo.runtime.slot import SlotTasks
from topo.runtime.state_size import StoredSizes
from topo.storage.saving import Changes
from topo.tracking.ids import Updates
from topo.tracking.plan import Mode
from topo.wire.frame import AnyFrame


@dataclass(frozen=True)
class BatchEnd:
    """What a batch leaves behind in a level of a slot."""

    changes: Mapping[int, Changes]
    """Of each task whose saved state is another now."""
    updates: Updates
    metrics: dict[int, TaskMetrics]
    last_tick: bool | None
    """True: the tasks had their last tick in this batch. False: they are to have another at the end
    of the run, since more came. None: it is with them as it was before."""


class SlotLevel:
    """The open tasks of a level of a slot, or of a whole topology."""

    def __init__(
        self,
        host: SlotTasks,
        saved: Mapping[int, Mapping[str, bytes]],
        *,
        had_last_tick: bool,
        is_durable: bool = True,
    ) -> None:
        """Take the tasks, opened with what was saved; without `is_durable` nothing will be."""
        self.host = host
        self.had_last_tick = had_last_tick
        self.is_closed = False
        self._is_durable = is_durable
        self._sizes = StoredSizes(saved)
        self._last_tick: bool | None = None

    def work(
        self,
        frames: Iterable[AnyFrame],
        mode: Mode,
        *,
        more_came: bool,
        marks: Iterable[Marks] = (),
    ) -> Iterator[AnyFrame]:
        """Do the last work of a batch; the caller iterates to the end, and then calls `finish`.

        The tasks get their last tick once. Only a restarted driver lets spouts resume afterwards:
        a level that then gets tuples (`more_came`) will have a last tick again.
        """
        self._last_tick = None
        if mode == Mode.LAST_TICK and not self.had_last_tick:
            self._last_tick = True
        elif mode == Mode.ACTIVE and self.had_last_tick and more_came:
            self._last_tick = False
        if self._last_tick is not None:
            self.had_last_tick = self._last_tick
        return self.host.work(frames, last_tick=self._last_tick is True, marks=marks)

    def finish(self, mode: Mode) -> BatchEnd:
        """End the batch, whose work is done, and return what is to become durable of it."""
        if mode == Mode.CLOSE:
            self.host.close()
            self.is_closed = True
        changes = self.host.save()  # before the updates, to which it adds held tuples
        if not self._is_durable:
            changes = {}
        for task, changed in changes.items():
            self._sizes.change(task, changed)
        updates = self.host.take_updates()
        metrics = self.host.take_metrics()
        self._sizes.report(metrics)
        return BatchEnd(changes, updates, metrics, self._last_tick)
