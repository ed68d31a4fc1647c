"""Windows around events with triggers, modes and allowed lateness: a record for each window.

A tuple is added to every window that has its time, as each of them may be about to report. It may
also make windows, which begin with the points that are there: the one that ends with it; and, if
so wanted, those that begin after it and after the tuple before it. `event_windows` does the
ordinary case, windows that report once, with no record for a window.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from topo.event_time import AFTER_ALL
from topo.operators.aggregates.accumulators import Accumulators
from topo.windows.assigners import EventSpans
from topo.windows.general import KeyedWindows
from topo.windows.points import MANY, Points, Reach, merged
from topo.windows.records import OpenWindow, Pane, ReportRules
from topo.windows.triggers import ELEMENT, Trigger


class EventReports(KeyedWindows):
    """The windows of all keys of one task, each a record.

    Records are in the tables with even numbers, by key and start; in the others are points, each
    with its cell and the number of its tuples.
    """

    def __init__(
        self,
        spans: EventSpans,
        cells: Accumulators,
        trigger: Trigger,
        rules: ReportRules,
        emit: Callable[[Pane], None],
        touch: Callable[[int, Any], None] = lambda number, key: None,
        drop: Callable[[int], None] = lambda number: None,
    ) -> None:
        super().__init__(spans, cells, trigger, rules, emit, touch, drop)
        self._spans = spans
        self._points = self._new_points()
        self._starts: dict[Any, list[int]] = {}
        self._reaches: dict[Any, Reach] = {}

    def _new_points(self) -> Points:
        return Points(self._spans.size + 1, self.tables, self._touch_each, self._drop)

    def _touch_each(self, number: int, keys: Iterable[Any]) -> None:
        for key in keys:
            self._touch(number, key)

    # -- tuples -------------------------------------------------------------------------------

    def add(self, key: Any, ts: int, values: Sequence[Any], now: float, row: Any = None) -> bool:
        """Take one tuple in; return False if it is late: no window that is not over has it."""
        size, points = self._spans.size, self._points
        starts = self._starts.get(key, [])
        have = starts[bisect_left(starts, ts - size) : bisect_right(starts, ts)]
        live = [start for start in have if not self._is_over(start + size + 1)]
        new = [] if self._is_over(ts + 1) or ts - size in have else [ts - size]
        if self._spans.after:
            before = points.before(key, ts)
            if before is not None and self._is_missing(key, before + 1) and before + 1 + size >= ts:
                new.append(before + 1)
        if not live and not new:
            return False
        is_new = points.get(key, ts) is None
        records = [self._record(key, start) for start in live]
        records += [self._begin(key, start, ts, now) for start in dict.fromkeys(new)]
        self._keep(key, ts, values)
        for record in sorted(records, key=attrgetter("start")):
            self._take(record, ts, values, now)
        if self._spans.after and is_new:
            after = points.after(key, ts)
            if after is not None and after <= ts + 1 + size and self._is_missing(key, ts + 1):
                self._look_at_new(self._begin(key, ts + 1, ts, now), now)
        return True

    def _is_missing(self, key: Any, start: int) -> bool:
        """Return True if a window is neither there nor over."""
        return not self._is_over(start + self._spans.size + 1) and not self._has(key, start)

    def _has(self, key: Any, start: int) -> bool:
        starts = self._starts.get(key, [])
        place = bisect_left(starts, start)
        return place < len(starts) and starts[place] == start

    def _keep(self, key: Any, ts: int, values: Sequence[Any]) -> None:
        """Add a tuple to the point of its time."""
        cell, number = self._points.get(key, ts) or (self._cells.new(), 0)
        self._points.put(key, ts, (self._cells.add(cell, values), number + 1))
        reach = self._reaches.get(key)
        if reach is not None and ts <= reach.end:
            del self._reaches[key]

    def _begin(self, key: Any, start: int, ts: int, now: float) -> OpenWindow:
        """Return a new window, with what the points in its span have."""
        last = start + self._spans.size
        times = self._points.between(key, start, last)
        cell, new = self._content(key, start, ts, times)
        record = OpenWindow(key, start, last + 1, cell)
        number, place = self._place(record)
        self.tables.setdefault(number, {})[place] = record
        insort(self._starts.setdefault(key, []), start)
        self._schedule_end(record)
        if new:
            record.new = new
            record.late_ts = times[-1]
            on_time = bisect_left(times, self.watermark)
            record.early_ts = times[on_time] if on_time < len(times) else AFTER_ALL
            self._begin_pane(record, times[0], now)
        return record

    def _content(self, key: Any, start: int, ts: int, times: list[int]) -> tuple[Any, int]:
        """Return the cell of a new window and how many tuples that has."""
        nothing = self._cells.new(), 0
        if not times:
            return nothing
        reach = self._reaches.get(key)
        ends_here = start + self._spans.size == ts  # and has no point at its end yet
        direct = not ends_here or (reach is not None and ts <= reach.end)
        if direct or (self._cells.grows and len(times) > MANY):
            found = merged(key, times, self._points, self._both)
        else:
            if reach is None:
                reach = self._reaches[key] = Reach()
            found = reach.move(start, ts - 1, key, self._points, self._both)
        whole: tuple[Any, int] = self._both(nothing, found)  # one of its own
        return whole

    def _both(self, a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
        return self._cells.merge(a[0], b[0]), a[1] + b[1]

    def _look_at_new(self, record: OpenWindow, now: float) -> None:
        """Have a window report that begins with tuples of the past."""
        self._changed[record] = None
        self._note(record)
        if self._by_element:
            self._look(record, ELEMENT, now)

    # -- time ---------------------------------------------------------------------------------

    def advance(self, watermark: int, now: float) -> int:
        fired = super().advance(watermark, now)
        lateness = self._rules.lateness
        if lateness is not None:
            for key in self._points.forget_before(self.watermark - lateness - self._spans.size - 1):
                self._reaches.pop(key, None)
        return fired

    # -- records ------------------------------------------------------------------------------

    def _place(self, record: OpenWindow) -> tuple[int, Any]:
        return record.start // (self._spans.size + 1) * 2, (record.key, record.start)

    def _record(self, key: Any, start: int) -> OpenWindow:
        table = self.tables[start // (self._spans.size + 1) * 2]
        record: OpenWindow = table[key, start]
        return record

    def _forget(self, record: OpenWindow) -> None:
        super()._forget(record)
        starts = self._starts[record.key]
        del starts[bisect_left(starts, record.start)]
        if not starts:
            del self._starts[record.key]

    def restore(self, tables: Mapping[int, dict[Any, Any]], watermark: int) -> None:
        super().restore(tables, watermark)
        self._points = self._new_points()
        self._starts = {}
        for record in self.records():
            self._starts.setdefault(record.key, []).append(record.start)
        for starts in self._starts.values():
            starts.sort()

    def records(self) -> Iterable[OpenWindow]:
        """Yield every window."""
        for number, table in self.tables.items():
            if number % 2 == 0:
                yield from table.values()
