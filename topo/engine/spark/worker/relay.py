"""Frames between a Python worker of Spark and the slot process: messages over a unix socket.

The next batch has to find a component instance again, and Spark gives a task to a random one of its
Python workers. So, if Spark runs on this machine, instances live in one long-lived process per
slot, and the worker passes it the frames that came and takes back the frames to send. A message is
framed as all of slots (`process.framing`): a pickled head, which says how many parts follow, and
these, one behind the other, which are not copied on the way out.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from topo.engine.spark.process.framing import HEAD, MOST_BYTES, pack_head, widen
from topo.errors import EngineError
from topo.tracking.clock import monotonic

Part: TypeAlias = "bytes | bytearray | memoryview"

# The worker's messages, in order; then the slot process's possible answers.
WORK, RESTORE = 1, 2
NEED_STATE, DONE, FAILED = 11, 12, 13

_PARTS = 21  # of the message before; in frames of any size
_PARTS_AT_ONCE = min(512, os.sysconf("SC_IOV_MAX"))
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
        widen(connection)

    @classmethod
    def connect(cls, path: str, patience_secs: float = _CONNECT_SECS) -> Relay:
        """Connect to a slot process, which may be starting or restarting at the moment."""
        deadline = monotonic() + patience_secs
        while True:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(None)
            try:
                connection.connect(path)
                return cls(connection)
            except (FileNotFoundError, ConnectionRefusedError, BlockingIOError) as error:
                connection.close()
                if monotonic() >= deadline:
                    raise RelayLost(
                        f"no slot process answered at {path} for {patience_secs:g} s: {error}",
                        hint="its own messages are above, if it could not start",
                    ) from error
                time.sleep(0.02)

    def send(self, kind: int, head: Any, parts: Sequence[Part] = ()) -> None:
        sizes = [memoryview(part).nbytes for part in parts]
        packed = pickle.dumps((head, sizes), pickle.HIGHEST_PROTOCOL)
        buffers: list[Part] = [pack_head(kind, len(packed)), packed]
        for frame, size in _in_frames(parts, sizes):
            buffers += [pack_head(_PARTS, size), *frame]
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
        kind, size = HEAD.unpack(self._exactly(HEAD.size))
        head, sizes = pickle.loads(self._exactly(size))
        body = memoryview(bytearray(sum(sizes)))
        at = 0
        while at < len(body):
            _, size = HEAD.unpack(self._exactly(HEAD.size))
            self._fill(body[at : at + size])
            at += size
        parts = []
        at = 0
        for size in sizes:
            parts.append(body[at : at + size])
            at += size
        return kind, head, parts

    def _exactly(self, size: int) -> memoryview:
        whole = memoryview(bytearray(size))
        self._fill(whole)
        return whole

    def _fill(self, whole: memoryview) -> None:
        at, size = 0, len(whole)
        try:
            while at < size:
                got = self._socket.recv_into(whole[at:], size - at)
                if got == 0:
                    raise RelayLost("the slot's other process went away")
                at += got
        except OSError as error:
            raise RelayLost(f"the slot's other process went away: {error}") from error

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


def _in_frames(parts: Sequence[Part], sizes: Sequence[int]) -> Iterator[tuple[Sequence[Part], int]]:
    """Yield the bytes of all parts in as few frames as lengths allow, with each frame's size."""
    total = sum(sizes)
    if total <= MOST_BYTES:
        if total:
            yield parts, total
        return
    frame: list[Part] = []
    total = 0
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), MOST_BYTES):
            piece = view[start : start + MOST_BYTES]
            if total + len(piece) > MOST_BYTES:
                yield frame, total
                frame, total = [], 0
            frame.append(piece)
            total += len(piece)
    if total:
        yield frame, total
