"""Programs of streams and windows while their input goes on, whatever the cuts into batches.

A program that runs to the end of its input has a watermark without end there: what stalls, and
what depends on where a batch ends, is only seen live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta as td
from itertools import product
from math import nan
from typing import Any

import pytest

from topo import (
    BasicBolt,
    CoGroup,
    Collect,
    Combiner,
    Count,
    EventTime,
    Max,
    Mean,
    Min,
    Session,
    Sliding,
    StatefulBasicBolt,
    TopK,
    TopologyBuilder,
    Tumbling,
    Tuple,
    Var,
    WindowAggregate,
    WindowJoin,
)
from topo.errors import StreamError
from topo.streams import KeyedStream, Process, Stream, StreamBuilder
from topo.testing import FeederSpout, TestCluster, complete_topology

Write = Callable[[Stream[Any]], Stream[Any]]
EVERY_ROW: Any = None


def live(
    write: Write, rows: Sequence[Any], *, ends: Iterable[int] = EVERY_ROW, **spout: Any
) -> list[Any]:
    """Feed rows of (k, v, ts) to a program that goes on; return what its `out` has emitted.

    A batch ends behind each of the places in `ends`, by default behind every row.
    """
    feeder = FeederSpout(["k", "v", "ts"])
    s = StreamBuilder()
    write(s.stream(feeder, time=EventTime("ts"), **spout)).named("out")
    behind = range(len(rows)) if ends is EVERY_ROW else ends
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for place, row in enumerate(rows):
            feeder.feed(list(row))
            if place in behind:
                run.settle()
        run.settle()
        return run.tuples("out")


def cuts(count: int) -> Iterable[list[int]]:
    """Yield every way to cut so many rows into batches, as the places behind which one ends."""
    for ends in product((False, True), repeat=count):
        yield [place for place, is_end in enumerate(ends) if is_end]


def windowed(aggregate: Combiner, rows: Sequence[Any], ends: Iterable[int]) -> list[Any]:
    """Return what a WindowAggregate gives of rows of (k, v, ts)."""
    feeder = FeederSpout(["k", "v", "ts"])
    builder = TopologyBuilder()
    builder.set_spout("rows", feeder)
    window = WindowAggregate(
        key="k", window=Tumbling(10), time=EventTime("ts"), aggregates={"of": aggregate}
    )
    builder.set_bolt("w", window).fields_grouping("rows", ["k"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for place, row in enumerate(rows):
            feeder.feed(list(row))
            if place in ends:
                run.settle()
        run.settle()
        return run.tuples("w")


# -- accumulators ----------------------------------------------------------------------------------


def test_a_fold_begins_with_a_list_of_its_own_for_each_key_and_window() -> None:
    def append(acc: list[Any], value: Any) -> list[Any]:
        acc.append(value)
        return acc

    rows = [("a", 1, 1), ("b", 2, 2), ("a", 3, 3), ("z", 0, 30)]

    def values(s: Stream[Any]) -> KeyedStream[Any, Any]:
        return s.key_by("k").map_values(lambda row: row.v)

    found = live(lambda s: values(s).window(Tumbling(10)).fold([], append), rows)
    assert [row[-1] for row in found] == [[1, 3], [2]]
    running = live(lambda s: values(s).fold([], append), rows[:3])
    assert [(row[0], list(row[1])) for row in running][-1] == ("a", [1, 3])
    states = live(lambda s: values(s).update_state_by_key({}, _counting), rows[:3])
    assert [row[1] for row in states] == [{1: 1}, {2: 1}, {1: 1, 3: 1}]


def _counting(state: dict[Any, int], value: Any) -> dict[Any, int]:
    return {**state, value: state.get(value, 0) + 1}


ODD_VALUES = [
    (Min("v"), [2.0, nan, 1.0], 1.0),
    (Max("v"), [1.0, nan, 2.0], 2.0),
    (Min("v"), [nan, None, 3], 3),
    (Max("v"), [None, 3, None], 3),
    (Max("v"), [None, None, 1], 1),
    (TopK(1, "v"), [1.0, nan, 2.0], [2.0]),
]


@pytest.mark.parametrize(("aggregate", "values", "wanted"), ODD_VALUES, ids=range(len(ODD_VALUES)))
def test_none_and_nan_give_way_however_batches_are_cut(
    aggregate: Combiner, values: list[Any], wanted: Any
) -> None:
    rows = [*(("a", value, 1) for value in values), ("z", 0, 30)]
    for ends in cuts(len(values)):
        assert windowed(aggregate, rows, ends) == [["a", 0, 10, wanted]], ends


@pytest.mark.parametrize("operator", ["max", "min", "collect", "reduce", "fold", "top", "distinct"])
def test_none_is_no_value_of_a_window_as_it_is_none_of_a_running_aggregate(operator: str) -> None:
    arguments = {"reduce": (max,), "fold": (0, lambda acc, v: acc + v), "top": (1,)}

    def write(s: Stream[Any]) -> Stream[Any]:
        window = s.key_by("k").map_values(lambda row: row.v).window(Tumbling(10))
        made: Stream[Any] = getattr(window, operator)(*arguments.get(operator, ()))
        return made

    with_none = [("a", None, 1), ("a", 3, 2), ("a", None, 3), ("z", 0, 30)]
    without = [row for row in with_none if row[1] is not None]
    assert live(write, with_none) == live(write, without) != []
    counted = live(
        lambda s: s.key_by("k").map_values(lambda row: row.v).window(Tumbling(10)).count(),
        with_none,
    )
    assert counted == [["a", 0, 10, 3]]  # it does not look at values


# -- groups of tables ------------------------------------------------------------------------------


def groups(aggregate: Any, rows: Sequence[Any]) -> list[Any]:
    """Return the results of the one group of a table, each change a batch, with restarts."""
    feeder = FeederSpout(["id", "x"])
    s = StreamBuilder()
    table = s.stream(feeder).to_table("id", deleted=lambda row: row.x == "gone")
    grouped = table.group_by(lambda key, row: "g")
    made = (
        grouped.aggregate(**aggregate)
        if isinstance(aggregate, dict)
        else grouped.aggregate(aggregate)
    )
    made.named("groups").to_stream().print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for row in rows:
            feeder.feed(list(row))
            run.settle()
            run.restart()
        return [value for _, value in run.tuples("groups")]


def test_a_group_lives_as_long_as_it_has_rows_whatever_its_result() -> None:
    mean = groups(Mean("x"), [(1, None), (2, None), (3, 4.0), (4, 6.0), (3, "gone"), (4, "gone")])
    assert mean == [4.0, 5.0, 6.0, None]
    variance = groups(Var("x", sample=True), [(1, 1), (2, 3), (3, 8)])
    assert variance == [2.0, 13.0]
    lowest = groups(Min("x"), [(1, None), (2, 5), (2, None), (2, 7)])
    assert lowest == [5, None, 7]


def test_a_group_by_hand_ends_when_it_is_what_it_began_with() -> None:
    def one_more(count: int, row: Any) -> int:
        return count + 1

    def one_less(count: int, row: Any) -> int:
        return count - 1

    by_hand = {"init": lambda: 0, "adder": one_more, "subtractor": one_less}
    assert groups(by_hand, [(1, 1), (2, 1), (1, "gone"), (2, "gone"), (3, 1)]) == [1, 2, 1, None, 1]


def test_a_nan_is_taken_away_again() -> None:
    assert groups(Collect("x"), [(1, nan), (1, 2.0), (1, "gone")])[1:] == [[2.0], None]


# -- which task, which stream ----------------------------------------------------------------------


class PerKey(StatefulBasicBolt):
    """Counts by key what comes to its task."""

    outputs = ("key", "n")

    def execute(self, tup: Tuple) -> None:
        self.state[tup.key] = self.state.get(tup.key, 0) + 1
        self.emit([tup.key, self.state[tup.key]])


@pytest.mark.parametrize("ends_there", [True, False])
def test_a_bolt_behind_a_stream_with_keys_gets_all_of_a_key_in_one_task(ends_there: bool) -> None:
    feeder = FeederSpout(["k", "more"])
    s = StreamBuilder()
    keyed = s.stream(feeder).key_by("k").filter(bool)
    if ends_there:
        keyed.to(PerKey(), parallelism=3, name="counts")
    else:
        keyed.through(PerKey(), parallelism=3, name="counts").print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for _ in range(6):
            feeder.feed(["a", 0])
            run.settle()
        assert run.tuples("counts")[-1] == ["a", 6]


def test_a_bolt_behind_a_stream_may_be_dealt_to_otherwise() -> None:
    feeder = FeederSpout(["k", "more"])
    s = StreamBuilder()
    s.stream(feeder).key_by("k").to(PerKey(), parallelism=3, grouping="broadcast", name="counts")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        feeder.feed(["a", 0])
        run.settle()
        assert run.tuples("counts") == [["a", 1]] * 3
    with pytest.raises(StreamError, match="to by 'shufle'; it is one of") as raised:
        s.stream(feeder).to(PerKey(), grouping="shufle")
    assert "did you mean 'shuffle'" in str(raised.value)


def test_the_results_at_the_end_do_not_take_the_running_ones_away() -> None:
    s = StreamBuilder()
    counts = s.stream(FeederSpout(["w"])).key_by().count().named("counts")
    counts.print("running")
    counts.at_end().print("at the end")
    assert "counts" in s.build().components
    alone = StreamBuilder()
    alone.stream(FeederSpout(["w"])).key_by().count().named("counts").at_end().print()
    assert "counts" not in alone.build().components


def test_a_count_at_the_end_counts_what_the_running_one_does() -> None:
    s = StreamBuilder()
    s.stream([("a", None), ("a", 1)]).pairs().count().at_end().named("counts").print()
    assert complete_topology(s.build()).tuples("counts") == [["a", 2]]


# -- sessions, late elements -----------------------------------------------------------------------


def sessions(make: Callable[[], Any], rows: Sequence[Any], ends: Iterable[int]) -> list[Any]:
    """Return what a bolt over sessions gives that reads each row from two spouts."""
    feeders = {name: FeederSpout(["k", "ts"]) for name in ("ones", "others")}
    builder = TopologyBuilder()
    for name, feeder in feeders.items():
        builder.set_spout(name, feeder)
    reads = builder.set_bolt("w", make())
    for name in feeders:
        reads.fields_grouping(name, ["k"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for place, row in enumerate(rows):
            for feeder in feeders.values():
                feeder.feed(list(row))
            if place in ends:
                run.settle()
        run.settle()
        return sorted(map(repr, run.tuples("w")))


def counts_of_sessions(**options: Any) -> WindowAggregate:
    return WindowAggregate(
        key="k", window=Session(10), time=EventTime("ts"), aggregates={"n": Count()}, **options
    )


SESSIONS: dict[str, Callable[[], Any]] = {
    "plain": counts_of_sessions,
    "lateness": lambda: counts_of_sessions(allowed_lateness=5),
    "cogroup": lambda: CoGroup(
        ["ones", "others"], on="k", window=Session(10), time=EventTime("ts"), values="ts"
    ),
    "join": lambda: WindowJoin(
        left="ones",
        right="others",
        on="k",
        window=Session(10),
        time=EventTime("ts"),
        outputs="value",
        merge=lambda one, other: [(one.ts, other.ts)],
    ),
}


@pytest.mark.parametrize("make", SESSIONS.values(), ids=SESSIONS)
def test_a_tuple_at_the_end_of_a_session_joins_it_however_batches_are_cut(
    make: Callable[[], Any],
) -> None:
    rows = [("a", 0), ("b", 10), ("a", 10), ("z", 99)]
    at_once = sessions(make, rows, [])
    for ends in cuts(3):
        assert sessions(make, rows, ends) == at_once, ends


def test_an_old_element_that_may_be_a_duplicate_does_not_pass_again() -> None:
    hour = td(hours=1) // td(milliseconds=1)
    rows = [("m1", 0, 0), ("m2", 0, 2 * hour), ("m1", 0, 0), ("m3", 0, hour + 1)]
    found = live(lambda s: s.dedupe("k", within=td(hours=1)), rows)
    assert [row[0].k for row in found] == ["m1", "m2", "m3"]


# -- bolts that topo makes -------------------------------------------------------------------------


def test_the_plan_of_a_chain_is_not_compared_from_batch_to_batch() -> None:
    """Pickles of the user's functions differ without any change, as when a class is first used."""

    class Spoiling:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, value: Any) -> Any:
            self.calls += 1
            return value

    s = StreamBuilder()
    feeder = FeederSpout(["v"])
    s.stream(feeder).map(Spoiling()).named("out").print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for number in range(3):
            feeder.feed([number])
            run.settle()
        assert run.status != "FAILED"


