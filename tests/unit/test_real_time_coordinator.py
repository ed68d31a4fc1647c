"""The coordinator of real-time mode beside slots that are played by the test."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.test_real_time_streams import Loop
from tests.unit.test_real_time_work import Pass, plan
from tests.wiring import line
from topo.engine.spark.realtime import coordinator, records
from topo.engine.spark.realtime.coordinator import Coordinator
from topo.engine.spark.realtime.epochs import Committed, EpochRecord, Staged
from topo.engine.spark.realtime.messages import (
    Kind,
    SlotSetup,
    pack_levels,
    pack_staged,
    unpack_committed,
    unpack_cut,
    unpack_start,
    unpack_value,
    unpack_verdicts,
)
from topo.engine.spark.realtime.records import Values, read_values
from topo.engine.spark.realtime.store import EpochStore
from topo.engine.spark.realtime.stream import connect
from topo.engine.spark.worker.run_spec import RunSpec
from topo.errors import CheckpointError
from topo.runtime.slot import full_conf
from topo.testing import FeederSpout
from topo.tracking.clock import SteadyClock
from topo.tracking.ids import Updates, root_id
from topo.tracking.plan import Mode, TrackingPlan
from topo.wire.column import dump

PLAN = plan()
LEVELS = range(len(PLAN.levels))
SPOUT = PLAN.component("s").tasks[0]
START = 1_800_000_000.0
TRACKING = TrackingPlan(len(LEVELS), 1, (SPOUT,), {}, timeout_secs=30.0)


class Times:
    """The two clocks of a machine, moved by hand."""

    def __init__(self) -> None:
        self.wall, self.monotonic = START, 50.0
        self.clock = SteadyClock(lambda: self.wall, lambda: self.monotonic)

    def pass_by(self, secs: float, set_by: float = 0.0) -> None:
        self.monotonic += secs
        self.wall += secs + set_by


class PlayedSlot:
    """A slot's process as the coordinator hears it; it has all levels."""

    def __init__(self, address: str) -> None:
        self._loop = Loop()
        self._came: list[tuple[int, bytes]] = []
        self.values = Values()
        self.most_bytes = 0
        self.stream = connect(address, "token", 0, self._loop.selector)
        self.stream.listen(lambda: self._came.extend(self.stream.receive()))

    def say(self, kind: Kind, data: bytes = b"") -> None:
        self.stream.send(kind, data)
        self.stream.flush()

    def await_kind(self, kind: Kind) -> bytes:
        """Return the next message of this kind; those before it are dropped."""
        found: list[bytes] = []

        def has_come() -> bool:
            while self._came and not found:
                key, data = self._came.pop(0)
                self.most_bytes = max(self.most_bytes, len(data))
                if key == Kind.VALUE:
                    self.values.add(*unpack_value(data))
                if key == kind:
                    found.append(data)
            return bool(found)

        self._loop.until(has_come)
        return found[0]

    def has_come(self, kind: Kind) -> bool:
        return any(key == kind for key, _ in self._came)

    def get_ready(self) -> None:
        self.await_kind(Kind.SETUP)
        self.say(Kind.WANT, pack_levels(LEVELS))
        self.start = unpack_start(self.await_kind(Kind.START))
        for level in LEVELS:
            self.say(Kind.READY, dump((level, {SPOUT: 0} if level == 0 else {})))
        self.await_kind(Kind.GO)
        self._end_epoch(None, b"")  # the first one says that everybody is there

    def stage(self, epoch: int, updates: Updates | None = None, report: bytes = b"") -> None:
        for level in LEVELS:
            staged = Staged(updates=updates or Updates(), report=report)
            self.say(Kind.STAGED, pack_staged(epoch, level, staged))
            updates, report = None, b""

    def epoch(self, updates: Updates | None = None, report: bytes = b"") -> tuple[float, Any]:
        """Go through an epoch; return its time, and the verdicts that came with its commit."""
        self.say(Kind.NEWS)
        return self._end_epoch(updates, report)

    def _end_epoch(self, updates: Updates | None, report: bytes) -> tuple[float, Any]:
        number, _, clock = unpack_cut(self.await_kind(Kind.CUT))
        self.stage(number, updates, report)
        committed, _, verdicts = unpack_committed(self.await_kind(Kind.COMMITTED))
        assert committed == number
        return clock, unpack_verdicts(verdicts)[SPOUT] if verdicts else None

    def close(self) -> None:
        self.stream.close()
        self._loop.selector.close()


