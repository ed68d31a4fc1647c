"""`topo explain`: levels, drawings, problems, settings with their origins."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples import crawl
from topo.cli.root import run

CODE = """
from topo import BasicBolt, Bolt, Spout, StatefulBasicBolt, TopologyBuilder, bolt

class Numbers(Spout):
    outputs = ("n",)
    def next_tuple(self): ...

@bolt(outputs=("n",))
def same(tup):
    yield [tup.n]

class Louder(BasicBolt):
    outputs = ("n",)
    def __init__(self, by): self.by = by
    def execute(self, tup): self.emit([tup.n + self.by])

class Sum(BasicBolt):
    outputs = ("n",)
    def prepare(self, conf, context, collector): self.sum = 0
    def execute(self, tup):
        self.sum += tup.n
        self.emit([self.sum])

class Keyed(StatefulBasicBolt):
    def execute(self, tup): self.state["n"] = tup.n

conf = {"topology.name": "numbers", "mine": [1]}

def topology():
    builder = TopologyBuilder()
    builder.set_spout("source", Numbers(), parallelism=2)
    builder.set_bolt("same", same, parallelism=2).local_or_shuffle_grouping("source")
    builder.set_bolt("louder", Louder(3), parallelism=1).local_or_shuffle_grouping("same")
    builder.set_bolt("sum", Sum(), parallelism=3).fields_grouping("louder", ["n"])
    builder.set_bolt("keyed", Keyed()).global_grouping("sum")
    return builder

def wrong():
    builder = TopologyBuilder()
    builder.set_spout("source", Numbers())
    builder.set_bolt("a", same).shuffle_grouping("sorce")
    builder.set_bolt("b", same)
    return builder
"""

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "explained.py").write_text(CODE)
    (tmp_path / "topo.toml").write_text(
        "[conf]\ntopology.debug = true\n[env.prod.conf]\nmine = 2\n"
    )
    yield
    sys.modules.pop("explained", None)


def test_levels_state_and_fusion(capsys: Captured) -> None:
    assert run(["explain", "explained.py", "--workers", "2"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "numbers: valid; 5 components, 9 tasks; 2 slots, 4 levels, 3 exchanges",
        "0 same x2 bolt no state; fused into source <- source local_or_shuffle",
        "0 source x2 spout state: attributes, saved whole when they change",
        "1 louder x1 bolt state: attributes, saved whole when they change; "
        "not fused (2 tasks feed 1 over 2 slots) <- same local_or_shuffle",
        "2 sum x3 bolt state: attributes, saved whole when they change <- louder fields(n)",
        "3 keyed x1 bolt state: keyed, saved incrementally <- sum global",
        "same runs by tuple, rewritten to work on columns",
        "louder runs by tuple, rewritten to work on columns",
        "sum runs by tuple, rewritten to work on columns",
        "keyed runs by tuple, rewritten to work on columns",
        "note: bolt 'louder' seems to keep nothing: `stateless = True` spares it saving and, "
        "with its level, a state stage",
    ]


def test_json(capsys: Captured) -> None:
    assert run(["explain", "explained.py", "--workers", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["valid"]
    assert document["levels"][0][0] == {
        "id": "same",
        "kind": "bolt",
        "tasks": 2,
        "slots": [0, 1],
        "fused_into": "source",
        "state": None,
        "work": [],
    }
    assert {
        "from": "louder",
        "stream": "default",
        "to": "sum",
        "grouping": "fields",
        "fields": ["n"],
        "exchange": True,
        "loop": False,
    } in document["edges"]
    assert document["conf"]["topology.workers"] == {"value": 2, "origin": "--workers 2"}


PATTERN = """
from datetime import timedelta
from topo import FromList, Pattern, PatternBolt, TopologyBuilder
builder = TopologyBuilder()
builder.set_spout("ticks", FromList([(1,)], fields=("n",)))
rise = Pattern("low").next("up", "n > low.n", times="+", greedy=True, inner="strict")
rise = rise.not_next("zero", "n == 0").followed_by("fall", "n < up.n")
bolt = PatternBolt(rise.within(timedelta(seconds=5)))
builder.set_bolt("rises", bolt).shuffle_grouping("ticks")
topology = builder.create_topology()
"""


def test_the_edges_of_a_pattern(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "rises.py").write_text(PATTERN)
    assert run(["explain", "rises.py"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("rises:") + 1 :] == [
        "    0:start -> 1:low: any event",
        "    1:low -> 2:up: n > low.n (strict)",
        "    2:up -> 2:up: n > low.n (strict)",
        "    2:up -> 3:fall.: n < up.n (relaxed, unless the loop takes it)",
        "    2:up not next: n == 0",
    ]
    assert run(["explain", "rises.py", "--json"]) == 0
    [_, [placed]] = json.loads(capsys.readouterr().out)["levels"]
    assert placed["work"][0] == "0:start -> 1:low: any event"


def test_drawings(capsys: Captured) -> None:
    assert run(["explain", "explained.py", "--format", "mermaid"]) == 0
    mermaid = capsys.readouterr().out
    assert mermaid.startswith("flowchart LR\n")
    assert '-->|"fields(n)"|' in mermaid
    assert run(["explain", "explained.py", "--format", "dot"]) == 0
    dot = capsys.readouterr().out
    assert dot.startswith('digraph "numbers" {\n')
    assert '"louder" -> "sum" [label="fields(n)"];' in dot


def test_every_problem_is_a_line(capsys: Captured) -> None:
    assert run(["explain", "explained.py:wrong"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "did you mean 'source'?" in lines[0]
    assert "bolt 'b'" in lines[1]
    assert run(["explain", "explained.py:wrong", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert not document["valid"]
    assert [set(problem) for problem in document["problems"]] == [
        {"code", "where", "message", "hint"}
    ] * 2


def test_where_each_setting_comes_from(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "more.json").write_text('{"topology.max.spout.pending": 7, "mine": 3}')
    argv = ["explain", "explained.py", "--conf", "--config", "more.json", "-a", "0"]
    argv += ["-c", "mine=x", "-c", "sum/topology.debug=false", "--env", "prod"]
    assert run(argv) == 0
    rows = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    found = {key: (value, origin) for key, value, origin in rows}
    assert found["topology.name"] == ('"numbers"', "explained.py")
    assert found["topology.debug"] == ("true", "topo.toml [conf]")
    assert found["topology.max.spout.pending"] == ("7", "more.json")
    assert found["topology.acker.executors"] == ("0", "-a 0")
    assert found["mine"] == ('"x"', "-c mine=x")
    assert found["sum/topology.debug"] == ("false", "-c sum/topology.debug=false")
    assert found["topology.message.timeout.secs"] == ("30", "default")


def test_components_with_fewer_tasks_than_there_may_be_slots(capsys: Captured) -> None:
    assert run(["explain", "explained.py", "--workers", "2..3"]) == 0
    warnings = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")
    ]
    more = "of the 3 slots that the topology may scale to it uses no more"
    assert warnings[0] == f"warning: bolt 'keyed' has 1 task: {more}"
    assert warnings[-1] == f"warning: spout 'source' has 2 tasks: {more}"
    assert not any("'sum'" in line for line in warnings)
    assert run(["explain", "explained.py", "--workers", "2..3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [f"warning: {words}" for words in document["warnings"]] == warnings
    assert run(["explain", "explained.py", "--workers", "3"]) == 0
    assert "warning" not in capsys.readouterr().out


def test_a_setting_that_means_nothing_here_is_a_warning(capsys: Captured) -> None:
    assert run(["explain", "explained.py", "-c", "topology.priority=3"]) == 0
    assert capsys.readouterr().err == (
        "warning: topology.priority is Storm's and means nothing on Spark; "
        "tasks are placed by Spark\n"
    )


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("mine", "-c takes KEY=VALUE; got 'mine'"),
        ("=3", "-c takes KEY=VALUE; got '=3'"),
    ],
)
def test_a_pair_that_is_none(capsys: Captured, pair: str, message: str) -> None:
    assert run(["explain", "explained.py", "-c", pair]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("file", "name"), [("Zähler ü.py", "Z-hler"), ("數.py", "topology")])
def test_a_file_of_any_name_is_a_topology(capsys: Captured, file: str, name: str) -> None:
    Path(file).write_text(CODE.replace('"topology.name": "numbers", ', ""))
    assert run(["explain", file]) == 0
    assert capsys.readouterr().out.startswith(f"{name}: valid; ")


def test_a_name_that_cannot_be_one(capsys: Captured) -> None:
    assert run(["explain", "explained.py", "-c", "topology.name=a/b"]) == 2
    assert "error: 'a/b' cannot be a topology's name" in capsys.readouterr().err


NEEDY = """
from topo import BasicBolt, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = ("n",)
    def next_tuple(self): ...

