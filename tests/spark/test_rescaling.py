"""Another number of slots for a checkpoint: what moves, what is refused, what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.doubles import LONGEST_SECS, wait_until
from tests.spark.test_checkpoints import Balances, payments
from topo import CheckpointError, EngineError, LocalCluster
from topo.engine.spark.driver import rescaling
from topo.engine.spark.driver.checkpoint import Checkpoint
from topo.engine.spark.driver.run import SparkRun
from topo.engine.spark.driver.savepoints import save_checkpoint
from topo.storage.savepoints import read_savepoint

pytestmark = pytest.mark.spark


def run(cluster: LocalCluster, place: Path, limit: int, workers: int | None) -> Any:
    conf: dict[str, Any] = {"topology.checkpoint.dir": str(place)}
    if workers:
        conf["topology.workers"] = workers
    ran = cluster.submit_topology("t", payments(limit), conf, capture=["balances", "total"])
    ran.await_completion(LONGEST_SECS)
    return ran


def cents_of(limit: int) -> dict[str, int]:
    return {f"user{key}": sum(range(key, limit, 3)) for key in range(3)}


@pytest.mark.of_batches
def test_a_checkpoint_goes_from_slots_to_slots(cluster: LocalCluster, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    batches: list[int] = []
    tasks: dict[str, int] = {}
    for limit, workers in zip((10, 25, 40, 55), (2, 1, 2, 1), strict=True):
        ran = run(cluster, place, limit, workers)
        batches += [each.id for each in ran.batches()]
        rows = ran.tuples("balances")
        assert {user: cents for user, cents, _ in rows} == cents_of(limit)
        assert tasks in ({}, {user: task for user, _, task in rows}), "a key stays with its task"
        tasks = {user: task for user, _, task in rows}
        assert ran.tuples("total")[-1] == [limit]
    assert batches == sorted(set(batches)), "numbers go on: what carries them stays unique"
    names = {path.name for path in place.iterdir()}
    assert names & {"commits", "state", "topo-gen-1", "topo-gen-2", "topo-gen-3"} == {"topo-gen-3"}
    assert not (place / "topo-gen-3" / "initial").exists()
    again = run(cluster, place, 60, 1)  # without a move, from the state store of the generation
    assert again.tuples("total")[-1] == [60]
    with pytest.raises(CheckpointError, match=r"it has 1 slots, now there are \d+"):
        run(cluster, place, 70, None)


@pytest.mark.of_batches
def test_a_move_that_fails_changes_nothing_and_what_is_lost_on_the_way_is_noticed(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "checkpoint"
    run(cluster, place, 10, 2)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for step in ("clear", "sync", "begin"):  # before, and when all but the plan is written
        with monkeypatch.context() as failing:
            failing.setattr(Checkpoint, step, fail)
            with pytest.raises(EngineError, match="No space left on device"):
                run(cluster, place, 25, 1)
    assert (place / "topo-gen-1").exists()
    ran = run(cluster, place, 25, 2)  # as if nothing had been tried
    assert {user: cents for user, cents, _ in ran.tuples("balances")} == cents_of(25)

    placed = rescaling._placed
    monkeypatch.setattr(
        rescaling,
        "_placed",
        lambda records, plan: placed(records, plan).where("name NOT LIKE '%/state/%'"),
    )
    ran = run(cluster, place, 40, 1)
    assert {user: cents for user, cents, _ in ran.tuples("balances")} != cents_of(40)


@pytest.mark.of_batches
def test_a_batch_that_is_committed_while_its_query_ends_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = SparkRun._look_once_more
    commits: list[int] = []

    def look_and_await_a_commit(run: SparkRun, opened: Any, query: Any) -> None:
        look(run, opened, query)
        if query.isActive:
            before = opened.next_batch()
            wait_until(lambda: opened.next_batch() > before, "another commit")
            commits.append(before)

    monkeypatch.setattr(SparkRun, "_look_once_more", look_and_await_a_commit)
    conf = {
        "topology.checkpoint.dir": str(tmp_path / "checkpoint"),
        "topology.workers": 2,
        "topology.batch.max.tuples": 10,
    }
    ran = SparkRun("t", payments(200), conf, capture=["balances"]).start()
    wait_until(lambda: ran.stats().batch.id >= 2, "batches")
    ran.rebalance(1)
    ran.await_completion(LONGEST_SECS)
    assert (len(commits), ran.slots, ran.rebalance_failure) == (1, 1, "")
    assert len(ran.tuples("balances")) == 200
    figures = ran.stats().components["payments"]
    assert (figures.emitted, figures.acked) == (200, 200)


@pytest.mark.of_batches
@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_other_tasks_that_a_driver_has_begun_come_or_are_refused_and_stay(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of users are keys of the input, which three of them do not prove."""
    place = tmp_path / "checkpoint"
    conf = {"topology.checkpoint.dir": str(place), "topology.workers": 1, "topology.mode": mode}

    def ran(limit: int, ids: dict[str, list[int]] | None = None) -> SparkRun:
        more = {"topology.task.ids": ids} if ids else {}
        made = SparkRun("t", payments(limit), {**conf, **more}, capture=["balances", "total"])
        made.start().await_completion(LONGEST_SECS)
        rows = made.tuples("balances")
        assert {user: cents for user, cents, _ in rows} == cents_of(limit)
        assert made.tuples("total")[-1] == [limit]
        return made

    ran(10)
    ids = {"balances": [6, 2], "payments": [4, 1], "total": [5, 1]}
    refused = ran(25, ids)
    assert "has 3 keys in 3 tasks, which proves nothing" in refused.rebalance_failure
    assert refused.task_ids is None
    assert len(refused.stats().components["balances"].by_task) == 3
    monkeypatch.setattr(Balances, "input_key", lambda bolt, key: key, raising=False)
    dealt = ran(40, ids)
    assert list(dealt.stats().components["balances"].by_task) == [6, 7]
    assert dealt.rebalance_failure == ""
    resumed = ran(55)  # what the checkpoint keeps, not what the code says
    assert resumed.task_ids == ids
    assert list(resumed.stats().components["balances"].by_task) == [6, 7]
    with pytest.raises(CheckpointError, match="bolt 'balances' had 2 tasks, now 4"):
        ran(70, {"balances": [7, 4], "payments": [4, 1], "total": [5, 1]})  # ids of others


