"""Aligned windows that report once, at the watermark: tumbling and sliding, by panes.

A pane is the longest stretch of time whose tuples are in the same windows; a tuple touches one
cell of one pane, however many windows it is in. A batch's tuples are added to cells of their own,
which are merged into the panes at its end: that is also how the changed keys are known, without a
note per tuple. When the watermark passes a window's end, the panes in reach are combined.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import compress, islice
from operator import itemgetter, le
from typing import Any, TypeAlias

from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.operators.aggregates.accumulators import Accumulators, Cells, Column
from topo.windows.assigners import Aligned
from topo.windows.pane_sums import CannotSubtract, PaneWindow, RunningTotals, TwoStacks

Fired: TypeAlias = Callable[[int, int, Iterable[tuple[Any, Any]]], None]

_FEW = 6

_OVERTAKEN = BEFORE_ALL - 1
"""The namespace of keys that got tuples in a pane of which a window has fired."""


class PaneWindows:
    """The panes of all keys of one task."""

    def __init__(
        self,
        windows: Aligned,
        accumulators: Accumulators,
        fired: Fired,
        touch_all: Callable[[int, Iterable[Any]], None] = lambda pane, keys: None,
        drop: Callable[[int], None] = lambda pane: None,
        *,
        only_changed: bool = False,
    ) -> None:
        """Make them; with `only_changed` a window has the keys of which a tuple came or left."""
        self._windows = windows
        self._accumulators = accumulators
        self._fired = fired
        self._touch_all = touch_all
        self._drop = drop
        self.panes: dict[int, Cells] = {}
        self._starts: list[int] = []  # of the panes, a heap: an hour by a second has 3600 of them
        self.watermark = BEFORE_ALL
        self._fresh: dict[int, Cells] = {}
        self._tumbles = windows.size == windows.slide
        self._only_changed = only_changed
        # What has left a window is looked at once more, to know whose tuples have changed.
        self._kept_for = windows.slide if only_changed else 0
        self._overtaken: dict[Any, bool] = {}
        self._totals_work = accumulators.exact
        self._reach: PaneWindow | None = None  # of the window that fired last
        self._reached = 0  # its end
        self.rows = 0
        """How many cells there are."""

    # -- tuples -------------------------------------------------------------------------------

    def add(
        self,
        keys: Sequence[Any],
        times: Sequence[int],
        columns: Sequence[Column],
        span: tuple[int, int] | None = None,
    ) -> list[int]:
        """Take tuples in; return the places of those that are late for all their windows.

        `span` has the lowest and the highest time, if they are known.
        """
        windows = self._windows
        low, high = span or (min(times), max(times))
        first = windows.pane_of(low)
        late: list[int] = []
        if self._is_over(first):
            # Only some are late, as a rule: those before the first pane that is not over.
            over = self._is_over
            late = [place for place, ts in enumerate(times) if over(windows.pane_of(ts))]
            if windows.slide > windows.size:
                late = [place for place in late if windows.assign(times[place])]
            if len(late) == len(times):
                return late
            keys, times, columns = _without(late, keys, times, columns)
            low, high = min(times), max(times)
            first = windows.pane_of(low)
        if high < first + windows.pane:
            self._add_to(first, keys, columns)
        else:
            self._add_by_pane(keys, times, columns)
        return late

    def _add_by_pane(
        self, keys: Sequence[Any], times: Sequence[int], columns: Sequence[Column]
    ) -> None:
        size, offset = self._windows.pane, self._windows.offset
        if all(map(le, times, islice(times, 1, None))):
            start = 0
            while start < len(times):
                pane = self._windows.pane_of(times[start])
                stop = bisect_left(times, pane + size, start)
                part = [column and column[start:stop] for column in columns]
                self._add_to(pane, keys[start:stop], part)
                start = stop
            return
        panes = [ts - (ts - offset) % size for ts in times]
        different = sorted(set(panes))
        if len(different) <= _FEW:
            for pane in different:
                chosen = [own == pane for own in panes]
                part = [column and list(compress(column, chosen)) for column in columns]
                self._add_to(pane, list(compress(keys, chosen)), part)
            return
        # Sorted by pane, and within a pane as they came.
        order = sorted(range(len(panes)), key=panes.__getitem__)
        gather = itemgetter(*order)
        own_keys, own_panes = gather(keys), gather(panes)
        own = [column and gather(column) for column in columns]
        start = 0
        while start < len(own_panes):
            stop = bisect_right(own_panes, own_panes[start], start)
            part = [column and column[start:stop] for column in own]
            self._add_to(own_panes[start], own_keys[start:stop], part)
            start = stop

    def _add_to(self, pane: int, keys: Sequence[Any], columns: Sequence[Column]) -> None:
        cells = self._fresh.get(pane)
        if cells is None:
            if self._windows.last_end(pane) <= pane:
                return  # between two windows that leave a gap: in none of them, and not late
            cells = self._fresh[pane] = {}
        self._accumulators.add_columns(keys, columns, cells)

    def _is_over(self, pane: int) -> bool:
        return self._windows.last_end(pane) <= self.watermark

    # -- time ---------------------------------------------------------------------------------

    def end_batch(self) -> None:
        """Merge the batch's cells into the panes."""
        merge, size = self._accumulators.merge, self._windows.pane
        for pane, fresh in self._fresh.items():
            self._touch_all(pane, fresh)
            if self._only_changed and self._windows.first_end(pane) <= self.watermark:
                self._overtaken.update(dict.fromkeys(fresh, True))
                self._touch_all(_OVERTAKEN, fresh)
            cells = self.panes.get(pane)
            if cells is None:
                self.panes[pane] = fresh
                heappush(self._starts, pane)
                self.rows += len(fresh)
            else:
                before = len(cells)
                if self._accumulators.counts_only:
                    get = cells.get
                    for key, cell in fresh.items():
                        cells[key] = get(key, 0) + cell
                else:
                    for key, cell in fresh.items():
                        known = cells.get(key)
                        cells[key] = cell if known is None else merge(known, cell)
                self.rows += len(cells) - before
            if pane + size <= self._reached:
                self._reach = None  # what was combined is not so any more
        self._fresh = {}

    def advance(self, watermark: int) -> int:
        """Fire every window that ends up to a new watermark, in order; return how many."""
        fired = 0
        if watermark > self.watermark:
            fired = self._fire_tumbling(watermark) if self._tumbles else self._fire(watermark)
            self.watermark = watermark
        return fired

    def _fire_tumbling(self, watermark: int) -> int:
        size, starts = self._windows.size, self._starts
        fired = 0
        while starts and starts[0] + size <= watermark:
            pane = starts[0]
            self._fired(pane, pane + size, self._forget_first().items())
            fired += 1
        return fired

    def _fire(self, watermark: int) -> int:
        windows = self._windows
        fired = 0
        after = self.watermark
        while self.panes:
            after = end = windows.first_end(max(self._starts[0], after))
            if end > watermark or end >= AFTER_ALL:
                break
            self._combine(end)
            assert self._reach is not None
            items = self._reach.items()
            if self._only_changed:
                items = list(self._reach.of(self._changed(end)))
            if items:
                self._fired(end - windows.size, end, items)
                fired += 1
            self._drop_until(end)
        self._drop_until(watermark)
        return fired

    def _changed(self, end: int) -> dict[Any, None]:
        """Return the keys with tuples that the window before this one did not have, or had."""
        size, slide, step = self._windows.size, self._windows.slide, self._windows.pane
        came, left = range(end - slide, end, step), range(end - size - slide, end - size, step)
        found: dict[Any, None] = {}
        for pane in (*came, *left):
            found.update(dict.fromkeys(self.panes.get(pane, ())))
        if self._overtaken:
            found.update(dict.fromkeys(self._overtaken))
            self._overtaken = {}
            self._drop(_OVERTAKEN)
        return found

    def _combine(self, end: int) -> None:
        """Make `_reach` that of the window with this end."""
        windows = self._windows
        start = end - windows.size
        try:
            reach = self._reach
            if reach is None or self._reached <= start:
                reach = self._new_reach()
                steps = range(start, end, windows.pane)
            else:
                for _ in range(self._reached - windows.size, start, windows.pane):
                    reach.pop()
                steps = range(self._reached, end, windows.pane)
            for pane in steps:
                reach.push(self.panes.get(pane, {}))
            self._reach, self._reached = reach, end
        except CannotSubtract:
            self._totals_work = False
            self._reach = None
            self._combine(end)

    def _new_reach(self) -> PaneWindow:
        if self._totals_work:
            return RunningTotals(self._accumulators)
        return TwoStacks(self._accumulators)

    def _drop_until(self, watermark: int) -> None:
        starts, last_end = self._starts, self._windows.last_end
        while starts and last_end(starts[0]) + self._kept_for <= watermark:
            self._forget_first()

    def _forget_first(self) -> Cells:
        pane = heappop(self._starts)
        cells = self.panes.pop(pane)
        self.rows -= len(cells)
        self._drop(pane)
        return cells

    # -- what is saved ------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[int, Mapping[Any, Any]]:
        return {**self.panes, _OVERTAKEN: self._overtaken} if self._overtaken else self.panes

    def restore(self, panes: Mapping[int, Cells], watermark: int) -> None:
        """Take over the panes that were saved, at the committed watermark."""
        self.panes = {pane: cells for pane, cells in panes.items() if cells}
        self._overtaken = self.panes.pop(_OVERTAKEN, {})
        self._starts = sorted(self.panes)
        self.rows = sum(map(len, self.panes.values()))
        self.watermark = watermark

    def next_event(self) -> int | None:
        """Return the watermark at which the next window ends."""
        if not self.panes:
            return None
        return self._windows.first_end(max(self._starts[0], self.watermark))

    @property
    def oldest(self) -> int | None:
        """The start of the oldest pane."""
        return self._starts[0] if self._starts else None


def _without(
    late: Sequence[int], keys: Sequence[Any], times: Sequence[int], columns: Sequence[Column]
) -> tuple[list[Any], list[int], list[Column]]:
    gone = set(late)
    kept = [place not in gone for place in range(len(times))]
    return (
        list(compress(keys, kept)),
        list(compress(times, kept)),
        [column and list(compress(column, kept)) for column in columns],
    )
