"""Epochs: alignment under any interleaving, staging in any order, logs cut and damaged anywhere."""

from __future__ import annotations

import errno
import os
import tempfile
import uuid
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo.engine.spark.realtime import mark
from topo.engine.spark.realtime.align import Alignment, Marker, Misaligned
from topo.engine.spark.realtime.epochs import (
    Committed,
    EpochRecord,
    EpochRefused,
    Epochs,
    Key,
    Staged,
)
from topo.engine.spark.realtime.records import (
    NotPlain,
    pack_plain,
    read_log,
    read_values,
    unpack_plain,
)
from topo.engine.spark.realtime.store import EpochStore, LogFailed
from topo.errors import CheckpointError
from topo.tracking.ids import Updates, root_id
from topo.tracking.plan import Mode, TrackingPlan

PLAN = TrackingPlan(
    levels=2, slots=2, spout_tasks=(1,), components={"spout": (1, 1)}, timeout_secs=30.0
)

# What each source sends, epoch by epoch: how many items.
sendings = st.integers(1, 4).flatmap(
    lambda sources: st.lists(
        st.lists(st.integers(0, 3), min_size=sources, max_size=sources), min_size=1, max_size=5
    )
)


def channels(epochs: list[list[int]]) -> list[deque[Any]]:
    """Return what each source sends: (source, epoch, number), and markers."""
    return [
        deque(
            item
            for epoch, counts in enumerate(epochs, 1)
            for item in (
                *((source, epoch, number) for number in range(counts[source])),
                Marker(epoch, counts[source]),
            )
        )
        for source in range(len(epochs[0]))
    ]


@examples(300)
@given(sendings, st.data())
def test_any_interleaving_gives_each_epoch_exactly_what_belongs_to_it(
    epochs: list[list[int]], data: st.DataObject
) -> None:
    sent = channels(epochs)
    level: Alignment[Any] = Alignment("level 1 of slot 0", len(sent), 1)
    worked: dict[int, list[Any]] = {}
    while any(sent):
        source = data.draw(st.sampled_from([s for s, left in enumerate(sent) if left]))
        level.receive(source, sent[source].popleft())
        while True:
            worked.setdefault(level.epoch, []).extend(level.take())
            if not level.is_complete:
                break
            level.advance()
    assert level.epoch == len(epochs) + 1
    assert not level.held
    for epoch, counts in enumerate(epochs, 1):
        for source, count in enumerate(counts):
            came = [item for item in worked[epoch] if item[0] == source]
            assert came == [(source, epoch, number) for number in range(count)]
        assert len(worked[epoch]) == sum(counts)


@examples(100)
@given(sendings, st.data())
def test_a_lost_or_doubled_item_is_noticed(epochs: list[list[int]], data: st.DataObject) -> None:
    sent = channels(epochs)
    places = [
        (source, at)
        for source, items in enumerate(sent)
        for at, item in enumerate(items)
        if not isinstance(item, Marker)
    ]
    if not places:
        return
    source, at = data.draw(st.sampled_from(places))
    items = list(sent[source])
    items[at : at + 1] = data.draw(st.sampled_from([[], [items[at], items[at]]]))
    sent[source] = deque(items)
    level: Alignment[Any] = Alignment("level 1 of slot 0", len(sent), 1)
    with pytest.raises(Misaligned, match="messages"):
        work_off(sent, level)


def work_off(sent: list[deque[Any]], level: Alignment[Any]) -> None:
    while any(sent):
        source = next(source for source, left in enumerate(sent) if left)
        level.receive(source, sent[source].popleft())
        level.take()
        while level.is_complete:
            level.advance()
            level.take()


def test_a_marker_of_another_epoch_is_refused() -> None:
    level: Alignment[str] = Alignment("level 1 of slot 0", 1, 4)
    with pytest.raises(Misaligned, match="slot 0 ended epoch 5"):
        level.receive(0, Marker(5, 0))


def test_an_epoch_does_not_end_while_something_of_it_is_left() -> None:
    level: Alignment[str] = Alignment("level 1 of slot 0", 1, 1)
    level.receive(0, "a")
    level.receive(0, Marker(1, 1))
    with pytest.raises(Misaligned, match="before all of it was worked off"):
        level.advance()


