"""The rows that a query over more than one batch looks back on, saved a batch at a time.

Each batch's rows of one input are a chunk, which is written once and goes with one delete, so the
cost of a commit follows the rows that came and not those that are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from topo.storage.namespaces import SavedNamespaces
from topo.storage.saving import Changes

Columns = list[list[Any]]


class RetainedRows:
    """The latest rows of every input of one task: so many, or those of so many seconds."""

    def __init__(self, owner: str, most: int | None, secs: float | None) -> None:
        self._most = most
        self._secs = secs
        self._saved = SavedNamespaces("rows", owner)
        self._chunks: dict[int, dict[str, Any]] = {}
        self._next = 0

    def add(self, source: str, columns: Sequence[Sequence[Any]], now: float) -> None:
        """Add the rows of one input that came in a batch."""
        self._put({"source": source, "at": now, "columns": [list(column) for column in columns]})

    def _put(self, chunk: dict[str, Any]) -> None:
        number = self._next
        self._next += 1
        self._chunks[number] = chunk
        self._saved.touch_all(number, chunk)

    def trim(self, now: float) -> bool:
        """Forget what is too old or too much; return True if something was."""
        if self._secs is not None:
            old = [n for n, chunk in self._chunks.items() if chunk["at"] <= now - self._secs]
            for number in old:
                self._drop(number)
            return bool(old)
        before = self._next
        for source in self.sources():
            self._trim_to(source, self._most or 0)
        return self._next != before

    def _trim_to(self, source: str, most: int) -> None:
        """Forget the oldest rows of an input beyond so many; a chunk may lose a part."""
        mine = [n for n, chunk in self._chunks.items() if chunk["source"] == source]
        extra = sum(len(self._chunks[n]["columns"][0]) for n in mine) - most
        for number in mine:
            if extra <= 0:
                return
            chunk = self._chunks[number]
            size = len(chunk["columns"][0])
            if size <= extra:
                self._drop(number)
            else:
                chunk["columns"] = [column[extra:] for column in chunk["columns"]]
                self._saved.touch(number, "columns")
            extra -= size

    def _drop(self, number: int) -> None:
        del self._chunks[number]
        self._saved.drop(number)

    def sources(self) -> list[str]:
        return list(dict.fromkeys(chunk["source"] for chunk in self._chunks.values()))

    def of(self, source: str) -> Iterator[tuple[int, Columns]]:
        """Yield the number and the columns of each chunk of an input, the oldest first."""
        for number, chunk in self._chunks.items():
            if chunk["source"] == source:
                yield number, chunk["columns"]

    def next_end(self) -> float | None:
        """Return when, by the clock, the oldest rows are too old."""
        if self._secs is None or not self._chunks:
            return None
        return float(min(chunk["at"] for chunk in self._chunks.values())) + self._secs

    @property
    def count(self) -> int:
        return sum(len(chunk["columns"][0]) for chunk in self._chunks.values())

    def load(self, saved: Mapping[str, bytes]) -> None:
        self._chunks = dict(sorted(self._saved.load(saved).items()))
        self._next = max(self._chunks, default=-1) + 1

    def save(self, changes: Changes) -> None:
        self._saved.save(self._chunks, changes)
