"""Reads files in pieces, each from a position where an earlier piece ended.

A position is a byte offset after a whole record in text formats, and a row's number in columnar
ones. Offsets in compressed files are those of the text.

A record of text has at most `max_record` bytes: what is longer is one bad record, read past in
small pieces. A packed file of a few MB may have a line of gigabytes, and a quote that is never
closed makes one value of all rows behind it.
"""

from __future__ import annotations

import csv
import gzip
import io
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import IO, Any, Protocol

from topo.connectors.base import BadRecord, load_client, record_of
from topo.connectors.formats import Decode, DecodeMany, decoder, decoder_of_many
from topo.wire.frame import Column
from topo.wire.plain_arrays import LEAST_OF_COLUMNS, column_of

_CHUNK_BYTES = 1 << 20
MAX_RECORD = 1_000_000
_SHOWN_BYTES = 1_000
"""Of a record that is too long, in what is told of it."""


@dataclass
class Piece:
    """Some records of a file, where each begins, and the position after them."""

    records: list[Any] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)
    end: int = 0
    finished: bool = False
    """True if the file's end was reached, and nothing is left over."""
    columns: Mapping[str, Column] | None = None
    """The records by field, if they came so; `rows` makes records of them when asked for."""
    is_named: bool = False
    """True if the records of columns are dicts, and not lists."""

    @property
    def count(self) -> int:
        return len(self.starts)

    def rows(self) -> list[Any]:
        """Return the records one by one."""
        if self.columns is None:
            return self.records
        rows = zip(*self.columns.values(), strict=True)
        return [record_of([*self.columns], row) if self.is_named else list(row) for row in rows]


class Reader(Protocol):
    """One open file."""

    def read(self, start: int, most: int, *, whole: bool) -> Piece:
        """Read up to so many records; `whole`: a last line without an end is a record too."""

    def close(self) -> None: ...


def open_reader(
    path: str, form: str, fields: tuple[str, ...], header: bool, max_record: int = MAX_RECORD
) -> Reader:
    """Open a file in its format; raise OSError, or ValueError if it is of another format."""
    if form == "parquet":
        return ParquetReader(path, fields)
    if form == "arrow":
        return ArrowReader(path, fields)
    if form == "avro":
        return AvroReader(path)
    if form == "csv":
        return CsvReader(path, fields, header, max_record)
    of_line = "json" if form == "json" else "str"
    record_of = decoder(of_line, "FileSpout", "format")
    return LineReader(path, record_of, decoder_of_many(of_line), max_record)


def _open(path: str) -> IO[bytes]:
    return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


class LineReader:
    """Lines, or JSON one to a line."""

    def __init__(
        self, path: str, record_of: Decode, records_of: DecodeMany | None, max_record: int
    ) -> None:
        self._path, self._max = path, max_record
        self._record_of, self._records_of = record_of, records_of
        self._file = _open(path)
        self._at = 0
        self._ahead: list[bytes] = []  # lines that were read
        self._used = 0  # how many of those lie in front of `_at`
        self._rest = b""  # and the beginning of the line behind them
        self._passed = 0  # bytes of that line that were read, and are not kept

    def read(self, start: int, most: int, *, whole: bool) -> Piece:
        if self._at != start:
            self._file.seek(start)
            self._at = start
            self._ahead, self._used = [], 0
            self._rest, self._passed = b"", 0
        at_end = False
        if self._passed:
            return self._read_long(start, whole)
        if len(self._ahead) - self._used < most:
            self._ahead, self._used = self._ahead[self._used :], 0
            read = self._file.read(_CHUNK_BYTES)
            at_end = len(read) < _CHUNK_BYTES
            lines = _lines(self._rest + read)
            self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
            is_long = not at_end or len(self._rest) > self._kept
            if self._rest and is_long and not (lines or self._ahead):
                return self._read_long(start, whole)
            self._ahead += lines
        piece = Piece(end=start)
        page = self._ahead[self._used : self._used + most]
        self._used += len(page)
        if not self._add_all(piece, page):
            for line in page:
                self._add(piece, line, len(line))
        is_used_up = self._used == len(self._ahead)
        if at_end and is_used_up and (len(page) < most or not (whole and self._rest)):
            if whole and self._rest:
                self._add(piece, self._rest, len(self._rest))
                self._rest = b""
            piece.finished = True
        self._at = piece.end
        return piece

    def fileno(self) -> int:
        return self._file.fileno()

    def _add_all(self, piece: Piece, lines: list[bytes]) -> bool:
        """Add lines that are decoded at once; return False if one by one has to be looked at."""
        sizes = list(map(len, lines))
        if self._records_of is None or not lines or max(sizes) > self._max:
            return False
        records = self._records_of([_unmarked(lines[0], piece.end), *lines[1:]])
        if records is None:
            return False
        piece.records = records
        *piece.starts, piece.end = accumulate(sizes, initial=piece.end)
        return True

    @property
    def _kept(self) -> int:
        """How many bytes of a line are kept at most: no more than tell that it is too long."""
        return max(self._max + len(b"\r\n"), _SHOWN_BYTES)

    def _read_long(self, start: int, whole: bool) -> Piece:
        """Read on in a line that is longer than a chunk or a record, whose beginning was read."""
        line = last = self._rest[: self._kept]
        size = len(self._rest) + self._passed
        if size < self._kept:
            last = self._file.readline(self._kept - size)
            line += last
            size += len(last)
        while last and not last.endswith(b"\n"):
            last = self._file.readline(_CHUNK_BYTES)
            size += len(last)
        piece = Piece(end=start, finished=not last)
        if last or whole:
            self._rest, self._passed = b"", 0
            self._add(piece, line, size)
            self._at = piece.end
        else:  # it is still written
            self._rest, self._passed = line, size - len(line)
        return piece

    def _add(self, piece: Piece, line: bytes, size: int) -> None:
        text = _unmarked(line, piece.end).rstrip(b"\r\n")
        try:
            if len(text) > self._max or size > len(line):
                piece.bad.append(_too_long(self._path, piece.end, text, size, self._max))
            elif text:
                record = self._record_of(text)
                piece.records.append(record)
                piece.starts.append(piece.end)
        except ValueError as error:
            where = f"{self._path} at byte {piece.end}"
            piece.bad.append(BadRecord(text, f"{type(error).__name__}: {error}", where))
        piece.end += size

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        if "_file" in vars(self):  # an instance that is rebuilt elsewhere is let go without a word
            self.close()


