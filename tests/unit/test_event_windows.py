"""Windows around events in topologies: what users see of them, and what they cost."""

from __future__ import annotations

from datetime import UTC, datetime
from datetime import timedelta as td
from typing import Any

import pytest

from tests.property.scale import seeds
from tests.wiring import saves_of
from topo import (
    AfterCount,
    AtWatermark,
    CoGroup,
    Count,
    EventTime,
    Max,
    PerEvent,
    Sum,
    TopologyBuilder,
    Tumbling,
    WindowAggregate,
    WindowError,
    WindowJoin,
)
from topo.streams import StreamBuilder
from topo.testing import FeederSpout, TestCluster

SECOND = td(seconds=1)


def submitted(bolt: Any, seed: int = 0) -> tuple[FeederSpout, TestCluster, Any]:
    feed = FeederSpout(["key", "ts"])
    builder = TopologyBuilder()
    builder.set_spout("in", feed)
    builder.set_bolt("w", bolt).fields_grouping("in", ["key"])
    cluster = TestCluster(seed=seed)
    return feed, cluster, cluster.submit_topology("t", builder.create_topology())


def around(size: Any = 10, **more: Any) -> WindowAggregate:
    time = more.pop("time", EventTime("ts", idle=None))
    window = PerEvent(size, after=more.pop("after", False))
    aggregates = more.pop("aggregates", {"n": Count()})
    return WindowAggregate(key="key", window=window, time=time, aggregates=aggregates, **more)


@pytest.mark.parametrize("seed", seeds(4))
def test_each_tuple_has_the_window_that_ends_with_it(seed: int) -> None:
    feed, _, run = submitted(around(), seed)
    for ts in (1, 5, 11, 12):
        feed.feed(["a", ts])
        run.settle()
    feed.feed(["b", 12])
    feed.feed(["a", 30])
    run.settle()
    run.restart()
    feed.feed(["a", 50])
    run.settle()
    assert sorted(run.tuples("w")) == [
        ["a", -9, 1, 1],
        ["a", -5, 5, 2],
        ["a", 1, 11, 3],
        ["a", 2, 12, 3],
        ["a", 20, 30, 1],
        ["b", 2, 12, 1],
    ]
    assert run.stats().components["w"].late == 0


def test_times_come_back_in_the_unit_of_the_field() -> None:
    time = EventTime("ts", unit="datetime", idle=None)
    feed, _, run = submitted(around(td(minutes=5), time=time))
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for minutes in (0, 3, 9):
        feed.feed(["a", noon + td(minutes=minutes)])
        run.settle()
    assert run.tuples("w") == [
        ["a", noon - td(minutes=5), noon, 1],
        ["a", noon - td(minutes=2), noon + td(minutes=3), 2],
    ]


def test_the_result_of_a_window_has_the_time_of_its_tuple() -> None:
    feed = FeederSpout(["key", "ts"])
    builder = TopologyBuilder()
    builder.set_spout("in", feed)
    builder.set_bolt("w", around()).fields_grouping("in", ["key"])
    busiest = WindowAggregate(
        window=Tumbling(10), time=EventTime(), aggregates={"most": Max("n"), "windows": Count()}
    )
    builder.set_bolt("busiest", busiest).global_grouping("w")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for ts in (0, 3, 9, 10, 25):
            feed.feed(["a", ts])
            run.settle()
        assert run.tuples("busiest") == [[0, 10, 3, 3], [10, 20, 4, 1]]
        assert run.stats().components["busiest"].late == 0


def test_by_arrival_a_window_looks_back_from_each_batch() -> None:
    feed, cluster, run = submitted(around(10 * SECOND, time=None))
    for secs in (4, 4, 4):
        feed.feed(["a", 0])
        cluster.advance(secs)
        run.restart()
    run.settle()
    assert [row[3] for row in run.tuples("w")] == [1, 2, 3]
    feed.feed(["a", 0])
    cluster.advance(30)
    assert [row[3] for row in run.tuples("w")] == [1, 2, 3, 3]


def test_late_tuples_are_in_the_windows_that_are_not_over() -> None:
    feed, _, run = submitted(around(late_stream="late"))
    for ts in (100, 105, 98):  # its own window is over, but not that of 105
        feed.feed(["a", ts])
        run.settle()
    assert run.tuples("w", "late") == []
    feed.feed(["a", 90])
    feed.feed(["a", 200])
    run.settle()
    assert [row[0].ts for row in run.tuples("w", "late")] == [90]
    assert run.tuples("w") == [["a", 90, 100, 1], ["a", 95, 105, 3]]


def test_reports_are_taken_back() -> None:
    trigger = AtWatermark(early=AfterCount(1))
    bolt = around(trigger=trigger, mode="retract", on_time="if_new", time=EventTime("ts", lag=50))
    feed, _, run = submitted(bolt)
    for ts in (20, 15):
        feed.feed(["a", ts])
        run.settle()
    assert sorted(run.tuples("w")) == [
        ["a", 5, 15, 1, "+", "early", 0],
        ["a", 10, 20, 1, "+", "early", 0],
        ["a", 10, 20, 1, "-", "early", 1],
        ["a", 10, 20, 2, "+", "early", 1],
    ]


def test_streams_have_windows_around_events() -> None:
    s = StreamBuilder()
    feed = FeederSpout(["key", "n", "ts"])
    keyed = s.stream(feed, time=EventTime("ts", idle=None)).key_by("key")
    sums = keyed.window(PerEvent(SECOND)).aggregate(Sum("n"))
    sums.map(lambda pair: (pair[0][0], pair[0][1].end, pair[1])).named("sums").print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for n, ts in ((1, 0), (2, 600), (4, 1_200), (8, 9_000)):
            feed.feed(["a", n, ts])
        run.settle()
        assert run.tuples("window_1") == [
            ["a", -1_000, 0, 1],
            ["a", -400, 600, 3],
            ["a", 200, 1_200, 6],
        ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: WindowJoin(left="a", right="b", on="k", window=PerEvent(1)),
        lambda: CoGroup(["a", "b"], on="k", window=PerEvent(1)),
    ],
)
def test_rows_are_not_joined_around_events(make: Any) -> None:
    with pytest.raises(WindowError, match="IntervalJoin"):
        make()


@pytest.mark.parametrize("trigger", [None, AtWatermark(early=AfterCount(1))])
def test_a_commit_costs_the_windows_of_its_tuples(trigger: Any) -> None:
    written = []
    for earlier in (100, 2_000):
        feed, _, run = submitted(around(td(hours=1), trigger=trigger, late_stream="late"))
        for number in range(earlier):
            feed.feed([number % 50, number])
        run.settle()
        sizes = saves_of(run)
        feed.feed([17, earlier + 1])
        run.settle()
        written.append(max(sizes))
    assert written[1] < 1.5 * written[0] < 6_000
