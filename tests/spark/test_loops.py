"""Loops on Spark, in each mode: a few of the cases that `tests/parity` runs inline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.loop_doubles import Countdown, Doubling, Passing, by_itself, countdown
from tests.spark.doubles import LONGEST_SECS, WORKERS, wait_until
from topo import ConfigError, LocalCluster, Spout
from topo.engine.spark.driver.run import SparkRun
from topo.errors import TopoError
from topo.running import ACTIVE, KILLED, ComponentStats

pytestmark = [
    pytest.mark.spark,
    pytest.mark.of_batches,  # the tests name the modes themselves
    pytest.mark.filterwarnings("ignore:topology.epoch.ms is 0"),
]

MODES = [
    pytest.param({"topology.mode": "micro-batch"}, id="micro-batch"),
    pytest.param({"topology.mode": "real-time"}, id="real-time"),
    pytest.param({"topology.mode": "real-time", "topology.epoch.ms": 0}, id="at-once"),
]


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
@pytest.mark.parametrize("conf", MODES)
def test_a_countdown_is_completed_after_its_last_lap(
    cluster: LocalCluster, conf: dict[str, Any], tracked: bool
) -> None:
    topology = countdown(Numbers(2, 7, 4, tracked=tracked), tasks=3)
    run = cluster.submit_topology("countdown", topology, {**WORKERS, **conf}, capture=["a"])
    run.await_completion(LONGEST_SECS)
    assert counted(run) == sorted([*range(3), *range(8), *range(5)])
    stats = run.stats().components
    assert stats["s"].acked == (3 if tracked else 0)
    assert stats["a"].looping == 0


@pytest.mark.parametrize("conf", MODES)
def test_a_loop_without_end_is_named(cluster: LocalCluster, conf: dict[str, Any]) -> None:
    topology = by_itself(Numbers(1, tracked=False), Passing())
    run = cluster.submit_topology("endless", topology, {**WORKERS, **conf})
    while not run.stats().components.get("a") or not run.stats().components["a"].looping:
        assert not run.wait(0.05), run.reason
    while "round" not in run.reason:
        assert not run.wait(0.05), run.reason
    with pytest.raises(TimeoutError, match="1 tuple goes round from 'a' to 'a'"):
        run.await_completion(0)
    assert run.status == ACTIVE
    assert run.stats().components["a"].looping == 1
    run.kill()


@pytest.mark.parametrize("conf", MODES)
def test_a_loop_that_multiplies_fails_by_name(cluster: LocalCluster, conf: dict[str, Any]) -> None:
    conf = {**WORKERS, **conf, "topology.loop.max.mb": 1}
    numbers = [1] * 2000
    topology = by_itself(Numbers(*numbers, tracked=False), Doubling())
    run = cluster.submit_topology("multiplies", topology, conf)
    with pytest.raises(TopoError, match="go round from 'a' to 'a'") as failed:
        run.await_completion(LONGEST_SECS)
    assert failed.value.code == "loop-grows"


@pytest.mark.parametrize(("mode", "laps"), [("micro-batch", 20), ("real-time", 500)])
def test_a_kill_with_laps_under_way_is_resumed(mode: str, laps: int, tmp_path: Path) -> None:
    conf = {
        **WORKERS,
        "topology.mode": mode,
        "topology.checkpoint.dir": str(tmp_path / "checkpoint"),
    }
    topology = countdown(Numbers(laps), Countdown())
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
        assert len(run.tuples("a")) >= 5
    assert rows == list(range(laps, -1, -1))
    assert run.stats().components["s"].acked == 1


@pytest.mark.parametrize(("mode", "laps"), [("micro-batch", 10), ("real-time", 200)])
def test_a_drain_waits_for_the_last_lap(cluster: LocalCluster, mode: str, laps: int) -> None:
    topology = countdown(Numbers(laps, tracked=False), Countdown())
    run = cluster.submit_topology("drained", topology, WORKERS, mode=mode, capture=["a"])
    wait_until(lambda: len(run.tuples("a")) > 2, "laps")
    run.kill(LONGEST_SECS)
    assert run.wait(LONGEST_SECS)
    assert run.status == KILLED
    assert counted(run) == list(range(laps + 1))


class Texts(Spout):
    """Emits texts of 10 kB without end."""

    outputs = ("n",)

    def next_tuple(self) -> None:
        self.emit(["x" * 10_000])


@pytest.mark.parametrize("conf", MODES)
def test_spouts_wait_while_much_goes_round(cluster: LocalCluster, conf: dict[str, Any]) -> None:
    limits = {"topology.loop.max.mb": 32, "topology.batch.max.tuples": 50, "topology.workers": 1}
    run = cluster.submit_topology("full", by_itself(Texts(), Passing()), {**conf, **limits})

    def figures() -> Any:
        return run.stats().components.get("a", ComponentStats("bolt", 1))

    wait_until(lambda: figures().looping > 100, "1 MB")  # a thirty-second part
    before = figures().executed
    wait_until(lambda: figures().executed > before + 2_000, "many laps")
    assert run.status == ACTIVE, run.reason  # and has not failed by 32 MB
    assert 100 < figures().looping < 1000
    run.kill()


def test_where_a_loop_does_not_run_it_is_refused() -> None:
    topology = countdown(Numbers(1))
    for named in ("micro-batch", "real-time"):
        with pytest.raises(ConfigError, match=r"local\[\*\]"):
            SparkRun("t", topology, {"topology.mode": named}, master="spark://m:7077")