def _lines(data: bytes) -> list[bytes]:
    """Split at line feeds only: a carriage return alone ends no line."""
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return list(io.BytesIO(data))
    return data.splitlines(keepends=True)


def _unmarked(line: bytes, at: int) -> bytes:
    """Return a line without the mark of UTF-8 that some programs write at a file's beginning."""
    return line if at else line.removeprefix(BOM_UTF8)


def _too_long(path: str, at: int, text: bytes, size: int, most: int) -> BadRecord:
    reason = f"a record of {size:,} bytes; max_record={most:,}"
    return BadRecord(text[:_SHOWN_BYTES], reason, f"{path} at byte {at}")


class CsvReader:
    """CSV with or without a header; a quoted value may run over several lines.

    If a value's quote is not closed within `max_record` bytes, or is not closed at all, its first
    line alone is a bad record: the rows behind a stray quote are read.
    """

    def __init__(self, path: str, fields: tuple[str, ...], header: bool, max_record: int) -> None:
        self._path, self._max = path, max_record
        # Python's own limit of a field, 131,072 characters, is one for all of the process.
        csv.field_size_limit(max(csv.field_size_limit(), max_record))
        self._file = _open(path)
        self._ahead: deque[bytes | tuple[bytes, int]] = deque()
        """Lines that were read, and not used: as they are, or cut, and with their whole sizes."""
        self._at = 0
        self._columns: list[str] = list(fields)
        self._body = 0
        if header:
            first, self._body = self._line()
            if len(first) > max_record:
                raise ValueError(f"its first line has {self._body:,} bytes; {max_record=:,}")
            self._columns = self._header(_unmarked(first, 0).decode())
            self._at = self._body

    def read(self, start: int, most: int, *, whole: bool) -> Piece:
        start = max(start, self._body)
        if start != self._at:
            self._ahead.clear()
            self._file.seek(start)
        piece = Piece(end=start)
        by_columns = most >= LEAST_OF_COLUMNS and self._add_all(piece, most)
        while not by_columns and len(piece.records) + len(piece.bad) < most:
            if not self._add(piece):
                piece.finished = True
                break
        self._at = piece.end
        return piece

    def _header(self, line: str) -> list[str]:
        try:
            return next(csv.reader([line], strict=True), [])
        except csv.Error as error:
            raise ValueError(f"its first line names no columns: {error}") from error

    def _add_all(self, piece: Piece, most: int) -> bool:
        """Add lines that are a row each, by the column; False: they are to be read one by one."""
        at_end = False
        if len(self._ahead) < most:
            data = self._file.read(_CHUNK_BYTES)
            at_end = not data
            *lines, beginning = _lines(data) or [b""]
            self._ahead.extend(lines)
            line, size = self._line_from(beginning)
            if size:
                self._ahead.append(line if len(line) == size else (line, size))
        page = [self._ahead.popleft() for _ in range(min(most, len(self._ahead)))]
        rows = self._rows_of([line for line in page if isinstance(line, bytes)], piece.end)
        if len(rows) != len(page) or not rows:
            self._ahead.extendleft(reversed(page))
            return False
        piece.columns = dict(zip(self._columns, map(list, zip(*rows, strict=True)), strict=True))
        piece.is_named = True
        *piece.starts, piece.end = accumulate(map(len, page), initial=piece.end)
        piece.finished = at_end and len(page) < most
        return True

    def _rows_of(self, lines: list[bytes], at: int) -> list[list[str]]:
        """Return the values of lines without quotes; none if one of them is no row by itself."""
        text = b"".join(lines)
        is_marked = not at and text.startswith(BOM_UTF8)
        if is_marked or b'"' in text or text.count(b"\r") != text.count(b"\r\n"):
            return []
        try:
            rows = list(csv.reader([line.decode() for line in lines]))
        except (ValueError, csv.Error):
            return []
        if set(map(len, rows)) != {len(self._columns)} or max(map(len, lines)) > self._max:
            return []
        return rows

    @property
    def _limit(self) -> int:
        """How many bytes of a line are kept: no more than tell that it is too long."""
        return self._max + len(b"\r\n") + 1

    def _line(self) -> tuple[bytes, int]:
        """Return the next line, cut if it is longer than a record may be, and its whole size."""
        line = self._ahead.popleft() if self._ahead else self._line_from(b"")
        return line if isinstance(line, tuple) else (line[: self._limit], len(line))

    def _line_from(self, beginning: bytes) -> tuple[bytes, int]:
        """Return the line, cut, and its size, of which the beginning was read; it may be whole."""
        if beginning.endswith(b"\n"):
            return beginning, len(beginning)
        limit = self._limit
        line, last = beginning[:limit], beginning
        if len(beginning) < limit:
            last = self._file.readline(limit - len(beginning))
            line += last
        size = max(len(line), len(beginning))
        while size >= limit and last and not last.endswith(b"\n"):
            last = self._file.readline(_CHUNK_BYTES)
            size += len(last)
        return line, size

    def _add(self, piece: Piece) -> bool:
        """Read the next record into the piece; return False at the file's end."""
        line, size = self._line()
        if not line:
            return False
        line = _unmarked(line, piece.end)
        lines = [(line, size)]
        is_open = False

        def texts() -> Iterator[str]:
            nonlocal is_open
            yield line.decode()
            total = size
            while True:
                following, more = self._line()
                if not following:
                    break
                lines.append((following, more))
                total += more
                if total > self._max:
                    break
                yield following.decode()
            is_open = True

        try:
            if len(text := line.rstrip(b"\r\n")) > self._max:
                piece.bad.append(_too_long(self._path, piece.end, text, size, self._max))
            else:
                values = next(csv.reader(texts()), [])
                if is_open:
                    raise ValueError("a quote is not closed")
                if values and len(values) != len(self._columns):
                    raise ValueError(f"{len(values)} values for {len(self._columns)} columns")
                if values:
                    piece.records.append(dict(zip(self._columns, values, strict=True)))
                    piece.starts.append(piece.end)
        except (ValueError, csv.Error) as error:
            if is_open or isinstance(error, csv.Error | UnicodeError):
                self._ahead.extendleft(reversed(lines[1:]))
                del lines[1:]
            where = f"{self._path} at byte {piece.end}"
            raw = b"".join(text for text, _ in lines)
            piece.bad.append(BadRecord(raw, f"{type(error).__name__}: {error}", where))
        piece.end += sum(each for _, each in lines)
        return True

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
        columns = {name: column_of(part.column(name)) for name in self._fields}
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


