"""`topo state` and `topo savepoint show`, on the files of a savepoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topo.cli.root import run
from topo.storage.savepoints import Component, Savepoint, write_savepoint
from topo.storage.saving import Changes, SavedMapping

COUNTS: list[dict[Any, Any]] = [
    {"cow": 3, "moon": {"n": 1}, ("a", 1): [1, (2,)]},
    {"dog": {1, 2}, 7: None},
]
Say = Callable[..., str]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Say:
    """The commands, beside the directory of a savepoint."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [*sys.path])

    def said(*argv: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run(argv) == code
        captured = capsys.readouterr()
        return str(captured.err if code else captured.out)

    return said


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Path:
    components = {
        "count": Component("bolt", 1, 2, True),
        "words": Component("spout", 3, 1, True),
    }
    point = Savepoint(
        "words", "c0ffee", 41, "micro-batch", 1.5, "0.3.0", "3.12.1", components,
        directory=tmp_path / "saved", pending=12,
    )  # fmt: skip
    tasks = []
    for index, counts in enumerate(COUNTS):
        changes = Changes()
        SavedMapping("state", "count").save(counts, counts, changes)
        tasks.append(("count", index, changes.puts))
    write_savepoint(point, tasks)
    return tmp_path / "saved"


def words(line: str) -> str:
    return " ".join(line.split())


def test_how_much_each_component_has_saved(say: Say) -> None:
    head, columns, count, spout = say("state", "saved").splitlines()
    assert (head, words(columns)) == ("words, batch 41", "COMPONENT KIND TASKS SIZE KEYS")
    assert words(count).startswith("count bolt 2 ")
    assert words(count).endswith(" B 5")
    assert words(spout) == "words spout 1 0 B 0"
    assert [row["keys"] for row in json.loads(say("state", "saved", "--json"))["components"]] == [
        5,
        0,
    ]


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (["cow"], ["count 0 'cow' 3"]),
        (["('a', 1)"], ["count 0 ('a', 1) [1, (2,)]"]),
        (["7"], ["count 1 7 None"]),
        (["--like", "*o*", "--task", "0"], ["count 0 'cow' 3", "count 0 'moon' {'n': 1}"]),
        (["--task", "1"], ["count 1 'dog' {1, 2}", "count 1 7 None"]),
    ],
)
def test_what_is_asked_for_is_shown(say: Say, asked: list[str], shown: list[str]) -> None:
    lines = say("state", "saved", "count", *asked).splitlines()
    assert [words(line) for line in lines[1:]] == shown


def test_as_json(say: Say) -> None:
    rows = json.loads(say("state", "saved", "count", "--json"))
    assert [(row["key"], row["value"]) for row in rows] == [
        ("cow", 3),
        ("moon", {"n": 1}),
        (["a", 1], [1, [2]]),
        ("dog", "{1, 2}"),
        (7, None),
    ]
    assert len(json.loads(say("state", "saved", "count", "--limit", "2", "--json"))) == 2


def test_what_is_not_there_is_told(say: Say, place: Path) -> None:
    assert "'count' has no key 'horse'" in say("state", "saved", "count", "horse", code=4)
    assert "words has no component 'cont'" in say("state", "saved", "cont", code=2)
    assert "no topology 'nobody'" in say("state", "nobody", code=4)
    (place / "count" / "0").write_bytes(b"")
    assert "is not what was written" in say("state", "saved", "count", code=2)


def test_what_a_savepoint_holds(say: Say) -> None:
    head, _, count, _ = say("savepoint", "show", "saved").splitlines()
    assert head == "words, batch 41, micro-batch, topo 0.3.0, Python 3.12.1; 12 messages pending"
    assert words(count).startswith("count bolt 2 ")
    assert "holds no savepoint" in say("savepoint", "show", "home", code=2)
    assert "directory of the savepoint is missing" in say("savepoint", "show", code=2)


TOPOLOGY = """
from topo import Spout, StatefulBasicBolt, TopologyBuilder

class Words(Spout):
    outputs = ("word",)
    def next_tuple(self): ...

class Count(StatefulBasicBolt):
    def execute(self, tup): ...

def topology():
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    builder.set_bolt("tally", Count(), parallelism=2).shuffle_grouping("words")
    return builder
"""


def test_what_keeps_a_topology_from_beginning_with_it(say: Say, tmp_path: Path) -> None:
    (tmp_path / "tallying.py").write_text(TOPOLOGY)
    diff = ("savepoint", "show", "saved", "--diff", "tallying.py")
    assert "tallying.py cannot begin with this savepoint" in say(*diff, code=4)
    assert "differs" not in say(*diff, "--rename", "count=tally")
    assert "differs" not in say(*diff, "--drop", "count")
    assert "--rename takes OLD=NEW" in say(*diff, "--rename", "count", code=2)
    assert "exclude each other" in say("submit", "--from", "saved", "--resume", "t.py", code=2)
    assert "holds no savepoint" in say("submit", "--from", "home", "tallying.py", code=2)
