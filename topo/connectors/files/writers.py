"""Writes rows to files in a format, and turns what was collected into a file of that format.

Text formats are collected as they are. Columnar ones are collected as Arrow streams, one a batch,
each with its length in front: a stream cannot be continued, and a file that is cut at the end of a
batch must still be whole.

Rows of lines and JSON become bytes as they come: so a row that cannot be written is told at once,
and nothing is made twice. Columns stay columns, and those of Arrow reach a file without a Python
value for each cell, if Arrow finds the same type for these values.
"""

from __future__ import annotations

import csv
import io
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from topo.connectors.base import record_of, rows_of
from topo.connectors.formats import dump_json, dump_json_rows
from topo.wire.arrow import ArrowColumn, joined, pyarrow
from topo.wire.plain_arrays import column_of

_LENGTH = struct.Struct("<Q")
TEXT = ("lines", "json", "csv")
_NO_COLUMN = "a row of csv has no column"
_LEAST_TAKEN = 64
"""Fewer values of an array are taken sooner one by one."""
SUFFIXES = {"lines": "txt", "json": "json", "csv": "csv", "parquet": "parquet", "arrow": "arrow"}


@dataclass(slots=True)
class _Rows:
    """Rows, and beside them the values of the tuples that they are of."""

    rows: list[Mapping[str, Any]] = field(default_factory=list)
    values: list[Sequence[Any]] = field(default_factory=list)

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of them all, each where it came first; a row need not have it."""
        alike = dict.fromkeys(map(tuple, self.rows))
        return tuple(dict.fromkeys(chain.from_iterable(alike)))

    def column(self, name: str) -> list[Any]:
        return [row.get(name) for row in self.rows]

    def some(self, places: Sequence[int]) -> _Rows:
        return _Rows([self.rows[n] for n in places], [self.values[n] for n in places])


@dataclass(slots=True)
class _Columns:
    """Rows of the same fields, by the column."""

    fields: tuple[str, ...]
    columns: list[Sequence[Any]]
    count: int
    whole: Sequence[Sequence[Any]] = ()
    """The columns of the tuples that the rows are of."""

    def rows(self) -> Iterable[tuple[Any, ...]]:
        return rows_of(self.columns, self.count)

    def alone(self) -> _Rows:
        rows: list[Mapping[str, Any]] = [record_of(self.fields, row) for row in self.rows()]
        return _Rows(rows, list(zip(*self.whole, strict=True)))


class Collected:
    """The rows that a batch has for one file, in the order in which they came."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._text: list[bytes] = []
        self._parts: list[_Rows | _Columns] = []
        """Rows of the formats that need all of them to begin with."""
        self.bad: list[tuple[list[Any], Exception]] = []
        """The values of rows that were found to be of no such format when they were packed."""

    def add(self, row: Any, values: Sequence[Any]) -> None:
        """Add a row of a tuple with these values; raise if the format has no such row."""
        if self._form == "lines":
            self._text.append(_line(row))
        elif self._form == "json":
            self._text.append(dump_json(row) + b"\n")
        elif type(row) is not dict and not isinstance(row, Mapping):
            raise TypeError(f"a row of {self._form} is a mapping; got a {type(row).__name__}")
        elif not row and self._form == "csv":
            raise ValueError(_NO_COLUMN)
        else:
            last = self._parts[-1] if self._parts else None
            if not isinstance(last, _Rows):
                last = _Rows()
                self._parts.append(last)
            last.rows.append(row)
            last.values.append(values)

    def add_columns(
        self,
        fields: Sequence[str],
        columns: Sequence[Sequence[Any]],
        count: int,
        whole: Sequence[Sequence[Any]],
    ) -> None:
        """Add rows by the column: all of them, or none if the format has not one of them.

        `whole` are the columns of their tuples, those of the partition too.
        """
        if self._form == "lines":
            self._text += [_line(only_value(row)) for row in rows_of(columns, count)]
        elif self._form == "json":
            self._text.append(b"\n".join([*dump_json_rows(fields, columns, count), b""]))
        elif self._form == "csv" and not fields:
            raise ValueError(_NO_COLUMN)
        else:
            plain = [*columns] if self._form == "csv" else [*map(_plain, columns)]
            self._parts.append(_Columns((*fields,), plain, count, whole))

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of the rows, each where it came first."""
        return tuple(dict.fromkeys(chain.from_iterable(part.fields for part in self._parts)))

    def packed(self, header: Sequence[str], *, first: bool) -> bytes:
        """Return them as the bytes that are appended for a batch; `first`: the file is empty.

        `header` are the columns of a file of CSV. Rows that cannot be packed are in `bad`.
        """
        if self._form in ("lines", "json"):
            return b"".join(self._text)
        alike = self._alike()
        try:
            if self._form == "csv":
                return self._csv(alike, header, first)
            pa = pyarrow()
            if alike is None:
                return _stream(pa, _table(pa, self._rows()))
            each = zip(*(part.columns for part in alike), strict=True)
            arrays = [_array(columns) for columns in each]
            return _stream(pa, pa.Table.from_arrays(arrays, names=[*alike[0].fields]))
        except Exception:  # it is of some of them, or of those together
            return self._packed_alone(header, first)

    def _csv(self, alike: list[_Columns] | None, header: Sequence[str], first: bool) -> bytes:
        if alike is not None and alike[0].fields == tuple(header):
            return _csv_of_columns(alike, first)
        return _csv(self._rows().rows, header, first)

    def _packed_alone(self, header: Sequence[str], first: bool) -> bytes:
        """Pack the rows that can be, those of other types by themselves; note the others."""
        rows = self._rows()
        if self._form != "csv":
            pa = pyarrow()
            tables = [table for some in _by_types(pa, rows) for table in self._halved(pa, some)]
            return b"".join(_stream(pa, table) for table in _as_few(pa, tables))
        lines: list[bytes] = []
        for row, values in zip(rows.rows, rows.values, strict=True):
            try:
                lines.append(_csv([row], header, first and not lines))
            except Exception as error:
                self.bad.append(([*values], error))
        return b"".join(lines)

    def _halved(self, pa: Any, rows: _Rows) -> Iterator[Any]:
        """Yield rows as tables, halved until each is one or its only row is noted as bad."""
        try:
            yield _table(pa, rows)
        except Exception as error:
            count = len(rows.rows)
            if count == 1:
                self.bad.append(([*rows.values[0]], error))
                return
            yield from self._halved(pa, rows.some(range(count // 2)))
            yield from self._halved(pa, rows.some(range(count // 2, count)))

    def _alike(self) -> list[_Columns] | None:
        """Return the rows as columns of the same fields; None if they are not."""
        alike = [part for part in self._parts if isinstance(part, _Columns)]
        is_whole = len(alike) == len(self._parts) and len({part.fields for part in alike}) == 1
        return alike if is_whole else None

    def _rows(self) -> _Rows:
        each = [part.alone() if isinstance(part, _Columns) else part for part in self._parts]
        if len(each) == 1:
            return each[0]
        rows = list(chain.from_iterable(part.rows for part in each))
        return _Rows(rows, list(chain.from_iterable(part.values for part in each)))


def part_of(column: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    """Return the values of a column at some of its places, which are in order."""
    if len(places) == len(column):
        return column
    if isinstance(column, ArrowColumn) and len(places) >= _LEAST_TAKEN:
        return column.take(np.array(places))
    return [column[place] for place in places]


def only_value(values: Sequence[Any]) -> Any:
    """Return the text of a line, which is all that a tuple has; raise if it has more."""
    if len(values) != 1:
        raise ValueError(f"a line is one field; got {len(values)}: give map=")
    return values[0]


def finish(form: str, source: Path, target: Path) -> list[Path]:
    """Put the collected rows under the target's name, whole or not at all; return what was made.

    Rows whose types make no common column are in files of their own, whose names have a number.
    """
    if form in TEXT:
        os.replace(source, target)
        return [target]
    import pyarrow as pa

    targets = []
    for number, table in enumerate(_as_few(pa, list(_tables(pa, source)))):
        path = target.with_name(numbered(target.name, number))
        unfinished = source.with_name(f"{source.name}.{number}.finishing")
        _write_table(pa, form, table, unfinished)
        os.replace(unfinished, path)
        targets.append(path)
    source.unlink()
    return targets


def numbered(name: str, number: int) -> str:
    """Return the name of one of the files that what was collected for one name has become."""
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}.{number}{dot}{suffix}" if number else name


def _table(pa: Any, rows: _Rows) -> Any:
    return pa.table({name: rows.column(name) for name in rows.fields})


def _by_types(pa: Any, rows: _Rows) -> Iterator[_Rows]:
    """Yield rows apart by the types of their values in those columns that Arrow cannot make.

    Halving alone would come down to tables of one row where the types alternate.
    """
    odd = [column for name in rows.fields if not _is_made(pa, column := rows.column(name))]
    alike: dict[tuple[type, ...], list[int]] = {}
    for place, values in enumerate(rows_of(odd, len(rows.rows))):
        alike.setdefault(tuple(map(type, values)), []).append(place)
    yield from map(rows.some, alike.values())


def _is_made(pa: Any, column: list[Any]) -> bool:
    try:
        pa.array(column)
    except Exception:
        return False
    return True


def _as_few(pa: Any, tables: list[Any]) -> list[Any]:
    """Return tables with all rows: one, or as few as the types of their columns allow.

    Each batch has the types of its own values: a text may follow a number, or a whole number that
    no double is follow a broken one. All of it is committed by now, and has to get a name. Tables
    of the same types go together first: each try to put two together reads them both.
    """
    whole = _as_one(pa, tables) if tables else None
    if whole is not None:
        return [whole]
    alike: dict[Any, list[Any]] = {}
    for table in tables:
        alike.setdefault(table.schema, []).append(table)
    few: list[Any] = []
    for table in map(pa.concat_tables, alike.values()):
        for place, other in enumerate(few):
            both = _as_one(pa, [other, table])
            if both is not None:
                few[place] = both
                break
        else:
            few.append(table)
    return few


def _as_one(pa: Any, tables: list[Any]) -> Any:
    """Return tables as one whose columns have types for them all; None if there are none."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None


