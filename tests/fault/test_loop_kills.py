"""Slots are killed while tuples go round, and each is counted once.

TOPO_KILLS=100 kills 100 times instead of a few times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.exactly_once import check_result
from tests.fault.spark_processes import Job, moments, pause, wait_until
from tests.fault.test_spark_kills import (
    A_KILL_SECS,
    CONF,
    KILLS,
    MESSAGES_A_KILL,
    kill_some,
    kills,
)

pytestmark = [pytest.mark.spark, pytest.mark.fault]
MODULE = "tests.fault.looping"


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
@pytest.mark.parametrize("whole", [False, True])
def test_what_goes_round_is_counted_once(whole: bool, tmp_path: Path) -> None:
    count = kills(3)
    with Job(tmp_path, "local[2]", CONF, MODULE) as job:
        job.append(MESSAGES_A_KILL)
        for moment in moments(count):
            job.await_commits(2)
            job.append(MESSAGES_A_KILL)
            pause(moment)
            if whole:
                job.kill_tree()
                job.start()
            else:
                wait_until(lambda: kill_some(job.slot_processes()), "slot processes")
        job.await_commits(2)
        job.finish()
    result = check_result(tmp_path, has_windows=False)
    assert result["emitted"] >= result["messages"] == MESSAGES_A_KILL * (count + 1)
