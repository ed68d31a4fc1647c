"""Writes rows to files in a format, and turns what was collected into a file of that format.

Text formats are collected as they are. Columnar ones are collected as Arrow streams, one a batch,
each with its length in front: a stream cannot be continued, and a file that is cut at the end of a
batch must still be whole.
"""

from __future__ import annotations

import csv
import io
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from topo.connectors.formats import dump_json

_LENGTH = struct.Struct("<Q")
TEXT = ("lines", "json", "csv")
SUFFIXES = {"lines": "txt", "json": "json", "csv": "csv", "parquet": "parquet", "arrow": "arrow"}


def packed(form: str, rows: Sequence[Any], *, first: bool) -> bytes:
    """Return rows as the bytes that are appended for a batch; `first`: the file is empty."""
    if form == "lines":
        return b"".join(_line(row) for row in rows)
    if form == "json":
        return b"".join(dump_json(row) + b"\n" for row in rows)
    if form == "csv":
        return _csv(rows, first)
    stream = _arrow_stream(rows)
    return _LENGTH.pack(len(stream)) + stream


def finish(form: str, source: Path, target: Path) -> None:
    """Put the collected rows under the target's name, whole or not at all."""
    if form in TEXT:
        os.replace(source, target)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.concat_tables(list(_tables(pa, source)), promote_options="permissive")
    unfinished = source.with_suffix(".finishing")
    if form == "parquet":
        pq.write_table(table, unfinished)
    else:
        with pa.ipc.new_file(str(unfinished), table.schema) as sink:
            sink.write_table(table)
    os.replace(unfinished, target)
    source.unlink()


def _line(row: Any) -> bytes:
    data: bytes = row if isinstance(row, bytes) else str(row).encode()
    if b"\n" in data:
        raise ValueError("a line holds a line feed; format='json' writes any text")
    return data + b"\n"


def _csv(rows: Sequence[Mapping[str, Any]], first: bool) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    if first:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _arrow_stream(rows: Sequence[Mapping[str, Any]]) -> bytes:
    import pyarrow as pa

    table = pa.Table.from_pylist(list(rows))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _tables(pa: Any, source: Path) -> Iterator[Any]:
    with source.open("rb") as file:
        while head := file.read(_LENGTH.size):
            (size,) = _LENGTH.unpack(head)
            yield pa.ipc.open_stream(file.read(size)).read_all()
