"""Rows that wait for the watermark: those whose time has come go on in its order, with fresh ones.

Few rows wait, as a rule, for what comes in order is due in its own batch. A row that waits is saved
once, and deleted when it is due.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Generic, TypeVar

from topo.storage.saving import SavedMapping

R = TypeVar("R", bound=tuple[Any, ...])

_ts = itemgetter(0)


class RowQueue(Generic[R]):
    """The rows of one task that wait; the first value of a row is its time.

    `record` makes what is saved of a row and its number, `row` makes the row of it again.
    """

    def __init__(
        self, owner: str, record: Callable[[R, int], Any], row: Callable[[Any], R]
    ) -> None:
        self._log = SavedMapping("waiting", owner)
        self._record = record
        self._row = row
        self._records: dict[int, Any] = {}
        self._heap: list[tuple[int, int]] = []
        self._touched: dict[int, None] = {}
        self._next = 0

    def due(self, fresh: list[R], until: int) -> list[R]:
        """Return the rows before a time, in its order; keep the others.

        Of equal times, the first to arrive comes first.
        """
        due: list[R] = []
        while self._heap and self._heap[0][0] < until:
            _, number = heapq.heappop(self._heap)
            due.append(self._row(self._records.pop(number)))
            self._touched[number] = None
        fresh.sort(key=_ts)
        first_to_wait = bisect_left(fresh, until, key=_ts)
        for row in fresh[first_to_wait:]:
            self._keep(row)
        del fresh[first_to_wait:]
        if not due:
            return fresh
        due += fresh
        due.sort(key=_ts)
        return due

    def _keep(self, row: R) -> None:
        number, self._next = self._next, self._next + 1
        self._records[number] = self._record(row, number)
        self._touched[number] = None
        heapq.heappush(self._heap, (row[0], number))

    def first(self) -> int | None:
        """Return the time of the first row."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._records)

    def load(self, saved: Mapping[str, bytes]) -> None:
        """Take over what was saved."""
        self._records = self._log.load(saved)
        self._heap = [(record[0], number) for number, record in self._records.items()]
        heapq.heapify(self._heap)
        self._next = max(self._records, default=-1) + 1

    def save(self, changes: Any) -> None:
        """Add what changed to the batch's changes."""
        touched, self._touched = self._touched, {}
        self._log.save(self._records, touched, changes)
