"""Finding the time of tuples: of a bolt's inputs, and of what a producer emits to it."""

from __future__ import annotations

from collections.abc import Mapping
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
        self._split: str | None = None
        self._highest: dict[str | None, int] = {}

    def start_batch(self, now: float) -> None:
        """Begin a batch at this clock."""
        self._highest = {}
        if self.time.max_ahead is not None:
            self._limit = self.time.clock_ticks(now + self.time.max_ahead.total_seconds())

    def note(self, columns: Any, count: int) -> None:
        """Look at what is being emitted."""
        highest = self._reader.highest(columns, count, self._limit)
        if highest is not None:
            self._take(highest)

    def observe(self, value: Any) -> None:
        """Take a time that the component has seen though it emitted nothing with it."""
        ticks = self.time.read(value)
        if self._limit is None or ticks <= self._limit:
            self._take(ticks)

    def from_split(self, split: str) -> None:
        """Take what is emitted next as of a part of the source."""
        self._split = split

    def _take(self, ticks: int) -> None:
        if ticks > self._highest.get(self._split, BEFORE_ALL):
            self._highest[self._split] = ticks

    @property
    def highest(self) -> Mapping[str | None, int]:
        """The highest time of each part of the source; of None, if there are no parts."""
        return self._highest


def time_reader(
    setting: TaskEnvironment,
    consumer: ComponentDef,
    bolt: TimedBolt,
    component: str,
    stream: str,
    time: EventTime | None = None,
    field: str | None = None,
) -> TimeReader | None:
    """Return what reads the time of a bolt's input; None for an input without times.

    `field` names it, of a component that the bolt does not read itself.
    """
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
    name, offset = field or bolt.time_field(read), 0
    if name is None and producer.timed:
        found = setting.timed(component).result_time(stream)
        if found is not None:
            name, offset = found
    if name is None or name not in declared.fields:
        return None
    return TimeReader(time, where, declared.fields, name=name, offset=offset)


def _made(source: Source, *values: Any) -> Any:
    return new_tuple(source, values, UNTRACKED)
