"""The watermark of one component: from what its inputs' tasks have seen, batch by batch.

In micro-batches nothing is in flight between two batches, so the times travel beside the frames:
each task says the highest time it emitted in this batch, every task of the reading component hears
of all of them, and so all of them come to the same watermark, in the same batch. What is known is
saved by the reading tasks, with their state; producers save nothing.

An input is one task of a component at which times are born (`births`). It is idle when its source
was asked and had nothing for a while; behind bolts, when all spouts before it were asked. A spout
at its pending limit, or one that is not asked, is not idle: it may hold tuples of any time.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from topo.event_time import AFTER_ALL, BEFORE_ALL, EventTime
from topo.runtime.watermarks import IdleTimer, WatermarkMerger
from topo.topology.layout import TaskLayout
from topo.topology.model import Topology
from topo.topology.order import reached


class Input(NamedTuple):
    """A place where times are born: a task of a component, or a part of what a spout task reads."""

    component: str
    stream: str
    task: int
    split: str | None = None


@dataclass
class Marks:
    """The times that the producers of a batch have seen."""

    highest: dict[str, dict[Input, int]] = field(default_factory=dict)
    """By reading component and input, the highest time emitted in this batch."""
    asked: dict[int, bool | None] = field(default_factory=dict)
    """Of each spout task, whether it was asked and could have emitted more; None: inactive."""
    held: dict[str, dict[int, int]] = field(default_factory=dict)
    """By reading component and spout task, the lowest time of its pending messages."""
    splits: dict[int, Mapping[str, bool]] = field(default_factory=dict)
    """Of each spout task whose source has parts, those that it reads; whether each has more."""

    def add(self, other: Marks) -> None:
        """Take over what another slot says."""
        for consumer, found in other.highest.items():
            self.highest.setdefault(consumer, {}).update(found)
        for consumer, lowest in other.held.items():
            self.held.setdefault(consumer, {}).update(lowest)
        self.asked.update(other.asked)
        self.splits.update(other.splits)

    def pack(self) -> bytes:
        """Return what `unpack` takes."""
        return pickle.dumps((self.highest, self.asked, self.held, self.splits), protocol=5)

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Marks:
        """Return the marks that another slot packed."""
        return cls(*pickle.loads(data))

    def only_for(self, consumers: Iterable[str]) -> Marks:
        """Return what matters to some components."""
        names = list(consumers)
        highest = {name: self.highest[name] for name in names if name in self.highest}
        held = {name: self.held[name] for name in names if name in self.held}
        return Marks(highest, self.asked, held, self.splits)


class InputTimes:
    """The watermark of one component, as one of its tasks keeps it."""

    def __init__(
        self,
        time: EventTime,
        inputs: Mapping[Input, frozenset[int]],
        consumer: str,
        lags: Mapping[Input, int],
        every_secs: float = 0.0,
        holders: Mapping[int, str] | None = None,
    ) -> None:
        """Begin before all times.

        `inputs` has for each input the spout tasks that it comes from, `lags` how much later than
        its highest time a tuple of it may come; `holders` the spout of each task whose pending
        messages hold the watermark.
        """
        self._holders = dict(holders or {})
        self._held: dict[int, int] = {}
        self._every_secs = every_secs
        self._time = time
        self._tasks = dict(inputs)
        self._inputs = dict.fromkeys(inputs)
        """The inputs by task, or by the parts that a task reads."""
        self._consumer = consumer
        self._merger = WatermarkMerger(inputs, time.merge)
        self._lags = dict(lags)
        self._idle_secs = None if time.idle is None else time.idle.total_seconds()
        self._timers: dict[Input, IdleTimer] = {}
        for key in inputs:
            self._add_timer(key)
        self._by_clock = time.when_idle == "clock"
        self._ahead: dict[Input, int] = {}  # highest time less the clock then
        self._watermark = BEFORE_ALL
        self._moved_at: float | None = None

    @property
    def watermark(self) -> int:
        return self._watermark

    def fold(self, marks: Marks, now: float, *, ended: bool = False) -> int:
        """Take in a batch's marks and return the new watermark."""
        highest = marks.highest.get(self._consumer, {})
        in_parts = {
            task: marks.splits[task.task]
            for task, spouts in self._tasks.items()
            if task.task in marks.splits and spouts == {task.task}
        }
        for task, splits in in_parts.items():
            self._begin_splits(task, splits)
        for key in highest:  # of parts that were begun and ended in one batch
            if key.split is not None and (task := key._replace(split=None)) in in_parts:
                self._begin_splits(task, [key.split])
        for key in self._inputs:
            has_more = key.split is not None and marks.splits.get(key.task, {}).get(key.split, True)
            self._hear(key, highest.get(key), marks.asked, now, has_more=has_more)
        for task, splits in in_parts.items():
            self._end_splits(task, splits)
        self._held.update(marks.held.get(self._consumer, {}))
        found = AFTER_ALL if ended else self._complete_to
        if not ended and self._moved_at is not None and now < self._moved_at + self._every_secs:
            return self._watermark
        if found > self._watermark or self._moved_at is None:
            self._moved_at = now
        self._watermark = max(self._watermark, found)
        return self._watermark

    @property
    def _complete_to(self) -> int:
        """The watermark by all inputs, and by what is pending."""
        return min(self._merger.watermark, *self._held.values(), AFTER_ALL)

    def _begin_splits(self, task: Input, splits: Iterable[str]) -> None:
        """Have an input for each part that a task reads, in place of the task's."""
        splits = list(splits)
        for split in splits:
            key = task._replace(split=split)
            if key not in self._inputs:
                self._inputs[key] = None
                self._merger.add(key)
                self._add_timer(key)
        if splits and task in self._inputs:  # now that its parts hold the watermark
            self._leave(task)
            self._merger.set_idle(task)

    def _end_splits(self, task: Input, splits: Collection[str]) -> None:
        """Forget the parts of a task that it reads no more; how far they came is the task's."""
        parts = [key for key in self._inputs if key.split and key._replace(split=None) == task]
        retired = [key for key in parts if key.split not in splits]
        for key in retired:
            if key in self._ahead:
                ahead = self._ahead[key]
                self._ahead[task] = max(ahead, self._ahead.get(task, BEFORE_ALL))
            self._leave(key)
            self._merger.retire(key, task)
        if not splits and task not in self._inputs:
            # It may have others later: until it is idle by its own rule, it holds the watermark.
            self._inputs[task] = None
            self._add_timer(task)
            self._merger.set_idle(task, False)
        if retired:
            self._merger.advance()

    def _leave(self, key: Input) -> None:
        del self._inputs[key]
        self._timers.pop(key, None)
        if key.split is not None:
            self._ahead.pop(key, None)

    def _add_timer(self, key: Input) -> None:
        if self._idle_secs:
            self._timers[key] = IdleTimer(self._idle_secs)

    def _lag(self, key: Input) -> int:
        return self._lags[key._replace(split=None)]

    def _hear(
        self,
        key: Input,
        highest: int | None,
        spouts_asked: Mapping[int, bool | None],
        now: float,
        *,
        has_more: bool,
    ) -> None:
        merger = self._merger
        if self._by_clock:
            clock = self._time.clock_ticks(now)
            if highest is not None:
                self._ahead[key] = max(self._ahead.get(key, BEFORE_ALL), highest - clock)
            if key in self._ahead:
                merger.observe(key, self._ahead[key] + clock - self._lag(key))
            return
        timer = self._timers.get(key)
        if highest is not None:
            if timer is not None:
                timer.active()
                timer.is_idle(now)
            merger.set_idle(key, False)
            mark = highest if highest >= AFTER_ALL else highest - self._lag(key)
            merger.observe(key, mark)
        elif timer is not None and not merger.is_idle(key):
            spouts = self._tasks[key._replace(split=None)]
            if has_more or not all(spouts_asked.get(spout, False) for spout in spouts):
                timer.active()
            elif timer.is_idle(now):
                merger.set_idle(key)

    def next_due(self, next_event: int | None) -> float | None:
        """Return when, by the clock, an input becomes idle, or a result is due by the clock."""
        if self._by_clock:
            return self._clock_due(next_event)
        merger = self._merger
        if self._complete_to > self._watermark and self._moved_at is not None:
            return self._moved_at + self._every_secs
        times = [timer.due() for key, timer in self._timers.items() if not merger.is_idle(key)]
        return min((time for time in times if time is not None), default=None)

    def _clock_due(self, next_event: int | None) -> float | None:
        aheads = [self._ahead.get(key) for key in self._inputs]
        if next_event is None or None in aheads or not aheads:
            return None
        if min(self._held.values(), default=AFTER_ALL) < next_event:
            return None  # it waits for a verdict, not for the clock
        slowest = min(self._ahead[key] - self._lag(key) for key in self._inputs)
        return self._time.clock_at(next_event - slowest)

    @property
    def is_single(self) -> bool:
        """True iff times are born at one place only: one task, and one part of what it reads."""
        return len(self._inputs) == 1 and len(self._tasks) == 1

    @property
    def all_idle(self) -> bool:
        return self._merger.all_idle

    def stands_since(self) -> float | None:
        """Return the clock when the watermark last moved."""
        return self._moved_at

    def held_back_by(self) -> list[str]:
        """Return the inputs that keep the watermark where it is, in words."""
        lowest = min(self._held.values(), default=AFTER_ALL)
        if lowest < self._merger.watermark:
            tasks = [task for task, held in self._held.items() if held == lowest]
            return [f"a pending message of {self._holders[task]!r} task {task}" for task in tasks]
        named = [key for key in self._merger.holding_back() if isinstance(key, Input)]
        return [
            f"{key.component!r} task {key.task}" + (f", its {key.split!r}" if key.split else "")
            for key in named
        ]

    def state(self) -> Any:
        """Return what `restore` takes: plain data."""
        watermark, inputs = self._merger.state()
        merged = watermark, {tuple(key): values for key, values in inputs.items()}
        ahead = {tuple(key): at for key, at in self._ahead.items()}
        timers = {tuple(key): timer.since for key, timer in self._timers.items()}
        return merged, self._watermark, ahead, timers, self._moved_at, self._held

    def restore(self, state: Any) -> None:
        """Take over what was saved with the last commit."""
        (merged, inputs), self._watermark, ahead, timers, self._moved_at, *rest = state
        held = rest[0] if rest else {}
        self._held = {task: at for task, at in held.items() if task in self._holders}
        self._restore_splits(inputs)
        self._merger.restore((merged, {Input(*key): values for key, values in inputs.items()}))
        ahead = {Input(*key): at for key, at in ahead.items()}
        self._ahead = {
            key: at for key, at in ahead.items() if key in self._inputs or key in self._tasks
        }
        for key, since in timers.items():
            if Input(*key) in self._timers:
                self._timers[Input(*key)].restore(since)

    def _restore_splits(self, inputs: Iterable[Any]) -> None:
        """Have the inputs of the parts that were read when the last commit was made."""
        splits: dict[Input, list[str]] = {}
        for component, stream, task, *split in inputs:
            if split and split[0] is not None:
                splits.setdefault(Input(component, stream, task), []).append(split[0])
        for task, names in splits.items():
            if task in self._tasks:
                self._begin_splits(task, names)


def spouts_behind(topology: Topology, layout: TaskLayout, component: str) -> frozenset[int]:
    """Return the tasks of all spouts that a component's tuples come from; its own, of a spout."""
    reads = {
        name: [read.component for read in definition.inputs]
        for name, definition in topology.components.items()
    }
    behind = reached([component], reads)  # a loop leads back to where it began
    return frozenset(
        task
        for spout in topology.spouts
        if spout.id in behind
        for task in layout.tasks_of(spout.id)
    )