def u64(*numbers: int) -> Any:
    return np.array(numbers, np.uint64)


@examples(60)
@given(st.permutations([(0, 0), (0, 1), (1, 0), (1, 1)]))
def test_staging_in_any_order_commits_the_same(order: list[tuple[int, int]]) -> None:
    root = root_id(1, 1)
    said = {
        (0, 0): Staged({(1, "a"): b"1"}, (), Updates(init_roots=u64(root), init_values=u64(5))),
        (0, 1): Staged(),
        (1, 0): Staged({(2, "a"): b"2"}, [(2, "b")], Updates()),
        (1, 1): Staged({}, (), Updates(ack_roots=u64(root), ack_values=u64(5)), report=b"r"),
    }
    epochs = Epochs(PLAN, Committed(PLAN), Mode.ACTIVE, 0.01)
    epochs.resume_from({1: 0})
    cut = epochs.cut(1.0, 100.0)
    for number, place in enumerate(order, 1):
        assert epochs.stage(cut.epoch, *place, said[place]) == (number == 4)
    record = epochs.record()
    assert record.puts == {(1, "a"): b"1", (2, "a"): b"2"}
    assert list(record.deletes) == [(2, "b")]
    assert not epochs.new_verdicts()  # nothing is told before it is committed
    assert (1, 1, b"r") in epochs.commit(record)
    told = epochs.new_verdicts()
    assert told[1].sequences.tolist() == [1]
    assert not epochs.new_verdicts()


def test_an_epoch_is_cut_once_and_staged_once() -> None:
    epochs = Epochs(PLAN, Committed(PLAN), Mode.ACTIVE, 0.01)
    with pytest.raises(EpochRefused, match="in work is none"):
        epochs.stage(1, 0, 0, Staged())
    epochs.cut(0.0, 0.0)
    with pytest.raises(EpochRefused, match="not committed yet"):
        epochs.cut(1.0, 1.0)
    epochs.stage(1, 0, 0, Staged())
    with pytest.raises(EpochRefused, match="twice"):
        epochs.stage(1, 0, 0, Staged())
    with pytest.raises(EpochRefused, match="no level 2"):
        epochs.stage(1, 2, 0, Staged())
    with pytest.raises(EpochRefused, match="not complete"):
        epochs.record()
    assert epochs.missing == [(0, 1), (1, 0), (1, 1)]


def test_epochs_come_when_something_happened_and_not_more_often_than_they_should() -> None:
    epochs = Epochs(PLAN, Committed(PLAN), Mode.ACTIVE, 0.01)
    assert epochs.due_at(5.0, 100.0) == 5.0  # the first one
    commit_all(epochs, 5.0, 100.0)
    assert epochs.due_at(5.001, 100.0) == float("inf")
    epochs.note_news()
    assert epochs.due_at(5.001, 100.0) == pytest.approx(5.01)
    commit_all(epochs, 5.02, 100.0)
    assert epochs.batches.command(Mode.DRAIN) == 1
    assert epochs.due_at(6.0, 100.0) == 6.0
    assert commit_all(epochs, 6.0, 100.0).mode == Mode.DRAIN
    assert epochs.batches.begun_version == 1


def test_a_timeout_ends_an_epoch_in_which_nothing_else_happens() -> None:
    epochs = Epochs(PLAN, Committed(PLAN), Mode.ACTIVE, 0.01)
    epochs.resume_from({1: 0})
    emitted = Updates(init_roots=u64(root_id(1, 1)), init_values=u64(5))
    commit_all(epochs, 1.0, 100.0, emitted)
    assert epochs.due_at(2.0, 101.0) == pytest.approx(31.0)
    commit_all(epochs, 31.0, 130.0)
    assert epochs.new_verdicts()[1].reasons[0] == "timeout after 30 s"


def commit_all(epochs: Epochs, now: float, wall: float, updates: Updates | None = None) -> Any:
    cut = epochs.cut(now, wall)
    for level, slot in PLAN.executions():
        epochs.stage(cut.epoch, level, slot, Staged(updates=updates or Updates()))
        updates = None
    epochs.commit(epochs.record())
    return cut


# -- the log ----------------------------------------------------------------------------------

