"""A checkpoint: what goes on from it, and what is refused."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Numbers, Total
from tests.spark.doubles import LONGEST_SECS, WORKERS, Endless, wait_until
from tests.wiring import line
from topo import CheckpointError, LocalCluster, StatefulBasicBolt, Topology, TopologyBuilder, Tuple
from topo.engine.spark.driver import query, resources
from topo.storage.checkpoints import remove_checkpoint
from topo.tracking.server import AckerServer

pytestmark = pytest.mark.spark


class Money:
    """A class of the user's own, in tuples and in state."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __add__(self, other: Money) -> Money:
        return Money(self.cents + other.cents)


class Payments(Numbers):
    outputs = ("user", "money")

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.paid = 0

    def next_tuple(self) -> None:
        if self.paid < self.limit:
            self.emit([f"user{self.paid % 3}", Money(self.paid)], msg_id=self.paid)
            self.paid += 1

    def is_exhausted(self) -> bool:
        return self.paid >= self.limit


class Balances(StatefulBasicBolt):
    outputs = ("user", "cents", "task")

    def execute(self, tup: Tuple) -> None:
        balance = self.state.get(tup.user, Money(0)) + tup.money
        self.state[tup.user] = balance
        self.emit([tup.user, balance.cents, self.context.this_task_index])


def payments(limit: int, tasks: int = 3) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("payments", Payments(limit))
    builder.set_bolt("balances", Balances(), parallelism=tasks).fields_grouping("payments", "user")
    builder.set_bolt("total", Total()).global_grouping("balances")
    return builder.create_topology()


@pytest.mark.smoke
def test_a_run_goes_on_where_the_last_one_stopped(cluster: LocalCluster, tmp_path: Path) -> None:
    conf = {**WORKERS, "topology.checkpoint.dir": str(tmp_path / "checkpoint")}
    cents = dict.fromkeys(["user0", "user1", "user2"], 0)
    for limit, fresh in ((10, range(10)), (25, range(10, 25))):
        run = cluster.submit_topology("t", payments(limit), conf, capture=["balances", "total"])
        run.await_completion(LONGEST_SECS)
        for number in fresh:
            cents[f"user{number % 3}"] += number
        assert len(run.tuples("balances")) == len(fresh)
        assert {user: last for user, last, _ in run.tuples("balances")} == cents
        assert run.tuples("total")[-1] == [limit]


def test_another_topology_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    conf = {**WORKERS, "topology.checkpoint.dir": str(tmp_path / "checkpoint")}
    cluster.submit_topology("t", payments(3), conf).await_completion(LONGEST_SECS)
    other_tasks = payments(30, tasks=2)
    other_topology = line(Numbers(3))
    for topology, workers, said in (
        (other_tasks, 2, r"bolt 'balances' had 3 tasks, now 2 .*; go back to the topology"),
        (other_topology, 2, r"bolt 'balances' is gone; .*spout 's' is new.*; go back"),
    ):
        run = cluster.submit_topology("t", topology, {**conf, "topology.workers": workers})
        with pytest.raises(CheckpointError, match=said):
            run.await_completion(LONGEST_SECS)
        assert run.status == "FAILED"


@pytest.mark.of_batches
def test_either_source_of_calls_resumes_what_the_other_has_begun(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Spark that somebody else has started may not take topo's own, which saves an exchange."""
    plans: list[Any] = []

    def start_and_keep(*arguments: Any) -> Any:
        plans.append(query.start_query(*arguments))
        return plans[-1]

    monkeypatch.setattr(resources, "start_query", start_and_keep)
    conf = {**WORKERS, "topology.checkpoint.dir": str(tmp_path / "checkpoint")}
    counted, exchanges = [], []
    for limit, is_own in ((10, False), (20, True), (30, False), (40, True), (50, True)):
        with monkeypatch.context() as patched:
            if not is_own:
                patched.setattr(query, "_has_own_source", lambda context: False)
            run = cluster.submit_topology("t", payments(limit), conf, capture=["total"])
            run.await_completion(LONGEST_SECS)
        counted.append([len(run.tuples("total")), run.tuples("total")[-1]])
        exchanges.append(plans[-1]._jsq.explainInternal(False).count("Exchange hashpartitioning"))
    assert counted == [[10, [limit]] for limit in (10, 20, 30, 40, 50)]
    assert exchanges == [3, 2, 3, 2, 2]


def test_the_token_at_outer_ackers_is_drawn_once_and_for_its_owner_alone(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoint"
    with AckerServer() as acker:
        conf = {
            **WORKERS,
            "topology.checkpoint.dir": str(place),
            "topology.acker.addresses": [acker.address],
        }
        tokens = []
        for limit in (10, 25):
            run = cluster.submit_topology("t", payments(limit), conf)
            run.await_completion(LONGEST_SECS)
            tokens.append((place / "topo-acker.token").read_text())
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) >= 32
    assert stat.S_IMODE((place / "topo-acker.token").stat().st_mode) == 0o600
    assert not any(tokens[0] in path.read_text() for path in place.glob("*.json"))
    assert remove_checkpoint(place) == []


@pytest.mark.of_batches
def test_a_checkpoint_that_was_moved_and_one_that_lost_a_part(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    old, new = tmp_path / "old" / "state", tmp_path / "new" / "state"

    def run(limit: int, place: Path) -> Any:
        conf = {**WORKERS, "topology.checkpoint.dir": str(place)}
        run = cluster.submit_topology("t", payments(limit), conf, capture=["total"])
        run.await_completion(LONGEST_SECS)
        return run

    run(10, old)
    new.parent.mkdir()
    old.rename(new)
    assert run(25, new).tuples("total")[-1] == [25]
    assert not old.exists(), "nobody looks for anything at the old place"
    for name, gone, why in (
        ("commits", ["commits"], "no commit is there"),
        ("all", ["commits", "offsets", "state", "metadata"], r"batch \d+ was committed, and"),
    ):
        place = tmp_path / name
        shutil.copytree(new, place)
        for part in gone:
            remove = shutil.rmtree if (place / part).is_dir() else os.unlink
            remove(place / part)
        left = sorted(path.name for path in place.iterdir())
        with pytest.raises(CheckpointError, match=f"has lost a part of itself: .*{why}") as refused:
            run(40, place)
        assert refused.value.hint.endswith("begin anew with --fresh")
        assert sorted(path.name for path in place.iterdir()) == left


def test_a_foreign_query_is_not_adopted(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    conf = {**WORKERS, "topology.checkpoint.dir": str(tmp_path)}
    run = cluster.submit_topology("t", line(Numbers(3)), conf)
    with pytest.raises(CheckpointError, match="a query of Spark's that topo did not start"):
        run.await_completion(LONGEST_SECS)


def test_a_checkpoint_has_one_owner_and_stays_where_it_was(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoint"
    conf = {"topology.workers": 1, "topology.checkpoint.dir": str(place)}
    first = cluster.submit_topology("first", line(Endless(), Total()), conf)
    wait_until(lambda: first.stats().batch.id >= 1, "two batches")
    second = cluster.submit_topology("second", line(Endless(), Total()), conf)
    assert second.wait(LONGEST_SECS)
    with pytest.raises(CheckpointError, match=r"is the checkpoint of 'first' \(run \w+, process"):
        second.raise_error()
    assert first.status == "ACTIVE"
    place.rename(tmp_path / "elsewhere")  # somebody takes it away under the run
    assert first.wait(LONGEST_SECS)
    with pytest.raises(CheckpointError, match=r"deleted|gone back"):
        first.raise_error()
