"""Processes of a run on Spark are killed at random moments, and nothing is lost or comes twice.

TOPO_KILLS=300 kills 300 times in each test instead of a few times.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fault.acker_process import AckerProcess
from tests.fault.exactly_once import check_result
from tests.fault.spark_processes import Job, StandaloneCluster, kill, moments, pause, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.fault]

KILLS = int(os.environ.get("TOPO_KILLS", "0"))
A_KILL_SECS = 60
MESSAGES_A_KILL = 60
CONF: dict[str, Any] = {
    "topology.workers": 2,
    "topology.batch.target.ms": 200,
    "topology.batch.max.tuples": 300,
    "topology.batch.idle.ms": 500,
    "topology.message.timeout.secs": 600,
    "topology.restart.max": 50,
}


REAL_TIME: dict[str, Any] = {**CONF, "topology.mode": "real-time"}


def kills(few: int) -> int:
    """Return how often a test kills: `few`, as often as it has kinds of kills, by default."""
    return KILLS or few


def kill_some(processes: list[psutil.Process]) -> bool:
    """Some of them, or all; whether there was one to be killed."""
    chosen = random.sample(processes, random.randint(1, len(processes))) if processes else []
    return any([*map(kill, chosen)])


def kill_while_it_works(job: Job, count: int) -> None:
    """Kill slots, and every fifth time all processes, while messages come; then let it finish."""
    job.append(MESSAGES_A_KILL)
    job.await_commits()
    for number, moment in enumerate(moments(count), 1):
        job.append(MESSAGES_A_KILL)
        pause(moment)
        if number % 5 == 2:
            job.kill_tree()
            job.start()
        else:
            wait_until(lambda: kill_some(job.slot_processes()) or job.has_ended(), "a slot")
        job.await_commits()
    job.finish()


def told(directory: Path, what: str, count: int) -> dict[str, int]:
    """Check the result, and say what was done."""
    result = check_result(directory)
    figures = ", ".join(f"{name} {number}" for name, number in result.items())
    print(f"{count} kills of {what}: {figures}")
    return result


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
@pytest.mark.parametrize(
    ("victims", "conf"),
    [
        # All frames go by files: what the dead have left must stay readable.
        ("slot_processes", {**CONF, "topology.batch.file.bytes": 0}),
        ("python_workers", CONF),
        ("slot_processes", REAL_TIME),
    ],
)
def test_processes_of_a_slot(victims: str, conf: dict[str, Any], tmp_path: Path) -> None:
    count = kills(2)
    with Job(tmp_path, "local[2]", conf) as job:
        job.append(MESSAGES_A_KILL)
        for moment in moments(count):
            job.await_commits()
            job.append(MESSAGES_A_KILL)
            pause(moment)
            wait_until(lambda: kill_some(getattr(job, victims)()), victims)
        job.await_commits()
        job.finish()
    told(tmp_path, victims, count)


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
@pytest.mark.parametrize("conf", [{**CONF, "topology.batch.file.bytes": 0}, REAL_TIME])
def test_the_whole_driver_twice_in_a_row_and_again_from_its_checkpoint(
    conf: dict[str, Any], tmp_path: Path
) -> None:
    count = kills(3)
    with Job(tmp_path, "local[2]", conf) as job:
        job.append(MESSAGES_A_KILL)
        for number, moment in enumerate(moments(count)):
            if number == 0:  # in the very first batch
                wait_until(job.has_begun, "the first batch")
            elif number % 2:
                job.await_commits(2)
            else:  # before or just after the one that was started again commits anything
                pause(8 * random.random())
            job.append(MESSAGES_A_KILL)
            pause(moment)
            job.kill_tree()
            job.start()
        job.await_commits()
        job.finish()
    result = told(tmp_path, "the driver", count)
    assert result["failed"] == 0, "the trees survived: no message failed for the driver's death"
    assert result["emitted"] == result["messages"]


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
def test_a_driver_whose_ackers_outlive_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("let me in\n")
    with AckerProcess("--token-file", str(token)) as first, AckerProcess() as second:
        outside = {
            "topology.acker.addresses": [first.address, second.address],
            "topology.acker.token.file": str(token),
        }
        with Job(tmp_path, "local[2]", {**CONF, **outside}) as job:
            job.append(MESSAGES_A_KILL)
            job.await_commits(2)
            job.append(MESSAGES_A_KILL)
            job.kill_tree()
            job.start()
            job.await_commits()
            job.finish()
        assert first.process.poll() is None
    result = told(tmp_path, "the driver", 1)
    assert result["failed"] == 0, "the ackers knew the messages: none failed"
    assert result["emitted"] == result["messages"]


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
def test_executors_of_a_cluster_at_any_level_and_with_their_shuffle_files(tmp_path: Path) -> None:
    count = kills(2)
    conf = {
        **CONF,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.deploy.maxExecutorRetries": 10_000,
    }
    with StandaloneCluster(tmp_path) as cluster, Job(tmp_path, cluster.master, conf) as job:
        job.append(MESSAGES_A_KILL)
        for number, moment in enumerate(moments(count)):
            job.await_commits()
            wait_until(lambda: len(cluster.executors()) == 2, "two executors")
            marks = [*tmp_path.glob("counting-*")]
            for mark in marks:
                mark.unlink()
            job.append(MESSAGES_A_KILL)
            if number % 2:
                pause(moment)
            else:  # the last level is at work, on what the first ones left in shuffle files
                wait_until(lambda: any(tmp_path.glob("counting-*")), "the last level at work")
                pause(moment / 10)
            kill(random.choice(cluster.executors()))
        job.await_commits()
        job.finish()
    told(tmp_path, "executors", count)