keys = st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", "c"]))
histories = st.lists(
    st.tuples(
        st.dictionaries(keys, st.binary(max_size=20), max_size=4), st.lists(keys, max_size=2)
    ),
    min_size=1,
    max_size=6,
)
Saved = dict[int, dict[str, bytes]]


def write(
    directory: Path, history: Any, compact_bytes: int = 1 << 30, *, sync: bool = False
) -> list[Saved]:
    """Write a log; return what is saved after each epoch, from epoch 0 on."""
    store = EpochStore(directory, sync=sync, compact_bytes=compact_bytes)
    committed = store.recover(Committed(PLAN))
    states: list[Saved] = [saved_in(store)]
    flat: dict[Key, bytes] = {}
    for epoch, (puts, deletes) in enumerate(history, committed.epoch + 1):
        gone = [key for key in deletes if key not in puts]
        emitted = Updates(init_roots=u64(root_id(1, epoch)), init_values=u64(7))
        record = EpochRecord(epoch, 100.0 + epoch, puts, gone, emitted, {1: 0})
        store.append(record, committed)
        committed.apply(record)
        for key in gone:
            flat.pop(key, None)
        flat.update(puts)
        states.append(nested(flat))
    store.close()
    return states


def nested(flat: dict[Key, bytes]) -> Saved:
    saved: Saved = {}
    for (task, name), blob in flat.items():
        saved.setdefault(task, {})[name] = blob
    return saved


def saved_in(store: EpochStore) -> Saved:
    return read_values(store.directory, store.places(range(4)))


def ends_of(path: Path) -> list[int]:
    """Return where each epoch of a segment ends, from epoch 0 on."""
    with path.open("rb") as file:
        return [0, *(record.end for record in read_log(file))]


def read(directory: Path) -> tuple[int, int, Saved]:
    store = EpochStore(directory)
    try:
        committed = store.recover(Committed(PLAN))
        return committed.epoch, committed.ledger.pending(), saved_in(store)
    finally:
        store.close()