# -- time through operators ------------------------------------------------------------------------


def keeps_a(element: Any) -> bool:
    return bool(element.k == "a")


def zero(element: Any) -> int:
    return 0


Build = Callable[[StreamBuilder, Stream[Any], Stream[Any]], Stream[Any]]
COMPOSITIONS: dict[str, Build] = {
    "window behind window": lambda s, a, b: (
        a.key_by("k").window(Tumbling(10)).count().key_by(zero).window(Tumbling(10)).count()
    ),
    "window behind join": lambda s, a, b: (
        a.key_by("k")
        .join(b.filter(keeps_a).key_by("k"), within=2)
        .key_by(zero)
        .window(Tumbling(10))
        .count()
    ),
    "window behind filter and merge": lambda s, a, b: (
        s.merge(a.filter(keeps_a), b.filter(keeps_a)).key_by("k").window(Tumbling(10)).count()
    ),
    "window behind filter and dedupe": lambda s, a, b: (
        a.filter(keeps_a).dedupe("ts").key_by("k").window(Tumbling(10)).count()
    ),
    "window behind repartition": lambda s, a, b: (
        a.filter(keeps_a).repartition(3).key_by("k").window(Tumbling(10)).count()
    ),
    "window behind branch and running count": lambda s, a, b: (
        a.branch(kept=keeps_a)["kept"].key_by("k").count().window(Tumbling(10)).count()
    ),
}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("build", COMPOSITIONS.values(), ids=COMPOSITIONS)
def test_a_watermark_passes_every_operator(build: Build, restarts: bool) -> None:
    """The first window is over at 10; what passes the filters ends at 2."""
    feeders = [FeederSpout(["k", "ts"]) for _ in range(2)]
    s = StreamBuilder()
    one, other = (s.stream(feeder, time=EventTime("ts")) for feeder in feeders)
    build(s, one, other).named("last")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for row in (["a", 1], ["a", 2], ["b", 25]):
            for feeder in feeders:
                feeder.feed(row)
            run.settle()
            if restarts:
                run.restart()
        run.settle()
        assert run.watermark("last") == 25
        assert [row[1:3] for row in run.tuples("last")] == [[0, 10]]


