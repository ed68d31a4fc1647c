"""The plan: levels, slots, fusion and state, by example and over random graphs."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.engine.spark.plan import Plan, make_plan
from topo.engine.spark.slotkeys import slot_keys, spark_hash
from topo.errors import CheckpointError
from topo.storage.format import FORMAT
from topo.topology.model import ComponentDef, GroupingDef, InputDef, StreamDef, Topology

OUT = (StreamDef("default", ("a",)),)


def spout(name: str, parallelism: int = 1) -> ComponentDef:
    return ComponentDef(name, "spout", "S", parallelism, OUT, (), {}, b"")


def bolt(
    name: str, *reads: tuple[str, str], parallelism: int = 1, stateless: bool = False
) -> ComponentDef:
    inputs = tuple(InputDef(source, "default", GroupingDef(kind)) for source, kind in reads)
    return ComponentDef(name, "bolt", "B", parallelism, OUT, inputs, {}, b"", stateless=stateless)


def word_count(workers: int = 2, count_tasks: int = 4) -> Plan:
    topology = Topology(
        [
            spout("sentences", 2),
            bolt("split", ("sentences", "shuffle"), parallelism=4, stateless=True),
            bolt("count", ("split", "fields"), parallelism=count_tasks),
        ]
    )
    return make_plan(topology, workers)


def names(plan: Plan) -> list[list[str]]:
    return [[placed.id for placed in level] for level in plan.levels]


def test_word_count_has_three_levels_and_only_split_keeps_nothing() -> None:
    plan = word_count()
    assert names(plan) == [["sentences"], ["split"], ["count"]]
    assert [plan.keeps_state(level) for level in range(3)] == [True, False, True]


def test_each_component_starts_in_the_slot_where_the_last_one_stopped() -> None:
    topology = Topology([spout("a", 2), bolt("b", ("a", "shuffle"), parallelism=2)])
    plan = make_plan(topology, 3)
    assert [placed.slots for placed in plan.components] == [(0, 1), (2, 0)]


def test_a_component_is_in_the_level_after_its_deepest_producer() -> None:
    topology = Topology(
        [spout("s"), bolt("near", ("s", "all")), bolt("far", ("s", "all"), ("near", "all"))]
    )
    assert names(make_plan(topology, 2)) == [["s"], ["near"], ["far"]]


def test_a_local_reader_runs_inside_its_producers_level() -> None:
    topology = Topology(
        [
            spout("s", 2),
            bolt("b", ("s", "local_or_shuffle"), parallelism=2),
            bolt("c", ("b", "none"), parallelism=2),
        ]
    )
    plan = make_plan(topology, 2)
    assert names(plan) == [["b", "c", "s"]]
    assert [plan.component(name).fused_into for name in "sbc"] == [None, "s", "b"]


def test_a_local_reader_is_put_beside_its_producer() -> None:
    topology = Topology([spout("s"), bolt("z", ("s", "none"))])
    plan = make_plan(topology, 4)
    assert plan.component("z").slots == plan.component("s").slots
    assert names(plan) == [["s", "z"]]


@pytest.mark.parametrize(
    "reads",
    [
        (("s", "shuffle"),),
        (("s", "local_or_shuffle"), ("t", "shuffle")),
        (("s", "local_or_shuffle"), ("m", "local_or_shuffle")),
    ],
    ids=["shuffle", "one input from outside", "producers of two levels"],
)
def test_what_is_not_fused(reads: tuple[tuple[str, str], ...]) -> None:
    topology = Topology(
        [
            spout("s", 2),
            spout("t", 2),
            bolt("m", ("s", "shuffle"), parallelism=2),
            bolt("x", *reads, parallelism=2),
        ]
    )
    assert make_plan(topology, 2).component("x").fused_into is None


def test_a_reader_that_misses_a_slot_of_its_producer_is_not_fused() -> None:
    topology = Topology([spout("s", 2), bolt("x", ("s", "local_or_shuffle"), parallelism=1)])
    assert make_plan(topology, 2).component("x").fused_into is None


def test_the_plan_that_made_a_checkpoint_is_accepted() -> None:
    word_count().check_same(word_count().to_json(), "/c")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (word_count(workers=3), r"3 slots, now there are 2.*set topology\.workers=3"),
        (word_count(count_tasks=6), "bolt 'count' had 6 tasks, now 4"),
        (
            make_plan(Topology([spout("sentences", 2)]), 2),
            "bolt 'count' is new; bolt 'split' is new",
        ),
    ],
    ids=["workers", "tasks", "components"],
)
def test_another_plan_is_refused_with_the_difference(other: Plan, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        word_count().check_same(other.to_json(), "/checkpoint/topo-plan.json")


@pytest.mark.parametrize("written", ["", "[]", "{}", f'{{"format": {FORMAT}}}', "null"])
def test_an_unreadable_plan_is_refused(written: str) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        word_count().check_same(written, "/checkpoint/topo-plan.json")


def test_another_format_is_refused() -> None:
    written = json.loads(word_count().to_json()) | {"format": 99}
    with pytest.raises(CheckpointError, match="format 99"):
        word_count().check_same(json.dumps(written), "/c")


def test_slots_of_other_keys_are_refused() -> None:
    written = json.loads(word_count().to_json())
    written["keys"] = written["keys"][::-1]
    with pytest.raises(CheckpointError, match="its slots have other keys"):
        word_count().check_same(json.dumps(written), "/c")


# What Spark says: spark.sql("select hash(0), hash(1), hash(42), hash(-1)").
def test_the_hash_is_sparks() -> None:
    hashes = [spark_hash(key) for key in (0, 1, 42, -1)]
    assert hashes == [933211791, -559580957, 29417773, -1604776387]


@given(st.integers(1, 64))
def test_each_slot_has_a_key_of_its_partition(slots: int) -> None:
    assert [spark_hash(key) % slots for key in slot_keys(slots)] == list(range(slots))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    components = [spout(f"s{i}", draw(st.integers(1, 5))) for i in range(draw(st.integers(1, 3)))]
    for i in range(draw(st.integers(0, 7))):
        sources = draw(
            st.lists(st.sampled_from(components), min_size=1, max_size=3, unique_by=lambda c: c.id)
        )
        kinds = ["shuffle", "fields", "local_or_shuffle", "none", "all", "global"]
        reads = [(source.id, draw(st.sampled_from(kinds))) for source in sources]
        components.append(
            bolt(
                f"b{i}", *reads, parallelism=draw(st.integers(1, 5)), stateless=draw(st.booleans())
            )
        )
    return Topology(components)


@given(topologies(), st.integers(1, 6))
def test_random_graphs(topology: Topology, slots: int) -> None:
    plan = make_plan(topology, slots)
    assert plan == make_plan(topology, slots)
    plan.check_same(plan.to_json(), "")
    placed = {component.id: component for component in plan.components}
    for definition in topology.components.values():
        component = placed[definition.id]
        load = Counter(component.slots)
        assert len(component.tasks) == definition.parallelism
        assert max(load.values()) - min(load[slot] for slot in range(slots)) <= 1
        for read in definition.inputs:
            producer = placed[read.component]
            assert producer.level <= component.level
            if producer.level == component.level:
                assert read.grouping.kind in ("local_or_shuffle", "none")
                assert set(producer.slots) <= set(component.slots)
    everywhere = [
        task
        for level in range(len(plan.levels))
        for slot in range(slots)
        for task in plan.tasks_at(level, slot)
    ]
    assert sorted(everywhere) == list(range(1, len(everywhere) + 1))
    assert all(plan.levels)