@examples(40)
@given(histories, st.data())
def test_every_prefix_of_a_log_recovers_to_a_committed_epoch(
    history: Any, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        states = write(Path(name), history)
        (path,) = Path(name).glob("*.log")
        whole, ends = path.read_bytes(), ends_of(path)
        for _ in range(10):
            cut = data.draw(st.integers(0, len(whole)))
            for other in Path(name).iterdir():  # the mark, and segments of later starts
                other.unlink()
            path.write_bytes(whole[:cut])
            epoch, pending, saved = read(Path(name))
            assert epoch == max(n for n, end in enumerate(ends) if end <= cut)
            assert pending == epoch
            assert saved == states[epoch]
            size = path.stat().st_size if epoch else 0
            assert size == ends[epoch]  # and the rest is cut off


@examples(40)
@given(histories, st.data())
def test_a_flipped_bit_anywhere_is_refused_or_costs_the_last_epoch_alone(
    history: Any, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        states = write(Path(name), history)
        (path,) = Path(name).glob("*.log")
        whole, last_at = path.read_bytes(), ends_of(path)[-2]
        has_mark = data.draw(st.booleans())
        if not has_mark:
            (Path(name) / "committed").unlink()
        for _ in range(10):
            at = data.draw(st.integers(0, len(whole) - 1))
            damaged = bytearray(whole)
            damaged[at] ^= 1 << data.draw(st.integers(0, 7))
            path.write_bytes(damaged)
            if at < last_at:
                with pytest.raises(CheckpointError, match="damaged"):
                    read(Path(name))
            elif has_mark:  # it was committed, so no death has torn it
                with pytest.raises(CheckpointError, match="1 epoch is missing"):
                    read(Path(name))
                assert path.read_bytes() == damaged
            else:
                epoch, _, saved = read(Path(name))
                assert epoch == len(history) - 1
                assert saved == states[epoch]


@examples(40)
@given(st.lists(histories, min_size=1, max_size=4))
def test_a_compacted_log_says_the_same(histories: Any) -> None:
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
        for history in histories:  # each by a process of its own
            write(Path(name), history, compact_bytes=200)
            write(Path(other), history)
        assert read(Path(name)) == read(Path(other))
        assert len(list(Path(name).glob("*.snapshot"))) <= 1
        assert not list(Path(name).glob("*.tmp"))


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [({(1, "a"): b"x" * 50}, [])] * 30, compact_bytes=200)
    (snapshot,) = tmp_path.glob("*.snapshot")
    data = bytearray(snapshot.read_bytes())
    data[len(data) // 2] ^= 1
    snapshot.write_bytes(data)
    with pytest.raises(CheckpointError, match="the snapshot is damaged"):
        read(tmp_path)


def test_a_missing_segment_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [({(1, "a"): b"x" * 50}, [])] * 30, compact_bytes=200)
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    with pytest.raises(CheckpointError, match="follows epoch 0"):
        read(tmp_path)


def test_compaction_keeps_the_log_small(tmp_path: Path) -> None:
    for _ in range(5):
        write(tmp_path, [({(1, "a"): b"x" * 20_000}, [])] * 100, compact_bytes=100_000)
    assert read(tmp_path)[0] == 500
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5_000_000


def test_a_full_disk_ends_all_acks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EpochStore(tmp_path)
    committed = store.recover(Committed(PLAN))
    records = [
        EpochRecord(epoch, 100.0, {(1, "a"): bytes(100)}, [], Updates(), {}) for epoch in (1, 2)
    ]
    store.append(records[0], committed)
    committed.apply(records[0])
    with monkeypatch.context() as patched:
        patched.setattr(store, "_file", FullDisk(store))
        with pytest.raises(LogFailed, match="nothing is acked: no space left") as raised:
            store.append(records[1], committed)
    assert "resumes from its last committed epoch" in raised.value.hint
    with pytest.raises(LogFailed):  # also when there is room again: what is written is not known
        store.append(records[1], committed)
    store.close()
    assert read(tmp_path)[0] == 1


class FullDisk:
    """A file that takes a part of what it is given, and then no more."""

    def __init__(self, store: EpochStore) -> None:
        self._file: Any = store._file
        self._took = 0

    def write(self, data: Any) -> int:
        if self._took:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._took = int(self._file.write(bytes(data[:20])))
        return self._took

    def truncate(self, size: int) -> None:
        self._file.truncate(size)


@pytest.mark.parametrize("compact_bytes", [1, 1 << 30])
def test_a_log_that_was_taken_away_is_named(tmp_path: Path, compact_bytes: int) -> None:
    directory = tmp_path / "epochs"
    store = EpochStore(directory, compact_bytes=compact_bytes)
    committed = store.recover(Committed(PLAN))
    directory.rename(tmp_path / "elsewhere")
    refused: list[CheckpointError] = []
    for epoch in range(1, 4):
        record = EpochRecord(epoch, 100.0, {(1, "a"): b"1"}, (), Updates(), {1: 0})
        try:
            store.append(record, committed)
        except CheckpointError as error:
            refused.append(error)
            break
        committed.apply(record)
    store.close()
    if compact_bytes == 1:  # it begins another file
        assert "deleted, or moved away" in refused[0].message
    else:  # the file that it writes is still that file; the owner's record tells
        assert not refused
        assert read(tmp_path / "elsewhere")[0] == 3


# -- what a log must not end before ---------------------------------------------------------------

THREE: Any = [({(1, "a"): b"x" * 50}, []), ({(1, "b"): b"y"}, []), ({(2, "c"): b"z" * 9}, [])]


@examples(40)
@given(histories, st.data())
def test_a_log_that_was_cut_is_refused_and_stays_as_it_is(
    history: Any, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), history)
        (path,) = Path(name).glob("*.log")
        cut = data.draw(st.integers(0, path.stat().st_size - 1))
        os.truncate(path, cut)
        with pytest.raises(CheckpointError, match=f"epoch {len(history)} was committed") as raised:
            read(Path(name))
        assert "without the file 'committed'" in raised.value.hint
        assert path.stat().st_size == cut


def test_a_segment_that_is_gone_behind_a_snapshot_is_missed(tmp_path: Path) -> None:
    write(tmp_path, [({(1, "a"): b"x" * 50}, [])] * 30, compact_bytes=200)
    for path in tmp_path.glob("*.log"):
        path.unlink()
    with pytest.raises(CheckpointError, match="the log of epochs was cut"):
        read(tmp_path)


