"""What a driver does by the rules on slots: its looks, its steps, and what it leaves behind."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.ui.worlds import word_count
from topo.config import Config
from topo.engine.base import Launch
from topo.errors import RunError
from topo.manage.autoscaling import FILE, Autoscaling, Measure, lag_of, rules_of
from topo.metrics.figures import BatchRecord, BatchStats, ComponentStats, RunStats

CONF: dict[str, Any] = {
    "topology.workers.min": 1,
    "topology.workers.max": 4,
    "topology.scale.secs": 1,
    "topology.scale.window.secs": 5,
    "topology.scale.up.secs": 2,
    "topology.scale.down.secs": 9,
    "topology.scale.rest.secs": 4,
}


class StandIn:
    """A run whose figures are those of the test."""

    drpc = None

    def __init__(self) -> None:
        self.status, self.slots, self.task_ids = "ACTIVE", 1, None
        self.is_rebalancing, self.rebalance_failure = False, ""
        self.emitted, self.worked, self.lag = 0, 0.0, 0.0
        self.busy: dict[int, float] = {}

    def rebalance(self, workers: int | None, tasks: Any = None, *, explain: bool = False) -> Any:
        return {}

    def stats(self) -> RunStats:
        spout = ComponentStats("spout", 1, emitted=self.emitted, gauges={"lag": self.lag})
        spout = replace(spout, by_task={5: spout})
        bolts = {}
        for name, tasks in (("bolt0", (1, 2)), ("bolt1", (3, 4))):
            by_task = {
                task: ComponentStats(
                    "bolt", 1, executed=10, execute_ms=100 * self.busy.get(task, 0.0)
                )
                for task in tasks
            }
            bolts[name] = ComponentStats("bolt", 2, by_task=by_task)
        batch = BatchStats(count=3, worked_secs=self.worked)
        return RunStats("words", "ACTIVE", "", 1.0, "all", batch, {"words": spout, **bolts})

    def batches(self) -> list[BatchRecord]:
        return [BatchRecord(1, 0.0, 150.0, 100.0, 10)]


class Bench:
    """A driver's part, with a clock of its own."""

    def __init__(self, directory: Path, **conf: Any) -> None:
        self.directory, self.now, self.asked_for = directory, 1000.0, list[int]()
        self.conf = {**CONF, **conf}
        self.run: Any = StandIn()
        self.refusal = ""
        self.begin()

    def begin(self) -> None:
        launch = Launch("words", word_count(), self.conf, master="local[4]")
        self.scaling = Autoscaling(self.directory, launch, self.rebalance, lambda: self.now)

    def rebalance(self, slots: int) -> None:
        if self.refusal:
            raise RunError(self.refusal)
        assert json.loads((self.directory / FILE).read_text())["decisions"][-1]["to"] == slots
        self.asked_for.append(slots)
        self.run.is_rebalancing = True

    def pass_secs(self, secs: int, *, rate: int = 100, busy: float = 1.0, more: int = 100) -> None:
        for _ in range(secs):
            self.now += 1
            self.run.emitted += rate
            self.run.worked += busy
            self.run.lag += more
            self.scaling.follow(self.run)

    def arrive(self, failure: str = "") -> None:
        self.run.is_rebalancing, self.run.rebalance_failure = False, failure
        if not failure:
            self.run.slots = self.asked_for[-1]
        self.scaling.settle(self.run)


def test_a_step_is_begun_once_and_left_to_the_next_driver(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "topo.manage")
    bench = Bench(tmp_path)
    bench.pass_secs(20)
    assert bench.asked_for == [3]
    assert (
        "words scales from 1 to 3 slots (up): the load is more than 1 slot can take; 100/s in, "
        "201/s to do, slots 100% busy, 100/s a busy slot, lag 500, needs 3"
    ) in caplog.text
    bench.begin()  # the driver has died in the step
    bench.arrive()
    decisions = bench.scaling.document()["decisions"]
    assert [decision["verdict"] for decision in decisions] == ["rest", "wait", "up"]
    bench.pass_secs(3)
    assert bench.scaling.document()["decisions"][-1]["verdict"] == "rest"
    assert bench.scaling.document()["next"]["reason"] == "it rests after a step or a start, 4 s"
    assert (tmp_path / "marks.jsonl").read_text().count("scaling up: the load is more") == 1


