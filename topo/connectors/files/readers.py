"""Reads files in pieces, each from a position where an earlier piece ended.

A position is a byte offset after a whole record in text formats, and a row's number in columnar
ones. Offsets in compressed files are those of the text.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from topo.connectors.base import BadRecord
from topo.connectors.serdes import decoder

_CHUNK_BYTES = 1 << 20


@dataclass
class Piece:
    """Some records of a file, where each begins, and the position after them."""

    records: list[Any] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)
    end: int = 0
    finished: bool = False
    """True if the file's end was reached, and nothing is left over."""
    columns: dict[str, list[Any]] | None = None
    """The records of a columnar format, by field; `records` is then made of them when asked for."""

    @property
    def count(self) -> int:
        return len(self.starts)

    def rows(self) -> list[Any]:
        """Return the records one by one."""
        if self.columns is None:
            return self.records
        return list(map(list, zip(*self.columns.values(), strict=True)))


class Reader(Protocol):
    """One open file."""

    def read(self, start: int, most: int, *, whole: bool) -> Piece:
        """Read up to so many records; `whole`: a last line without an end is a record too."""

    def close(self) -> None: ...


def open_reader(path: str, form: str, fields: tuple[str, ...], header: bool) -> Reader:
    """Open a file in its format; raise OSError, or ValueError if it is of another format."""
    if form == "parquet":
        return ParquetReader(path, fields)
    if form == "arrow":
        return ArrowReader(path, fields)
    if form == "csv":
        return CsvReader(path, fields, header)
    return LineReader(path, _record_of(form))


def _record_of(form: str) -> Callable[[bytes], Any]:
    if form == "json":
        return decoder("json", "FileSpout", "format")
    return decoder("str", "FileSpout", "format")


def _open(path: str) -> IO[bytes]:
    return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


class LineReader:
    """Lines, or JSON one to a line."""

    def __init__(self, path: str, record_of: Callable[[bytes], Any]) -> None:
        self._path = path
        self._record_of = record_of
        self._file = _open(path)
        self._at = 0

    def read(self, start: int, most: int, *, whole: bool) -> Piece:
        if self._at != start:
            self._file.seek(start)
            self._at = start
        data = self._file.read(_CHUNK_BYTES)
        lines = data.splitlines(keepends=True) if b"\r" not in data else _lines(data)
        at_end = len(data) < _CHUNK_BYTES
        if lines and not lines[-1].endswith(b"\n"):
            if not at_end and len(lines) == 1:  # a line longer than a chunk
                rest = self._file.readline()
                lines[-1] += rest
                at_end = not rest.endswith(b"\n")
            if not lines[-1].endswith(b"\n") and not (at_end and whole):
                lines.pop()
        cut = len(lines) > most
        del lines[most:]
        piece = Piece(end=start, finished=at_end and not cut)
        for line in lines:
            self._add(piece, line)
        self._at = -1 if piece.end != start + len(data) else piece.end
        return piece

    def _add(self, piece: Piece, line: bytes) -> None:
        text = line.rstrip(b"\r\n")
        try:
            if text:
                record = self._record_of(text)
                piece.records.append(record)
                piece.starts.append(piece.end)
        except ValueError as error:
            where = f"{self._path} at byte {piece.end}"
            piece.bad.append(BadRecord(text, f"{type(error).__name__}: {error}", where))
        piece.end += len(line)

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        if "_file" in vars(self):  # an instance that is rebuilt elsewhere is let go without a word
            self.close()


def _lines(data: bytes) -> list[bytes]:
    """Split at line feeds only: a carriage return alone ends no line."""
    return data.splitlines(keepends=True) if data.count(b"\r") == data.count(b"\r\n") else list(
        io.BytesIO(data)
    )  # fmt: skip


