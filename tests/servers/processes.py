"""Processes of servers: started, waited for, killed and stopped by their ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

_START_SECS = 90.0


def missing(name: str) -> None:
    """Skip the test for want of a server; fail it under CI, which has all of them."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{name} is not installed, though this is CI: .ci/servers installs it")
    pytest.skip(f"{name} is not installed; .ci/servers installs it")


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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

    def kill(self) -> None:
        """Kill it where it stands."""
        self._end(signal.SIGKILL)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Have it end in good order."""
        self._end(how)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
