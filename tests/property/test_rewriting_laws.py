"""A rewritten `execute` does, to the bit, what the one that was written does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given

from tests.property.bolt_runs import INPUTS, Inputs, task_of
from tests.property.bolts_to_rewrite import BASIC, BASIC_REWRITTEN
from tests.property.rich_bolts_to_rewrite import RICH, RICH_REWRITTEN
from tests.property.scale import examples
from tests.property.test_column_laws import Kept, Numbers, run
from topo import BasicBolt, Bolt, TopologyBuilder
from topo.runtime.bolt_task import BoltTask

BOLTS: dict[str, Callable[[], Bolt | BasicBolt]] = {**BASIC, **RICH}
REWRITTEN = BASIC_REWRITTEN | RICH_REWRITTEN


ONE_STREAM_IN_THE_SECOND_BATCH = Inputs([(43, 41), *[(42, 4)] * 7], flag=True)


def traceback_of(seen: list[Any]) -> list[Any]:
    return [part for part in seen if isinstance(part, tuple) and len(part) == 4]


@pytest.mark.filterwarnings("ignore:.*emits without anchors")
@pytest.mark.parametrize("name", sorted(BOLTS))
@given(inputs=INPUTS)
@example(inputs=ONE_STREAM_IN_THE_SECOND_BATCH)
@examples(15)
def test_a_bolt_does_the_same_rewritten(name: str, inputs: Inputs) -> None:
    topology = inputs.topology(BOLTS[name](), read=inputs.flag)
    results = []
    for rewrites in (True, False):
        with patch.object(BoltTask, "rewrites", rewrites):
            results.append(
                run(topology, strict=inputs.strict, policy=inputs.policy, by_columns=True)
            )
    assert results[0] == results[1]


@pytest.mark.parametrize("strict", [False, True], ids=["as in production", "as in tests"])
@pytest.mark.parametrize("name", sorted(BOLTS))
def test_those_bolts_are_rewritten_that_can_be(name: str, strict: bool) -> None:
    task = task_of(Inputs([(1, 2)]).topology(BOLTS[name]()), strict=strict)
    assert bool(task._loops) == (name in REWRITTEN)


def test_an_error_is_shown_at_the_line_that_was_written() -> None:
    topology = Inputs([(0, 3)], tracked=True).topology(BOLTS["Failing"]())
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
