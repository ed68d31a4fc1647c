"""Writes epochs as bytes with checksums, and finds out of bytes what of them is whole.

A record has a head (magic, epoch, size, checksum of the body), the head's own checksum, and a body:
what the record says, and behind it the values one after the other, so that each can be read from
its place in the file.

What a record says is plain data (numbers, text, bytes, and tuples, lists and dictionaries of them),
pickled; classes are refused when it is read. So a file depends on no name in the code, and reading
one runs none. The last character of a magic is the number of the format. Whoever changes what is
written gives it the next number; `tests/unit/golden` has a log of each format that is read.
"""

from __future__ import annotations

import io
import pickle
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from topo.engine.spark.realtime.epochs import EpochRecord, Key
from topo.errors import CheckpointError, words_of
from topo.tracking.ids import Updates

EPOCH = b"tEp1"
SNAPSHOT = b"tSn2"  # the first format was the pickle of a ledger, under the magic of an epoch
PIECE_BYTES = 4 << 20
"""Of a value that is read or sent: values have no limit."""
_HEAD = struct.Struct("<4sQQI")
_CHECK = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
HEAD_BYTES = _HEAD.size + _CHECK.size


class NotPlain(ValueError):
    """Bytes that name a class, where plain data was expected."""


class _PlainData(pickle.Unpickler):
    """An unpickler of plain data."""

    def find_class(self, module: str, name: str) -> Any:
        raise NotPlain(f"{module}.{name} is no plain data")


def pack_plain(data: object) -> bytes:
    """Return plain data as bytes."""
    return pickle.dumps(data, protocol=5)


def unpack_plain(data: bytes) -> Any:
    """Return what `pack_plain` was given."""
    return _PlainData(io.BytesIO(data)).load()


def head_of(magic: bytes, epoch: int, size: int, checksum: int) -> bytes:
    """Return the head of a record whose body has this size and checksum."""
    head = _HEAD.pack(magic, epoch, size, checksum)
    return head + _CHECK.pack(zlib.crc32(head))


def start_of(meta: object) -> bytes:
    """Return how a body begins, up to its first value."""
    packed = pack_plain(meta)
    return _LENGTH.pack(len(packed)) + packed


def encode(epoch: int, meta: object, blobs: list[bytes]) -> bytes:
    """Return an epoch's record: what `meta` says, and the blobs behind it."""
    body = b"".join([start_of(meta), *blobs])
    return head_of(EPOCH, epoch, len(body), zlib.crc32(body)) + body


@dataclass(frozen=True)
class FileRecord:
    """A record in a file: its epoch, what it says, where its blobs begin and where it ends."""

    epoch: int
    meta: tuple[Any, ...]
    blobs_at: int
    end: int


def read_record(file: BinaryIO, at: int, magic: bytes = EPOCH) -> FileRecord | None:
    """Return the valid record that begins there; None if there is none.

    The values pass through memory in pieces, for their checksum.
    """
    file.seek(at)
    head = file.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    its_magic, epoch, size, checksum = _HEAD.unpack_from(head)
    (head_checksum,) = _CHECK.unpack_from(head, _HEAD.size)
    if its_magic != magic or head_checksum != zlib.crc32(head[: _HEAD.size]):
        return None
    body_at = at + HEAD_BYTES
    if body_at + size > _size_of(file):
        return None
    length = file.read(_LENGTH.size)
    (meta_bytes,) = _LENGTH.unpack(length)
    if _LENGTH.size + meta_bytes > size:
        return None
    packed = file.read(meta_bytes)
    computed = zlib.crc32(packed, zlib.crc32(length))
    left = size - _LENGTH.size - meta_bytes
    while left:
        piece = file.read(min(left, PIECE_BYTES))
        computed = zlib.crc32(piece, computed)
        left -= len(piece)
    if computed != checksum:
        return None
    blobs_at = body_at + _LENGTH.size + meta_bytes
    return FileRecord(epoch, unpack_plain(packed), blobs_at, body_at + size)


def _size_of(file: BinaryIO) -> int:
    at = file.tell()
    size = file.seek(0, io.SEEK_END)
    file.seek(at)
    return size


