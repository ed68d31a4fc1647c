"""Keyed state: a mapping that knows which of its keys changed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, Generic, NoReturn, TypeVar, overload
from uuid import UUID

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_MISSING: Any = object()
# A value of one of these types cannot be changed in place, so that reading it changes nothing.
_IMMUTABLE = frozenset(
    {int, str, float, bool, bytes, type(None), complex}
    | {date, datetime, time, timedelta, timezone, Decimal, Fraction, UUID, range}
    | {PurePosixPath, PureWindowsPath, PosixPath, WindowsPath}
    | {IPv4Address, IPv4Network, IPv6Address, IPv6Network}
)


def may_change(value: Any) -> bool:
    """Return True if the value, or something in it, could be changed in place."""
    cls = value.__class__
    if cls in _IMMUTABLE or isinstance(value, Enum | type) or _is_scalar_of_numpy(value):
        return False
    if cls is tuple or cls is frozenset or _is_named_tuple(cls):
        return any(map(may_change, value))
    if is_dataclass(cls) and getattr(cls, "__dataclass_params__").frozen:  # noqa: B009
        return any(may_change(getattr(value, field.name, None)) for field in fields(cls))
    return True


def _is_scalar_of_numpy(value: Any) -> bool:
    """Return True for numpy's numbers, times and texts, of which there may be one object for all.

    Whoever has one has imported numpy; a `void` is a view of an array's row.
    """
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None and isinstance(value, numpy.generic) and not isinstance(value, numpy.void)
    )


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and not cls.__dictoffset__


def _references(data: dict[Any, Any], key: Any) -> int:
    value = data[key]
    return sys.getrefcount(value)


_ALONE = _references({0: []}, 0)
"""The references to a value that nobody has but the mapping: measured, for Pythons differ."""


class KeyValueState(MutableMapping[K, V], Generic[K, V]):
    """The keyed state of one task of a StatefulBolt.

    It is saved incrementally. A mutable value that was read counts as changed, since it may have
    been changed in place; so does one that was read in an earlier batch, as long as a reference to
    it exists. The order of the keys is not saved.
    """

    __slots__ = ("_changed", "_data")

    def __init__(self, data: Mapping[K, V] | None = None) -> None:
        self._data: dict[K, V] = dict(data or {})
        self._changed: dict[K, None] = {}  # in the order of the changes

    def __getitem__(self, key: K) -> V:
        value = self._data[key]
        if value.__class__ not in _IMMUTABLE and may_change(value):
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
        if value.__class__ not in _IMMUTABLE and may_change(value):
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

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "keyed state belongs to its task and does not pickle; dict(state) is a copy"
        )

    def changed_keys(self) -> Collection[K]:
        """Return the keys written, deleted or changed in place since the last call."""
        changed, self._changed = self._changed, {}
        return changed.keys()

    def keep_marked(self, keys: Iterable[K]) -> dict[K, V]:
        """Mark those of these keys again whose values somebody refers to; return the values."""
        data = self._data
        referred = {
            key: data[key]
            for key in keys
            if key in data and _references(data, key) > _ALONE and may_change(data[key])
        }
        self._changed.update(dict.fromkeys(referred))
        return referred

    def raw(self) -> dict[K, V]:
        """Return the mapping itself, for saving: reading it marks no key."""
        return self._data

    def writing(self) -> tuple[dict[K, V], dict[K, None]]:
        """Return the mapping and its marks, for code that marks each key it writes.

        Both are the state's own until it is saved or restored; reading a value marks no key.
        """
        return self._data, self._changed

    def reload(self, items: Iterable[tuple[K, V]]) -> None:
        """Take over what was saved; nothing counts as changed."""
        self._data = dict(items)
        self._changed = {}


# -- as a DataFrame -------------------------------------------------------------------------------

_FRAMES = "topo.engine.spark.driver.state_frames"  # of the engine whose savepoints they are


def read_state(
    spark: Any,
    where: Any,
    component: str,
    schema: Any = None,
    *,
    moved: Mapping[str, str] | None = None,
) -> Any:
    """Return the keyed state of a component as a DataFrame of a Spark session, a row for each key.

    `where` is a savepoint, or on a local master a checkpoint that no topology runs on. The columns
    are `component`, `task` (its index), `key` as text, `value` as JSON, and `pickled_key` and
    `pickled_value`. By a `schema` of Spark's, such as `"key string, value long"`, it has these
    columns, with values as they are: tuples, dicts and dataclasses fit structs. `moved` says which
    classes have other names now, as that of a component does.
    """
    return importlib.import_module(_FRAMES).read_state(spark, where, component, schema, moved=moved)


def write_state(
    frame: Any,
    directory: Any,
    *,
    component: str,
    of: Any,
    keep: bool = False,
    by_key: bool = False,
    moved: Mapping[str, str] | None = None,
) -> Any:
    """Write a savepoint that is like the one in `of`, but for the keyed state of a component.

    That is what the frame has: its columns are `key` and `value`, where structs become tuples as
    keys and dicts as values; or `pickled_key` and `pickled_value`. With `keep`, keys that it lacks
    keep their values. A key stays with its task. A new one goes where the grouping sends its
    tuples, if the saved keys prove that they lie so, or `by_key` says it; or to the task of the
    column `task`.
    """
    frames = importlib.import_module(_FRAMES)
    return frames.write_state(
        frame, directory, component=component, of=of, keep=keep, by_key=by_key, moved=moved
    )
