"""Streams in event time give the same whatever the unit of their times is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from topo import ArgMax, BasicBolt, EventTime, First, Last, Session, Spout, Tumbling, Tuple
from topo.streams import KeyedStream, Process, Stream, StreamBuilder
from topo.streams.api.results import WindowedStream
from topo.testing import FeederSpout, TestCluster, complete_topology

START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = (1, 3.5, 9, 12, 14.5, 21, 23, 60)
UNITS: dict[str, Callable[[float], Any]] = {
    "ms": lambda secs: int(1_000 * (START.timestamp() + secs)),
    "us": lambda secs: int(1_000_000 * (START.timestamp() + secs)),
    "s": lambda secs: START.timestamp() + secs,
    "datetime": lambda secs: START + timedelta(seconds=secs),
}


def seconds(value: Any, unit: str) -> float:
    """Return the seconds since the start."""
    if unit == "datetime":
        return float((value - START).total_seconds())
    return float(value / {"ms": 1_000, "us": 1_000_000, "s": 1}[unit] - START.timestamp())


class Visits(Spout):
    """Emits visits, of two users in turns."""

    outputs = ("user", "ts")

    def __init__(self, unit: str) -> None:
        self.left = [["ann" if n % 2 else "bob", UNITS[unit](s)] for n, s in enumerate(SECONDS)]

    def next_tuple(self) -> None:
        if self.left:
            self.emit(self.left.pop(0), msg_id=len(self.left))

    def is_exhausted(self) -> bool:
        return not self.left


class Sink(BasicBolt):
    """Passes on what it gets."""

    outputs = ("value",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.value])


Program = Callable[[KeyedStream[Any, Any], str], Stream[Any]]


def outcome(write: Program, unit: str) -> list[Any]:
    s = StreamBuilder()
    visits = s.stream(Visits(unit), time=EventTime("ts", unit=unit)).key_by("user")
    write(visits, unit).map(list).map(tuple).to(Sink(), name="sink")
    found: list[Any] = [value for (value,) in complete_topology(s.build()).tuples("sink")]
    return sorted(found)


def windows_of_windows(visits: KeyedStream[Any, Any], unit: str) -> Stream[Any]:
    fives = visits.window(Tumbling(timedelta(seconds=5))).count()
    twenties = fives.map(lambda five: five[1]).window(Tumbling(timedelta(seconds=20))).collect()
    return twenties.map(lambda both: (seconds(both[0][1].end, unit), sorted(both[1])))


def versions(visits: KeyedStream[Any, Any], unit: str) -> Stream[Any]:
    counts = visits.window(Tumbling(timedelta(seconds=5))).count().map_window_away()
    table = counts.to_table(versioned=timedelta(seconds=30))
    return visits.left_join(
        table, lambda visit, n: (visit.user, seconds(visit.ts, unit), n or 0)
    ).values()


class Later(Process[str, Any, Any]):
    """Tells of each visit eight seconds later."""

    def __init__(self, unit: str) -> None:
        self.pause: Any = {"datetime": timedelta(seconds=8)}.get(unit)
        if self.pause is None:
            self.pause = {"ms": 8_000, "us": 8_000_000, "s": 8}[unit]

    def on_value(self, key: str, value: Any) -> None:
        assert self.ts == value.ts
        self.set_timer(str(self.ts), self.ts + self.pause)

    def on_timer(self, key: str, name: str, at: Any) -> None:
        assert self.ts == at
        self.emit((key, at))


def timers(visits: KeyedStream[Any, Any], unit: str) -> Stream[Any]:
    told = visits.process(Later(unit)).map_values(lambda at: seconds(at, unit))
    ends = told.window(Tumbling(timedelta(seconds=10))).collect()
    return ends.map(lambda one: (one[0][0], seconds(one[0][1].end, unit), sorted(one[1])))


def first_in_a_while(visits: KeyedStream[Any, Any], unit: str) -> Stream[Any]:
    once = visits.values().dedupe("user", within=timedelta(seconds=10))
    return once.map(lambda visit: (visit.user, seconds(visit.ts, unit)))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    ("write", "wanted"),
    [
        (windows_of_windows, [(20.0, [1, 1, 1, 1, 1]), (40.0, [1, 1]), (80.0, [1])]),
        (
            versions,
            [
                ("ann", 3.5, 0), ("ann", 12.0, 1), ("ann", 21.0, 1), ("ann", 60.0, 1),
                ("bob", 1.0, 0), ("bob", 9.0, 1), ("bob", 14.5, 1), ("bob", 23.0, 1),
            ],
        ),
        (
            timers,
            [
                ("ann", 20.0, [11.5]), ("ann", 30.0, [20.0, 29.0]), ("ann", 70.0, [68.0]),
                ("bob", 10.0, [9.0]), ("bob", 20.0, [17.0]), ("bob", 30.0, [22.5]),
                ("bob", 40.0, [31.0]),
            ],
        ),
        (
            first_in_a_while,
            [("ann", 3.5), ("ann", 21.0), ("ann", 60.0), ("bob", 1.0), ("bob", 14.5)],
        ),
    ],
)  # fmt: skip
def test_streams_of_every_unit_give_the_same(write: Program, wanted: list[Any], unit: str) -> None:
    assert outcome(write, unit) == wanted


def test_results_that_a_filter_drops_move_the_watermark_of_windows_behind_it_in_seconds() -> None:
    s = StreamBuilder()
    visits = s.stream(Visits("s"), time=EventTime("ts", unit="s", idle=None)).key_by("user")
    early = (
        visits.window(Tumbling(timedelta(seconds=5)))
        .count()
        .filter(lambda result: result[0][1].end - START.timestamp() <= 5)
    )
    early.keys().window(Tumbling(timedelta(seconds=10))).count().named("behind").print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("early", s.build())
        run.settle()
        assert [row[-1] for row in run.tuples("behind")] == [2]


AGGREGATES: dict[str, Callable[[WindowedStream[Any, Any]], Stream[Any]]] = {
    "distinct": lambda w: w.distinct(),
    "top": lambda w: w.top(1),
    "top by": lambda w: w.top(1, by="ts"),
    "first": lambda w: w.aggregate(First("ts")),
    "last": lambda w: w.aggregate(Last("ts")),
    "argmax": lambda w: w.aggregate(ArgMax("user", "ts")),
}


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("timed", [True, False])
def test_aggregates_are_the_same_in_sessions_and_other_windows(name: str, timed: bool) -> None:
    found = []
    for window in (Tumbling(timedelta(days=365_000)), Session(timedelta(days=1))):
        s = StreamBuilder()
        time = EventTime("ts") if timed else None
        visits = s.stream(Visits("ms"), time=time).key_by("user").window(window)
        AGGREGATES[name](visits).map(lambda r: (r[0][0], repr(r[1]))).to(Sink(), name="sink")
        found.append(sorted(complete_topology(s.build()).tuples("sink")))
    assert found[0] == found[1]
    assert [value[0] for (value,) in found[0]] == ["ann", "bob"]


def test_counts_at_the_end_of_a_stream_with_event_time() -> None:
    assert outcome(lambda visits, _: visits.count().at_end(), "ms") == [("ann", 4), ("bob", 4)]


class ByTheClock(Process[str, Any, tuple[str, str]]):
    """Emits once by the clock, ten seconds after a value."""

    def on_value(self, key: str, value: Any) -> None:
        self.state["waits"] = True
        self.set_timer("later", self.now + 10, clock=True)

    def on_timer(self, key: str, name: str, at: Any) -> None:
        self.state.clear()
        self.emit((key, "done"))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("other_secs", [0, 30])
def test_what_a_clock_timer_emits_is_of_the_time_it_was_set_at_or_of_the_watermark(
    unit: str, other_secs: float
) -> None:
    s = StreamBuilder()
    feed = FeederSpout(["user", "ts"])
    visits = s.stream(feed, time=EventTime("ts", unit=unit, idle=None)).key_by("user")
    visits.process(ByTheClock()).named("later").to(Sink(), name="sink")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build(), {})
        feed.feed(["ann", UNITS[unit](5)])
        run.settle()
        run.restart()
        if other_secs:
            feed.feed(["bob", UNITS[unit](other_secs)])
            run.settle()
        cluster.advance(11)
        times = [row[-1] for row in run.tuples("later") if row[0] == "ann"]
        assert [seconds(ts, unit) for ts in times] == [max(5, other_secs)]
