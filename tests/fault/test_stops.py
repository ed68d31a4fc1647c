"""Processes of a run in real-time mode that stand still for a while, and then go on.

A laptop that sleeps, a machine that swaps or a long garbage collection look like that. None of it
is a death: no process is given up, no message fails, and none is emitted again.

TOPO_KILLS=30 stops processes of each kind 30 times, for 5 s; without it, a slot stops for a second.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from tests.fault.exactly_once import check_result
from tests.fault.spark_processes import (
    Job,
    StandaloneCluster,
    command_of,
    moments,
    pause,
    wait_until,
)
from tests.fault.test_spark_kills import (
    A_KILL_SECS,
    KILLS,
    MESSAGES_A_KILL,
    REAL_TIME,
    kills,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.fault,
    pytest.mark.timeout(900 + A_KILL_SECS * KILLS),
]
STOP_SECS = 5.0 if KILLS else 1.0
by_option = pytest.mark.skipif(not KILLS, reason="takes minutes; TOPO_KILLS asks for it")


def stand_still(process: psutil.Process) -> None:
    process.suspend()
    try:
        pause(STOP_SECS)
    finally:
        process.resume()


def stop_some(job: Job, victims: Callable[[], Sequence[psutil.Process]], what: str) -> None:
    """Stop one of these processes now and then; check that all went on as if nothing had been."""
    count = kills(2)
    job.append(MESSAGES_A_KILL)
    for moment in moments(count):
        job.await_commits(2)
        job.append(MESSAGES_A_KILL)
        pause(moment)
        stand_still(random.choice(victims()))
        job.append(MESSAGES_A_KILL)
    job.await_commits(2)
    job.finish()
    result = check_result(job.directory)
    print(f"{count} stops of {what}: {result}")
    assert result["failed"] == 0
    assert result["emitted"] == result["messages"], "nothing started again"


@pytest.mark.parametrize(
    "what", ["slot", *(pytest.param(kind, marks=by_option) for kind in ("driver", "jvm"))]
)
def test_on_one_machine(what: str, tmp_path: Path) -> None:
    with Job(tmp_path, "local[2]", REAL_TIME) as job:

        def victims() -> Sequence[psutil.Process]:
            if what == "slot":
                return job.slot_processes()
            if what == "driver":
                return [psutil.Process(job.process.pid)]
            return [each for each in job.tree() if "SparkSubmit" in command_of(each)]

        stop_some(job, victims, what)


@by_option
def test_on_a_cluster(tmp_path: Path) -> None:
    conf = {
        **REAL_TIME,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
    }
    with (
        StandaloneCluster(tmp_path, cores=4) as cluster,
        Job(tmp_path, cluster.master, conf) as job,
    ):
        wait_until(lambda: len(cluster.executors()) == 2, "two executors")
        stop_some(job, lambda: cluster.executors() + cluster.slot_processes(), "executors")
