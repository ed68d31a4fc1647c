"""Storm's windows over raw tuples: length and slide each by count or by time.

An interval is (end - length, end]. Windows by time end at multiples of the slide; an empty one is
not evaluated, and gaps are jumped to the next end that holds the earliest tuple left. Sliding by
count, every n-th tuple in the order of time ends a window; equal times share an end, and the
window still has its count. `new` are the tuples that were in no window before, `expired` those
that left since the last evaluation, also if they never were in a window.

Arrival time is event time whose watermark is the clock; there, tuples are counted as they come.

A tuple is a time and a number here, its place in the order of arrival.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    tuples: list[int]
    """Their numbers, in the order of time; of `new` and `expired` too."""
    new: list[int]
    expired: list[int]


@dataclass(frozen=True)
class Position:
    """The place that the windows of a key have come to: what is saved beside the tuples."""

    next_end: int | None
    last_end: int
    done: int
    seen: int
    born: int
    expired: tuple[int, int]
    """The time and the number of the last tuple, in the order of time, that has left."""


class StormWindows:
    """The windows of one key of one task."""

    __slots__ = ("_activate", "_born", "_count_now", "_done", "_expire", "_expired", "_last_end",
                 "_length", "_next_end", "_numbers", "_only_full", "_seen", "_slide",
                 "_times")  # fmt: skip

    def __init__(
        self,
        length: Extent,
        slide: Extent,
        activate: Callable[[Activation], None],
        expire: Callable[[list[int]], None],
        *,
        born: int = 0,
        by_arrival: bool = False,
        only_full: bool = False,
    ) -> None:
        """`born` is the lowest number of a tuple to come."""
        self._length = length
        self._slide = slide
        self._activate = activate
        self._expire = expire
        self._born = born
        self._count_now = by_arrival and not slide.by_time
        self._only_full = only_full
        # The queue, in the order of time, then of arrival.
        self._times: list[int] = []
        self._numbers: list[int] = []
        self._expired = (BEFORE_ALL, -1)
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

    def extend(self, times: Sequence[int], numbers: Sequence[int]) -> None:
        """Take tuples into the queue; by arrival and count, fire at the very tuple."""
        known = self._times
        low = times[0]
        if (known and known[-1] > low) or not _is_sorted(times):
            low = min(times)
            # None of those that were counted are behind it: it is no earlier than the watermark.
            first = bisect_right(known, low)
            later = [*known[first:], *times]
            later_numbers = [*self._numbers[first:], *numbers]
            order = sorted(range(len(later)), key=later.__getitem__)
            known[first:] = [later[place] for place in order]
            self._numbers[first:] = [later_numbers[place] for place in order]
        else:
            known += times
            self._numbers += numbers
        if self._count_now:
            slide = self._slide.size
            while len(known) - self._done >= slide:
                place = self._done + slide
                self._evaluate(known[place - 1], place, place)

    def advance(self, watermark: int) -> int:
        """Fire every window that is complete up to a watermark; return how many."""
        if not self._times:
            return 0
        if self._count_now:
            return self._rest(watermark)
        if self._slide.by_time:
            return self._advance_by_time(watermark)
        fired = 0
        times = self._times
        complete = bisect_right(times, watermark)
        while self._done + self._slide.size <= complete:
            place = self._done + self._slide.size
            end = times[place - 1]
            up_to = bisect_right(times, end) if self._length.by_time else place
            before = len(times)
            fired += self._evaluate(end, up_to, place)
            complete -= before - len(times)
        return fired + self._rest(watermark)

    def _rest(self, watermark: int) -> int:
        """Fire what is left of a count at the end of a finite input."""
        times = self._times
        if watermark < AFTER_ALL or self._only_full or self._done >= len(times):
            return 0
        return int(self._evaluate(times[-1], len(times), self._done + self._slide.size))

    def _advance_by_time(self, watermark: int) -> int:
        slide, times = self._slide.size, self._times
        fired = 0
        if self._next_end is None:
            first = times[0]
            if first > watermark:
                return 0
            self._next_end = _aligned(first, slide)
        while self._next_end <= watermark:
            end = self._next_end
            up_to = bisect_right(times, end)
            nothing_new = up_to == self._seen == len(times)
            if watermark >= AFTER_ALL and not self._length.by_time and nothing_new:
                break  # else the last tuples would be reported for ever
            if self._evaluate(end, up_to, up_to):
                fired += 1
                self._next_end = end + slide
                continue
            after = bisect_right(times, end)
            if after == len(times) or times[after] > watermark:
                break
            self._next_end = _aligned(times[after], slide)
        return fired

    def _evaluate(self, end: int, up_to: int, counted: int) -> bool:
        """Let what has left expire, and activate the window of what lies before `up_to`."""
        times, numbers, length = self._times, self._numbers, self._length
        if length.by_time:
            start = bisect_right(times, end - length.size)
        else:
            start = max(0, counted - length.size)
        expired = numbers[:start]
        if expired:
            self._expired = times[len(expired) - 1], expired[-1]
            del times[:start]
            del numbers[:start]
            self._expire(expired)
        seen = max(0, self._seen - start)
        size = max(0, up_to - start)
        self._done = counted - start
        self._seen = max(seen, size)
        if not size:
            return False
        self._last_end = end
        first = end - length.size if length.by_time else None
        self._activate(Activation(first, end, numbers[:size], numbers[seen:size], expired))
        return True

    def is_spent(self, watermark: int) -> bool:
        """Return True if nothing is held, and nothing to come depends on what was."""
        return not self._times and watermark > self._last_end

    @property
    def oldest(self) -> int | None:
        """The time of the oldest tuple held."""
        return self._times[0] if self._times else None

    @property
    def next_end(self) -> int | None:
        """The watermark at which the next window may end."""
        times = self._times
        if self._count_now or not times:
            return None
        if not self._slide.by_time:
            place = self._done + self._slide.size - 1
            return times[place] if place < len(times) else None
        aligned = _aligned(times[0], self._slide.size)
        if self._next_end is None:
            return aligned
        return self._next_end if self._next_end > times[0] else max(self._next_end, aligned)

    @property
    def next_due(self) -> int | None:
        """The watermark at which there is something to do: a window ends, or nothing is left."""
        return self.next_end if self._times else self._last_end + 1

    # -- what is saved ------------------------------------------------------------------------

    def position(self) -> Position:
        """Return what `restore` takes."""
        return Position(
            self._next_end, self._last_end, self._done, self._seen, self._born, self._expired
        )

    def restore(self, saved: Position) -> None:
        """Take over a position; `hold` gets the tuples."""
        self._next_end, self._last_end = saved.next_end, saved.last_end
        self._done, self._seen = saved.done, saved.seen
        self._born, self._expired = saved.born, saved.expired

    def has_still(self, ts: int, number: int) -> bool:
        """Return True if a tuple that was taken in has not left."""
        return number >= self._born and (ts, number) > self._expired

    def hold(self, times: Sequence[int], numbers: Sequence[int]) -> None:
        """Take tuples into the queue that were in it when the position was saved."""
        order = sorted(range(len(times)), key=lambda place: (times[place], numbers[place]))
        self._times = [times[place] for place in order]
        self._numbers = [numbers[place] for place in order]


def _aligned(ts: int, slide: int) -> int:
    return -(-ts // slide) * slide


def _is_sorted(times: Sequence[int]) -> bool:
    return list(times) == sorted(times)