class CsvReader:
    """CSV with or without a header; a quoted value may run over several lines."""

    def __init__(self, path: str, fields: tuple[str, ...], header: bool) -> None:
        self._path = path
        self._file = _open(path)
        self._columns: list[str] = list(fields)
        self._body = 0
        if header:
            first = self._file.readline()
            self._body = len(first)
            self._columns = next(csv.reader([first.decode()]), [])

    def read(self, start: int, most: int, *, whole: bool) -> Piece:
        start = max(start, self._body)
        self._file.seek(start)
        piece = Piece(end=start)
        while len(piece.records) + len(piece.bad) < most:
            raw = self._record()
            if not raw or not (raw.endswith(b"\n") or whole):
                piece.finished = True
                break
            self._add(piece, raw)
        return piece

    def _record(self) -> bytes:
        raw = line = self._file.readline()
        while line and raw.count(b'"') % 2:
            line = self._file.readline()
            raw += line
        return raw

    def _add(self, piece: Piece, raw: bytes) -> None:
        try:
            values = next(csv.reader(io.StringIO(raw.decode(), newline="")), [])
            if values and len(values) != len(self._columns):
                raise ValueError(f"{len(values)} values for {len(self._columns)} columns")
            if values:
                piece.records.append(dict(zip(self._columns, values, strict=True)))
                piece.starts.append(piece.end)
        except (ValueError, csv.Error) as error:
            where = f"{self._path} at byte {piece.end}"
            piece.bad.append(BadRecord(raw, f"{type(error).__name__}: {error}", where))
        piece.end += len(raw)

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        if "_file" in vars(self):  # an instance that is rebuilt elsewhere is let go without a word
            self.close()


class _ColumnReader:
    """Row groups or record batches; the last one that was read is kept."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = list(fields)
        self._firsts: list[int] = []
        self._count = 0
        self._group = -1
        self._table: Any = None

    def _load(self, group: int) -> Any:
        raise NotImplementedError

    def read(self, start: int, most: int, *, whole: bool) -> Piece:
        if start >= self._count:
            return Piece(end=start, finished=True)
        group = max(g for g, first in enumerate(self._firsts) if first <= start)
        if group != self._group:
            self._group, self._table = group, self._load(group)
        offset = start - self._firsts[group]
        part = self._table.slice(offset, most)
        end = start + part.num_rows
        columns = {name: _values_of(part.column(name)) for name in self._fields}
        finished = end >= self._count
        return Piece([], list(range(start, end)), [], end, finished=finished, columns=columns)

    def _check(self, names: list[str], path: str) -> None:
        missing = [name for name in self._fields if name not in names]
        if missing:
            raise ValueError(
                f"{path} has no column {', '.join(map(repr, missing))}; it has {', '.join(names)}"
            )


class ParquetReader(_ColumnReader):
    """Parquet, a row group at a time."""

    def __init__(self, path: str, fields: tuple[str, ...]) -> None:
        import pyarrow.parquet as pq

        super().__init__(fields)
        self._file = pq.ParquetFile(path)
        self._check(self._file.schema_arrow.names, path)
        metadata = self._file.metadata
        for group in range(metadata.num_row_groups):
            self._firsts.append(self._count)
            self._count += metadata.row_group(group).num_rows

    def _load(self, group: int) -> Any:
        return self._file.read_row_group(group, columns=self._fields)

    def close(self) -> None:
        self._file.close()


class ArrowReader(_ColumnReader):
    """Arrow's file format, or its stream, a record batch at a time."""

    def __init__(self, path: str, fields: tuple[str, ...]) -> None:
        import pyarrow as pa

        super().__init__(fields)
        self._source = pa.memory_map(path)
        self._batches = list(_batches(pa, self._source))
        self._check(self._batches[0].schema.names if self._batches else list(fields), path)
        for batch in self._batches:
            self._firsts.append(self._count)
            self._count += batch.num_rows

    def _load(self, group: int) -> Any:
        return self._batches[group]

    def close(self) -> None:
        self._source.close()


def _values_of(column: Any) -> list[Any]:
    """Return a column's values; by way of numpy, which is ten times faster, if that is exact."""
    import pyarrow.types as types

    kind = column.type
    plain = types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind)
    if column.null_count or not (plain or types.is_float64(kind)):
        values: list[Any] = column.to_pylist()
        return values
    whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return list(whole.to_numpy(zero_copy_only=False).tolist())


def _batches(pa: Any, source: Any) -> Iterator[Any]:
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        yield from pa.ipc.open_stream(source)
        return
    for index in range(file.num_record_batches):
        yield file.get_batch(index)