class Play:
    """A coordinator with what it needs, and the slot."""

    def __init__(
        self, directory: Path, store: EpochStore | None = None, *, shares_files: bool = True
    ) -> None:
        self.times = Times()
        self._opened = ExitStack()
        if store is not None:
            self._opened.callback(store.close)
        conf = full_conf({})
        topology = line(FeederSpout(["num"]), Pass())
        spec = RunSpec("t", topology.to_bytes(), conf, PLAN)
        self._address = str(directory / "c")
        self.coordinator = Coordinator(
            PLAN,
            TRACKING,
            Committed(TRACKING),
            store,
            mode=Mode.ACTIVE,
            period_secs=0.0,
            incarnation="i",
            address=self._address,
            token="token",
            setup=lambda slot: SlotSetup(spec, slot, tuple(LEVELS), False, ()),
            clock=self.times.clock,
            shares_files=shares_files,
        )

    def slot(self) -> PlayedSlot:
        """Start the coordinator, and return a slot that is connected."""
        self.coordinator.start()
        self._opened.callback(self.coordinator.close)
        slot = PlayedSlot(self._address)
        self._opened.callback(slot.close)
        return slot

    def await_end(self) -> None:
        """Wait until the coordinator has come to its end."""
        self.coordinator.join(60)
        assert not self.coordinator.is_alive()

    def close(self) -> None:
        with suppress(OSError):
            self._opened.close()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    made = Play(tmp_path)
    yield made
    made.close()


def emitted(number: int) -> Updates:
    roots, edges = np.array([root_id(SPOUT, number)], np.uint64), np.array([5], np.uint64)
    return Updates(init_roots=roots, init_values=edges)


# -- the clock ------------------------------------------------------------------------------------


def test_nothing_times_out_because_the_wall_clock_was_set_ahead(play: Play) -> None:
    slot = play.slot()
    slot.get_ready()
    began, _ = slot.epoch(emitted(1))
    play.times.pass_by(3.0, set_by=3600.0)
    clock, verdicts = slot.epoch()
    assert verdicts is None
    assert clock - began == pytest.approx(3.0, abs=0.31)
    assert play.coordinator.status().pending == 1
    assert play.coordinator.status().oldest_secs < 4


def test_timeouts_come_although_the_wall_clock_was_set_back(play: Play) -> None:
    slot = play.slot()
    slot.get_ready()
    began, _ = slot.epoch(emitted(1))
    play.times.pass_by(20.0, set_by=-3600.0)
    clock, verdicts = slot.epoch()
    assert verdicts is None
    assert clock - began == pytest.approx(18.0)
    play.times.pass_by(20.0)
    _, verdicts = slot.epoch()
    assert list(verdicts.failed()) == [(1, "timeout after 30 s")]


def test_slots_are_told_the_clock_before_they_begin(play: Play) -> None:
    slot = play.slot()
    play.times.pass_by(5.0)
    slot.get_ready()
    assert slot.start.now == START + 5.0
    assert slot.start.clock == 0.0  # nothing was committed


def test_a_resumed_run_begins_no_earlier_than_its_last_commit() -> None:
    times = Times()
    times.clock.reach(START + 3600)
    assert times.clock() == START + 3600
    times.pass_by(10.0)
    assert times.clock() == pytest.approx(START + 3600 + 9)  # it waits for the wall clock, moving


# -- user code that takes its time ----------------------------------------------------------------


def turns_taken(slot: PlayedSlot) -> None:
    """Return once the coordinator has taken in what the slot said, and looked at the time."""
    for _ in range(2):  # each is answered in a turn of its own
        slot.say(Kind.WANT, pack_levels([]))
        slot.await_kind(Kind.START)


