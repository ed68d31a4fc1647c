"""Rows on their way to a table: values under names that many rows share, no dict a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Rows:
    """Rows with the same columns: the values of each in the columns' order."""

    columns: tuple[str, ...]
    values: list[Sequence[Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.values)

    def __getstate__(self) -> tuple[Any, ...]:
        """Return what is saved: by the column, which takes a fraction of the time and the bytes."""
        return self.columns, len(self.values), list(zip(*self.values, strict=True))

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        self.columns, count, columns = saved
        self.values = list(zip(*columns, strict=True)) if columns else [()] * count

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, values, strict=True)) for values in self.values]

    def with_constants(self, more: dict[str, Any]) -> Rows:
        """Return these rows with other columns, in which all have the same values."""
        kept = [place for place, name in enumerate(self.columns) if name not in more]
        names = (*(self.columns[place] for place in kept), *more)
        same = tuple(more.values())
        if len(kept) == len(self.columns):
            return Rows(names, [(*values, *same) for values in self.values])
        return Rows(names, [(*(row[place] for place in kept), *same) for row in self.values])


def count(rows: Iterable[Rows]) -> int:
    """Return how many rows there are in all."""
    return sum(map(len, rows))


def from_state(saved: list[Any]) -> list[Rows]:
    """Return the rows of an outbox; earlier topos have saved them as dicts."""
    if not saved or isinstance(saved[0], Rows):
        return saved
    return [Rows(tuple(row), [tuple(row.values())]) for row in saved]


def merged(rows: Iterable[Rows]) -> list[Rows]:
    """Return rows put together by their columns."""
    by_columns: dict[tuple[str, ...], list[Sequence[Any]]] = {}
    for each in rows:
        by_columns.setdefault(each.columns, []).extend(each.values)
    return [Rows(columns, values) for columns, values in by_columns.items()]


def last_by_key(rows: Iterable[Rows], key: Sequence[str]) -> list[Rows]:
    """Return the last row of each key, in the order in which keys came first."""
    found: dict[tuple[Any, ...], tuple[tuple[str, ...], Sequence[Any]]] = {}
    for each in rows:
        places = [each.columns.index(name) for name in key]
        for values in each.values:
            found[tuple([values[place] for place in places])] = each.columns, values
    by_columns: dict[tuple[str, ...], list[Sequence[Any]]] = {}
    for columns, values in found.values():
        by_columns.setdefault(columns, []).append(values)
    return [Rows(columns, values) for columns, values in by_columns.items()]


def halves(rows: Sequence[Rows]) -> tuple[list[Rows], list[Rows]]:
    """Return the first half of several rows, and the rest."""
    left = count(rows) // 2
    first: list[Rows] = []
    second: list[Rows] = []
    for each in rows:
        here, rest = each.values[:left], each.values[left:]
        left -= len(here)
        first += [Rows(each.columns, here)] if here else []
        second += [Rows(each.columns, rest)] if rest else []
    return first, second
