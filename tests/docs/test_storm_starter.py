"""Topologies of storm-starter that no example has, each as the few lines that the page names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from operator import add
from typing import Any

import pytest

from topo import (
    AfterCount,
    BasicBolt,
    Bolt,
    CoGroup,
    Count,
    EventTime,
    FromList,
    Global,
    Mean,
    StatefulBolt,
    TopologyBuilder,
    Tumbling,
    Tuple,
    Window,
    WindowedBolt,
    bolt,
)
from topo.streams import KeyedStream, StreamBuilder
from topo.testing import complete_topology, elements

SENTENCES = ("the cow jumped over the moon", "the man went to the store")
TWO_SECONDS = timedelta(seconds=2)


# -- bolts ----------------------------------------------------------------------------------------


class Exclaim(Bolt):
    outputs = ("word",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.word + "!!!"], anchors=tup)
        self.ack(tup)


def test_exclamations_are_added_twice() -> None:
    builder = TopologyBuilder()
    builder.set_spout("word", FromList(["nathan", "mike"], fields="word"))
    builder.set_bolt("exclaim1", Exclaim(), 3).shuffle_grouping("word")
    builder.set_bolt("exclaim2", Exclaim(), 2).shuffle_grouping("exclaim1")
    result = complete_topology(builder.create_topology())
    assert sorted(result.tuples("exclaim2")) == [["mike!!!!!!"], ["nathan!!!!!!"]]
    assert result.acked["word"] == [0, 1]


class Check(BasicBolt):
    """Raises an error for a number that is not the next one of its source's task."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.expected: dict[int, int] = {}

    def execute(self, tup: Tuple) -> None:
        expected = self.expected.get(tup.source_task, 0)
        assert tup.number == expected, (tup.number, expected)
        self.expected[tup.source_task] = expected + 1


def test_what_one_task_emits_to_another_comes_in_order() -> None:
    builder = TopologyBuilder()
    numbers = FromList([(task, n) for n in range(100) for task in range(4)], ("task", "number"))
    builder.set_spout("numbers", numbers, parallelism=4)
    builder.set_bolt("check", Check(), 4).fields_grouping("numbers", ["task"])
    assert len(complete_topology(builder.create_topology()).acked["numbers"]) == 400


@bolt(outputs=("text", "tag"))
def greet(tup: Tuple) -> Iterator[list[Any]]:
    yield [f"Hello lambda: {tup.value.partition('-')[0]}", 999]


def test_functions_are_bolts() -> None:
    builder = TopologyBuilder()
    builder.set_spout("ids", FromList(["a-1", "b-2"]))
    builder.set_bolt("greet", greet).shuffle_grouping("ids")
    result = complete_topology(builder.create_topology())
    assert result.tuples("greet") == [["Hello lambda: a", 999], ["Hello lambda: b", 999]]


class Sum(StatefulBolt):
    outputs = ("value",)

    def execute(self, tup: Tuple) -> None:
        self.state["sum"] = self.state.get("sum", 0) + tup.value
        self.emit([self.state["sum"]], anchors=tup)
        self.ack(tup)


def test_sums_of_sums_are_kept_in_state() -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", FromList([1, 2, 3]))
    builder.set_bolt("partial", Sum()).shuffle_grouping("numbers")
    builder.set_bolt("total", Sum()).shuffle_grouping("partial")
    assert complete_topology(builder.create_topology()).tuples("total") == [[1], [4], [10]]


# -- windows and joins ----------------------------------------------------------------------------


class Averages(WindowedBolt):
    """Emits the average of all windows so far, and that of this one."""

    outputs = ("overall", "window")

    def execute(self, window: Window) -> None:
        values = [tup.value for tup in window]
        total, count = self.state.get("total", (0, 0))
        self.state["total"] = total, count = total + sum(values), count + len(values)
        self.emit([total / count, sum(values) / len(values)])