def test_a_prepare_may_take_any_time_and_the_reason_tells_of_it(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = play.slot()
    slot.await_kind(Kind.SETUP)
    slot.say(Kind.PREPARING, pack_levels(LEVELS))
    turns_taken(slot)
    monkeypatch.setattr(coordinator, "START_SECS", -1.0)  # it waits for nobody any more
    turns_taken(slot)
    assert play.coordinator.preparing.startswith("slot 0 has been preparing 's'")
    assert play.coordinator.failure is None
    slot.say(Kind.PREPARED, pack_levels(LEVELS))  # and now Spark's tasks do not come
    play.await_end()
    assert "not ready after -1 s: level 0 of slot 0" in str(play.coordinator.failure)


def test_an_epoch_may_last_as_long_as_a_prepare_in_it(play: Play) -> None:
    slot = play.slot()
    slot.get_ready()
    slot.say(Kind.NEWS)
    slot.await_kind(Kind.CUT)
    slot.say(Kind.PREPARING, pack_levels([1]))
    turns_taken(slot)
    play.coordinator._patience_secs = -1.0
    turns_taken(slot)
    assert play.coordinator.failure is None
    slot.say(Kind.PREPARED, pack_levels([1]))
    play.await_end()
    assert "epoch 2 has not ended for -1 s: level 0 of slot 0" in str(play.coordinator.failure)


# -- reports --------------------------------------------------------------------------------------


def test_no_epoch_is_cut_while_too_many_reports_wait(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_MOST_REPORT_BYTES", 1000)
    slot = play.slot()
    slot.get_ready()
    slot.epoch(report=bytes(600))
    slot.epoch(report=bytes(600))
    slot.say(Kind.NEWS)
    turns_taken(slot)
    assert not slot.has_come(Kind.CUT)
    reports = play.coordinator.status(0).payloads
    assert [len(report.payload) for report in reports] == [600, 600]
    play.coordinator.status(reports[-1].number)  # now the run has them
    slot.await_kind(Kind.CUT)


# -- saved state ----------------------------------------------------------------------------------


def save(directory: Path, values: Mapping[tuple[int, str], bytes]) -> EpochStore:
    """Return a log of one epoch in which these values were saved."""
    store = EpochStore(directory)
    committed = store.recover(Committed(TRACKING))
    store.append(EpochRecord(1, START, values, (), Updates(), {}), committed)
    return store


BOLT = PLAN.component("b1").tasks[0]
SAVED = {(BOLT, "state/0"): bytes(range(256)) * 50_000, (BOLT, "empty"): b"", (99, "other"): b"x"}


def test_slots_of_one_machine_read_saved_values_themselves(tmp_path: Path) -> None:
    with closing(Play(tmp_path, save(tmp_path / "epochs", SAVED))) as play:
        slot = play.slot()
        slot.get_ready()
        start = slot.start
        assert start.saved == {}
        read = read_values(Path(start.directory), start.places)
        assert read == {BOLT: {"state/0": SAVED[BOLT, "state/0"], "empty": b""}}


def test_other_slots_are_sent_saved_values_in_pieces_as_fast_as_they_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PIECE_BYTES", 100_000)
    monkeypatch.setattr(coordinator, "PIECE_BYTES", 100_000)
    store = save(tmp_path / "epochs", SAVED)
    with closing(Play(tmp_path, store, shares_files=False)) as play:
        slot = play.slot()
        slot.get_ready()
        assert slot.start.directory == ""
        assert slot.values.take() == {BOLT: {"state/0": SAVED[BOLT, "state/0"], "empty": b""}}
        assert slot.most_bytes < 101_000


@pytest.mark.parametrize("what", ["shorter", "gone"])
def test_saved_values_that_cannot_be_read_are_told_with_their_file(
    tmp_path: Path, what: str
) -> None:
    with closing(save(tmp_path, SAVED)) as store:
        places = store.places([BOLT])
        (path,) = tmp_path.glob("*.log")
        os.truncate(path, 1000) if what == "shorter" else path.unlink()
        with pytest.raises(CheckpointError, match="saved state cannot be read") as raised:
            read_values(tmp_path, places)
        assert raised.value.at == str(path)
