"""The operators of `topo bench streams`: programs beside bolts that are written by hand.

    chain        five stateless operators, beside five bolts that read each other by
                 local_or_shuffle_grouping
    word-count   sentences, words, a count by word, beside the two bolts of the guide
    combiner     counts by key in windows, beside the same windows without partial aggregation:
                 a thousand skewed keys, or all keys distinct

Both sides run in one slot on one core, one after the other, and must give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from benchmarks.model import BenchOptions, Measurement
from benchmarks.slots import ChunkSpout, Columns, run_to_end
from benchmarks.words import sentences
from topo import (
    BasicBolt,
    EventTime,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    bolt,
)
from topo.streams import StreamBuilder

_BATCH = 40_000
_CHUNK = 4_000
_ROWS_A_SECOND = 400_000  # a guess that turns --seconds into an amount of work
_KEYS = 1000
Result = dict[Any, int]


def rows(fields: tuple[str, ...], make: Callable[[], list[list[Any]]]) -> ChunkSpout:
    """Return a spout of prepared columns."""
    return ChunkSpout(fields, partial(_chunks, make))


def _chunks(make: Callable[[], list[list[Any]]]) -> Iterator[Columns]:
    columns = make()
    for start in range(0, len(columns[0]), _CHUNK):
        yield tuple(column[start : start + _CHUNK] for column in columns)


class LastValues(BasicBolt):
    """Keeps the last value of each key, and adds plain values up."""

    transient = ("found",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.found: Result = {}

    def execute(self, tup: Tuple) -> None:
        if len(tup) == 1:
            self.found[""] = self.found.get("", 0) + tup[0]
        else:
            self.found[tup[0]] = tup[len(tup) - 1]


# -- a chain ---------------------------------------------------------------------------------------


def numbers(total: int) -> list[list[Any]]:
    return [list(range(total))]


def chain(total: int) -> Topology:
    s = StreamBuilder()
    (
        s.stream(rows(("n",), partial(numbers, total)))
        .map(lambda n: n + 1)
        .filter(lambda n: n % 3)
        .map(lambda n: n * 2)
        .filter(lambda n: n % 10)
        .map(lambda n: n - 1)
        .to(LastValues(), name="kept")
    )
    return s.build()


@bolt(outputs=("n",))
def plus_one(tup: Tuple) -> Iterator[list[Any]]:
    yield [tup.n + 1]


@bolt(outputs=("n",))
def no_thirds(tup: Tuple) -> Iterator[list[Any]]:
    if tup.n % 3:
        yield [tup.n]


@bolt(outputs=("n",))
def twice(tup: Tuple) -> Iterator[list[Any]]:
    yield [tup.n * 2]


@bolt(outputs=("n",))
def no_tenths(tup: Tuple) -> Iterator[list[Any]]:
    if tup.n % 10:
        yield [tup.n]


@bolt(outputs=("n",))
def minus_one(tup: Tuple) -> Iterator[list[Any]]:
    yield [tup.n - 1]


def chain_by_hand(total: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("before", rows(("n",), partial(numbers, total)))
    before = "before"
    for one in (plus_one, no_thirds, twice, no_tenths, minus_one):
        name = one.function.__name__
        builder.set_bolt(name, one).local_or_shuffle_grouping(before)
        before = name
    builder.set_bolt("kept", LastValues()).shuffle_grouping(before)
    return builder.create_topology()


# -- a word count ----------------------------------------------------------------------------------


def some_sentences(total: int) -> list[list[Any]]:
    given = sentences()
    return [[given[n % len(given)] for n in range(total // 5)]]


def word_count(total: int) -> Topology:
    s = StreamBuilder()
    words = s.stream(rows(("sentence",), partial(some_sentences, total))).flat_map(str.split)
    words.key_by().count().to(LastValues(), name="kept")
    return s.build()


@bolt(outputs=("word",))
def split(tup: Tuple) -> Iterator[list[Any]]:
    for word in tup.sentence.split():
        yield [word]


class Count(StatefulBasicBolt):
    outputs = ("word", "count")

    def execute(self, tup: Tuple) -> None:
        count = self.state[tup.word] = self.state.get(tup.word, 0) + 1
        self.emit([tup.word, count])


def word_count_by_hand(total: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sentences", rows(("sentence",), partial(some_sentences, total)))
    builder.set_bolt("split", split).local_or_shuffle_grouping("sentences")
    builder.set_bolt("count", Count()).fields_grouping("split", ["word"])
    builder.set_bolt("kept", LastValues()).shuffle_grouping("count")
    return builder.create_topology()


# -- partial aggregation ---------------------------------------------------------------------------


def keyed(total: int, *, distinct: bool) -> list[list[Any]]:
    if distinct:
        return [list(range(total)), [n // 100 for n in range(total)]]
    random = Random(7)
    keys = [int(_KEYS * random.random() ** 3) for _ in range(total)]
    return [keys, [n // 100 for n in range(total)]]


def windowed(total: int, *, distinct: bool) -> Topology:
    s = StreamBuilder()
    timed = s.stream(
        rows(("k", "ts"), partial(keyed, total, distinct=distinct)), time=EventTime("ts", idle=None)
    )
    counted = timed.key_by("k").window(Tumbling(timedelta(seconds=1))).count()
    counted.map(lambda result: ((result.key, result.start), result.value)).pairs().to(
        LastValues(), name="kept"
    )
    return s.build()


def windowed_whole(total: int, *, distinct: bool) -> Topology:
    with patch("topo.streams.compile.compiler.partial_of_window", lambda combiner, options: False):
        return windowed(total, distinct=distinct)


CASES: dict[str, tuple[Callable[[int], Topology], Callable[[int], Topology]]] = {
    "chain": (chain, chain_by_hand),
    "word-count": (word_count, word_count_by_hand),
    "combiner, skewed keys": (
        partial(windowed, distinct=False),
        partial(windowed_whole, distinct=False),
    ),
    "combiner, distinct keys": (
        partial(windowed, distinct=True),
        partial(windowed_whole, distinct=True),
    ),
}


def measure(options: BenchOptions) -> list[Measurement]:
    return [_measure(options, case) for case in CASES]


def _measure(options: BenchOptions, case: str) -> Measurement:
    total = max(100_000, int(options.seconds * _ROWS_A_SECOND / 4))
    rates: list[float] = []
    by_hand: list[float] = []
    right = True
    for repeat in range(options.repeat):
        options.progress(f"streams {case}: {repeat + 1} of {options.repeat}")
        found = []
        for make, into in zip(CASES[case], (rates, by_hand), strict=True):
            host, layout, seconds = run_to_end(make(total), _BATCH)
            into.append(total / seconds)
            kept = host.tasks[layout.tasks_of("kept")[0]].component
            assert isinstance(kept, LastValues)
            found.append(kept.found)
        right = right and found[0] == found[1] and bool(found[0])
    return Measurement.of(
        "streams", {"case": case}, "rows", rates, verified=right, loop_rates=by_hand
    )
