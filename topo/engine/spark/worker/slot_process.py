"""The slot process: one per slot if Spark runs on this machine, for the duration of the run.

The driver starts it and sends it the run's specification over standard input; it then serves one
connection after another. It holds the component instances, while Spark's Python workers come and
go. When the driver ends, in any way, standard input ends with it, and so does this process; the
last slot process removes the directory of the sockets if the driver was killed.
"""

from __future__ import annotations

import contextlib
import gc
import glob
import importlib
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import traceback
import weakref
from typing import IO, Any

from topo.engine.spark.worker.doing import open_note
from topo.engine.spark.worker.messages import (
    Abandoned,
    Outcome,
    Payload,
    RecordKey,
    Restore,
    Runner,
    Work,
)
from topo.engine.spark.worker.relay import DONE, FAILED, NEED_STATE, WORK, Relay, RelayLost
from topo.errors import EngineError, TopoError, sentence_of
from topo.logs.capture import keep_logs
from topo.runtime.slot import note_in, note_nothing
from topo.wire.column import dump

_LENGTH = struct.Struct("<Q")
_LOOK_SECS = 2.0
# Thousands of rows wait between two flushes: a collection after every 700th allocation costs a
# tenth of the time of a word count, after every 50,000th next to nothing.
GARBAGE_THRESHOLDS = (50_000, 20, 20)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to answer
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # as it was started with
    source = take_standard_input()
    path, import_path, factory = read_setup(source)
    lifeline = threading.Thread(target=_end_with, args=(source, path), daemon=True)
    lifeline.start()
    # All that topo needs is imported by now: a `types.py` of the user's may come before Python's.
    importlib.import_module("topo.engine.spark.worker.slot_runner")
    sys.path[:] = import_path
    keep_logs(os.path.basename(path))
    note_in(open_note(path))
    runner = make_runner(factory)
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    listener = listen(path)
    while True:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            if not os.path.exists(path):  # whoever cleans temporary directories took it for old
                listener.close()
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                note_in(open_note(path))
                listener = listen(path)
            continue
        close_in_children(connection)
        serve(Relay(connection), runner)


def listen(path: str) -> socket.socket:
    """Return a socket that listens at `path`, and looks up from time to time."""
    listener = socket.socket(socket.AF_UNIX)
    starting = f"{path}.{os.getpid()}"
    listener.bind(starting)
    listener.listen(64)
    listener.settimeout(_LOOK_SECS)
    close_in_children(listener)
    os.rename(starting, path)  # nobody finds it before it listens, and a dead one's is replaced
    return listener


def take_standard_input() -> IO[bytes]:
    """Return what the driver sends on standard input, which is empty for everybody else.

    A thread waits for the driver's end at it for as long as the process lives. What user code
    reads, or a program that it starts, would wait with it; a forked child closes it first of all,
    and would wait for that thread's lock.
    """
    source = os.fdopen(os.dup(0), "rb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    return source


_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def close_in_children(own: socket.socket) -> None:
    """Close the socket in every forked child, or nobody would notice the end of this process."""
    _sockets.add(own)


def _after_fork() -> None:
    for own in list(_sockets):
        own.close()


os.register_at_fork(after_in_child=_after_fork)


def make_runner(factory: bytes) -> Runner:
    """Make the slot's runner; if that fails, return one that raises the error for each work."""
    try:
        runner: Runner = pickle.loads(factory)()
    except Exception as error:
        return _Broken(error)
    return runner


class _Broken:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def execute(self, work: Work, restore: Restore, abandoned: Abandoned) -> Outcome:
        error = self._error
        if isinstance(error, TopoError):
            raise error
        said = "".join(traceback.format_exception(error))
        raise EngineError(
            f"the process of slot {work.slot} could not make the topology: "
            f"{type(error).__name__}: {sentence_of(error)}",
            code="slot-start",
            hint=f"can it be imported and unpickled in a process of its own?\n{said}",
        ) from error


def write_setup(sink: IO[bytes], path: str, import_path: list[str], factory: bytes) -> None:
    data = pickle.dumps((path, import_path, factory))
    sink.write(_LENGTH.pack(len(data)) + data)
    sink.flush()


def read_setup(source: IO[bytes]) -> tuple[str, list[str], bytes]:
    head = _exactly(source, _LENGTH.size)
    if len(head) < _LENGTH.size:
        sys.exit(0)
    (size,) = _LENGTH.unpack(head)
    setup: tuple[str, list[str], bytes] = pickle.loads(_exactly(source, size))
    return setup


def _exactly(source: IO[bytes], size: int) -> bytes:
    data = b""
    while len(data) < size and (more := source.read(size - len(data))):
        data += more
    return data


def _end_with(source: IO[bytes], path: str) -> None:
    while source.read(1):
        pass
    for name in (path, *glob.glob(f"{glob.escape(path)}.*")):
        with contextlib.suppress(OSError):
            os.unlink(name)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))
    if os.getpgrp() == os.getpid():  # with the children that user code has forked
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def serve(relay: Relay, runner: Runner) -> None:
    """Serve one connection; errors of the work are sent to the worker, which raises them."""
    with contextlib.suppress(RelayLost), contextlib.closing(relay):
        kind, head, parts = relay.receive()
        assert kind == WORK, kind
        lease, batch, level, slot, committed = head
        work = Work(lease, batch, level, slot, committed, parts)

        def restore() -> dict[RecordKey, Payload]:
            relay.send(NEED_STATE, None)
            _, keys, records = relay.receive()
            return dict(zip(keys, records, strict=True))

        try:
            outcome = runner.execute(work, restore, relay.is_lost)
            note_nothing()
        except RelayLost:
            raise
        except BaseException as error:
            relay.send(FAILED, portable(error))
            return
        sends = outcome.sends
        head = (
            [(slot, level) for slot, level, _ in sends],
            [key for key, _ in outcome.writes],
            outcome.removes,
        )
        payloads: list[Any] = [payload for _, _, payload in sends]
        payloads += [record for _, record in outcome.writes]
        relay.send(DONE, head, payloads)


def portable(error: BaseException) -> bytes:
    try:
        data = dump(error)
        pickle.loads(data)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {sentence_of(error)}"))
    return data


if __name__ == "__main__":
    main()
