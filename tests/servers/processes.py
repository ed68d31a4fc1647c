"""Processes of servers: started, waited for, killed and stopped by their ids."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

_START_SECS = 90.0
_FIRST_PORT, _AFTER_PORTS = 10_000, 32_768  # below those that Linux gives to connections


def missing(name: str) -> None:
    """Skip the test for want of a server; fail it under CI, which has all of them."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{name} is not installed, though this is CI: .ci/servers installs it")
    pytest.skip(f"{name} is not installed; .ci/servers installs it")


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
                list(self.command), stdout=sink, stderr=sink, cwd=self.directory
            )
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
