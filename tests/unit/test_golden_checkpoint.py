"""Checkpoints of earlier days: what was saved in a format is read as long as it has its number."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from tests.golden_shop import shop
from topo.engine.inline.run import InlineRun
from topo.runtime.task import Task
from topo.storage.format import FORMAT

GOLDEN = Path(__file__).parent / "golden"


def saved_once() -> Any:
    """Return what each task of the shop has saved, by its id."""
    return pickle.loads((GOLDEN / f"format-{FORMAT}.pickle").read_bytes())


def restored(saved: Any) -> InlineRun:
    """Return a run of the shop after 27 numbers, of which the last is held by `pairs`."""
    run = InlineRun("golden", shop(), {}, now=lambda: 100.0)
    run._saved = saved
    run.deactivate()
    run.step()
    return run


def component(run: InlineRun, name: str) -> list[Any]:
    assert run._host is not None
    tasks: list[Task] = list(run._host.tasks.values())
    return [task.component for task in tasks if task.component_id == name]


def test_a_golden_checkpoint_of_the_present_format_loads() -> None:
    run = restored(saved_once())
    (numbers,), (words,) = component(run, "numbers"), component(run, "words")
    (pairs,) = component(run, "pairs")
    assert numbers.next == 27
    assert numbers.settled[:26] == list(range(26))
    assert dict(words.state) == {"cow": 14, "moon": 7, "dog": 6}
    assert words.seen == words.state
    assert words.latest["dog"] == [3, 7, 11, 15, 19, 23]
    assert [tup.values for tup in pairs.held] == [["cow", 14]]
    assert [sums.total for sums in component(run, "sums")] == [58, 82]


def test_a_restored_topology_goes_on_where_it_was() -> None:
    goes_on(restored(saved_once()))


def goes_on(run: InlineRun) -> None:
    """Check the number after those that were saved."""
    run.activate()
    run.step()
    (words,), (pairs,) = component(run, "words"), component(run, "pairs")
    assert dict(words.state) == {"cow": 14, "moon": 7, "dog": 7}
    assert pairs.held == []  # the held tuple and number 27 are a pair
    assert sum(sums.total for sums in component(run, "sums")) == 58 + 82 + 14 + 7
    assert component(run, "numbers")[0].settled[-1] == 27
