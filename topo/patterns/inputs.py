"""How a pattern reads the tuples that come; the elements of streams are read in their own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topo.storage.saving import keys_of
from topo.timed import Rows


class TupleInput:
    """Tuples: their fields are what conditions read, and the key is of some of them."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = key

    def keys(self, rows: Rows, places: Sequence[int]) -> Sequence[Any]:
        """Return the keys of the rows at some places."""
        columns = [rows.columns[rows.fields.index(name)] for name in self._key]
        picked = [list(map(column.__getitem__, places)) for column in columns]
        return keys_of(picked, len(places))

    def payload(self, rows: Rows) -> Callable[[int], Any]:
        """Return the function that gives the event of a row, as functions get it."""
        return rows.tuple

    def names(self, rows: Rows, read: Sequence[str]) -> Sequence[str]:
        """Return the names of what conditions may read, given those that they do."""
        return rows.fields

    def columns(self, rows: Rows, names: Sequence[str]) -> list[Sequence[Any]]:
        """Return the values of each name; None where the input lacks it."""
        nones: Sequence[Any] = [None] * rows.count
        fields = rows.fields
        return [rows.columns[fields.index(n)] if n in fields else nones for n in names]
