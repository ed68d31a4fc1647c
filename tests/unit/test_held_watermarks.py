"""`EventTime(hold_pending=True)`: no watermark passes the time of a message that is not acked."""

from __future__ import annotations

from collections import Counter, deque
from datetime import timedelta as td
from random import Random
from typing import Any

import pytest

from tests.property.scale import seeds
from topo import (
    BasicBolt,
    Bolt,
    Count,
    EventTime,
    FailTuple,
    InvalidTopologyError,
    PerEvent,
    Spout,
    Sum,
    TopologyBuilder,
    Tumbling,
    WindowAggregate,
    WindowedBolt,
    WindowError,
)
from topo.streams import StreamBuilder
from topo.testing import FeederSpout, TestCluster


class Replaying(Spout):
    """Emits numbered times in order, and those that failed again, `after_secs` later."""

    outputs = ("key", "ts")

    def __init__(self, times: list[int], after_secs: float = 0.0) -> None:
        self.rest = deque(enumerate(times))
        self.times = dict(self.rest)
        self.after_secs = after_secs
        self.again: list[tuple[float, int]] = []

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.now = context.now

    def next_tuple(self) -> None:
        due = [number for at, number in self.again if at <= self.now()]
        if due:
            self.again = [(at, number) for at, number in self.again if number != due[0]]
            self.emit(["a", self.times[due[0]]], msg_id=due[0])
        elif self.rest:
            number, ts = self.rest.popleft()
            self.emit(["a", ts], msg_id=number)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        self.again.append((self.now() + self.after_secs, msg_id))


class FailsOnce(BasicBolt):
    """Fails a tuple when it sees its time for the first time, if it is one of those named."""

    outputs = ("key", "time")

    def __init__(self, *times: int) -> None:
        self.left = set(times)

    def execute(self, tup: Any) -> None:
        if tup.ts in self.left:
            self.left.remove(tup.ts)
            raise FailTuple("not yet")
        self.emit([tup.key, tup.ts])


def topology(spout: Spout, parse: Any, **more: Any) -> Any:
    builder = TopologyBuilder()
    builder.set_spout("in", spout)
    builder.set_bolt("parse", parse).shuffle_grouping("in")
    time = EventTime("time", **{"idle": None, "hold_pending": "ts", **more})
    bolt = WindowAggregate(
        key="key", window=Tumbling(10), time=time, aggregates={"n": Count()}, late_stream="late"
    )
    builder.set_bolt("w", bolt, 2).fields_grouping("parse", ["key"])
    return builder.create_topology()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("seed", seeds(4))
def test_a_message_that_failed_is_not_late_when_it_comes_again(seed: int, restarts: bool) -> None:
    spout = Replaying([1, 12, 25, 38, 44, 58], after_secs=4)
    with TestCluster(seed=seed) as cluster:
        run = cluster.submit_topology("t", topology(spout, FailsOnce(1, 12, 44)))
        for _ in range(3):
            run.settle()
            if restarts:
                run.restart()
            cluster.advance(3)
        run.settle()
        assert run.stats().components["w"].late == 0
        ends = [(row[2], row[3]) for row in run.tuples("w")]
        assert ends == [(10, 1), (20, 1), (30, 1), (40, 1), (50, 1)]
        assert run.watermark("w") == 58
    with TestCluster(seed=seed) as cluster:  # as a control: without it, they are late
        spout = Replaying([1, 12, 25, 38, 44, 58], after_secs=4)
        run = cluster.submit_topology(
            "t", topology(spout, FailsOnce(1, 12, 44), hold_pending=False)
        )
        run.settle()
        cluster.advance(9)
        assert run.stats().components["w"].late == 3


class Flaky(BasicBolt):
    """Fails a third of its tuples, at random."""

    outputs = ("key", "time")

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def execute(self, tup: Any) -> None:
        if self.random.random() < 0.33:
            raise FailTuple("not yet")
        self.emit([tup.key, tup.ts])


