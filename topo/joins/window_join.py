"""The operators of a join by window: of rows with the same key in the same window.

In tumbling and sliding windows a pair is a result as soon as both rows are there, and what has no
match when its window ends. A session is only known when it ends: then it is joined as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from topo.event_time import AFTER_ALL
from topo.joins.declaration import PairDeclaration
from topo.joins.session_rows import KeyedRowsOperator, SessionRows
from topo.operators.inputs import LEFT, OUTER, RIGHT, key_columns, unhashable
from topo.operators.results import WindowOperator
from topo.storage.chunks import SavedChunks
from topo.storage.saving import with_one_nan
from topo.timed import OperatorTask, Rows
from topo.windows.assigners import Aligned, Sessions

Sides: TypeAlias = "tuple[dict[Any, list[Any]], dict[Any, list[Any]]]"
"""The rows of one window by side and key."""


class _WindowJoinOperator(WindowOperator):
    """The base of both operators of a WindowJoin: it takes rows in, and makes results."""

    def __init__(self, bolt: PairDeclaration, task: OperatorTask) -> None:
        super().__init__(task, bolt.event_time)
        self._bolt = bolt
        own = {"start": "shown(t[0])", "end": "shown(t[1])"}
        if bolt.result_ts is not None:
            own[bolt.result_ts] = "shown(t[1] - 1)"
        self._shape = bolt.shape(task.owner, own, {"shown": self._time.shown})
        self._alone = (self._shape.left_only, self._shape.right_only)
        self._reports = (bolt.how in (LEFT, OUTER), bolt.how in (RIGHT, OUTER))

    def rows(self, rows: Rows) -> None:
        if not rows.count:
            return
        sides = self._bolt.sides
        mine = [side for side in (0, 1) if sides[side].is_of(rows.component, rows.stream)]
        taken = [
            (side, key_columns(rows.columns, rows.fields, sides[side].key),
             self._kept(side, rows))
            for side in mine
        ]  # fmt: skip
        late = []
        for place, ts in enumerate(self._clock.times(rows, self._task.now())):
            for side, keys, kept in taken:
                try:
                    is_in = ts is not None and self._take(
                        side, keys[place], ts, kept[place], rows, place
                    )
                except TypeError as error:
                    raise unhashable(self._task.owner, keys) or error from None
            if not is_in:
                late.append(place)
        self._flush()
        if late:
            self._task.set_aside(rows, late)

    def _kept(self, side: int, rows: Rows) -> list[Any]:
        columns = self._shape.keep[side](rows)
        return list(zip(*columns, strict=True)) if columns else [()] * rows.count

    def _take(self, side: int, key: Any, ts: int, row: Any, rows: Rows, place: int) -> bool:
        """Take one row in; return False if it is late."""
        raise NotImplementedError

    def _unmatched(self, sides: Sides, window: tuple[int, int]) -> None:
        """Report the rows of a window whose key the other side does not have."""
        for side in (1, 0):  # the right ones first, as in every join here
            if not self._reports[side]:
                continue
            others = sides[1 - side]
            for key, rows in sides[side].items():
                if key not in others:
                    self._out += [self._alone[side](row, window) for row in rows]


class AlignedJoinOperator(_WindowJoinOperator):
    """The windows of one task of a join in tumbling, sliding or global windows."""

    def __init__(self, bolt: PairDeclaration, task: OperatorTask, assigner: Any) -> None:
        super().__init__(bolt, task)
        self._assigner = assigner
        self._windows: dict[tuple[int, int], Sides] = {}
        self._saved = SavedChunks("rows")
        self._fresh: dict[int, list[Any]] = {}
        self._panes: set[int] = set()  # those that are saved

    def _take(self, side: int, key: Any, ts: int, row: Any, rows: Rows, place: int) -> bool:
        windows = self._assigner.assign(ts)
        live = [window for window in windows if window[1] > self._watermark]
        if key is None:
            if self._reports[side]:
                self._out += [self._alone[side](row, window) for window in live]
        else:
            for window in live:
                self._match(window, side, key, row)
            if live:
                self._add(live, side, key, row)
                self._fresh.setdefault(self._pane_of(ts), []).append((side, key, ts, row))
        return bool(live) or not windows

    def _match(self, window: tuple[int, int], side: int, key: Any, row: Any) -> None:
        sides = self._windows.get(window)
        met = sides[1 - side].get(key) if sides is not None else None
        if met:
            both = self._shape.both
            if side == 0:
                self._out += [both(row, other, window) for other in met]
            else:
                self._out += [both(other, row, window) for other in met]

    def _add(self, live: list[tuple[int, int]], side: int, key: Any, row: Any) -> None:
        for window in live:
            sides = self._windows.get(window)
            if sides is None:
                sides = self._windows[window] = ({}, {})
            sides[side].setdefault(key, []).append(row)
        self.state_rows += len(live)

    def _pane_of(self, ts: int) -> int:
        return self._assigner.pane_of(ts) if isinstance(self._assigner, Aligned) else 0

    def _move(self, watermark: int, now: float) -> int:
        ended = sorted(window for window in self._windows if window[1] <= watermark)
        for window in sorted(ended, key=lambda window: window[1]):
            sides = self._windows.pop(window)
            self._unmatched(sides, window)
            self.state_rows -= sum(len(rows) for side in sides for rows in side.values())
        if ended:
            for pane in [pane for pane in self._panes | set(self._fresh) if self._is_over(pane)]:
                self._panes.discard(pane)
                self._fresh.pop(pane, None)
                self._saved.drop(pane)
        return len(ended)

    def _is_over(self, pane: int) -> bool:
        if isinstance(self._assigner, Aligned):
            return self._assigner.last_end(pane) <= self._watermark
        return self._watermark >= AFTER_ALL

    def next_event(self) -> int | None:
        return min((end for _, end in self._windows), default=None)

    def oldest(self) -> int | None:
        return min((start for start, _ in self._windows), default=None)

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._watermark = self._clock.load(saved, watermark)
        for pane, chunks in self._saved.load(saved).items():
            self._panes.add(pane)
            for side, key, ts, row in (one for chunk in chunks for one in chunk):
                windows = self._assigner.assign(ts)
                live = [window for window in windows if window[1] > self._watermark]
                self._add(live, side, with_one_nan(key), row)

    def save(self, changes: Any) -> None:
        for pane, chunk in self._fresh.items():
            self._panes.add(pane)
            self._saved.add(pane, chunk, changes)
        self._fresh = {}
        self._saved.save(changes)
        self._clock.save(self._watermark, changes)


class SessionJoinOperator(KeyedRowsOperator, _WindowJoinOperator):
    """The sessions of one task of a join."""

    def __init__(self, bolt: PairDeclaration, task: OperatorTask, assigner: Sessions) -> None:
        super().__init__(bolt, task)
        self._rows = SessionRows(assigner, self._time, task.owner, self._ended)
        self._needs_tuple = assigner.dynamic is not None
        self._assigner = assigner

    def _take(self, side: int, key: Any, ts: int, row: Any, rows: Rows, place: int) -> bool:
        tup = rows.tuple(place) if self._needs_tuple else None
        if key is None:
            window = self._assigner.session(ts, tup)
            if self._assigner.complete_at(window[1]) <= self._watermark:
                return False
            if self._reports[side]:
                self._out.append(self._alone[side](row, window))
            return True
        return self._rows.add(key, ts, side, row, self._task.now(), tup)

    def _ended(self, key: Any, window: tuple[int, int], items: Sequence[Any]) -> None:
        sides: Sides = ({}, {})
        for _, _, side, row in items:
            sides[side].setdefault(key, []).append(row)
        both = self._shape.both
        pairs = _product(sides[0].get(key, ()), sides[1].get(key, ()))
        self._out += [both(left, right, window) for left, right in pairs]
        self._unmatched(sides, window)


def _product(left: Iterable[Any], right: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    for one in left:
        for other in right:
            yield one, other
