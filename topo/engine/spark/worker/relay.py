"""Frames between a Python worker of Spark and the slot process: messages over a unix socket.

The next batch has to find a component instance again, and Spark gives a task to a random one of its
Python workers. So, if Spark runs on this machine, instances live in one long-lived process per
slot, and the worker passes it the frames that came and takes back the frames to send. A message is
a kind, a pickled head, and parts of bytes that are not copied on the way out.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from topo.errors import EngineError

Part: TypeAlias = "bytes | bytearray | memoryview"

# The worker's messages, in order; then the slot process's possible answers.
WORK, RESTORE = 1, 2
NEED_STATE, DONE, FAILED = 11, 12, 13

_HEAD = struct.Struct("<BII")  # kind, length of the head, number of parts
_PARTS_AT_ONCE = min(512, os.sysconf("SC_IOV_MAX"))
_CHUNK = 1 << 20
_CONNECT_SECS = 30.0


class RelayLost(EngineError):
    """The loss of the connection in the middle of a batch."""

    code = "relay-lost"


class SlotDied(RelayLost):
    """The slot process ended by itself, in a batch, in a way that the same code may end it again.

    Not by SIGKILL, which is the kernel's or somebody else's.
    """

    code = "slot-died"


class Relay:
    """One end of a connection between a worker and a slot process."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)  # whatever user code has made the default
        self._socket = connection
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connection.setsockopt(socket.SOL_SOCKET, option, _CHUNK)

    @classmethod
    def connect(cls, path: str, patience_secs: float = _CONNECT_SECS) -> Relay:
        """Connect to a slot process, which may be starting or restarting at the moment."""
        deadline = time.monotonic() + patience_secs
        while True:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(None)
            try:
                connection.connect(path)
                return cls(connection)
            except (FileNotFoundError, ConnectionRefusedError, BlockingIOError) as error:
                connection.close()
                if time.monotonic() >= deadline:
                    raise RelayLost(
                        f"no slot process answered at {path} for {patience_secs:g} s: {error}",
                        hint="its own messages are above, if it could not start",
                    ) from error
                time.sleep(0.02)

    def send(self, kind: int, head: Any, parts: Sequence[Part] = ()) -> None:
        packed = pickle.dumps(head, pickle.HIGHEST_PROTOCOL)
        sizes = struct.pack(f"<{len(parts)}Q", *(memoryview(part).nbytes for part in parts))
        buffers: list[Part] = [_HEAD.pack(kind, len(packed), len(parts)), packed, sizes, *parts]
        try:
            for start in range(0, len(buffers), _PARTS_AT_ONCE):
                self._send_all(buffers[start : start + _PARTS_AT_ONCE])
        except OSError as error:
            raise RelayLost(f"the slot's other process went away: {error}") from error

    def _send_all(self, buffers: list[Part]) -> None:
        sent = self._socket.sendmsg(buffers)
        for buffer in buffers:
            size = memoryview(buffer).nbytes
            if sent >= size:
                sent -= size
                continue
            self._socket.sendall(memoryview(buffer).cast("B")[sent:])
            sent = 0

    def receive(self) -> tuple[int, Any, list[memoryview]]:
        """Receive the next message: its kind, head and parts."""
        kind, head, count = _HEAD.unpack(self._exactly(_HEAD.size))
        rest = self._exactly(head + 8 * count)
        sizes = struct.unpack_from(f"<{count}Q", rest, head)
        body = self._exactly(sum(sizes))
        parts = []
        at = 0
        for size in sizes:
            parts.append(body[at : at + size])
            at += size
        return kind, pickle.loads(rest[:head]), parts

    def _exactly(self, size: int) -> memoryview:
        whole = memoryview(bytearray(size))
        at = 0
        try:
            while at < size:
                got = self._socket.recv_into(whole[at:], size - at)
                if got == 0:
                    raise RelayLost("the slot's other process went away")
                at += got
        except OSError as error:
            raise RelayLost(f"the slot's other process went away: {error}") from error
        return whole

    def is_lost(self) -> bool:
        """Return True if the other end is closed; called between frames, so it has to be cheap."""
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._socket.close()
