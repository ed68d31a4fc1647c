"""Spouts: message ids, replays, the pending limit, and tracking turned off."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.conformance.doubles import Failing
from tests.wiring import Fed
from topo import Bolt, Spout, TopoError, TopologyBuilder, Tuple, Unavailable
from topo.testing import FeederSpout, TestCluster, complete_topology


class Replays(Spout):
    """Emits again what failed, out of `fail` itself; looks at its pending count."""

    outputs = ("x",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.left = [1, 2, 3]
        self.counts: list[int] = []

    def next_tuple(self) -> None:
        if self.left:
            self.emit([self.left.pop()], msg_id="same id for all")
            self.counts.append(self.pending_count)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        self.emit([0], msg_id="same id for all")

    def is_exhausted(self) -> bool:
        return not self.left and not self.pending_count


class Returns(Replays):
    """Returns its row instead of emitting it."""

    def next_tuple(self) -> Any:
        return (self.left.pop(), "cow")


def test_a_row_that_is_returned_is_an_error() -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Returns())
    with pytest.raises(TopoError, match=r"next_tuple returned \(3, 'cow'\)") as caught:
        complete_topology(builder.create_topology())
    assert "self.emit" in caught.value.hint


class Greets(Spout):
    """Emits one message when it is opened, and none later."""

    outputs = ("x",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.emit(["hello"], msg_id="greeting")

    def next_tuple(self) -> None: ...

    def is_exhausted(self) -> bool:
        return not self.pending_count


def test_a_message_that_was_emitted_in_open_is_acked() -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Greets())
    builder.set_bolt("b", Failing()).shuffle_grouping("s")
    result = complete_topology(builder.create_topology())
    assert result.acked["s"] == ["greeting"]


class ComesBack(Spout):
    """Has nothing left, until what is in flight fails: that comes again, some calls later."""

    outputs = ("x",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.made, self.calls_until_due = 0, 1

    def next_tuple(self) -> None:
        self.calls_until_due -= 1
        if self.calls_until_due == 0:
            self.made += 1
            self.emit([self.made], msg_id=self.made)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        self.calls_until_due = 3

    def is_exhausted(self) -> bool:
        return self.calls_until_due <= 0


def test_a_spout_may_have_been_exhausted_too_early() -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", ComesBack())
    builder.set_bolt("b", Failing(1)).shuffle_grouping("s")
    result = complete_topology(builder.create_topology())
    assert result.failed["s"] == [1]
    assert result.acked["s"] == [2]


def test_ids_need_not_be_unique_and_fail_may_emit() -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Replays())
    builder.set_bolt("b", Failing(1, 3)).shuffle_grouping("s")
    result = complete_topology(builder.create_topology())
    assert result.acked["s"] == ["same id for all"] * 3
    assert result.failed["s"] == ["same id for all"] * 2
    assert sorted(result.tuples("s")) == [[0], [0], [1], [2], [3]]


class Keeps(Bolt):
    """Keeps what it gets, and acks nothing."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)


def test_the_pending_limit_is_checked_between_calls() -> None:
    feeder = FeederSpout(["x"])
    builder = TopologyBuilder()
    builder.set_spout("s", feeder).set_max_spout_pending(2)
    builder.set_bolt("b", Keeps()).shuffle_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for number in range(1, 6):
            feeder.feed([number], msg_id=number)
        run.settle()
        assert run.tuples("s") == [[1], [2]]
        assert run.stats().components["s"].pending == 2
        cluster.advance(30)
        assert (feeder.failed, run.tuples("s")) == ([1, 2], [[1], [2], [3], [4]])


def test_without_ackers_a_tracked_emit_is_acked_inside_emit() -> None:
    order: list[str] = []

    class Notes(FeederSpout):
        def next_tuple(self) -> None:
            super().next_tuple()
            order.append("emitted")

        def ack(self, msg_id: Any) -> None:
            super().ack(msg_id)
            order.append("acked")

    feeder = Notes("x")
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    builder.set_bolt("b", Failing(1)).shuffle_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology(
            "t", builder.create_topology(), {"topology.acker.executors": 0}
        )
        feeder.feed([1], msg_id=1)
        run.step()
        assert order == ["acked", "emitted"]
        assert feeder.acked == [1]


def test_an_emit_that_asks_where_it_went_counts_as_emitted() -> None:
    class Asks(Spout):
        outputs = ("x",)

        def next_tuple(self) -> None:
            assert self.emit([1], task_ids=True)

        def is_exhausted(self) -> bool:
            raise AssertionError("asked although something was emitted")

    builder = TopologyBuilder()
    builder.set_spout("s", Asks())
    builder.set_bolt("b", Keeps()).shuffle_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        run.step(3)
        assert run.tuples("s") == [[1], [1], [1]]


class Holds(Bolt):
    """A bolt that acks nothing."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)


def test_the_oldest_pending_message_has_its_age_in_the_figures() -> None:
    fed = Fed(Holds()).feed("a")
    fed.cluster.advance(5)
    fed.feed("b")
    stats = fed.run.stats()
    spout = stats.components["s"]
    assert (spout.pending, spout.oldest_pending_secs) == (2, 5.0)
    assert stats.acker is not None
    assert (stats.acker.pending, stats.acker.lag_secs) == (2, 5.0)


class Leases(Spout):
    """Emits two messages; keeps what is in flight alive, as the test says."""

    outputs = ("x",)
    kept: ClassVar[list[int]] = []
    fault: ClassVar[Exception | None] = None
    emits: ClassVar[bool] = False

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.left = [1, 2]

    def next_tuple(self) -> None:
        if self.left:
            self.emit([self.left.pop()], msg_id="m")

    def keep_alive(self) -> None:
        if self.emits:
            self.emit([0])
        if self.fault is not None:
            raise self.fault
        self.kept.append(self.pending_count)


@pytest.fixture
def leases() -> Any:
    Leases.kept.clear()
    Leases.fault, Leases.emits = None, False
    yield TestCluster()
    Leases.fault, Leases.emits = None, False


def held_back(cluster: TestCluster) -> Any:
    """Return a run whose spout is at its pending limit."""
    builder = TopologyBuilder()
    builder.set_spout("s", Leases()).set_max_spout_pending(1)
    builder.set_bolt("b", Holds()).shuffle_grouping("s")
    run = cluster.submit_topology("t", builder.create_topology())
    run.settle()
    Leases.kept.clear()
    return run


def test_what_is_in_flight_is_kept_alive_while_the_spout_is_not_asked(leases: TestCluster) -> None:
    run = held_back(leases)
    for _ in range(3):
        leases.advance(1)
    assert set(Leases.kept) == {1}
    assert len(Leases.kept) >= 3
    Leases.kept.clear()
    run.deactivate()
    for _ in range(3):
        leases.advance(1)
    assert len(Leases.kept) >= 3
    assert run.tuples("s") == [[2]]


def test_a_lease_that_cannot_be_extended_is_tried_again_and_seen(leases: TestCluster) -> None:
    run = held_back(leases)
    Leases.fault = Unavailable("the queue does not answer")
    leases.advance(1)
    assert run.status == "STALLED"
    assert "the queue does not answer" in run.reason
    Leases.fault = None
    leases.advance(20)
    assert Leases.kept
    assert "the queue does not answer" not in run.reason


def test_keep_alive_must_not_emit(leases: TestCluster) -> None:
    held_back(leases)
    Leases.emits = True
    with pytest.raises(TopoError, match="'s' task 2: keep_alive emitted something"):
        leases.advance(1)
