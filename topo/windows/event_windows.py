"""Windows around events that report once, at the watermark: one point per time is all the state.

A window is due when the watermark has passed its last time. The windows of a key come in the order
of their ends, each a few merges more than the one before (`points.Reach`). `event_reports` does
the same for triggers, modes and allowed lateness, with a record for each window.

Late is a tuple whose own window is over, unless another window that is not over has it. So what is
set aside as late is in no window, and what is not is in all that are not over.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias

from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.operators.aggregates.accumulators import Accumulators, Cells, Column
from topo.windows.assigners import EventSpans
from topo.windows.points import MANY, Points, Reach, merged

Fired: TypeAlias = Callable[[int, int, Iterable[tuple[Any, Any]]], None]


class EventWindows:
    """The windows of all keys of one task."""

    def __init__(
        self,
        spans: EventSpans,
        accumulators: Accumulators,
        fired: Fired,
        touch_all: Callable[[int, Iterable[Any]], None] = lambda number, keys: None,
        drop: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._spans = spans
        self._accumulators = accumulators
        self._fired = fired
        self._touch_all = touch_all
        self._drop = drop
        self.watermark = BEFORE_ALL
        self.tables: dict[int, dict[Any, Any]] = {}
        self._points = self._new_points()
        self._due: list[tuple[int, int, Any, bool]] = []  # end, number, key, begins after a tuple
        self._number = count()
        self._reaches: dict[Any, Reach] = {}

    def _new_points(self) -> Points:
        return Points(self._spans.size + 1, self.tables, self._touch_all, self._drop)

    # -- tuples -------------------------------------------------------------------------------

    def add(
        self,
        keys: Sequence[Any],
        times: Sequence[int],
        columns: Sequence[Column],
        span: tuple[int, int] | None = None,
    ) -> list[int]:
        """Take tuples in; return the places of those that are late."""
        if (span[0] if span else min(times)) >= self.watermark:
            self._add_all(keys, times, columns)
            return []
        # In their order: a tuple may be in the window of one that came before it.
        late: list[int] = []
        start = 0

        def add_until(stop: int) -> None:
            if start < stop:
                part = [column and column[start:stop] for column in columns]
                self._add_all(keys[start:stop], times[start:stop], part)

        for place, ts in enumerate(times):
            if ts < self.watermark:
                add_until(place)
                start = place
                if not self._has_window_with(keys[place], ts):
                    late.append(place)
                    start += 1
        add_until(len(times))
        return late

    def _add_all(
        self, keys: Sequence[Any], times: Sequence[int], columns: Sequence[Column]
    ) -> None:
        fresh: Cells = {}
        self._accumulators.add_columns(list(zip(keys, times, strict=True)), columns, fresh)
        points, size, after = self._points, self._spans.size, self._spans.after
        for (key, ts), cell in fresh.items():
            known = points.get(key, ts)
            if known is None:
                if ts >= self.watermark:
                    heapq.heappush(self._due, (ts, next(self._number), key, False))
                if after and ts + 1 + size >= self.watermark:
                    heapq.heappush(self._due, (ts + 1 + size, next(self._number), key, True))
            else:
                cell = self._accumulators.merge(known, cell)
            points.put(key, ts, cell)
            reach = self._reaches.get(key)
            if reach is not None and ts <= reach.end:
                del self._reaches[key]

    def _has_window_with(self, key: Any, ts: int) -> bool:
        """Return True if a window that is not over has this time, whose own window is over."""
        size = self._spans.size
        own = self._points.after(key, self.watermark - 1)
        if own is not None and own <= ts + size:
            return True
        if not self._spans.after:
            return False
        # With this time in it, the window after the point before is there, if it was not.
        before = self._points.before(key, ts)
        return before is not None and before + 1 + size >= self.watermark

    # -- time ---------------------------------------------------------------------------------

    def end_batch(self) -> None:
        """Do nothing: all is in its place."""

    def advance(self, watermark: int) -> int:
        """Fire every window that ends before a new watermark, in order; return how many."""
        fired, due, size = 0, self._due, self._spans.size
        items: list[tuple[Any, Any]] = []
        at = BEFORE_ALL
        while due and due[0][0] < watermark:
            end, _, key, begins_after = heapq.heappop(due)
            if begins_after and not self._is_another(key, end):
                continue
            if items and end != at:
                self._fired(at - size, at, items)
                items = []
            at = end
            items.append((key, self._content(key, end - size, end)))
            fired += 1
        if items:
            self._fired(at - size, at, items)
        if watermark > self.watermark:
            self.watermark = watermark
            for key in self._points.forget_before(watermark - size - 1):
                self._reaches.pop(key, None)
        return fired

    def _content(self, key: Any, start: int, end: int) -> Any:
        """Return the cell of a window, whose ends come in order."""
        points, merge = self._points, self._accumulators.merge
        if self._accumulators.grows:
            times = points.between(key, start, end)
            if len(times) > MANY:
                self._reaches.pop(key, None)
                return merged(key, times, points, merge)
        reach = self._reaches.get(key)
        if reach is None:
            reach = self._reaches[key] = Reach()
        return reach.move(start, end, key, points, merge)

    def _is_another(self, key: Any, end: int) -> bool:
        """Return True if the window after a tuple has something, and is no tuple's own one."""
        first = self._points.after(key, end - self._spans.size - 1)
        return first is not None and first <= end and self._points.get(key, end) is None

    # -- what is saved ------------------------------------------------------------------------

    def restore(self, tables: Mapping[int, dict[Any, Any]], watermark: int) -> None:
        """Take over the points that were saved, at the committed watermark."""
        self.tables = {number: table for number, table in tables.items() if table}
        self.watermark = watermark
        self._points = self._new_points()
        size = self._spans.size
        for table in self.tables.values():
            for key, ts in table:
                if ts >= watermark:
                    self._due.append((ts, next(self._number), key, False))
                if self._spans.after and ts + 1 + size >= watermark:
                    self._due.append((ts + 1 + size, next(self._number), key, True))
        heapq.heapify(self._due)

    @property
    def rows(self) -> int:
        """The number of points."""
        return self._points.count

    def next_event(self) -> int | None:
        """Return a watermark up to which no window is due."""
        return min(self._due[0][0] + 1, AFTER_ALL) if self._due else None

    @property
    def oldest(self) -> int | None:
        """The start of the window that is due first."""
        return self._due[0][0] - self._spans.size if self._due else None