def read_log(file: BinaryIO) -> Iterator[FileRecord]:
    """Yield the valid records from the start on."""
    at = 0
    while (record := read_record(file, at)) is not None:
        yield record
        at = record.end


def is_torn(file: BinaryIO, at: int) -> bool:
    """Return True if no valid record lies behind the damage that begins there."""
    return all(read_record(file, place) is None for place in _places_of(EPOCH, file, at + 1))


def _places_of(magic: bytes, file: BinaryIO, at: int) -> Iterator[int]:
    """Yield where these bytes are in a file, from `at` on."""
    while True:
        file.seek(at)
        piece = file.read(PIECE_BYTES)
        if len(piece) < len(magic):
            return
        place = piece.find(magic)
        while place >= 0:
            yield at + place
            place = piece.find(magic, place + 1)
        at += len(piece) - len(magic) + 1


def format_of(file: BinaryIO, magic: bytes) -> str:
    """Return the number of the format in which a file of this kind begins; "" if it is none."""
    file.seek(0)
    begin = file.read(len(magic))
    return chr(begin[-1]) if begin[:-1] == magic[:-1] else ""


# -- values in files ------------------------------------------------------------------------------


class Place(NamedTuple):
    """The place of a value in a file of a log's directory."""

    file: str
    at: int
    size: int


Places = Mapping[Key, Place]
"""Where the values of saved state are, by task and name."""


def pieces_of(directory: Path, places: Places) -> Iterator[tuple[Key, bytes]]:
    """Yield values in pieces of limited size, file by file in the order in which they lie there.

    An empty value is one empty piece.
    """
    for name in sorted({place.file for place in places.values()}):
        entries = [(place, key) for key, place in places.items() if place.file == name]
        try:
            with (directory / name).open("rb") as file:
                for place, key in sorted(entries):
                    for piece in _pieces_at(file, place):
                        yield key, piece
        except OSError as error:
            raise CheckpointError(
                f"saved state cannot be read: {words_of(error)}", at=str(directory / name)
            ) from error


def _pieces_at(file: BinaryIO, place: Place) -> Iterator[bytes]:
    file.seek(place.at)
    left = place.size
    while True:
        piece = file.read(min(left, PIECE_BYTES))
        if left and not piece:
            raise OSError(f"{place.file} is shorter than it was")
        yield piece
        left -= len(piece)
        if not left:
            return


class Values:
    """Saved values that come in pieces."""

    def __init__(self) -> None:
        self._pieces: dict[Key, list[bytes]] = {}

    def add(self, key: Key, piece: bytes) -> None:
        """Add the next piece of a value."""
        self._pieces.setdefault(key, []).append(piece)

    def take(self) -> dict[int, dict[str, bytes]]:
        """Return all values by task and name, and forget them."""
        saved: dict[int, dict[str, bytes]] = {}
        pieces, self._pieces = self._pieces, {}
        for task, name in list(pieces):
            saved.setdefault(task, {})[name] = b"".join(pieces.pop((task, name)))
        return saved


def read_values(directory: Path, places: Places) -> dict[int, dict[str, bytes]]:
    """Return the values at these places, by task and name."""
    values = Values()
    for key, piece in pieces_of(directory, places):
        values.add(key, piece)
    return values.take()


# -- what is in a record --------------------------------------------------------------------------


def pack_record(record: EpochRecord) -> bytes:
    """Return an epoch's record as it is written."""
    meta = (
        record.clock,
        [(key, len(blob)) for key, blob in record.puts.items()],
        tuple(record.deletes),
        (record.updates.as_bytes(), record.updates.fail_reasons),
        dict(record.cursors),
    )
    return encode(record.epoch, meta, list(record.puts.values()))


def unpack_record(record: FileRecord) -> tuple[EpochRecord, list[tuple[Key, int]]]:
    """Return an epoch's record without its values, and how large these are."""
    clock, sizes, deletes, updates, cursors = record.meta
    staged = Updates.of_bytes(*updates)
    return EpochRecord(record.epoch, clock, {}, deletes, staged, cursors), sizes
