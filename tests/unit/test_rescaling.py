"""Another number of slots, without Spark: plans, generations of a checkpoint, logs of epochs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_plan import bolt, spout, word_count
from topo.engine.shapes import Executor
from topo.engine.spark.driver.executors import Executors
from topo.engine.spark.driver.moves import Moves
from topo.engine.spark.plan import Plan, make_plan
from topo.engine.spark.realtime.epochs import Committed
from topo.engine.spark.realtime.places import FewerSlots, await_places, fewer_slots
from topo.engine.spark.realtime.rescaling import copy_last_ticks, drop_stale_ticks, last_tick_key
from topo.engine.spark.realtime.store import EpochStore
from topo.errors import CheckpointError, RunError
from topo.manage.checkpoints import Checkpoint
from topo.runtime.task import full_conf
from topo.storage.checkpoints import (
    Generation,
    generation_in,
    names_of_others,
    remove_checkpoint,
)
from topo.topology.model import ComponentDef, Topology
from topo.tracking.plan import TrackingPlan


def test_only_other_slots_are_a_move() -> None:
    two, three = word_count(workers=2), word_count(workers=3)
    assert three.is_rescaled(two.to_json())
    assert two.is_rescaled(three.to_json())
    assert not two.is_rescaled(two.to_json())
    assert not three.is_rescaled(word_count(workers=2, count_tasks=6).to_json())
    assert not three.is_rescaled(json.dumps({**two.as_dict(), "format": 99}))
    for damaged in ("", "null", "{}", "[]"):
        assert not three.is_rescaled(damaged)


def test_a_checkpoints_plan_names_its_generation() -> None:
    assert generation_in("{}") == generation_in("") == Generation()
    assert (Generation().place, Generation().initial) == ("", "initial")
    found = generation_in('{"generation": 3, "first_batch": 41}')
    assert (found, found.place) == (Generation(3, 41), "topo-gen-3")
    assert found.initial == "topo-gen-3/initial"


NAMES = ["commits", "state", "topo-gen-1", "topo-gen-2", "topo-gen-3", "topo-failures", "thesis"]


def test_what_is_of_other_generations() -> None:
    first, second = names_of_others(NAMES, Generation()), names_of_others(NAMES, Generation(2, 9))
    assert sorted(first) == ["topo-gen-1", "topo-gen-2", "topo-gen-3"]
    assert sorted(second) == ["commits", "state", "topo-gen-1", "topo-gen-3"]


def test_a_checkpoint_in_a_later_generation_is_listed_and_deleted(tmp_path: Path) -> None:
    place = tmp_path / "state"
    (place / "topo-gen-2" / "commits").mkdir(parents=True)
    (place / "topo-gen-2" / "initial").mkdir()
    (place / "topo-plan.json").write_text('{"id": "a", "generation": 2, "first_batch": 40}')
    found = Checkpoint(str(place), "words", None)
    assert found.last_batch == 39, "the last one before, while it has no commit of its own"
    for batch in (0, 1):
        (place / "topo-gen-2" / "commits" / str(batch)).touch()
    assert found.last_batch == 41
    assert found.changed_at is not None
    assert remove_checkpoint(place) == []
    assert not place.exists()


PLAN = TrackingPlan(1, 2, (1,), {"s": (1, 1)}, None)


def epochs(directory: Path) -> tuple[EpochStore, Committed]:
    store = EpochStore(directory)
    return store, store.recover(Committed(PLAN))


def ticks(store: EpochStore) -> set[Any]:
    return set(store.places({0}))


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (2, 1), (1, 4)])
def test_last_ticks_go_over_to_other_slots_and_none_is_left(
    tmp_path: Path, before: int, after: int
) -> None:
    plan, then = word_count(workers=before), word_count(workers=after)

    def keys(of: Plan) -> set[Any]:
        places = {of.place_of(task) for each in of.components for task in each.tasks}
        return {last_tick_key(*place) for place in places}

    store, committed = epochs(tmp_path)
    copy_last_ticks(store, committed, plan.as_dict(), then)
    assert ticks(store) == set(), "it was not at its end"
    drop_stale_ticks(store, committed, plan)
    assert committed.epoch == 0, "nothing is written that says nothing"
    copy_last_ticks(store, committed, {"components": {}}, plan)  # all of none: each gets one
    assert ticks(store) == keys(plan)
    copy_last_ticks(store, committed, plan.as_dict(), then)
    store.close()

    store, committed = epochs(tmp_path)  # as a crash before the plan is written leaves it
    drop_stale_ticks(store, committed, plan)
    assert ticks(store) == keys(plan)
    copy_last_ticks(store, committed, plan.as_dict(), then)
    drop_stale_ticks(store, committed, then)
    store.close()
    store, committed = epochs(tmp_path)
    assert ticks(store) == keys(then)
    store.close()


def test_a_topology_that_is_partly_at_its_end_ticks_once_too_often(tmp_path: Path) -> None:
    two, three = word_count(workers=2), word_count(workers=3)
    store, committed = epochs(tmp_path)
    copy_last_ticks(store, committed, {"components": {}}, two)
    drop_stale_ticks(store, committed, make_plan(Topology([spout("sentences")]), 1))
    some = ticks(store)
    assert some
    copy_last_ticks(store, committed, two.as_dict(), three)
    assert ticks(store) == some
    store.close()


def moves(conf: dict[str, Any], master: str = "local[4]", *more: ComponentDef) -> Moves:
    topology = Topology([spout("s", 2), bolt("b", ("s", "shuffle")), *more])
    settings = {"topology.checkpoint.dir": "/state", **conf}
    return Moves(topology, full_conf(settings), master)


@pytest.mark.parametrize(
    ("conf", "workers", "why"),
    [
        ({}, 2, "it has 2 slots already"),
        ({}, 5, r"local\[4\] has 4 cores"),
        ({"topology.checkpoint.dir": None}, 3, "no topology.checkpoint.dir"),
        ({"topology.mode": "real-time", "topology.epoch.ms": 0}, 3, "nothing is saved"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_stops(
    conf: dict[str, Any], workers: int, why: str
) -> None:
    with pytest.raises(RunError, match=why):
        moves(conf).ask(workers, 2)


def test_what_spark_reads_cannot_move() -> None:
    source = ComponentDef(
        "table", "spout", "S", 1, (), (), {}, b"",
        external={"source": {"format": "delta", "options": {}}},
    )  # fmt: skip
    with pytest.raises(CheckpointError, match="spout 'table' is read by Spark"):
        moves({}, "local[4]", source).ask(3, 2)


def test_one_move_at_a_time_and_back_if_it_fails() -> None:
    several = moves({})
    conf = {"topology.workers": 2, "mine": 1}
    assert not several.is_moving
    several.ask(3, 2)
    assert several.is_due
    with pytest.raises(RunError, match="is moving to 3 slots already"):
        several.ask(4, 2)
    assert several.begin(conf) == {"topology.workers": 3, "mine": 1}
    assert not several.is_due
    assert several.is_asked
    back = several.take_back({"topology.workers": 3, "mine": 1}, RunError("no room"))
    assert back == conf
    assert several.failure is not None
    assert (several.is_asked, several.failure.message) == (False, "no room")
    several.ask(4, 2)
    assert several.failure is None
    moving = several.begin(conf)
    assert several.arrive(moving, 4) == {"topology.workers": 4, "mine": 1}
    assert (several.is_asked, several.failure) == (False, None)
    assert several.arrive(moving, 3) == moving, "it is no move"
    several.ask(3, 2)
    assert several.arrive(several.begin(conf), 2) == conf
    assert several.failure is not None
    assert several.failure.message == "there are cores for 2 slots, and not for 3"
    several.ask(4, 2)
    assert not several.grows_beyond(2), "a local Spark has places for all"
    cluster = moves({}, "spark://m1:7077")
    cluster.ask(4, 2)
    assert cluster.grows_beyond(2)
    assert not cluster.grows_beyond(4)


def test_lost_places_are_waited_for_and_then_fewer_slots_are_taken() -> None:
    """Three levels on two slots take six places; of four that are left, one slot takes three."""
    topology = Topology(
        [
            spout("s", 2),
            bolt("b", ("s", "shuffle"), parallelism=2),
            bolt("c", ("b", "shuffle"), parallelism=2),
        ]
    )
    plan = make_plan(topology, 2)
    cores = [4]
    slept: list[float] = []

    def fewer(now: int) -> int | None:
        return fewer_slots(topology, plan, now, {})

    executors = Executors(lambda: [Executor(cores[0])], lambda: float(len(slept)), 6, at_once=True)

    def wait(patience_secs: float, stopped: Any = lambda: False) -> bool:
        slept.clear()
        executors.known = [Executor(cores[0])]
        return await_places(plan, executors, stopped, slept.append, fewer, patience_secs)

    with pytest.raises(FewerSlots) as lost:
        wait(3.0)
    assert lost.value.slots == 1
    assert 3.0 <= sum(slept) < 3.2
    assert not wait(math.inf, lambda: len(slept) > 100), "without a limit it waits"
    cores[0] = 2
    assert not wait(0.0, lambda: len(slept) > 100), "none has all its places"
    cores[0] = 6
    assert wait(0.0)
    assert slept == []


def test_slots_that_were_lost_are_no_question() -> None:
    several = moves({})
    several.ask(4, 2)
    several.shrink(1)
    assert several.is_due
    assert several.begin({"topology.workers": 2}) == {"topology.workers": 1}
    assert several.arrive({"topology.workers": 1}, 1) == {"topology.workers": 1}
    assert (several.failure, several.is_asked) == (None, False)
