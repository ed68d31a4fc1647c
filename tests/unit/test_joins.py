"""Joins: what is refused, what they read and give, what they save, and what is behind them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from topo import (
    CoGroup,
    Count,
    EventTime,
    Global,
    IntervalJoin,
    InvalidTopologyError,
    JoinBolt,
    JoinError,
    Session,
    TopologyBuilder,
    Tumbling,
    UncaughtError,
    WindowAggregate,
    WindowError,
    WindowJoin,
)
from topo.errors import StreamError, TopoError
from topo.streams import StreamBuilder
from topo.testing import FeederSpout, TestCluster

TS = EventTime("ts", idle=None)
SECOND = timedelta(seconds=1)


def interval(**more: Any) -> IntervalJoin:
    options: dict[str, Any] = {"left": "a", "right": "b", "on": "k", "within": 10, "time": TS}
    return IntervalJoin(**{**options, **more})


class Joined:
    """A running join `j` of the feeders `a` and `b`."""

    def __init__(
        self,
        bolt: Any,
        fields: Mapping[str, list[str]] | None = None,
        grouping: Mapping[str, list[str]] | None = None,
        tasks: int = 1,
        seed: int = 0,
    ) -> None:
        fields = fields or {"a": ["k", "v", "ts"], "b": ["k", "v", "ts"]}
        self.feeders = {name: FeederSpout(own) for name, own in fields.items()}
        builder = TopologyBuilder()
        declarer = builder.set_bolt("j", bolt, tasks)
        for name, feeder in self.feeders.items():
            builder.set_spout(name, feeder)
            if grouping is None:
                declarer.global_grouping(name)
            else:
                declarer.fields_grouping(name, grouping[name])
        self.builder = builder
        self.seed = seed

    def start(self) -> Joined:
        self.cluster = TestCluster(seed=self.seed)
        self.run = self.cluster.submit_topology("t", self.builder.create_topology())
        return self

    def feed(self, name: str, *rows: list[Any]) -> Joined:
        for row in rows:
            self.feeders[name].feed(row)
        self.run.settle()
        return self

    @property
    def rows(self) -> list[list[Any]]:
        return self.run.tuples("j")


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: interval(how="cross"), "how is 'cross'"),
        (lambda: interval(within=(5, -6)), "begins after its end"),
        (lambda: interval(within=(1, 2, 3)), "it takes \\(before, after\\)"),
        (lambda: interval(within=1.5), "a duration is a timedelta"),
        (lambda: interval(time=None), "needs event time"),
        (lambda: interval(time="ts"), "it takes an EventTime"),
        (lambda: interval(on={"a": "k"}), "no key for 'b'"),
        (lambda: interval(on={"a": ["k", "v"], "b": "k"}), "same number of fields"),
        (lambda: interval(on=()), "on is"),
        (lambda: interval(left=""), "left is ''"),
        (lambda: interval(select=()), "select is"),
        (lambda: interval(select="c:v"), "'c' is no input"),
        (lambda: interval(select="k", merge=max), "not both"),
        (lambda: interval(merge="left"), "it takes a function"),
        (lambda: interval(outputs="v"), "goes with merge"),
        (lambda: interval(right="a", select="a:v"), "is on both sides"),
        (lambda: WindowJoin(left="a", right="b", on="k", window=10), "window is 10"),  # type: ignore[arg-type]
        (lambda: CoGroup("a", on="k"), "two components or more"),
        (lambda: CoGroup(["a", "b"], on="k", keep="newest"), "keep is 'newest'"),
        (lambda: CoGroup(["a", "b"], on="k", emit="ever"), "emit is 'ever'"),
        (lambda: CoGroup(["a", "b"], on="k", time="ts"), "it takes an EventTime"),  # type: ignore[arg-type]
        (lambda: JoinBolt("a", []), "a key is"),
        (lambda: JoinBolt("a", "k", "x"), "the first of three is a selector"),
        (lambda: JoinBolt(JoinBolt.Selector.STREAM, "a"), "needs a stream and a field"),
        (lambda: JoinBolt("a", "k").select(""), "select is"),
    ],
)
def test_what_can_be_no_join_is_refused_at_once(made: Any, said: str) -> None:
    with pytest.raises((JoinError, WindowError), match=said):
        made()


@pytest.mark.parametrize(
    ("bolt", "grouping", "tasks", "said"),
    [
        (interval(), {"a": ["k"], "b": ["v"]}, 2, "write .fields_grouping('b', ['k'])"),
        (interval(), {"a": ["k"], "b": ["k", "v"]}, 2, "write .fields_grouping('b', ['k'])"),
        (
            interval(on={"a": ["k", "v"], "b": ["v", "k"]}),
            {"a": ["k", "v"], "b": ["k", "v"]},
            2,
            "write .fields_grouping('b', ['v', 'k'])",
        ),
        (interval(on="kk"), None, 1, "did you mean 'k'?"),
        (interval(select="k,nothing"), None, 1, "'nothing', which no input has"),
        (interval(merge="raise"), None, 1, "'a' and 'b' both have v, ts"),
        (interval(select="a:nothing"), None, 1, "'a:nothing', which no input has"),
        (interval(right=("b", "other")), None, 1, "joins 'b' stream 'other', which it does not"),
        (interval(right="c"), None, 1, "reads 'b', which it does not join"),
        (interval(time=EventTime("ts", untimed=["b"])), None, 1, "in event time, which is untimed"),
        (
            CoGroup(
                ["a", "b"],
                on="k",
                window=Tumbling(timedelta(seconds=1)),
                time=EventTime("ts", untimed=["b"]),
            ),
            None,
            1,
            "groups 'b' in event time, which is untimed",
        ),
        (CoGroup(["a", "b"], on="k", values="w"), None, 1, "the value 'w' is no field"),
        (
            JoinBolt("a", "k").join("b", "k", "a").select("k").with_window(2),
            {"a": ["k"], "b": ["v"]},
            2,
            "write .fields_grouping('b', ['k'])",
        ),
        (
            JoinBolt("a", "k.x").join("b", "k.x", "a").select("k").with_window(2),
            {"a": ["k"], "b": ["k"]},
            2,
            "needs one task, or global grouping",
        ),
        (JoinBolt("a", "k").join("b", "k", "a").select("k"), None, 1, "without a window"),
        (JoinBolt("a", "k").select("k").with_window(2), None, 1, "reads 'b', which is no part"),
        (
            JoinBolt("a", "k").join("b", ("k", "v"), "a").select("k").with_window(2),
            None,
            1,
            "on another number of fields",
        ),
    ],
)
def test_what_is_read_wrongly_is_reported_with_the_line_to_write(
    bolt: Any, grouping: Any, tasks: int, said: str
) -> None:
    with pytest.raises(InvalidTopologyError) as caught:
        Joined(bolt, grouping=grouping, tasks=tasks).start()
    assert said in str(caught.value)


def test_global_grouping_of_all_inputs_will_do_but_not_of_one() -> None:
    joined = Joined(interval(select="k"), tasks=3)
    joined.start()
    mixed = Joined(interval(select="k"), grouping={"a": ["k"], "b": ["k"]}, tasks=3)
    builder = TopologyBuilder()
    for name, feeder in mixed.feeders.items():
        builder.set_spout(name, feeder)
    builder.set_bolt("j", interval(select="k"), 3).global_grouping("a").fields_grouping("b", ["k"])
    with pytest.raises(InvalidTopologyError, match="reads 'a' by global grouping"):
        builder.create_topology()


def test_a_key_that_cannot_be_looked_up_is_named() -> None:
    joined = Joined(interval(select="k")).start()
    with pytest.raises(TopoError, match="the key \\['x'\\] is a list, which cannot be a key"):
        joined.feed("a", [["x"], 0, 0])


def test_a_merge_that_gives_another_number_of_values_is_named() -> None:
    joined = Joined(interval(merge=lambda a, b: [1], outputs=("x", "y"))).start()
    with pytest.raises((TopoError, UncaughtError), match="the join has 2 outputs"):
        joined.feed("a", ["x", 0, 0]).feed("b", ["x", 0, 0])


# -- results --------------------------------------------------------------------------------------


def test_without_select_all_fields_are_there_and_clashes_have_prefixes() -> None:
    joined = Joined(interval(how="outer")).start()
    output = joined.run.topology.component("j").output("default")
    assert output is not None
    assert output.fields == ("k", "left_v", "left_ts", "right_v", "right_ts")
    joined.feed("a", ["x", 1, 0]).feed("b", ["x", 2, 0], ["y", 3, 100]).feed("a", ["z", 4, 100])
    assert joined.rows == [["x", 1, 0, 2, 0]]
    joined.feed("a", ["z", 5, 200]).feed("b", ["z", 6, 200])
    assert ["y", None, None, 3, 100] in joined.rows


@pytest.mark.parametrize(
    ("merge", "both", "left_alone"),
    [("keep-left", [1, 0], [4, 100]), ("keep-right", [2, 5], [4, 100])],
)
def test_a_name_that_both_sides_have_is_that_of_one_or_of_the_one_that_is_there(
    merge: str, both: list[int], left_alone: list[int]
) -> None:
    joined = Joined(interval(how="outer", merge=merge)).start()
    assert joined.run.topology.component("j").declared("default").fields == ("k", "v", "ts")
    joined.feed("a", ["x", 1, 0]).feed("b", ["x", 2, 5], ["y", 3, 100]).feed("a", ["z", 4, 100])
    joined.feed("a", ["w", 5, 200]).feed("b", ["w", 6, 200])
    rows = sorted(row for row in joined.rows if row[0] != "w")
    assert rows == [["x", *both], ["y", 3, 100], ["z", *left_alone]]


def test_a_field_of_a_side_that_is_missing_is_not_that_of_the_window() -> None:
    fields = {"a": ["k", "ts"], "b": ["k", "ts", "start"]}
    window = Tumbling(10)
    bolt = WindowJoin(
        left="a", right="b", on="k", window=window, how="left", time=TS, select="k,start,end"
    )
    joined = Joined(bolt, fields).start()
    joined.feed("a", ["x", 1], ["y", 2]).feed("b", ["x", 1, "then"])
    joined.feed("a", ["z", 50]).feed("b", ["z", 50, ""])
    assert sorted(joined.rows)[:2] == [["x", "then", 10], ["y", None, 10]]


def test_a_key_is_there_whichever_side_is_missing_and_whatever_it_is_called() -> None:
    fields = {"a": ["id", "ts"], "b": ["order", "ts"]}
    bolt = interval(on={"a": "id", "b": "order"}, how="outer", select="id,order,b:order")
    joined = Joined(bolt, fields).start()
    joined.feed("a", ["x", 0], [None, 0]).feed("b", ["y", 0], [None, 0])
    joined.feed("a", ["z", 50]).feed("b", ["z", 50])
    none = [None, None, None]
    assert sorted(map(repr, joined.rows)) == sorted(
        map(repr, [none, none, ["y", "y", "y"], ["x", "x", None], ["z", "z", "z"]])
    )


def test_keys_of_several_fields_with_a_none_in_them_equal_no_other() -> None:
    fields = {"a": ["p", "q", "ts"], "b": ["p", "q", "ts"]}
    bolt = interval(on=["p", "q"], how="left", select="p,q,b:ts")
    joined = Joined(bolt, fields, {"a": ["p", "q"], "b": ["p", "q"]}, tasks=2).start()
    joined.feed("a", [1, 2, 0], [1, None, 0]).feed("b", [1, 2, 5], [1, None, 5])
    assert sorted(joined.rows, key=repr) == [[1, 2, 5], [1, None, None]]


def test_times_that_are_datetimes_come_back_as_such() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    bolt = interval(
        within=SECOND, time=EventTime("ts", unit="datetime"), select="k", result_ts="at"
    )
    joined = Joined(bolt).start()
    joined.feed("a", ["x", 1, at]).feed("b", ["x", 1, at + SECOND], ["x", 1, at + 2 * SECOND])
    assert joined.rows == [["x", at + SECOND]]


def test_late_rows_go_to_their_stream_and_are_counted() -> None:
    joined = Joined(interval(how="left", select="k,a:v")).start()
    joined.feed("a", ["x", 1, 100]).feed("b", ["y", 1, 100]).feed("a", ["late", 2, 50])
    assert [list(row[0].values) for row in joined.run.tuples("j", "late")] == [["late", 2, 50]]
    assert joined.run.stats().components["j"].late == 1
    assert joined.run.stats().components["j"].failed == 0


def test_what_nothing_later_can_match_is_reported_with_its_batch() -> None:
    """A payment is one of an order one to two hours before it: those have all come."""
    joined = Joined(interval(within=(-1_000, 2_000), how="right", select="k,a:v,b:v")).start()
    joined.feed("a", ["x", 1, 0], ["z", 9, 10_000]).feed("b", ["x", 2, 1_500], ["y", 3, 10_500])
    assert joined.run.watermark("j") == 10_000
    assert joined.rows == [["x", 1, 2], ["y", None, 3]]
    joined.run.restart()
    joined.feed("a", ["z", 9, 20_000]).feed("b", ["w", 4, 20_000])
    assert joined.rows == [["x", 1, 2], ["y", None, 3], ["w", None, 4]]


def test_streams_of_one_component_are_joined_by_their_names() -> None:
    from topo import Spout

    class Both(Spout):
        outputs = {"x": ("k", "ts"), "y": ("k", "ts")}

        def open(self, conf: Any, context: Any, collector: Any) -> None:
            self.sent = False

        def next_tuple(self) -> None:
            if not self.sent:
                self.sent = True
                for stream in ("x", "y"):
                    self.emit(["a", ord(stream)], stream=stream)

    builder = TopologyBuilder()
    builder.set_spout("both", Both())
    bolt = interval(left=("both", "x"), right=("both", "y"), select="k,x:ts,y:ts,left:ts")
    declarer = builder.set_bolt("j", bolt, 2)
    declarer.fields_grouping("both", ["k"], stream="x")
    declarer.fields_grouping("both", ["k"], stream="y")
    run = TestCluster().submit_topology("t", builder.create_topology())
    run.settle()
    assert run.tuples("j") == [["a", 120, 121, 120]]


# -- state ----------------------------------------------------------------------------------------


def saved_of(joined: Joined) -> dict[str, bytes]:
    """Return what is saved of the rows of the join's only task."""
    joined.run.settle()
    run: Any = joined.run
    (task,) = vars(run)["_level"].host.timed
    saved = run._saved[task.id]
    return {key: data for key, data in saved.items() if key.startswith(("left:", "right:"))}