class AvroReader:
    """Avro's container files, a block at a time; a position is a record's number."""

    def __init__(self, path: str) -> None:
        self._fastavro = load_client("fastavro", "FileSpout", "schemas")
        self._path = path
        self._file: IO[bytes] = open(path, "rb")  # noqa: SIM115
        self._begin()

    def _begin(self) -> None:
        self._file.seek(0)
        with self._in_words():
            self._blocks = self._fastavro.block_reader(self._file)
        self._records: list[Any] = []
        self._first = 0
        """The number of the first of those records."""

    def read(self, start: int, most: int, *, whole: bool) -> Piece:
        if start < self._first:
            self._begin()
        while start >= self._first + len(self._records):
            if not self._next_block(start):
                return Piece(end=start, finished=True)
        offset = start - self._first
        records = self._records[offset : offset + most]
        end = start + len(records)
        return Piece(records, list(range(start, end)), [], end)

    def _next_block(self, start: int) -> bool:
        """Read the next block, or skip it if it lies before a record; False: there is none."""
        self._first += len(self._records)
        self._records = []
        with self._in_words():
            block = next(self._blocks, None)
            while block is not None and self._first + block.num_records <= start:
                self._first += block.num_records
                block = next(self._blocks, None)
            if block is None:
                return False
            self._records = list(block)
        return True

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Make a ValueError of what a file raises that is damaged, or none of Avro's."""
        try:
            yield
        except Exception as error:  # fastavro's are of a dozen kinds
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"it is no Avro file, or damaged: {reason}") from error

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        if "_file" in vars(self):  # an instance that is rebuilt elsewhere is let go without a word
            self.close()


def _batches(pa: Any, source: Any) -> Iterator[Any]:
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        yield from pa.ipc.open_stream(source)
        return
    for index in range(file.num_record_batches):
        yield file.get_batch(index)