@pytest.mark.parametrize(
    ("length", "slide", "wanted"),
    [
        (5, 3, [[1, 1], [18 / 8, 3]]),
        (3, 3, [[1, 1], [2.5, 4]]),
    ],
)
def test_a_windowed_bolt_has_state_beside_its_windows(
    length: int, slide: int, wanted: list[list[float]]
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", FromList(range(6)))
    averages = Averages().with_window(length, slide)
    builder.set_bolt("averages", averages).shuffle_grouping("numbers")
    assert complete_topology(builder.create_topology()).tuples("averages") == wanted


def test_two_halves_of_a_row_are_joined_once() -> None:
    builder = TopologyBuilder()
    builder.set_spout("gender", FromList([(n, "mf"[n % 2]) for n in range(10)], ("id", "gender")))
    builder.set_spout("age", FromList([(n, n + 20) for n in range(9, -1, -1)], ("id", "age")))
    both = CoGroup(["gender", "age"], on="id", keep="last", emit="complete")
    joined = builder.set_bolt("join", both)
    joined.fields_grouping("gender", ["id"]).fields_grouping("age", ["id"])
    result = complete_topology(builder.create_topology())
    assert len(result.tuples("join")) == 10


# -- streams --------------------------------------------------------------------------------------


def ended(program: StreamBuilder, name: str = "out") -> list[Any]:
    return elements(complete_topology(program.build()), name)


def timed(s: StreamBuilder, rows: list[Any], *fields: str) -> Any:
    return s.stream(rows, fields=(*fields, "ts"), time=EventTime("ts"))


def test_an_average_by_window() -> None:
    s = StreamBuilder()
    numbers = timed(s, [(10, 0), (30, 1_000), (-4, 1_500), (600, 1_600), (7, 6_000)], "value")
    wanted = numbers.filter(lambda row: 0 < row.value < 500)
    means = wanted.window(Tumbling(timedelta(seconds=5))).aggregate(mean=Mean("value"))
    means.map(lambda result: result.mean).named("out").print()
    assert ended(s) == [20, 7]


def test_branches_of_even_and_odd_numbers() -> None:
    s = StreamBuilder()
    branches = s.stream(range(6)).branch(even=lambda n: n % 2 == 0, default="odd")
    for name in ("even", "odd"):
        branches[name].named(name).print()
    result = complete_topology(s.build())
    assert [elements(result, name) for name in ("even", "odd")] == [[0, 2, 4], [1, 3, 5]]


class Highest(WindowedBolt):
    """Emits the highest price of each symbol in the window."""

    outputs = ("symbol", "prices", "highest")

    def execute(self, window: Window) -> None:
        prices: dict[str, list[float]] = {}
        for tup in window:
            prices.setdefault(tup.symbol, []).append(tup.price)
        for symbol, values in sorted(prices.items()):
            self.emit([symbol, values, max(values)])


def test_prices_are_grouped_in_windows_of_six_quotes() -> None:
    quotes = [("a", 100), ("g", 780), ("f", 125), ("a", 105), ("g", 790), ("f", 130)]
    builder = TopologyBuilder()
    builder.set_spout("quotes", FromList(quotes, ("symbol", "price")))
    builder.set_bolt("highest", Highest().with_window(6, 3)).global_grouping("quotes")
    rows = complete_topology(builder.create_topology()).tuples("highest")
    assert rows[:3] == [["a", [100], 100], ["f", [125], 125], ["g", [780], 780]]
    assert rows[3:] == [["a", [100, 105], 105], ["f", [125, 130], 130], ["g", [780, 790], 790]]


def test_squares_and_cubes_of_a_window_are_joined() -> None:
    s = StreamBuilder()
    sides: list[KeyedStream[Any, Any]] = []
    for power in (2, 3):
        rows = [(n, n**power, 1_000 * n) for n in range(1, 4)]
        keyed = timed(s, rows, "key", "val").key_by("key")
        sides.append(keyed.map_values(lambda row: row.val))
    squares, cubes = sides
    squares.join(cubes, window=Tumbling(timedelta(seconds=5))).named("out").print()
    assert sorted(pair for _, pair in ended(s)) == [(1, 1), (4, 8), (9, 27)]


def test_a_count_is_asked_by_another_stream() -> None:
    s = StreamBuilder()
    counts = s.stream(["nathan", "mike", "nathan"]).key_by().persistent_aggregate(Count())
    s.stream(["nathan", "mike"]).key_by().state_query(counts).named("out").print()
    assert sorted(ended(s)) == [("mike", 1), ("nathan", 2)]


def test_counts_of_windows_are_added_up_by_word() -> None:
    s = StreamBuilder()
    words = timed(s, [("a", 0), ("b", 1), ("a", 2), ("a", 5_000)], "word")
    counts = words.key_by("word").window(Tumbling(TWO_SECONDS)).count().map_window_away()
    counts.update_state_by_key(0, add).named("out").print()
    assert sorted(ended(s)) == [("a", 2), ("a", 3), ("b", 1)]


def test_values_are_grouped_in_windows_of_three() -> None:
    s = StreamBuilder()
    rows = s.stream([(n, n // 2) for n in range(6)], fields=("value", "number"))
    pairs = rows.map(lambda row: (row.number, row.value))
    threes = pairs.window(Global(), trigger=AfterCount(3), mode="discard").collect()
    threes.map(lambda result: result.value).named("out").print()
    assert ended(s) == [[(0, 0), (0, 1), (1, 2)], [(1, 3), (2, 4), (2, 5)]]


def test_frequent_words_of_a_window() -> None:
    s = StreamBuilder()
    lines = timed(s, [(line, 1_000 * n) for n, line in enumerate(SENTENCES)], "line")
    words = lines.flat_map(lambda row: row.line.split()).key_by()
    counts = words.window(Tumbling(TWO_SECONDS)).count()
    counts.filter(lambda pair: pair.value >= 4).map(lambda r: r.key).named("out").print()
    assert ended(s) == ["the"]


class Store(BasicBolt):
    """Emits what a bolt of a connector, such as RedisStoreBolt, would store."""

    outputs = ("key", "value")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.key, tup.value])


def test_counts_go_to_a_bolt_that_stores_them() -> None:
    s = StreamBuilder()
    counts = s.stream(SENTENCES).flat_map(str.split).key_by().count()
    counts.to(Store(), name="store")
    result = complete_topology(s.build())
    stored = dict(result.tuples("store"))
    assert stored == Counter(word for line in SENTENCES for word in line.split())


# -- Trident --------------------------------------------------------------------------------------


def test_the_fastest_and_the_slowest_of_each_ten() -> None:
    s = StreamBuilder()
    speeds = [(n, n * 7 % 20) for n in range(20)]
    vehicles = s.stream(speeds, fields=("id", "speed"))
    tens = vehicles.window(Global(), trigger=AfterCount(10), mode="discard")
    tens.min(by="speed").map(lambda r: r.value.speed).named("slowest").print()
    tens.max(by="speed").map(lambda r: r.value.speed).named("fastest").print()
    result = complete_topology(s.build())
    parts = [[speed for _, speed in part] for part in (speeds[:10], speeds[10:])]
    assert elements(result, "slowest") == [min(part) for part in parts]
    assert elements(result, "fastest") == [max(part) for part in parts]


class Counts(WindowedBolt):
    outputs = ("count",)

    def execute(self, window: Window) -> None:
        self.emit([len(window)])


def test_a_count_of_a_sliding_window_of_words() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", FromList(range(30)))
    builder.set_bolt("count", Counts().with_window(20, 10)).shuffle_grouping("words")
    result = complete_topology(builder.create_topology())
    assert result.tuples("count") == [[10], [20], [20]]
