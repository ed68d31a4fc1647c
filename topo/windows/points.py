"""The times at which keys had tuples, each with what is known of it: the state of `PerEvent`.

A window around an event begins and ends anywhere, so that there are no panes that its neighbours
share; what they share is its single times. A tuple changes the one point of its key and time,
however many windows it is in, and a window is the merge of the points in its span. Windows of a
key that come in the order of their ends cost three merges each, however many points they have, by
the two stacks that sliding windows are made with (`Reach`).

Points are saved by stretches of time, each of which goes as a whole when no window reaches it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, TypeAlias

from topo.event_time import BEFORE_ALL

Point: TypeAlias = tuple[int, Any]
"""A time, and what is known of it."""
Merge: TypeAlias = Callable[[Any, Any], Any]

MANY = 64
"""With more points in a window, merges of what grows with each value take too much memory."""


class Points:
    """The points of all keys of one task."""

    def __init__(
        self,
        width: int,
        tables: dict[int, dict[Any, Any]],
        touch_all: Callable[[int, Iterable[Any]], None],
        drop: Callable[[int], None],
    ) -> None:
        """Keep points in these tables, in those with odd numbers, as {(key, time): value}."""
        self._width = width
        self._tables = tables
        self._touch_all = touch_all
        self._drop = drop
        self._times: dict[Any, list[int]] = {}
        for number, table in tables.items():
            if number % 2:
                for key, ts in table:
                    self._times.setdefault(key, []).append(ts)
        for times in self._times.values():
            times.sort()
        self.count = sum(map(len, self._times.values()))
        self._numbers = sorted(number for number in tables if number % 2)  # a heap

    def times(self, key: Any) -> list[int]:
        """Return the times of a key, in order."""
        return self._times.get(key, [])

    def get(self, key: Any, ts: int) -> Any:
        """Return what is known of a time; None if it is no point of the key."""
        table = self._tables.get(self._number(ts))
        return None if table is None else table.get((key, ts))

    def put(self, key: Any, ts: int, value: Any) -> None:
        """Have this known of a time."""
        number = self._number(ts)
        table = self._tables.get(number)
        if table is None:
            table = self._tables[number] = {}
            heappush(self._numbers, number)
        place = (key, ts)
        if place not in table:
            self.count += 1
            times = self._times.get(key)
            if times is None:
                self._times[key] = [ts]
            elif ts > times[-1]:
                times.append(ts)
            else:
                insort(times, ts)
        table[place] = value
        self._touch_all(number, (place,))

    def after(self, key: Any, ts: int) -> int | None:
        """Return the first time of a key that is after this one."""
        times = self.times(key)
        place = bisect_right(times, ts)
        return times[place] if place < len(times) else None

    def before(self, key: Any, ts: int) -> int | None:
        """Return the last time of a key that is before this one."""
        times = self.times(key)
        place = bisect_left(times, ts)
        return times[place - 1] if place else None

    def between(self, key: Any, first: int, last: int) -> list[int]:
        """Return the times of a key in a stretch, its ends included."""
        times = self.times(key)
        return times[bisect_left(times, first) : bisect_right(times, last)]

    def forget_before(self, ts: int) -> list[Any]:
        """Let stretches go that end before a time; return the keys that have nothing left."""
        limit, numbers = self._number(ts), self._numbers
        ended = []
        while numbers and numbers[0] < limit:
            number = heappop(numbers)
            table = self._tables.pop(number)
            self._drop(number)
            self.count -= len(table)
            end = (number // 2 + 1) * self._width
            for key in dict.fromkeys(key for key, _ in table):
                times = self._times[key]
                del times[: bisect_left(times, end)]
                if not times:
                    del self._times[key]
                    ended.append(key)
        return ended

    def _number(self, ts: int) -> int:
        return ts // self._width * 2 + 1


class Reach:
    """The merge of a key's points in a span that only moves forwards: a queue of two stacks.

    The older points are merged from the newest to the oldest, once, keeping for each the merge
    from it on; the newer ones are merged one by one behind them.
    """

    __slots__ = ("_front", "_newer", "_newest", "end")

    def __init__(self) -> None:
        self.end = BEFORE_ALL
        """The end of the span, included: no point up to it may change any more."""
        self._front: list[Point] = []  # the oldest last, each with the merge from it on
        self._newer: list[Point] = []
        self._newest: Any = None  # the merge of the newer ones

    def move(self, start: int, end: int, key: Any, points: Points, merge: Merge) -> Any:
        """Make it the span from start to end; return its merge, None if there is no point."""
        if start > self.end:
            self._front, self._newer, self._newest = [], [], None
        for ts in points.between(key, max(start, self.end + 1), end):
            value = points.get(key, ts)
            self._newest = merge(self._newest, value) if self._newer else value
            self._newer.append((ts, value))
        self.end = end
        front = self._front
        while front and front[-1][0] < start:
            front.pop()
        if not front and self._newer and self._newer[0][0] < start:
            self._turn(start, merge)
        if not self._front:
            return self._newest if self._newer else None
        older = self._front[-1][1]
        return merge(older, self._newest) if self._newer else older

    def _turn(self, start: int, merge: Merge) -> None:
        for ts, value in reversed(self._newer):
            if ts < start:
                break
            whole = merge(value, self._front[-1][1]) if self._front else value
            self._front.append((ts, whole))
        self._newer, self._newest = [], None


def merged(key: Any, times: Sequence[int], points: Points, merge: Merge) -> Any:
    """Return the merge of some points of a key, of which there is one at least.

    By halves: a list of them is copied a few times, not once for each point.
    """
    whole = [points.get(key, ts) for ts in times]
    while len(whole) > 1:
        left = [whole[-1]] if len(whole) % 2 else []
        whole = [merge(a, b) for a, b in zip(whole[::2], whole[1::2], strict=False)] + left
    return whole[0]