def test_a_commit_costs_what_came_not_what_is_held() -> None:
    joined = Joined(interval(within=1 << 30, how="outer", select="k,a:v,b:v")).start()
    sizes = []
    for held in (10, 5_000):
        joined.feed("a", *[[f"{held}-{n}", n, n] for n in range(held)])
        before = saved_of(joined)
        joined.feed("b", [f"{held}-0", 1, 2])  # and the left row is not to be reported any more
        after = saved_of(joined)
        assert before.items() <= after.items()
        sizes.append(sum(map(len, after.values())) - sum(map(len, before.values())))
    assert 0 < sizes[1] < 2 * sizes[0]


def test_what_is_over_leaves_nothing_in_the_saved_state() -> None:
    joined = Joined(interval(how="outer", select="k,a:v,b:v")).start()
    for n in range(50):
        joined.feed("a", [n, n, 1_000 * n]).feed("b", [n, n, 1_000 * n + 5])
    assert 0 < len(saved_of(joined)) < 10
    assert joined.run.stats().components["j"].state_rows < 10
    assert len(joined.rows) == 50


def test_a_match_that_is_saved_is_not_reported_after_a_restart() -> None:
    joined = Joined(interval(how="left", select="k,a:v,b:v", within=(0, 100))).start()
    joined.feed("a", ["x", 1, 0])
    joined.run.restart()
    joined.feed("b", ["x", 2, 50])
    joined.run.restart()
    joined.feed("a", ["y", 3, 500]).feed("b", ["y", 4, 500])
    assert joined.rows == [["x", 1, 2], ["y", 3, 4]]


