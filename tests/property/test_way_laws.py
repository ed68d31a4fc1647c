"""A bolt does the same in whichever way it is written: by tuple, by values, by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.bolts_in_ways import REWRITTEN, WAYS
from tests.property.scale import examples
from tests.property.test_column_laws import Kept, Numbers, run
from topo import BasicBolt, FailTuple, Topology, TopologyBuilder
from topo.runtime.bolt_task import BoltTask
from topo.runtime.slot import SlotTasks, TaskEnvironment, full_conf
from topo.testing import make_tuple, run_bolt
from topo.topology.layout import TaskLayout


def of_bolt(
    bolt: BasicBolt, rows: list[tuple[Any, ...]], size: int, *, tracked: bool, sources: int
) -> Topology:
    builder = TopologyBuilder()
    declared = builder.set_bolt("bolt", bolt)
    for number in range(sources):
        fields = ("n", "m") if number == 0 else ("m", "n")
        builder.set_spout(f"s{number}", Numbers(fields, rows, size, tracked))
        declared.shuffle_grouping(f"s{number}")
    kept = builder.set_bolt("kept", Kept()).shuffle_grouping("bolt")
    if isinstance(bolt.outputs, dict):
        kept.shuffle_grouping("bolt", stream="odd")
    return builder.create_topology()


def without_lines(seen: Any) -> Any:
    """Leave out where in the code an error was, which is all that the ways may differ in."""
    if isinstance(seen, dict):
        left_out = ("where", "at", "place", "traceback", "line")
        return {key: without_lines(value) for key, value in seen.items() if key not in left_out}
    if isinstance(seen, tuple) and len(seen) == 4 and isinstance(seen[2], str):
        return seen[0]
    return type(seen)(map(without_lines, seen)) if isinstance(seen, list | tuple) else seen


@pytest.mark.parametrize("name", sorted(WAYS))
@given(
    values=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=60),
    size=st.sampled_from([7, 40, 41]),
    sources=st.sampled_from([1, 2]),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
)
@examples(12)
def test_a_bolt_does_the_same_in_each_way(
    name: str,
    values: list[tuple[int, int]],
    size: int,
    sources: int,
    flags: tuple[bool, bool, bool, bool],
) -> None:
    tracked, stops, strict, rewrites = flags
    policy = "stop" if stops else "fail"
    results = []
    for make in WAYS[name]:
        for by_columns in (True, False):
            topology = of_bolt(make(), values, size, tracked=tracked, sources=sources)
            with patch.object(BoltTask, "rewrites", rewrites and by_columns):
                seen = run(topology, strict=strict, policy=policy, by_columns=by_columns)
            results.append(without_lines(seen))
    assert all(one == results[0] for one in results[1:])


@pytest.mark.parametrize("strict", [False, True], ids=["as in production", "as in tests"])
@pytest.mark.parametrize("name", sorted(WAYS))
def test_those_are_rewritten_that_can_be(name: str, strict: bool) -> None:
    topology = of_bolt(WAYS[name][1](), [(1, 2)], 7, tracked=False, sources=1)
    conf = full_conf({})
    layout = TaskLayout(topology, conf)
    tasks = range(1, layout.count + 1)
    env = TaskEnvironment(
        topology, layout, conf, "laws", lambda: 0.0, frozenset(tasks), strict=strict
    )
    host = SlotTasks(env, tasks)
    host.open()
    (task,) = (one for one in host.tasks.values() if one.component_id == "bolt")
    assert isinstance(task, BoltTask)
    assert task._loops, "it runs over columns in any case"
    assert (task._users is not None) == (name in REWRITTEN)


@pytest.mark.parametrize("name", sorted(WAYS))
@given(values=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12))
@examples(10)
def test_a_bolt_by_itself_does_the_same_in_each_way(
    name: str, values: list[tuple[int, int]]
) -> None:
    def result(make: Callable[[], BasicBolt]) -> Any:
        tuples = [make_tuple({"n": n, "m": m}) for n, m in values]
        try:
            done = run_bolt(make(), tuples)
        except (ValueError, FailTuple) as error:
            return type(error), str(error).partition(" emitted ")[2] or str(error)
        emits = [(list(one), one.stream, list(map(tuples.index, one.anchors)))
                 for one in done.emitted]  # fmt: skip
        return emits, [tuples.index(tup) for tup in done.acked], len(done.failed)

    first, *others = map(result, WAYS[name])
    assert all(one == first for one in others)
