"""`laws_of_batches` finds results that depend on how an input comes, and says which."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from topo import (
    AtWatermark,
    BasicBolt,
    Bolt,
    Count,
    EachBatch,
    EventTime,
    RunError,
    Spout,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
)
from topo.streams import StreamBuilder
from topo.testing import complete_topology, elements, laws_of_batches

WORDS = {"words": [[word] for word in ("a", "b", "a", "a")]}


class Words(Spout):
    outputs = ("word",)

    def next_tuple(self) -> None:
        raise AssertionError("the rows of the test stand for it")


class Counted(StatefulBasicBolt):
    outputs = ("word", "n")

    def execute(self, tup: Tuple) -> None:
        self.state[tup.word] = self.state.get(tup.word, 0) + 1
        self.emit([tup.word, self.state[tup.word]])


class CountedInMemory(BasicBolt):
    outputs = ("word", "n")

    transient = ("counts",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        self.counts[tup.word] = self.counts.get(tup.word, 0) + 1
        self.emit([tup.word, self.counts[tup.word]])


class Batches(Bolt):
    outputs = ("n",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.count = 0

    def execute(self, tup: Tuple) -> None:
        self.count += 1
        self.collector.ack(tup)

    def pre_commit(self, batch_id: int) -> None:
        self.collector.emit([self.count])
        self.count = 0


def topology(bolt: Any, tasks: int = 1, grouping: str = "fields") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    declarer = builder.set_bolt("out", bolt, tasks)
    if grouping == "fields":
        declarer.fields_grouping("words", ["word"])
    else:
        declarer.shuffle_grouping("words")
    return builder.create_topology()


def test_the_one_result_is_returned() -> None:
    found = laws_of_batches(lambda tasks: topology(Counted(), tasks), WORDS)
    assert sorted(found["out"]) == [["a", 1], ["a", 2], ["a", 3], ["b", 1]]


def test_what_depends_on_batches_is_told() -> None:
    with pytest.raises(AssertionError, match=r"(?s)results of 'out' depend .* a batch ends behind"):
        laws_of_batches(topology(Batches()), WORDS)


def test_what_a_restart_loses_is_told() -> None:
    with pytest.raises(AssertionError, match="with a restart after each batch") as raised:
        laws_of_batches(topology(CountedInMemory()), WORDS)
    assert "it emits\n  [" in str(raised.value)


def test_what_depends_on_the_number_of_tasks_is_told() -> None:
    def dealt(tasks: int) -> Topology:
        return topology(Counted(), tasks, grouping="shuffle")

    with pytest.raises(AssertionError, match="with 2 tasks"):
        laws_of_batches(dealt, WORDS)
    laws_of_batches(dealt(1), WORDS)  # one task is no choice


def reports(tasks: int, *, early: bool) -> Topology:
    s = StreamBuilder()
    events = s.stream([], fields=("k", "v", "ts"), time=EventTime("ts", lag=10), name="events")
    trigger = AtWatermark(early=EachBatch()) if early else None
    windows = events.repartition(tasks).key_by("k").window(Tumbling(10), trigger=trigger)
    windows.aggregate(n=Count()).named("counts").print()
    return s.build()


EVENTS = {"events": [("a", nan, 1), ("b", None, 12), ("a", 1, 8), ("a", 2, 30)]}


def test_a_program_of_streams_goes_on_or_ends() -> None:
    def program(tasks: int) -> Topology:
        return reports(tasks, early=False)

    live = laws_of_batches(program, EVENTS, results="counts", tasks=(1, 2))["counts"]
    assert sorted(live) == [["a", 0, 10, 2], ["b", 10, 20, 1]]
    ended = laws_of_batches(program, EVENTS, results=["counts"], tasks=[1], to_end=True)["counts"]
    assert sorted(ended) == sorted([*live, ["a", 30, 40, 1]])


def test_early_reports_depend_on_batches_as_they_say() -> None:
    with pytest.raises(AssertionError, match="'early'"):
        laws_of_batches(reports(1, early=True), EVENTS, results="counts")


def test_two_spouts_take_turns() -> None:
    s = StreamBuilder()
    streams = [
        s.stream([], fields=("k", "ts"), time=EventTime("ts", idle=None), name=name)
        for name in ("ones", "others")
    ]
    one, other = (stream.key_by("k") for stream in streams)
    one.join(other, within=5).named("both").print()
    rows = {"ones": [("a", 1), ("a", 30)], "others": [("a", 3), ("b", 4), ("a", 40)]}
    assert len(laws_of_batches(s.build(), rows, results="both")["both"]) == 1


def test_of_many_rows_some_cuts_are_tried() -> None:
    rows = {"words": [["a"]] * 40}
    found = laws_of_batches(topology(Counted()), rows, most=4)
    assert len(found["out"]) == 40


@pytest.mark.parametrize(
    ("rows", "results", "words"),
    [
        ({}, None, "rows has no spout"),
        ({"out": []}, None, "'out' is a bolt"),
        (WORDS, "aut", "no component 'aut'"),
    ],
)
def test_mistakes(rows: Any, results: Any, words: str) -> None:
    with pytest.raises(Exception, match=words):
        laws_of_batches(topology(Counted()), rows, results=results)


def test_a_program_that_emits_nothing_has_to_name_its_results() -> None:
    s = StreamBuilder()
    s.stream([1], name="numbers").print()
    with pytest.raises(RunError, match="name the component whose tuples are compared"):
        laws_of_batches(s.build(), {"numbers": [[1]]})


def test_elements_are_what_the_next_operator_gets() -> None:
    s = StreamBuilder()
    events = s.stream(
        [("a", 1, 1), ("a", 2, 30)], fields=("k", "v", "ts"), time=EventTime("ts"), name="events"
    )
    keyed = events.key_by("k").map_values(lambda row: row.v)
    keyed.named("pairs").print()
    events.map(lambda row: row.v).repartition(1).named("values").print()
    keyed.window(Tumbling(10)).count().named("counts").print()
    keyed.window(Tumbling(10)).max().filter(bool).named("highest").print()
    keyed.window(Tumbling(10)).aggregate(n=Count()).named("several").print()
    run = complete_topology(s.build())
    assert [row.v for row in elements(run, "events")] == [1, 2]
    assert elements(run, "pairs") == [("a", 1), ("a", 2)]
    assert elements(run, "values") == [1, 2]
    first, second = ((r.key, r.start, r.value) for r in elements(run, "counts"))
    assert (first, second) == (("a", 0, 1), ("a", 30, 1))
    assert [(r.start, r.value) for r in elements(run, "highest")] == [(0, 1), (30, 2)]
    assert [(r.start, r.n) for r in elements(run, "several")] == [(0, 1), (30, 1)]
