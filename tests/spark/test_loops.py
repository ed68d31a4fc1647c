"""Loops in micro-batches: a few of the cases that `tests/parity` runs on the inline engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.loop_doubles import Countdown, Doubling, Passing, by_itself, countdown
from tests.spark.doubles import LONGEST_SECS, WORKERS
from topo import ConfigError, LocalCluster, Spout
from topo.engine.spark.driver.run import SparkRun
from topo.errors import TopoError
from topo.running import ACTIVE, KILLED

pytestmark = [pytest.mark.spark, pytest.mark.of_batches]


class Numbers(Spout):
    """Emits these numbers, and then waits for their acks."""

    outputs = ("n",)

    def __init__(self, *numbers: int, tracked: bool = True) -> None:
        self.left = list(numbers)
        self.tracked = tracked

    def next_tuple(self) -> None:
        if self.left:
            number = self.left.pop()
            self.emit([number], msg_id=number if self.tracked else None)

    def is_exhausted(self) -> bool:
        return not self.left


def counted(run: Any) -> list[int]:
    return sorted(n for (n,) in run.tuples("a"))


@pytest.mark.parametrize("tracked", [True, False])
def test_a_countdown_is_completed_after_its_last_lap(cluster: LocalCluster, tracked: bool) -> None:
    topology = countdown(Numbers(2, 7, 4, tracked=tracked), tasks=3)
    run = cluster.submit_topology("countdown", topology, WORKERS, capture=["a"])
    run.await_completion(LONGEST_SECS)
    assert counted(run) == sorted([*range(3), *range(8), *range(5)])
    stats = run.stats().components
    assert stats["s"].acked == (3 if tracked else 0)
    assert stats["a"].looping == 0


def test_a_loop_without_end_is_named(cluster: LocalCluster) -> None:
    topology = by_itself(Numbers(1, tracked=False), Passing())
    run = cluster.submit_topology("endless", topology, WORKERS)
    while not run.stats().components.get("a") or not run.stats().components["a"].looping:
        assert not run.wait(0.05), run.reason
    while "round" not in run.reason:
        assert not run.wait(0.05), run.reason
    with pytest.raises(TimeoutError, match="1 tuple goes round from 'a' to 'a'"):
        run.await_completion(0)
    assert run.status == ACTIVE
    assert run.stats().components["a"].looping == 1
    run.kill()


def test_a_loop_that_multiplies_fails_by_name(cluster: LocalCluster) -> None:
    conf = {**WORKERS, "topology.loop.max.mb": 1}
    numbers = [1] * 2000
    topology = by_itself(Numbers(*numbers, tracked=False), Doubling())
    run = cluster.submit_topology("multiplies", topology, conf)
    with pytest.raises(TopoError, match="go round from 'a' to 'a'") as failed:
        run.await_completion(LONGEST_SECS)
    assert failed.value.code == "loop-grows"


def test_a_kill_with_laps_under_way_is_resumed(tmp_path: Path) -> None:
    conf = {**WORKERS, "topology.checkpoint.dir": str(tmp_path / "checkpoint")}
    topology = countdown(Numbers(20), Countdown())
    rows: list[int] = []
    for last in (False, True):
        run = SparkRun("killed", topology, conf, capture=["a"]).start()
        if last:
            run.await_completion(LONGEST_SECS)
        else:
            while len(run.tuples("a")) < 5 and not run.wait(0.05):
                pass
            run.kill(0)
            assert run.wait(LONGEST_SECS)
            assert run.status == KILLED
        rows += [n for (n,) in run.tuples("a")]
    assert rows == list(range(20, -1, -1))
    assert run.stats().components["s"].acked == 1


def test_where_a_loop_does_not_run_it_is_refused() -> None:
    topology = countdown(Numbers(1))
    with pytest.raises(ConfigError, match="micro-batch"):
        SparkRun("t", topology, {"topology.mode": "real-time"})
    with pytest.raises(ConfigError, match=r"local\[\*\]"):
        SparkRun("t", topology, master="spark://m:7077")