# -- windows and what is behind -------------------------------------------------------------------


def test_windows_by_arrival_end_at_the_clock() -> None:
    bolt = WindowJoin(
        left="a", right="b", on="k", window=Tumbling(10 * SECOND), how="left", select="k,a:v,b:v"
    )
    joined = Joined(bolt, {"a": ["k", "v"], "b": ["k", "v"]}).start()
    joined.feed("a", ["x", 1], ["y", 2]).feed("b", ["x", 3])
    assert joined.rows == [["x", 1, 3]]
    joined.run.restart()
    joined.cluster.advance(10)
    assert joined.rows == [["x", 1, 3], ["y", 2, None]]
    joined.feed("b", ["y", 4])
    assert len(joined.rows) == 2


def test_a_global_window_joins_everything_there_ever_was() -> None:
    bolt = WindowJoin(
        left="a", right="b", on="k", window=Global(), time=TS, select="a:v,b:v,start,end"
    )
    joined = Joined(bolt).start()
    joined.feed("a", ["x", 1, 0]).feed("b", ["y", 2, 10**9]).feed("a", ["y", 3, 10**9])
    joined.run.restart()
    joined.feed("b", ["x", 4, 10**9])
    assert joined.rows == [[3, 2, None, None], [1, 4, None, None]]


