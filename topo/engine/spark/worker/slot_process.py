"""The slot process: one per slot if Spark runs on this machine, for the duration of the run.

The driver starts it and sends it the run's specification over standard input; it then serves one
connection after another. It holds the component instances, while Spark's Python workers come and
go. When the driver ends, in any way, standard input ends with it, and so does this process; the
last slot process removes the directory of the sockets if the driver was killed.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import pickle
import socket
import sys
import traceback
from typing import Any

from topo.engine.spark.process.doing import open_note
from topo.engine.spark.process.framing import close_in_children, listen_at
from topo.engine.spark.process.slot import Lifeline, freeze, portable, speak_as
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
from topo.runtime.slot import note_in, note_nothing

_LOOK_SECS = 2.0


def main() -> None:
    lifeline = Lifeline()
    # All that topo needs is imported before anything of the user's: a `types.py` of theirs may come
    # before Python's. A process that waits for its slot has that behind it.
    importlib.import_module("topo.engine.spark.worker.slot_runner")
    path, import_path, factory = unpack_setup(lifeline.read_setup())
    lifeline.end_with(lambda: _leave(path))
    sys.path[:] = import_path
    speak_as(path)
    runner = make_runner(factory)
    freeze()
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
    listener = listen_at(path)
    listener.settimeout(_LOOK_SECS)
    return listener


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


def pack_setup(path: str, import_path: list[str], factory: bytes) -> bytes:
    """Return what the process is told first: where it listens, and what makes its runner."""
    return pickle.dumps((path, import_path, factory))


def unpack_setup(data: bytes) -> tuple[str, list[str], bytes]:
    """Return path, import path and factory."""
    setup: tuple[str, list[str], bytes] = pickle.loads(data)
    return setup


def _leave(path: str) -> None:
    """Remove what it has in the directory of the sockets, and the directory if it is the last."""
    for name in (path, *glob.glob(f"{glob.escape(path)}.*")):
        with contextlib.suppress(OSError):
            os.unlink(name)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


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


if __name__ == "__main__":
    main()
