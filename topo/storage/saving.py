"""The saved state of a task, as keys and blobs that are opaque to the engine.

Plain attributes are one pickle (`attributes`). Mappings, like keyed state, are logs: each batch
adds a blob with the changed entries and a slice of the unchanged ones; once every key has been
written again since some blob, the earlier blobs are deleted. So the cost of a batch follows its
changes, never the size of the state, and the log stays within a small multiple of the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import nan
from numbers import Number
from operator import is_, ne
from typing import Any

from topo.errors import UnsavableAttributeError
from topo.shipping.pickling import find_unpicklable
from topo.storage.classes import load_saved
from topo.wire.column import dump

LARGE_BLOB = 1_000_000
MAX_BLOB = 16 << 20
"""Of several entries: Spark's JVM takes each blob whole, several times over."""
_SMALL_LOG = 64 * 1024
NEVER_NAN = frozenset({str, int, bool, bytes, type(None)})
"""The types of the most keys, which have no NaN."""
_FLOAT, _TUPLE = {float}, {tuple}


@dataclass
class Changes:
    """The changes of a batch to the saved state of one task: blobs to put, keys to delete."""

    puts: dict[str, bytes] = field(default_factory=dict)
    deletes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.puts or self.deletes)

    def apply_to(self, saved: dict[str, bytes]) -> None:
        for key in self.deletes:
            saved.pop(key, None)
        saved.update(self.puts)


def with_one_nan(value: Any) -> Any:
    """Return the value with this process's own NaN for every other one, in tuples too.

    A NaN is found in a mapping by its identity alone, and pickling makes another object of it. As
    for the fields grouping, the NaN of every type of number is one.
    """
    kind = type(value)
    if kind in NEVER_NAN:
        return value
    if kind is float:
        return nan if value != value else value
    if isinstance(value, tuple):
        if NEVER_NAN.issuperset(map(type, value)):
            return value
        parts = tuple(map(with_one_nan, value))
        if all(map(is_, parts, value)):
            return value
        make = tuple if kind is tuple else getattr(kind, "_make", None)  # a named tuple's
        return value if make is None else make(parts)
    if not isinstance(value, Number):
        return value
    try:
        return nan if value != value else value
    except ArithmeticError:  # a signalling NaN
        return nan


def column_with_one_nan(values: Sequence[Any]) -> Sequence[Any]:
    """Return a column as `with_one_nan` makes its values: itself, as a rule.

    The types are looked at first, which takes a fraction of the time of a call for each value.
    """
    kinds = set(map(type, values))
    if kinds == _TUPLE:
        is_plain = NEVER_NAN.issuperset(map(type, chain.from_iterable(values)))
    else:
        odd = kinds - NEVER_NAN
        is_plain = not odd or (odd == _FLOAT and not any(map(ne, values, values)))
    if is_plain:
        return values
    return list(map(with_one_nan, values))


def keys_of(columns: Sequence[Sequence[Any]], count: int) -> Sequence[Any]:
    """Return the keys of so many rows, each with the one NaN; of no column they are all None."""
    if not columns:
        return [None] * count
    if len(columns) == 1:
        return column_with_one_nan(columns[0])
    return list(zip(*map(column_with_one_nan, columns), strict=True))


