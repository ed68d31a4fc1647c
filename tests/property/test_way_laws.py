"""A bolt does the same in whichever way it is written: by tuple, by values, by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.bolt_runs import INPUTS, PAIRS, Inputs, task_of
from tests.property.bolts_in_ways import REWRITTEN, WAYS
from tests.property.scale import examples
from tests.property.test_column_laws import run
from topo import BasicBolt, FailTuple
from topo.runtime.bolt_task import BoltTask
from topo.testing import make_tuple, run_bolt


def without_lines(seen: Any, *, late: bool) -> Any:
    """Leave out where in the code an error was, which is all that the ways may differ in.

    `late`: too few values that a function of a tuple yields are seen after all of its calls. No
    tuple is at hand then, and the error of a later one may have ended the run instead.
    """
    if isinstance(seen, dict):
        left_out = ("where", "at", "place", "traceback", "line")
        return {
            key: without_lines(value, late=late)
            for key, value in seen.items()
            if key not in left_out
        }
    if isinstance(seen, tuple) and len(seen) == 4 and isinstance(seen[2], str):
        return "it ended" if late else seen[0]
    if isinstance(seen, str) and late and seen.startswith("Traceback"):
        return "it ended"
    if isinstance(seen, list | tuple):
        return type(seen)(without_lines(one, late=late) for one in seen)
    return seen


@pytest.mark.parametrize("name", sorted(WAYS))
@given(inputs=INPUTS)
@example(inputs=Inputs([(34, 0)], stops=True))  # too few values,
@example(inputs=Inputs([(34, 0), (5, 0)], stops=True))  # then a ValueError
@examples(12)
def test_a_bolt_does_the_same_in_each_way(name: str, inputs: Inputs) -> None:
    results = []
    late = name == "breaking" and not inputs.strict
    for make in WAYS[name]:
        for by_columns in (True, False):
            topology = inputs.topology(make())
            with patch.object(BoltTask, "rewrites", inputs.flag and by_columns):
                seen = run(
                    topology, strict=inputs.strict, policy=inputs.policy, by_columns=by_columns
                )
            results.append(without_lines(seen, late=late))
    assert all(one == results[0] for one in results[1:])


@pytest.mark.parametrize("strict", [False, True], ids=["as in production", "as in tests"])
@pytest.mark.parametrize("name", sorted(WAYS))
def test_those_are_rewritten_that_can_be(name: str, strict: bool) -> None:
    task = task_of(Inputs([(1, 2)]).topology(WAYS[name][1]()), strict=strict)
    assert task._loops, "it runs over columns in any case"
    assert (task._users is not None) == (name in REWRITTEN)


@pytest.mark.parametrize("name", sorted(WAYS))
@given(values=st.lists(PAIRS, max_size=12))
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
