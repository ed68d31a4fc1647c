"""The reports of a run on a cluster about its executors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from topo.engine.shapes import Executor
from topo.engine.spark.driver.executors import LOOK_SECS, Executors, ends_in

NEVER: Callable[[], bool] = lambda: False  # noqa: E731


class Cluster:
    """Gives executors; a look or a pause takes time."""

    def __init__(self, *given: Sequence[Executor]) -> None:
        self.given = list(given)
        self.now = 0.0
        self.looks = 0

    def look(self) -> Sequence[Executor]:
        self.looks += 1
        return self.given.pop(0) if len(self.given) > 1 else self.given[0]

    def sleep(self, secs: float) -> None:
        self.now += secs

    def executors(self, wanted: int | None = None) -> Executors:
        return Executors(self.look, lambda: self.now, wanted)


def running(slots: int, *known: Executor, wanted: int | None = None) -> Executors:
    """With so many slots, and then these executors; with none, still waiting for more."""
    cluster = Cluster([Executor(each.cores) for each in known] or [Executor(1)])
    executors = cluster.executors(wanted)
    if slots:
        executors.wait_for_cores(NEVER, cluster.sleep)
        executors.slots = slots
    cluster.given = [known]
    executors.look()
    return executors


ONE = Executor(1)
LOST = Executor(1, lost_at=time.mktime((2026, 11, 18, 9, 41, 7, 0, 0, -1)))


@pytest.mark.parametrize(
    ("executors", "reason", "are_gone"),
    [
        (running(2, ONE, ONE), "", False),
        (running(2, ONE, LOST), "1 of 2 executors lost since 09:41; 2 slots share 1 core", False),
        (running(2, LOST, ONE, ONE), "", False),
        (
            running(2, LOST, LOST),
            "2 of 2 executors lost since 09:41; nothing runs until the cluster gives another",
            True,
        ),
        (
            running(4, Executor(2), Executor(2, LOST.lost_at)),
            "1 of 2 executors lost since 09:41; 4 slots share 2 cores",
            False,
        ),
        (running(2, ONE), "1 core for 2 slots: one after the other", False),
        (running(1, ONE, wanted=3), "1 slot of 3: the cluster gave no more", False),
        (running(0, ONE, wanted=3), "waiting for executors: 1 of 3 cores so far", False),
        (
            running(0, wanted=3),
            "waiting for executors: 0 of 3 cores so far; is the cluster full, or "
            "spark.executor.memory more than its workers have?",
            False,
        ),
    ],
)
def test_what_is_missing_is_said(executors: Executors, reason: str, are_gone: bool) -> None:
    assert (executors.reason, executors.are_gone) == (reason, are_gone)


def test_as_many_as_are_wanted_are_waited_for() -> None:
    cluster = Cluster([], [ONE], [ONE, ONE], [ONE, ONE, ONE])
    assert cluster.executors(2).wait_for_cores(NEVER, cluster.sleep) == 2
    assert cluster.now < 1


def test_without_a_wish_it_takes_what_has_come_when_no_more_comes() -> None:
    cluster = Cluster([], [], [ONE], [ONE, ONE])
    assert cluster.executors().wait_for_cores(NEVER, cluster.sleep) == 2
    assert 2 < cluster.now < 5


def test_fewer_than_wanted_are_taken_after_a_while_and_none_never() -> None:
    cluster = Cluster([ONE])
    assert cluster.executors(2).wait_for_cores(NEVER, cluster.sleep) == 1
    assert cluster.now > 29
    full = Cluster([])
    assert full.executors(2).wait_for_cores(lambda: full.now > 1000, full.sleep) == 0


def test_the_slots_of_a_checkpoint_do_not_wait_for_their_cores() -> None:
    cluster = Cluster([ONE])
    executors = cluster.executors(2)
    executors.slots = 2
    assert executors.wait_for_cores(NEVER, cluster.sleep) == 1
    assert cluster.now < 5
    assert executors.reason == "1 core for 2 slots: one after the other"


def test_a_slot_that_waits_gives_its_core_to_one_that_has_none() -> None:
    executors = running(2, ONE, LOST)
    clock = iter([0.0, 0.5, 1.1, 1.2, 2.0, 2.5])
    executors._monotonic = lambda: next(clock)
    assert not executors.idle_slots_block_others(7, waiting=1)
    assert not executors.idle_slots_block_others(7, waiting=1)
    assert executors.idle_slots_block_others(7, waiting=1)
    assert not executors.idle_slots_block_others(8, waiting=1)
    assert not executors.idle_slots_block_others(8, waiting=0)
    assert not executors.idle_slots_block_others(8, waiting=1)
    assert not running(2, ONE, ONE).idle_slots_block_others(7, waiting=2)


def test_spark_is_not_asked_all_the_time() -> None:
    cluster = Cluster([ONE])
    executors = cluster.executors()
    for _ in range(10):
        executors.look()
    assert cluster.looks == 1
    cluster.now += 1
    executors.look()
    assert cluster.looks == 2


def all_at_once(*known: Executor) -> Executors:
    """As real-time mode has it: six tasks, on what settled as two executors of four cores."""
    cluster = Cluster([Executor(4), Executor(4)])
    executors = Executors(cluster.look, lambda: cluster.now, 6, at_once=True)
    assert executors.wait_for_cores(NEVER, cluster.sleep) == 8
    executors.slots = 6
    cluster.given = [known]
    cluster.now += 10
    executors.look()
    return executors


def test_tasks_that_run_all_at_once_wait_for_all_of_their_places() -> None:
    there, lost = Executor(4), Executor(4, lost_at=LOST.lost_at)
    assert (all_at_once(there, there).reason, all_at_once(there, there).are_gone) == ("", False)
    short = all_at_once(there, lost)
    assert short.are_gone
    said = "1 of 2 executors lost since 09:41; nothing runs until the cluster gives another"
    assert short.reason == said
    assert not short.idle_slots_block_others(3, 1)
    assert all_at_once(there).reason == "4 cores for 6 tasks at the same time"


def test_where_fewer_will_not_do_executors_have_more_time() -> None:
    cluster = Cluster([Executor(4)])
    executors = Executors(cluster.look, lambda: cluster.now, 6, at_once=True)
    assert executors.wait_for_cores(NEVER, cluster.sleep) == 4
    assert 55 < cluster.now < 65


UPDATED = (
    "26/11/18 09:41:07 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-1/{} is now "
    "EXITED (Command exited with code 1)\n"
)


def test_executors_that_never_reach_the_driver_are_counted_in_the_words_of_the_master(
    tmp_path: Path,
) -> None:
    log = tmp_path / "spark.log"
    log.write_text(UPDATED.format(0) * 9)  # of an earlier start
    cluster = Cluster([])
    executors = Executors(
        cluster.look, lambda: cluster.now, 3, ends=ends_in(log), driver="laptop:4040"
    )
    full = "waiting for executors: 0 of 3 cores so far; is the cluster full"
    with log.open("a") as file:
        for number in range(3):
            assert executors.reason.startswith(full)
            file.write(UPDATED.format(number))
            file.flush()
    assert executors.reason == (
        "waiting for executors: 0 of 3 cores so far; 3 executors ended at once: Command exited "
        "with code 1; can the workers reach the driver at laptop:4040? set spark.driver.host"
    )
    log.unlink()
    assert executors.reason.startswith(full)
    assert list(ends_in(None)()) == []


def test_an_executor_that_ends_again_and_again_is_told_of_with_its_host() -> None:
    ends = [Executor(1, LOST.lost_at, "w1:4041", "Command exited with code 137")] * 3
    assert "3 executors ended at once: Command exited with code 137 on w1:4041; can" in (
        running(0, *ends, wanted=3).reason
    )


def test_where_tasks_are_that_do_not_end_is_told() -> None:
    """The acker has heard of all of them; the host that is gone cannot say that it has ended."""
    silent = Executor(1, place="w2:4041", tasks=1)
    assert running(2, ONE, silent).in_work == "tasks are with the executors at w2:4041"
    assert running(2, ONE, ONE).in_work == ""
    assert running(2, Executor(1, LOST.lost_at, "w2:4041", tasks=1), ONE, ONE).in_work == ""


def test_a_loss_is_counted_by_what_there_was() -> None:
    large, lost = Executor(4), Executor(4, lost_at=LOST.lost_at)
    said = "1 of 2 executors lost since 09:41; 7 slots share 4 cores"
    assert running(7, large, lost).reason == said


def test_a_slot_is_where_it_is_executed_or_was_until_its_executor_is_lost() -> None:
    there, other = Executor(2, place="w1:1"), Executor(2, place="w2:2")
    now: dict[int, frozenset[str]] = {0: frozenset({"w1:1"}), 1: frozenset({"w1:1", "w2:2"})}
    cluster = Cluster([there, other])
    executors = Executors(cluster.look, lambda: cluster.now, doing=lambda: now)
    executors.look()
    assert [each.slots for each in executors.placed()] == [(0, 1), (1,)]
    now = {1: frozenset({"w2:2"})}
    assert [each.slots for each in executors.placed()] == [(0, 1), (1,)]  # not asked so soon
    cluster.now += LOOK_SECS
    assert [each.slots for each in executors.placed()] == [(0,), (1,)]
    now = {}  # between batches
    cluster.now += LOOK_SECS
    assert [each.slots for each in executors.placed()] == [(0,), (1,)]
    executors.known = [Executor(2, LOST.lost_at, "w1:1"), other]
    assert [each.slots for each in executors.placed()] == [(), (1,)]
