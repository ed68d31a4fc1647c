"""Execution of the tasks of one slot, or of a whole topology, batch by batch: the engines' seam.

An engine makes a SlotTasks for the tasks that live together, and in each batch calls, in order:
`begin`, then for spouts `deliver` and `poll`, then `work` with the frames that arrived, and what a
`SlotLevel` does at the end. Frames between tasks of the same slot are processed at once, those to
other tasks come out of `work`. This module knows no Spark, gRPC or threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap
from random import Random
from time import monotonic
from typing import TypeVar

from topo.logs.prints import flush_prints
from topo.metrics.counters import TaskMetrics
from topo.runtime.basic_bolt_task import BasicBoltTask
from topo.runtime.bolt_task import BoltTask
from topo.runtime.input_times import Marks
from topo.runtime.rich_bolt_task import RichBoltTask
from topo.runtime.roundabout import Roundabout
from topo.runtime.spout_task import SpoutTask
from topo.runtime.task import Task, TaskEnvironment, full_conf, note_of
from topo.runtime.timed_task import TimedBoltTask
from topo.storage.classes import saved_by
from topo.storage.saving import Changes
from topo.topology.order import arrival_order, producers_first
from topo.tracing.exporting import exporter_to, flush_exporters
from topo.tracing.spans import Tracer
from topo.tracking.ids import EdgeIds, Updates, fresh_nonce
from topo.tracking.verdicts import Verdicts
from topo.wire.frame import LOOPED, AnyFrame

T = TypeVar("T")

__all__ = ["Batch", "SlotTasks", "TaskEnvironment", "full_conf"]


@dataclass(frozen=True)
class Batch:
    """One micro-batch: its number, its clock and the previous batch's clock, in seconds."""

    id: int
    now: float
    before: float


_note: mmap | None = None
"""Where this process says which task it is executing, if somebody would read that."""
_NOTHING = note_of("")


def note_in(note: mmap) -> None:
    """Write into this memory, from now on, which task is being executed."""
    global _note
    _note = note


def note_nothing() -> None:
    """Say that no task is being executed."""
    if _note is not None:
        _note[:] = _NOTHING


