"""A registry of its own with a scripted topology in it, and the commands to it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topo.cli.root import run as topo
from topo.manage.api import Management
from topo.manage.records import RunRecord
from topo.manage.registry import Registry
from topo.manage.views import ScaleView

Captured = pytest.CaptureFixture[str]

TOPOLOGY = """
from topo.builder import TopologyBuilder
from topo.components import Spout
from topo.functions import bolt

class Numbers(Spout):
    outputs = ("n",)
    def next_tuple(self): ...

@bolt()
def sink(tup): ...

conf = {"topology.name": "words", "topology.restart.max": 2, "script.commands": %r}

def topology():
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("sink", sink, parallelism=2).shuffle_grouping("numbers")
    return builder
"""


def until(condition: Callable[[], Any], secs: float = 30) -> Any:
    """Wait until `condition` returns a true value, and return it."""
    deadline = time.monotonic() + secs
    while not (found := condition()):
        assert time.monotonic() < deadline, "this did not come to pass"
        time.sleep(0.02)
    return found


def end(pid: int | None) -> None:
    assert pid
    os.kill(pid, signal.SIGKILL)


class Home:
    """A registry of its own, the directory of a topology, and the commands to its run."""

    def __init__(self, path: Path, capsys: Captured) -> None:
        self.registry = Registry(path / "home")
        self._commands = path / "commands.json"
        self._capsys = capsys
        (path / "numbers_topology.py").write_text(TOPOLOGY % str(self._commands))

    def say(self, **commands: Any) -> None:
        temporary = self._commands.with_suffix(".new")
        temporary.write_text(json.dumps(commands))
        temporary.rename(self._commands)

    def topo(self, *argv: str, code: int = 0) -> str:
        """Run a command; what it said on stdout, or on stderr if it had to fail."""
        self._capsys.readouterr()
        ended = topo(argv)
        said = self._capsys.readouterr()
        assert ended == code, said.err
        return said.err if code else said.out

    def submit(self, *options: str, code: int = 0) -> str:
        return self.topo("submit", "numbers_topology.py", *options, code=code)

    @property
    def run(self) -> RunRecord:
        found = self.registry.latest("words")
        assert found is not None
        return found

    @property
    def scaling(self) -> ScaleView:
        """The decisions on how many slots it has."""
        return Management(self.registry).scale("words")

    def decided(self, verdict: str) -> list[str]:
        """The reasons of decisions of this kind."""
        return [each.reason for each in self.scaling.decisions if each.verdict == verdict]

    def is_back(self, first: RunRecord) -> bool:
        """Another driver than that of `first` runs the topology."""
        run = self.run
        return run.driver_pid not in (None, first.driver_pid) and run.status != "STARTING"

    def until_gone(self, pid: int) -> None:
        until(lambda: self.run.driver_pid != pid)

    def clear(self) -> None:
        for run in self.registry.runs():
            if run.driver_alive or run.supervisor_alive:
                self.topo("kill", "--force", run.name)
