"""Wiring: every structural problem has a code, a place and a hint, and all come at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.doubles import Agg, Counter, FirstTasks, Identity, Sink, Words
from topo import (
    Bolt,
    ComponentError,
    ConfigError,
    CustomStreamGrouping,
    Fields,
    InvalidTopologyError,
    Problem,
    Spout,
    TopologyBuilder,
    Tuple,
    UnpicklableComponentError,
)


def wired() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    return builder


def problems_of(builder: TopologyBuilder) -> list[Problem]:
    with pytest.raises(InvalidTopologyError) as refused:
        builder.create_topology()
    return refused.value.problems


def unknown_component(builder: TopologyBuilder) -> None:
    builder.set_bolt("count", Counter()).shuffle_grouping("wrods")


def unknown_component_like_none(builder: TopologyBuilder) -> None:
    builder.set_bolt("count", Counter()).shuffle_grouping("zzz")


def unknown_stream(builder: TopologyBuilder) -> None:
    builder.set_bolt("count", Counter()).shuffle_grouping("words", stream="defualt")


def unknown_field(builder: TopologyBuilder) -> None:
    builder.set_bolt("count", Counter()).fields_grouping("words", ["wrd"])


def unknown_partial_key(builder: TopologyBuilder) -> None:
    builder.set_bolt("count", Counter()).partial_key_grouping("words", "wrd")


def no_component(builder: TopologyBuilder) -> None:
    builder.set_bolt("count", Counter()).shuffle_grouping(None)  # type: ignore[arg-type]


def storms_order(builder: TopologyBuilder) -> None:
    reads = builder.set_bolt("count", Counter())
    reads.fields_grouping("words", "default", Fields("word"))  # type: ignore[arg-type]


def a_list_for_a_stream(builder: TopologyBuilder) -> None:
    builder.set_bolt("count", Counter()).shuffle_grouping("words", ["default"])  # type: ignore[arg-type]


def reads_nothing(builder: TopologyBuilder) -> None:
    builder.set_bolt("count", Counter())


def same_input_twice(builder: TopologyBuilder) -> None:
    reads = builder.set_bolt("count", Counter()).shuffle_grouping("words")
    reads.fields_grouping("words", "word")


def same_name_twice(builder: TopologyBuilder) -> None:
    builder.set_bolt("words", Counter()).shuffle_grouping("words")


def reserved_name(builder: TopologyBuilder) -> None:
    builder.set_bolt("__count", Counter()).shuffle_grouping("words")


def reserved_stream(builder: TopologyBuilder) -> None:
    bolt = Identity()
    bolt.outputs = {"__out": ("a",)}  # type: ignore[assignment]
    builder.set_bolt("count", bolt).shuffle_grouping("words")


def cycle(builder: TopologyBuilder) -> None:
    builder.set_bolt("a", Identity()).shuffle_grouping("words").shuffle_grouping("c")
    builder.set_bolt("b", Identity()).shuffle_grouping("a")
    builder.set_bolt("c", Identity()).shuffle_grouping("b")


def reads_itself(builder: TopologyBuilder) -> None:
    builder.set_bolt("a", Identity()).shuffle_grouping("words").shuffle_grouping("a")


def duplicate_output(builder: TopologyBuilder) -> None:
    bolt = Identity()
    bolt.outputs = ("a", "a")  # type: ignore[assignment]
    builder.set_bolt("count", bolt).shuffle_grouping("words")


def outputs_of_a_wrong_type(builder: TopologyBuilder) -> None:
    bolt = Identity()
    bolt.outputs = 3  # type: ignore[assignment]
    builder.set_bolt("count", bolt).shuffle_grouping("words")


def duplicate_grouping_field(builder: TopologyBuilder) -> None:
    builder.set_bolt("count", Counter()).fields_grouping("words", ["word", "word"])


def wrong_own_setting(builder: TopologyBuilder) -> None:
    bolt = Identity()
    bolt.get_component_configuration = lambda: {"tick.tuple.freq.secs": 1}  # type: ignore[method-assign]
    builder.set_bolt("count", bolt).shuffle_grouping("words")


class Unpicklable(CustomStreamGrouping):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def unpicklable_grouping(builder: TopologyBuilder) -> None:
    builder.set_bolt("count", Counter()).custom_grouping("words", Unpicklable())


@pytest.mark.parametrize(
    ("wrong", "code", "place", "message", "hint"),
    [
        (
            unknown_component,
            "unknown-component",
            "bolt 'count'",
            "bolt 'count' reads 'wrods', which the topology does not have",
            "did you mean 'words'?",
        ),
        (
            unknown_component_like_none,
            "unknown-component",
            "bolt 'count'",
            "bolt 'count' reads 'zzz', which the topology does not have",
            "it has 'words', 'count'",
        ),
        (
            unknown_stream,
            "unknown-stream",
            "bolt 'count'",
            "bolt 'count' reads stream 'defualt' of 'words', which declares 'default'",
            "did you mean 'default'?",
        ),
        (
            unknown_field,
            "unknown-field",
            "bolt 'count'",
            "bolt 'count' groups 'words' stream 'default' by field 'wrd', which has 'word'",
            "did you mean 'word'?",
        ),
        (unknown_partial_key, "unknown-field", "bolt 'count'", "field 'wrd'", "'word'"),
        (
            no_component,
            "unknown-component",
            "bolt 'count'",
            "bolt 'count' reads component None; a component's name is a str",
            "the component comes first",
        ),
        (
            storms_order,
            "unknown-stream",
            "bolt 'count'",
            "bolt 'count' reads stream Fields('word'); a stream's name is a str",
            "then fields or a grouping, then stream=...",
        ),
        (a_list_for_a_stream, "unknown-stream", "bolt 'count'", "stream ['default']", "stream=..."),
        (reads_nothing, "no-input", "bolt 'count'", "bolt 'count' reads nothing", "shuffle_group"),
        (
            same_input_twice,
            "duplicate-input",
            "bolt 'count'",
            "bolt 'count' reads stream 'default' of 'words' twice",
            "keep one",
        ),
        (same_name_twice, "duplicate-name", "test_builder.py", "bolt 'words' is set twice", "name"),
        (reserved_name, "reserved-name", "test_builder.py", "begin with '__'", "another name"),
        (reserved_stream, "reserved-name", "bolt 'count'", "stream '__out'", "another name"),
        (cycle, "cycle", "bolt ", "cycle: ", "bolt 'a': .shuffle_grouping('c', loop=True)"),
        (reads_itself, "cycle", "bolt 'a'", "cycle: a -> a", "loop: true"),
        (duplicate_output, "outputs", "bolt 'count'", "duplicate field 'a'", "a name of its own"),
        (outputs_of_a_wrong_type, "outputs", "bolt 'count'", "TypeError", "tuple of field names"),
        (duplicate_grouping_field, "fields", "bolt 'count'", "duplicate field 'word'", ""),
        (
            wrong_own_setting,
            "config",
            "bolt 'count'",
            "no key 'tick.tuple.freq.secs'",
            "topology.tick.tuple.freq.secs",
        ),
        (unpicklable_grouping, "unpicklable-grouping", "bolt 'count'", "Unpicklable", "prepare"),
    ],
)
def test_a_problem_has_its_code_place_and_hint(
    wrong: Callable[[TopologyBuilder], None], code: str, place: str, message: str, hint: str
) -> None:
    builder = wired()
    wrong(builder)
    (problem,) = problems_of(builder)
    assert problem.code == code
    assert place in problem.where
    assert message in problem.message
    assert hint in problem.hint


def test_a_cycle_names_its_components_in_the_datas_direction() -> None:
    builder = wired()
    cycle(builder)
    (problem,) = problems_of(builder)
    loops = {"a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"}
    assert any(f"cycle: {loop}" in problem.message for loop in loops)


def test_a_topology_needs_a_spout() -> None:
    assert [problem.code for problem in problems_of(TopologyBuilder())] == ["no-spout"]


def test_all_problems_come_at_once() -> None:
    builder = wired()
    unknown = builder.set_bolt("a", Counter()).fields_grouping("words", "wrd")
    unknown.shuffle_grouping("nowhere").shuffle_grouping("words", stream="odd")
    builder.set_bolt("b", Identity()).shuffle_grouping("b")
    builder.set_bolt("c", Sink())
    builder.set_spout("__d", Words())
    with pytest.raises(InvalidTopologyError, match="the topology has 6 problems:") as refused:
        builder.create_topology()
    assert sorted(problem.code for problem in refused.value.problems) == [
        "cycle",
        "no-input",
        "reserved-name",
        "unknown-component",
        "unknown-field",
        "unknown-stream",
    ]
    assert all(str(problem) in str(refused.value) for problem in refused.value.problems)


def test_a_class_that_needs_no_arguments_may_be_given() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", Words)
    builder.set_bolt("count", Counter).shuffle_grouping("words")
    assert builder.create_topology().component("count").class_name == "Counter"
    with pytest.raises(ComponentError, match=r"Agg cannot be made without arguments.*give an inst"):
        builder.set_bolt("agg", Agg)


@pytest.mark.parametrize(
    ("method", "given", "hint"),
    [
        ("set_bolt", Words(), "use set_spout"),
        ("set_spout", Counter, "use set_bolt"),
        ("set_bolt", len, "a function becomes a bolt with @bolt"),
        ("set_bolt", None, "must be a Bolt or BasicBolt; got None"),
    ],
)
def test_what_is_no_component_is_refused_at_once(method: str, given: Any, hint: str) -> None:
    with pytest.raises(ComponentError, match="'x' must be a") as refused:
        getattr(TopologyBuilder(), method)("x", given)
    assert hint in str(refused.value)
    assert "test_builder.py" in refused.value.at


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, True, "2"])
def test_parallelism_is_a_whole_number_from_1(parallelism: Any) -> None:
    with pytest.raises(InvalidTopologyError, match="it must be a whole number of 1 or more"):
        TopologyBuilder().set_spout("words", Words(), parallelism)


def test_a_name_is_a_str() -> None:
    with pytest.raises(ComponentError, match="a component's name is a str; got 1"):
        TopologyBuilder().set_spout(1, Words())  # type: ignore[arg-type]


def test_a_declarer_chains_and_sets_the_components_settings() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", Words(), parallelism=2).set_max_spout_pending(5).set_debug(
        True
    ).set_memory_load(512).set_cpu_load(50)
    builder.set_bolt("count", Counter()).shuffle_grouping("words").set_num_tasks(
        3
    ).set_max_task_parallelism(8).add_configuration("mine", [1]).add_configurations({"own": 2})
    topology = builder.create_topology()
    assert topology.component("words").conf == {
        "topology.max.spout.pending": 5,
        "topology.debug": True,
        "topology.component.resources.onheap.memory.mb": 512,
        "topology.component.resources.offheap.memory.mb": 0.0,
        "topology.component.cpu.pcore.percent": 50,
    }
    assert topology.component("count").conf == {
        "topology.tasks": 3,
        "topology.max.task.parallelism": 8,
        "mine": [1],
        "own": 2,
    }


def test_a_declarer_refuses_a_wrong_setting_at_its_line() -> None:
    with pytest.raises(ConfigError) as refused:
        wired().set_bolt("count", Counter()).set_num_tasks(0)
    assert "topology.tasks must be a whole number of at least 1" in str(refused.value)
    assert "test_builder.py" in refused.value.at


def test_storms_meaningless_setting_of_a_component_is_a_warning_of_the_topology() -> None:
    builder = wired()
    bolt = builder.set_bolt("count", Counter()).shuffle_grouping("words")
    bolt.add_configuration("topology.priority", 3)
    (warning,) = builder.create_topology().warnings
    assert "topology.priority is Storm's and means nothing on Spark" in warning


class Sleeper(Spout):
    outputs = ("word",)

    def next_tuple(self) -> None:
        time.sleep(0.1)


class Sleepless(Spout):
    outputs = ("word",)

    def next_tuple(self) -> None:
        self.sleep()

    def sleep(self) -> None:
        """Is no pause of the thread."""


def test_a_spout_that_sleeps_is_a_warning() -> None:
    builder = TopologyBuilder()
    builder.set_spout("a", Sleeper())
    builder.set_spout("b", Sleepless())
    (warning,) = builder.create_topology().warnings
    assert warning.startswith("spout 'a': next_tuple sleeps")
    assert "test_builder.py:" in warning


def test_a_field_with_a_tuples_own_name_is_a_warning() -> None:
    builder = wired()
    bolt = Identity()
    bolt.outputs = ("values", "count")  # type: ignore[assignment]
    builder.set_bolt("a", bolt).shuffle_grouping("words")
    (warning,) = builder.create_topology().warnings
    assert warning == (
        "bolt 'a': field 'values' of stream 'default' is read by tup['values'] only; "
        "tup.values is a tuple's own"
    )


def test_custom_grouping_takes_an_instance() -> None:
    with pytest.raises(ComponentError, match="custom_grouping takes a CustomStreamGrouping"):
        wired().set_bolt("a", Sink()).custom_grouping("words", FirstTasks)  # type: ignore[arg-type]


def test_a_component_that_does_not_pickle_is_named_with_its_attribute_and_line() -> None:
    class Locked(Bolt):
        def __init__(self) -> None:
            self.plain = 1
            self.client = {"inner": [threading.Lock()]}

        def execute(self, tup: Tuple) -> None: ...

    builder = wired()
    builder.set_bolt("db", Locked()).shuffle_grouping("words")
    with pytest.raises(UnpicklableComponentError) as refused:
        builder.create_topology()
    text = str(refused.value)
    assert "bolt 'db': attribute 'client', inside it ['inner'][0] is a _thread.lock" in text
    assert "test_builder.py:" in refused.value.at
    assert refused.value.hint == "make it in prepare"


def test_a_spout_that_does_not_pickle_is_told_to_use_open() -> None:
    spout = Words()
    spout.lock = threading.Lock()  # type: ignore[attr-defined]
    builder = TopologyBuilder()
    builder.set_spout("words", spout)
    with pytest.raises(UnpicklableComponentError, match="make it in open"):
        builder.create_topology()
