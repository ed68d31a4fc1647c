"""The latest rows of a table that is joined with others, and what a batch changes in them.

A batch's changes are gathered beside the rows, the last one of each key, and become the rows when
everything that depends on both states has been computed.

A versioned table takes no change older than its newest row of that key. So a deletion is a row too,
and is remembered for as long as the history reaches back.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from topo.errors import StreamError
from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.operators.inputs import unhashable
from topo.storage.saving import column_with_one_nan
from topo.tables.stores import LatestRows

UPSERTS, CHANGES = "upserts", "changes"
"""The kinds of a source: rows as they come, or another bolt's changelog."""


@dataclass(frozen=True)
class SourcePlan:
    """One table as an input: its stream, and what bounds it."""

    component: str
    stream: str
    kind: str
    history: int | None = None
    ttl: float | None = None
    max_keys: int | None = None

    @property
    def forgets(self) -> bool:
        """True iff rows go without having been deleted."""
        return self.ttl is not None or self.max_keys is not None


class TableSource(LatestRows):
    """The rows of one table in one task: (row, time), and if it forgets, when it was written.

    A `plain` one, which has no times and forgets nothing, has the rows themselves: containers cost
    more than all else here, since the garbage collector looks at each.
    """

    def __init__(self, plan: SourcePlan, name: str, owner: str, *, plain: bool = False) -> None:
        super().__init__(name, owner, plan.ttl, plan.max_keys)
        self.plan = plan
        self._plain = plain
        self.fresh: dict[Any, Any] = {}
        """The last change of each key in this batch: (row, time), or the row; None deletes."""
        self._deletions: list[tuple[int, int, Any]] = []
        self._numbers = count()

    def put(self, columns: Sequence[Sequence[Any]], times: Sequence[Any]) -> None:
        """Take in some tuples: keys first, rows last but for the time."""
        keys = column_with_one_nan(columns[0])
        values = columns[1] if self.plan.kind == UPSERTS else columns[2]
        fresh = self.fresh
        try:
            if self._plain:
                fresh.update(zip(keys, values, strict=True))
            elif self.plan.history is None:
                fresh.update(zip(keys, zip(values, times, strict=True), strict=True))
            else:
                for key, value, ts in zip(keys, values, times, strict=True):
                    newest = fresh.get(key) or self.rows.get(key)
                    if newest is None or ts >= newest[1]:
                        fresh[key] = (value, ts)
        except TypeError as error:
            raise unhashable(self._owner, keys, StreamError) or error from None
        if None in fresh:  # no key: equal to nothing
            del fresh[None]

    def commit(self, now: float) -> None:
        """Make the batch's changes the rows."""
        fresh, rows, plan = self.fresh, self.rows, self.plan
        if not fresh:
            return
        if self._touched:
            self._touched.update(fresh)
        else:
            self._touched = fresh
        if plan.forgets:
            for key, (value, ts) in fresh.items():
                rows.pop(key, None)  # so that the rows are in the order of their writing
                rows[key] = (value, ts, now)
        else:
            rows.update(fresh)
        if self._plain:
            gone = [key for key, row in fresh.items() if row is None]
        else:
            gone = [key for key, row in fresh.items() if row[0] is None]
        if plan.history is None:
            for key in gone:
                del rows[key]
        else:
            for key in gone:
                heapq.heappush(self._deletions, (fresh[key][1], next(self._numbers), key))
        self.fresh = {}

    def forget_deletions(self, watermark: int) -> None:
        """Forget the deletions that are older than the history."""
        if self.plan.history is None or watermark <= BEFORE_ALL:
            return
        horizon = watermark if watermark >= AFTER_ALL else watermark - self.plan.history
        while self._deletions and self._deletions[0][0] < horizon:
            ts, _, key = heapq.heappop(self._deletions)
            row = self.rows.get(key)
            if row is not None and row[0] is None and row[1] == ts:
                self.forget([key])

    def to_forget(self, now: float) -> list[Any]:
        """Return the keys whose time to live is over, or that are too many."""
        return max(self.overdue(now), self.surplus(), key=len)  # both begin with the oldest

    def load(self, saved: Mapping[str, bytes]) -> None:
        super().load(saved)
        if self.plan.history is not None:
            self._deletions = [
                (row[1], next(self._numbers), key)
                for key, row in self.rows.items()
                if row[0] is None
            ]
            heapq.heapify(self._deletions)