def test_a_session_with_a_gap_of_its_own() -> None:
    bolt = WindowJoin(
        left="a",
        right="b",
        on="k",
        window=Session(lambda row: row.v),
        time=TS,
        select="a:v,b:v,end",
    )
    joined = Joined(bolt).start()
    joined.feed("a", ["x", 50, 0]).feed("b", ["x", 1, 40], ["x", 1, 100])
    joined.feed("a", ["z", 1, 500]).feed("b", ["z", 1, 500])
    assert joined.rows == [[50, 1, 50]]


def test_a_window_behind_an_outer_join_waits_for_what_has_no_match() -> None:
    """The watermark behind a join is as far back as its results may be."""
    joined = Joined(interval(within=1_000, how="left", select="k,a:v", result_ts="at"))
    window = WindowAggregate(
        key="k", window=Tumbling(100), time=EventTime(), aggregates={"n": Count()}
    )
    joined.builder.set_bolt("w", window).fields_grouping("j", ["k"])
    joined.start()
    joined.feed("a", ["x", 1, 10]).feed("b", ["y", 1, 10])
    joined.feed("a", ["z", 1, 1_000]).feed("b", ["z", 1, 1_000])
    assert joined.run.watermark("j") == 1_000
    assert joined.run.watermark("w") == 0
    joined.feed("a", ["z", 1, 3_000]).feed("b", ["z", 1, 3_000])
    assert joined.run.stats().components["w"].late == 0
    assert ["x", 0, 100, 1] in joined.run.tuples("w")


