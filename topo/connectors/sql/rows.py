"""Rows on their way to a table: columns of values under names that many rows share.

A list or a dict a row would be tens of thousands of objects that the garbage collector looks at
again and again; that took a third of the time of writing a table. Columns of frames come as they
are, and those of Arrow stay so, in saved state as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from topo.connectors.base import record_of, rows_of
from topo.wire.arrow import ArrowColumn, joined, pyarrow
from topo.wire.column import decode_column, encode_column

Column = Sequence[Any]
"""A list, a tuple, or an ArrowColumn."""


@dataclass(slots=True)
class Rows:
    """Rows with the same columns."""

    columns: tuple[str, ...]
    values: list[Column] = field(default_factory=list)
    """One for each of the columns, as long as there are rows."""
    empty: int = 0
    """The number of rows, if they have no columns."""

    def __post_init__(self) -> None:
        if not self.values:
            self.values = [[] for _ in self.columns]

    def __len__(self) -> int:
        return len(self.values[0]) if self.columns else self.empty

    def __getstate__(self) -> tuple[Any, ...]:
        """Return what is saved: lists, and the bytes of Arrow's columns."""
        saved = [
            encode_column(column) if isinstance(column, ArrowColumn) else list(column)
            for column in self.values
        ]
        return self.columns, self.empty, saved

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        self.columns, self.empty, columns = saved
        self.values = [
            decode_column(column) if isinstance(column, bytes) else column for column in columns
        ]

    def add(self, row: Sequence[Any]) -> None:
        """Add a row, to rows that were all added."""
        for column, value in zip(self.values, row, strict=True):
            column.append(value)  # type: ignore[attr-defined]
        self.empty += not self.columns

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types of the columns, of which None are Python's."""
        return tuple(
            column.array.type if isinstance(column, ArrowColumn) else None for column in self.values
        )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the values of each row."""
        return iter(rows_of(self.values, self.empty))

    def part(self, start: int, stop: int) -> Rows:
        """Return some rows in their order."""
        count = max(0, min(stop, len(self)) - start)
        values = [column[start:stop] for column in self.values]
        return Rows(self.columns, values, 0 if self.columns else count)

    def dicts(self) -> list[dict[str, Any]]:
        return [record_of(self.columns, values) for values in self]

    def with_constants(self, more: dict[str, Any]) -> Rows:
        """Return these rows with other columns, in which all have the same values."""
        kept = [place for place, name in enumerate(self.columns) if name not in more]
        values = [self.values[place] for place in kept]
        by_arrow = any(isinstance(column, ArrowColumn) for column in values)
        for value in more.values():
            if by_arrow:
                values.append(ArrowColumn(pyarrow().repeat(value, len(self))))
            else:
                values.append([value] * len(self))
        return Rows((*(self.columns[place] for place in kept), *more), values)


def count(rows: Iterable[Rows]) -> int:
    """Return how many rows there are in all."""
    return sum(map(len, rows))


def from_state(saved: list[Any]) -> list[Rows]:
    """Return the rows of an outbox; earlier topos have saved them as dicts."""
    if not saved or isinstance(saved[0], Rows):
        return saved
    return _gathered((tuple(row), tuple(row.values())) for row in saved)


def merged(rows: Iterable[Rows]) -> list[Rows]:
    """Return rows put together by their columns, and the types of those."""
    alike: dict[Any, list[Rows]] = {}
    for each in rows:
        alike.setdefault((each.columns, each.kinds), []).append(each)
    return [
        parts[0]
        if len(parts) == 1
        else Rows(
            parts[0].columns,
            [*map(_end_to_end, zip(*(part.values for part in parts), strict=True))],
            sum(part.empty for part in parts),
        )
        for parts in alike.values()
    ]


def _end_to_end(columns: Sequence[Column]) -> Column:
    by_arrow = joined(columns)
    return list(chain.from_iterable(columns)) if by_arrow is None else by_arrow


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
