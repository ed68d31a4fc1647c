"""The operators over windows of joins and groups: their time, and the rows they keep by key.

A watermark ends windows; by arrival it is the clock, which is saved, so that none ends twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.event_time import AFTER_ALL, BEFORE_ALL, EventTime
from topo.operators.aggregates.accumulators import Accumulators
from topo.operators.aggregates.combiners import Collect
from topo.storage.namespaces import SavedNamespaces
from topo.timed import Clock, Operator, OperatorTask, Rows
from topo.windows.aggregate import ARRIVAL
from topo.windows.general import KeyedWindows
from topo.windows.records import Pane, ReportRules
from topo.windows.triggers import AtWatermark, prepared

_ARRIVED = "arrived"
"""The record of the clock up to which windows by arrival have ended."""


class WindowOperator(Operator):
    """The base of operators over windows: their time, which may be the clock."""

    def __init__(self, task: OperatorTask, time: EventTime | None) -> None:
        self._task = task
        self._by_arrival = time is None
        self._time = time or ARRIVAL
        self._watermark = BEFORE_ALL
        self._saved_clock = BEFORE_ALL
        self._out: list[list[Any]] = []

    def _times(self, rows: Rows) -> list[Any]:
        if self._by_arrival:
            return [self._time.clock_ticks(self._task.now())] * rows.count
        return rows.times or []

    def _move(self, watermark: int, now: float) -> int:
        """End what ends up to a watermark; return how much that was."""
        raise NotImplementedError

    def begin(self, clock: Clock) -> None:
        if self._by_arrival:
            self._advance(self._time.clock_ticks(clock.now), clock.now)

    def advance(self, clock: Clock) -> int:
        if not self._by_arrival:
            return self._advance(clock.watermark, clock.now)
        return self._advance(AFTER_ALL, clock.now) if clock.ended else 0

    def _advance(self, watermark: int, now: float) -> int:
        self._watermark = max(self._watermark, watermark)
        ended = self._move(self._watermark, now)
        return self._flush() or ended

    def wakes_at(self) -> float | None:
        return self._time.wakes_at(self.next_event() if self._by_arrival else None)

    def _flush(self) -> int:
        out, self._out = self._out, []
        self._task.emit(out)
        return len(out)

    def load_clock(self, saved: Mapping[str, bytes], watermark: int) -> None:
        """Take over the watermark; by arrival, the clock of the last commit."""
        if self._by_arrival:
            watermark = self._saved_clock = int(saved.get(_ARRIVED, b"%d" % BEFORE_ALL))
        self._watermark = watermark

    def save_clock(self, changes: Any) -> None:
        """Save the clock up to which windows by arrival have ended."""
        if self._by_arrival and self._watermark != self._saved_clock:
            self._saved_clock = self._watermark
            changes.puts[_ARRIVED] = b"%d" % self._watermark


class SessionRows:
    """Rows by session and key, each with its side, until their session ends."""

    def __init__(self, assigner: Any, time: EventTime, owner: str, ended: Any) -> None:
        self._saved = SavedNamespaces("windows", owner)
        self._assigner = assigner
        self._number = 0
        self._ended = ended
        self.windows = KeyedWindows(
            assigner,
            Accumulators({"rows": Collect()}),
            prepared(AtWatermark(), time),
            ReportRules(),
            self._report,
            self._saved.touch,
            self._saved.drop,
        )

    def add(self, key: Any, ts: int, side: int, value: Any, now: float, row: Any) -> bool:
        """Take one row in; return False if it is late."""
        self._number += 1
        return self.windows.add(key, ts, [(ts, self._number, side, value)], now, row)

    def _report(self, pane: Pane) -> None:
        self._ended(pane.key, (pane.start, pane.end), sorted(pane.results[0], key=_ts_and_number))

    def advance(self, watermark: int, now: float) -> int:
        """End the sessions that are over."""
        self.windows.end_batch(now)
        return self.windows.advance(watermark, now)

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self.windows.restore(self._saved.load(saved), watermark)
        numbers = (item[1] for record in self.windows.records() for item in record.cell)
        self._number = max(numbers, default=0)

    def save(self, changes: Any) -> None:
        self._saved.save(self.windows.tables, changes)


def _ts_and_number(item: tuple[int, int, int, Any]) -> tuple[int, int]:
    return item[0], item[1]


class KeyedRowsOperator(WindowOperator):
    """An operator that keeps its rows until their window ends, as `SessionRows`."""

    _rows: SessionRows

    def _move(self, watermark: int, now: float) -> int:
        ended = self._rows.advance(watermark, now)
        self.state_rows = self._rows.windows.rows
        return ended

    def next_event(self) -> int | None:
        return self._rows.windows.next_event()

    def oldest(self) -> int | None:
        return self._rows.windows.oldest

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self.load_clock(saved, watermark)
        self._rows.load(saved, self._watermark)
        self.state_rows = self._rows.windows.rows

    def save(self, changes: Any) -> None:
        self._rows.save(changes)
        self.save_clock(changes)