@pytest.mark.parametrize("refused_at_once", [True, False])
def test_a_step_that_cannot_be_made_is_logged_and_waits(
    refused_at_once: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    bench.refusal = "no room" if refused_at_once else ""
    while bench.now < 1100 and not bench.asked_for and "no room" not in caplog.text:
        bench.pass_secs(1)
    if not refused_at_once:
        bench.arrive("no room")
    assert "words does not scale: 3 slots cannot be had: no room" in caplog.text
    bench.pass_secs(60)
    verdicts = [each["verdict"] for each in bench.scaling.document()["decisions"]]
    assert verdicts[-3:] == ["rest", "wait", "barred"] or verdicts[-2:] == ["rest", "barred"]
    assert "such a step failed" in caplog.text


def test_a_step_that_meets_one_of_somebody_else_is_no_failure(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    begun = bench.rebalance

    def after_somebody_else(slots: int) -> None:
        bench.run.is_rebalancing = True
        raise RunError("it is moving to 2 slots already")

    bench.scaling = Autoscaling(
        tmp_path,
        Launch("words", word_count(), bench.conf, master="local[4]"),
        after_somebody_else,
        lambda: bench.now,
    )
    bench.pass_secs(12)
    assert bench.run.is_rebalancing
    verdicts = [each["verdict"] for each in bench.scaling.document()["decisions"]]
    assert verdicts == ["rest", "wait", "up"], "and none that failed"
    bench.run.is_rebalancing, bench.run.slots = False, 2
    bench.scaling.settle(bench.run)
    bench.scaling._rebalance = begun
    bench.pass_secs(30)
    assert bench.asked_for == [4], "nothing bars the way up"


def test_a_mistake_of_its_own_ends_the_scaling_and_not_the_topology(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    bench.run.stats = lambda: 1 / 0
    bench.pass_secs(3)
    assert "internal error: words does not scale any more; please report this" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert caplog.text.count("internal error") == 1
    bench.arrive("x")
    assert bench.scaling.document() == {}


def test_nothing_is_measured_while_nothing_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for status in ("INACTIVE", "STALLED", "STARTING"):
        bench.run.status = status
        bench.pass_secs(30)
    bench.run.status, bench.run.is_rebalancing = "ACTIVE", True
    bench.pass_secs(30)
    assert bench.scaling.document()["decisions"] == []


def test_a_dry_run_says_what_it_would_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path, **{"topology.scale.dry.run": True})
    bench.pass_secs(60)
    assert bench.asked_for == []
    assert "words would scale from 1 to 3 slots: the load is more" in caplog.text
    document = bench.scaling.document()
    assert document["is_dry"]
    assert document["next"]["to"] == 3


def test_the_status_names_the_task_that_keeps_it_from_being_scaled(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run.slots = 2
    for _ in range(30):
        bench.run.busy[3] = bench.run.busy.get(3, 0.0) + 1
        bench.pass_secs(1)
    assert bench.asked_for == []
    assert bench.scaling.remark == (
        "slot 0 is 2.0 times as busy as the others, by bolt1 task 3: more slots do not help"
    )
    assert bench.scaling.document()["next"]["verdict"] == "skew"
    bench.run.status = "INACTIVE"
    bench.pass_secs(1)
    assert bench.scaling.remark == ""
    assert "next" not in bench.scaling.document()


def test_without_limits_nobody_looks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, **{"topology.workers.max": None})
    bench.pass_secs(30)
    bench.arrive("x")
    assert (bench.scaling.document(), bench.scaling.remark, bench.asked_for) == ({}, "", [])
    assert not (tmp_path / FILE).exists()
    assert rules_of({}) is None
    rules = rules_of(Config({**CONF, "topology.scale.utilization": 0.5}))
    assert rules is not None
    assert (rules.least, rules.most, rules.utilization, rules.rest_secs) == (1, 4, 0.5, 4)


TRIAL = '{"rest_until": 0, "barred": {}, "decisions": [], "trial": %s}'
TRIALS = [
    TRIAL % '{"before": 1, "to": 1, "rate": 9, "slot_rate": null}',
    TRIAL % '{"before": "1", "to": 1, "rate": 9, "slot_rate": 9}',
]


@pytest.mark.parametrize("text", ["[]", "{", '{"decisions": 3}', "", *TRIALS])
def test_a_damaged_file_is_as_none(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    bench = Bench(tmp_path)
    bench.pass_secs(20)
    assert bench.asked_for == [3]


def test_a_batch_costs_something_that_is_no_work() -> None:
    """Three batches of which the cheapest took 50 ms were at work for that much less."""
    run: Any = StandIn()
    run.worked = 1.0
    measure = Measure(Launch("words", word_count(), CONF, master="local[4]"))
    assert measure.sample(run, 0.0).busy_secs == pytest.approx(0.85)
    assert measure.sample(run, 1.0).busy_secs == pytest.approx(0.85)
    assert measure.sample(run, 1.0).places == 4
    real_time = {**CONF, "topology.mode": "real-time"}
    measure = Measure(Launch("words", word_count(), real_time, master="local[4]"))
    run.busy, run.slots = {1: 3.0, 4: 1.0}, 2
    sample = measure.sample(run, 2.0)
    assert (sample.busy_secs, sample.places) == (2.0, None)


def test_tasks_that_see_one_queue_all_see_its_length() -> None:
    def spout(*gauges: dict[str, float]) -> ComponentStats:
        tasks = {n: ComponentStats("spout", 1, gauges=each) for n, each in enumerate(gauges)}
        return ComponentStats("spout", len(tasks), by_task=tasks)

    assert lag_of([spout({"behind_ms": 7}), spout()]) is None
    assert lag_of([spout({'length{queue="a"}': 7}, {'length{queue="a"}': 5})]) == 7
    partitions = spout({'lag{partition="0"}': 7.0}, {'lag{partition="1"}': 5.0})
    assert lag_of([partitions, spout({"lag": 1.0})]) == 13
