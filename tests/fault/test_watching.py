"""Processes die while patterns are open, rules count and models learn, and no record is lost.

TOPO_KILLS=100 kills 100 times in each mode instead of a few times. The records are compared, one by
one, with plain loops over the log. Other tests see that state shows that is dropped at a restart.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.fault import watching
from tests.fault.spark_processes import ROOT, Job
from tests.fault.test_slots import (
    KILLS,
    count_over_deaths,
    is_found_out,
    kill_before_it_is_committed,
)
from tests.fault.test_spark_kills import CONF, REAL_TIME, kill_while_it_works, kills

pytestmark = pytest.mark.fault

DROPPED = {
    "patterns": """
from topo.patterns.saving import SavedMatches

load = SavedMatches.load
SavedMatches.load = lambda self, saved, watermark, machine: load(self, {}, watermark, machine)
""",
    "rules": """
from topo.rules.counting import KeyCounts

KeyCounts.load = lambda self, saved: None
""",
    "learning": """
from topo.learning.memory import Learners

Learners.load = lambda self, saved, *rest: None
""",
}


def site_that(directory: Path, drops: str) -> Path:
    """Return a directory whose `sitecustomize` drops some state at each restart."""
    site = directory / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(drops)
    return site


@pytest.mark.timeout(120 + 10 * KILLS)
def test_matches_alerts_and_models_are_those_of_plain_loops_whoever_dies(tmp_path: Path) -> None:
    figures = count_over_deaths(tmp_path, KILLS, job=watching)
    print(f"{KILLS} kills: {figures}")
    assert figures["failed"] == 0


@pytest.mark.parametrize("what", DROPPED)
def test_state_that_is_dropped_at_a_restart_shows(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_that(tmp_path, drops=DROPPED[what])
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{ROOT}")
    assert is_found_out(tmp_path, kill_before_it_is_committed, monkeypatch, watching)


def watch_over_kills(directory: Path, conf: dict[str, Any], count: int, **options: Any) -> None:
    """Kill slots, and every fifth time all processes, while the job works; check its records."""
    with Job(directory, "local[2]", conf, watching.__name__, **options) as job:
        kill_while_it_works(job, count)
    figures = watching.check_result(directory)
    print(f"{count} kills: {figures}")
    assert figures["failed"] == 0


@pytest.mark.spark
@pytest.mark.timeout(900 + 60 * kills(0))
@pytest.mark.parametrize("conf", [CONF, REAL_TIME], ids=["micro-batch", "real-time"])
def test_slots_and_drivers_on_spark(conf: dict[str, Any], tmp_path: Path) -> None:
    watch_over_kills(tmp_path, conf, kills(2))


@pytest.mark.spark
def test_state_that_is_dropped_shows_in_micro_batches_too(tmp_path: Path) -> None:
    site = site_that(tmp_path, drops=random.choice(list(DROPPED.values())))
    with pytest.raises(AssertionError):
        watch_over_kills(tmp_path, CONF, 3, paths=[site])


def test_the_plain_loops_find_every_kind_of_record() -> None:
    keys = [f"k{number * number % 17}" for number in range(600)]
    kinds = {record[0] for record in watching.wanted_records(keys)}
    ways = {f"{name} {stream}" for name in ("pairs", "loops") for stream in ("default", "out")}
    assert kinds == {*ways, "absent default", "rules alerts", "learn default", "learn evaluation"}