def test_a_merged_stream_is_complete_when_the_slower_one_is() -> None:
    feeders = [FeederSpout(["k", "ts"]) for _ in range(2)]
    s = StreamBuilder()
    fast = s.stream(feeders[0], time=EventTime("ts", lag=5, idle=None))
    slow = s.stream(feeders[1], time=EventTime("ts", idle=None))
    s.merge(fast, slow).key_by("k").window(Tumbling(10)).count().named("counts")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for ts in range(0, 60, 5):
            feeders[0].feed(["k", ts])
        run.settle()
        assert run.tuples("counts") == []
        for ts in range(0, 60, 5):
            feeders[1].feed(["k", ts])
            run.settle()
        assert [row[-1] for row in run.tuples("counts")] == [4, 4, 4, 4, 4]
        assert run.watermark("counts") == 50  # the lags may differ: the higher one counts


class Half(BasicBolt):
    """Passes every second window on, in half of its size."""

    outputs = ("key", "end")

    def execute(self, tup: Tuple) -> None:
        if tup.end % 20 == 0:
            self.emit(["all", tup.end])


class Holds(Half):
    """Looks the same to its readers, and may emit at ticks as well."""

    def on_tick(self, tup: Tuple) -> None:
        """Emit nothing, today."""


@pytest.mark.parametrize(("between", "watermark"), [(Half, 41), (Holds, None)])
def test_a_bolt_between_two_windows_passes_the_watermark_on_if_it_holds_nothing_back(
    between: type[BasicBolt], watermark: int | None
) -> None:
    feeder = FeederSpout(["k", "ts"])
    builder = TopologyBuilder()
    builder.set_spout("rows", feeder)
    windows = WindowAggregate(
        key="k", window=Tumbling(10), time=EventTime("ts"), aggregates={"n": Count()}
    )
    builder.set_bolt("windows", windows).fields_grouping("rows", ["k"])
    builder.set_bolt("between", between()).shuffle_grouping("windows")
    again = WindowAggregate(
        key="key", window=Tumbling(100), time=EventTime("end"), aggregates={"n": Count()}
    )
    builder.set_bolt("again", again).fields_grouping("between", ["key"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for ts in (1, 11, 15):
            feeder.feed(["a", ts])
        run.settle()
        feeder.feed(["a", 41])
        run.settle()
        # That of a bolt that may hold tuples back is of what it has emitted, the end 20.
        assert run.watermark("again") == (watermark if watermark is not None else 20)


# -- timers ----------------------------------------------------------------------------------------


class Silences(Process[str, Any, tuple[str, int]]):
    """Reports a key whose next value is more than 10 later."""

    def on_value(self, key: str, value: Any) -> None:
        self.state["last"] = value.ts
        self.set_timer("silent", value.ts + 10)

    def on_timer(self, key: str, name: str, at: int) -> None:
        self.emit((key, at))


@pytest.mark.parametrize("rows", [
    [("a", 0, 1), ("b", 0, 5), ("a", 0, 30), ("b", 0, 31), ("a", 0, 60)],
    [("a", 0, 5), ("a", 0, 1), ("b", 0, 12), ("b", 0, 40), ("a", 0, 38)],
])  # fmt: skip
def test_timers_fire_between_values_however_batches_are_cut(rows: list[Any]) -> None:
    def write(s: Stream[Any]) -> Stream[Any]:
        return s.key_by("k").process(Silences())

    each = live(write, rows)
    assert each
    for ends in cuts(len(rows)):
        assert live(write, rows, ends=ends) == each, ends


# -- what functions get, and in which order --------------------------------------------------------


def test_the_gap_of_a_session_is_a_function_of_the_element() -> None:
    def window(s: Stream[Any]) -> Stream[Any]:
        return s.key_by("k").window(Session(lambda row: row.v)).count()

    found = live(window, [("a", 10, 0), ("a", 5, 8), ("a", 10, 40), ("z", 1, 99)])
    assert [row[:4] for row in found] == [["a", 0, 13, 2], ["a", 40, 50, 1]]


@pytest.mark.parametrize("window", [Tumbling(20), Sliding(20, 10), Session(30)], ids=repr)
def test_values_are_collected_in_the_order_of_their_times_if_that_is_wanted(window: Any) -> None:
    rows = [("a", "late", 18), ("a", "b", 3), ("a", "also b", 3), ("a", "a", 1), ("z", "", 99)]

    def write(s: Stream[Any]) -> Stream[Any]:
        return s.key_by("k").map_values(lambda row: row.v).window(window).collect(by_time=True)

    longest = max((row[3] for row in live(write, rows, ends=[3])), key=len)
    assert longest == ["a", "b", "also b", "late"]
    with pytest.raises(StreamError, match="Collect cannot take a value away again"):
        groups(Collect("x", by_time=True), [])


# -- names, and mistakes -------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["nothing", "an action", "a bolt", "a window", "more steps"])
def test_what_has_a_name_can_be_looked_at_whoever_reads_it(end: str) -> None:
    feeder = FeederSpout(["k", "v", "ts"])
    s = StreamBuilder()
    elements = s.stream(feeder, time=EventTime("ts")).map(lambda row: row.v).named("values")
    if end == "an action":
        elements.print()
    elif end == "a bolt":
        elements.to(Looks(), name="looks")
    elif end == "a window":
        elements.window(Tumbling(10)).count().print()
    elif end == "more steps":
        elements.filter(bool).map(str).to(Looks(), name="looks")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for v in (1, 0, 2):
            feeder.feed(["a", v, v])
        run.settle()
        assert [row[0] for row in run.tuples("values")] == [1, 0, 2]
        if end in ("a bolt", "more steps"):
            assert run.tuples("looks") == [[v] for v in ((1, 0, 2) if end == "a bolt" else "12")]


class Looks(BasicBolt):
    outputs = ("seen",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.value])


def two_of_a_name(s: StreamBuilder) -> None:
    for _ in range(2):
        s.stream(FeederSpout(["k"])).key_by().count().named("totals")
    s.build()


def of_two_builders(s: StreamBuilder) -> None:
    s.stream(FeederSpout(["k"])).merge(StreamBuilder().stream(FeederSpout(["k"])))


MISTAKES: dict[str, tuple[Callable[[StreamBuilder], Any], str]] = {
    "a name twice": (two_of_a_name, "two operators are named 'totals'"),
    "two builders": (of_two_builders, "merge: stream at .* belongs to another StreamBuilder"),
    "a merge of nothing": (lambda s: s.merge(), "takes one stream or more"),
    "a class": (
        lambda s: s.stream(FeederSpout(["k"])).key_by().window(Tumbling(10)).aggregate(Count),  # type: ignore[call-overload]
        "takes an instance of a Combiner",
    ),
    "a fold of sessions": (
        lambda s: s.stream(FeederSpout(["k"])).key_by().window(Session(10)).fold(0, max),
        r"accumulators of fold\(\) cannot",
    ),
}


@pytest.mark.parametrize(("write", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named_at_their_line(
    write: Callable[[StreamBuilder], Any], words: str
) -> None:
    with pytest.raises(StreamError, match=words) as raised:
        write(StreamBuilder())
    assert raised.value.at.startswith("test_live_streams.py:")


# -- several inputs, and times that a bolt in between changes --------------------------------------


@pytest.mark.parametrize("at_once", [False, True])
def test_a_process_of_several_inputs_goes_by_the_slower_one(at_once: bool) -> None:
    feeders = [FeederSpout(["k", "v", "ts"]) for _ in range(2)]
    s = StreamBuilder()
    one, other = (s.stream(feeder, time=EventTime("ts")) for feeder in feeders)
    one.merge(other).dedupe("v", within=td(milliseconds=10)).named("out")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for place, row in enumerate([(0, 1, 1), (1, 2, 1), (0, 3, 1000), (1, 4, 50), (1, 5, 1000)]):
            feeders[row[0]].feed(["x", *row[1:]])
            if not at_once or place == 4:
                run.settle()
        assert sorted(row[0].v for row in run.tuples("out")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("join", [False, True])
def test_the_results_of_sessions_are_not_late_for_the_window_behind_them(join: bool) -> None:
    def write(s: Stream[Any]) -> Stream[Any]:
        keyed = s.key_by("k")
        sessions = (
            keyed.join(keyed, window=Session(10)) if join else keyed.window(Session(10)).count()
        )
        return sessions.key_by(zero).window(Tumbling(10)).count()

    rows = [("x", 0, 10), ("y", 0, 20), ("y", 0, 21), ("y", 0, 1000), ("y", 0, 2000)]
    found = live(write, rows)
    assert [row[1] for row in found] == [10, 30, 1000]


class Passes(BasicBolt):
    """Passes a result on, with its time."""

    outputs = ("key", "ts")

    def execute(self, tup: Tuple) -> None:
        self.emit([1, tup.ts])


def test_a_bolt_behind_a_merge_passes_no_watermark_that_is_not_of_all_of_it() -> None:
    feeders = [FeederSpout(["k", "ts"]) for _ in range(2)]
    s = StreamBuilder()
    one, other = (s.stream(feeder, time=EventTime("ts")) for feeder in feeders)
    windows = one.key_by("k").window(Tumbling(10)).count().map(zero)
    again = WindowAggregate(
        key="key", window=Tumbling(10), time=EventTime("ts"), aggregates={"n": Count()}
    )
    windows.merge(other.map(zero)).through(Passes()).through(again, name="again").print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for ts in (1, 1000):
            feeders[0].feed(["a", ts])
            run.settle()
        for ts in (5, 50, 500, 2000):
            feeders[1].feed(["a", ts])
            run.settle()
        assert run.stats().components["again"].late == 0
        assert [row[1] for row in run.tuples("again")] == [0, 50, 500]


class Fours(StatefulBasicBolt):
    """Keeps results back until there are four of them."""

    outputs = ("key", "end")

    def execute(self, tup: Tuple) -> None:
        waiting = [*self.state.get("waiting", ()), tup.end]
        self.state["waiting"] = [] if len(waiting) == 4 else waiting
        for end in waiting if len(waiting) == 4 else ():
            self.emit(["all", end])


class Earlier(BasicBolt):
    """Changes the times of results."""

    outputs = ("key", "end")

    def execute(self, tup: Tuple) -> None:
        self.emit(["all", tup.end - 50])


class EarlierAsItSays(Earlier):
    passes_time = False


class InSeconds(BasicBolt):
    """Changes the unit of results."""

    outputs = ("key", "end")

    def execute(self, tup: Tuple) -> None:
        self.emit(["all", tup.end // 1_000])


def behind_windows(between: BasicBolt, time: EventTime, step: int = 10) -> Any:
    feeder = FeederSpout(["k", "ts"])
    builder = TopologyBuilder()
    builder.set_spout("rows", feeder)
    windows = WindowAggregate(
        key="k", window=Tumbling(step), time=EventTime("ts"), aggregates={"n": Count()}
    )
    builder.set_bolt("windows", windows).fields_grouping("rows", ["k"])
    builder.set_bolt("between", between).shuffle_grouping("windows")
    again = WindowAggregate(key="key", window=Tumbling(10), time=time, aggregates={"n": Count()})
    builder.set_bolt("again", again).fields_grouping("between", ["key"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for number in range(12):
            feeder.feed(["a", number * step])
            run.settle()
        return run.stats().components["again"].late, len(run.tuples("again"))


def test_a_bolt_that_holds_results_back_or_changes_times_is_a_birth_of_its_own() -> None:
    assert behind_windows(Fours(), EventTime("end"))[0] == 0
    assert behind_windows(EarlierAsItSays(), EventTime("end")) == (0, 10)
    late, count = behind_windows(InSeconds(), EventTime("end", unit="s"), 10_000)
    assert (late, count > 0) == (0, True)


def test_times_that_a_bolt_changes_unsaid_are_told_of() -> None:
    with pytest.warns(UserWarning, match="write passes_time = False"):
        late, _ = behind_windows(Earlier(), EventTime("end"))
    assert late


def test_a_group_that_its_user_ends_begins_anew_within_a_batch_too() -> None:
    def more(acc: int, row: Any) -> Any:
        return (acc + row.x) or None

    def less(acc: int, row: Any) -> Any:
        return acc - row.x

    rows: list[list[Any]] = [["r1", 1], ["r2", -1], ["r3", 5], ["r3", "gone"], ["r4", 1]]
    for ends in cuts(len(rows)):
        feeder = FeederSpout(["id", "x"])
        s = StreamBuilder()
        table = s.stream(feeder).to_table("id", deleted=lambda row: row.x == "gone")
        grouped = table.group_by(lambda key, row: "g")
        grouped.aggregate(init=lambda: 0, adder=more, subtractor=less).named(
            "g"
        ).to_stream().print()
        with TestCluster() as cluster:
            run = cluster.submit_topology("t", s.build())
            for place, row in enumerate(rows):
                feeder.feed(row)
                if place in ends:
                    run.settle()
            run.settle()
            assert run.tuples("g")[-1] == ["g", 1], ends
