"""LocalCluster: what a run can be asked and told, from its start to its end."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Numbers, Total
from tests.spark.doubles import LONGEST_SECS, WORKERS, Endless, Keeping, wait_until
from tests.wiring import line
from topo import Bolt, LocalCluster, RunError, Spout, TopologyBuilder, Tuple

pytestmark = pytest.mark.spark

FEW = {**WORKERS, "topology.max.spout.pending": 10}
"""For spouts without end: the less is in flight, the sooner it is processed."""


@pytest.mark.smoke
def test_a_finite_topology_completes_and_tells_what_it_did(cluster: LocalCluster) -> None:
    run = cluster.submit_topology("t", line(Numbers(100), Total()), WORKERS, capture=["s", "b1"])
    run.await_completion(LONGEST_SECS)
    assert (run.status, run.reason) == ("COMPLETED", "")
    assert run.tuples("s") == [[number] for number in range(100)]
    assert run.tuples("b1") == [[total] for total in range(1, 101)]
    stats = run.stats()
    assert (stats.components["s"].emitted, stats.components["s"].acked) == (100, 100)
    assert (stats.components["b1"].executed, stats.components["b1"].failed) == (100, 0)
    assert asdict(stats)["components"]["s"]["pending"] == 0
    assert run.errors() == []
    with pytest.raises(RunError, match="the tuples of 'b2' are not captured; captured: 's', 'b1'"):
        run.tuples("b2")
    with pytest.raises(RunError, match="t is COMPLETED; it cannot be activated"):
        run.activate()
    run.kill()  # what has ended may be killed
    assert run.status == "COMPLETED"


class Noting(Spout):
    """Emits, for each hook that is called, its name."""

    outputs = ("hook",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.hooks = ["open"]
        self.emitted = 0

    def activate(self) -> None:
        self.hooks.append("activate")

    def deactivate(self) -> None:
        self.hooks.append("deactivate")

    def next_tuple(self) -> None:
        while self.hooks:
            self.emit([self.hooks.pop(0)])
            self.emitted += 1
        self.emit(["asked"], msg_id=0)


def test_it_starts_inactive_is_activated_deactivated_and_killed(cluster: LocalCluster) -> None:
    topology = line(Noting(), Total())
    run = cluster.submit_topology("t", topology, FEW, active=False, capture=["s", "b1"])
    wait_until(lambda: run.status == "INACTIVE", "inactive")
    assert run.tuples("s") == []
    run.activate()
    wait_until(lambda: len(run.tuples("s")) > 2, "tuples")
    assert run.status == "ACTIVE"
    assert [hook for (hook,) in run.tuples("s")[:3]] == ["open", "activate", "asked"]
    run.deactivate()
    wait_until(lambda: run.status == "INACTIVE", "inactive again")
    wait_until(lambda: not run.stats().components["s"].pending, "nothing in flight")
    quiet = len(run.tuples("s"))
    run.activate()
    wait_until(lambda: len(run.tuples("s")) > quiet, "tuples again")
    after = [hook for (hook,) in run.tuples("s") if hook != "asked"]
    assert after == ["open", "activate", "deactivate", "activate"]
    run.kill(wait_secs=30)
    assert run.status == "KILLED"
    assert len(run.tuples("b1")) == len(run.tuples("s"))  # what was in flight was processed


class Silent(Spout):
    """Has nothing, and may have something at any time."""

    outputs = ("x",)

    def next_tuple(self) -> None: ...


def test_one_that_waits_for_data_leaves_the_others_room(cluster: LocalCluster) -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Silent(), parallelism=2)  # one for each slot, and so for each core
    builder.set_bolt("b", Total()).global_grouping("s")
    idle = cluster.submit_topology("idle", builder.create_topology(), WORKERS)
    wait_until(lambda: idle.status == "ACTIVE", "the idle one waits")
    busy = cluster.submit_topology("busy", line(Numbers(10), Total()), WORKERS, capture=["b1"])
    busy.await_completion(LONGEST_SECS)
    assert busy.tuples("b1")[-1] == [10]
    # Its batches wait for a minute; the other one's stages would each have waited for that.
    assert idle.stats().batch.id <= 2
    idle.kill()


class EndsLater(Spout):
    """Emits once, and is exhausted when the test says so."""

    outputs = ("word",)

    def __init__(self, end: Path) -> None:
        self.end, self.has_emitted = end, False

    def next_tuple(self) -> None:
        if not self.has_emitted:
            self.has_emitted = True
            self.emit(["once"])

    def is_exhausted(self) -> bool:
        return self.end.exists()


def test_a_spout_that_is_exhausted_while_nothing_happens_ends_the_topology(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """A batch that waits for data ends for it, and not only after `topology.batch.idle.ms`."""
    conf = {**WORKERS, "topology.batch.idle.ms": 3_600_000}
    spout = EndsLater(tmp_path / "end")
    run = cluster.submit_topology("t", line(spout, Total()), conf, capture=["s"])
    wait_until(lambda: run.tuples("s") == [["once"]], "the tuple")
    (tmp_path / "end").touch()
    run.await_completion(LONGEST_SECS)
    assert run.status == "COMPLETED"


def test_completion_is_not_awaited_of_a_spout_that_never_ends(cluster: LocalCluster) -> None:
    run = cluster.submit_topology("t", line(Endless(), Total()), FEW)
    with pytest.raises(RunError, match=r"spout 's' never says that it is exhausted.*is_exhausted"):
        run.await_completion()
    with pytest.raises(RunError, match="'t' is running; kill it, or choose another name"):
        cluster.submit_topology("t", line(Numbers(1)))
    assert not run.wait(0.01)


class WaitsForRelease(Spout):
    """Ends when nobody will ever ask it to."""

    def next_tuple(self) -> None:
        pass

    def is_exhausted(self) -> bool:
        return False


def test_completion_that_does_not_come_is_a_timeout(cluster: LocalCluster) -> None:
    with pytest.warns(UserWarning, match="is Storm's and means nothing on Spark"):
        run = cluster.submit_topology(
            "t", line(WaitsForRelease()), {**WORKERS, "topology.worker.childopts": "-Xmx1g"}
        )
    with pytest.raises(TimeoutError, match=r"t is (STARTING|ACTIVE) after 0\.01 s"):
        run.await_completion(0.01)
    run.kill()  # though it may not have started
    assert run.status == "KILLED"


def test_what_is_captured_has_to_be_there(cluster: LocalCluster) -> None:
    with pytest.raises(Exception, match="'b9'"):
        cluster.submit_topology("t", line(Numbers(1)), capture=["b9"])


class Raises(Bolt):
    def execute(self, tup: Tuple) -> None:
        raise LookupError("the user's own")


def test_leaving_the_cluster_kills_what_runs_and_raises_the_first_error() -> None:
    with pytest.raises(LookupError, match="the user's own"), LocalCluster() as cluster:  # noqa: PT012
        endless = cluster.submit_topology("endless", line(Endless(), Total()), FEW)
        failing = cluster.submit_topology("failing", line(Numbers(1), Raises()), WORKERS)
        assert failing.wait(LONGEST_SECS)
        wait_until(lambda: endless.status == "ACTIVE", "the other one runs beside it")
    assert (failing.status, endless.status) == ("FAILED", "KILLED")
    assert failing.reason.endswith("LookupError: the user's own")


def test_a_spout_at_its_limit_with_nothing_in_flight_is_a_stall(cluster: LocalCluster) -> None:
    conf = {
        **WORKERS,
        "topology.max.spout.pending": 3,
        "topology.enable.message.timeouts": False,
    }
    run = cluster.submit_topology("t", line(Endless(), Keeping()), conf)
    wait_until(lambda: run.status == "STALLED", "stalled")
    assert run.reason == "spout 's' at its pending limit, nothing in flight"
    assert run.stats().components["b1"].held == 3


def test_a_message_that_is_held_too_long_times_out(cluster: LocalCluster) -> None:
    conf = {**WORKERS, "topology.max.spout.pending": 1, "topology.message.timeout.secs": 0.5}
    run = cluster.submit_topology("t", line(Endless(), Keeping()), conf)
    wait_until(lambda: bool(run.errors()), "a timeout")
    (error,) = run.errors()
    assert (error.kind, error.component) == ("failed", "s")
    assert error.message == "timeout after 0.5 s; held by 'b1' task 1"
