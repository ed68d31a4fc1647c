"""A rewritten `execute` does, to the bit, what the one that was written does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.bolts_to_rewrite import BASIC, BASIC_REWRITTEN
from tests.property.rich_bolts_to_rewrite import RICH, RICH_REWRITTEN
from tests.property.scale import examples
from tests.property.test_column_laws import Kept, Numbers, run
from topo import BasicBolt, Bolt, Topology, TopologyBuilder
from topo.runtime.bolt_task import BoltTask
from topo.runtime.slot import SlotTasks, TaskEnvironment, full_conf
from topo.topology.layout import TaskLayout

BOLTS: dict[str, Callable[[], Bolt | BasicBolt]] = {**BASIC, **RICH}
REWRITTEN = BASIC_REWRITTEN | RICH_REWRITTEN


def of_bolt(
    name: str, rows: list[tuple[Any, ...]], size: int, *, tracked: bool, sources: int, read: bool
) -> Topology:
    builder = TopologyBuilder()
    bolt = builder.set_bolt("bolt", BOLTS[name]())
    for number in range(sources):
        fields = ("n", "m") if number == 0 else ("m", "n")
        builder.set_spout(f"s{number}", Numbers(fields, rows, size, tracked))
        bolt.shuffle_grouping(f"s{number}")
    outputs = BOLTS[name]().outputs
    if outputs and read:
        kept = builder.set_bolt("kept", Kept()).shuffle_grouping("bolt")
        if isinstance(outputs, dict):
            kept.shuffle_grouping("bolt", stream="odd")
    return builder.create_topology()


def traceback_of(seen: list[Any]) -> list[Any]:
    return [part for part in seen if isinstance(part, tuple) and len(part) == 4]


@pytest.mark.filterwarnings("ignore:.*emits without anchors")
@pytest.mark.parametrize("name", sorted(BOLTS))
@given(
    values=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=60),
    size=st.sampled_from([7, 40, 41]),
    sources=st.sampled_from([1, 2]),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
)
@examples(15)
def test_a_bolt_does_the_same_rewritten(
    name: str,
    values: list[tuple[int, int]],
    size: int,
    sources: int,
    flags: tuple[bool, bool, bool, bool],
) -> None:
    tracked, stops, read, strict = flags
    topology = of_bolt(name, values, size, tracked=tracked, sources=sources, read=read)
    results = []
    for rewrites in (True, False):
        with patch.object(BoltTask, "rewrites", rewrites):
            policy = "stop" if stops else "fail"
            results.append(run(topology, strict=strict, policy=policy, by_columns=True))
    assert results[0] == results[1]


@pytest.mark.parametrize("strict", [False, True], ids=["as in production", "as in tests"])
@pytest.mark.parametrize("name", sorted(BOLTS))
def test_those_bolts_are_rewritten_that_can_be(name: str, strict: bool) -> None:
    topology = of_bolt(name, [(1, 2)], 7, tracked=False, sources=1, read=True)
    conf = full_conf({})
    layout = TaskLayout(topology, conf)
    tasks = range(1, layout.count + 1)
    environment = TaskEnvironment(
        topology, layout, conf, "laws", lambda: 0.0, frozenset(tasks), strict=strict
    )
    host = SlotTasks(environment, tasks)
    host.open()
    (task,) = (one for one in host.tasks.values() if one.component_id == "bolt")
    assert isinstance(task, BoltTask)
    assert bool(task._loops) == (name in REWRITTEN)


def test_an_error_is_shown_at_the_line_that_was_written() -> None:
    topology = of_bolt("Failing", [(0, 3)], 7, tracked=True, sources=1, read=True)
    seen = run(topology, strict=False, policy="stop", by_columns=True)
    ((_, text, trace, _),) = traceback_of(seen)
    assert "ValueError: no 3" in text
    assert "in execute\n    self.emit([tup.n, self.touchy(tup.m)])" in trace
    assert "bolts_to_rewrite.py" in trace
    assert "topo loop" not in trace


def test_text_that_has_changed_since_leaves_a_bolt_as_it_runs(tmp_path: Any) -> None:
    source = tmp_path / "users_module.py"
    text = "class B(Base):\n outputs = 'a',\n def execute(self, tup):\n  self.emit([tup.n])"
    source.write_text(text)
    names: dict[str, Any] = {"Base": BasicBolt, "__name__": "users_module"}
    exec(compile(text, str(source), "exec"), names)
    source.write_text(text.replace("tup.n", "tup.m"))
    builder = TopologyBuilder()
    builder.set_spout("s", Numbers(("n", "m"), [(1, 2)], 7, False))
    names["B"].__module__ = "tests.property.test_rewriting_laws"
    with patch.dict(globals(), {"B": names["B"]}):
        builder.set_bolt("bolt", names["B"]()).shuffle_grouping("s")
        builder.set_bolt("kept", Kept()).shuffle_grouping("bolt")
        seen = run(builder.create_topology(), strict=False, policy="stop", by_columns=True)
    assert [["default", 1]] in seen
