"""The windows that a time belongs to: intervals [start, end) in ticks of the time field.

A specification (`Tumbling(timedelta(minutes=1))`) is written without knowing the unit of the time
field; `in_ticks` turns it into an assigner, once per bolt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, TypeAlias

from topo.errors import WindowError
from topo.event_time import AFTER_ALL, BEFORE_ALL, Duration, EventTime, duration_ticks

Interval: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Tumbling:
    """Windows of one size, end to end. Ends are multiples of the size, plus the offset."""

    size: Duration
    offset: Duration = 0

    def __post_init__(self) -> None:
        _check(self.size, "Tumbling: size")
        _check_offset(self.offset, "Tumbling")

    def in_ticks(self, time: EventTime) -> Aligned:
        size = time.ticks(self.size, "Tumbling: size")
        return Aligned(size, size, _offset(self.offset, time))


@dataclass(frozen=True)
class Sliding:
    """Windows of one size that begin every `slide`; a time is in size / slide of them."""

    size: Duration
    slide: Duration
    offset: Duration = 0

    def __post_init__(self) -> None:
        _check(self.size, "Sliding: size")
        _check(self.slide, "Sliding: slide")
        _check_offset(self.offset, "Sliding")

    def in_ticks(self, time: EventTime) -> Aligned:
        size = time.ticks(self.size, "Sliding: size")
        return Aligned(size, time.ticks(self.slide, "Sliding: slide"), _offset(self.offset, time))


@dataclass(frozen=True)
class Session:
    """Windows of activity: each tuple's [ts, ts + gap) joins those it overlaps or touches.

    `gap` may be a function of the tuple's row, a mapping of its fields, that returns a duration.
    """

    gap: Duration | Callable[[Any], Duration]

    def __post_init__(self) -> None:
        if not callable(self.gap):
            _check(self.gap, "Session: gap")

    def in_ticks(self, time: EventTime) -> Sessions:
        if callable(self.gap):
            return Sessions(0, self.gap, time)
        return Sessions(time.ticks(self.gap, "Session: gap"), None, time)


@dataclass(frozen=True)
class Global:
    """One window for all time; it reports by its trigger."""

    def in_ticks(self, time: EventTime) -> Whole:
        return Whole()


@dataclass(frozen=True)
class PerEvent:
    """A window for each time at which a key has tuples: of all of the `size` up to that time.

    Both ends belong to it: the window of a tuple at `ts` is from ts - size to ts. With `after`
    there are also the windows that begin just after a tuple, if something is in them, as Kafka
    Streams has them; their ends are no tuples' times.
    """

    size: Duration
    after: bool = False

    def __post_init__(self) -> None:
        _check(self.size, "PerEvent: size")
        if not isinstance(self.after, bool):
            raise WindowError(f"PerEvent: after is {self.after!r}; it must be True or False")

    def in_ticks(self, time: EventTime) -> EventSpans:
        return EventSpans(time.ticks(self.size, "PerEvent: size"), self.after)


WindowSpec: TypeAlias = "Tumbling | Sliding | Session | Global | PerEvent"


class Aligned:
    """Windows that are the same for every key: `size` long, one every `slide`."""

    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        self.size = size
        self.slide = slide
        self.offset = offset
        self.pane = size if size == slide else gcd(size, slide)
        """The longest stretch whose tuples are all in the same windows."""

    def assign(self, ts: int) -> list[Interval]:
        """Return the windows of a time, the earliest first."""
        size, slide = self.size, self.slide
        last = ts - (ts - self.offset) % slide
        first = last - (size - 1 - (ts - last)) // slide * slide
        return [(start, start + size) for start in range(first, last + 1, slide)]

    def pane_of(self, ts: int) -> int:
        """Return the start of the pane of a time."""
        return ts - (ts - self.offset) % self.pane

    def last_end(self, pane: int) -> int:
        """Return the end of the last window that holds a pane; the pane's start, if none does."""
        start = pane - (pane - self.offset) % self.slide
        return start + self.size if start + self.size > pane else pane

    def first_end(self, ts: int) -> int:
        """Return the first end of a window that is after a time."""
        return ts + self.slide - (ts - self.size - self.offset) % self.slide

    def complete_at(self, end: int) -> int:
        """Return the watermark at which a window with this end is complete."""
        return end


class Sessions:
    """A session for each tuple, to be merged with others of its key."""

    def __init__(self, gap: int, dynamic: Callable[[Any], Any] | None, time: EventTime) -> None:
        self.gap = gap
        self.dynamic = dynamic
        self._time = time

    def session(self, ts: int, row: Any) -> Interval:
        """Return the interval of one tuple."""
        if self.dynamic is None:
            return ts, ts + self.gap
        gap = duration_ticks(self.dynamic(row), self._time.unit, "the gap of a session")
        return ts, ts + gap

    def complete_at(self, end: int) -> int:
        """Return the watermark at which a session with this end is complete.

        A tuple at the very end touches the session and joins it; at a watermark of `end` it may
        still come.
        """
        return end + 1


@dataclass(frozen=True)
class EventSpans:
    """The windows of `PerEvent`, in ticks; which there are depends on the tuples of a key."""

    size: int
    after: bool

    def complete_at(self, end: int) -> int:
        return end


class Whole:
    """The one window of `Global`."""

    interval: Interval = (BEFORE_ALL, AFTER_ALL)

    def assign(self, ts: int) -> list[Interval]:
        return [self.interval]

    def complete_at(self, end: int) -> int:
        return end


def intersects(one: Interval, other: Interval) -> bool:
    """Return True if two intervals overlap or touch."""
    return one[0] <= other[1] and other[0] <= one[1]


def merge_with(live: Sequence[Interval], new: Interval) -> tuple[Interval, list[Interval]]:
    """Return the interval that `new` becomes among the live ones, and those that it takes in.

    One pass is enough, since live intervals do not touch each other.
    """
    absorbed = [one for one in live if intersects(one, new)]
    start = min([new[0], *(one[0] for one in absorbed)])
    end = max([new[1], *(one[1] for one in absorbed)])
    return (start, end), absorbed


def check_spec(window: Any) -> None:
    """Raise a WindowError if this is no window."""
    if isinstance(window, type) or not isinstance(
        window, Tumbling | Sliding | Session | Global | PerEvent
    ):
        raise WindowError(
            f"window is {window!r}; it takes Tumbling, Sliding, Session, PerEvent or Global",
            hint="write window=Tumbling(timedelta(seconds=10))",
        )


def check_joinable(window: Any) -> None:
    """Raise a WindowError if rows cannot be joined in such windows."""
    check_spec(window)
    if isinstance(window, PerEvent):
        raise WindowError(
            f"window is {window!r}; rows are joined in Tumbling, Sliding, Session or Global",
            hint="an IntervalJoin joins rows whose times are close to each other",
        )


def _check(value: Any, what: str) -> None:
    # The unit is not known yet: any will do to find a wrong type or sign.
    duration_ticks(value, "us", what)


def _check_offset(value: Any, name: str) -> None:
    duration_ticks(value, "us", f"{name}: offset", at_least=BEFORE_ALL)


def _offset(value: Duration, time: EventTime) -> int:
    return time.ticks(value, "offset", at_least=BEFORE_ALL)