class SavedMapping:
    """A mapping that is saved as a log of blobs named `{name}/{number}`."""

    def __init__(
        self, name: str, owner: str, value_words: str = "the state's value for {key!r}"
    ) -> None:
        self._value_words = value_words
        self._prefix = f"{name}/"
        self._owner = owner
        self._next = 0
        self._sizes: dict[int, tuple[int, int]] = {}  # blob number -> bytes, entries; oldest first
        self._bytes = self._entries = 0  # of all blobs
        self._live = 0  # bytes of one whole copy, as far as known
        self._superseded: list[int] = []  # blobs that hold nothing any more
        self._rewriting: list[Any] | None = None  # keys still to be written again
        self._rewriting_since = 0

    def load(self, saved: Mapping[str, bytes]) -> dict[Any, Any]:
        data: dict[Any, Any] = {}  # in the order of the last writes
        last_in: dict[Any, int] = {}
        for key in sorted(key for key in saved if key.startswith(self._prefix)):
            number = int(key.removeprefix(self._prefix))
            keys, values, deleted = load_saved(saved[key])
            for written, value in zip(map(with_one_nan, keys), values, strict=True):
                data.pop(written, None)
                data[written] = value
                last_in[written] = number
            for gone in map(with_one_nan, deleted):
                data.pop(gone, None)
            self._note(number, len(saved[key]), len(keys) + len(deleted))
        alive = Counter(last_in[key] for key in data)
        self._live = sum(
            size * alive[number] // max(1, entries)
            for number, (size, entries) in self._sizes.items()
        )
        # Resumes the round of rewriting that a restart interrupted.
        oldest = next((last_in[key] for key in data), self._next)
        self._superseded = [number for number in self._sizes if number < oldest]
        return data

    def save(self, data: Mapping[Any, Any], changed: Iterable[Any], changes: Changes) -> None:
        """Add to `changes` the blobs to write, given the keys that changed; or `data`: all."""
        if changed is data:
            self._begin_again(data, list(data), changes)
            return
        fresh = dict.fromkeys(changed)
        if not fresh:
            return
        keys = [key for key in fresh if key in data]
        if len(keys) == len(data) and (keys or self._sizes):
            # This is all there is, as with messages that live for one batch.
            self._begin_again(data, keys, changes)
            return
        first = self._next
        size = self._put(data, keys, [key for key in fresh if key not in data], changes)
        if self._rewriting is None and self._is_large(len(data)):
            self._rewriting = list(reversed(data))  # the longest unwritten ones last
            self._rewriting_since = first
        if self._rewriting is not None:
            self._rewrite(data, fresh, size, changes)
        for number in self._superseded:
            size, entries = self._sizes.pop(number)
            self._bytes -= size
            self._entries -= entries
            changes.deletes.append(self._key(number))
        if self._superseded and self._rewriting is None:
            self._live = self._bytes
        self._superseded = []

    def _begin_again(self, data: Mapping[Any, Any], keys: list[Any], changes: Changes) -> None:
        """Write everything, and delete what was written before."""
        changes.deletes.extend(map(self._key, self._sizes))
        self._sizes.clear()
        self._superseded, self._rewriting = [], None
        self._bytes = self._entries = 0
        self._live = self._put(data, keys, [], changes) if keys else 0

    def drop(self, changes: Changes) -> None:
        """Delete the whole mapping: one delete per blob, however many entries it has."""
        changes.deletes.extend(map(self._key, self._sizes))
        self._sizes.clear()

    def _is_large(self, count: int) -> bool:
        outgrown = self._bytes > 2 * self._live or self._entries > 2 * count
        return self._bytes > _SMALL_LOG and outgrown

    def _rewrite(
        self, data: Mapping[Any, Any], fresh: Collection[Any], size: int, changes: Changes
    ) -> None:
        """Write some unchanged keys, in proportion to the changed ones."""
        assert self._rewriting is not None
        # The round ends by the time that the changes have added an eighth to the log.
        left = max(2 * len(fresh), 8 * len(data) * size // self._bytes)
        keys = []
        while self._rewriting and left:
            key = self._rewriting.pop()
            if key in data and key not in fresh:
                keys.append(key)
                left -= 1
        if keys:
            self._put(data, keys, [], changes)
        if not self._rewriting:
            self._rewriting = None
            self._superseded = [old for old in self._sizes if old < self._rewriting_since]

    def _put(
        self, data: Mapping[Any, Any], keys: list[Any], deleted: list[Any], changes: Changes
    ) -> int:
        """Add the entries to `changes`, in as many blobs as it takes; return their size."""
        blob = self._dump(data, keys, deleted)
        if len(blob) > MAX_BLOB and len(keys) > 1:
            each = max(1, len(keys) * MAX_BLOB // (2 * len(blob)))  # all are seldom of one size
            del blob
            parts = [keys[start : start + each] for start in range(0, len(keys), each)]
            size = self._put(data, parts[0], deleted, changes)
            return size + sum(self._put(data, part, [], changes) for part in parts[1:])
        changes.puts[self._key(self._next)] = blob
        self._note(self._next, len(blob), len(keys) + len(deleted))
        return len(blob)

    def _note(self, number: int, size: int, entries: int) -> None:
        self._sizes[number] = (size, entries)
        self._bytes += size
        self._entries += entries
        self._next = number + 1

    def _dump(self, data: Mapping[Any, Any], keys: list[Any], deleted: list[Any]) -> bytes:
        try:
            return dump((keys, [data[key] for key in keys], deleted))
        except Exception as error:
            for key in keys:
                found = find_unpicklable(data[key])
                if found is not None:
                    raise UnsavableAttributeError(
                        f"{self._owner}: {self._value_words.format(key=key)} holds "
                        f"{type_of(found[1])}, which cannot be saved",
                        hint="keep plain data in the state; make the rest in prepare",
                    ) from error
            raise

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:012d}"


def type_of(value: Any) -> str:
    """Return the type of a value as an error names it: "a _thread.lock"."""
    cls = type(value)
    name = (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
    return f"a {name}"