def tear(directory: Path) -> int:
    """Leave half a record at the end, as a death in the middle of a write; return its bytes."""
    (path,) = directory.glob("*.log")
    half = path.read_bytes()[: ends_of(path)[1] // 2]
    with path.open("ab") as file:
        file.write(half)
    return len(half)


def test_a_torn_record_is_cut_off_and_its_bytes_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, THREE)
    torn = tear(tmp_path)
    assert read(tmp_path)[0] == 3
    assert f"behind epoch 3 was torn, and its {torn} bytes are cut off" in caplog.text
    caplog.clear()
    assert read(tmp_path)[0] == 3
    assert caplog.text == ""


@pytest.mark.parametrize("sync", [False, True])
def test_after_another_start_of_the_machine_the_end_may_be_lost_unless_it_was_synced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    write(tmp_path, THREE, sync=sync)
    (path,) = tmp_path.glob("*.log")
    os.truncate(path, ends_of(path)[1])
    boot_id = tmp_path / "boot_id"
    boot_id.write_text(str(uuid.uuid4()))
    monkeypatch.setattr(mark, "_BOOT_ID", boot_id)
    if sync:
        with pytest.raises(CheckpointError, match="2 epochs are missing"):
            read(tmp_path)
    else:
        assert read(tmp_path)[0] == 1
        assert "ends with epoch 1, and 2 epochs are lost" in caplog.text


def test_a_damaged_mark_is_none(tmp_path: Path) -> None:
    write(tmp_path, THREE)
    (path,) = tmp_path.glob("*.log")
    os.truncate(path, ends_of(path)[1])
    own = tmp_path / "committed"
    own.write_bytes(bytes(len(own.read_bytes())))
    assert read(tmp_path)[0] == 1


# -- snapshots ------------------------------------------------------------------------------------

roots = st.integers(1, 3).flatmap(
    lambda task: st.integers(1, 2000).map(lambda sequence: root_id(task, sequence))
)


@st.composite
def ledger_updates(draw: st.DrawFn) -> Updates:
    """Draw what tasks may say of roots, in whatever order and however wrong."""
    init, ack, fail, held, released = (draw(st.lists(roots, max_size=8)) for _ in range(5))
    values = st.integers(0, 3)
    tasks = st.integers(1, 4)
    return Updates(
        init_roots=u64(*sorted(set(init))),
        init_values=u64(*(draw(values) for _ in set(init))),
        ack_roots=u64(*ack),
        ack_values=u64(*(draw(values) for _ in ack)),
        fail_roots=u64(*fail),
        fail_reasons=[draw(st.sampled_from(["no", "ну"])) for _ in fail],
        held_roots=u64(*held),
        held_tasks=np.array([draw(tasks) for _ in held], np.uint32),
        released_roots=u64(*released),
        released_tasks=np.array([draw(tasks) for _ in released], np.uint32),
    )


def seen_of(committed: Committed, now: float) -> Any:
    ledger = committed.ledger
    told = {task: ledger.verdicts(task) for task in (1, 2, 3)}
    return (
        committed.epoch,
        committed.clock,
        ledger.counts(now),
        ledger.next_timeout(),
        {task: (v.first, v.sequences.tolist(), v.reasons) for task, v in told.items()},
    )


@examples(100)
@given(st.lists(ledger_updates(), max_size=6), st.lists(ledger_updates(), max_size=4))
def test_what_follows_a_snapshot_is_the_same_as_without_one(
    before: list[Updates], after: list[Updates]
) -> None:
    whole, epoch = Committed(PLAN), 0
    for updates in before:
        epoch += 1
        whole.apply(EpochRecord(epoch, 10.0 * epoch, {}, (), updates, {2: epoch // 2}))
    resumed = Committed(PLAN)
    resumed.take_data(unpack_plain(pack_plain(whole.as_data())))
    assert seen_of(resumed, 100.0) == seen_of(whole, 100.0)
    for updates in after:
        epoch += 1
        record = EpochRecord(epoch, 10.0 * epoch, {}, (), updates, {})
        for committed in (whole, resumed):
            committed.apply(record)
        assert seen_of(resumed, 200.0) == seen_of(whole, 200.0)


def test_plain_data_names_no_class() -> None:
    for data in (Committed(PLAN), np.uint64(1), Mode.ACTIVE):
        with pytest.raises(NotPlain):
            unpack_plain(pack_plain({"a": data}))
