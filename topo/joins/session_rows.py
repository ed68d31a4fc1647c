"""The rows that joins and groups keep by key until their session ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.event_time import EventTime
from topo.operators.aggregates.accumulators import Accumulators
from topo.operators.aggregates.combiners import Collect
from topo.operators.results import WindowOperator
from topo.storage.namespaces import SavedNamespaces
from topo.windows.general import KeyedWindows
from topo.windows.records import Pane, ReportRules
from topo.windows.triggers import AtWatermark, prepared


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
        self._watermark = self._clock.load(saved, watermark)
        self._rows.load(saved, self._watermark)
        self.state_rows = self._rows.windows.rows

    def save(self, changes: Any) -> None:
        self._rows.save(changes)
        self._clock.save(self._watermark, changes)