def test_groups_of_three_inputs_in_sessions() -> None:
    fields = {name: ["k", "v", "ts"] for name in ("a", "b", "c")}
    bolt = CoGroup(["a", "b", "c"], on="k", window=Session(10), time=TS, values="v", result_ts="at")
    joined = Joined(bolt, fields).start()
    output = joined.run.topology.component("j").output("default")
    assert output is not None
    assert output.fields == ("k", "a", "b", "c", "start", "end", "at")
    joined.feed("a", ["x", 1, 5], ["x", 2, 3]).feed("b", ["x", 3, 9])
    joined.run.restart()
    for name in "abc":
        joined.feed(name, ["y", 9, 100])
    assert joined.rows == [["x", [2, 1], [3], [], 3, 19, 18]]


def test_groups_without_a_window_are_kept_until_they_are_complete() -> None:
    bolt = CoGroup(["a", "b"], on="k", keep="last", emit="complete")
    joined = Joined(bolt, {"a": ["k", "v"], "b": ["k", "w"]}).start()
    joined.feed("a", ["x", 1], ["x", 2])
    joined.run.restart()
    joined.feed("b", ["x", 3]).feed("b", ["x", 4]).feed("a", ["x", 5])
    assert joined.rows == [
        ["x", {"k": "x", "v": 2}, {"k": "x", "w": 3}],
        ["x", {"k": "x", "v": 5}, {"k": "x", "w": 4}],
    ]
    assert joined.run.stats().components["j"].state_rows == 0


