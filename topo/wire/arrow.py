"""Columns of a frame that stay Arrow arrays, from a spout or bolt that works by batch to another.

Such a column is a sequence of its Python values as well, so that whatever looks at values
(groupings of the user's, times, checks) need not know of it. What is done to columns as a whole
(selecting, joining, bytes, telling equal values apart) is done by Arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topo.errors import MissingExtra

_NAME = "values"
_LENGTH = struct.Struct("<I")


def pyarrow() -> Any:
    """Return the module; bytes that came from where it is installed may be read where it is not."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra(
            f"a frame has Arrow columns, and pyarrow is not installed here: {error}",
            hint="pip install 'topo-spark[files]'",
        ) from error
    return pyarrow


class ArrowColumn(Sequence[Any]):
    """An Arrow array as the column of a section."""

    __slots__ = ("_values", "array")

    def __init__(self, array: Any) -> None:
        self.array = array
        self._values: list[Any] | None = None

    def tolist(self) -> list[Any]:
        """Return the Python values, the same ones each time."""
        if self._values is None:
            self._values = values_of(self.array)
        return self._values

    def own(self) -> ArrowColumn:
        """Return the column with values of its own, for a reader that may change them."""
        return ArrowColumn(self.array)

    @property
    def nbytes(self) -> int:
        """About how many bytes the values take; Arrow's own figure takes 14 us of a column."""
        width = _bit_width(self.array.type)
        return int(self.array.nbytes) if width is None else len(self.array) * width // 8

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return ArrowColumn(self.array[key])
        return self.tolist()[key]

    def take(self, places: NDArray[np.int64]) -> ArrowColumn:
        """Return the values at these places."""
        return ArrowColumn(self.array.take(pyarrow().array(places)))

    def distinct(self) -> tuple[list[Any], NDArray[np.int64]] | None:
        """Return the values without repetition, and where each value is; None for nested types."""
        pa = pyarrow()
        if pa.types.is_nested(self.array.type):
            return None
        array = self.array
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode(null_encoding="encode")
        if array.indices.null_count:
            return None
        return array.dictionary.to_pylist(), array.indices.to_numpy().astype(np.int64)

    def whole_numbers(self) -> NDArray[np.int64] | None:
        """Return the values of a column of integers without nulls; None for any other."""
        pa, array = pyarrow(), self.array
        is_narrow = pa.types.is_unsigned_integer(array.type) and array.type.bit_width < 64
        if array.null_count or not (pa.types.is_signed_integer(array.type) or is_narrow):
            return None
        return np.asarray(array.to_numpy(), np.int64)

    def texts(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]] | None:
        """Return the bytes of a column of text without nulls, and where in them each text begins.

        After the last one is where it ends. None for any other column.
        """
        pa, array = pyarrow(), self.array
        is_large = pa.types.is_large_string(array.type)
        if array.null_count or not len(array) or not (is_large or pa.types.is_string(array.type)):
            return None
        _, places, data = array.buffers()
        count, offset = len(array) + 1, array.offset
        kind = np.dtype(np.int64 if is_large else np.int32)
        offsets = np.frombuffer(places, kind, count, offset * kind.itemsize)
        letters = np.frombuffer(data or b"", np.uint8)
        return letters, offsets.astype(np.int64)

    def encode(self) -> bytes:
        """Return the array and its type as bytes."""
        pa = pyarrow()
        schema, written = _schema_of(self.array.type)
        batch = pa.RecordBatch.from_arrays([self.array], schema=schema)
        if written:
            data: bytes = batch.serialize().to_pybytes()
            return _LENGTH.pack(len(written)) + written + data
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch)
        return _LENGTH.pack(0) + bytes(sink.getvalue().to_pybytes())

    @classmethod
    def decode(cls, data: bytes | memoryview) -> ArrowColumn:
        """Return the column that `encode` made bytes of."""
        pa, view = pyarrow(), memoryview(data)
        (length,) = _LENGTH.unpack_from(view)
        end = _LENGTH.size + length
        rest = bytes(view[end:])  # copied, for the bytes of a frame are not aligned
        if length:
            schema = _schema_in(bytes(view[_LENGTH.size : end]))
            return cls(pa.ipc.read_record_batch(pa.py_buffer(rest), schema).column(0))
        with pa.ipc.open_stream(rest) as reader:
            return cls(reader.read_next_batch().column(0))


def values_of(array: Any) -> list[Any]:
    """Return the Python values of an array, chunked or not.

    They come by way of numpy if that is exact. It costs the same with pyarrow 26, and is several
    times faster with earlier ones.
    """
    import pyarrow.types as types

    kind = array.type
    plain = types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind)
    if array.null_count or not (plain or types.is_float64(kind)):
        values: list[Any] = array.to_pylist()
        return values
    whole = array.combine_chunks() if hasattr(array, "combine_chunks") else array
    return list(whole.to_numpy(zero_copy_only=False).tolist())


@lru_cache(maxsize=1000)
def _bit_width(kind: Any) -> int | None:
    """Return the number of bits of each value; None if they differ."""
    try:
        return int(kind.bit_width)
    except ValueError:
        return None


@lru_cache(maxsize=1000)
def _schema_of(kind: Any) -> tuple[Any, bytes]:
    """Return the schema of a column of a type, and its bytes; none for one with a dictionary.

    A stream says its schema again each time, which costs more than the values of a frame.
    """
    schema = pyarrow().schema([(_NAME, kind)])
    return schema, b"" if "dictionary" in str(kind) else schema.serialize().to_pybytes()


@lru_cache(maxsize=1000)
def _schema_in(data: bytes) -> Any:
    pa = pyarrow()
    return pa.ipc.read_schema(pa.py_buffer(data))


def joined(columns: Sequence[Any]) -> ArrowColumn | None:
    """Return columns of one Arrow type end to end; None if they are not."""
    if not all(isinstance(column, ArrowColumn) for column in columns):
        return None
    first = columns[0].array.type
    arrays = [column.array for column in columns]
    pa = pyarrow()
    if pa.types.is_dictionary(first) or any(array.type != first for array in arrays):
        return None
    return ArrowColumn(pa.concat_arrays(arrays))


def listed(column: Any) -> Any:
    """Return the column as those have it that work on Python values."""
    return column.own().tolist() if isinstance(column, ArrowColumn) else column
