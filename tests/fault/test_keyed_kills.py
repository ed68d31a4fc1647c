"""Processes are killed that have an instance for each key, and nothing of one is lost or doubled.

TOPO_KILLS=100 kills 100 times in each mode instead of a few times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fault import keyed
from tests.fault.spark_processes import Job, kill
from tests.fault.test_spark_kills import (
    A_KILL_SECS,
    CONF,
    KILLS,
    MESSAGES_A_KILL,
    REAL_TIME,
    kill_while_it_works,
    kills,
)
from tests.fault.test_watching import site_that

pytestmark = [pytest.mark.spark, pytest.mark.fault]

DROPPED = {
    "instances": "from topo.keyed.operator import KeyedOperator as Dropping",
    "timers": "from topo.keyed.timers import Timers as Dropping",
}


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
@pytest.mark.parametrize("conf", [CONF, REAL_TIME], ids=["micro-batch", "real-time"])
def test_what_instances_of_keys_know_is_of_each_tuple_once(
    conf: dict[str, Any], tmp_path: Path
) -> None:
    count = kills(2)
    with Job(tmp_path, "local[2]", conf, keyed.__name__) as job:
        kill_while_it_works(job, count)
    result = keyed.check_result(tmp_path)
    print(f"{count} kills: {result}")
    assert result["emitted"] >= result["messages"] == MESSAGES_A_KILL * (count + 1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", DROPPED)
def test_what_is_dropped_of_instances_shows(what: str, tmp_path: Path) -> None:
    drops = f"{DROPPED[what]}\n\nDropping.load = lambda *saved: None\n"
    site = site_that(tmp_path, drops=drops)
    with Job(tmp_path, "local[2]", CONF, keyed.__name__, paths=[site]) as job:
        held = tmp_path / keyed.HELD
        held.touch()
        job.append(MESSAGES_A_KILL)
        job.await_commits()  # timers are set, and tell nothing yet
        assert any([*map(kill, job.slot_processes())])
        held.unlink()
        job.append(MESSAGES_A_KILL)
        with pytest.raises(AssertionError):
            finish(job)


def finish(job: Job) -> dict[str, int]:
    """Have the job finish, and check its result."""
    job.await_commits(2)
    job.finish()
    return keyed.check_result(job.directory)
