"""A newcomer's whole way at a terminal, on Spark: from quickstart to kill."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from topo.control.registry import Registry, Run

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(600)]

SECS = 120


class Terminal:
    """A shell's view: commands run on a pseudo-terminal, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "TOPO_HOME": str(directory / "home"), "TERM": "xterm"}

    def run(self, *argv: str, code: int = 0, interrupt_at: str = "") -> str:
        """What the command showed; `interrupt_at` is where Ctrl-C is typed."""
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
        seen = self._watch(ours, interrupt_at)
        assert process.wait(SECS) == code, seen
        return seen

    def topo(self, *argv: str, code: int = 0, interrupt_at: str = "") -> str:
        return self.run(
            sys.executable, "-m", "topo.cli", *argv, code=code, interrupt_at=interrupt_at
        )

    def until(self, *argv: str, shows: str) -> str:
        """Run the command again and again until it shows this."""
        deadline = time.monotonic() + SECS
        while shows not in (seen := self.topo(*argv)):
            assert time.monotonic() < deadline, seen
        return seen

    def _watch(self, handle: int, interrupt_at: str) -> str:
        seen = ""
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
            if interrupt_at and interrupt_at in seen:
                os.write(handle, b"\x03")
                interrupt_at = ""
        os.close(handle)
        return seen


def _controlled_by_its_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    made = Terminal(tmp_path)
    yield made
    for row in json.loads(made.topo("list", "--json")):
        made.topo("kill", "--force", row["name"])
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after <= before


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


def test_the_whole_way(terminal: Terminal) -> None:
    assert "wrote ./{wordcount.py" in terminal.topo("quickstart")
    tested = terminal.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "3 passed" in tested

    shown = terminal.topo("local", "wordcount.py", "--", "50")
    assert "COMPONENT" in shown  # the live table
    assert "word-count: completed; 200 acked, 0 failed, 0 pending" in shown
    none_left(terminal.directory)

    submitted = terminal.topo("submit", "wordcount.py", "-n", "words", "-w", "120", "--", "1000000")
    assert "submitted words (words-" in submitted
    assert ": ACTIVE after " in submitted
    assert "ACTIVE" in terminal.topo("list")
    stats = terminal.until("stats", "words", "--json", shows='"batch": {"id": 1')
    assert json.loads(stats)["components"]["count"]["kind"] == "bolt"
    assert "COMPONENT" in terminal.topo("stats", "words")
    assert "words: INACTIVE (was ACTIVE)" in terminal.topo("deactivate", "words")
    assert "INACTIVE" in terminal.topo("list")
    assert "words: ACTIVE (was INACTIVE)" in terminal.topo("activate", "words")
    assert "No errors." in terminal.topo("errors", "words")
    assert "killed words; its state is kept" in terminal.topo("kill", "words")
    assert "No topologies running" in terminal.topo("list")
    none_left(terminal.directory)


def test_ctrl_c_ends_a_local_run_and_leaves_nothing_behind(terminal: Terminal) -> None:
    terminal.topo("quickstart")
    shown = terminal.topo(
        "local", "wordcount.py", "--", "1000000", code=130, interrupt_at="word-count ACTIVE"
    )
    assert "stopping: what is in flight is finished first" in shown
    assert "word-count: stopped (interrupted); " in shown
    none_left(terminal.directory)


SUMMING = """
import json
import time
from pathlib import Path

from topo import BasicBolt, Spout, TopologyBuilder


class Numbers(Spout):
    outputs = ("n",)

    def __init__(self, count):
        self.count = count
        self.said = 0

    def next_tuple(self):
        if self.said < self.count:
            time.sleep(0.005)
            self.said += 1
            self.emit([self.said], msg_id=self.said)

    def is_exhausted(self):
        return self.said == self.count


class Sum(BasicBolt):
    def __init__(self, file):
        self.file = file
        self.sum = self.times = 0

    def execute(self, tup):
        self.sum += tup.n
        self.times += 1

    def cleanup(self):
        Path(self.file).write_text(json.dumps([self.times, self.sum]))


conf = {"topology.name": "summing", "topology.batch.target.ms": 200}


def topology(count, file):
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(int(count)))
    builder.set_bolt("sum", Sum(file)).shuffle_grouping("numbers")
    return builder
"""


def test_a_driver_killed_by_sigkill_goes_on_with_its_state(terminal: Terminal) -> None:
    (terminal.directory / "summing.py").write_text(SUMMING)
    result = terminal.directory / "result.json"
    terminal.topo("submit", "summing.py", "-w", "120", "--", "2000", str(result))
    registry = Registry(terminal.directory / "home")

    def run() -> Run:
        found = registry.latest("summing")
        assert found is not None
        return found

    def wait_until(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 2 * SECS
        while not condition():
            assert time.monotonic() < deadline, (run().status, run().reason)
            time.sleep(0.05)

    wait_until(lambda: run().state.batch > 0)
    first = run().driver_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: run().driver_pid not in (None, first))
    wait_until(lambda: run().over)
    assert run().status == "COMPLETED", run().reason
    assert json.loads(result.read_text()) == [2000, 2000 * 2001 // 2]
    none_left(terminal.directory)
