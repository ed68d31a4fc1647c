"""conformance.md, the cases that only the inline engine runs, each for a reason.

- reset timeout, ticks: they count seconds of a clock that the test moves.
- acking: looks at the acks between feeds, so feeds from the test's own process.
- inactive: looks at which hooks ran, in the test's own process.
- a stall: asserts that nothing happens, which no length of real time proves.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.doubles import Agg, Branch, Identity, Sink
from topo import Bolt, TopologyBuilder, Tuple
from topo.testing import FeederSpout, TestCluster


class Resetting(Bolt):
    """Keeps 1; 2: resets 1, never acked; 3 and 4: reset 1, acked; 5: acks 1 and itself."""

    def execute(self, tup: Tuple) -> None:
        if tup["num"] == 1:
            self.first = tup
            return
        if tup["num"] == 5:
            self.ack(self.first)
            self.ack(tup)
            return
        self.reset_timeout(self.first)
        if tup["num"] != 2:
            self.ack(tup)


def test_reset_timeout() -> None:
    feeder = FeederSpout(["num"])
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_bolt("2", Resetting()).global_grouping("1")
    with TestCluster() as cluster:
        conf = {"topology.message.timeout.secs": 10}
        cluster.submit_topology("t", builder.create_topology(), conf)
        feeder.feed([1], msg_id=1)
        feeder.feed([2], msg_id=2)
        cluster.advance(9)
        feeder.feed([3], msg_id=3)
        cluster.advance(9)
        feeder.feed([4], msg_id=4)
        cluster.advance(2)
        feeder.feed([5], msg_id=5)
        cluster.advance(0)
        assert feeder.failed == [2]
        assert sorted(feeder.acked) == [1, 3, 4, 5]
        assert feeder.reasons == {2: "timeout after 10 s"}


def test_acking() -> None:
    feeders = [FeederSpout(["num"]) for _ in range(3)]
    builder = TopologyBuilder()
    for number, feeder in enumerate(feeders, 1):
        builder.set_spout(str(number), feeder)
    for name, spout, count in (("4", "1", 2), ("5", "2", 4), ("6", "3", 1)):
        builder.set_bolt(name, Branch(count)).shuffle_grouping(spout)
    aggregated = builder.set_bolt("7", Agg(3))
    for name in ("4", "5", "6"):
        aggregated.shuffle_grouping(name)
    builder.set_bolt("8", Branch(2)).shuffle_grouping("7")
    builder.set_bolt("9", Sink()).shuffle_grouping("8")

    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        fed = 0

        def acked_after_feeding(number: int) -> list[int]:
            nonlocal fed
            before = [len(feeder.acked) for feeder in feeders]
            fed += 1
            feeders[number - 1].feed([1], msg_id=fed)
            run.settle()
            return [len(feeder.acked) - was for feeder, was in zip(feeders, before, strict=True)]

        assert acked_after_feeding(1) == [0, 0, 0]
        assert acked_after_feeding(2) == [1, 1, 0]
        assert acked_after_feeding(1) == [0, 0, 0]
        assert acked_after_feeding(1) == [1, 0, 0]
        assert acked_after_feeding(3) == [0, 0, 0]
        assert acked_after_feeding(2) == [1, 1, 1]
        assert [feeder.failed for feeder in feeders] == [[], [], []]


calls: list[str] = []


class NotedSpout(FeederSpout):
    def open(self, conf: Any, context: Any, collector: Any) -> None:
        calls.append("open")

    def activate(self) -> None:
        calls.append("activate")

    def next_tuple(self) -> None:
        calls.append("next_tuple")
        super().next_tuple()


class NotedBolt(Identity):
    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        calls.append("prepare")

    def execute(self, tup: Tuple) -> None:
        calls.append("execute")
        super().execute(tup)


def test_inactive() -> None:
    calls.clear()
    feeder = NotedSpout(["num"])
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_bolt("2", NotedBolt()).global_grouping("1")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology(), active=False)
        feeder.feed([1], msg_id=1)
        cluster.advance(9)
        assert calls == []
        assert feeder.acked == []
        run.activate()
        cluster.advance(1)
        assert feeder.acked == [1]
        assert {"open", "prepare", "activate", "next_tuple", "execute"} == set(calls)


class Ticked(Bolt):
    """Emits how many ticks it has had, and acks them, which means nothing."""

    outputs = ("ticks",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.ticks = 0

    def get_component_configuration(self) -> dict[str, Any]:
        return {"topology.tick.tuple.freq.secs": 30}

    def execute(self, tup: Tuple) -> None:
        assert tup.is_tick
        self.ticks += 1
        self.emit([self.ticks], anchors=tup)
        self.ack(tup)


def test_ticks() -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", FeederSpout(["num"]))
    builder.set_bolt("2", Ticked()).global_grouping("1")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for tick in (1, 2, 3):
            cluster.advance(30)
            assert run.tuples("2") == [[number] for number in range(1, tick + 1)]
        cluster.advance(29)
        assert len(run.tuples("2")) == 3


class Keeps(Bolt):
    """Keeps every tuple and acks none."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)


def test_a_stall_with_timeouts_off_and_a_pending_limit_shows_in_the_status() -> None:
    feeder = FeederSpout(["num"])
    builder = TopologyBuilder()
    builder.set_spout("1", feeder).set_max_spout_pending(2)
    builder.set_bolt("2", Keeps()).global_grouping("1")
    with TestCluster() as cluster:
        run = cluster.submit_topology(
            "t", builder.create_topology(), {"topology.enable.message.timeouts": False}
        )
        feeder.feed([1], msg_id=1)
        run.settle()
        assert (run.status, run.reason) == ("ACTIVE", "")
        for number in (2, 3):
            feeder.feed([number], msg_id=number)
        cluster.advance(1000)
        assert run.status == "STALLED"
        assert "spout '1' at its pending limit (2)" in run.reason
        assert run.stats().status == "STALLED"
