"""Mappings by namespace: saved incrementally, dropped as a whole.

A window's results are a namespace: while it is open, a commit costs the keys that changed in it;
when it is over, it goes with one delete per blob, not one per key. Each namespace is a log of its
own (`SavedMapping`), so nothing that a window holds is rewritten for another one's sake.

For an operator with keyed state of its own: one `SavedNamespaces` per kind of state, `touch` for
each key that changed, `drop` when a namespace ends, and `save` at the end of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topo.storage.saving import Changes, SavedMapping


class SavedNamespaces:
    """Saves {namespace: {key: value}}; a namespace is an int."""

    def __init__(
        self, name: str, owner: str, value_words: str = "the state's value for {key!r}"
    ) -> None:
        self._prefix = f"{name}:"
        self._owner = owner
        self._value_words = value_words
        self._logs: dict[int, SavedMapping] = {}
        self._changed: dict[int, dict[Any, None]] = {}
        self._dropped: list[SavedMapping] = []

    def touch(self, namespace: int, key: Any) -> None:
        """Note that a key's value changed, or that the key is gone."""
        changed = self._changed.get(namespace)
        if changed is None:
            changed = self._changed[namespace] = {}
        changed[key] = None

    def touch_all(self, namespace: int, keys: Iterable[Any]) -> None:
        """Note many changed keys at once."""
        self._changed.setdefault(namespace, {}).update(dict.fromkeys(keys))

    def drop(self, namespace: int) -> None:
        """Forget a namespace with all its keys."""
        self._changed.pop(namespace, None)
        log = self._logs.pop(namespace, None)
        if log is not None:
            self._dropped.append(log)

    def load(self, saved: Mapping[str, bytes]) -> dict[int, dict[Any, Any]]:
        """Return every namespace that was saved."""
        names = {key.rpartition("/")[0] for key in saved if key.startswith(self._prefix)}
        numbers = sorted(int(name.removeprefix(self._prefix)) for name in names)
        return {number: self._log(number).load(saved) for number in numbers}

    def save(self, data: Mapping[int, Mapping[Any, Any]], changes: Changes) -> None:
        """Add to `changes` what is to be written."""
        for log in self._dropped:
            log.drop(changes)
        self._dropped.clear()
        changed, self._changed = self._changed, {}
        for namespace, keys in changed.items():
            self._log(namespace).save(data.get(namespace, {}), keys, changes)

    def _log(self, namespace: int) -> SavedMapping:
        log = self._logs.get(namespace)
        if log is None:
            log = self._logs[namespace] = SavedMapping(
                f"{self._prefix}{namespace}", self._owner, self._value_words
            )
        return log