class SlotTasks:
    """The tasks of one slot.

    `shuffled` gives the order in which tasks of a component run, and in which a bolt gets their
    frames; without it both are by number. It does not change the order of a bolt's inputs, which is
    promised: see `arrival_order`. With `travelling`, frames between tasks of this slot are encoded
    and decoded as if they went to another slot.
    """

    def __init__(
        self,
        setting: TaskEnvironment,
        tasks: Iterable[int],
        *,
        shuffled: Random | None = None,
        travelling: bool = False,
        nonce: Callable[[], int] = fresh_nonce,
    ) -> None:
        self.setting = setting
        self._shuffled = shuffled
        self._nonce = nonce
        self._tracer = _tracer(setting)
        self.tasks: dict[int, Task] = {
            task: _task(setting, task, self._tracer) for task in sorted(tasks)
        }
        for made in self.tasks.values():
            made.outlet.outbox.unpacked_for = frozenset(() if travelling else self.tasks)
        self._order = _by_component(setting, self.tasks)
        self._arrival = {
            bolt: {component: rank for rank, component in enumerate(components)}
            for bolt, components in arrival_order(setting.topology).items()
        }
        self.spouts = [task for task in self.tasks.values() if isinstance(task, SpoutTask)]
        self.roundabout = Roundabout(setting, self.tasks.values())
        """What goes round, of the tasks that feed loops."""
        self._batch = Batch(0, 0.0, 0.0)
        self._exhausted: set[int] = set()
        self.marks = Marks()
        """What this batch's producers said about time: those of this slot, and what has come."""

    def keep_decoded_for(self, tasks: frozenset[int]) -> None:
        """Let `work` yield frames for these tasks, of other SlotTasks of this process, decoded."""
        for task in self.tasks.values():
            task.outlet.outbox.near_for = tasks

    # -- life ---------------------------------------------------------------------------------

    def open(self, saved: Mapping[int, Mapping[str, bytes]] | None = None) -> None:
        """Start every instance: copy the prototype, open or prepare, load saved state, restored."""
        self.setting.shared.add_user(self)
        for task in self.tasks.values():
            if _note is not None:
                _note[:] = task.note
            with saved_by(f"{task.owner} task {task.id}", type(task.component).moved):
                task.open((saved or {}).get(task.id, {}))
                task.load_laps((saved or {}).get(task.id, {}))

    def close(self) -> None:
        """Close every component at the orderly end of the run."""
        for task in self.tasks.values():
            task.close()
        self.setting.shared.remove_user(self)
        flush_prints()
        if self._tracer is not None:
            self._tracer.flush()
            flush_exporters()

    # -- a batch ------------------------------------------------------------------------------

    def begin(self, batch: Batch) -> None:
        self._batch = batch
        if self._tracer is not None:
            self._tracer.begin(batch.id)
        self.marks = Marks()
        ids = EdgeIds(self._nonce())
        for task in self.tasks.values():
            task.begin(batch.id, batch.now, ids)

    def take_batch_ends(self) -> bool:
        """Return True if a spout has asked for the batch's end since the last call."""
        asked = [spout for spout in self.spouts if spout.context.ends_batch]
        for spout in asked:
            spout.context.ends_batch = False
        return bool(asked)

    def tell_committed(self, upto: int | None = None) -> None:
        """Tell every component that its batches up to this one, or all, are committed."""
        for task in self.tasks.values():
            task.tell_committed(upto)

    def turn(self, now: float, *, ticking: bool = True) -> None:
        """Move the clock on within the batch; with `ticking`, the next `work` runs due ticks."""
        before = self._batch.now if ticking else now
        self._batch = Batch(self._batch.id, now, before)
        for task in self.tasks.values():
            task.turn(now)

    def next_tick(self) -> float:
        """Return when the next tick is due, by the clock of batches; infinity if none is."""
        bolts = (task for task in self.tasks.values() if isinstance(task, BoltTask))
        due = (bolt.next_tick(self._batch.now) for bolt in bolts)
        return min((at for at in due if at is not None), default=math.inf)

    def set_active(self, active: bool) -> None:
        for spout in self.spouts:
            spout.set_active(active)
            if not active:
                self.marks.asked[spout.id] = None

    def meet_ackers(self, incarnations: Mapping[int, int]) -> None:
        """Tell the bolts the incarnation of the acker that has the roots of each spout task.

        A bolt that holds tuples of roots at another incarnation adds them to the rebuilt trees.
        Call this right after `begin`, and only if lost trees are rebuilt.
        """
        for task in self.tasks.values():
            if isinstance(task, RichBoltTask):
                task.meet_ackers(incarnations)
        self.roundabout.meet_ackers(incarnations)

    def deliver(
        self, task: int, incarnation: str, verdicts: Verdicts, *, rebuilds: bool = False
    ) -> None:
        """Deliver verdicts of this incarnation of the acker to a spout task."""
        spout = self.tasks[task]
        assert isinstance(spout, SpoutTask)
        if _note is not None:
            _note[:] = spout.note
        before = spout.pending_count
        spout.meet_acker(incarnation, rebuilds)
        spout.deliver(verdicts)
        # The batch may end before the spout is asked again: what has failed would be lost.
        is_told = spout.pending_count != before
        if is_told and task in self._exhausted and not spout.is_exhausted():
            self._exhausted.discard(task)

    def poll(self, max_tuples: int, rounds: int | None = None, until: float = math.inf) -> int:
        """Ask the spouts in turn; return how many tuples they emitted.

        Polling ends when a whole round emitted nothing, when every spout is at its pending limit,
        after `max_tuples`, after `rounds`, or at `until` by the monotonic clock.
        """
        emitted = 0
        done = 0
        asked = [spout for spout in self.spouts if not (spout.at_limit or spout.is_paused)]
        for spout in asked:
            spout.worked = True
        while asked and emitted < max_tuples and done != rounds and monotonic() < until:
            before = emitted
            alone = len(asked) == 1 and rounds is None
            for spout in self._in_turn(asked):
                if _note is not None:
                    _note[:] = spout.note
                made = spout.poll(max_tuples - emitted if alone else 1, until)
                emitted += made
                if made:
                    self._exhausted.discard(spout.id)
                elif not spout.stalled and spout.is_exhausted():
                    self._exhausted.add(spout.id)
                else:  # a message that has failed since may be due again
                    self._exhausted.discard(spout.id)
            done += 1
            if emitted == before and rounds is None:
                break
            asked = [spout for spout in asked if not (spout.at_limit or spout.is_paused)]
        note_nothing()  # or a spout without data would pass for one that hangs
        for spout in self.spouts:
            self.marks.asked[spout.id] = spout in asked
        return emitted

    @property
    def polled_as_columns(self) -> int:
        """The number of untracked tuples that came as Arrow columns in this batch."""
        return sum(spout.outlet.untracked_columns for spout in self.spouts)

    def receive(self, task: int, rows: bytes) -> int:
        """Give a spout rows that the engine has read; return how many tuples it emitted of them."""
        spout = self.tasks[task]
        assert isinstance(spout, SpoutTask)
        if _note is not None:
            _note[:] = spout.note
        return spout.receive(rows)

    def take_handed_out(self) -> dict[int, list[bytes]]:
        """Return the rows that tasks have given to the engine since the last call."""
        found = {}
        for task in self.tasks.values():
            if task.context.handed_out:
                found[task.id], task.context.handed_out = task.context.handed_out, []
        return found

    @property
    def stalls(self) -> tuple[str, ...]:
        """The reasons of the spouts that cannot emit."""
        return tuple(spout.stalled for spout in self.spouts if spout.stalled)

    @property
    def timed(self) -> list[TimedBoltTask]:
        """The tasks of bolts that work in event time."""
        return [task for task in self.tasks.values() if isinstance(task, TimedBoltTask)]

    def wakes_at(self) -> list[float | None]:
        """Return when, by the clock, something is due: idle inputs, windows by arrival, timers."""
        due = [task.next_due() for task in self.timed]
        return due + [end for spout in self.spouts if (end := spout.times.next_end) is not None]

    @property
    def exhausted(self) -> bool:
        """True iff every spout task was exhausted when it was last asked, or heard verdicts."""
        return len(self._exhausted) == len(self.spouts)

    @property
    def is_done(self) -> bool:
        """True iff nothing more will come of the spouts, and no message of theirs is pending."""
        return self.exhausted and not self.pending

    @property
    def is_waiting(self) -> bool:
        """True if a task has emitted something that has not been dealt."""
        return any(task.outlet.is_waiting for task in self.tasks.values())

    @property
    def is_called(self) -> bool:
        """True if other threads have left calls for a bolt; spouts make theirs when asked."""
        bolts = (task for task in self.tasks.values() if not isinstance(task, SpoutTask))
        return any(task.threads for task in bolts)

    @property
    def pending(self) -> int:
        return sum(spout.pending_count for spout in self.spouts)

    def work(
        self,
        frames: Iterable[AnyFrame] = (),
        *,
        last_tick: bool = False,
        pre_commit: bool = True,
        marks: Iterable[Marks] = (),
    ) -> Iterator[AnyFrame]:
        """Run every task over the frames for it; yield the frames for tasks that are not here.

        The caller must iterate to the end: tasks run during the iteration. `pre_commit` False: more
        work of the same batch follows.
        """
        for said in marks:
            self.marks.add(said)
        inbox: dict[int, list[AnyFrame]] = {}
        for frame in frames:
            inbox.setdefault(frame.target_task, []).append(frame)
        for tasks in self._order:
            for task in self._in_turn(tasks):
                if _note is not None:
                    _note[:] = task.note
                if isinstance(task, BoltTask):
                    self._run_bolt(task, inbox.pop(task.id, []), last_tick)
                task.settle()
                if pre_commit and isinstance(task, TimedBoltTask):
                    task.advance(self.marks, ended=last_tick)
                if pre_commit:
                    task.pre_commit(self._batch.id)
                for frame in task.outlet.frames():
                    if frame.target_task in self.tasks:
                        inbox.setdefault(frame.target_task, []).append(frame)
                    else:
                        yield frame
                task.keep_laps()
            for task in tasks:
                for consumer, born, highest in task.marks():
                    self.marks.highest.setdefault(consumer, {})[born] = highest
                if isinstance(task, SpoutTask):
                    if task.splits is not None:
                        self.marks.splits[task.id] = task.splits
                    for consumer, lowest in task.times.lowest():
                        self.marks.held.setdefault(consumer, {})[task.id] = lowest

    def _run_bolt(self, task: BoltTask, frames: list[AnyFrame], last_tick: bool) -> None:
        if task.tick_due(self._batch.now, self._batch.before):
            task.tick()
        if isinstance(task, TimedBoltTask):
            task.begin_rows(self.marks)
        if frames:
            task.execute(self._ordered(task, frames))
        if last_tick and task.last_tick_due():
            task.tick()  # after what the last tick of those before it made

    def _ordered(self, task: BoltTask, frames: list[AnyFrame]) -> list[AnyFrame]:
        """Return the frames by input, then by source task, each task's in the order of emission.

        What has come over a loop is of an earlier batch, and comes first.
        """
        if len(frames) == 1:
            return frames
        arrival, component_of = self._arrival[task.component_id], self.setting.layout.component_of
        sources = sorted({frame.source_task for frame in frames})
        rank = {s: (arrival[component_of(s)], n) for n, s in enumerate(self._in_turn(sources))}
        return sorted(
            frames,
            key=lambda frame: (frame.sequence < LOOPED, rank[frame.source_task], frame.sequence),
        )

    def _in_turn(self, tasks: Sequence[T]) -> Sequence[T]:
        if self._shuffled is None:
            return tasks
        return self._shuffled.sample(tasks, len(tasks))

    # -- the end of a batch -------------------------------------------------------------------

    def save(self) -> dict[int, Changes]:
        """Return the changes of this batch to each task's saved state; omit unchanged tasks."""
        self.roundabout.check()
        found = {}
        for task in self.tasks.values():
            changes = task.save()
            if task.laps is not None:
                task.laps.save(changes)
            if changes:
                found[task.id] = changes
        return found

    def take_updates(self) -> Updates:
        """Return the batch's updates for the acker; call after `save`, which adds held tuples."""
        return Updates.concat(self.take_update_parts())

    def take_update_parts(self) -> list[Updates]:
        """Return the same in parts, for who joins them with those of others."""
        return [part for task in self.tasks.values() for part in task.updates.take_parts()]

    def take_metrics(self) -> dict[int, TaskMetrics]:
        return {task.id: task.take_metrics() for task in self.tasks.values()}


def _by_component(setting: TaskEnvironment, tasks: Mapping[int, Task]) -> list[list[Task]]:
    groups = [
        [tasks[task] for task in setting.layout.tasks_of(definition.id) if task in tasks]
        for definition in producers_first(setting.topology)
    ]
    return [group for group in groups if group]


def _task(setting: TaskEnvironment, task: int, tracer: Tracer | None) -> Task:
    definition = setting.topology.component(setting.layout.component_of(task))
    if definition.is_spout:
        return SpoutTask(setting, task, tracer)
    if definition.timed:
        return TimedBoltTask(setting, task, tracer)
    return (BasicBoltTask if definition.basic else RichBoltTask)(setting, task, tracer)


def _tracer(setting: TaskEnvironment) -> Tracer | None:
    rate = setting.conf["topology.trace.rate"]
    if not rate or not setting.tracking:
        return None
    exporter = exporter_to(setting.conf["topology.trace.endpoint"], setting.name)
    return Tracer(rate, lambda spans: exporter.export(setting.checkpoint_id, spans))
