"""The saved state of a task, as keys and blobs that are opaque to the engine.

Plain attributes are one pickle, written when it differs from the last one. It holds every attribute
whose pickle differs from the one after `open` or `prepare`, so that new constructor arguments and
settings win over saved ones. Mappings (keyed state, a spout's pending messages) are logs: each
batch adds a blob with the changed entries and a slice of the unchanged ones; once every key has
been written again since some blob, the earlier blobs are deleted. So the cost of a batch follows
its changes, never the size of the state, and the log stays within a small multiple of the state.
"""

from __future__ import annotations

import io
import socket
import types
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from topo.components import Component
from topo.errors import StatelessError, UnsavableAttributeError
from topo.shipping.pickling import find_unpicklable
from topo.tuples import Fields
from topo.wire.column import dump, load

LARGE_BLOB = 1_000_000
_SMALL_LOG = 64 * 1024
_SCALARS = (int, float, complex, bool, str, bytes, type(None))
_CONTAINERS = (list, tuple, dict, set, frozenset, Mapping)
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


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


class SavedMapping:
    """A mapping that is saved as a log of blobs named `{name}/{number}`."""

    def __init__(self, name: str, owner: str) -> None:
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
            keys, values, deleted = load(saved[key])
            for written, value in zip(keys, values, strict=True):
                data.pop(written, None)
                data[written] = value
                last_in[written] = number
            for gone in deleted:
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
        """Add to `changes` the blobs to write, given the keys that changed."""
        fresh = dict.fromkeys(changed)
        if not fresh:
            return
        keys = [key for key in fresh if key in data]
        size = self._put(data, keys, [key for key in fresh if key not in data], changes)
        if self._rewriting is None and self._is_large(len(data)):
            self._rewriting = list(reversed(data))  # the longest unwritten ones last
            self._rewriting_since = self._next - 1
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
        blob = self._dump(data, keys, deleted)
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
                        f"{self._owner}: the state's value for {key!r} holds "
                        f"{_named(found[1])}, which cannot be saved",
                        hint="keep plain data in the state; make the rest in prepare",
                    ) from error
            raise

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:012d}"


@dataclass
class _Left:
    """The value of an attribute after open or prepare; without a digest if it does not pickle."""

    value: Any
    digest: bytes | None


class SavedAttributes:
    """The plain attributes of one component instance, as saved state."""

    KEY = "attributes"

    def __init__(self, component: Component, owner: str, not_the_users: frozenset[str]) -> None:
        self._component = component
        self._owner = owner
        self._skipped = not_the_users | set(Fields(component.transient))
        self._left: dict[str, _Left] = {}
        self._written: bytes | None = None
        self._warned = False
        self._checks = 0

    def remember(self) -> None:
        """Record the attributes after `open` or `prepare`, which need not be saved."""
        for name, value in self._attributes():
            self._left[name] = _Left(value, None if _is_open_file(value) else _digest(value))

    def load(self, saved: Mapping[str, bytes]) -> None:
        blob = saved.get(self.KEY)
        if blob is None:
            return
        values, deleted = load(blob)
        vars(self._component).update(values)
        for name in deleted:
            vars(self._component).pop(name, None)
        self._written = _short_digest(blob)

    def save(self, changes: Changes) -> None:
        values = self._changed()
        deleted = [name for name in self._left if name not in vars(self._component)]
        if not values and not deleted:
            if self._written is not None:
                changes.deletes.append(self.KEY)
                self._written = None
            return
        try:
            blob = dump((values, deleted))
        except Exception as error:
            raise self._unsavable(values) from error
        digest = _short_digest(blob)
        if digest == self._written:
            return
        self._written = digest
        changes.puts[self.KEY] = blob
        if len(blob) > LARGE_BLOB and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self._owner} saves {len(blob):,} bytes of plain attributes, whole in every "
                "batch that changes them; a StatefulBolt's state is saved by what changed",
                stacklevel=2,
            )

    def check_stateless(self) -> None:
        """Raise StatelessError if an attribute changed.

        The first checks compare all values, which costs the attributes' size, as do ever rarer
        later ones; the checks between compare only what is cheap.
        """
        self._checks += 1
        deep = self._checks & (self._checks - 1) == 0
        names = {name for name, value in self._attributes() if self._differs(name, value, deep)}
        names |= {name for name in self._left if name not in vars(self._component)}
        if names:
            shown = ", ".join(map(repr, sorted(names)))
            raise StatelessError(
                f"{self._owner} says stateless = True and changed its attribute {shown}",
                hint="take stateless away, so that it is saved; or name it in `transient`",
            )

    def _changed(self) -> dict[str, Any]:
        return {
            name: value for name, value in self._attributes() if self._differs(name, value, True)
        }

    def _differs(self, name: str, value: Any, deep: bool) -> bool:
        left = self._left.get(name)
        if left is None:
            return True
        if left.digest is None:
            # The value did not pickle after prepare: it is left out unless it was replaced since.
            if value is not left.value:
                return True
            if isinstance(value, _CONTAINERS):
                raise self._unsavable({name: value})
            return False
        if isinstance(value, _SCALARS):
            same_kind = type(value) is type(left.value)
            return not (same_kind and (value is left.value or value == left.value))
        if isinstance(value, _CODE) and value is left.value:
            return False
        if not deep:
            return value is not left.value
        return _digest(value) != left.digest

    def _attributes(self) -> list[tuple[str, Any]]:
        items = vars(self._component).items()
        return [(name, value) for name, value in items if name not in self._skipped]

    def _unsavable(self, values: Mapping[str, Any]) -> UnsavableAttributeError:
        for name, value in values.items():
            found = find_unpicklable(value)
            if found is None and not _is_open_file(value):
                continue
            path, culprit = found or ("", value)
            inside = f" (at self.{name}{path})" if path else ""
            return UnsavableAttributeError(
                f"{self._owner}: attribute {name!r} holds {_named(culprit)}{inside}, "
                "which cannot be saved",
                hint=f"make it in open or prepare, or in restored and name it in "
                f"transient = ({name!r},)",
            )
        return UnsavableAttributeError(f"{self._owner}: its attributes cannot be saved together")


def _digest(value: Any) -> bytes | None:
    """Return the digest of the value's pickle, or None if it does not pickle."""
    try:
        return _short_digest(dump(value))
    except Exception:
        return None


def _short_digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _is_open_file(value: Any) -> bool:
    in_memory = isinstance(value, io.BytesIO | io.StringIO)
    return isinstance(value, io.IOBase | socket.socket) and not in_memory


def _named(value: Any) -> str:
    cls = type(value)
    name = (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
    return f"a {name}"
