"""`topo bench`: records, the machine, comparison with a baseline, the table."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.model import BatchTimes, BenchOptions, Measurement
from benchmarks.report import SUITES, BenchError, Machine, check_suites, compare
from topo.cli.output import short_number
from topo.cli.root import run as topo

MACHINE = Machine(2, "a cpu", 16.0, "Linux", "3.11.7", "0.1.0", "4.3.0", "2.0")
RUN = Measurement(
    "inline", {"tracked": True, "workers": 2}, "words", 1_210_000.0, 0.04, True, 0.2, 38.0
)

Captured = pytest.CaptureFixture[str]


def baseline(*runs: Measurement, machine: Machine = MACHINE) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(report.to_document(runs, machine)))
    return document


def test_a_record_of_repeats() -> None:
    made = Measurement.of(
        "inline",
        {"tracked": False},
        "words",
        [90.0, 100.0, 120.0],
        verified=True,
        loop_rates=[900.0, 500.0, 1200.0],
    )
    assert made.per_sec == 100.0
    assert made.spread == pytest.approx(0.15)
    assert made.vs_loop == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("rates", "loop_rates", "message"),
    [([], [], "no measurement"), ([1.0], [1.0, 2.0], "1 rates, 2 of the loop")],
)
def test_a_record_of_nothing(rates: list[float], loop_rates: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Measurement.of("inline", {}, "words", rates, verified=True, loop_rates=loop_rates)


def test_every_suite_is_there() -> None:
    for name in SUITES:
        assert callable(importlib.import_module(f"benchmarks.{name.replace('-', '_')}").run)
    check_suites(SUITES, BenchOptions(seconds=60))


def test_the_document_has_the_documented_keys() -> None:
    document = baseline(replace(RUN, batch_ms=BatchTimes(640.0, 180.0)))
    assert document["machine"]["cores"] == 2
    (found,) = document["runs"]
    assert found["params"] == {"tracked": True, "workers": 2}
    assert set(found) >= {"suite", "unit", "per_sec", "spread", "vs_loop", "cpu_secs", "verified"}
    assert found["batch_ms"]["floor_p50"] == 180.0


@pytest.mark.parametrize(
    ("now", "before", "figure", "allowed"),
    [
        (RUN, RUN, "vs_loop", True),
        (replace(RUN, vs_loop=0.181), RUN, "vs_loop", True),
        (replace(RUN, vs_loop=0.179), RUN, "vs_loop", False),
        # A slow minute slows the loop as well.
        (replace(RUN, per_sec=1.0), RUN, "vs_loop", True),
        (replace(RUN, vs_loop=None, per_sec=1.0), RUN, "per_sec", False),
    ],
)
def test_a_run_beside_the_baselines(
    now: Measurement, before: Measurement, figure: str, allowed: bool
) -> None:
    (found,) = compare([now], baseline(before), MACHINE, 0.1)
    assert (found.figure, found.allowed) == (figure, allowed)
    assert "inline tracked=true workers=2: " in str(found)


def test_only_the_same_parameters_are_compared() -> None:
    other = replace(RUN, params={"tracked": False, "workers": 2})
    assert compare([RUN], baseline(other), MACHINE, 0.1) == []


def test_another_machines_baseline() -> None:
    then = baseline(RUN, machine=replace(MACHINE, cores=8))
    with pytest.raises(BenchError, match=r"of another machine \(8 cores; this has 2\)"):
        compare([RUN], then, MACHINE, 0.1)
    assert len(compare([RUN], then, MACHINE, 0.1, force=True)) == 1
    with pytest.raises(BenchError, match=r"\(b cpu; this is a cpu\)"):
        compare([RUN], baseline(RUN, machine=replace(MACHINE, cpu="b cpu")), MACHINE, 0.1)
    with pytest.raises(BenchError, match="no result of topo bench"):
        compare([RUN], {"runs": []}, MACHINE, 0.1)


def test_this_machine() -> None:
    machine = Machine.this()
    assert machine.cores >= 1
    assert machine.cpu
    assert machine.numpy


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1_210_000, "1.21 M"), (71_200_000, "71.2 M"), (118_000, "118 k"), (9.5, "9.5"), (12, "12")],
)
def test_short_numbers(value: float, shown: str) -> None:
    assert short_number(value) == shown


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Measurement]:
    """Return the suites' answers, which a test may change."""
    monkeypatch.chdir(tmp_path)
    runs = [RUN]
    monkeypatch.setattr(report, "run_suites", lambda names, options: runs)
    return runs


def test_the_table(measured: list[Measurement], capsys: Captured) -> None:
    assert topo(["bench", "inline"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == [
        "SUITE",
        "PARAMS",
        "PER",
        "SEC",
        "(spread)",
        "vs",
        "loop",
        "CPU-s",
        "CHECK",
    ]
    assert row.split() == [
        "inline",
        "tracked=true",
        "workers=2",
        "1.21",
        "M",
        "+-4%",
        "0.20",
        "38",
        "ok",
    ]


def test_out_then_baseline(measured: list[Measurement], capsys: Captured) -> None:
    assert topo(["bench", "inline", "--json", "--out", "a.json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path("a.json").read_text())
    assert topo(["bench", "inline", "--baseline", "a.json"]) == 0
    measured[0] = replace(RUN, vs_loop=0.1)
    assert topo(["bench", "inline", "--baseline", "a.json"]) == 1
    assert "vs_loop 0.2 -> 0.1 (-50.0%) slower than allowed" in capsys.readouterr().err
    assert topo(["bench", "inline", "--baseline", "a.json", "--tolerance", "60%"]) == 0


def test_a_wrong_result_fails(measured: list[Measurement], capsys: Captured) -> None:
    measured[0] = replace(RUN, verified=False)
    assert topo(["bench", "inline"]) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--baseline", "none.json"], "cannot read none.json: no such file or directory"),
        (["--tolerance", "much"], "--tolerance takes a percentage such as 10%; got 'much'"),
    ],
)
def test_mistakes(
    argv: list[str], message: str, measured: list[Measurement], capsys: Captured
) -> None:
    assert topo(["bench", "inline", *argv]) == 2
    assert message in capsys.readouterr().err


def test_machine_is_plain() -> None:
    json.dumps(asdict(Machine.this()))
