"""conformance.md, "End to end": the cases that no clock decides."""

from __future__ import annotations

import pytest

from tests.conformance.doubles import (
    Counter,
    Identity,
    LastCounts,
    Numbers,
    SelfAnchored,
    Sink,
    TaskId,
    TaskIndex,
    Total,
    Unread,
    Words,
)
from topo import InvalidTopologyError, TopologyBuilder
from topo.testing import complete_topology

NAMES = [["nathan"], ["bob"], ["joey"], ["nathan"]]


def test_basic(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Words(), parallelism=3)
    builder.set_bolt("2", Counter(), parallelism=4).fields_grouping("1", ["word"])
    builder.set_bolt("3", Total()).global_grouping("1")
    builder.set_bolt("4", LastCounts()).global_grouping("2")
    result = complete_topology(builder.create_topology(), mock_sources={"1": NAMES}, engine=engine)
    assert sorted(result.tuples("2")) == [["bob", 1], ["joey", 1], ["nathan", 1], ["nathan", 2]]
    assert result.tuples("3") == [[1], [2], [3], [4]]
    assert result.tuples("4") == [[1], [2], [3], [4]]
    assert sorted(result.acked["1"]) == [0, 1, 2, 3]
    assert result.failed == {"1": []}


def test_tasks_over_executors(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Words())
    builder.set_bolt("2", TaskIndex(), parallelism=3).set_num_tasks(6).all_grouping("1")
    result = complete_topology(
        builder.create_topology(), mock_sources={"1": [["a"]]}, engine=engine
    )
    assert sorted(index for index, _ in result.tuples("2")) == [0, 1, 2, 3, 4, 5]


def unknown(component: bool, field: bool, stream: bool) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    bolt = builder.set_bolt("count", Counter())
    if component:
        bolt.fields_grouping("wrods", "word")
    if field:
        bolt.fields_grouping("words", "wrod")
    if stream:
        bolt.fields_grouping("words", "word", stream="defualt")
    return builder


@pytest.mark.parametrize("wrong", ["component", "field", "stream"])
def test_unknown_component_field_or_stream_is_one_problem_each(wrong: str) -> None:
    builder = unknown(**{name: name == wrong for name in ("component", "field", "stream")})
    with pytest.raises(InvalidTopologyError) as refused:
        builder.create_topology()
    (problem,) = refused.value.problems
    assert problem.code == f"unknown-{wrong}"
    assert "did you mean" in problem.hint


def test_unknown_component_field_and_stream_are_all_found_at_once() -> None:
    with pytest.raises(InvalidTopologyError) as refused:
        unknown(component=True, field=True, stream=True).create_topology()
    codes = [problem.code for problem in refused.value.problems]
    assert sorted(codes) == ["unknown-component", "unknown-field", "unknown-stream"]


@pytest.mark.parametrize("feeds", [1, 3])
def test_self_anchor(engine: str, feeds: int) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(feeds))
    builder.set_bolt("2", SelfAnchored()).shuffle_grouping("1")
    builder.set_bolt("3", Sink()).shuffle_grouping("2")
    result = complete_topology(builder.create_topology(), engine=engine)
    assert sorted(result.acked["1"]) == list(range(feeds))
    assert result.failed["1"] == []


def test_task_ids_start_at_1_over_sorted_component_names(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_bolt("2", TaskId(), parallelism=4).all_grouping("1")
    builder.set_spout("1", Words(), parallelism=3)
    result = complete_topology(
        builder.create_topology(), mock_sources={"1": [["a"]]}, engine=engine
    )
    assert sorted(result.tuples("2")) == [[4], [5], [6], [7]]


def test_no_subscriber_of_a_spout_is_acked_once(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(3))
    result = complete_topology(builder.create_topology(), engine=engine)
    assert sorted(result.acked["1"]) == [0, 1, 2]
    assert result.failed["1"] == []


def test_no_subscriber_of_a_bolts_anchored_emit(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(2))
    builder.set_bolt("2", Unread()).shuffle_grouping("1")
    result = complete_topology(builder.create_topology(), engine=engine)
    assert sorted(result.acked["1"]) == [0, 1]


def test_fifo_from_one_task_to_one_task(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(10_000))
    builder.set_bolt("2", Identity()).shuffle_grouping("1")
    result = complete_topology(builder.create_topology(), engine=engine)
    assert result.tuples("2") == [[number] for number in range(10_000)]
