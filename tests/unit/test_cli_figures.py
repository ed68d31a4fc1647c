"""What topo stats, errors and list say of a run that is over, from what its driver wrote."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.ui.worlds import figures_of, word_count
from tests.unit.test_control_registry import make
from topo.cli.chosen import chosen_of
from topo.cli.root import run
from topo.manage.files import write_json
from topo.manage.records import State, Supervision
from topo.manage.registry import Registry
from topo.metrics.observed import in_ranges

Captured = pytest.CaptureFixture[str]
ERROR = "bolt 'count' task 2: KeyError: 'cow'"
TRACE = "Traceback (most recent call last):\n  words.py, line 3\nKeyError: 'cow'"


class Ended:
    """A run that is over, whose files a test writes."""

    def __init__(self, home: Path) -> None:
        topology = word_count()
        self.directory = make(Registry(home), topology=topology.to_bytes()).directory
        self.figures = figures_of(topology, "FAILED")
        self.say()

    def say(self, errors: Any = (), starts: int = 1, failure: str = "", **state: Any) -> None:
        write_json(self.directory / "stats.json", self.figures)
        write_json(self.directory / "errors.json", list(errors))
        write_json(
            self.directory / "supervisor.json",
            asdict(Supervision(starts=starts, last_failure=failure)),
        )
        ended = State("FAILED", since=1.0, may_restart=False, **state)
        write_json(self.directory / "state.json", asdict(ended))


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ended:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Ended(tmp_path / "home")


def said(capsys: Captured, *argv: str) -> str:
    assert run(argv) == 0
    return capsys.readouterr().out


def test_a_component_does_not_change_what_is_said_of_its_topology(
    ended: Ended, capsys: Captured
) -> None:
    name, *others = ended.figures["components"]
    assert others
    whole = said(capsys, "stats", "words").splitlines()
    of_one = said(capsys, "stats", "words", name).splitlines()
    assert of_one[0] == whole[0]
    inputs = next(at for at, line in enumerate(of_one) if line.startswith("FROM"))
    assert [line for line in of_one[:inputs] if line.startswith(others[0])] == []
    assert of_one[inputs + 1].split() == [others[0], "default", "1,000", "0.75", "0.75"]


def test_what_components_count_and_note_is_shown(ended: Ended, capsys: Captured) -> None:
    component = next(iter(ended.figures["components"]))
    lags = {f'lag{{partition="{number}",topic="clicks"}}': 10.0 * number for number in range(3)}
    ended.figures["components"][component] |= {
        "counters": {"bad_records": 12_345, "dead": 1},
        "gauges": {**lags, "behind_bytes": 2e6, "idle_secs": 125.0, "behind_ms": 7.0},
        "histograms": in_ranges({'body_bytes{kind="a"}': [10.0] * 98 + [4000.0, 9e6]}),
    }
    ended.say()
    counted = "bad_records 12,345, dead 1"
    noted = "behind_bytes 2.0 MB, behind_ms 7 ms, idle_secs 2m"
    lag = "lag 30 in all of 3, most 20 (partition 2, topic clicks)"
    sizes = "body_bytes 100 times, mean 90.0 kB, half up to 10 B, 99 % up to 5.0 kB (kind a)"
    assert f"{component}: {counted}, {noted}, {lag}, {sizes}\n" in said(capsys, "stats", "words")
    in_full = said(capsys, "stats", "words", component)
    assert "lag 0 (partition 0, topic clicks), lag 10 (partition 1, topic clicks), " in in_full


@pytest.mark.parametrize("level", [float("nan"), float("inf"), -1e300, 1e300, 0.5, -7.0])
@pytest.mark.parametrize("name", ["x", "x_secs", "x_bytes", "x_ms", "oldest_window_secs", "é{", ""])
def test_any_level_has_words(name: str, level: float) -> None:
    components = {"s": {"gauges": {name: level}, "counters": {}}, "b": {}}
    (line,) = chosen_of({"components": components}, in_full=False)
    assert line.startswith(f"s: {name} ")


def test_the_error_that_ended_a_topology_is_said_once(ended: Ended, capsys: Captured) -> None:
    error = {
        "component": "count", "task": 2, "host": "h", "kind": "uncaught", "type": "KeyError",
        "message": "'cow'", "at": "words.py:3", "traceback": TRACE, "count": 1, "first": 1.0,
        "last": 2.0,
    }  # fmt: skip
    ended.say([error], reason=ERROR, traceback=TRACE)
    assert said(capsys, "errors", "words").count("'cow'") == 1
    assert said(capsys, "errors", "words", "--traceback").count("words.py, line 3") == 1
    ended.say(reason=ERROR, traceback=TRACE)  # of no component: nothing else tells it
    shown = said(capsys, "errors", "words")
    assert (ERROR in shown, TRACE in shown) == (True, True)


def test_restarts_are_told_of(ended: Ended, capsys: Captured) -> None:
    why = "its driver was ended by SIGKILL"
    ended.say(starts=3, failure=why, reason="KeyError")
    assert f"restarted 2 times ({why})" in said(capsys, "stats", "words").splitlines()[0]
    assert f"KeyError; restarted 2 times ({why})" in said(capsys, "list", "--all")
    assert run(["errors", "words"]) == 0
    assert f"words was restarted 2 times ({why})" in capsys.readouterr().err
    ended.say(starts=2, failure=why, reason=f"{why}; 3 failures in a row")
    assert f"{why}; 3 failures in a row; restarted once\n" in said(capsys, "list", "--all")
    assert " · restarted once · its driver" in said(capsys, "stats", "words").splitlines()[0]
    (row,) = json.loads(said(capsys, "list", "--all", "--json"))
    assert (row["restarts"], row["last_failure"]) == (1, why)
