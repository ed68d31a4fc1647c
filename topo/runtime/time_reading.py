"""Finding the time of tuples: of a bolt's inputs, and of what a producer emits to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from topo.event_time import BEFORE_ALL, EventTime, TimeReader
from topo.timed import InputFields, TimedBolt
from topo.tuples import UNTRACKED, Source, new_tuple

if TYPE_CHECKING:
    from topo.runtime.task import TaskEnvironment
    from topo.topology.model import ComponentDef


class TimeObserver:
    """The highest time that a task emitted on a stream in this batch, as one reader sees it."""

    def __init__(self, consumer: str, time: EventTime, reader: TimeReader) -> None:
        self.consumer = consumer
        self.time = time
        self._reader = reader
        self._limit: int | None = None
        self._highest = BEFORE_ALL

    def start_batch(self, now: float) -> None:
        """Begin a batch at this clock."""
        self._highest = BEFORE_ALL
        if self.time.max_ahead is not None:
            self._limit = self.time.clock_ticks(now + self.time.max_ahead.total_seconds())

    def note(self, columns: Any, count: int) -> None:
        """Look at what is being emitted."""
        found = self._reader.highest(columns, count, self._limit)
        if found is not None and found > self._highest:
            self._highest = found

    def observe(self, value: Any) -> None:
        """Take a time that the component has seen though it emitted nothing with it."""
        ticks = self.time.read(value)
        if (self._limit is None or ticks <= self._limit) and ticks > self._highest:
            self._highest = ticks

    def observe_all(self, values: Sequence[Any]) -> None:
        """Do what `observe` does for each value; one that is no time is passed over."""
        found = self._reader.highest_of(values, self._limit, offset=0)
        if found is not None and found > self._highest:
            self._highest = found

    @property
    def highest(self) -> int | None:
        return self._highest if self._highest > BEFORE_ALL else None


def time_reader(
    setting: TaskEnvironment,
    consumer: ComponentDef,
    bolt: TimedBolt,
    component: str,
    stream: str,
    time: EventTime | None = None,
) -> TimeReader | None:
    """Return what reads the time of a bolt's input; None for an input without times."""
    time = time or bolt.timing()
    producer = setting.topology.component(component)
    declared = producer.output(stream)
    if time is None or declared is None or component in time.untimed:
        return None
    where = f"bolt {consumer.id!r}, tuple of {component!r}"
    if time.extractor is not None:
        source = Source(component, stream, -1, declared.fields)
        make = partial(_made, source)
        return TimeReader(time, where, declared.fields, make=make)
    read = InputFields(component, stream, declared.fields, "", ())
    name, offset = bolt.time_field(read), 0
    if name is None and producer.timed:
        found = setting.timed(component).result_time(stream)
        if found is not None:
            name, offset = found
    if name is None or name not in declared.fields:
        return None
    return TimeReader(time, where, declared.fields, name=name, offset=offset)


def _made(source: Source, *values: Any) -> Any:
    return new_tuple(source, values, UNTRACKED)
