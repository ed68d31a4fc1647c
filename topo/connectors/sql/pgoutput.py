"""Decodes what PostgreSQL's output plugin `pgoutput` says of a transaction, in protocol 1.

Values come as texts; they are read by the client's own rules for a column's type. A value too large
for its row that an update did not touch is not sent: it is left out, unless the row before has it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

_COMMIT = struct.Struct(">BQQq")
_BEGIN = struct.Struct(">Qqi")
_INT16, _INT32 = struct.Struct(">H"), struct.Struct(">I")
_OPERATIONS = {"I": "insert", "U": "update", "D": "delete"}

Row = dict[str, "bytes | None"]
"""The texts of a row's columns."""


@dataclass(frozen=True)
class Relation:
    """A table as it was when its rows were changed."""

    name: str
    columns: tuple[tuple[str, int], ...]
    """Names and type numbers."""
    key: tuple[str, ...]
    """The columns of its replica identity."""


@dataclass
class Change:
    """A change of one row, or the emptying of a table (`op` "truncate")."""

    op: str
    relation: Relation
    before: Row | None = None
    after: Row | None = None


@dataclass
class Transaction:
    """The changes of a transaction that has committed, in order."""

    xid: int
    end: int = 0
    """The place in the log right behind its commit."""
    changes: list[Change] = field(default_factory=list)


def transactions(messages: Iterable[tuple[int, bytes]]) -> Iterator[Transaction]:
    """Yield the transactions of (transaction number, message); one without its commit is left."""
    relations: dict[int, Relation] = {}
    made: Transaction | None = None
    for xid, data in messages:
        kind = chr(data[0])
        if kind == "B":
            made = Transaction(xid)
        elif kind == "R":
            number, relation = _relation(data)
            relations[number] = relation
        elif kind == "C" and made is not None:
            made.end = _COMMIT.unpack_from(data, 1)[2]
            yield made
            made = None
        elif kind in _OPERATIONS and made is not None:
            made.changes.append(_row_change(kind, data, relations))
        elif kind == "T" and made is not None:
            made.changes += _truncation(data, relations)


def _relation(data: bytes) -> tuple[int, Relation]:
    (number,) = _INT32.unpack_from(data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    (count,) = _INT16.unpack_from(data, at + 1)
    at += 3
    columns, key = [], []
    for _ in range(count):
        is_key = data[at] & 1
        column, at = _text(data, at + 1)
        (type_number,) = _INT32.unpack_from(data, at)
        at += 8
        columns.append((column, type_number))
        if is_key:
            key.append(column)
    return number, Relation(f"{schema}.{name}", tuple(columns), tuple(key))


def _row_change(kind: str, data: bytes, relations: dict[int, Relation]) -> Change:
    (number,) = _INT32.unpack_from(data, 1)
    relation = relations[number]
    change, at = Change(_OPERATIONS[kind], relation), 5
    while at < len(data):
        part = chr(data[at])
        row, at = _row(data, at + 1, relation)
        if part == "N":
            change.after = row
        else:  # "K", the key alone, or "O", the whole row
            known = relation.key if part == "K" else row
            change.before = {name: row[name] for name in known if name in row}
    if change.before and change.after is not None:
        change.after = {**change.before, **change.after}
    return change


def _row(data: bytes, at: int, relation: Relation) -> tuple[Row, int]:
    (count,) = _INT16.unpack_from(data, at)
    at += 2
    row: Row = {}
    for name, _ in relation.columns[:count]:
        how = chr(data[at])
        at += 1
        if how == "n":
            row[name] = None
        elif how == "t":
            (size,) = _INT32.unpack_from(data, at)
            row[name] = data[at + 4 : at + 4 + size]
            at += 4 + size
    return row, at


def _truncation(data: bytes, relations: dict[int, Relation]) -> Iterator[Change]:
    (count,) = _INT32.unpack_from(data, 1)
    for place in range(count):
        (number,) = _INT32.unpack_from(data, 6 + 4 * place)
        yield Change("truncate", relations[number])


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def decoded(
    row: Row | None, relation: Relation, load: Callable[[int, bytes], Any]
) -> dict[str, Any] | None:
    """Return a row with its values, of which `load` reads one by its type number."""
    if row is None:
        return None
    return {
        name: None if row[name] is None else load(number, row[name])  # type: ignore[arg-type]
        for name, number in relation.columns
        if name in row
    }