@pytest.mark.of_batches
def test_a_savepoint_is_the_beginning_of_another_checkpoint(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    run(cluster, tmp_path / "first", 10, 2)
    saved = save_checkpoint(str(tmp_path / "first"), tmp_path / "saved", "t")
    assert (saved.pending, saved.mode, saved.last_ticked) == (0, "micro-batch", True)
    assert read_savepoint(tmp_path / "saved") == saved
    files = {name: path.read_bytes() for name, path in files_of(tmp_path / "saved")}
    for mode, workers in (("micro-batch", 1), ("real-time", 1), ("micro-batch", 2)):
        place = tmp_path / f"{mode}-{workers}"
        begin = {"from": str(tmp_path / "saved")}
        conf = {
            "topology.checkpoint.dir": str(place),
            "topology.workers": workers,
            "topology.mode": mode,
        }
        for limit in (25, 40):  # the second goes on with its own
            ran = SparkRun("t", payments(limit), conf, begin=begin, capture=["balances", "total"])
            ran.start().await_completion(LONGEST_SECS)
            rows = ran.tuples("balances")
            assert {user: cents for user, cents, _ in rows} == cents_of(limit)
            assert len(rows) == 15
            assert ran.tuples("total")[-1] == [limit]
        again = save_checkpoint(str(place), tmp_path / f"saved-{mode}-{workers}", "t")
        assert (again.mode, again.pending) == (mode, 0)
        assert again.batch > saved.batch or mode == "real-time"
    assert files == {name: path.read_bytes() for name, path in files_of(tmp_path / "saved")}
    back = SparkRun(
        "t",
        payments(55),
        {"topology.checkpoint.dir": str(tmp_path / "back"), "topology.workers": 2},
        begin={"from": str(tmp_path / "saved-real-time-1")},
        capture=["total"],
    )
    back.start().await_completion(LONGEST_SECS)
    assert back.tuples("total")[-1] == [55]


def files_of(directory: Path) -> list[tuple[str, Path]]:
    return sorted((str(path), path) for path in directory.rglob("*") if path.is_file())
