"""A pseudo-terminal to run commands on, and a look at the processes they leave behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

SECS = 120


def read_all(handle: int, interrupts: Sequence[str] = ()) -> str:
    """Read the output of a terminal until its other end closes.

    Ctrl-C is typed when the first of `interrupts` is seen, again when the next is, and so on.
    """
    seen = ""
    waiting = list(interrupts)
    deadline = time.monotonic() + SECS
    while time.monotonic() < deadline:
        if not select.select([handle], [], [], 1)[0]:
            continue
        try:
            more = os.read(handle, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not more:
            break
        seen += more.decode(errors="replace")
        if waiting and re.search(waiting[0], seen):
            os.write(handle, b"\x03")
            del waiting[0]
    os.close(handle)
    return seen


class Terminal:
    """A shell's view: commands run on a pseudo-terminal, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "TOPO_HOME": str(directory / "home"), "TERM": "xterm"}

    def run(self, *argv: str, code: int = 0, interrupts: Sequence[str] = ()) -> str:
        """Run a command and return its output; Ctrl-C is typed at the patterns `interrupts`."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        process = subprocess.Popen(
            argv,
            cwd=self.directory,
            env=self.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=_controlled_by_its_terminal,
        )
        os.close(theirs)
        try:
            seen = read_all(ours, interrupts)
            assert process.wait(SECS) == code, seen
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return seen

    def topo(self, *argv: str, code: int = 0, interrupts: Sequence[str] = ()) -> str:
        return self.run(sys.executable, "-m", "topo.cli", *argv, code=code, interrupts=interrupts)

    def until(self, *argv: str, shows: str) -> str:
        """Run the command again and again until it shows this."""
        deadline = time.monotonic() + SECS
        while shows not in (seen := self.topo(*argv)):
            assert time.monotonic() < deadline, seen
        return seen


def _controlled_by_its_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def ours(directory: Path) -> list[str]:
    """The command lines of processes that work for topologies in this directory."""
    found = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        environment = process.info["environ"] or {}
        if environment.get("TOPO_HOME") == str(directory / "home"):
            found.append(" ".join(process.info["cmdline"] or []))
    return found


def none_left(directory: Path) -> None:
    """Spark's Python workers end right after their JVM, which is waited for."""
    deadline = time.monotonic() + 10
    while left := ours(directory):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
