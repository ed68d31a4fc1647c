"""Rows that are written once and go together: chunks by namespace, appended and dropped.

A join holds many rows for a while and changes none of them. Rows that go at about the same time are
a namespace; what a batch adds to it is one blob, and when all of them are gone the blobs are
deleted. Nothing is written twice, and a row costs no record of its own when it goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topo.storage.classes import load_saved
from topo.storage.saving import Changes
from topo.wire.column import decode_column, dump, encode_column


class SavedChunks:
    """Saves {namespace: [chunk, ...]}; a namespace is an int, a chunk any value that pickles."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}:"
        self._next = 0
        self._kept: dict[int, list[str]] = {}  # the blobs of each namespace
        self._deleted: list[str] = []

    def load(self, saved: Mapping[str, bytes]) -> dict[int, list[Any]]:
        """Return the chunks of every namespace, in the order in which they were added."""
        found: dict[int, list[Any]] = {}
        for key in sorted(key for key in saved if key.startswith(self._prefix)):
            number, _, namespace = key.removeprefix(self._prefix).partition("/")
            self._kept.setdefault(int(namespace), []).append(key)
            self._next = int(number) + 1
            found.setdefault(int(namespace), []).append(load_saved(saved[key]))
        return found

    def add(self, namespace: int, chunk: Any, changes: Changes) -> None:
        """Write a chunk."""
        key = f"{self._prefix}{self._next:012d}/{namespace}"
        self._next += 1
        changes.puts[key] = dump(chunk)
        self._kept.setdefault(namespace, []).append(key)

    def drop(self, namespace: int) -> None:
        """Forget a namespace with all its chunks."""
        self._deleted += self._kept.pop(namespace, ())

    def save(self, changes: Changes) -> None:
        """Delete what was dropped."""
        changes.deletes += self._deleted
        self._deleted = []


def pack_columns(head: Any, columns: Sequence[Sequence[Any]]) -> bytes:
    """Return rows by column, and what belongs to all of them, as `unpack_columns` takes them."""
    return dump((head, [encode_column(list(column)) for column in columns]))


def unpack_columns(data: bytes) -> tuple[Any, list[list[Any]]]:
    """Return the head and the columns that were packed."""
    head, columns = load_saved(data)
    return head, [list(decode_column(column, load_saved)) for column in columns]
