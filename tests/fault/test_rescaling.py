"""A checkpoint goes over other numbers of slots, each time after every process was killed.

TOPO_KILLS=200 moves it 200 times in each mode instead of a few times.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fault.exactly_once import check_result
from tests.fault.spark_processes import PATIENCE_SECS, Job, moments, pause, wait_until
from tests.fault.test_spark_kills import A_KILL_SECS, CONF, KILLS, MESSAGES_A_KILL, REAL_TIME, kills
from topo.storage.checkpoints import GENERATIONS, PLAN_FILE, generation_in, slots_in
from topo.storage.savepoints import read_savepoint
from topo.tracking.clock import monotonic

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


class Steps:
    """The steps of moves, as the checkpoint of a job tells them."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._checkpoint = job.directory / "checkpoint"
        self.before = self._plan()
        self._commits = job.commits()

    def _plan(self) -> bytes:
        return (self._checkpoint / PLAN_FILE).read_bytes()

    def step(self) -> str:
        """Return the step that the move is at, since these were made."""
        if self._plan() == self.before:
            following = generation_in(self.before).number + 1
            written = (self._checkpoint / f"{GENERATIONS}{following}").exists()
            return "writing" if written else "asked"
        if self._job.is_real_time:
            return "committed" if self._job.commits() > self._commits + 1 else "renamed"
        place = self._checkpoint / generation_in(self._plan()).place / "commits"
        return "committed" if place.exists() and any(place.iterdir()) else "renamed"

    def await_step(self, name: str) -> None:
        deadline = monotonic() + PATIENCE_SECS
        while STEPS.index(self.step()) < STEPS.index(name):
            assert not self._job.has_ended(), self._job.words()
            assert monotonic() < deadline, f"the move does not come to be {name}"
            pause(0.002)


STEPS = ["asked", "writing", "renamed", "committed"]
A_STEP_SECS = 4 * A_KILL_SECS


@pytest.mark.timeout(900 + A_STEP_SECS * KILLS)
@pytest.mark.parametrize(
    ("conf", "steps"),
    [(CONF, STEPS), (REAL_TIME, ["asked", "renamed", "committed"])],
    ids=["micro-batch", "real-time"],
)
def test_everything_dies_at_each_step_of_a_move(
    conf: dict[str, Any], steps: list[str], tmp_path: Path
) -> None:
    """Afterwards the checkpoint is whole in the old slots before the rename, in the new ones after.

    So the next driver begins what was asked anew, or has it behind it. TOPO_KILLS kills so many
    times at each step.
    """
    hits: Counter[str] = Counter()
    with Job(tmp_path, PLACES, conf) as job:
        job.append(MESSAGES_A_KILL)
        job.await_commits(2)
        rounds = [step for _ in range(kills(1)) for step in steps]
        for number, step in enumerate(rounds, 1):
            job.append(MESSAGES_A_KILL)
            move = Steps(job)
            slots = SLOTS[number % len(SLOTS)]
            job.rebalance(slots)
            move.await_step(step)
            if step == "asked":
                pause(random.random())
            job.kill_tree()
            hits[at := move.step()] += 1
            plan = (tmp_path / "checkpoint" / PLAN_FILE).read_bytes()
            assert (plan == move.before) == (at in ("asked", "writing"))
            assert plan == move.before or slots_in(plan) == slots
            job.start()
            wait_until(lambda: job.is_rebalanced or job.has_ended(), "the move")
            job.await_commits(1)
            assert slots_in((tmp_path / "checkpoint" / PLAN_FILE).read_bytes()) == slots
        job.finish()
    check(tmp_path, conf, f"killed at {dict(hits)}")
    assert {"asked", "writing"} & hits.keys(), "some before the rename"
    assert {"renamed", "committed"} & hits.keys(), "and some after it"


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