class Store(BasicBolt):
    requires = ("no_such_client>=2",)
    def execute(self, tup): print(tup)

builder = TopologyBuilder()
builder.set_spout("numbers", Numbers())
builder.set_bolt("store", Store()).shuffle_grouping("numbers")
topology = builder.create_topology()
conf = {"store.password": "hush", "store": {"api_key": "hush", "user": "ann"}}
"""


def test_missing_packages_are_named_and_secrets_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "needy.py"
    file.write_text(NEEDY)
    assert run(["explain", str(file)]) == 0
    assert (
        "bolt 'store': no_such_client>=2 is not installed here; where it runs: "
        "pip install no-such-client" in " ".join(capsys.readouterr().out.split())
    )
    for form in ([], ["--json"]):
        assert run(["explain", str(file), "--conf", *form]) == 0
        shown = capsys.readouterr().out
        assert "hush" not in shown
        assert "***" in shown
        assert "ann" in shown


WAYS = """
import topo
from topo import BasicBolt, FromList, TopologyBuilder, bolt

class Batch(BasicBolt):
    def process_batch(self, batch): ...

class Values(BasicBolt):
    outputs = ("n",)
    def process(self, n): self.emit_values(n)

class Odd(Values):
    def process(self, n, tup): self.emit_values(n)

class Keeps(BasicBolt):
    def execute(self, tup):
        self.last = tup

builder = TopologyBuilder()
builder.set_spout("s", FromList([1], fields="n"))
for made in (Batch, Values, Odd, Keeps):
    builder.set_bolt(made.__name__.lower(), made()).shuffle_grouping("s")
topology = builder.create_topology()
"""


def test_how_each_bolt_runs_and_why(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "explained.py").write_text(WAYS)
    assert run(["explain", "explained.py", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ways"] == {
        "batch": "by batch",
        "values": "by values, rewritten to work on columns",
        "odd": "by values, as it is written: it asks for more than values",
        "keeps": "by tuple, as it is written: it passes its tuple on, or looks at its frame "
        "(line 17)",
    }


def test_a_loop_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(Path(crawl.__file__))
    monkeypatch.chdir(tmp_path)
    assert run(["explain", target, "--workers", "2"]) == 0
    text = capsys.readouterr().out
    assert "a loop brings tuples of 'parse' in the next batch" in text
    assert "parse/links fields(host) loop" in text
