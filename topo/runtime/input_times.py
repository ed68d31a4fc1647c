"""The watermark of one component: from what its inputs' tasks have seen, batch by batch.

In micro-batches nothing is in flight between two batches, so the times travel beside the frames:
each task says the highest time it emitted in this batch, every task of the reading component hears
of all of them, and so all of them come to the same watermark, in the same batch. What is known is
saved by the reading tasks, with their state; producers save nothing.

An input is one task of a component. It is idle when its source was asked and had nothing for a
while; behind bolts, when all spouts before it were asked. A spout at its pending limit, or one
that is not asked, is not idle: it may hold tuples of any time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from topo.event_time import AFTER_ALL, BEFORE_ALL, EventTime
from topo.runtime.watermarks import IdleTimer, WatermarkMerger
from topo.topology.layout import TaskLayout
from topo.topology.model import Topology

Input: TypeAlias = tuple[str, str, int]
"""Component, stream and task of a producer."""


@dataclass
class Marks:
    """The times that the producers of a batch have seen."""

    highest: dict[str, dict[Input, int]] = field(default_factory=dict)
    """By reading component and input, the highest time emitted in this batch."""
    asked: dict[int, bool | None] = field(default_factory=dict)
    """Of each spout task, whether it was asked and could have emitted more; None: inactive."""
    held: dict[str, dict[int, int]] = field(default_factory=dict)
    """By reading component and spout task, the lowest time of its pending messages."""

    def add(self, other: Marks) -> None:
        """Take over what another slot says."""
        for consumer, found in other.highest.items():
            self.highest.setdefault(consumer, {}).update(found)
        for consumer, lowest in other.held.items():
            self.held.setdefault(consumer, {}).update(lowest)
        self.asked.update(other.asked)

    def pack(self) -> bytes:
        """Return what `unpack` takes."""
        return pickle.dumps((self.highest, self.asked, self.held), protocol=5)

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Marks:
        """Return the marks that another slot packed."""
        return cls(*pickle.loads(data))

    def only_for(self, consumers: Iterable[str]) -> Marks:
        """Return what matters to some components."""
        names = list(consumers)
        highest = {name: self.highest[name] for name in names if name in self.highest}
        held = {name: self.held[name] for name in names if name in self.held}
        return Marks(highest, self.asked, held)


class InputTimes:
    """The watermark of one component, as one of its tasks keeps it."""

    def __init__(
        self,
        time: EventTime,
        inputs: Mapping[Input, frozenset[int]],
        consumer: str,
        every_secs: float = 0.0,
        holders: Mapping[int, str] | None = None,
    ) -> None:
        """Begin before all times.

        `inputs` has for each input the spout tasks that it comes from, `holders` the spout of each
        task whose pending messages hold the watermark.
        """
        self._holders = dict(holders or {})
        self._held: dict[int, int] = {}
        self._every_secs = every_secs
        self._time = time
        self._spouts = dict(inputs)
        self._consumer = consumer
        self._merger = WatermarkMerger(inputs, time.merge)
        self._lags = {key: time.lag_of(key[0]) for key in inputs}
        idle = None if time.idle is None else time.idle.total_seconds()
        self._timers = {key: IdleTimer(idle) for key in inputs} if idle else {}
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
        for key in self._spouts:
            self._hear(key, highest.get(key), marks.asked, now)
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

    def _hear(
        self, key: Input, highest: int | None, asked: Mapping[int, bool | None], now: float
    ) -> None:
        merger = self._merger
        if self._by_clock:
            clock = self._time.clock_ticks(now)
            if highest is not None:
                self._ahead[key] = max(self._ahead.get(key, BEFORE_ALL), highest - clock)
            if key in self._ahead:
                merger.observe(key, self._ahead[key] + clock - self._lags[key])
            return
        timer = self._timers.get(key)
        if highest is not None:
            if timer is not None:
                timer.active()
                timer.is_idle(now)
            merger.set_idle(key, False)
            mark = highest if highest >= AFTER_ALL else highest - self._lags[key]
            merger.observe(key, mark)
        elif timer is not None and not merger.is_idle(key):
            if not all(asked.get(spout, False) for spout in self._spouts[key]):
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
        if next_event is None or len(self._ahead) < len(self._spouts) or not self._ahead:
            return None
        if min(self._held.values(), default=AFTER_ALL) < next_event:
            return None  # it waits for a verdict, not for the clock
        slowest = min(ahead - self._lags[key] for key, ahead in self._ahead.items())
        return self._time.clock_at(next_event - slowest)

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
        named = [key for key in self._merger.holding_back() if isinstance(key, tuple)]
        return [f"{component!r} task {task}" for component, _, task in named]

    def state(self) -> Any:
        """Return what `restore` takes."""
        timers = {key: timer.since for key, timer in self._timers.items()}
        merged = self._merger.state()
        return merged, self._watermark, self._ahead, timers, self._moved_at, self._held

    def restore(self, state: Any) -> None:
        """Take over what was saved with the last commit."""
        merged, self._watermark, ahead, timers, self._moved_at, *rest = state
        held = rest[0] if rest else {}
        self._held = {task: at for task, at in held.items() if task in self._holders}
        self._merger.restore(merged)
        self._ahead = {key: value for key, value in ahead.items() if key in self._spouts}
        for key, since in timers.items():
            if key in self._timers:
                self._timers[key].since = since


def spouts_behind(topology: Topology, layout: TaskLayout, component: str) -> frozenset[int]:
    """Return the tasks of all spouts that a component's tuples come from; its own, of a spout."""
    definition = topology.component(component)
    if definition.is_spout:
        return frozenset(layout.tasks_of(component))
    found: set[int] = set()
    for read in definition.inputs:
        found |= spouts_behind(topology, layout, read.component)
    return frozenset(found)
