"""Slots are killed while tuples go round, and each is counted once.

TOPO_KILLS=100 kills 100 times instead of a few times.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fault.exactly_once import check_result
from tests.fault.spark_processes import Job, kill, wait_until
from tests.fault.test_spark_kills import (
    A_KILL_SECS,
    CONF,
    KILLS,
    MESSAGES_A_KILL,
    REAL_TIME,
    kill_while_it_works,
    kills,
)

pytestmark = [pytest.mark.spark, pytest.mark.fault]
MODULE = "tests.fault.looping"
in_each_mode = pytest.mark.parametrize("conf", [CONF, REAL_TIME], ids=["micro-batch", "real-time"])


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
@in_each_mode
def test_what_goes_round_is_counted_once(conf: dict[str, Any], tmp_path: Path) -> None:
    count = kills(2)
    with Job(tmp_path, "local[2]", conf, MODULE) as job:
        kill_while_it_works(job, count)
    result = check_result(tmp_path, has_windows=False)
    print(f"{count} kills: {result}")
    assert result["emitted"] >= result["messages"] == MESSAGES_A_KILL * (count + 1)


@pytest.mark.timeout(900)
@in_each_mode
def test_without_what_was_saved_of_laps_something_is_missed(
    conf: dict[str, Any], tmp_path: Path
) -> None:
    with Job(tmp_path, "local[2]", conf, "tests.fault.losing_laps") as job:
        job.append(MESSAGES_A_KILL)
        job.await_commits(3)  # they go round
        assert any([*map(kill, job.slot_processes())])
        job.append(MESSAGES_A_KILL)
        wait_until(job.has_ended, "a count that misses one")
        ended = json.loads((tmp_path / "ended.json").read_text(encoding="utf-8"))
    assert ended["status"] == "FAILED"
    assert "lost: " in ended["error"]
