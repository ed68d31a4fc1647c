"""conformance.md, "Groupings"."""

from __future__ import annotations

from collections import Counter as Tally

import numpy as np
import pytest

from tests.conformance.doubles import (
    Counter,
    Emits,
    FirstTasks,
    Identity,
    Numbers,
    TaskIndex,
    Words,
)
from topo import InvalidTopologyError, Topology, TopologyBuilder, UncaughtError
from topo.routing.groupers import PartialKey, Rows, least_used
from topo.testing import complete_topology


def test_shuffle_100_000_tuples_over_2_tasks(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(100_000))
    builder.set_bolt("2", TaskIndex(), parallelism=2).shuffle_grouping("1")
    result = complete_topology(builder.create_topology(), engine=engine)
    tally = Tally(index for index, _ in result.tuples("2"))
    assert tally == {0: 50_000, 1: 50_000}


def test_fields_on_bytes_group_by_content(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Words())
    builder.set_bolt("2", Counter(), parallelism=6).fields_grouping("1", "word")
    keys = [[bytes(bytearray(key))] for key in (b"a", b"b") for _ in range(24)]
    result = complete_topology(builder.create_topology(), mock_sources={"1": keys}, engine=engine)
    expected = [[key, count] for key in (b"a", b"b") for count in range(1, 25)]
    assert sorted(result.tuples("2")) == expected


def test_fields_without_fields_is_global(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(20))
    builder.set_bolt("2", TaskIndex(), parallelism=4).fields_grouping("1", [])
    result = complete_topology(builder.create_topology(), engine=engine)
    assert result.tuples("2") == [[0, number] for number in range(20)]


def test_custom_first_2_of_4_tasks(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(5))
    builder.set_bolt("2", TaskIndex(), parallelism=4).custom_grouping("1", FirstTasks(2))
    result = complete_topology(builder.create_topology(), engine=engine)
    assert sorted(result.tuples("2")) == [[task, n] for task in (0, 1) for n in range(5)]
    assert sorted(result.acked["1"]) == list(range(5))


@pytest.mark.parametrize("kind", [tuple, set, iter])
def test_custom_tasks_may_come_in_any_iterable(engine: str, kind: type) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(5))
    builder.set_bolt("2", TaskIndex(), parallelism=4).custom_grouping("1", FirstTasks(2, kind))
    result = complete_topology(builder.create_topology(), engine=engine)
    assert sorted(result.tuples("2")) == [[task, n] for task in (0, 1) for n in range(5)]


def no_tasks(chosen: list[int]) -> None:
    raise ZeroDivisionError("the user's own")


def test_custom_raises_which_is_an_uncaught_error(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(1))
    builder.set_bolt("2", TaskIndex(), parallelism=4).custom_grouping("1", FirstTasks(2, no_tasks))
    with pytest.raises(UncaughtError, match="grouping FirstTasks of '2', emitted") as stopped:
        complete_topology(builder.create_topology(), engine=engine)
    assert (stopped.value.component, stopped.value.task) == ("1", 1)


def test_partial_key_one_key_alternates_between_two_tasks() -> None:
    rows = [["key1"]] * 3
    grouper = PartialKey(range(11, 17), [0])
    (deal,) = grouper.deal(Rows(rows, [["key1"] * 3], []))
    chosen = np.zeros(3, int)
    for task, selector in deal.parts:
        chosen[selector] = task
    first, second, third = chosen.tolist()
    assert first != second
    assert third == first


def test_partial_key_spreads_one_key_over_two_tasks(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Words())
    builder.set_bolt("2", TaskIndex(), parallelism=6).partial_key_grouping("1", "word")
    result = complete_topology(
        builder.create_topology(), mock_sources={"1": [["key1"]] * 3}, engine=engine
    )
    assert sorted(Tally(index for index, _ in result.tuples("2")).values()) == [1, 2]


def test_partial_key_takes_the_least_used() -> None:
    loads = [0] * 10
    loads[9] = loads[8] = loads[7] = 1
    assert least_used([9, 8, 7, 6], loads) == 6


@pytest.mark.parametrize("kind", ["spout", "bolt"])
def test_parallelism_0_is_an_error_when_it_is_set(kind: str) -> None:
    component = Words() if kind == "spout" else Identity()
    with pytest.raises(InvalidTopologyError, match="parallelism is 0"):
        getattr(TopologyBuilder(), f"set_{kind}")("1", component, parallelism=0)


def direct(emits: Emits, stream: str, grouping: str) -> Topology:
    """Tasks: 1 is the spout, 2 emits, 3 and 4 read."""
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(3))
    builder.set_bolt("2", emits).shuffle_grouping("1")
    reads = builder.set_bolt("3", TaskIndex(), parallelism=2)
    getattr(reads, f"{grouping}_grouping")("2", stream=stream)
    return builder.create_topology()


def test_direct_emit_reaches_the_task_it_names(engine: str) -> None:
    topology = direct(Emits("emit_direct", "direct", task=4), "direct", "direct")
    result = complete_topology(topology, engine=engine)
    assert result.tuples("3") == [[1, 0], [1, 1], [1, 2]]
    assert sorted(result.acked["1"]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("stream", "grouping"), [("regular", "direct"), ("direct", "shuffle"), ("direct", "direct")]
)
def test_direct_stream_or_reader_refuses_a_regular_emit(
    engine: str, stream: str, grouping: str
) -> None:
    with pytest.raises(UncaughtError, match=r"regular emit .* which is a direct one; emit_direct"):
        complete_topology(direct(Emits("emit", stream), stream, grouping), engine=engine)


def test_direct_emit_to_a_task_with_a_regular_grouping_is_an_error(engine: str) -> None:
    topology = direct(Emits("emit_direct", "direct", task=3), "direct", "shuffle")
    with pytest.raises(UncaughtError, match=r"reads it by a regular grouping; read it by direct"):
        complete_topology(topology, engine=engine)


def test_direct_emit_on_a_regular_stream_is_an_error(engine: str) -> None:
    topology = direct(Emits("emit_direct", "regular", task=3), "regular", "shuffle")
    with pytest.raises(UncaughtError, match="direct emit on stream 'regular', which is a regular"):
        complete_topology(topology, engine=engine)


def test_direct_emit_to_what_is_no_task_is_an_error(engine: str) -> None:
    topology = direct(Emits("emit_direct", "direct", task=5), "direct", "direct")
    with pytest.raises(UncaughtError, match="direct emit to 5, which is no task; emit_direct"):
        complete_topology(topology, engine=engine)


def test_direct_emit_to_a_task_that_does_not_read_the_stream_sends_nothing(engine: str) -> None:
    topology = direct(Emits("emit_direct", "direct", task=1), "direct", "direct")
    result = complete_topology(topology, engine=engine)
    assert result.tuples("3") == []
    assert result.tuples("2", stream="direct") == [[0], [1], [2]]
    assert sorted(result.acked["1"]) == [0, 1, 2]