@pytest.mark.parametrize("seed", seeds(8))
def test_no_replay_of_several_spout_tasks_is_late(seed: int) -> None:
    random = Random(seed)
    times = sorted(random.randint(0, 200) for _ in range(40))
    builder = TopologyBuilder()
    builder.set_spout("in", Replaying(times, after_secs=random.choice((0, 1.5))), 3)
    builder.set_bolt("parse", Flaky(seed), 2).shuffle_grouping("in")
    time = EventTime("time", idle=None, hold_pending={"in": "ts"})
    bolt = WindowAggregate(key="key", window=Tumbling(10), time=time, aggregates={"n": Count()})
    builder.set_bolt("w", bolt, 2).fields_grouping("parse", ["key"])
    with TestCluster(seed=seed) as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        while run.pending or len(run.tuples("parse")) < 3 * len(times):
            run.settle()
            if random.random() < 0.3:
                run.restart()
            cluster.advance(1)
        assert run.stats().components["w"].late == 0
        watermark = run.watermark("w")
        assert watermark > 150
        ended = Counter(start for ts in times if (start := ts // 10 * 10) + 10 <= watermark)
        assert {row[1]: row[3] for row in run.tuples("w")} == {k: 3 * n for k, n in ended.items()}


class Waits(Bolt):
    """Acks a tuple when it is told to."""

    outputs = ("key", "time")
    held: list[Any]

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.held = []

    def execute(self, tup: Any) -> None:
        if tup.key == "ack":
            for one in self.held:
                self.ack(one)
            self.held = []
            self.ack(tup)
            return
        self.emit([tup.key, tup.ts], anchors=[])
        self.held.append(tup)


@pytest.mark.parametrize("seed", seeds(4))
def test_an_ack_moves_the_watermark_without_a_tuple(seed: int) -> None:
    feed = FeederSpout(["key", "ts"])
    with TestCluster(seed=seed) as cluster:
        run = cluster.submit_topology("t", topology(feed, Waits()))
        for ts in (5, 12, 31):
            feed.feed(["a", ts], msg_id=ts)
            run.settle()
        assert run.watermark("w") == 5
        assert run.tuples("w") == []
        run.restart()
        assert run.watermark("w") == 5
        feed.feed(["ack", 0])  # untracked: it holds nothing
        run.settle()
        assert run.watermark("w") == 31
        assert [row[2] for row in run.tuples("w")] == [10, 20]


def test_a_failed_message_that_is_given_up_holds_for_as_long_as_it_might_be_pending() -> None:
    feed = FeederSpout(["key", "ts"])  # it emits nothing again by itself
    with TestCluster() as cluster:
        run = cluster.submit_topology(
            "t", topology(feed, FailsOnce(3)), {"topology.message.timeout.secs": 20}
        )
        for ts in (3, 12, 25):
            feed.feed(["a", ts], msg_id=ts)
        run.settle()
        assert feed.failed == [3]
        cluster.advance(19)
        run.restart()
        assert run.watermark("w") == 3
        cluster.advance(2)
        assert run.watermark("w") == 25
        assert [row[2] for row in run.tuples("w")] == [20]


def test_a_spout_that_hears_of_no_failure_holds_for_none() -> None:
    class Deaf(Replaying):
        fail = Spout.fail

    with TestCluster() as cluster:
        run = cluster.submit_topology("t", topology(Deaf([3, 12, 25]), FailsOnce(3)))
        run.settle()
        assert run.watermark("w") == 25


def test_a_watermark_that_stands_names_the_spout() -> None:
    feed = FeederSpout(["key", "ts"])
    conf = {"topology.enable.message.timeouts": False}
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", topology(feed, Waits()), conf)
        feed.feed(["a", 0], msg_id=0)
        run.settle()
        cluster.advance(100)
        feed.feed(["a", 10], msg_id=10)
        with pytest.warns(UserWarning, match="a pending message of 'in' task"):
            run.settle()
        assert run.watermark("w") == 0


_SEEN: set[int] = set()


def _fails_once(row: Any) -> bool:
    if row.ts == 1 and row.ts not in _SEEN:
        _SEEN.add(1)
        raise FailTuple("not yet")
    return True


def test_streams_hold_by_the_field_of_their_spout() -> None:
    s = StreamBuilder()
    _SEEN.clear()
    spout = Replaying([1, 12, 25, 38], after_secs=4)
    events = s.stream(spout, time=EventTime("ts", idle=None, hold_pending=True))
    counted = events.filter(_fails_once).key_by("key").window(Tumbling(10)).aggregate(Sum("ts"))
    counted.key_by(lambda pair: pair[0][0]).window(PerEvent(20)).count().print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        run.settle()
        assert run.tuples("window_1") == []
        cluster.advance(5)
        assert run.tuples("window_1") == [["a", 0, 10, 1], ["a", 10, 20, 12], ["a", 20, 30, 25]]
        assert run.stats().components["window_1"].late == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"hold_pending": True}, "there is no field 'time'"),
        ({"hold_pending": {"out": "ts"}}, "no field is named"),
        ({"field": None, "extractor": lambda tup: tup.time, "hold_pending": True}, "extractor"),
    ],
)
def test_a_spout_that_cannot_tell_the_time_is_a_problem(more: Any, said: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("in", Replaying([]))
    builder.set_bolt("parse", FailsOnce()).shuffle_grouping("in")
    time = EventTime(**{"field": "time", **more})
    bolt = WindowAggregate(window=Tumbling(10), time=time, aggregates={"n": Count()})
    builder.set_bolt("w", bolt).global_grouping("parse")
    with pytest.raises(InvalidTopologyError, match=said):
        builder.create_topology()


class Sizes(WindowedBolt):
    outputs = ("n",)

    def execute(self, window: Any) -> None:
        self.emit([len(window)])


def test_what_would_wait_for_itself_is_a_problem() -> None:
    builder = TopologyBuilder()
    builder.set_spout("in", Replaying([]))
    bolt = Sizes().with_tumbling_window(td(seconds=1)).with_ack("expiry")
    bolt.with_event_time(EventTime("ts", hold_pending=True))
    builder.set_bolt("w", bolt).global_grouping("in")
    with pytest.raises(InvalidTopologyError, match="which with ack="):
        builder.create_topology()
    with pytest.raises(WindowError, match="hold_pending is 3"):
        EventTime("ts", hold_pending=3)  # type: ignore[arg-type]
