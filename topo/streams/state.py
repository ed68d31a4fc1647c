"""State in an outside store, kept right although a batch may run again.

A batch that failed runs again under the same id, and its spouts may give it other input. What a
store holds must therefore tell the batch that wrote it:

    Opaque              keeps the value before this batch beside the new one, so that a batch that
                        runs again starts from where its first attempt started. A key that the
                        first attempt wrote and the second does not touch keeps the first's value
    Transactional       keeps the batch's id only, and skips a batch that has written already; right
                        only if a batch that runs again has the same input
    NonTransactional    keeps the value alone: a batch that runs again counts twice

The batch id is topo's (`pre_commit`); a store needs `multi_get` and `multi_put` only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from topo.errors import StreamError


class Store(Protocol):
    """A key-value store: what `Opaque` and the others write to."""

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """Return the stored objects, in order; None for a key that is not there."""

    def multi_put(self, items: Mapping[Any, Any]) -> None:
        """Store objects by key, together; None removes the key."""


class MapState(Protocol):
    """Values by key that a batch reads and writes between `begin_commit` and `commit`."""

    def multi_get(self, keys: Sequence[Any]) -> list[Any]: ...
    def multi_put(self, items: Mapping[Any, Any]) -> None: ...
    def multi_update(self, keys: Sequence[Any], update: Callable[[Any, Any], Any]) -> list[Any]: ...
    def begin_commit(self, txid: int | None) -> None: ...
    def commit(self, txid: int | None) -> None: ...


@dataclass(frozen=True)
class OpaqueValue:
    """A value, the batch that wrote it, and the value before that batch."""

    txid: int | None
    value: Any
    previous: Any

    def get(self, txid: int | None) -> Any:
        """Return the value that a batch starts from."""
        if txid is None or self.txid is None or txid > self.txid:
            return self.value
        if txid == self.txid:
            return self.previous
        raise StreamError(
            f"the store has a value of batch {self.txid}, and batch {txid} reads it",
            hint="the checkpoint is older than the store: restore both of one time",
        )

    def update(self, txid: int | None, value: Any) -> OpaqueValue:
        """Return what a batch stores."""
        return OpaqueValue(txid, value, self.get(txid))


class _Batched:
    """The part that the kinds of state share: the present batch."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._txid: int | None = None
        self._written: dict[Any, Any] = {}

    def begin_commit(self, txid: int | None) -> None:
        """Begin the writes of a batch."""
        self._txid = txid
        self._written = {}

    def commit(self, txid: int | None) -> None:
        """End the writes of a batch."""
        self._txid = None
        self._written = {}

    def multi_update(self, keys: Sequence[Any], update: Callable[[Any, Any], Any]) -> list[Any]:
        """Replace values by `update(key, value)`; return the new ones."""
        before = self.multi_get(keys)
        after = [update(key, value) for key, value in zip(keys, before, strict=True)]
        self.multi_put(dict(zip(keys, after, strict=True)))
        return after

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        raise NotImplementedError

    def multi_put(self, items: Mapping[Any, Any]) -> None:
        raise NotImplementedError


class Opaque(_Batched):
    """Values of an opaque spout: each is stored with the one before its batch."""

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """Return the values that this batch sees, its own writes among them."""
        return [
            self._written[key]
            if key in self._written
            else (stored.get(self._txid) if stored is not None else None)
            for key, stored in zip(keys, self.store.multi_get(keys), strict=True)
        ]

    def multi_put(self, items: Mapping[Any, Any]) -> None:
        """Store values under this batch."""
        keys = list(items)
        stored = self.store.multi_get(keys)
        fresh = {}
        for key, known in zip(keys, stored, strict=True):
            if known is None:
                fresh[key] = OpaqueValue(self._txid, items[key], None)
            elif key in self._written:
                fresh[key] = OpaqueValue(self._txid, items[key], known.previous)
            else:
                fresh[key] = known.update(self._txid, items[key])
        self._written.update(items)
        self.store.multi_put(fresh)

    def remove(self, keys: Sequence[Any]) -> None:
        """Remove values; they come back if the batch runs again without removing them."""
        self.multi_put(dict.fromkeys(keys))


class Transactional(_Batched):
    """Values of a spout that repeats its batches: each is stored with its batch's id."""

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """Return the stored values."""
        return [None if stored is None else stored[0] for stored in self.store.multi_get(keys)]

    def multi_put(self, items: Mapping[Any, Any]) -> None:
        """Store values under this batch, but for those that the batch has written before."""
        keys = list(items)
        fresh = {}
        for key, stored in zip(keys, self.store.multi_get(keys), strict=True):
            if key in self._written or stored is None or stored[1] != self._txid:
                fresh[key] = (items[key], self._txid)
        self._written.update(fresh)
        self.store.multi_put(fresh)

    def multi_update(self, keys: Sequence[Any], update: Callable[[Any, Any], Any]) -> list[Any]:
        """Replace values that this batch has not written yet; return the present ones."""
        after: dict[Any, Any] = {}
        changed = {}
        for key, stored in zip(keys, self.store.multi_get(keys), strict=True):
            if stored is not None and stored[1] == self._txid and key not in self._written:
                after[key] = stored[0]
            else:
                after[key] = changed[key] = update(key, None if stored is None else stored[0])
        self.multi_put(changed)
        return [after[key] for key in keys]


class NonTransactional(_Batched):
    """Values alone: a batch that runs again is counted again."""

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """Return the stored values."""
        return self.store.multi_get(keys)

    def multi_put(self, items: Mapping[Any, Any]) -> None:
        """Store values."""
        self.store.multi_put(items)


class CachedMap:
    """A store with the last used objects in memory; only for stores that nobody else writes."""

    def __init__(self, store: Store, size: int = 10_000) -> None:
        self.store = store
        self.size = size
        self._cache: OrderedDict[Any, Any] = OrderedDict()

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """Return objects from memory, and the others from the store in one call."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._cache]
        fetched = dict(zip(missing, self.store.multi_get(missing), strict=True)) if missing else {}
        found = [self._cache[key] if key in self._cache else fetched[key] for key in keys]
        for key, value in zip(keys, found, strict=True):
            self._remember(key, value)
        return found

    def multi_put(self, items: Mapping[Any, Any]) -> None:
        """Store objects, then remember them."""
        self.store.multi_put(items)
        for key, value in items.items():
            self._remember(key, value)

    def _remember(self, key: Any, value: Any) -> None:
        self._cache[key] = value
        self._cache.move_to_end(key)
        if len(self._cache) > self.size:
            self._cache.popitem(last=False)


class MemoryStore:
    """A store in a dict, for tests and examples: it does not survive the process."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """Return the stored objects."""
        return [self.values.get(key) for key in keys]

    def multi_put(self, items: Mapping[Any, Any]) -> None:
        """Store objects; None removes the key."""
        for key, value in items.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
