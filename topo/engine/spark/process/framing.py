"""The framing of all messages of slots: a key, a length, as many bytes.

The streams of real-time mode speak it, with Spark's JVM as well, and the relays of micro-batches.
What a process is told at its start is one block: it has no key, and a length of 64 bits.
"""

from __future__ import annotations

import os
import socket
import struct
import weakref
from collections.abc import Callable

from topo.errors import EngineError

HEAD = struct.Struct("<iI")
MOST_BYTES = (1 << 32) - 1
"""Of a message, whose length has 32 bits."""
_SOCKET_BYTES = 1 << 20
_LENGTH = struct.Struct("<Q")


def pack_head(key: int, size: int) -> bytes:
    """Return what stands before the bytes of a message; raise an EngineError if they are many."""
    if size > MOST_BYTES:
        raise EngineError(
            f"{size:,} bytes at once, and a process of topo sends {MOST_BYTES:,} at most",
            hint="spread what the tasks save over more keys, tasks or epochs",
        )
    return HEAD.pack(key, size)


def pack_block(data: bytes) -> bytes:
    """Return a block that `read_block` reads."""
    return _LENGTH.pack(len(data)) + data


def read_block(read: Callable[[int], bytes]) -> bytes:
    """Read a block, and nothing behind it; raise EOFError if it ends before."""
    (size,) = _LENGTH.unpack(_exactly(read, _LENGTH.size))
    return _exactly(read, size)


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    parts = []
    while size:
        part = read(size)
        if not part:
            raise EOFError("nobody says what this process is to run")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def widen(connection: socket.socket) -> None:
    """Give a unix socket room for a frame of tuples."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)


def listen_at(path: str, backlog: int = 256) -> socket.socket:
    """Return a unix socket that listens at `path`, in this process alone.

    Nobody finds it before it listens, and it takes the place of a dead one's.
    """
    listener = socket.socket(socket.AF_UNIX)
    starting = f"{path}.{os.getpid()}"
    listener.bind(starting)
    listener.listen(backlog)
    close_in_children(listener)
    os.rename(starting, path)
    return listener


_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def close_in_children(own: socket.socket) -> None:
    """Close the socket in every forked child, or nobody would notice the end of this process."""
    _sockets.add(own)


def _after_fork() -> None:
    for own in list(_sockets):
        own.close()


os.register_at_fork(after_in_child=_after_fork)
