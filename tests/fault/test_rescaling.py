"""A checkpoint goes over other numbers of slots, each time after every process was killed.

TOPO_KILLS=200 moves it 200 times in each mode instead of a few times.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fault.exactly_once import check_result
from tests.fault.spark_processes import Job, moments, pause, wait_until
from tests.fault.test_spark_kills import A_KILL_SECS, CONF, KILLS, MESSAGES_A_KILL, REAL_TIME, kills
from topo.storage.savepoints import read_savepoint

pytestmark = [pytest.mark.spark, pytest.mark.fault]

SLOTS = [2, 3, 1, 4]
PLACES = "local[16]"
"""As many as the most slots have in real-time mode, whatever the machine has."""


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
@pytest.mark.parametrize("conf", [CONF, REAL_TIME], ids=["micro-batch", "real-time"])
def test_other_slots_after_each_kill_of_everything(conf: dict[str, Any], tmp_path: Path) -> None:
    """In the middle of dealing, before the first commit of the new slots, and after some."""
    count = kills(2)
    with Job(tmp_path, PLACES, conf) as job:
        job.append(MESSAGES_A_KILL)
        job.await_commits(2)
        for number, moment in enumerate(moments(count), 1):
            job.append(MESSAGES_A_KILL)
            pause(moment)
            job.kill_tree()
            job.rebalance(SLOTS[number % len(SLOTS)])
            job.start()
            if number % 2:
                job.await_commits(2)
            else:
                pause(12 * random.random())
        job.await_commits(2)
        job.finish()
    check(tmp_path, conf, f"{count} moves after kills")


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
@pytest.mark.parametrize("conf", [CONF, REAL_TIME], ids=["micro-batch", "real-time"])
def test_other_slots_while_it_runs_and_kills_on_the_way(
    conf: dict[str, Any], tmp_path: Path
) -> None:
    """Every other move is let alone; in the others, everything dies at a random moment."""
    count = kills(2)
    with Job(tmp_path, PLACES, conf) as job:
        move_and_kill(job, count, lambda number: job.rebalance(SLOTS[number % len(SLOTS)]))
    check(tmp_path, conf, f"{count} moves, every other killed")


@pytest.mark.timeout(900)
def test_what_was_saved_while_it_ran_is_the_beginning_of_another(tmp_path: Path) -> None:
    """With messages pending, tuples held and watermarks on their way; the rest is done again."""
    with Job(tmp_path, PLACES, CONF) as job:
        job.append(MESSAGES_A_KILL)
        job.await_commits(2)
        job.append(MESSAGES_A_KILL)
        job.await_commits(1)
        job.save(tmp_path / "saved")
        job.append(MESSAGES_A_KILL)
        job.await_commits(1)
        job.kill_tree()
        shutil.rmtree(tmp_path / "checkpoint")
        job.set_conf({"topology.workers": 3, "begin": {"from": str(tmp_path / "saved")}})
        job.start()
        job.await_commits(1)
        job.kill_tree()  # the next one goes on with its own checkpoint
        job.start()
        job.await_commits(1)
        job.finish()
    check(tmp_path, CONF, f"{read_savepoint(tmp_path / 'saved').pending} pending when it was saved")


TASKS = [{"count": 5}, {"count": 2, "panes": 3}, {"count": 1, "panes": 1}, {"count": 4}]


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
@pytest.mark.parametrize("conf", [CONF, REAL_TIME], ids=["micro-batch", "real-time"])
def test_other_tasks_while_it_runs_and_kills_on_the_way(
    conf: dict[str, Any], tmp_path: Path
) -> None:
    """Keyed state, a keyed attribute and windows are dealt; every other time, everything dies."""
    count = kills(4)
    with Job(tmp_path, PLACES, conf, "tests.fault.dealt") as job:
        move_and_kill(job, count, lambda number: job.deal(TASKS[number % len(TASKS)]))
    tasks = TASKS[count % len(TASKS)]["count"]
    check(tmp_path, conf, f"{count} times other tasks, every other killed", tasks)


def move_and_kill(job: Job, count: int, move: Callable[[int], None]) -> None:
    """Make moves, by their numbers from 1, while messages come; kill everything in every other."""
    job.append(MESSAGES_A_KILL)
    job.await_commits(2)
    for number, moment in enumerate(moments(count), 1):
        job.append(MESSAGES_A_KILL)
        pause(moment)
        move(number)
        if number % 2:
            pause(4 * random.random())
            job.kill_tree()
            job.start()
        wait_until(lambda: job.is_rebalanced or job.has_ended(), "the move")
        job.await_commits(1)
    job.finish()


def check(directory: Path, conf: dict[str, Any], what: str, tasks: int = 3) -> None:
    result = check_result(directory, tasks=tasks)
    assert result["failed"] == 0, "the trees survived: no message failed"
    assert result["emitted"] == result["messages"]
    left = sorted(path.name for path in (directory / "checkpoint").glob("topo-gen-*"))
    assert len(left) == (0 if conf == REAL_TIME else 1), "one generation is whole, no other is left"
    print(f"{what}: {result}")
