"""Storm's windows over raw tuples: length and slide each by count or by time.

An interval is (end - length, end]. Windows by time end at multiples of the slide; an empty one is
not evaluated, and gaps are jumped to the next end that holds the earliest tuple left. Sliding by
count, every n-th tuple in the order of time ends a window; equal times share an end, and the
window still has its count. `new` are the tuples that were in no window before, `expired` those
that left since the last evaluation, also if they never were in a window.

Arrival time is event time whose watermark is the clock; there, tuples are counted as they come.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from topo.event_time import AFTER_ALL, BEFORE_ALL


@dataclass(frozen=True)
class Extent:
    """A length or a slide: so many tuples, or so many ticks."""

    size: int
    by_time: bool


@dataclass(frozen=True)
class Activation:
    """One window to be executed."""

    start: int | None
    end: int
    tuples: list[Entry]
    new: list[Entry]
    expired: list[Entry]


class Entry:
    """A tuple in the queue: its time, its place in the order of arrival."""

    __slots__ = ("item", "number", "ts")

    def __init__(self, ts: int, number: int, item: Any) -> None:
        self.ts = ts
        self.number = number
        self.item = item


def _ts(entry: Entry) -> int:
    return entry.ts


def _number(entry: Entry) -> int:
    return entry.number


class StormWindows:
    """The windows of one key of one task."""

    __slots__ = ("_activate", "_count_now", "_done", "_entries", "_expire", "_last_end", "_length",
                 "_next_end", "_only_full", "_seen", "_slide")  # fmt: skip

    def __init__(
        self,
        length: Extent,
        slide: Extent,
        activate: Callable[[Activation], None],
        expire: Callable[[Sequence[Entry]], None],
        *,
        by_arrival: bool = False,
        only_full: bool = False,
    ) -> None:
        self._length = length
        self._slide = slide
        self._activate = activate
        self._expire = expire
        self._count_now = by_arrival and not slide.by_time
        self._only_full = only_full
        self._entries: list[Entry] = []  # in the order of time, then of arrival
        self._next_end: int | None = None
        self._last_end = BEFORE_ALL  # of the last window that was evaluated and not empty
        # How many leading entries were counted for a slide. Windows of counts that are to be full
        # begin with the first tuple: the first of them ends when it has its length.
        self._done = length.size - slide.size if only_full else 0
        self._seen = 0  # how many leading entries were in the last window

    def is_late(self, ts: int, watermark: int) -> bool:
        """Return True if a tuple comes too late for every window."""
        if ts < watermark:
            return True
        tumbles = self._slide.by_time and self._length.by_time
        return tumbles and ts == self._last_end and self._length.size <= self._slide.size

    def add(self, ts: int, number: int, item: Any) -> None:
        """Take a tuple into the queue; by arrival and count, fire at the very tuple."""
        entries = self._entries
        entry = Entry(ts, number, item)
        if not entries or entries[-1].ts <= ts:
            entries.append(entry)
        else:
            entries.insert(bisect_right(entries, ts, key=_ts), entry)
        if self._count_now and len(entries) - self._done >= self._slide.size:
            self._evaluate(ts, len(entries), len(entries))

    def advance(self, watermark: int) -> int:
        """Fire every window that is complete up to a watermark; return how many."""
        if not self._entries:
            return 0
        if self._count_now:
            return self._rest(watermark)
        if self._slide.by_time:
            return self._advance_by_time(watermark)
        fired = 0
        complete = bisect_right(self._entries, watermark, key=_ts)
        while self._done + self._slide.size <= complete:
            place = self._done + self._slide.size
            end = self._entries[place - 1].ts
            up_to = bisect_right(self._entries, end, key=_ts) if self._length.by_time else place
            before = len(self._entries)
            fired += self._evaluate(end, up_to, place)
            complete -= before - len(self._entries)
        return fired + self._rest(watermark)

    def _rest(self, watermark: int) -> int:
        """Fire what is left of a count at the end of a finite input."""
        entries = self._entries
        if watermark < AFTER_ALL or self._only_full or self._done >= len(entries):
            return 0
        return int(self._evaluate(entries[-1].ts, len(entries), self._done + self._slide.size))

    def _advance_by_time(self, watermark: int) -> int:
        slide = self._slide.size
        fired = 0
        if self._next_end is None:
            first = self._entries[0].ts
            if first > watermark:
                return 0
            self._next_end = _aligned(first, slide)
        while self._next_end <= watermark:
            end = self._next_end
            up_to = bisect_right(self._entries, end, key=_ts)
            nothing_new = up_to == self._seen == len(self._entries)
            if watermark >= AFTER_ALL and not self._length.by_time and nothing_new:
                break  # else the last tuples would be reported for ever
            if self._evaluate(end, up_to, up_to):
                fired += 1
                self._next_end = end + slide
                continue
            after = bisect_right(self._entries, end, key=_ts)
            if after == len(self._entries) or self._entries[after].ts > watermark:
                break
            self._next_end = _aligned(self._entries[after].ts, slide)
        return fired

    def _evaluate(self, end: int, up_to: int, counted: int) -> bool:
        """Let what has left expire, and activate the window of what lies before `up_to`."""
        entries, length = self._entries, self._length
        if length.by_time:
            start = bisect_right(entries, end - length.size, key=_ts)
        else:
            start = max(0, counted - length.size)
        expired = entries[:start]
        if expired:
            del entries[:start]
            self._expire(expired)
        seen = max(0, self._seen - start)
        size = max(0, up_to - start)
        self._done = counted - start
        self._seen = max(seen, size)
        if not size:
            return False
        self._last_end = end
        self._activate(
            Activation(
                end - length.size if length.by_time else None,
                end,
                sorted(entries[:size], key=_number),
                sorted(entries[seen:size], key=_number),
                sorted(expired, key=_number),
            )
        )
        return True

    def is_spent(self, watermark: int) -> bool:
        """Return True if nothing is held, and nothing to come depends on what was."""
        return not self._entries and watermark > self._last_end

    @property
    def oldest(self) -> int | None:
        """The time of the oldest tuple held."""
        return self._entries[0].ts if self._entries else None

    @property
    def next_end(self) -> int | None:
        """The watermark at which the next window may end."""
        entries = self._entries
        if self._count_now or not entries:
            return None
        if not self._slide.by_time:
            place = self._done + self._slide.size - 1
            return entries[place].ts if place < len(entries) else None
        aligned = _aligned(entries[0].ts, self._slide.size)
        if self._next_end is None:
            return aligned
        return self._next_end if self._next_end > entries[0].ts else max(self._next_end, aligned)

    @property
    def next_due(self) -> int | None:
        """The watermark at which there is something to do: a window ends, or nothing is left."""
        return self.next_end if self._entries else self._last_end + 1

    def position(self) -> tuple[int | None, int, int, int]:
        """Return what `restore` takes beside the entries."""
        return self._next_end, self._last_end, self._done, self._seen

    def restore(self, entries: Iterable[Entry], position: tuple[int | None, int, int, int]) -> None:
        """Take over what was saved."""
        self._entries = sorted(entries, key=lambda entry: (entry.ts, entry.number))
        self._next_end, self._last_end, self._done, self._seen = position


def _aligned(ts: int, slide: int) -> int:
    return -(-ts // slide) * slide