def _write_table(pa: Any, form: str, table: Any, path: Path) -> None:
    if form == "parquet":
        import pyarrow.parquet as pq

        for place, column in enumerate(table.schema):
            if pa.types.is_struct(column.type) and not column.type.num_fields:
                # Parquet has no struct without fields, as that of a column of `{}` alone is.
                table = table.set_column(place, column.name, pa.nulls(len(table)))
        pq.write_table(table, path)
        return
    with pa.ipc.new_file(str(path), table.schema) as sink:
        sink.write_table(table)


def _line(row: Any) -> bytes:
    data: bytes = row if isinstance(row, bytes) else str(row).encode()
    if b"\n" in data:
        raise ValueError("a line holds a line feed; format='json' writes any text")
    return data + b"\n"


def _csv(rows: Sequence[Mapping[str, Any]], header: Sequence[str], first: bool) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    if first:
        writer.writerow(header)
    writer.writerows([row.get(name, "") for name in header] for row in rows)
    return text.getvalue().encode()


def _csv_of_columns(parts: Sequence[_Columns], first: bool) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    if first:
        writer.writerow(parts[0].fields)
    for part in parts:
        writer.writerows(part.rows())
    return text.getvalue().encode()


def _stream(pa: Any, table: Any) -> bytes:
    """Return a table as an Arrow stream, with its length in front."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    written = bytes(sink.getvalue())
    return _LENGTH.pack(len(written)) + written


def _plain(column: Sequence[Any]) -> Sequence[Any]:
    """Return a column as Arrow's if its values alone say that type, else the values."""
    if not isinstance(column, ArrowColumn):
        return column
    plain = column_of(column.array)
    is_nested = isinstance(plain, ArrowColumn) and pyarrow().types.is_nested(plain.array.type)
    return list(plain) if is_nested else plain  # an empty list says nothing of what it may hold


def _array(columns: Sequence[Sequence[Any]]) -> Any:
    """Return columns end to end, with the type that Arrow finds for the values of them all."""
    by_arrow = joined(columns)
    if by_arrow is not None and by_arrow.array.null_count < len(by_arrow):
        return by_arrow.array
    return list(chain.from_iterable(columns))


def _tables(pa: Any, source: Path) -> Iterator[Any]:
    with source.open("rb") as file:
        while head := file.read(_LENGTH.size):
            (size,) = _LENGTH.unpack(head)
            yield pa.ipc.open_stream(file.read(size)).read_all()
