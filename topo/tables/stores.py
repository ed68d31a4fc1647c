"""The latest row of each key, for lookups.

A store is changed by the column: a batch's rows go into one `dict.update`. Only the last row of a
key counts, and what is saved is the keys that a batch has touched.

With `ttl` a row is forgotten so long after it was last written, by the clock of batches; with
`max_keys`, the rows that were written longest ago make room. Both need the rows in the order of
their writing, which a dict keeps if a key is taken out before it is put in again; a saved mapping
is loaded in that order too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from topo.errors import StreamError
from topo.operators.inputs import unhashable
from topo.storage.saving import SavedMapping


class TableStore(Protocol):
    """The rows of a table in one task."""

    expired: int
    """How many lookups found nothing because the history does not reach back so far."""

    def put(
        self, keys: Sequence[Any], rows: Sequence[Any], times: Sequence[Any], now: float
    ) -> None:
        """Take in changes; a row that is None deletes its key."""

    def find(self, key: Any, ts: Any) -> Any:
        """Return the row of a key, or None: the latest one, or that of a time."""

    def end_batch(self, now: float, watermark: int) -> None:
        """Forget what is not needed any more."""

    def forget_old(self, now: float) -> None:
        """Forget the rows whose time to live is over."""

    def load(self, saved: Mapping[str, bytes]) -> None:
        """Take over what was saved."""

    def save(self, changes: Any) -> None:
        """Add what changed to the batch's changes."""

    def __len__(self) -> int: ...


class LatestStore:
    """The latest row of each key."""

    def __init__(
        self, name: str, owner: str, ttl: float | None = None, max_keys: int | None = None
    ) -> None:
        self._log = SavedMapping(name, owner, "the table's row of {key!r}")
        self._owner = owner
        self._ttl = ttl
        self._max_keys = max_keys
        self._rows: dict[Any, Any] = {}  # with `ttl`, (row, time of writing)
        self._touched: dict[Any, None] = {}
        self.expired = 0

    def put(
        self, keys: Sequence[Any], rows: Sequence[Any], times: Sequence[Any], now: float
    ) -> None:
        known = self._rows
        try:
            self._touched.update(dict.fromkeys(keys))
        except TypeError as error:
            raise unhashable(self._owner, keys, StreamError) or error from None
        if self._ttl is not None or self._max_keys is not None:
            self._put_in_order(keys, rows, now)
        elif None in rows if _are_plain(rows) else any(row is None for row in rows):
            for key, row in zip(keys, rows, strict=True):
                if row is None:
                    known.pop(key, None)
                else:
                    known[key] = row
        else:
            known.update(zip(keys, rows, strict=True))
        if None in self._touched:  # no key: equal to nothing
            del self._touched[None]
            known.pop(None, None)

    def _put_in_order(self, keys: Sequence[Any], rows: Sequence[Any], now: float) -> None:
        known, timed = self._rows, self._ttl is not None
        for key, row in zip(keys, rows, strict=True):
            known.pop(key, None)
            if row is not None:
                known[key] = (row, now) if timed else row

    def find(self, key: Any, ts: Any) -> Any:
        row = self._rows.get(key)
        return row if self._ttl is None or row is None else row[0]

    def end_batch(self, now: float, watermark: int) -> None:
        self._forget_most()

    def forget_old(self, now: float) -> None:
        if self._ttl is None:
            return
        last = now - self._ttl
        over = []
        for key, (_, written) in self._rows.items():
            if written > last:
                break
            over.append(key)
        self._forget(over)

    def _forget_most(self) -> None:
        if self._max_keys is not None and len(self._rows) > self._max_keys:
            self._forget(list(islice(self._rows, len(self._rows) - self._max_keys)))

    def _forget(self, keys: Sequence[Any]) -> None:
        for key in keys:
            del self._rows[key]
            self._touched[key] = None

    def load(self, saved: Mapping[str, bytes]) -> None:
        self._rows = self._log.load(saved)

    def save(self, changes: Any) -> None:
        touched, self._touched = self._touched, {}
        self._log.save(self._rows, touched, changes)

    def __len__(self) -> int:
        return len(self._rows)


def _are_plain(rows: Sequence[Any]) -> bool:
    """Return True if comparing these rows with None calls nobody's code."""
    return set(map(type, rows)) <= {tuple, str, int, float, bytes, bool, type(None)}
