"""Logs of epochs of earlier days: a log is read as long as its format has its number."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topo.engine.spark.realtime import mark
from topo.engine.spark.realtime.epochs import Committed, EpochRecord
from topo.engine.spark.realtime.records import (
    EPOCH,
    SNAPSHOT,
    head_of,
    read_values,
    start_of,
)
from topo.engine.spark.realtime.store import EpochStore
from topo.errors import CheckpointError
from topo.tracking.ids import Updates, root_id
from topo.tracking.plan import TrackingPlan

GOLDEN = Path(__file__).parent / "golden" / f"epochs-{EPOCH.decode()}-{SNAPSHOT.decode()}"
PLAN = TrackingPlan(2, 1, (1,), {"spout": (1, 1), "bolt": (2, 2)}, timeout_secs=100.0)
SAVED_LAST = {2: {"state/0": b"three", "core": b"last"}, 3: {"core": b""}}


def roots(*sequences: int) -> Any:
    return np.array([root_id(1, sequence) for sequence in sequences], np.uint64)


def u64(*numbers: int) -> Any:
    return np.array(numbers, np.uint64)


def u32(*numbers: int) -> Any:
    return np.array(numbers, np.uint32)


EMITTED = Updates(init_roots=roots(1, 2, 3, 4, 300), init_values=u64(11, 12, 13, 14, 15))
HELD = Updates(
    ack_roots=roots(1, 301),
    ack_values=u64(11, 16),  # the latter comes before its emit
    fail_roots=roots(2),
    fail_reasons=["no"],
    held_roots=roots(3, 3),
    held_tasks=u32(2, 3),
)
LATER = Updates(ack_roots=roots(4), ack_values=u64(14))
SNAPSHOT_OF = 2
"""The epoch of the golden snapshot; those behind it are records."""


def history() -> list[EpochRecord]:
    """Return the epochs of the golden log: what can be saved, pending, early, held and told."""
    first: dict[tuple[int, str], bytes] = {(2, "state/0"): b"one", (2, "state/1"): b"gone"}
    third: dict[tuple[int, str], bytes] = {(2, "state/0"): b"three", (2, "core"): b"last"}
    return [
        EpochRecord(1, 1000.0, first, (), EMITTED, {1: 0}),
        EpochRecord(2, 1010.0, {(3, "core"): b""}, (), HELD, {1: 0}),
        EpochRecord(3, 1020.0, third, [(2, "state/1")], LATER, {1: 0}),
    ]


def make_golden() -> None:
    """Write the golden log anew, for a format with another number."""
    GOLDEN.mkdir(parents=True)
    mark._BOOT_ID = GOLDEN / "no machine"
    store = EpochStore(GOLDEN, sync=True)
    committed = store.recover(Committed(PLAN))
    for record in history():
        if record.epoch == SNAPSHOT_OF + 1:
            store._compact_bytes = 1
        store.append(record, committed)
        committed.apply(record)
    store.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "epochs"))


def told_by(committed: Committed) -> Any:
    ledger, verdicts = committed.ledger, committed.ledger.verdicts(1)
    told = dict(zip(verdicts.sequences.tolist(), verdicts.reasons, strict=True))
    return committed.epoch, committed.clock, ledger.counts(1030.0), verdicts.first, told


def test_a_golden_log_of_the_present_format_is_read(directory: Path) -> None:
    assert sorted(path.suffix for path in directory.iterdir()) == ["", ".log", ".snapshot"]
    store, wanted = EpochStore(directory), Committed(PLAN)
    committed = store.recover(Committed(PLAN))
    for record in history():
        wanted.apply(record)
    assert told_by(committed) == told_by(wanted)
    assert told_by(committed)[-1] == {2: "no", 1: None, 4: None}
    assert read_values(directory, store.places((2, 3))) == SAVED_LAST
    store.close()


def test_a_restored_log_goes_on_where_it_was(directory: Path) -> None:
    store = EpochStore(directory)
    committed = store.recover(Committed(PLAN))
    emitted = Updates(init_roots=roots(301), init_values=u64(16))  # acked in epoch 2
    for epoch, clock, updates in ((4, 1030.0, emitted), (5, 1100.0, Updates())):
        record = EpochRecord(epoch, clock, {}, (), updates, {1: 3})
        store.append(record, committed)
        committed.apply(record)
    store.close()
    told = told_by(committed)[-1]
    held = "timeout after 100 s; held by 'bolt' task 2, 'bolt' task 3"
    assert told == {301: None, 3: held, 300: "timeout after 100 s"}


def test_the_log_of_a_golden_mark_must_reach_it(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.unlink()
    with pytest.raises(CheckpointError, match="ends with epoch 2, and epoch 3 was committed"):
        EpochStore(directory).recover(Committed(PLAN))


@pytest.mark.parametrize(
    ("magic", "number"), [(EPOCH, "1"), (SNAPSHOT[:-1] + b"9", "9")], ids=["earlier", "later"]
)
def test_a_snapshot_of_another_format_is_refused_by_its_number(
    tmp_path: Path, magic: bytes, number: str
) -> None:
    body = start_of((pickle.dumps("a ledger, once"), []))
    (tmp_path / f"{7:020d}.snapshot").write_bytes(head_of(magic, 7, len(body), 0) + body)
    with pytest.raises(CheckpointError, match=f"snapshot of format {number}; this topo reads 2"):
        EpochStore(tmp_path).recover(Committed(PLAN))


if __name__ == "__main__":
    make_golden()
