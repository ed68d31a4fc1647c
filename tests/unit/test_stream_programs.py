"""What a program of streams can say: times of its own, numbers of tasks; and its mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from topo import BasicBolt, Count, EventTime, Last, Topology, Tumbling, Tuple
from topo.errors import StreamError, UncaughtError
from topo.streams import KeyedStream, Process, Stream, StreamBuilder
from topo.testing import FeederSpout, TestCluster, complete_topology, elements

# -- times -----------------------------------------------------------------------------------------


def counted(write: Callable[[Stream[Any]], Stream[Any]], texts: list[str]) -> list[Any]:
    """Feed texts of (k, ts) as JSON, a batch each; return the counts of ten milliseconds."""
    feeder = FeederSpout(["json"])
    s = StreamBuilder()
    counts = write(s.stream(feeder)).map(lambda r: (r.key, r.start, r.value)).named("counts")
    counts.print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for text in texts:
            feeder.feed([text])
            run.settle()
            run.restart()
        return [row[0] for row in run.tuples("counts")]


TEXTS = [json.dumps({"k": k, "ts": ts}) for k, ts in (("a", 1), ("b", 5), ("a", 3), ("z", 12))]


def of_window(keyed: KeyedStream[Any, Any]) -> Stream[Any]:
    return keyed.window(Tumbling(10)).count()


PROGRAMS: dict[str, Callable[[Stream[Any]], Stream[Any]]] = {
    "a function": lambda s: of_window(s.map(json.loads).times(lambda e: e["ts"]).key_by("k")),
    "a part": lambda s: of_window(s.map(json.loads).times("ts").key_by("k")),
    "a part of the value": lambda s: of_window(s.map(json.loads).key_by("k").times("ts")),
    "a function of a pair": lambda s: of_window(
        s.map(json.loads).key_by("k").times(lambda pair: pair[1]["ts"])
    ),
    "before a filter": lambda s: of_window(
        s.map(json.loads).times("ts").filter(lambda e: e["k"] != "z").key_by("k")
    ),
    "behind a bolt": lambda s: of_window(
        s.map(json.loads).map(lambda e: [e["k"], e["ts"]]).through(Pair()).times("ts").key_by("k")
    ),
    "in seconds": lambda s: (
        s.map(json.loads)
        .times(lambda e: e["ts"] / 1000, unit="s")
        .key_by("k")
        .window(Tumbling(timedelta(milliseconds=10)))
        .count()
    ),
}


class Pair(BasicBolt):
    outputs = ("k", "ts")

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.value)


@pytest.mark.parametrize("how", ["aggregate", "persistent_aggregate"])
def test_an_aggregate_without_windows_has_no_times(how: str) -> None:
    keyed = StreamBuilder().stream([("a", 1)]).key_by(lambda row: row[0])
    with pytest.raises(StreamError, match="Last goes by event time") as caught:
        getattr(keyed, how)(Last(lambda row: row[1]))
    assert "test_stream_programs.py" in str(caught.value.at)


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_stream_can_get_its_times(name: str) -> None:
    assert sorted(counted(PROGRAMS[name], TEXTS)) == [("a", 0, 2), ("b", 0, 1)]


def test_times_may_be_given_anew() -> None:
    feeder = FeederSpout(["k", "sent", "got"])
    s = StreamBuilder()
    events = s.stream(feeder, time=EventTime("got"))
    windows = events.times("sent", lag=5).key_by("k").window(Tumbling(10)).count()
    windows.map(lambda r: (r.start, r.value)).named("counts")
    windows.late().named("late")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for sent, got in ((1, 101), (14, 102), (9, 103), (15, 104), (2, 105)):
            feeder.feed(["a", sent, got])
            run.settle()
        assert [row[0] for row in run.tuples("counts")] == [(0, 2)]
        assert [row[1].got for row in run.tuples("late")] == [105]
        assert run.watermark("window_1") == 10


def test_what_is_no_time_is_named() -> None:
    with pytest.raises(UncaughtError, match="field 'ts': the time is 'soon'"):
        counted(PROGRAMS["a part"], ['{"k": "a", "ts": "soon"}'])


# -- numbers of tasks ------------------------------------------------------------------------------


class Passing(Process[Any, Any, Any]):
    def on_value(self, key: Any, value: Any) -> None:
        self.emit((key, value))


OPERATORS: dict[str, Callable[[KeyedStream[Any, Any]], Stream[Any]]] = {
    "aggregate": lambda s: s.aggregate(Count(), parallelism=3),
    "count": lambda s: s.count(parallelism=3),
    "reduce": lambda s: s.reduce(max, parallelism=3),
    "fold": lambda s: s.fold(int, max, parallelism=3),
    "min": lambda s: s.min(parallelism=3),
    "max": lambda s: s.max(parallelism=3),
    "top": lambda s: s.top(1, parallelism=3),
    "collect": lambda s: s.collect(parallelism=3),
    "distinct": lambda s: s.distinct(parallelism=3),
    "dedupe": lambda s: s.dedupe(parallelism=3),
    "update_state_by_key": lambda s: s.update_state_by_key(int, max, parallelism=3),
    "process": lambda s: s.process(Passing(), parallelism=3),
    "window": lambda s: s.window(Tumbling(10), parallelism=3).count(),
    "join": lambda s: s.join(s, window=Tumbling(10), parallelism=3),
    "cogroup": lambda s: s.cogroup(s, parallelism=3),
    "to_table": lambda s: s.to_table(parallelism=3).to_stream(),
    "persistent_aggregate": lambda s: s.persistent_aggregate(Count(), parallelism=3).updates(),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_with_state_takes_its_number_of_tasks(name: str) -> None:
    s = StreamBuilder()
    OPERATORS[name](s.stream([3, 1, 2, 1]).key_by(lambda n: n % 2)).named("out").print()
    topology = s.build()
    assert [c.id for c in topology.bolts if c.parallelism == 3 and not c.id.startswith("after")]
    assert complete_topology(topology).tuples("out")


# -- mistakes --------------------------------------------------------------------------------------


def no_end(s: StreamBuilder) -> Topology:
    s.stream([1]).map(str)
    return s.build()


def no_end_of_some_branches(s: StreamBuilder) -> Topology:
    branches = s.stream([1]).branch(one=bool, default="rest")
    branches["one"].map(str)
    return s.build()


def no_end_of_branches(s: StreamBuilder) -> Topology:
    s.stream([1]).branch(one=bool, default="rest")
    return s.build()


def no_aggregate(s: StreamBuilder) -> Topology:
    s.stream([1]).key_by().window(Tumbling(10))
    return s.build()


def no_end_of_a_table(s: StreamBuilder) -> Topology:
    s.stream([1]).to_table(lambda n: n).map_values(str)
    return s.build()


def two_chains_of_a_name(s: StreamBuilder) -> Topology:
    for _ in range(2):
        s.stream([1]).map(str).named("texts").print()
    return s.build()


def an_extractor(s: StreamBuilder) -> Topology:
    time = EventTime(extractor=lambda tup: json.loads(tup.value)["ts"])
    s.stream(["{}"], time=time).print()
    return s.build()


def a_field_that_is_parsed_later(s: StreamBuilder) -> Topology:
    s.stream(["{}"], time=EventTime("ts")).print()
    return s.build()


MISTAKES: dict[str, tuple[Callable[[StreamBuilder], Any], str]] = {
    "no end": (no_end, "nothing is done with what map gives .*; end it with"),
    "no end of a branch's steps": (no_end_of_some_branches, "what map gives"),
    "no end of branches": (no_end_of_branches, "what branch gives"),
    "no end of a table": (no_end_of_a_table, r"what table_map gives .*\.to_stream\(\)"),
    "no aggregate": (no_aggregate, r"window\(\) without an aggregate"),
    "a name twice": (two_chains_of_a_name, "two operators are named 'texts'"),
    "no tasks": (lambda s: s.stream([1]).key_by().count(parallelism=-1), "parallelism is -1"),
    "half a task": (lambda s: s.stream([1]).repartition(1.5), "parallelism is 1.5"),  # type: ignore[arg-type]
    "a part there is not": (
        lambda s: s.stream([(1, 2)], fields=("k", "t")).times("ts"),
        "times reads 'ts', and its elements have 'k', 't'",
    ),
    "no time": (lambda s: s.stream([1]).times(3), "times takes a function; got 3"),  # type: ignore[arg-type]
    "an extractor": (an_extractor, r"write .* or \.times\(lambda element"),
    "a field of later": (a_field_that_is_parsed_later, r"no field .* write \.times\('ts', lag"),
    "an odd unit": (lambda s: s.stream([1]).times(int, unit="h"), "unit is 'h'"),
    "an odd lag": (lambda s: s.stream([1]).times(int, lag=-1), "lag is -1"),
}


@pytest.mark.parametrize(("write", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named_at_their_line(
    write: Callable[[StreamBuilder], Any], words: str
) -> None:
    with pytest.raises(StreamError, match=words) as raised:
        write(StreamBuilder())
    assert raised.value.at.startswith("test_stream_programs.py:")


def test_a_branch_that_nobody_reads_is_where_the_rest_goes() -> None:
    s = StreamBuilder()
    s.stream([1, 2, 3]).branch(odd=lambda n: n % 2, default="even")["odd"].named("odd").print()
    assert complete_topology(s.build()).tuples("odd") == [[1], [3]]


@pytest.mark.parametrize("named", ["one", "two", "rest"])
def test_the_name_of_any_branch_is_that_of_a_component(named: str) -> None:
    s = StreamBuilder()
    parts = s.stream([1, 2, 3]).branch(one=lambda n: n == 1, two=lambda n: n == 2, default="rest")
    for name, part in parts.items():
        if name == named:
            part.named(name)
        else:
            part.print()
    place = ["one", "two", "rest"].index(named)
    assert elements(complete_topology(s.build()), named) == [place + 1]


def test_every_name_is_one_of_a_component() -> None:
    s = StreamBuilder()
    numbers = s.stream([(1, 5), (2, 6), (3, 7)], fields=("n", "ts"), time=EventTime("ts"))
    doubled = numbers.map(lambda row: row.n * 2).named("doubled")
    parts = doubled.branch(low=lambda n: n < 3, default="high")
    parts["low"].named("low").print()
    parts["high"].named("high").map(str).named("texts")
    high = parts["high"].key_by().window(Tumbling(100)).count().named("counts")
    high.filter(bool).named("some").print()
    for _ in range(2):  # it may be built again
        run = complete_topology(s.build())
    found = {name: elements(run, name) for name in ("doubled", "low", "high", "texts")}
    assert found == {"doubled": [2, 4, 6], "low": [2], "high": [4, 6], "texts": ["4", "6"]}
    assert {(r.key, r.value) for r in elements(run, "some")} == {(4, 1), (6, 1)}
    assert "low: relay at test_stream_programs.py:" in s.explain()


def test_every_name_of_a_stream_of_requests_is_one_of_a_component() -> None:
    s = StreamBuilder()
    s.stream(FeederSpout(["n"])).print()
    words = s.requests("f").flat_map(str.split).named("words").filter(len).named("some")
    words.map(str.upper).count().answer()
    with TestCluster() as cluster:
        run: Any = cluster.submit_topology("t", s.build())
        assert run.call("f", "a b") == "[[2]]"
        assert [row[1] for row in run.tuples("some")] == ["a", "b"]


KEYED: dict[str, Callable[[KeyedStream[Any, Any]], Stream[Any]]] = {
    "count": lambda s: s.count(),
    "reduce": lambda s: s.reduce(max),
    "process": lambda s: s.process(Passing()),
    "dedupe": lambda s: s.dedupe(),
    "persistent_aggregate": lambda s: s.persistent_aggregate(Count()).updates(),
    "a window in parts": lambda s: s.window(Tumbling(10)).count(),
}


@pytest.mark.parametrize("name", KEYED)
def test_a_key_that_cannot_be_one_is_told_with_the_remedy(name: str) -> None:
    s = StreamBuilder()
    events = s.stream([("a", 1)], fields=("k", "ts"), time=EventTime("ts"))
    KEYED[name](events.key_by(lambda e: [e.k])).print()
    with pytest.raises(UncaughtError, match="a key is a str, a number or a tuple of them"):
        complete_topology(s.build())


def test_an_error_in_a_part_of_an_aggregate_names_the_aggregate() -> None:
    s = StreamBuilder()
    events = s.stream([(1, 1), (0, 2)], fields=("n", "ts"), time=EventTime("ts"))
    events.key_by(lambda e: "k").window(Tumbling(10)).reduce(lambda a, b: a.n / b.n).print()
    with pytest.raises(UncaughtError, match=r"in window at test_stream_programs.py:"):
        complete_topology(s.build())


def test_an_error_of_the_users_own_is_not_one_of_a_key() -> None:
    s = StreamBuilder()
    s.stream([1]).map(lambda n: {[n]}).print()
    with pytest.raises(UncaughtError, match="unhashable") as raised:
        complete_topology(s.build())
    assert "a key is" not in str(raised.value)
