"""FromList: what an item is, which task emits it, and what failures and restarts do to it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.doubles import Identity
from topo import (
    BasicBolt,
    ComponentError,
    FailTuple,
    Fields,
    FromList,
    Topology,
    TopologyBuilder,
    Tuple,
)
from topo.errors import StreamError
from topo.streams import StreamBuilder
from topo.testing import TestCluster, complete_topology, run_spout


class Refuses(BasicBolt):
    """Fails each item of a set so many times, and then passes it on."""

    outputs = ("x",)

    def __init__(self, items: set[Any], times: int) -> None:
        self.left = dict.fromkeys(items, times)

    def execute(self, tup: Tuple) -> None:
        if self.left.get(tup[0], 0):
            self.left[tup[0]] -= 1
            raise FailTuple("not yet")
        self.emit([tup[0]])


def numbers() -> Iterator[int]:
    yield from range(10)


def reading(spout: FromList, bolt: BasicBolt | None = None, tasks: int = 1) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("list", spout, tasks)
    builder.set_bolt("read", bolt or Identity()).shuffle_grouping("list")
    return builder.create_topology()


# -- what an item is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "fields", "values"),
    [
        ([1, 2], None, [[1], [2]]),
        ([1, 2], "n", [[1], [2]]),
        ([("a", 1), ["b", 2]], None, [[("a", 1)], [["b", 2]]]),
        ([("a", 1), ["b", 2]], ("word", "count"), [["a", 1], ["b", 2]]),
        ([{"count": 1, "word": "a"}], ("word", "count"), [["a", 1]]),
        ([{"word": "a"}], None, [[{"word": "a"}]]),
        ([[[1, 2]]], "pair", [[[1, 2]]]),
        (range(3), "n", [[0], [1], [2]]),
        (iter("ab"), None, [["a"], ["b"]]),
        (lambda: ["a", "b"], "word", [["a"], ["b"]]),
        (numbers, "n", [[n] for n in range(10)]),
        ([], "n", []),
        ([None], "n", [[None]]),
    ],
)
def test_items_become_tuples(items: Any, fields: Any, values: list[list[Any]]) -> None:
    spout = FromList(items, fields)
    assert spout.outputs == tuple(Fields("value" if fields is None else fields))
    result = complete_topology(reading(spout))
    assert result.tuples("list") == values
    assert result.acked["list"] == list(range(len(values)))


@pytest.mark.parametrize(
    ("items", "fields", "words"),
    [
        ([("a", 1), ("b",)], ("word", "count"), r"item 1, \('b',\), has 1 value; the fields are"),
        ([("a", 1)], "word", r"item 0, \('a', 1\), has 2 values; the fields are 'word'"),
        ([{"wrd": "a"}], "word", "has the keys 'wrd'; the fields are 'word'"),
        ("abc", "letter", "takes a list.*got 'abc'"),
        (7, "n", "takes a list.*got 7"),
        ({"a": 1}, "n", "takes a list"),
        (itertools.count(), "n", "more than 1,000,000 items"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(items: Any, fields: Any, words: str) -> None:
    with pytest.raises(ComponentError, match=words):
        FromList(items, fields)


@pytest.mark.parametrize("attempts", [0, -1, 1.5, True, "3"])
def test_attempts_are_a_whole_number(attempts: Any) -> None:
    with pytest.raises(ComponentError, match="attempts"):
        FromList([1], attempts=attempts)


def test_a_range_is_neither_copied_nor_looked_through() -> None:
    assert run_spout(FromList(range(10**15), "n"), calls=2).emitted == [[0], [1]]
    with pytest.raises(ComponentError, match="item 0, 0, has 1 value"):
        FromList(range(10**15), ("n", "square"))


def test_a_function_that_returns_no_iterable_is_named() -> None:
    with pytest.raises(ComponentError, match="must return an iterable; it returned 7"):
        run_spout(FromList(lambda: 7))  # type: ignore[arg-type, return-value]


def test_the_list_may_change_after_it_was_given() -> None:
    items = [1, 2]
    spout = FromList(items, "n")
    items.append(3)
    assert complete_topology(reading(spout)).tuples("list") == [[1], [2]]


# -- tasks, failures, restarts ---------------------------------------------------------------------


@pytest.mark.parametrize("items", [list(range(10)), numbers])
@pytest.mark.parametrize("tasks", [1, 3, 12])
def test_each_item_is_emitted_by_one_task(items: Any, tasks: int) -> None:
    result = complete_topology(reading(FromList(items, "n"), tasks=tasks))
    assert sorted(result.tuples("list")) == [[n] for n in range(10)]
    assert sorted(result.acked["list"]) == list(range(10))


@pytest.mark.parametrize("items", [list(range(10)), numbers])
def test_what_fails_comes_again_until_it_is_processed(items: Any) -> None:
    result = complete_topology(reading(FromList(items, "n"), Refuses({3, 9}, times=5)))
    assert sorted(result.tuples("read")) == [[n] for n in range(10)]
    assert Counter(result.failed["list"]) == {3: 5, 9: 5}


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_fails_after_the_last_item_comes_again_though_the_spout_was_exhausted(
    is_stopped: bool,
) -> None:
    """In between there is a batch that hears of the failure, and asks no spout."""
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", reading(FromList([1]), Refuses({1}, 3)))
        for _ in range(10):
            run.step(3)
            if is_stopped and run.status == "ACTIVE":
                run.deactivate()
                run.settle()
                run.activate()
        assert run.status == "COMPLETED"
        assert run.tuples("read") == [[1]]
        assert run.acked == {"list": [0]}
        assert run.failed == {"list": [0, 0, 0]}


@pytest.mark.parametrize("items", [list(range(10)), numbers])
def test_an_item_is_given_up_after_so_many_attempts(items: Any) -> None:
    result = complete_topology(reading(FromList(items, "n", attempts=2), Refuses({3, 4}, times=2)))
    assert sorted(result.tuples("read")) == [[n] for n in range(10) if n not in (3, 4)]
    assert Counter(result.failed["list"]) == {3: 2, 4: 2}


@pytest.mark.parametrize("items", [list(range(10)), numbers])
@pytest.mark.parametrize("tasks", [1, 2])
def test_it_resumes_at_its_position(items: Any, tasks: int) -> None:
    conf = {"topology.max.spout.pending": 1}
    with TestCluster() as cluster:
        topology = reading(FromList(items, "n"), Refuses({2, 3}, times=1), tasks)
        run = cluster.submit_topology("list", topology, conf)
        for _ in range(4):
            run.step()
            run.restart()
        run.settle()
        assert sorted(run.tuples("read")) == [[n] for n in range(10)]
        assert run.status == "COMPLETED"


def test_without_ackers_nothing_is_kept() -> None:
    with TestCluster() as cluster:
        topology = reading(FromList(numbers, "n"))
        run = cluster.submit_topology("list", topology, {"topology.acker.executors": 0})
        run.settle()
        assert [n for (n,) in run.tuples("read")] == list(range(10))
        assert run.status == "COMPLETED"


def test_a_long_list_is_not_saved_with_every_batch() -> None:
    assert {"items"} <= set(FromList([]).transient)


# -- streams ---------------------------------------------------------------------------------------


def test_a_stream_of_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    s = StreamBuilder()
    s.stream(["the cow", "the moon"]).flat_map(str.split).key_by().count().print()
    complete_topology(s.build())
    assert capsys.readouterr().out.splitlines() == [
        "('the', 1)",
        "('cow', 1)",
        "('the', 2)",
        "('moon', 1)",
    ]


def test_a_stream_of_rows_has_their_fields(capsys: pytest.CaptureFixture[str]) -> None:
    s = StreamBuilder()
    rows = s.stream([("ann", 3), ("bob", 4)], fields=("user", "amount"))
    rows.map(lambda row: (row.amount, row.user)).print()
    complete_topology(s.build())
    assert capsys.readouterr().out.splitlines() == ["(3, 'ann')", "(4, 'bob')"]


@pytest.mark.parametrize("source", [7, "abc", None])
def test_a_stream_of_something_else_is_refused(source: Any) -> None:
    with pytest.raises(StreamError, match="takes a spout, a list or a function"):
        StreamBuilder().stream(source)


def test_the_fields_of_a_spout_are_its_own() -> None:
    with pytest.raises(StreamError, match="FromList declares its own"):
        StreamBuilder().stream(FromList([1]), fields="n")
