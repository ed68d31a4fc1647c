"""`topo explain --spark`: Spark's plan beside topo's own, and nothing is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topo.cli.root import run
from topo.engine.spark.jvm.session import start_session

pytestmark = pytest.mark.spark

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "word_count.py")


def test_sparks_plan_comes_after_topos_own(capsys: pytest.CaptureFixture[str]) -> None:
    session = start_session("local[*]", {})
    argv = ["explain", EXAMPLE, "--workers", "2", "--spark"]
    assert run(argv) == 0
    shown = capsys.readouterr().out
    own, _, plan = shown.partition("Spark's plan, level 0 at the bottom:\n")
    assert own.startswith("word_count: valid; ")
    tree = plan[: plan.index("\n(1) ")]
    # The last level is drawn first; lines, count and report keep something, split does not.
    stages = [line for line in tree.splitlines() if "TransformWith" in line or "MapIn" in line]
    kinds = [stage.rpartition("- ")[2].split()[0] for stage in stages]
    state, stateless = "TransformWithStateInPySpark", "MapInArrow"
    assert kinds == [state, state, stateless, state]
    assert tree.count("Exchange") == 4  # one before each level
    assert session.streams.active == []

    assert run([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["valid"]
    assert document["spark"].startswith("== Physical Plan ==\n")
