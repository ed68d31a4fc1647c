"""The results of windows in programs of streams: their parts, several aggregates, what is late."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.test_live_streams import cuts, live
from topo import (
    ArgMax,
    AtWatermark,
    Collect,
    Combiner,
    Count,
    EachBatch,
    EventTime,
    Last,
    Max,
    Mean,
    PerEvent,
    Session,
    Sliding,
    Sum,
    Tumbling,
    UncaughtError,
)
from topo.errors import StreamError
from topo.streams import (
    KeyedStream,
    Process,
    Record,
    Stream,
    StreamBuilder,
    Window,
    WindowResult,
)
from topo.testing import FeederSpout, TestCluster

ROWS = [("a", 1, 1), ("a", None, 2), ("b", 5, 3), ("a", 3, 25), ("z", 0, 99)]
EARLY = AtWatermark(early=EachBatch())


def values(s: Stream[Any]) -> KeyedStream[str, Any]:
    return s.key_by("k").map_values(lambda row: row.v)


def elements(write: Callable[[Stream[Any]], Stream[Any]], rows: Sequence[Any] = ROWS) -> list[Any]:
    """Return the elements that a program gives while its input goes on, a batch for each row."""
    return [row[0] for row in live(lambda s: write(s).map(lambda element: element), rows)]


def branches(write: Callable[[Stream[Any]], Mapping[str, Stream[Any]]], rows: Any) -> Any:
    """Return the elements of several streams of a program, by name."""
    feeder = FeederSpout(["k", "v", "ts"])
    s = StreamBuilder()
    streams = write(s.stream(feeder, time=EventTime("ts")))
    for name, stream in streams.items():
        stream.map(lambda element: element).named(name)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for row in rows:
            feeder.feed(list(row))
            run.settle()
        return {name: [row[0] for row in run.tuples(name)] for name in streams}


# -- the parts of a result -------------------------------------------------------------------------


def test_the_parts_of_a_result_have_names() -> None:
    first, *_ = elements(lambda s: values(s).window(Tumbling(10)).count())
    assert (first.key, first.start, first.end, first.value) == ("a", 0, 10, 2)
    assert (first.timing, first.pane, first.change) == ("on_time", 0, "+")
    (key, window), count = first
    assert (key, window, count) == ("a", Window(0, 10), 2)
    assert repr(first) == "WindowResult(key='a', start=0, end=10, value=2)"
    again = pickle.loads(pickle.dumps(first))
    assert (again, type(again), again.end) == (first, WindowResult, 10)


@pytest.mark.parametrize("between", [
    lambda r: r.filter(lambda result: result.value < 5),
    lambda r: r.repartition(3),
    lambda r: r.merge(r.filter(lambda result: result.start < 0)),
    lambda r: r.branch(all=lambda result: result.end > 0)["all"],
    lambda r: r.map_values(lambda count: count),
    lambda r: r.key_by("key").values(),
    lambda r: r.max(),
    lambda r: r.join(r, within=0).map_values(lambda both: both[0]),
])  # fmt: skip
def test_the_parts_have_names_whatever_comes_between(between: Any) -> None:
    found = elements(lambda s: between(values(s).window(Tumbling(10)).count()))
    assert {(r.key, r.start, r.value) for r in found} == {("a", 0, 2), ("a", 20, 1), ("b", 0, 1)}


def test_a_report_tells_which_it_is() -> None:
    rows = [("a", 1, 1), ("a", 2, 2), ("z", 0, 10), ("a", 4, 3), ("z", 0, 30)]

    def write(s: Stream[Any]) -> Mapping[str, Stream[Any]]:
        window = values(s).window(Tumbling(10), trigger=EARLY, allowed_lateness=10)
        return {"one": window.count(), "several": window.aggregate(n=Count(), sum=Sum(int))}

    found = branches(write, rows)
    one, several = ([r for r in found[name] if r.key == "a"] for name in ("one", "several"))
    wanted = [("early", 0, 1), ("early", 1, 2), ("on_time", 2, 2), ("late", 3, 3)]
    assert [(r.timing, r.pane, r.value) for r in one] == wanted
    assert [(r.timing, r.pane, r.n) for r in several] == wanted
    assert several[-1].sum == 7
    assert repr(one[0]).endswith("value=1, timing='early', pane=0)")
    assert one[0].window == Window(0, 10)  # whatever the report


@pytest.mark.parametrize("window", [Tumbling(10), Sliding(20, 10), Session(5)], ids=repr)
def test_what_is_taken_back_and_what_is_reported_add_up(window: Any) -> None:
    rows = [("a", 1, 1), ("a", 2, 4), ("b", 3, 2), ("z", 0, 20), ("a", 4, 8), ("z", 0, 60)]

    def write(s: Stream[Any]) -> Mapping[str, Stream[Any]]:
        keyed = values(s)
        final = {"trigger": None, "mode": "accumulate"}
        often = {"trigger": EARLY, "mode": "retract"}
        return {
            name: keyed.window(window, allowed_lateness=20, **options).aggregate(n=Count())
            for name, options in (("final", final), ("often", often))
        }

    found = branches(write, rows)
    held: Counter[Any] = Counter()
    for r in found["often"]:
        held[r.key, r.start, r.end, r.n] += 1 if r.change == "+" else -1
    last = {(r.key, r.start): (r.end, r.n) for r in found["final"] if r.key != "z"}
    held = +held
    assert {(*at, *result) for at, result in last.items()} <= set(held)
    assert set(held.values()) == {1}


# -- several aggregates ----------------------------------------------------------------------------

SEVERAL: dict[str, Combiner] = {
    "n": Count(),
    "mean": Mean("v"),
    "all": Collect(lambda row: row.v),
    "last": Last("v"),
    "best": ArgMax("ts", by="v"),
}


@pytest.mark.parametrize(
    "window", [Tumbling(10), Sliding(20, 10), Session(5), PerEvent(5)], ids=repr
)
def test_several_aggregates_are_those_of_each_alone(window: Any) -> None:
    rows = [("a", 2, 4), ("a", 1, 2), ("b", 5, 3), ("a", 4, 25), ("a", 3, 24), ("z", 0, 99)]

    def write(s: Stream[Any]) -> Mapping[str, Stream[Any]]:
        windows = s.key_by("k").window(window, allowed_lateness=0)
        alone: dict[str, Stream[Any]] = {n: windows.aggregate(c) for n, c in SEVERAL.items()}
        return {**alone, "together": windows.aggregate(**SEVERAL)}

    found = branches(write, rows)
    together = [(r.key, r.start, r.end, *r[3:]) for r in found.pop("together")]
    assert together
    for place, name in enumerate(SEVERAL, 3):
        wanted = [(r.key, r.start, r.end, r.value) for r in found[name]]
        assert sorted(wanted) == sorted((*r[:3], r[place]) for r in together)


def test_an_aggregate_that_cannot_add_a_value_is_named() -> None:
    window, rows = Tumbling(10), [("a", 1, 1), ("a", "x", 2)]
    with pytest.raises(UncaughtError) as caught:
        elements(
            lambda s: s.key_by("k").window(window, trigger=EARLY).aggregate(total=Sum("v")), rows
        )
    assert "aggregate 'total', Sum of 'v', cannot add 'x', a str" in str(caught.value.__cause__)


@pytest.mark.parametrize("window", [Tumbling(10), Session(7)], ids=repr)
def test_none_is_counted_and_is_no_value_of_the_others(window: Any) -> None:
    def write(s: Stream[Any]) -> Stream[Any]:
        of_values = values(s).window(window)
        return of_values.aggregate(n=Count(), all=Collect(), highest=Max(lambda v: v + 0))

    for ends in ([], [0, 1], range(5)):
        found = live(lambda s: write(s).map(list), ROWS, ends=ends)
        first = next(row[0] for row in found if row[0][0] == "a")
        assert (first[0], *first[3:]) == ("a", 2, [1], 1)


def test_the_aggregates_cross_the_exchange_in_parts() -> None:
    feeder = FeederSpout(["k", "v", "ts"])
    s = StreamBuilder()
    keyed = s.stream(feeder, time=EventTime("ts")).key_by("k")
    keyed.window(Tumbling(1_000)).aggregate(n=Count(), sum=Sum("v")).named("w").map(list).named("r")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for ts in range(200):
            feeder.feed(["a", 2, ts])
        feeder.feed(["a", 2, 2_000])
        run.settle()
        assert run.tuples("w") == [["a", 0, 1_000, 200, 400]]
        assert run.stats().components["w"].executed < 100


def test_a_record_has_fields_named_as_a_method_of_tuples_is() -> None:
    def write(s: Stream[Any]) -> Stream[Any]:
        return values(s).window(Tumbling(10)).aggregate(count=Count(), index=Collect())

    first, *_ = elements(write)
    assert (first.count, first.index) == (2, [1])
    assert isinstance(first, Record)


def test_a_stream_with_keys_is_deduped_by_its_pairs() -> None:
    rows = [("a", 1, 1), ("b", 1, 2), ("a", 1, 3)]
    assert elements(lambda s: values(s).dedupe(), rows) == [("a", 1), ("b", 1)]


def test_windows_of_results_are_of_their_keys_and_bounds() -> None:
    def write(s: Stream[Any]) -> Stream[Any]:
        several = s.key_by("k").window(Tumbling(10)).aggregate(n=Count())
        return several.key_by("start").window(Tumbling(10)).top(1, by="n")

    rows = [*(("a", 0, ts) for ts in (1, 2)), ("b", 0, 3), ("z", 0, 12), ("z", 0, 35)]
    top = {r.key: r.value for r in elements(write, rows)}
    assert {start: [(of.key, n) for of, n in best] for start, best in top.items()} == {
        0: [("a", 2)],
        10: [("z", 1)],
    }


# -- the order of what is collected ----------------------------------------------------------------

UNORDERED = [("a", "late", 18), ("a", "b", 3), ("a", "also b", 3), ("a", "a", 1), ("z", "", 99)]


@pytest.mark.parametrize(
    "window", [Tumbling(20), Sliding(20, 10), Session(30), PerEvent(20)], ids=repr
)
def test_values_are_in_the_order_of_their_times_in_every_kind_of_window(window: Any) -> None:
    for ends in ([3], [0, 3], [3, 4]):
        found = live(lambda s: values(s).window(window).collect(), UNORDERED, ends=ends)
        assert max((row[3] for row in found), key=len) == ["a", "b", "also b", "late"]


def test_values_are_as_they_came_if_that_is_wanted() -> None:
    found = live(
        lambda s: values(s).window(Tumbling(20)).collect(by_time=False), UNORDERED, ends=[3]
    )
    assert found[0][3] == ["late", "b", "also b", "a"]


def test_windows_around_events_are_not_late_for_the_window_behind_them() -> None:
    def write(s: Stream[Any]) -> Stream[Any]:
        around = s.key_by("k").window(PerEvent(5)).count()
        return around.key_by(lambda r: "all").window(Tumbling(10)).count()

    found = elements(write, [("a", 0, ts) for ts in (0, 9, 10, 11, 20, 21, 40)])
    assert [(r.start, r.value) for r in found] == [(0, 2), (10, 2), (20, 2)]


# -- what is late ----------------------------------------------------------------------------------


class Echo(Process[Any, Any, Any]):
    def on_value(self, key: Any, value: Any) -> None:
        self.emit((key, value))


LATE: dict[str, Callable[[KeyedStream[Any, Any]], Stream[Any]]] = {
    "window": lambda keyed: keyed.window(Tumbling(10)).count(),
    "several": lambda keyed: keyed.window(Tumbling(10)).aggregate(n=Count(), sum=Sum(int)),
    "session": lambda keyed: keyed.window(Session(5)).max(),
    "join": lambda keyed: keyed.join(keyed, within=5),
    "window join": lambda keyed: keyed.left_join(keyed, window=Tumbling(10)),
    "cogroup": lambda keyed: keyed.cogroup(keyed, window=Tumbling(10)),
    "process": lambda keyed: keyed.process(Echo()),
    "dedupe": lambda keyed: keyed.dedupe(within=timedelta(milliseconds=5)),
}


@pytest.mark.parametrize("write", LATE.values(), ids=LATE)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_is_late_is_a_stream(
    write: Callable[[KeyedStream[Any, Any]], Stream[Any]], parallelism: int
) -> None:
    rows = [("a", 1, 1), ("b", 2, 30), ("a", 3, 4), ("b", 4, 31)]

    def late(s: Stream[Any]) -> Stream[Any]:
        keyed = s.repartition(parallelism).key_by("k").map_values(lambda row: row.v)
        results = write(keyed)
        results.print()
        return results.late()

    found = set(elements(late, rows))
    if write is LATE["dedupe"]:  # its elements are pairs, by themselves
        assert found == {(("a", 3), ("a", 3))}
    else:
        assert found == {("a", 3)}


def test_a_process_gets_what_is_late_unless_somebody_else_does() -> None:
    rows = [("a", 1, 1), ("b", 2, 30), ("a", 3, 4)]
    assert elements(lambda s: values(s).process(Echo()), rows) == [("a", 1), ("b", 2), ("a", 3)]
    found = branches(
        lambda s: (lambda p: {"echo": p, "late": p.late()})(values(s).process(Echo())), rows
    )
    assert found == {"echo": [("a", 1), ("b", 2)], "late": [("a", 3)]}


def test_a_row_that_is_late_for_its_table_goes_aside() -> None:
    rates = FeederSpout(["k", "rate", "ts"])
    orders = FeederSpout(["k", "v", "ts"])
    s = StreamBuilder()
    table = s.stream(rates, time=EventTime("ts", idle=None)).to_table("k", versioned=100)
    stream = s.stream(orders, time=EventTime("ts", idle=None)).key_by("k")
    priced = stream.left_join(table, lambda order, rate: (order.v, rate and rate.rate))
    priced.named("priced").print()
    priced.late().map(lambda pair: pair[1].v).named("late")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for feeder, row in ((rates, ["a", 2, 1]), (orders, ["a", "x", 5]), (rates, ["a", 3, 50]),
                            (orders, ["b", "y", 60]), (orders, ["a", "z", 6])):  # fmt: skip
            feeder.feed(row)
            run.settle()
        assert run.tuples("priced") == [["a", ("x", 2), 5]]
        assert run.tuples("late") == [["z"]]


def test_windows_of_too_many_parts_are_warned_of() -> None:
    def warnings(slide: float) -> list[str]:
        s = StreamBuilder()
        events = s.stream(FeederSpout(["k", "ts"]), time=EventTime("ts", unit="us"))
        window = Sliding(timedelta(minutes=10), timedelta(seconds=slide))
        events.key_by("k").window(window).count().print()
        return [text for text in s.build().warnings if "parts each" in text]

    assert warnings(1) == []
    (text,) = warnings(3.3333)
    assert "has windows of 2,000,000 parts each" in text


# -- mistakes --------------------------------------------------------------------------------------

Windows = Any
MISTAKES: dict[str, tuple[Callable[[Windows], Any], str]] = {
    "a field of the record": (lambda w: w.aggregate(start=Count()), "named 'start', which .* has"),
    "a private name": (lambda w: w.aggregate(_n=Count()), "named '_n', which .* cannot have"),
    "one and several": (lambda w: w.aggregate(Count(), n=Count()), "one combiner, or several"),
    "a number of tasks": (
        lambda w: w.aggregate(Count(), parallelism=2),
        r"write \.window\(\.\.\., parallelism=2\)",
    ),
    "a class": (lambda w: w.aggregate(n=Count), r"write Count\(\)"),
    "a dict": (lambda w: w.aggregate({"n": Count()}), r"write \.aggregate\(n=Count\(\)"),
    "a part there is not": (lambda w: w.aggregate(n=Sum("x")), "reads 'x', and its elements have"),
    "a part of the record": (
        lambda w: w.aggregate(n=Count()).key_by("m"),
        "reads 'm', and its elements have 'key', 'start', 'end', 'n'",
    ),
    "late of a map": (lambda w: w.count().map(str).late(), "this is map"),
}


@pytest.mark.parametrize(("write", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named_at_their_line(write: Callable[[Windows], Any], words: str) -> None:
    stream = StreamBuilder().stream(FeederSpout(["k", "v", "ts"]), time=EventTime("ts"))
    with pytest.raises(StreamError, match=words) as raised:
        write(stream.key_by("k").window(Tumbling(10)))
    assert raised.value.at.startswith("test_window_results.py:")


def test_nothing_is_late_by_arrival() -> None:
    s = StreamBuilder()
    counts = s.stream(FeederSpout(["k", "v"])).key_by("k").window(Tumbling(10)).count()
    counts.late().print()
    with pytest.raises(StreamError, match="has no event time: by arrival, nothing is late"):
        s.build()


def test_all_cuts_give_one_result_of_several_aggregates() -> None:
    rows = [("a", 1.5, 1), ("a", None, 2), ("a", 2, 3), ("z", 0, 30)]

    def write(s: Stream[Any]) -> Stream[Any]:
        return values(s).window(Tumbling(10)).aggregate(n=Count(), mean=Mean(lambda v: v))

    results = [live(write, rows, ends=ends) for ends in cuts(3)]
    assert results[0] == [["a", 0, 10, 3, 1.75]]
    assert all(found == results[0] for found in results)
