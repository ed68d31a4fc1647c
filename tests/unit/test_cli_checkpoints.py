"""`topo checkpoints`: what is listed, and what is deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_control_registry import make, say
from tests.unit.test_control_submit import begun
from topo.cli.root import run as topo
from topo.manage.registry import Registry


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Registry(tmp_path / "home")


def test_what_is_left_is_listed_and_removed(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topo(["checkpoints"]) == 0
    assert capsys.readouterr().out == "No checkpoints.\n"
    place = begun(tmp_path / "own")
    (place / "thesis.tex").write_text("years of work")
    words = make(registry, "words", checkpoint=str(place))
    far = make(registry, "far", checkpoint="hdfs://n/state")
    say(far, status="KILLED")
    lost = begun(registry.checkpoint_base("lost") / "lost-1a2b")

    assert topo(["checkpoints"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "STATUS", "BATCH", "SIZE", "AGE", "ID", "PLACE"]
    assert {row.split()[0]: row.split()[1] for row in rows} == {
        "words": "STARTING",
        "far": "KILLED",
        "lost": "left",
    }

    assert topo(["checkpoints", "--remove"]) == 2
    assert topo(["checkpoints", "--remove", "words"]) == 4
    assert "which is STARTING" in capsys.readouterr().err
    assert topo(["checkpoints", "--remove", "wrods"]) == 4
    assert "did you mean 'words'?" in capsys.readouterr().err
    say(words, status="KILLED")
    assert topo(["checkpoints", "--remove", words.id, "lost-1a2b", "hdfs://n/state"]) == 0
    said = capsys.readouterr()
    assert said.out.count("removed ") == 3
    assert "holds other things, which are left: thesis.tex" in said.err
    assert "hdfs://n/state is not on this machine" in said.err
    assert [path.name for path in place.iterdir()] == ["thesis.tex"]
    assert not lost.exists()
    assert topo(["checkpoints"]) == 0
    assert capsys.readouterr().out == "No checkpoints.\n"


def test_as_json(registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(registry, "words", checkpoint=str(begun(tmp_path / "own")))
    assert topo(["checkpoints", "words", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found.pop("age_secs") >= 0
    assert found == {
        "name": "words",
        "id": run.id,
        "status": "STARTING",
        "batch": 7,
        "bytes": 10,
        "place": str(tmp_path / "own"),
        "removed": False,
    }
