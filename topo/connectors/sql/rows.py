"""Rows on their way to a table, one value after the other under names that many rows share.

A list or a dict a row would be tens of thousands of objects that the garbage collector looks at
again and again; that took a third of the time of writing a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any


@dataclass(slots=True)
class Rows:
    """Rows with the same columns."""

    columns: tuple[str, ...]
    flat: list[Any] = field(default_factory=list)
    """The values of all rows, row by row."""
    empty: int = 0
    """The number of rows, if they have no columns."""

    def __len__(self) -> int:
        return len(self.flat) // len(self.columns) if self.columns else self.empty

    def __getstate__(self) -> tuple[Any, ...]:
        """Return what is saved: by the column, which travels in fewer bytes."""
        return self.columns, self.empty, self.by_column()

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        self.columns, self.empty, columns = saved
        self.flat = list(chain.from_iterable(zip(*columns, strict=True)))

    def add(self, values: Sequence[Any]) -> None:
        self.flat.extend(values)
        self.empty += not self.columns

    def by_column(self) -> list[list[Any]]:
        width = len(self.columns)
        return [self.flat[place::width] for place in range(width)]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of each row."""
        if not self.columns:
            return repeat((), self.empty)
        return zip(*repeat(iter(self.flat), len(self.columns)), strict=True)

    def part(self, start: int, stop: int) -> Rows:
        """Return some rows in their order."""
        width = len(self.columns)
        count = max(0, min(stop, len(self)) - start)
        return Rows(self.columns, self.flat[start * width : stop * width], 0 if width else count)

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, values, strict=True)) for values in self]

    def with_constants(self, more: dict[str, Any]) -> Rows:
        """Return these rows with other columns, in which all have the same values."""
        kept = [place for place, name in enumerate(self.columns) if name not in more]
        own = self.by_column()
        columns: list[Iterable[Any]] = [own[place] for place in kept]
        columns += [repeat(value, len(self)) for value in more.values()]
        names = (*(self.columns[place] for place in kept), *more)
        return Rows(names, list(chain.from_iterable(zip(*columns, strict=True))))


def count(rows: Iterable[Rows]) -> int:
    """Return how many rows there are in all."""
    return sum(map(len, rows))


def from_state(saved: list[Any]) -> list[Rows]:
    """Return the rows of an outbox; earlier topos have saved them as dicts."""
    if not saved or isinstance(saved[0], Rows):
        return saved
    return _gathered((tuple(row), tuple(row.values())) for row in saved)


def merged(rows: Iterable[Rows]) -> list[Rows]:
    """Return rows put together by their columns."""
    by_columns: dict[tuple[str, ...], Rows] = {}
    for each in rows:
        own = by_columns.setdefault(each.columns, Rows(each.columns))
        own.flat.extend(each.flat)
        own.empty += each.empty
    return list(by_columns.values())


def last_by_key(rows: Iterable[Rows], key: Sequence[str]) -> list[Rows]:
    """Return the last row of each key, in the order in which keys came first."""
    found: dict[tuple[Any, ...], tuple[tuple[str, ...], Sequence[Any]]] = {}
    for each in rows:
        places = [each.columns.index(name) for name in key]
        for values in each:
            found[tuple([values[place] for place in places])] = each.columns, values
    return _gathered(found.values())


def halves(rows: Sequence[Rows]) -> tuple[list[Rows], list[Rows]]:
    """Return the first half of several rows, and the rest."""
    left = count(rows) // 2
    first: list[Rows] = []
    second: list[Rows] = []
    for each in rows:
        here, rest = each.part(0, left), each.part(left, len(each))
        left -= len(here)
        first += [here] if len(here) else []
        second += [rest] if len(rest) else []
    return first, second


def _gathered(rows: Iterable[tuple[tuple[str, ...], Sequence[Any]]]) -> list[Rows]:
    by_columns: dict[tuple[str, ...], Rows] = {}
    for columns, values in rows:
        by_columns.setdefault(columns, Rows(columns)).add(values)
    return list(by_columns.values())
