"""`topo logs --set` and `--sample`: what is asked of the logs of a running topology."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.unit.test_control_registry import make, say
from tests.unit.test_from_list import reading
from topo import FromList
from topo.cli.root import run as topo
from topo.logs.requests import read_requests
from topo.manage.records import RunRecord
from topo.manage.registry import Registry


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    run = make(Registry(tmp_path / "home"), "words", reading(FromList([1])).to_bytes())
    (run.directory / "log").mkdir(exist_ok=True)
    return run


def test_levels_and_a_sample_are_asked_for(
    words: RunRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topo(["logs", "--set", "shop.db=debug:60", "--set", "root=WARNING", "words"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" until ")[0] for line in lines] == [
        "logger shop.db: DEBUG",
        "logger root: WARNING",
    ]
    assert topo(["logs", "--sample", "5:30", "words", "list"]) == 0
    assert "list: 5 tuples a second of each task until " in capsys.readouterr().out
    asked = read_requests(words.directory / "log").now(time.time())
    assert {name: level.level for name, level in asked.levels.items()} == {
        "shop.db": "DEBUG",
        "": "WARNING",
    }
    assert [(one.component, one.per_sec) for one in asked.samples] == [("list", 5.0)]


def test_zero_seconds_take_a_request_back(
    words: RunRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topo(["logs", "--set", "shop=DEBUG", "words"]) == 0
    assert topo(["logs", "--set", "shop=DEBUG:0", "words"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Nothing is asked of the logs."


def test_as_json(words: RunRecord, capsys: pytest.CaptureFixture[str]) -> None:
    assert topo(["logs", "--json", "--set", "shop=ERROR", "words"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(each["logger"], each["level"]) for each in document["levels"]] == [("shop", "ERROR")]
    assert document["samples"] == []


@pytest.mark.parametrize(
    ("arguments", "words_of_it"),
    [
        (["--set", "shop"], "--set takes LOGGER=LEVEL[:SECS]; got 'shop'"),
        (["--set", "shop=LOUD"], "--set takes LOGGER=LEVEL[:SECS]; got 'shop=LOUD'"),
        (["--set", "=DEBUG"], "--set takes LOGGER=LEVEL[:SECS]; got '=DEBUG'"),
        (["--set", "shop=DEBUG:soon"], "--set: 'soon' is no number from 0 to 86,400"),
        (["--set", "shop=DEBUG:nan"], "--set: 'nan' is no number from 0 to 86,400"),
        (["--sample", "1000"], "--sample: '1000' is no number from 0 to 100"),
        (["--sample", "5:-1"], "--sample: '-1' is no number from 0 to 3,600"),
        (["--sample", "5"], "--sample logs the tuples of one component"),
    ],
)
def test_what_cannot_be_asked_is_a_mistake(
    words: RunRecord, arguments: list[str], words_of_it: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert topo(["logs", *arguments, "words"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {words_of_it}"


def test_nothing_is_asked_of_a_topology_that_is_over(
    words: RunRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    say(words, status="KILLED")
    assert topo(["logs", "--set", "shop=DEBUG", "words"]) == 4
    assert "words is KILLED" in capsys.readouterr().err
