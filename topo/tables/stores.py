"""The latest row of each key: for lookups, and below tables that are joined with each other.

A store is changed by the column: a batch's rows go into one `dict.update`. Only the last row of a
key counts, and what is saved is the keys that a batch has touched.

With `ttl` a row is forgotten so long after it was last written, by the clock of batches; with
`max_keys`, the rows that were written longest ago make room. Both need the rows in the order of
their writing, which a dict keeps if a key is taken out before it is put in again; a saved mapping
is loaded in that order too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
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


class LatestRows:
    """The latest row of each key of a table, and the keys whose rows have changed.

    With `ttl`, the last value of a row is when it was written.
    """

    def __init__(self, name: str, owner: str, ttl: float | None, max_keys: int | None) -> None:
        self.rows: dict[Any, Any] = {}
        self._log = SavedMapping(name, owner, "the table's row of {key!r}")
        self._owner = owner
        self._ttl = ttl
        self._max_keys = max_keys
        self._touched: dict[Any, Any] = {}

    def overdue(self, now: float) -> list[Any]:
        """Return the keys whose time to live is over."""
        if self._ttl is None:
            return []
        return keys_until(now - self._ttl, ((key, row[-1]) for key, row in self.rows.items()))

    def surplus(self) -> list[Any]:
        """Return the keys that are too many, those that were written longest ago."""
        if self._max_keys is None:
            return []
        return list(islice(self.rows, max(0, len(self.rows) - self._max_keys)))

    def forget(self, keys: Iterable[Any]) -> None:
        """Remove rows that there are."""
        for key in keys:
            del self.rows[key]
            self._touched[key] = None

    def load(self, saved: Mapping[str, bytes]) -> None:
        """Take over what was saved."""
        self.rows = self._log.load(saved)

    def save(self, changes: Any) -> None:
        """Add what changed to the batch's changes."""
        touched, self._touched = self._touched, {}
        self._log.save(self.rows, touched, changes)

    def __len__(self) -> int:
        return len(self.rows)


def keys_until(last: float, written: Iterable[tuple[Any, float]]) -> list[Any]:
    """Return the keys written up to a time, of those in the order of their writing."""
    return [key for key, _ in takewhile(lambda item: item[1] <= last, written)]


class LatestStore(LatestRows):
    """The latest rows as lookups want them: a batch's changes count as they come."""

    def __init__(
        self, name: str, owner: str, ttl: float | None = None, max_keys: int | None = None
    ) -> None:
        super().__init__(name, owner, ttl, max_keys)
        self.expired = 0

    def put(
        self, keys: Sequence[Any], rows: Sequence[Any], times: Sequence[Any], now: float
    ) -> None:
        known = self.rows
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
        known, timed = self.rows, self._ttl is not None
        for key, row in zip(keys, rows, strict=True):
            known.pop(key, None)
            if row is not None:
                known[key] = (row, now) if timed else row

    def find(self, key: Any, ts: Any) -> Any:
        row = self.rows.get(key)
        return row if self._ttl is None or row is None else row[0]

    def end_batch(self, now: float, watermark: int) -> None:
        self.forget(self.surplus())

    def forget_old(self, now: float) -> None:
        self.forget(self.overdue(now))


def _are_plain(rows: Sequence[Any]) -> bool:
    """Return True if comparing these rows with None calls nobody's code."""
    return set(map(type, rows)) <= {tuple, str, int, float, bytes, bool, type(None)}
