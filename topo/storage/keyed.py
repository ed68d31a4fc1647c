"""The keyed state of one task, and what is saved of it.

A value counts as changed when it was read, and for as long as somebody refers to it. Changes by way
of a reference to something *in* it cannot be seen without looking, which costs too much in a real
run; a test looks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any

from topo.errors import UnsavableAttributeError
from topo.state import KeyValueState
from topo.storage.attributes import SavedAttributes
from topo.storage.saving import Changes, SavedMapping
from topo.tuples import Tuple
from topo.wire.column import dump

_MOST = 1000


def saved_state(saved: Mapping[str, bytes]) -> dict[Any, Any]:
    """Return the keyed state in what a task has saved; unpickles it."""
    return SavedMapping("state", "").load(saved)


class KeyedState:
    """A component's mapping, saved incrementally; tests set `strict`."""

    def __init__(self, owner: str, strict: bool) -> None:
        self.state: KeyValueState[Any, Any] = KeyValueState()
        self._owner = owner
        self._log = SavedMapping("state", owner)
        self._handed_out = _HandedOut(owner) if strict else None

    def load(self, saved: Mapping[str, bytes]) -> None:
        self.state.reload(self._log.load(saved).items())

    def save(self, changes: Changes, attributes: SavedAttributes) -> None:
        changed, data = self.state.changed_keys(), self.state.raw()
        if self._handed_out is not None:
            self._handed_out.check(data, changed)
        self._log.save(data, changed, changes)
        if self._handed_out is not None:
            self._handed_out.saved(data, changed)
        self._check_shared(self.state.keep_marked(changed), attributes)

    def _check_shared(self, referred: Mapping[Any, Any], attributes: SavedAttributes) -> None:
        """Raise an error if a value of the state would come back as another object.

        `referred` are the values that somebody beside the state refers to.
        """
        # A kept tuple is one tuple again, wherever it was kept.
        values = {key: one for key, one in referred.items() if not isinstance(one, Tuple)}
        if not values:
            return
        owners: dict[int, Any] = {}
        for key, value in values.items():
            first = owners.setdefault(id(value), key)
            if first is not key:
                raise UnsavableAttributeError(
                    f"{self._owner}: the state's values for {first!r} and {key!r} are one "
                    "object, and would be two after a restart",
                    hint="put a copy under the second key",
                )
        attributes.check_apart(values)


class _HandedOut:
    """The digests of the values that were handed out lately, as they were saved."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._digests: dict[Any, bytes] = {}

    def check(self, data: Mapping[Any, Any], changed: Collection[Any]) -> None:
        """Raise an error if a value changed and is not among the `changed` ones."""
        for key, digest in self._digests.items():
            if key not in changed and key in data and _digest(data[key]) != digest:
                raise UnsavableAttributeError(
                    f"{self._owner}: the state's value for {key!r} was changed through a "
                    "reference that was kept from an earlier batch, which nothing notices",
                    hint="read it from the state wherever it is changed",
                )

    def saved(self, data: Mapping[Any, Any], changed: Collection[Any]) -> None:
        """Remember the values that have just been saved."""
        for key in changed:
            self._digests.pop(key, None)
            if key in data:
                self._digests[key] = _digest(data[key])
        for key in list(self._digests)[:-_MOST]:
            del self._digests[key]


def _digest(value: Any) -> bytes:
    return blake2b(dump(value), digest_size=16).digest()
