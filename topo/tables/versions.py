"""The history of each key of a table, for lookups as of a time.

A version is valid from its time to that of the next one; a deletion is a version too. Versions that
no lookup can want any more are dropped: of those at or before a horizon, all but the newest. With a
watermark, the horizon is the watermark less the history; without one (`by_key`), it is the time of
the key's newest version less the history, and what comes older than that is not taken in.

Each version is saved once, under its key and time, so a long history costs nothing per change.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from topo.errors import StreamError
from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.operators.inputs import unhashable
from topo.storage.saving import SavedMapping
from topo.tables.stores import keys_until


class VersionStore:
    """The versions of each key, in ticks of time."""

    def __init__(
        self, name: str, owner: str, history: int, *, by_key: bool, ttl: float | None = None
    ) -> None:
        self._log = SavedMapping(name, owner, "the table's row of {key!r}")
        self._owner = owner
        self._history = history
        self._by_key = by_key
        self._ttl = ttl
        self._times: dict[Any, list[int]] = {}
        self._rows: dict[tuple[Any, int], Any] = {}
        """By key and time; with `ttl`, (row, time of writing)."""
        self._touched: dict[tuple[Any, int], None] = {}
        self._ends: list[tuple[int, int, Any]] = []
        """A heap of (time, number, key) of all versions: when its predecessors may go."""
        self._written: dict[Any, float] = {}
        """With `ttl`, when each key was last written, in that order."""
        self._numbers = count()
        self._horizon = BEFORE_ALL
        self.expired = 0

    def put(
        self, keys: Sequence[Any], rows: Sequence[Any], times: Sequence[Any], now: float
    ) -> None:
        try:
            for key, row, ts in zip(keys, rows, times, strict=True):
                if key is not None:
                    self._put(key, row, ts, now)
        except TypeError as error:
            raise unhashable(self._owner, keys, StreamError) or error from None

    def _put(self, key: Any, row: Any, ts: int, now: float) -> None:
        own = self._times.get(key)
        if own is None:
            own = self._times[key] = []
        if self._by_key and own and ts < own[-1] - self._history:
            return
        if self._ttl is not None:
            self._written.pop(key, None)
            self._written[key] = now
            row = (row, now)
        at = bisect_left(own, ts)
        if at == len(own) or own[at] != ts:
            if not self._by_key:
                if ts <= self._horizon and at < len(own) and own[at] <= self._horizon:
                    return  # a newer one is valid at the horizon already
                heapq.heappush(self._ends, (ts, next(self._numbers), key))
            own.insert(at, ts)
        self._rows[key, ts] = row
        self._touched[key, ts] = None
        if self._by_key and at == len(own) - 1:
            self._trim(key, own, ts - self._history)

    def find(self, key: Any, ts: Any) -> Any:
        """Return the row that was valid at a time, or None."""
        own = self._times.get(key)
        if own is None:
            return None
        at = bisect_right(own, ts)
        if not at:
            horizon = own[-1] - self._history if self._by_key else self._horizon
            self.expired += ts < horizon
            return None
        row = self._rows[key, own[at - 1]]
        return row if self._ttl is None else row[0]

    def end_batch(self, now: float, watermark: int) -> None:
        if self._by_key or watermark <= BEFORE_ALL:
            return
        horizon = watermark if watermark >= AFTER_ALL else watermark - self._history
        self._horizon = max(self._horizon, horizon)
        ends = self._ends
        while ends and ends[0][0] <= self._horizon:
            _, _, key = heapq.heappop(ends)
            own = self._times.get(key)
            if own is not None:
                self._trim(key, own, self._horizon)

    def _trim(self, key: Any, own: list[int], horizon: int) -> None:
        """Drop the versions of a key that are over at the horizon."""
        first = bisect_right(own, horizon) - 1
        if first < 0:
            return
        gone = own[:first]
        newest = self._rows[key, own[first]]
        deleted = (newest if self._ttl is None else newest[0]) is None
        if deleted and not self._by_key:
            gone = own[: first + 1]  # a deletion that is over says nothing
        for ts in gone:
            del self._rows[key, ts]
            self._touched[key, ts] = None
        del own[: len(gone)]
        if not own:
            del self._times[key]

    def forget_old(self, now: float) -> None:
        """Forget the keys that were not written for their time to live."""
        if self._ttl is None:
            return
        for key in keys_until(now - self._ttl, self._written.items()):
            del self._written[key]
            for ts in self._times.pop(key, ()):
                del self._rows[key, ts]
                self._touched[key, ts] = None

    def load(self, saved: Mapping[str, bytes]) -> None:
        self._rows = self._log.load(saved)
        for (key, ts), row in self._rows.items():
            self._times.setdefault(key, []).append(ts)
            if not self._by_key:
                heapq.heappush(self._ends, (ts, next(self._numbers), key))
            if self._ttl is not None:
                written = max(row[1], self._written.pop(key, row[1]))
                self._written[key] = written
        for own in self._times.values():
            own.sort()
        self._written = dict(sorted(self._written.items(), key=lambda item: item[1]))

    def save(self, changes: Any) -> None:
        touched, self._touched = self._touched, {}
        self._log.save(self._rows, touched, changes)

    def __len__(self) -> int:
        return len(self._rows)
