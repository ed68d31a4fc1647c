"""Windows in topologies: what users see of them, under simulated time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from datetime import timedelta as td
from pathlib import Path
from random import Random
from typing import Any

import pytest

from examples import sliding_tuple_ts
from tests.property.scale import seeds
from tests.wiring import saves_of
from topo import (
    AfterCount,
    AfterDelay,
    ArgMax,
    AtWatermark,
    BasicBolt,
    Collect,
    Combiner,
    Count,
    Distinct,
    EventTime,
    Every,
    FailTuple,
    Global,
    InvalidTopologyError,
    Max,
    Mean,
    Min,
    PerEvent,
    Session,
    Sliding,
    Spout,
    Sum,
    TimestampError,
    TopK,
    TopoError,
    TopologyBuilder,
    Tumbling,
    UncaughtError,
    Var,
    When,
    WindowAggregate,
    WindowedBolt,
    WindowError,
)
from topo import Any as AnyOf
from topo.cli.root import run as run_command
from topo.cli.stats import times_of
from topo.testing import FeederSpout, TestCluster, complete_topology, make_tuple, run_bolt

EXAMPLES = Path(sliding_tuple_ts.__file__).parent
SECOND = td(seconds=1)
SEEDS = pytest.mark.parametrize("seed", seeds(4))


def builder_of(bolt: Any, *feeders: FeederSpout, tasks: int = 1) -> TopologyBuilder:
    builder = TopologyBuilder()
    declared = builder.set_bolt("w", bolt, tasks)
    for number, feeder in enumerate(feeders):
        builder.set_spout(f"in{number}", feeder)
        declared.fields_grouping(f"in{number}", ["key"])
    return builder


@contextmanager
def running(
    bolt: Any, *feeders: FeederSpout, seed: int = 0, conf: Any = None, tasks: int = 1
) -> Iterator[tuple[TestCluster, Any]]:
    with TestCluster(seed=seed) as cluster:
        topology = builder_of(bolt, *feeders, tasks=tasks).create_topology()
        yield cluster, cluster.submit_topology("t", topology, conf)


def counts(window: Any = None, **more: Any) -> WindowAggregate:
    time = more.pop("time", EventTime("ts"))
    return WindowAggregate(
        key="key", window=window or Tumbling(10), time=time, aggregates={"n": Count()}, **more
    )


def feeder() -> FeederSpout:
    return FeederSpout(["key", "ts"])


class Sizes(WindowedBolt):
    """Emits the end and the values of a window."""

    outputs = ("end", "values")

    def execute(self, window: Any) -> None:
        self.emit([window.end, [tup.ts for tup in window]])


class Odd(Combiner):
    """Cannot be merged."""

    def init(self) -> int:
        return 0

    def add(self, acc: int, value: Any) -> int:
        return acc ^ 1


class Ticking(Sizes):
    """Emits the ticks as well."""

    def on_tick(self, tup: Any) -> None:
        self.emit([tup["rate_secs"], []])


# -- event time ---------------------------------------------------------------------------------


@SEEDS
def test_a_window_is_reported_in_the_batch_that_completes_it(seed: int) -> None:
    feed = feeder()
    with running(counts(), feed, seed=seed) as (_, run):
        assert run.watermark("w") is None
        for ts in (1, 2, 9):
            feed.feed(["a", ts])
        run.settle()
        assert run.tuples("w") == []
        feed.feed(["a", 10])
        run.settle()
        assert run.tuples("w") == [["a", 0, 10, 3]]
        assert run.watermark("w") == 10


@pytest.mark.parametrize(
    ("bolt", "rows"),
    [
        (counts(), [["a", 0, 10, 1]]),
        (Sizes().with_session(5).with_timestamp_field("ts").with_key("key"), [[6, [1]]]),
        (Ticking().with_session(5).with_timestamp_field("ts").with_key("key"), [[5, []], [6, [1]]]),
    ],
)
def test_a_tick_is_in_no_window(bolt: Any, rows: list[Any]) -> None:
    feed = feeder()
    with running(bolt, feed, conf={"topology.tick.tuple.freq.secs": 5}) as (cluster, run):
        feed.feed(["a", 1])
        run.settle()
        cluster.advance(5)
        feed.feed(["a", 10])
        run.settle()
        assert run.tuples("w") == rows


@SEEDS
def test_the_watermark_is_that_of_the_slowest_input(seed: int) -> None:
    fast, slow = feeder(), feeder()
    with running(counts(time=EventTime("ts", idle=None)), fast, slow, seed=seed) as (_, run):
        fast.feed(["a", 100])
        run.settle()
        assert run.watermark("w") is None
        slow.feed(["a", 5])
        run.settle()
        assert run.watermark("w") == 5
        slow.feed(["a", 20])
        run.settle()
        assert run.tuples("w") == [["a", 0, 10, 1]]


@SEEDS
def test_an_input_that_has_nothing_is_left_out_and_comes_back(seed: int) -> None:
    fast, slow = feeder(), feeder()
    with running(counts(late_stream="late"), fast, slow, seed=seed) as (cluster, run):
        fast.feed(["a", 100])
        slow.feed(["a", 5])
        run.settle()
        cluster.advance(4.9)
        fast.feed(["a", 101])
        run.settle()
        assert run.tuples("w") == []
        cluster.advance(0.2)  # the slow input has had nothing for five seconds
        assert run.tuples("w") == [["a", 0, 10, 1]]
        assert run.watermark("w") == 101
        slow.feed(["a", 6])
        run.settle()
        assert run.watermark("w") == 101
        assert [row[0].ts for row in run.tuples("w", "late")] == [6]
        slow.feed(["a", 300])
        run.settle()
        assert run.watermark("w") == 101  # aligned again, and the other one is there


def test_a_source_at_its_pending_limit_is_not_idle() -> None:
    class Holding(WindowedBolt):
        length = 100

        def execute(self, window: Any) -> None: ...

    feed = feeder()
    bolt = Holding().with_timestamp_field("ts").with_ack("expiry")
    with running(bolt, feed, conf={"topology.max.spout.pending": 200}) as (cluster, run):
        assert run.watermark("w") is None
        cluster.advance(20)
        feed.feed(["a", 5])
        run.settle()
        assert run.watermark("w") == 5


@SEEDS
def test_an_input_without_times_is_left_out(seed: int) -> None:
    feed, settings = feeder(), FeederSpout(["key"])
    bolt = (
        Sizes().with_window(td(milliseconds=10)).with_event_time(EventTime("ts", untimed=["in1"]))
    )

    class Both(Sizes):
        def execute(self, window: Any) -> None:
            self.emit([window.end, [tup.source_component for tup in window]])

    bolt = (
        Both()
        .with_tumbling_window(td(milliseconds=10))
        .with_event_time(EventTime("ts", untimed=["in1"]))
    )
    with running(bolt, feed, settings, seed=seed) as (_, run):
        feed.feed(["a", 5])
        feed.feed(["a", 11])
        run.settle()
        assert run.tuples("w") == [[10, ["in0"]]]


@SEEDS
def test_the_clock_goes_on_for_inputs_that_stop(seed: int) -> None:
    feed = feeder()
    time = EventTime("ts", lag=SECOND, when_idle="clock")
    with running(counts(Tumbling(10_000), time=time), feed, seed=seed) as (cluster, run):
        feed.feed(["a", 5_000])
        run.settle()
        assert run.watermark("w") == 4_000
        cluster.advance(5.9)
        assert run.tuples("w") == []
        cluster.advance(0.1)
        assert run.tuples("w") == [["a", 0, 10_000, 1]]


def test_a_wrong_clock_does_not_move_the_watermark() -> None:
    feed = feeder()
    time = EventTime("ts", max_ahead=td(hours=1))
    with running(counts(time=time), feed) as (_, run):
        feed.feed(["a", 5])
        feed.feed(["a", 10_000_000])
        with pytest.warns(UserWarning, match="max_ahead beyond the clock"):
            run.settle()
        assert run.watermark("w") == 5
        assert run.stats().components["w"].ahead == 1


@SEEDS
def test_late_tuples_are_acked_and_counted_and_not_lost(seed: int) -> None:
    feed = feeder()
    with running(counts(late_stream="late"), feed, seed=seed) as (_, run):
        for number, ts in enumerate((5, 30)):
            feed.feed(["a", ts], msg_id=number)
        run.settle()
        feed.feed(["b", 7], msg_id=2)
        run.settle()
        assert sorted(feed.acked) == [0, 1, 2]
        assert [row[0].values for row in run.tuples("w", "late")] == [["b", 7]]
        assert run.stats().components["w"].late == 1


def test_filters_may_tell_what_they_have_seen() -> None:
    class OnlyBig(BasicBolt):
        outputs = ("key", "ts")

        def execute(self, tup: Any) -> None:
            self.collector.observe_time(tup.ts)
            if tup.key == "big":
                self.emit([tup.key, tup.ts])

    feed = feeder()
    builder = TopologyBuilder()
    builder.set_spout("in", feed)
    builder.set_bolt("filter", OnlyBig()).shuffle_grouping("in")
    builder.set_bolt("w", counts()).fields_grouping("filter", ["key"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        feed.feed(["big", 5])
        feed.feed(["small", 50])
        run.settle()
        assert run.tuples("w") == [["big", 0, 10, 1]]


def test_an_extractor_computes_the_time() -> None:
    feed = FeederSpout(["key", "at"])

    class Ends(Sizes):
        def execute(self, window: Any) -> None:
            self.emit([window.end, [tup["at"] for tup in window]])

    made = Ends().with_tumbling_window(td(milliseconds=10))
    made.with_timestamp_extractor(lambda tup: int(tup["at"].split("=")[1]))
    with running(made, feed) as (_, run):
        feed.feed(["a", "t=3"])
        feed.feed(["a", "t=14"])
        run.settle()
        assert run.tuples("w") == [[10, ["t=3"]]]


@pytest.mark.parametrize("function", [lambda tup: 1 // 0, lambda tup: None])
def test_an_extractor_that_fails_is_named_or_makes_tuples_late(function: Any) -> None:
    feed = feeder()
    bolt = Sizes().with_window(2).with_timestamp_extractor(function)
    with running(bolt, feed) as (_, run):
        feed.feed(["a", 1])
        with pytest.raises(TopoError, match="bolt 'w', tuple of 'in0'"):
            run.settle()
    feed = feeder()
    time = EventTime(extractor=function, on_bad="late")
    bolt = Sizes().with_window(2).with_event_time(time).with_late_tuple_stream("late")
    with running(bolt, feed) as (_, run):
        feed.feed(["a", 1])
        run.settle()
        assert len(run.tuples("w", "late")) == 1


def test_what_a_condition_raises_is_shown_as_it_is() -> None:
    feed = feeder()
    with running(counts(trigger=When(lambda results: results["nope"] > 1)), feed) as (_, run):
        feed.feed(["a", 1])
        with pytest.raises(UncaughtError, match="KeyError: 'nope'"):
            run.settle()


def test_datetimes_and_seconds_come_back_as_they_were() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for unit, first, second, wanted in (
        ("datetime", start, start + td(seconds=11), [start, start + td(seconds=10)]),
        ("s", 100.5, 110, [100, 110]),
        ("us", 1, 10_000_001, [0, 10_000_000]),
    ):
        feed = feeder()
        bolt = counts(Tumbling(td(seconds=10)), time=EventTime("ts", unit=unit))
        with running(bolt, feed) as (_, run):
            feed.feed(["a", first])
            feed.feed(["a", second])
            run.settle()
            assert run.tuples("w") == [["a", *wanted, 1]]


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [None, "12", True, math.nan, 1.5, datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)]
)
def test_what_is_no_time_is_an_error_or_late(bad: Any) -> None:
    feed = feeder()
    with running(counts(), feed) as (_, run):
        feed.feed(["a", bad])
        with pytest.raises(UncaughtError, match="field 'ts': the time is"):
            run.settle()
    feed = feeder()
    bolt = counts(time=EventTime("ts", on_bad="late"), late_stream="late")
    with running(bolt, feed) as (_, run):
        feed.feed(["a", 1])
        feed.feed(["a", bad])
        feed.feed(["a", 15])
        run.settle()
        assert run.tuples("w") == [["a", 0, 10, 1]]
        assert len(run.tuples("w", "late")) == 1


def test_a_naive_datetime_is_refused_with_the_remedy() -> None:
    with pytest.raises(TimestampError, match=r"naive datetime.*tzinfo=UTC"):
        EventTime("ts", unit="datetime").read(datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Tumbling(0), "above zero"),
        (lambda: Tumbling(-SECOND), "above zero"),
        (lambda: Tumbling(1.5), "timedelta"),  # type: ignore[arg-type]
        (lambda: Sliding(SECOND, 0), "slide"),
        (lambda: Session(td(0)), "gap"),
        (lambda: PerEvent(0), "PerEvent: size"),
        (lambda: PerEvent(SECOND, after=1), "after is 1"),  # type: ignore[arg-type]
        (lambda: counts(PerEvent(SECOND), emit="changed"), "sliding windows"),
        (lambda: WindowAggregate(window=PerEvent(1), aggregates={"n": Odd()}), "'n' cannot"),
        (lambda: Sizes().with_window(20.0), "int, a count, or a timedelta"),  # type: ignore[arg-type]
        (lambda: Sizes().with_window(True), "int, a count"),
        (lambda: Sizes().with_window(5, -1), "slide"),
        (lambda: Sizes().with_lag(-SECOND), "lag"),
        (lambda: AfterCount(0), "1 or more"),
        (lambda: AfterDelay(td(0)), "above zero"),
        (lambda: EventTime("ts", idle=td(0)), "idle"),
        (lambda: EventTime("ts", unit="min"), "unit"),
        (lambda: EventTime("ts", untimed="in"), "list of components"),
        (lambda: counts(Tumbling(td(microseconds=1500))), "whole number of ms"),
        (lambda: counts(Tumbling), "takes Tumbling"),
        (lambda: counts(mode="both"), "mode"),
        (lambda: counts(time=None, late_stream="late"), "needs event time"),
        (lambda: WindowAggregate(window=Tumbling(1), aggregates={"n": Count}), "Count()"),  # type: ignore[dict-item]
        (lambda: WindowAggregate(window=Tumbling(1), aggregates={}), "aggregates"),
        (lambda: AnyOf(), "one trigger"),
        (lambda: Sizes().with_key(), "names of fields"),
        (lambda: Sizes().with_allowed_lateness(-SECOND), "zero or more"),
        (lambda: Sizes().with_trigger(AfterCount(1), on_time="never"), "on_time"),
        (lambda: WindowAggregate(window=Tumbling(1), aggregates={"n": Count()}, key=5), "key is 5"),  # type: ignore[arg-type]
        (lambda: WindowAggregate(window=Tumbling(1), aggregates={3: Count()}), "named 3"),  # type: ignore[dict-item]
        (lambda: WindowAggregate(window=Session(1), aggregates={"n": Odd()}), "'n' cannot"),
    ],
)
def test_a_window_that_cannot_be_is_refused_where_it_is_written(make: Any, said: str) -> None:
    with pytest.raises(WindowError, match=said):
        make()


class NoExecute(WindowedBolt):
    length = 5


class SlideOnly(Sizes):
    slide = 5


@pytest.mark.parametrize(
    ("bolt", "said"),
    [
        (Sizes(), "without a window"),
        (SlideOnly(), "has a slide, but no length"),
        (NoExecute(), "does not override 'execute'"),
        (Sizes().with_window(5).with_late_tuple_stream("late"), "late stream needs a time"),
        (Sizes().with_window(5).with_timestamp_field("tss"), "no field 'tss'"),
        (Sizes().with_window(5).with_key("user"), "the key 'user' is no field"),
        (
            Sizes().with_session(SECOND).with_timestamp_field("ts").with_ack("expiry"),
            "length and a slide only",
        ),
        (
            Sizes().with_window(5, 5).with_timestamp_field("ts").with_allowed_lateness(SECOND),
            "windows by time",
        ),
        (WindowAggregate(window=Tumbling(1), aggregates={"n": Sum("cost")}), "reads field 'cost'"),
        (counts(time=EventTime()), "no time field is named"),
    ],
)
def test_a_declaration_that_does_not_fit_is_a_problem_of_the_topology(bolt: Any, said: str) -> None:
    with pytest.raises(InvalidTopologyError, match=said):
        builder_of(bolt, feeder()).create_topology()


def test_keys_that_come_to_several_tasks_are_a_problem_with_the_line_to_write() -> None:
    builder = TopologyBuilder()
    builder.set_spout("in", feeder())
    builder.set_bolt("w", counts(), 2).shuffle_grouping("in")
    with pytest.raises(InvalidTopologyError, match=r"fields_grouping\('in', \['key'\]\)"):
        builder.create_topology()


@pytest.mark.parametrize(
    ("aggregate", "value", "said"),
    [
        (Sum("v"), "x", "aggregate 'it', Sum of 'v', cannot add 'x', a str"),
        (Max("v"), "x", "'it', Max of 'v',.*"),
        (Distinct("v"), [1], r"aggregate 'it', Distinct of 'v', cannot add \[1\], a list"),
    ],
)
@pytest.mark.parametrize("window", [Tumbling(10), Session(10), Sliding(10, 5)])
def test_a_value_that_cannot_be_added_is_named(
    window: Any, aggregate: Any, value: Any, said: str
) -> None:
    feed = FeederSpout(["key", "ts", "v"])
    bolt = WindowAggregate(
        key="key", window=window, time=EventTime("ts"), aggregates={"it": aggregate}
    )
    with running(bolt, feed) as (_, run):
        feed.feed(["a", 1, 4])
        feed.feed(["a", 2, value])
        with pytest.raises(UncaughtError, match=rf"bolt 'w' task \d+: WindowError: .*{said}"):
            run.settle()


def test_a_key_that_cannot_be_one_is_named() -> None:
    feed = feeder()
    with running(counts(), feed) as (_, run):
        feed.feed([["a"], 1])
        with pytest.raises(UncaughtError, match=r"the key of a tuple is \['a'\], a list"):
            run.settle()


@pytest.mark.parametrize("window", [Tumbling(10), Session(10), Sliding(20, 10)])
def test_none_is_no_value(window: Any) -> None:
    rows = [["a", 1, None], ["a", 2, 4], ["a", 3, None], ["b", 1, None]]
    aggregates: dict[str, Any] = {
        "n": Count("v"), "sum": Sum("v"), "min": Min("v"), "max": Max("v"), "mean": Mean("v"),
        "var": Var("v"), "different": Distinct("v"), "top": TopK(2, "v"), "best": ArgMax("ts", "v"),
    }  # fmt: skip
    bolt = WindowAggregate(key="key", window=window, time=EventTime("ts"), aggregates=aggregates)
    builder = builder_of(bolt, FeederSpout(["key", "ts", "v"]))
    result = complete_topology(builder.create_topology(), mock_sources={"in0": rows})
    found = {row[0]: row[3:] for row in result.tuples("w")}
    assert found["a"] == [1, 4, 4, 4, 4.0, 0.0, 1, [4], 2]
    assert found["b"] == [0, 0, None, None, None, None, 0, [], None]


@pytest.mark.parametrize("bad", [1 << 61, -(1 << 61), 1 << 80, 1e300])
def test_a_time_too_far_away_is_an_error_or_late(bad: Any) -> None:
    feed = feeder()
    with running(counts(), feed) as (_, run):
        feed.feed(["a", bad])
        with pytest.raises(UncaughtError, match="too far away to be a time; the unit is 'ms'"):
            run.settle()
    feed = feeder()
    with running(counts(time=EventTime("ts", on_bad="late"), late_stream="late"), feed) as (_, run):
        for ts in (1, bad, 15):
            feed.feed(["a", ts])
        run.settle()
        assert run.tuples("w") == [["a", 0, 10, 1]]
        assert run.watermark("w") == 15
        assert len(run.tuples("w", "late")) == 1


class Carried(Sizes):
    """Has its window in its class."""

    length = td(milliseconds=10)
    slide = td(milliseconds=10)
    timestamp_field = "ts"
    lag = td(milliseconds=2)
    idle = None
    key = "key"
    late_stream = "late"
    watermark_interval = td(0)


class CarriedSession(Sizes):
    session = 5
    allowed_lateness = 3
    timestamp_field = "ts"
    timestamp_unit = "us"
    trigger = AtWatermark(early=AfterCount(2))
    mode = "discard"


def test_a_class_carries_its_window() -> None:
    feed = feeder()
    with running(Carried(), feed) as (_, run):
        for ts in (1, 12, 22, 3):
            feed.feed(["a", ts])
            run.settle()
        assert run.tuples("w") == [[10, [1]], [20, [12]]]
        assert [row[0].ts for row in run.tuples("w", "late")] == [3]
    feed = feeder()
    with running(CarriedSession(), feed) as (_, run):
        for ts in (1, 3, 4, 30):
            feed.feed(["a", ts])
            run.settle()
        assert run.tuples("w") == [[8, [1, 3]], [9, [4]]]


class BadAck(Sizes):
    length = 5
    ack_mode = "later"


class BadKey(Sizes):
    length = 5
    key = 7  # type: ignore[assignment]


class BadMode(Sizes):
    session = 5
    timestamp_field = "ts"
    mode = "retract"


class BadInterval(Sizes):
    length = 5
    watermark_interval = 3  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("bolt", "said"),
    [
        (BadAck(), "acked by 'state' or by 'expiry'; got 'later'"),
        (BadKey(), "key is 7"),
        (BadMode(), "'accumulate' or 'discard'"),
        (BadInterval(), "watermark interval is 3"),
        (
            counts(time=EventTime("ts", untimed=["other"])),
            "untimed names 'other', which it does not read",
        ),
    ],
)
def test_a_class_with_a_wrong_setting_is_a_problem_of_the_topology(bolt: Any, said: str) -> None:
    with pytest.raises(InvalidTopologyError, match=said):
        builder_of(bolt, feeder()).create_topology()


# -- arrival ------------------------------------------------------------------------------------


@SEEDS
def test_windows_by_arrival_end_with_the_clock(seed: int) -> None:
    feed = feeder()
    bolt = WindowAggregate(key="key", window=Tumbling(td(seconds=10)), aggregates={"n": Count()})
    with running(bolt, feed, seed=seed) as (cluster, run):
        cluster.advance(3)
        feed.feed(["a", 0])
        cluster.advance(6)
        feed.feed(["a", 0])
        run.settle()
        run.restart()
        cluster.advance(0.9)
        assert run.tuples("w") == []
        feed.feed(["a", 0])
        cluster.advance(0.1)
        assert run.tuples("w") == [["a", 0, 10_000, 3]]
        feed.feed(["a", 0])
        cluster.advance(25)
        assert run.tuples("w")[1:] == [["a", 10_000, 20_000, 1]]


@SEEDS
def test_storms_windows_by_arrival(seed: int) -> None:
    feed = feeder()
    with running(Sizes().with_window(td(seconds=20), td(seconds=10)), feed, seed=seed) as (
        cluster,
        run,
    ):
        for ts in range(4):
            feed.feed(["a", ts])
            cluster.advance(8)
            run.restart()
        cluster.advance(40)
        sizes = [(end / 1_000, values) for end, values in run.tuples("w")]
        assert sizes == [(10, [0, 1]), (20, [0, 1, 2]), (30, [2, 3]), (40, [3])]


# -- panes --------------------------------------------------------------------------------------


@SEEDS
def test_early_panes_by_the_clock_come_at_their_time(seed: int) -> None:
    for trigger, at in ((AfterDelay(td(seconds=3)), 5), (Every(td(seconds=3)), 3)):
        feed = feeder()
        with running(counts(trigger=AtWatermark(early=trigger)), feed, seed=seed) as (
            cluster,
            run,
        ):
            cluster.advance(2)
            feed.feed(["a", 1])
            run.settle()
            run.restart()
            cluster.advance(at - 2 - 0.1)
            assert run.tuples("w") == []
            cluster.advance(0.1)
            assert run.tuples("w") == [["a", 0, 10, 1, "early", 0]]
            feed.feed(["a", 12])
            run.settle()
            assert run.tuples("w")[1:] == [["a", 0, 10, 1, "on_time", 1]]


@SEEDS
def test_late_panes_come_while_lateness_is_allowed(seed: int) -> None:
    feed = feeder()
    with running(counts(allowed_lateness=5, late_stream="late"), feed, seed=seed) as (_, run):
        for ts in (1, 12, 3, 16, 4):
            feed.feed(["a", ts])
            run.settle()
            run.restart()
        assert run.tuples("w") == [["a", 0, 10, 1, "on_time", 0], ["a", 0, 10, 2, "late", 1]]
        assert len(run.tuples("w", "late")) == 1


def test_modes_say_what_is_new_everything_or_what_changed() -> None:
    wanted = {
        "discard": [],
        "accumulate": [[2, "early"], [3, "early"]],
        "retract": [[2, "+", "early"], [2, "-", "early"], [3, "+", "early"]],
    }
    for mode, rows in wanted.items():
        feed = feeder()
        trigger: Any = AnyOf(AfterCount(2), When(lambda results: results["n"] >= 2))
        if mode == "discard":
            trigger, rows = AtWatermark(early=AfterCount(1)), [[1, "early"]] * 3
        bolt = counts(trigger=trigger, mode=mode)
        with running(bolt, feed) as (_, run):
            for _ in range(3):
                feed.feed(["a", 1])
            run.settle()
            assert [row[3:-1] for row in run.tuples("w")] == rows


@SEEDS
def test_sessions_with_a_gap_of_each_tuple(seed: int) -> None:
    feed = FeederSpout(["key", "ts", "gap"])
    bolt = counts(Session(lambda tup: tup.gap))
    with running(bolt, feed, seed=seed) as (_, run):
        for ts, gap in ((0, 5), (5, 20), (22, 3), (40, 1), (60, 1)):
            feed.feed(["a", ts, gap])
        run.settle()
        run.restart()
        assert run.tuples("w") == [["a", 0, 25, 3], ["a", 40, 41, 1]]


@SEEDS
def test_a_windowed_bolt_with_sessions_gets_all_tuples_of_one(seed: int) -> None:
    feed = feeder()
    bolt = Sizes().with_session(5).with_timestamp_field("ts").with_key("key")
    with running(bolt, feed, seed=seed) as (_, run):
        for key, ts in (("a", 1), ("b", 3), ("a", 4), ("a", 20), ("b", 30)):
            feed.feed([key, ts])
        run.settle()
        run.restart()
        feed.feed(["b", 50])
        run.settle()
        assert sorted(run.tuples("w")) == [[8, [3]], [9, [1, 4]], [25, [20]], [35, [30]]]


@SEEDS
def test_keys_without_news_are_left_out_of_sliding_windows(seed: int) -> None:
    feed = FeederSpout(["key", "ts"])
    bolt = WindowAggregate(
        key="key",
        window=Sliding(td(milliseconds=40), td(milliseconds=10)),
        time=EventTime("ts"),
        aggregates={"n": Count()},
        emit="changed",
    )
    builder = TopologyBuilder()
    builder.set_spout("in", feed)
    builder.set_bolt("w", bolt).fields_grouping("in", ["key"])
    run = TestCluster(seed=seed).submit_topology("t", builder.create_topology())
    for key, ts in (("a", 0), ("b", 5), ("b", 15), ("c", 60)):
        feed.feed([key, ts])
        run.settle()
        run.restart()
    assert run.tuples("w") == [
        ["a", -30, 10, 1],
        ["b", -30, 10, 1],
        ["b", -20, 20, 2],
        ["b", 10, 50, 1],  # one of its two has left; of "a" nothing is left
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"window": Session(10)},
        {"window": Sliding(20, 10), "trigger": AtWatermark(early=AfterCount(1))},
        {"window": Sliding(20, 10), "allowed_lateness": 5},
        {"window": Sliding(20, 10), "emit": "new"},
    ],
)
def test_only_sliding_windows_that_report_once_leave_keys_out(more: dict[str, Any]) -> None:
    with pytest.raises(WindowError, match="emit"):
        WindowAggregate(**{"emit": "changed", "time": EventTime("ts"), **more},
                        aggregates={"n": Count()})  # fmt: skip


class Endless(Spout):
    outputs = ("key", "ts")

    def next_tuple(self) -> None:
        self.emit(["a", 1])


class Finite(Endless):
    def is_exhausted(self) -> bool:
        return True


def test_a_global_window_without_a_trigger_is_warned_of_if_the_input_has_no_end() -> None:
    def warnings(spout: Spout | None = None, **more: Any) -> Any:
        builder = TopologyBuilder()
        builder.set_spout("in", spout or Endless())
        bolt = WindowAggregate(window=Global(), aggregates={"n": Count()}, **more)
        builder.set_bolt("totals", bolt).global_grouping("in")
        return builder.create_topology().warnings

    (said,) = warnings()
    assert "bolt 'totals' has a Global window without a trigger" in said
    assert "trigger=AfterCount(100)" in said
    assert not warnings(trigger=AfterCount(3))
    assert not warnings(Finite())


def test_the_global_window_reports_by_its_trigger() -> None:
    feed = feeder()
    with running(counts(Global(), trigger=AfterCount(2), mode="discard"), feed) as (_, run):
        for ts in range(5):
            feed.feed(["a", ts])
        run.settle()
        assert run.tuples("w") == [
            ["a", None, None, 2, "early", 0],
            ["a", None, None, 2, "early", 1],
        ]


# -- the end, failures, restarts ------------------------------------------------------------------


def test_a_finite_input_ends_all_windows_level_by_level() -> None:
    rows = [["a", 1], ["b", 3], ["a", 25]]
    builder = builder_of(counts(), feeder())
    second = WindowAggregate(
        window=Tumbling(100), time=EventTime(), aggregates={"n": Sum("n"), "keys": Collect("key")}
    )
    builder.set_bolt("w2", second).global_grouping("w")
    builder.set_bolt("sizes", Sizes().with_window(2, 2)).global_grouping("in0")
    with pytest.warns(UserWarning, match="field 'values' of stream 'default'"):
        result = complete_topology(builder.create_topology(), mock_sources={"in0": rows})
    assert sorted(result.tuples("w")) == [["a", 0, 10, 1], ["a", 20, 30, 1], ["b", 0, 10, 1]]
    ((start, end, n, keys),) = result.tuples("w2")
    assert (start, end, n, sorted(keys)) == (0, 100, 3, ["a", "a", "b"])
    assert [values for _, values in result.tuples("sizes")] == [[1, 3], [25]]


def test_an_inactive_topology_fires_nothing() -> None:
    feed, other = feeder(), feeder()
    with running(counts(), feed, other) as (cluster, run):
        feed.feed(["a", 50])
        other.feed(["a", 5])
        run.settle()
        run.deactivate()
        cluster.advance(60)
        assert run.tuples("w") == []
        run.activate()
        cluster.advance(5)
        assert run.tuples("w") == [["a", 0, 10, 1]]


@pytest.mark.parametrize("kind", ["arrival", "delay", "raw"])
def test_the_clock_of_windows_stands_while_a_topology_is_inactive(kind: str) -> None:
    feed = feeder()
    ten = td(seconds=10)
    bolt: Any = WindowAggregate(key="key", window=Tumbling(ten), aggregates={"n": Count()})
    if kind == "delay":
        bolt = counts(trigger=AtWatermark(early=AfterDelay(ten)))
    elif kind == "raw":
        bolt = Sizes().with_tumbling_window(ten)
    with running(bolt, feed) as (cluster, run):
        feed.feed(["a", 5])
        run.settle()
        run.deactivate()
        cluster.advance(60)
        assert run.tuples("w") == []
        run.activate()
        cluster.advance(1)
        assert len(run.tuples("w")) == 1


def test_what_a_window_raises_is_reported_or_stops_the_topology() -> None:
    class Bad(Sizes):
        def execute(self, window: Any) -> None:
            raise ValueError("no window of mine")

    feed = feeder()
    with running(Bad().with_window(2, 2), feed) as (_, run):
        feed.feed(["a", 1])
        feed.feed(["a", 2])
        with pytest.raises(UncaughtError, match="no window of mine"):
            run.settle()
    feed = feeder()
    conf = {"topology.uncaught.error": "fail"}
    with running(Bad().with_window(2, 2), feed, conf=conf) as (_, run):
        for number in range(4):
            feed.feed(["a", number], msg_id=number)
        run.settle()
        assert sorted(feed.acked) == [0, 1, 2, 3]
        assert run.errors()[0].count == 2


@SEEDS
def test_acks_by_expiry_wait_for_the_window_and_fail_with_it(seed: int) -> None:
    class Picky(Sizes):
        def execute(self, window: Any) -> None:
            if window.tuples[-1].ts == 4:
                raise FailTuple("four")
            super().execute(window)

    feed = feeder()
    with running(Picky().with_window(2, 2).with_ack("expiry"), feed, seed=seed) as (_, run):
        for ts in range(1, 7):
            feed.feed(["a", ts], msg_id=ts)
            run.settle()
            run.restart()
        run.settle()
        assert sorted(feed.acked) == [1, 2]
        assert sorted(feed.failed) == [3, 4]
        assert [values for _, values in run.tuples("w")] == [[1, 2], [5, 6]]


def test_windows_that_one_batch_completes_are_executed_before_what_expires_is_acked() -> None:
    feed = feeder()
    bolt = Sizes().with_tumbling_window(SECOND).with_timestamp_field("ts").with_ack("expiry")
    with running(bolt, feed) as (_, run):
        for ts in (100, 1_100, 2_500):
            feed.feed(["a", ts], msg_id=ts)
        run.settle()
        assert run.tuples("w") == [[1_000, [100]], [2_000, [1_100]]]
        feed.feed(["a", 9_000], msg_id=9_000)
        run.settle()
        assert {100, 1_100} <= set(feed.acked)
        assert feed.failed == []


@SEEDS
@pytest.mark.parametrize(
    "kind", ["tumbling", "sliding", "sessions", "around", "early", "around, early", "raw"]
)
def test_restarts_change_nothing(kind: str, seed: int) -> None:
    random = Random(seed)
    events = [(random.choice("abc"), 10 * n + random.randint(0, 40)) for n in range(120)]

    def bolt() -> Any:
        lag = td(milliseconds=60)
        time = EventTime("ts", lag=lag)
        if kind == "raw":
            made = Sizes().with_window(td(milliseconds=90), td(milliseconds=30))
            return made.with_event_time(time).with_key("key")
        window: Any = {
            "tumbling": Tumbling(50),
            "sliding": Sliding(90, 30),
            "sessions": Session(25),
            "around": PerEvent(40, after=True),
            "early": Tumbling(50),
            "around, early": PerEvent(40, after=True),
        }[kind]
        trigger = AtWatermark(early=AfterCount(3)) if "early" in kind else None
        aggregates = {"n": Count(), "last": Max("ts")}
        return WindowAggregate(
            key="key", window=window, time=time, aggregates=aggregates, trigger=trigger
        )

    def rows(restarts: bool) -> list[Any]:
        feed = feeder()
        with running(bolt(), feed, seed=seed, tasks=2) as (_, run):
            for number, (key, ts) in enumerate(events):
                feed.feed([key, ts])
                if number % 7 == 0:
                    run.settle()
                    if restarts:
                        run.restart()
            run.settle()
            return sorted(run.tuples("w"))

    assert rows(restarts=True) == rows(restarts=False)
    assert len(rows(restarts=False)) > 10


def test_an_ended_window_leaves_nothing_in_the_state() -> None:
    feed = feeder()
    with running(counts(), feed) as (_, run):
        for number in range(3):
            for key in range(200):
                feed.feed([key, 10 * number])
            run.settle()
        sizes = []
        for number in range(3, 9):
            feed.feed([0, 10 * number])
            run.settle()
            sizes.append(run.stats().components["w"].saved_bytes)
        assert run.stats().components["w"].state_rows == 1
        assert sizes[-1] < 2_000


def test_a_commit_costs_what_changed() -> None:
    feed = feeder()
    with running(counts(Tumbling(td(hours=1))), feed) as (_, run):
        for key in range(5_000):
            feed.feed([key, 1])
        run.settle()
        written = saves_of(run)
        feed.feed([17, 2])
        run.settle()
        assert max(written) < 2_000


def test_a_watermark_that_stands_names_the_input_that_holds_it_back() -> None:
    feed, silent = feeder(), feeder()
    time = EventTime("ts", idle=None)
    with running(counts(time=time), feed, silent) as (cluster, run):
        feed.feed(["a", 1])
        run.settle()
        cluster.advance(61)
        feed.feed(["a", 2])
        with pytest.warns(UserWarning, match="held back by 'in1' task"):
            run.settle()
        gauges = run.stats().components["w"].gauges
        (holder,) = [key for key in gauges if key.startswith("watermark_held_secs")]
        assert holder.startswith("watermark_held_secs{by=\"'in1' task ")
        assert gauges[holder] == 61.0
        silent.feed(["b", 5])
        run.settle()
        assert not [key for key in run.stats().components["w"].gauges if "held" in key]


def test_a_watermark_that_no_input_holds_back_is_told_of_by_its_reason() -> None:
    feed = feeder()
    with running(counts(time=EventTime("ts", on_bad="late")), feed) as (cluster, run):
        feed.feed(["a", 1])
        run.settle()
        cluster.advance(61)
        feed.feed(["a", "no time"])
        with pytest.warns(UserWarning, match="all inputs count as idle, since none of these"):
            run.settle()


def test_the_fastest_input_counts_once_all_have_had_a_tuple() -> None:
    fast, slow = feeder(), feeder()
    bolt = counts(Tumbling(10), time=EventTime("ts", idle=None, merge="max"))
    with running(bolt, fast, slow) as (_, run):
        fast.feed(["a", 1])
        fast.feed(["a", 25])
        run.settle()
        assert run.tuples("w") == []
        slow.feed(["b", 3])
        run.settle()
        assert run.stats().components["w"].gauges["watermark_secs"] == 0.025
        assert sorted(run.tuples("w")) == [["a", 0, 10, 1], ["b", 0, 10, 1]]


def test_stats_show_watermark_and_lag() -> None:
    feed = feeder()
    with running(counts(Tumbling(10_000)), feed) as (cluster, run):
        cluster.advance(30)
        feed.feed(["a", 12_000])
        run.settle()
        stats = run.stats().components["w"]
        assert stats.gauges["watermark_secs"] == 12.0
        assert stats.gauges["watermark_lag_secs"] == 18.0
        assert stats.gauges["oldest_window_secs"] == 10.0
        assert stats.state_rows == 1


def test_topo_stats_tells_how_far_windows_are_and_what_came_too_late() -> None:
    late = {"late": 3, "ahead": 1, "state_rows": 5}
    gauges = {"watermark_secs": 1_767_225_600.0, "watermark_lag_secs": 90.0}
    components = {
        "w": {"gauges": gauges, **late},
        "x": {"gauges": {}, "late": 0, "ahead": 0, "state_rows": 0},
        "y": {"gauges": {}, **late},
        "z": {"gauges": {"watermark_secs": 1e300, "watermark_lag_secs": -1e300}},
    }
    assert times_of({"components": components}) == [
        "w: watermark 2026-01-01 00:00:00+00:00, 1m behind the clock, 3 late, 1 ahead, "
        "5 rows of state",
        "y: no watermark, 3 late, 1 ahead, 5 rows of state",
        "z: watermark 1e+300 s",
    ]


def test_storms_settings_configure_a_windowed_bolt() -> None:
    feed = feeder()
    builder = TopologyBuilder()
    builder.set_spout("in", feed)
    declared = builder.set_bolt("w", Sizes()).global_grouping("in")
    declared.add_configurations(
        {
            "topology.bolts.window.length.duration.ms": 20,
            "topology.bolts.window.sliding.interval.duration.ms": 10,
            "topology.bolts.tuple.timestamp.field.name": "ts",
            "topology.bolts.tuple.timestamp.max.lag.ms": 5,
        }
    )
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for ts in (603, 605, 607, 618, 626, 636):
            feed.feed(["a", ts])
        run.settle()
        assert run.watermark("w") == 631
        assert run.tuples("w") == [
            [610, [603, 605, 607]],
            [620, [603, 605, 607, 618]],
            [630, [618, 626]],
        ]


@pytest.mark.parametrize("trigger", [None, AtWatermark(early=AfterCount(1))])
def test_a_tuple_between_two_windows_is_in_none_and_not_late(trigger: Any) -> None:
    feed = feeder()
    bolt = counts(Sliding(3, 10), trigger=trigger, late_stream="late")
    with running(bolt, feed) as (_, run):
        for ts in (1, 5, 12, 7, 25, 16):
            feed.feed(["a", ts])
            run.settle()
        assert run.stats().components["w"].late == 0
        assert {row[1] for row in run.tuples("w")} == {0, 10}


def test_explain_tells_the_time_of_a_bolt(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["explain", str(EXAMPLES / "sliding_tuple_ts.py")]) == 0
    said = capsys.readouterr().out
    assert "event time 'ts', lag 0:00:05, inputs idle after 0:00:05" in said
    assert "bolt 'sums' seems to keep nothing" not in said


def test_a_windowed_bolt_is_not_tested_by_single_tuples() -> None:
    with pytest.raises(TypeError, match="gets windows or keys, not tuples"):
        run_bolt(Sizes().with_window(2), [make_tuple({"ts": 1})])
