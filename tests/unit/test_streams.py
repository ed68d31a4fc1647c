"""Programs of streams: what they compile to, what they compute, and what is wrong with them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta as td
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.test_streams import Items, Sink, results
from tests.property.scale import examples
from topo import BasicBolt, Bolt, EventTime, Sliding, Spout, TopologyBuilder, Tumbling, Tuple
from topo.engine.spark.plan import make_plan
from topo.errors import InvalidTopologyError, StreamError, UncaughtError
from topo.operators.aggregates.combiners import Combiner, Count, Mean, Sum
from topo.streams import CachedMap, MemoryStore, Opaque, Process, Record, Stream, StreamBuilder
from topo.streams.partials import OFF_FOR_BATCHES, Partials
from topo.testing import FeederSpout, TestCluster, complete_topology

Program = Callable[[StreamBuilder, dict[str, Stream[Any]]], Stream[Any]]


def chained_counts(words: list[str], parallelism: int = 1) -> list[list[Any]]:
    """Count the words, and then how often each count of a word was reached."""

    def write(s: StreamBuilder, i: dict[str, Stream[Any]]) -> Stream[Any]:
        counted = i[""].repartition(parallelism).key_by().count()
        return counted.map_values(lambda n: n % 3).filter(lambda pair: pair[1] > 0).count()

    return results(write, {"": words})


def test_keys_that_stay_are_not_exchanged_again() -> None:
    s = StreamBuilder()
    counted = s.stream(Items([]), parallelism=4).key_by().count()
    counted.map_values(str).reduce(max).named("again").print()
    plan = make_plan(s.build(), slots=2)
    count, again = plan.component("count_1"), plan.component("again")
    assert (again.level, again.slots) == (count.level, count.slots)
    assert len(plan.levels) == 2


def test_keys_that_stay_find_their_state_whatever_the_number_of_tasks() -> None:
    words = [f"w{n % 7}" for n in range(100)]
    alone = sorted(map(repr, chained_counts(words)))
    assert sorted(map(repr, chained_counts(words, parallelism=5))) == alone


def test_same_task_grouping_needs_equal_numbers_of_tasks() -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Items([]), 2)
    builder.set_bolt("b", Sink(), 3).same_task_grouping("s")
    with pytest.raises(InvalidTopologyError, match="has 3 tasks where 's' has 2"):
        builder.create_topology()


def test_a_program_becomes_few_bolts() -> None:
    s = StreamBuilder()
    words = s.stream(Items([])).flat_map(str.split).filter(bool).key_by(str.lower)
    words.count().named("per_word").map_values(str).print()
    topology = s.build()
    read = {
        name: [(i.component, i.grouping.kind) for i in part.inputs]
        for name, part in topology.components.items()
    }
    assert read == {
        "stream_1": [],
        "after_stream_1": [("stream_1", "local_or_shuffle")],
        "per_word": [("after_stream_1", "same_task")],
        "after_per_word": [("per_word", "local_or_shuffle")],
    }
    explained = s.explain()
    assert "per_word: count at test_streams.py:" in explained
    assert "reads after_stream_1 by same_task" in explained  # of one task, which needs no exchange


STEPS: dict[str, tuple[Callable[[Any], Any], Callable[[list[int]], list[int]]]] = {
    "map": (lambda s: s.map(lambda n: n + 1), lambda ns: [n + 1 for n in ns]),
    "filter": (lambda s: s.filter(lambda n: n % 3), lambda ns: [n for n in ns if n % 3]),
    "flat_map": (
        lambda s: s.flat_map(lambda n: range(n % 3)),
        lambda ns: [m for n in ns for m in range(n % 3)],
    ),
    "filter_map": (
        lambda s: s.filter_map(lambda n: n * 2 if n % 2 else None),
        lambda ns: [n * 2 for n in ns if n % 2],
    ),
    "keyed": (
        lambda s: s.key_by(lambda n: n % 2).map_values(lambda n: n + 5).values(),
        lambda ns: [n + 5 for n in ns],
    ),
    "branch": (
        lambda s: (lambda b: b["low"].map(lambda n: -n).merge(b["high"]))(
            s.branch(low=lambda n: n < 4, default="high")
        ),
        lambda ns: [-n if n < 4 else n for n in ns],
    ),
    "repartition": (lambda s: s.repartition(3), lambda ns: ns),
}


@examples(25)
@given(
    numbers=st.lists(st.integers(0, 9), max_size=12),
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=5),
)
def test_a_program_computes_what_plain_python_does(numbers: list[int], steps: list[str]) -> None:
    def write(s: StreamBuilder, i: dict[str, Stream[Any]]) -> Stream[Any]:
        stream = i[""]
        for step in steps:
            stream = STEPS[step][0](stream)
        return stream

    expected = list(numbers)
    for step in steps:
        expected = STEPS[step][1](expected)
    assert Counter(results(write, {"": list(numbers)})) == Counter(expected)


class Events(Spout):
    """Emits (user, amount, ts)."""

    outputs = ("user", "amount", "ts")

    def __init__(self, rows: list[tuple[str, int, int]]) -> None:
        self.left = list(rows)

    def next_tuple(self) -> None:
        if self.left:
            self.emit(list(self.left.pop(0)), msg_id=len(self.left))

    def is_exhausted(self) -> bool:
        return not self.left


ROWS = [("ann", 3, 1_000), ("bob", 5, 2_000), ("ann", 4, 9_999), ("ann", 1, 10_000)]


def _of_events(write: Callable[[Stream[Any]], Stream[Any]], rows: Any = ROWS) -> list[Any]:
    s = StreamBuilder()
    write(s.stream(Events(rows), time=EventTime("ts"))).to(Sink(), name="sink")
    return [row[0] for row in complete_topology(s.build()).tuples("sink")]


@pytest.mark.parametrize("combiner", [Sum("amount"), Sum(lambda event: event.amount)])
def test_windows_by_event_time(combiner: Combiner) -> None:
    found = _of_events(
        lambda s: s.key_by("user").window(Tumbling(td(seconds=10))).aggregate(combiner)
    )
    assert sorted((key, list(window), total) for (key, window), total in found) == [
        ("ann", [0, 10_000], 7),
        ("ann", [10_000, 20_000], 1),
        ("bob", [0, 10_000], 5),
    ]


def test_windows_of_all_keys_and_windows_of_windows() -> None:
    found = _of_events(
        lambda s: (
            s.filter(lambda e: e.amount > 1)
            .window(Tumbling(td(seconds=5)))
            .count()
            .map_window_away()
            .values()
        )
    )
    assert sorted(found) == [1, 2]
    again = _of_events(
        lambda s: (
            s.key_by("user")
            .window(Tumbling(td(seconds=5)))
            .count()
            .key_by(lambda result: result[0][0])
            .window(Tumbling(td(seconds=20)))
            .collect()
            .map_values(len)
        )
    )
    assert sorted((key, count) for (key, _), count in again) == [("ann", 3), ("bob", 1)]


def test_elements_of_a_spout_with_fields_are_records() -> None:
    (first,) = _of_events(lambda s: s.repartition(2).filter(lambda e: e.amount == 5))
    assert isinstance(first, Record)
    assert (first.user, first[1], tuple(first)) == ("bob", 5, ("bob", 5, 2_000))
    with pytest.raises(AttributeError, match="no field 'usr'; it has 'user', 'amount', 'ts'"):
        _ = first.usr


class Inactive(Process[str, Any, tuple[str, int]]):
    """Reports a key when it has been silent for ten seconds, with the number of its values."""

    def on_value(self, key: str, value: Any) -> None:
        self.state["count"] = self.state.get("count", 0) + 1
        self.set_timer("gone", self.ts + 10_000)

    def on_timer(self, key: str, name: str, at: int) -> None:
        self.emit((key, self.state.pop("count")))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_process_with_timers_in_event_time(restarts: bool) -> None:
    s = StreamBuilder()
    feed = FeederSpout(["user", "ts"])
    stream = s.stream(feed, time=EventTime("ts"))
    stream.key_by("user").process(Inactive()).to(Sink(), name="sink")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build(), {})
        seen: list[list[Any]] = []
        for user, ts in [("ann", 0), ("bob", 4_000), ("ann", 8_000), ("bob", 20_000)]:
            feed.feed([user, ts])
            run.settle()
            if restarts:
                run.restart()
            seen.append([row[0] for row in run.tuples("sink")])
        feed.feed(["cid", 30_000])
        run.settle()
        assert seen == [[], [], [], [["ann", 2]]]
        assert sorted(row[0] for row in run.tuples("sink")) == [["ann", 2], ["bob", 2]]


class Alarm(Process[str, str, str]):
    """Repeats each value five seconds later, by the clock."""

    def on_value(self, key: str, value: str) -> None:
        self.state[value] = True
        self.set_timer(value, self.now + 5, clock=True)
        if value == "never":
            self.delete_timer(value)

    def on_timer(self, key: str, name: str, at: float) -> None:
        del self.state[name]
        self.emit(name)


def test_timers_by_the_clock_and_deduplication_for_a_while() -> None:
    s = StreamBuilder()
    feed = FeederSpout(["word"])
    once = s.stream(feed).dedupe(within=td(seconds=20))
    once.key_by().process(Alarm(), keyed=False).to(Sink(), name="sink")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build(), {})
        for word in ("a", "a", "never"):
            feed.feed([word])
        run.settle()
        cluster.advance(4)
        run.restart()
        assert run.tuples("sink") == []
        cluster.advance(2)
        assert run.tuples("sink") == [["a"]]
        feed.feed(["a"])
        run.settle()
        cluster.advance(20)
        assert run.tuples("sink") == [["a"]]
        feed.feed(["a"])
        run.settle()
        cluster.advance(6)
        assert run.tuples("sink") == [["a"], ["a"]]


class Heartbeat(Process[str, str, str]):
    """Emits a beat every minute, for ever."""

    def on_value(self, key: str, value: str) -> None:
        self.state["beats"] = 0
        self.set_timer("beat", self.now + 60, clock=True)

    def on_timer(self, key: str, name: str, at: float) -> None:
        self.state["beats"] += 1
        self.emit("beat")
        self.set_timer("beat", at + 60, clock=True)


def test_a_timer_that_arms_itself_ends_with_its_input() -> None:
    found = results(lambda s, i: i[""].key_by().process(Heartbeat(), keyed=False), {"": ["a", "b"]})
    assert found == ["beat", "beat"]


def test_an_event_time_timer_needs_event_time() -> None:
    s = StreamBuilder()
    s.stream(Items(["x"])).key_by().process(Inactive()).print()
    with pytest.raises(UncaughtError, match="timer 'gone' is in event time"):
        complete_topology(s.build())


OUTSIDE = MemoryStore()


class SharedStore:
    """A store outside the components, whose instances all lead to the same values."""

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        return OUTSIDE.multi_get(keys)

    def multi_put(self, items: Mapping[Any, Any]) -> None:
        OUTSIDE.multi_put(items)


BATCHES: dict[int, list[Any]] = defaultdict(list)


def test_a_state_outside_and_batches_of_elements() -> None:
    OUTSIDE.values.clear()
    BATCHES.clear()
    s = StreamBuilder()
    keyed = s.stream(Items(["a", "b", "a"])).key_by()
    totals = keyed.persistent_aggregate(Count(), Opaque(CachedMap(SharedStore())))
    totals.updates().for_each_batch(BATCHES_OF)
    complete_topology(s.build())
    assert {key: stored.value for key, stored in OUTSIDE.values.items()} == {"a": 2, "b": 1}
    assert {key: value for batch in BATCHES.values() for key, value in batch} == {"a": 2, "b": 1}


def BATCHES_OF(batch_id: int, items: list[Any]) -> None:
    BATCHES[batch_id] = items


def test_partials_turn_off_when_keys_are_distinct_and_on_again() -> None:
    partial = Partials(Count(), keyed=True)

    def rows(keys: list[int]) -> int:
        for key in keys:
            partial.add(key, None)
        return len(partial.take())

    assert rows(list(range(100))) == 100
    assert rows([1] * 100) == 100  # it is off, and each element passes
    for _ in range(OFF_FOR_BATCHES - 1):
        rows([1] * 100)
    assert rows([1] * 100) == 1


def test_a_bolt_of_ones_own_between_operators() -> None:
    class Doubled(BasicBolt):
        outputs = ("value",)

        def execute(self, tup: Tuple) -> None:
            self.emit([tup.value])
            self.emit([tup.value])

    found = results(lambda s, i: i[""].map(str).through(Doubled()).map(len), {"": [1, 22]})
    assert sorted(found) == [1, 1, 2, 2]


def test_running_aggregates() -> None:
    def last(write: Program) -> Any:
        return results(write, {"": [3, 1, 2]})[-1]

    assert last(lambda s, i: i[""].key_by(lambda n: "k").reduce(lambda a, b: a + b)) == ["k", 6]
    assert last(lambda s, i: i[""].key_by(lambda n: "k").collect()) == ["k", [3, 1, 2]]
    assert last(lambda s, i: i[""].key_by(lambda n: "k").top(2)) == ["k", [3, 2]]
    assert last(lambda s, i: i[""].key_by(lambda n: "k").aggregate(Mean(lambda n: n))) == ["k", 2]
    assert results(lambda s, i: i[""].key_by().distinct(), {"": [1, 1, 2]}) == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    "itself",
    [
        lambda s: s.key_by(),
        lambda s: s.key_by(lambda row: row),
        lambda s: s.flat_map(lambda row: [row]).key_by(),
    ],
)
def test_elements_of_several_fields_are_keys_by_their_values(itself: Any) -> None:
    s = StreamBuilder()
    events = s.stream(Events([("ann", n % 2, 7) for n in range(6)]))
    itself(events).count().named("counts").print()
    events.dedupe().named("first").print()
    run = complete_topology(s.build())
    keys = [("ann", n, 7) for n in (0, 1)]
    assert sorted(run.tuples("counts")) == [[key, count] for key in keys for count in (1, 2, 3)]
    assert sorted(run.tuples("first")) == [[key] for key in keys]


def test_a_chain_travels_without_its_source() -> None:
    """The source may be a list of millions, and be known in one process only."""
    builder = StreamBuilder()
    words = builder.stream(Items([str(number) * 10 for number in range(2_000)]))
    words.map(len).key_by().count().map(str).named("counts").for_each(str)
    topology = builder.build()
    sizes = {name: len(made.pickled) for name, made in topology.components.items()}
    assert sizes.pop("stream_1") > 20_000
    assert max(sizes.values()) < 5_000


def test_an_error_names_the_operator_and_the_users_line() -> None:
    s = StreamBuilder()
    s.stream(Items([1, 0])).map(lambda n: n).map(lambda n: 1 // n).print()
    with pytest.raises(ZeroDivisionError) as raised:
        complete_topology(s.build())
    text = raised.value.user_traceback  # type: ignore[attr-defined]
    assert "map(lambda n: 1 // n)" in text
    assert "in map at test_streams.py:" in text
    assert "<topo loop>" not in text


def test_an_error_out_of_a_librarys_function_has_the_place_of_the_operator() -> None:
    s = StreamBuilder()
    s.stream(Items(["{"])).map(json.loads).print()
    with pytest.raises(UncaughtError) as raised:
        complete_topology(s.build())
    assert raised.value.at.startswith("test_streams.py:")


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda s: s.map("len"), "map takes a function; got 'len'"),
        (lambda s: s.branch(), "branch needs a predicate"),
        (lambda s: s.branch(a=bool, default="a"), "'a' is both a predicate and the default"),
        (lambda s: s.repartition(2, by="key"), "repartition by 'key'"),
        (lambda s: s.merge(s.key_by()), "merge takes streams that all have keys, or none"),
        (lambda s: s.aggregate(Count), "takes an instance of a Combiner"),
        (lambda s: s.key_by().process(Alarm), "takes an instance of a Process"),
        (lambda s: s.to(print), "takes a bolt"),
        (lambda s: s.key_by().persistent_aggregate(_NoMerge()), "_NoMerge has no merge"),
    ],
)
def test_mistakes_are_named_where_they_are_written(write: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(StreamError, match=words) as raised:
        write(StreamBuilder().stream(Items([])))
    assert raised.value.at.startswith("test_streams.py:")


class _NoMerge(Combiner):
    def add(self, acc: Any, value: Any) -> Any:
        return value


def test_mistakes_found_when_the_program_is_built() -> None:
    with pytest.raises(StreamError, match="has no stream"):
        StreamBuilder().build()
    s = StreamBuilder()
    s.stream(Events([]), time=EventTime("when"))
    with pytest.raises(StreamError, match="the time field 'when' is no field of the spout"):
        s.build()
    with pytest.raises(StreamError, match=r"stream\(\) takes a spout"):
        s.stream(Sink())  # type: ignore[arg-type]


def test_a_stream_that_nobody_reads_is_fine() -> None:
    class Own(Bolt):
        def execute(self, tup: Tuple) -> None:
            self.ack(tup)

    s = StreamBuilder()
    s.stream(Items([1]), name="numbers").to(Own(), name="own")
    assert set(s.build().components) == {"numbers", "own"}


# -- windows in parts ------------------------------------------------------------------------------


def windowed(
    rows: Sequence[tuple[str, int, int]],
    write: Callable[[Any], Stream[Any]],
    *,
    restarts: bool = False,
) -> list[Any]:
    """Feed rows of (key, n, ts) in some batches, to the end of time; return the results."""
    s = StreamBuilder()
    feed = FeederSpout(["key", "n", "ts"])
    time = EventTime("ts", lag=50, idle=None)
    events = s.stream(feed, time=time).filter(lambda row: row.n != 0)
    write(events.key_by("key")).map(lambda pair: (*pair[0][:1], *pair[0][1], pair[1])).to(
        Sink(), name="sink"
    )
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build(), {})
        size = len(rows) // 4 + 1
        for first in range(0, len(rows), size):
            for row in rows[first : first + size]:
                feed.feed(list(row))
            run.settle()
            if restarts:
                run.restart()
        feed.feed(["end", 0, 1_000_000])  # the filter drops it; its time counts
        run.settle()
        return [row[0] for row in run.tuples("sink")]


@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(-3, 3), st.integers(0, 40)), max_size=60
    ),
    size=st.integers(1, 12),
    slide=st.integers(1, 12),
    offset=st.integers(0, 5),
    restarts=st.booleans(),
)
@examples(40)
def test_windows_added_up_in_parts_are_those_of_the_whole(
    rows: list[tuple[str, int, int]], size: int, slide: int, offset: int, restarts: bool
) -> None:
    slide = min(slide, size)
    window = Sliding(size, slide, offset)
    expected: Counter[tuple[str, int, int]] = Counter()
    for key, n, ts in rows:
        first = (ts - size - offset) // slide * slide + offset
        for start in range(first, ts + slide + 1, slide):
            if n and start <= ts < start + size:
                expected[key, start, start + size] += n
    found = windowed(
        rows, lambda keyed: keyed.window(window).aggregate(Sum("n")), restarts=restarts
    )
    assert {(k, start, end): n for k, start, end, n in found} == dict(expected)
    assert len(found) == len(expected)


def test_parts_of_windows_cross_the_exchange_not_their_values() -> None:
    s = StreamBuilder()
    feed = FeederSpout(["key", "n", "ts"])
    keyed = s.stream(feed, time=EventTime("ts")).key_by("key")
    keyed.window(Tumbling(td(seconds=1))).count().print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build(), {})
        for number in range(1000):
            feed.feed(["ab"[number % 2], 1, number])
        run.settle()
        parts = run.stats().components["window_1"].executed
        assert parts <= 4 * 40  # keys x panes, for each batch that the kit cut
        feed.feed(["c", 1, 1500])
        run.settle()
        assert run.tuples("window_1") == [["a", 0, 1000, 500], ["b", 0, 1000, 500]]


def test_a_value_of_no_time_is_the_windows_affair() -> None:
    with pytest.raises(UncaughtError, match="'soon'"):
        windowed([("a", 1, "soon")], lambda keyed: keyed.window(Tumbling(10)).count())  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("reduce", "'reduce' is an operator of streams with keys: write key_by"),
        ("mapValues", "'map_values' is an operator of streams with keys: write key_by"),
        ("flatMap", "did you mean 'flat_map'"),
        ("_repr_html_", "has no attribute '_repr_html_'$"),
        ("xyzzy", "has no attribute 'xyzzy'$"),
    ],
)
def test_an_operator_that_a_stream_has_not_is_told_with_the_one_that_was_meant(
    name: str, hint: str
) -> None:
    s = StreamBuilder()
    with pytest.raises(AttributeError, match=hint):
        getattr(s.stream([1]), name)
    with pytest.raises(AttributeError, match="did you mean 'reduce'"):
        getattr(s.stream([1]).key_by(), "reduced")  # noqa: B009 - mypy knows that it is none
