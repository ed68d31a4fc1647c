"""The process from which Spark's Python processes on this machine are forked.

It imports once, beside the start of the JVM, what each of them would import for itself: of the 14 s
of a word count's start on two cores, seven were such imports. `handover` asks it over a unix socket
and passes its standard streams; the fork takes them, the environment and the arguments, and runs
the module that Spark asked for. It runs one thread, since it forks, and ends with the driver.
"""

from __future__ import annotations

import array
import contextlib
import gc
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from typing import Any

from topo.engine.spark.worker.preload import preload
from topo.systems import Bell

HASH_SEED = "0"
"""That of Spark's own Python processes; a fork cannot have another than its parent."""
_MOST_BYTES = 16 << 20
_PATIENCE_SECS = 10.0


class Nursery:
    """A server that forks a process for each request; it belongs to one thread."""

    def __init__(self, path: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, socket.socket] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        starting = f"{path}.{os.getpid()}"
        self._listener.bind(starting)
        self._listener.listen(64)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ended = Bell()
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._ended.ringing)
        self._selector.register(self._ended, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        os.rename(starting, path)  # nobody finds it before it listens

    def serve(self) -> None:
        """Fork until standard input ends, which it does with the driver."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    if not os.read(0, 1):
                        return
                elif key.fileobj is self._ended:
                    self._ended.silence()
                    self._reap()
                elif key.fileobj is self._listener:
                    connection, _ = self._listener.accept()
                    self._answer(connection)
                else:
                    self._abandoned(key.data)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_PATIENCE_SECS)
        streams: list[int] = []
        try:
            request, streams = _receive(connection)
            arguments, environment, _ = request
            if environment.get("PYTHONHASHSEED") != HASH_SEED or arguments[:1] != ["-m"]:
                return connection.close()  # which has it started the usual way
            child = os.fork()
            if child == 0:
                self._become(request, streams)  # does not return
        except (OSError, ValueError, EOFError):
            return connection.close()
        finally:
            for stream in streams:
                os.close(stream)
        self._children[child] = connection
        self._selector.register(connection, selectors.EVENT_READ, child)
        with contextlib.suppress(OSError):  # gone: the selector tells
            connection.sendall(child.to_bytes(4, "little"))
        return None

    def _reap(self) -> None:
        for child in list(self._children):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                self._close(child, os.waitstatus_to_exitcode(status))

    def _close(self, child: int, code: int) -> None:
        connection = self._children.pop(child)
        with contextlib.suppress(OSError):
            connection.sendall(bytes([code & 0xFF if code >= 0 else 128 - code]))
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        connection.close()

    def _abandoned(self, child: int) -> None:
        """End a child whose command was ended; it is reaped as any other."""
        if child in self._children:
            self._selector.unregister(self._children[child])
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    def _become(self, request: Any, streams: list[int]) -> None:
        """Be the process that was asked for; this is the child."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            for connection in self._children.values():
                connection.close()
            self._listener.close()
            self._ended.close()
            self._selector.close()
            code = _run(*request)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _receive(connection: socket.socket) -> tuple[Any, list[int]]:
    descriptors = array.array("i")
    room = socket.CMSG_SPACE(3 * descriptors.itemsize)
    head, ancillary, _, _ = connection.recvmsg(4, room)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    try:
        size = int.from_bytes(head, "little")
        if len(head) < 4 or len(descriptors) != 3 or size > _MOST_BYTES:
            raise ValueError("not a request")
        data = b""
        while len(data) < size:
            more = connection.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return marshal.loads(data), list(descriptors)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _run(arguments: list[str], environment: dict[str, str], directory: str) -> int:
    """Run a module as `python -m` does; return the exit code."""
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments[1:]
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [directory, *(each for each in path if each and each not in sys.path), *sys.path]
    try:
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to answer
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # as it was started with
    nursery = Nursery(sys.argv[1])  # whoever comes early waits for the imports
    if not preload():
        sys.exit(1)  # nobody is answered, so all start the usual way
    gc.collect()
    gc.freeze()
    nursery.serve()


if __name__ == "__main__":
    main()
