"""Processes of servers: found, started, waited for, killed and stopped by their ids.

TOPO_TEST_SERVERS says what a server that is not installed means: its tests are skipped if the
variable is not set, they fail if it is `required`, and `none` has them skipped even if it is there.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest

_SERVERS = "TOPO_TEST_SERVERS"
_START_SECS = 90.0
_FIRST_PORT, _AFTER_PORTS = 10_000, 32_768  # below those that Linux gives to connections
_ends = ExitStack()
_running: set[ServerProcess] = set()


def missing(name: str) -> NoReturn:
    """Skip the test for want of a server, or fail it if servers are required."""
    words = f"{name} is not installed; .ci/servers installs it"
    if os.environ.get(_SERVERS) == "required":
        pytest.fail(words)
    pytest.skip(words)


def may_look_for(name: str) -> None:
    """Skip the test if this run is to be one of a machine without servers."""
    if os.environ.get(_SERVERS) == "none":
        pytest.skip(f"{name} is not looked for: {_SERVERS}=none")


def find_program(name: str, *words: str, places: Iterable[str | Path] = ()) -> str:
    """Return the path of a server's program of one of these names, or of one of these places."""
    may_look_for(name)
    on_path = (path for path in map(shutil.which, words) if path is not None)
    elsewhere = (str(place) for place in places if os.path.exists(place))
    return next(on_path, None) or next(elsewhere, None) or missing(name)


def end_with_tests(end: Callable[[], object]) -> None:
    """Call this at the end of the tests, before what they leave behind is looked for."""
    _ends.callback(end)


def end_servers() -> None:
    """End what `end_with_tests` was told of, and whatever else was started and still runs."""
    _ends.close()
    for server in [*_running]:
        server.kill()


def free_port() -> int:
    """Return a port that nobody listens on now, and no connection gets as its own meanwhile.

    The system gives a port of its range to whoever connects: to other processes before a server has
    started, and to one that keeps trying to reach that server, which then has reached itself.
    """
    while True:
        port = random.SystemRandom().randrange(_FIRST_PORT, _AFTER_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    """Return True if somebody accepts connections on a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class ServerProcess:
    """One server: its command, its log, and its process while it runs."""

    def __init__(self, name: str, command: Sequence[str], directory: Path, port: int) -> None:
        self.name, self.command, self.directory, self.port = name, command, directory, port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, ready: Callable[[], bool] | None = None) -> None:
        """Start it, and wait until it answers."""
        log = self.directory / f"{self.name}.log"
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                list(self.command),
                stdout=sink,
                stderr=sink,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C is for the tests, which end it in good order
            )
        _running.add(self)
        pause, left = threading.Event(), _START_SECS
        while not (ready() if ready is not None else listens(self.port)):
            if self._process.poll() is not None or left <= 0:
                raise RuntimeError(f"{self.name} did not start:\n{log.read_text()[-3000:]}")
            pause.wait(0.1)
            left -= 0.1

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it where it stands."""
        self._end(signal.SIGKILL)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Have it end in good order."""
        self._end(how)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or not self.is_running:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _running.discard(self)


atexit.register(end_servers)  # for those who start servers without pytest: the benchmarks
