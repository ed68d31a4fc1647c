"""Keyed state: a mapping that knows which of its keys changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_MISSING: Any = object()
# A value of one of these types cannot be changed in place, so that reading it changes nothing.
_IMMUTABLE = frozenset({int, str, float, bool, bytes, type(None), complex})


class KeyValueState(MutableMapping[K, V], Generic[K, V]):
    """The keyed state of one task of a StatefulBolt.

    Saved by what changed since the last save. A mutable value that was read counts as changed,
    since nobody can tell whether it was changed in place. The order of the keys is not saved.
    """

    __slots__ = ("_changed", "_data")

    def __init__(self, data: Mapping[K, V] | None = None) -> None:
        self._data: dict[K, V] = dict(data or {})
        self._changed: dict[K, None] = {}  # in the order of the changes

    def __getitem__(self, key: K) -> V:
        value = self._data[key]
        if value.__class__ not in _IMMUTABLE:
            self._changed[key] = None
        return value

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V) -> V: ...
    @overload
    def get(self, key: K, /, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        value = self._data.get(key, _MISSING)
        if value is _MISSING:
            return default
        if value.__class__ not in _IMMUTABLE:
            self._changed[key] = None
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._data[key] = value
        self._changed[key] = None

    def __delitem__(self, key: K) -> None:
        del self._data[key]
        self._changed[key] = None

    def put(self, key: K, value: V) -> None:
        """Storm's name for `state[key] = value`."""
        self[key] = value

    def delete(self, key: K) -> V | None:
        """Storm's: remove the key and return what it held, or None."""
        return self.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[K]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def clear(self) -> None:
        self._changed.update(dict.fromkeys(self._data))
        self._data.clear()

    def __repr__(self) -> str:
        return f"KeyValueState({self._data!r})"

    def changed_keys(self) -> Collection[K]:
        """The keys written, deleted or changed in place since the last call."""
        changed, self._changed = self._changed, {}
        return changed.keys()

    def raw(self) -> dict[K, V]:
        """The mapping itself, for saving: reading it marks nothing."""
        return self._data

    def reload(self, items: Iterable[tuple[K, V]]) -> None:
        """Take over what was saved; nothing counts as changed."""
        self._data = dict(items)
        self._changed = {}
