"""conformance.md, "Bolts, state, tuples"."""

from __future__ import annotations

import pytest

from tests.conformance.doubles import (
    FailsAfterTwoEmits,
    KeyedState,
    Numbers,
    Raises,
    Sink,
    ToNamedStreams,
)
from topo import Bolt, Fields, KeyValueState, TopologyBuilder, UncaughtError
from topo.testing import complete_topology, make_tuple


def test_basic_bolt_returns_and_all_emits_are_anchored_also_to_named_streams(engine: str) -> None:
    class FailsOther(Bolt):
        def execute(self, tup: object) -> None:
            self.fail(tup, "other")  # type: ignore[arg-type]

    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(3))
    builder.set_bolt("2", ToNamedStreams()).shuffle_grouping("1")
    builder.set_bolt("3", Sink()).shuffle_grouping("2").shuffle_grouping("2", stream="other")
    result = complete_topology(builder.create_topology(), engine=engine)
    assert result.tuples("2") == [[0], [1], [2]]
    assert result.tuples("2", stream="other") == [[0], [-1], [-2]]
    assert sorted(result.acked["1"]) == [0, 1, 2]

    builder.set_bolt("4", FailsOther()).shuffle_grouping("2", stream="other")
    result = complete_topology(builder.create_topology(), engine=engine)
    assert sorted(result.failed["1"]) == [0, 1, 2]


def test_basic_bolt_raises_fail_tuple_after_two_emits_and_the_input_fails(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(1))
    builder.set_bolt("2", FailsAfterTwoEmits()).shuffle_grouping("1")
    builder.set_bolt("3", Sink()).shuffle_grouping("2")
    result = complete_topology(builder.create_topology(), engine=engine)
    assert result.tuples("2") == [[1], [2]]
    assert result.failed["1"] == [0]
    assert result.acked["1"] == []


def test_basic_bolt_raises_anything_else_which_is_an_uncaught_error(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(1))
    builder.set_bolt("2", Raises()).shuffle_grouping("1")
    with pytest.raises(UncaughtError, match="the user's own") as stopped:
        complete_topology(builder.create_topology(), engine=engine)
    assert (stopped.value.component, stopped.value.task) == ("2", 2)


def test_keyed_state_in_a_running_bolt(engine: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Numbers(1))
    builder.set_bolt("2", KeyedState()).shuffle_grouping("1")
    result = complete_topology(builder.create_topology(), engine=engine)
    assert result.tuples("2") == [
        ["get a", 1],
        ["get b", 2],
        ["get c", None],
        ["delete a", 1],
        ["get a", None],
    ]


def test_keyed_state_by_itself() -> None:
    state: KeyValueState[str, int] = KeyValueState()
    state.put("a", 1)
    state.put("b", 2)
    assert [state.get("a"), state.get("b"), state.get("c")] == [1, 2, None]
    assert state.delete("a") == 1
    assert state.get("a") is None


def test_test_tuples_have_defaults() -> None:
    tup = make_tuple(["james", "bond"])
    assert tup.values == ["james", "bond"]
    assert tup.source_stream == "default"
    assert tup.source_component == "component"
    assert tup.fields == Fields("field1", "field2")


def test_test_tuples_echo_what_they_are_given() -> None:
    tup = make_tuple(["james", "bond"], stream="agents", component="mi6", fields=["first", "last"])
    assert (tup.source_stream, tup.source_component) == ("agents", "mi6")
    assert tup.fields == Fields("first", "last")
    assert tup.first == "james"


def test_fields_refuse_duplicates() -> None:
    with pytest.raises(ValueError, match="duplicate field 'a'"):
        Fields("a", "b", "a")


def test_fields_select_in_the_order_asked_for() -> None:
    tup = make_tuple({"foo": "a", "bar": "b"})
    assert tup.select("bar") == ["b"]
    assert tup.select(Fields("bar", "foo")) == ["b", "a"]
    assert tup.select(["bar", "foo"]) == ["b", "a"]
    with pytest.raises(KeyError, match="no field 'baz'"):
        tup.select("baz")
