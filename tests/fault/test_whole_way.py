"""A newcomer's whole way at a terminal, on Spark: from quickstart to kill."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.terminal import SECS, Terminal, none_left
from topo.manage.records import RunRecord
from topo.manage.registry import Registry

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    made = Terminal(tmp_path)
    yield made
    for row in json.loads(made.topo("list", "--json")):
        made.topo("kill", "--force", row["name"])
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after <= before


def test_from_quickstart_to_a_local_run(terminal: Terminal) -> None:
    assert "wrote ./{wordcount.py" in terminal.topo("quickstart")
    tested = terminal.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "3 passed" in tested

    shown = terminal.topo("local", "wordcount.py", "--", "50")
    assert "COMPONENT" in shown  # the live table
    assert "word-count: completed; 200 acked, 0 failed, 0 pending" in shown
    none_left(terminal.directory)


@pytest.mark.smoke
def test_from_submit_to_kill(terminal: Terminal) -> None:
    terminal.topo("quickstart")
    submitted = terminal.topo("submit", "wordcount.py", "-n", "words", "-w", "120", "--", "1000000")
    assert "submitted words (words-" in submitted
    assert ": ACTIVE after " in submitted
    stats = terminal.until("stats", "words", "--json", shows='"batch": {"id": 1')
    assert json.loads(stats)["components"]["count"]["kind"] == "bolt"
    assert "killed words; its state is kept" in terminal.topo("kill", "words")
    assert "No topologies running" in terminal.topo("list")
    none_left(terminal.directory)


def test_a_submitted_topology_obeys_each_command(terminal: Terminal) -> None:
    terminal.topo("quickstart")
    terminal.topo("submit", "wordcount.py", "-n", "words", "-w", "120", "--", "1000000")
    assert "ACTIVE" in terminal.topo("list")
    assert "COMPONENT" in terminal.topo("stats", "words")
    assert "words: INACTIVE (was ACTIVE)" in terminal.topo("deactivate", "words")
    assert "INACTIVE" in terminal.topo("list")
    assert "words: ACTIVE (was INACTIVE)" in terminal.topo("activate", "words")
    assert "No errors." in terminal.topo("errors", "words")
    assert "killed words; its state is kept" in terminal.topo("kill", "words")
    none_left(terminal.directory)


@pytest.mark.parametrize(
    "moments",
    [
        ["starting Spark"],
        ["in its first batch", "Ctrl-C again: at once"],
        [r"batch [2-9]\d*, "],  # a short one may come and go unseen
    ],
    ids=["at once", "twice in the first batch", "at work"],
)
def test_ctrl_c_ends_a_local_run_and_leaves_nothing_behind(
    terminal: Terminal, moments: list[str]
) -> None:
    terminal.topo("quickstart")
    shown = terminal.topo("local", "wordcount.py", "--", "1000000", code=130, interrupts=moments)
    assert "stopping: what is in flight is finished first" in shown
    assert "word-count: stopped (interrupted); " in shown
    assert "Traceback" not in shown
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

    def run() -> RunRecord:
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
