"""The values that `fields` names, of a record that is a mapping: for all sources alike.

A name that no record has is a misspelling, most likely, and would give None for ever: it is told of
once. A name that some records lack is None in their tuples, or makes them bad records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal, TypeAlias

from topo.connectors.base import check_choice
from topo.errors import did_you_mean

Missing: TypeAlias = Literal["null", "bad"]

_LOOKED_AT = 1_000
"""Records after which a name that none of them had is told of."""


def check_missing(connector: str, missing: object) -> None:
    """Raise ComponentError if `missing` is none of its values."""
    check_choice(connector, "missing", missing, ("null", "bad"))


class Picker:
    """A function of a record that returns the values of `fields`.

    With `missing="bad"` it raises ValueError for a record that lacks one. `warn` is called once, if
    a name was in none of the first records; it may be called in the middle of a batch.
    """

    def __init__(
        self,
        connector: str,
        fields: tuple[str, ...],
        missing: Missing,
        warn: Callable[[str], None],
    ) -> None:
        self._connector, self._fields, self._warn = connector, fields, warn
        self._is_strict = missing == "bad"
        self._unseen = set(fields)  # empty as well once they are told of
        self._left = _LOOKED_AT
        self._keys: set[Any] = set()

    def __call__(self, record: Mapping[str, Any]) -> list[Any]:
        if self._unseen:
            self._look_at(record)
        if self._is_strict:
            for name in self._fields:
                if name not in record:
                    raise ValueError(f"there is no {name!r}; missing='null' makes it None")
        return [record.get(name) for name in self._fields]

    def columns(self, records: Sequence[Any]) -> dict[str, list[Any]] | None:
        """Return the values of many records by field.

        None: one of them is a bad record, or names are looked for still; one by one tells.
        """
        if self._unseen or set(map(type, records)) != {dict}:
            return None
        columns = {}
        for name in self._fields:
            try:
                columns[name] = list(map(itemgetter(name), records))
            except KeyError:
                if self._is_strict:
                    return None
                columns[name] = [record.get(name) for record in records]
        return columns

    def chosen(self, columns: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return those of the columns that the fields name; None if one is not there."""
        self._unseen.difference_update(columns)
        if any(name not in columns for name in self._fields):
            return None
        return {name: columns[name] for name in self._fields}

    def _look_at(self, record: Mapping[str, Any]) -> None:
        self._unseen.difference_update(record)
        self._left -= 1
        if len(self._keys) < _LOOKED_AT:
            self._keys.update(record)
        if self._unseen and self._left == 0:
            names = sorted(self._unseen)
            hint = did_you_mean(names[0], list(map(str, self._keys)))
            self._warn(
                f"{self._connector}: fields={', '.join(map(repr, names))}: none of the first "
                f"{_LOOKED_AT:,} records had it{'; ' if hint else ''}{hint}"
            )
            self._unseen.clear()
