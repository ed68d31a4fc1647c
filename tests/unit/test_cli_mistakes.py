"""Every documented mistake is made, and answered as documented."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.report import Machine
from tests.unit.cli_mistakes import MISTAKES, Mistake
from tests.unit.test_control_registry import held, make, say
from topo import BasicBolt, Spout, Topology, TopologyBuilder, Tuple
from topo.cli.root import run
from topo.manage.files import write_json
from topo.manage.registry import Registry
from topo.running import ComponentStats

COUNTS = """
conf = {}
def build(): ...
def sourced(source): ...
"""

WRONG = """
import threading
from topo import BasicBolt, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = ("n",)
    def next_tuple(self): ...

class Split(BasicBolt):
    outputs = {"default": ("n",), "words": ("w",)}
    def execute(self, tup): ...

class Locked(BasicBolt):
    def __init__(self): self.lock = threading.Lock()
    def execute(self, tup): ...

def started():
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    return builder

def stream():
    builder = started()
    builder.set_bolt("split", Split()).shuffle_grouping("numbers")
    builder.set_bolt("count", Split()).shuffle_grouping("split", "wrds")
    return builder

def cycle():
    builder = started()
    builder.set_bolt("a", Split()).shuffle_grouping("numbers").shuffle_grouping("b")
    builder.set_bolt("b", Split()).shuffle_grouping("a")
    return builder

def unpicklable():
    builder = started()
    builder.set_bolt("db", Locked()).shuffle_grouping("numbers")
    return builder
"""

TOML = """
[env.production]
[env.dev]
registry = "dev-home"
[env.prod]
registry = "prod-home"
[env.far]
registry = "nowhere"
"""


class Sentences(Spout):
    outputs = ("sentence",)

    def next_tuple(self) -> None: ...


class Count(BasicBolt):
    def execute(self, tup: Tuple) -> None: ...


def counted() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sentences", Sentences())
    builder.set_bolt("count", Count()).shuffle_grouping("sentences")
    return builder.create_topology()


class Place:
    """A directory with topologies, and the situations that mistakes are made in."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self.path = path
        self._patch = patch
        self._stack = stack
        self.registry = Registry(path / "home")

    def be(self, given: str) -> None:
        situations: dict[str, Callable[[], object]] = {
            "": lambda: None,
            "no java": self._no_java,
            "words starts": lambda: make(self.registry),
            "words was killed": self._killed,
            "words failed": self._failed,
            "words hangs": self._hangs,
            "words is damaged": lambda: (
                make(self.registry).directory / "submission.json"
            ).write_bytes(b"{"),
            "words starts in prod": self._in_prod,
            "environments": self._environments,
            "no topo.toml": lambda: (self.path / "topo.toml").unlink(),
            "another python": self._another_python,
            "baseline": self._baseline,
            "slow suite": self._slow_suite,
        }
        situations[given]()

    def _no_java(self) -> None:
        self._patch.setattr("topo.engine.spark.jvm.java._candidates", lambda environ: iter(()))
        # Other tests may have started a Spark, which needs none any more.
        self._patch.setattr("pyspark.SparkContext._active_spark_context", None)

    def _killed(self) -> None:
        checkpoint = self.path / "left"
        checkpoint.mkdir()
        (checkpoint / "topo-plan.json").write_text("{}")
        run = make(
            self.registry,
            topology=counted().to_bytes(),
            checkpoint=str(checkpoint),
            conf={"topology.acker.executors": 0},
        )
        say(run, status="KILLED", since=time.time(), batch=812)
        components = {
            "count": asdict(ComponentStats("bolt", 2)),
            "sentences": asdict(ComponentStats("spout", 1)),
        }
        figures = {"batch": {"id": 812, "ms": 640.0, "rows": 1}, "components": components}
        write_json(run.directory / "stats.json", figures)
        line: dict[str, object] = {
            "time": "2026-11-18T09:41:07.120Z",
            "level": "INFO",
            "component": "count",
        }
        line |= {"task": 2, "host": "m4", "logger": "wordcount", "message": "counted"}
        (run.directory / "log" / "slot-0.jsonl").write_text(json.dumps(line) + "\n")

    def _failed(self) -> None:
        run = make(self.registry)
        say(run, status="FAILED", reason="KeyError: 'x'", may_restart=False)

    def _hangs(self) -> None:
        run = make(self.registry)
        say(run, status="ACTIVE", address="127.0.0.1:1")
        locks = [run.directory / name for name in ("driver.lock", "supervisor.lock")]
        self._stack.enter_context(held(*locks))

    def _environments(self) -> None:
        (self.path / "topo.toml").write_text(TOML)

    def _in_prod(self) -> None:
        self._environments()
        (self.path / "dev-home").mkdir()
        make(Registry(self.path / "prod-home"))

    def _another_python(self) -> None:
        other = self.path / "python"
        other.write_text("#!/bin/sh\necho 3.10\n")
        other.chmod(0o755)
        self._patch.setenv("PYSPARK_PYTHON", str(other))

    def _baseline(self) -> None:
        machine = asdict(Machine.this()) | {"cores": 999}
        (self.path / "other.json").write_text(json.dumps({"machine": machine, "runs": []}))

    def _slow_suite(self) -> None:
        self._patch.setattr("benchmarks.inline.LEAST_SECONDS", 10, raising=False)
        reason = "a batch takes 2.5 s here"
        self._patch.setattr("benchmarks.inline.LEAST_REASON", reason, raising=False)


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    (tmp_path / "counts.py").write_text(COUNTS)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "raising.py").write_text("1 / 0\n")
    (tmp_path / "home.py").mkdir()
    before = set(sys.modules)
    assert run(["quickstart"]) == 0
    capsys.readouterr()
    with ExitStack() as stack:
        yield Place(tmp_path, monkeypatch, stack)
    for name in ("counts", "wrong", "raising", "wordcount"):
        if name not in before:
            sys.modules.pop(name, None)


def matches(pattern: str, text: str) -> bool:
    parts = [re.escape(part) for part in pattern.split("...")]
    return re.search(".*".join(parts), text) is not None


@pytest.mark.parametrize("mistake", MISTAKES, ids=[f"{m.command}, {m.what}" for m in MISTAKES])
def test_mistake(mistake: Mistake, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.be(mistake.given)
    code = run(shlex.split(mistake.command)[1:])
    said = capsys.readouterr()
    text = said.out + said.err
    assert matches(mistake.message, text), text
    assert matches(mistake.hint, text), text
    assert code == mistake.code, text
    if code and mistake.code not in (3, 5):
        assert said.out == ""


@pytest.mark.parametrize("name", ["long-" * 60, "../words", "w\u00f6rter", "a\0b", ""])
def test_names_that_no_topology_has(
    name: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("kill", "stats", "errors", "logs", "activate"):
        assert run([command, name]) == 4
        assert capsys.readouterr().err.startswith(f"error: no topology {name!r}\n")