# -- JoinBolt -------------------------------------------------------------------------------------


def test_a_join_bolt_by_the_names_of_streams() -> None:
    bolt = JoinBolt(JoinBolt.Selector.STREAM, "default", "k").select("v").with_tumbling_window(2)
    joined = Joined(bolt).start()
    joined.feed("a", ["x", 1, 0]).feed("b", ["x", 2, 0])
    assert joined.rows == [[1], [2]]


def test_all_mistakes_of_a_join_bolt_are_reported_at_once() -> None:
    bolt = JoinBolt("a", "k").join("b", "k", "c").join("b", "k", "a").join("b", "k", "a")
    with pytest.raises(InvalidTopologyError) as caught:
        Joined(bolt.with_window(3)).start()
    for said in ("'c' was not previously declared", "more than once", "Must specify output"):
        assert said in str(caught.value)


# -- streams --------------------------------------------------------------------------------------


def keyed(builder: StreamBuilder, time: EventTime | None) -> Any:
    return builder.stream(FeederSpout(["k", "ts"]), time=time).key_by("k")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (lambda a, b, s: a.join(b), "takes within or window"),
        (lambda a, b, s: a.join(b, within=1, window=Tumbling(1)), "not both"),
        (lambda a, b, s: a.join(s, within=1), "takes a stream with keys"),
        (lambda a, b, s: a.cogroup(), "takes a stream with keys"),
        (lambda a, b, s: a.cogroup(b, keep="none"), "keep is 'none'"),
        (lambda a, b, s: a.join(b, within=1, merge=3), "takes a function"),
        (lambda a, b, s: a.join(keyed(StreamBuilder(), TS), within=1), "of two builders"),
    ],
)
def test_what_can_be_no_join_of_streams_is_refused_where_it_is_written(
    written: Any, said: str
) -> None:
    builder = StreamBuilder()
    stream = builder.stream(FeederSpout(["k", "ts"]))
    with pytest.raises(StreamError, match=said) as caught:
        written(keyed(builder, TS), keyed(builder, TS), stream)
    assert "test_joins.py" in str(caught.value)


@pytest.mark.parametrize(
    ("times", "within", "said"),
    [
        ((None, None), 10, "needs the event time of both streams"),
        ((TS, None), 10, "different event times"),
        ((TS, EventTime("ts", unit="s", idle=None)), 10, "different event times"),
        ((TS, TS), (5, -6), "begins after its end"),
    ],
)
def test_a_join_of_streams_that_cannot_be_compiled_is_refused(
    times: Any, within: Any, said: str
) -> None:
    builder = StreamBuilder()
    left, right = (keyed(builder, time) for time in times)
    left.join(right, within=within).print()
    with pytest.raises((StreamError, WindowError), match=said):
        builder.build()
