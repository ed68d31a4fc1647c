"""Writes epochs as bytes with checksums, and finds out of bytes what of them is whole.

A record has a head (magic, epoch, size, checksum of the body), the head's own checksum, and a body:
what the record says, pickled, and behind it the values one after the other, so that each can be
read from its place in the file.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from topo.engine.spark.realtime.epochs import EpochRecord, Key
from topo.tracking.ids import ARRAYS, Updates

MAGIC = b"tEp1"
_HEAD = struct.Struct("<4sQQI")
_CHECK = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
HEAD_BYTES = _HEAD.size + _CHECK.size
_EMPTY = Updates()


def head_of(epoch: int, size: int, checksum: int) -> bytes:
    """Return the head of a record whose body has this size and checksum."""
    head = _HEAD.pack(MAGIC, epoch, size, checksum)
    return head + _CHECK.pack(zlib.crc32(head))


def start_of(meta: object) -> bytes:
    """Return how a body begins, up to its first value."""
    packed = pickle.dumps(meta, protocol=5)
    return _LENGTH.pack(len(packed)) + packed


def encode(epoch: int, meta: object, blobs: list[bytes]) -> bytes:
    """Return a record: what `meta` says, and the blobs behind it."""
    body = b"".join([start_of(meta), *blobs])
    return head_of(epoch, len(body), zlib.crc32(body)) + body


@dataclass(frozen=True)
class FileRecord:
    """A record in a file: its epoch, what it says, where its blobs begin and where it ends."""

    epoch: int
    meta: tuple[Any, ...]
    blobs_at: int
    end: int


def read_record(data: memoryview, at: int) -> FileRecord | None:
    """Return the valid record that begins there; None if there is none."""
    body_at = at + HEAD_BYTES
    if body_at > len(data):
        return None
    magic, epoch, size, checksum = _HEAD.unpack_from(data, at)
    (head_checksum,) = _CHECK.unpack_from(data, at + _HEAD.size)
    if magic != MAGIC or head_checksum != zlib.crc32(data[at : at + _HEAD.size]):
        return None
    end = body_at + size
    if end > len(data) or zlib.crc32(data[body_at:end]) != checksum:
        return None
    (length,) = _LENGTH.unpack_from(data, body_at)
    blobs_at = body_at + _LENGTH.size + length
    return FileRecord(epoch, pickle.loads(data[body_at + _LENGTH.size : blobs_at]), blobs_at, end)


def read_log(data: bytes) -> tuple[list[FileRecord], int]:
    """Return the valid records from the start on, and where they end."""
    view, records, at = memoryview(data), [], 0
    while (found := read_record(view, at)) is not None:
        records.append(found)
        at = found.end
    return records, at


def is_torn(data: bytes, at: int) -> bool:
    """Return True if no valid record lies behind the damage that begins there."""
    view, next_at = memoryview(data), data.find(MAGIC, at + 1)
    while next_at >= 0:
        if read_record(view, next_at) is not None:
            return False
        next_at = data.find(MAGIC, next_at + 1)
    return True


def pack_updates(updates: Updates) -> tuple[dict[str, bytes], list[str]]:
    """Return what an acker is told as plain bytes: a fraction of what pickled arrays cost."""
    arrays = {name: getattr(updates, name) for name in ARRAYS}
    plain = {name: array.tobytes() for name, array in arrays.items() if len(array)}
    return plain, updates.fail_reasons


def unpack_updates(packed: tuple[dict[str, bytes], list[str]]) -> Updates:
    """Return what `pack_updates` was given."""
    arrays, reasons = packed
    updates = Updates(fail_reasons=reasons)
    for name, data in arrays.items():
        setattr(updates, name, np.frombuffer(data, getattr(_EMPTY, name).dtype))
    return updates


def pack_record(record: EpochRecord) -> bytes:
    """Return an epoch's record as it is written."""
    meta = (
        record.clock,
        [(key, len(blob)) for key, blob in record.puts.items()],
        tuple(record.deletes),
        pack_updates(record.updates),
        dict(record.cursors),
    )
    return encode(record.epoch, meta, list(record.puts.values()))


def unpack_record(found: FileRecord) -> tuple[EpochRecord, list[tuple[Key, int]]]:
    """Return an epoch's record without its values, and how large these are."""
    clock, sizes, deletes, updates, cursors = found.meta
    said = unpack_updates(updates)
    return EpochRecord(found.epoch, clock, {}, deletes, said, cursors), sizes
