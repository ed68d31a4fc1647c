"""Savepoints of earlier days: one that a released topo has written begins a run of each later one.

The golden one holds the shop of the golden checkpoint, as 0.2.0 writes it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.golden_shop import shop
from tests.unit.test_golden_checkpoint import GOLDEN, goes_on, restored, saved_once
from topo.engine.spark.plan import make_plan
from topo.engine.spark.realtime.beginning import Start, differences, records_for
from topo.errors import CheckpointError
from topo.runtime.task import full_conf
from topo.storage import savepoints
from topo.storage.savepoints import (
    FORMAT,
    Component,
    Savepoint,
    read_savepoint,
    tasks_of,
    write_savepoint,
)

PENDING = 1
"""The message whose tuple `pairs` holds."""
POINT = GOLDEN / f"savepoint-{FORMAT}"


def make_golden() -> None:
    """Write the golden savepoint anew, for a format with another number."""
    saved = saved_once()
    plan = make_plan(shop(), 1, full_conf({}))
    components = {
        placed.id: Component(
            placed.kind, placed.tasks.start, len(placed.tasks), placed.keeps_state, placed.reads
        )
        for placed in plan.components
    }
    point = Savepoint(
        "golden",
        "c0ffee",
        27,
        "micro-batch",
        100.0,
        "0.2.0",
        "3.11",
        components,
        PENDING,
        directory=POINT,
    )
    tasks = [(name, index, saved[components[name].ids[index]]) for name, index in tasks_of(point)]
    write_savepoint(point, tasks)


@pytest.fixture
def point(tmp_path: Path) -> Path:
    """Return a copy that belongs to this user alone, which a checkout's need not."""
    place = Path(shutil.copytree(POINT, tmp_path / "point"))
    for path in (place, *place.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return place


def records_of(saved: Savepoint) -> dict[int, dict[str, bytes]]:
    return {
        saved.components[name].ids[index]: saved.records(name, index)
        for name, index in tasks_of(saved)
    }


def test_a_golden_savepoint_of_the_present_format_is_read(point: Path) -> None:
    saved = read_savepoint(point)
    assert (saved.topo, saved.batch, saved.mode) == ("0.2.0", 27, "micro-batch")
    assert records_of(saved) == saved_once()


def test_a_topology_goes_on_from_it(point: Path) -> None:
    goes_on(restored(records_of(read_savepoint(point))))


def test_it_begins_a_run_on_any_number_of_slots(point: Path) -> None:
    saved = read_savepoint(point)
    for slots in (1, 2, 3):
        plan = make_plan(shop(), slots, full_conf({}))
        start: Start = (saved, {}, frozenset())
        assert differences(start, plan) == []
        assert records_for(start, plan, "micro-batch") == saved_once()


def test_a_later_format_is_refused_by_its_number(
    point: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savepoints, "FORMAT", FORMAT + 1)
    with pytest.raises(CheckpointError, match=f"of format {FORMAT} with state"):
        read_savepoint(point)


if __name__ == "__main__":
    make_golden()
