"""Rows of the engine's own sources and sinks on their way to a spout and from a bolt.

They travel as Arrow streams, which engine and component read without knowing each other; in front
is the task that they are for, or of.
"""

from __future__ import annotations

import struct

from topo.errors import TopoError
from topo.wire.payload import ROWS

_HEAD = struct.Struct("<BI")


def pack_rows(task: int, rows: bytes | memoryview) -> bytes:
    """Return rows with the task in front."""
    return _HEAD.pack(ROWS, task) + rows


def unpack_rows(payload: bytes | bytearray | memoryview) -> tuple[int, bytes]:
    """Return the task and its rows."""
    kind, task = _HEAD.unpack_from(payload)
    if kind != ROWS:
        raise TopoError(f"a payload of kind {kind} came where rows are expected")
    return task, bytes(memoryview(payload)[_HEAD.size :])
