"""One slot's executions, without Spark: what is run twice, too late, or for nobody.

`Slot` plays Spark's part: it hands on what levels send, keeps committed records, and forgets what
an attempt that did not commit has left.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.conformance.doubles import Numbers, Total
from tests.wiring import line
from topo import BasicBolt, Bolt, Spout, Topology, Tuple, UncaughtError, bolt
from topo.engine.spark.driver.run_resources import tracking_plan
from topo.engine.spark.plan import make_plan
from topo.engine.spark.worker import polling
from topo.engine.spark.worker.messages import (
    COMMITTED,
    LAST_TICKED,
    Outcome,
    Payload,
    RecordKey,
    Work,
)
from topo.engine.spark.worker.polling import Polling
from topo.engine.spark.worker.relay import RelayLost
from topo.engine.spark.worker.report import Report
from topo.engine.spark.worker.run_spec import RunSpec
from topo.engine.spark.worker.slot_runner import SlotRunner
from topo.errors import AckerError
from topo.runtime.slot import full_conf
from topo.runtime.task import NOTE_BYTES
from topo.tracking.client import AckerControl, Lease
from topo.tracking.plan import Mode
from topo.tracking.server import AckerServer
from topo.tracking.transport import AckerTarget

CONF = full_conf(
    {
        "topology.workers": 1,
        "topology.batch.idle.ms": 1,
        "topology.batch.max.tuples": 2,
        "topology.enable.message.timeouts": False,
    }
)

Records = dict[RecordKey, bytes]


class Slot:
    """The only slot of a topology."""

    def __init__(self, target: AckerTarget, topology: Topology, *, capture: bool = True) -> None:
        self.plan = make_plan(topology, 1, CONF)
        captured = tuple(topology.components) if capture else ()
        self.spec = RunSpec("t", topology.to_bytes(), CONF, self.plan, captured)
        self.control = AckerControl(target)
        self.tracking = tracking_plan(topology, self.plan, CONF)
        self.committed: dict[int, Records] = {}
        self.restored: list[tuple[int, int]] = []  # batch, level
        self.next_batch = 0
        self.new_process()
        self.new_epoch()

    def new_process(self) -> None:
        self.runner = SlotRunner(self.spec, 0)

    def new_epoch(self, mode: Mode = Mode.ACTIVE) -> None:
        self.lease = self.control.register(self.tracking, self.next_batch, "run", mode)

    def execute(
        self,
        level: int,
        payloads: Sequence[Payload] = (),
        *,
        lease: Lease | None = None,
        abandoned: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        records = self.committed.get(level, {})

        def restore() -> Records:
            self.restored.append((self.next_batch, level))
            return {key: record for key, record in records.items() if key != COMMITTED}

        committed = records.get(COMMITTED, b"")
        work = Work(lease or self.lease, self.next_batch, level, 0, committed, list(payloads))
        return self.runner.execute(work, restore, abandoned)

    def levels(self, first: int = 0, sent: Sequence[Outcome] = ()) -> Iterator[Outcome]:
        """Run the levels one after the other, each on what those before it have sent."""
        outcomes = list(sent)
        for level in range(first, len(self.plan.levels)):
            mine = [data for o in outcomes for _, to, data in o.sends if to == level]
            outcomes.append(self.execute(level, mine))
            yield outcomes[-1]

    def commit(self, outcomes: Sequence[Outcome]) -> None:
        for level, outcome in enumerate(outcomes):
            records = self.committed.setdefault(level, {})
            for key in outcome.removes:
                records.pop(key, None)
            records.update({key: bytes(record) for key, record in outcome.writes})
        self.next_batch += 1

    def batch(self) -> None:
        self.commit(list(self.levels()))

    def emitted(self, component: str) -> list[list[Any]]:
        """Return the component's emits in all batches known to be committed."""
        reports = [Report.unpack(kept.payload) for kept in self.control.status(0).payloads]
        return [row for report in reports for name, _, _, rows in report.rows for row in rows
                if name == component]  # fmt: skip


@pytest.fixture
def target() -> Iterator[AckerTarget]:
    with AckerServer() as server:
        yield AckerTarget("t", "token", (server.address,), give_up_secs=1)


class Sums(Bolt):
    """Keeps two tuples at a time, and emits the sum of all; in its state, that is, exactly once."""

    outputs = ("sum",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.sum = 0
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)
        if len(self.kept) == 3:
            for kept in self.kept:
                self.sum += kept[0]
                self.ack(kept)
            self.emit([self.sum], anchors=[])
            self.kept = []


SUMS = [[3], [15], [36], [66]]


@pytest.fixture
def slot(target: AckerTarget) -> Slot:
    return Slot(target, line(Numbers(12), Sums()))


def finish(slot: Slot) -> None:
    """The rest of the twelve numbers, and two batches for the acks to be heard."""
    while len(slot.emitted("b1")) < len(SUMS) and slot.next_batch < 20:
        slot.batch()
    slot.batch()
    slot.batch()
    assert slot.emitted("s") == [[number] for number in range(12)]
    assert slot.emitted("b1") == SUMS
    status = slot.control.status()
    assert (status.pending, status.acked, status.failed_by) == (0, 12, {})


def test_instances_live_on_from_batch_to_batch(slot: Slot) -> None:
    finish(slot)
    assert slot.restored == []


def test_a_new_process_has_them_from_the_committed_state(slot: Slot) -> None:
    for _ in range(5):
        slot.batch()
        slot.new_process()
    finish(slot)
    assert {level for _, level in slot.restored} == {0, 1}


@pytest.mark.parametrize("level", [0, 1])
def test_what_was_executed_and_never_written_runs_again_in_a_new_epoch(
    slot: Slot, level: int
) -> None:
    """Spark's worker died between the slot's answer and the state store: Spark tries once more."""
    slot.batch()
    outcomes = list(slot.levels())
    sent = [data for _, to, data in outcomes[0].sends if to == level]
    for _ in range(3):
        with pytest.raises(AckerError, match=f"slot 0 of level {level} was executed twice") as no:
            slot.execute(level, sent)
        assert no.value.code == "acker-fence"
    with pytest.raises(AckerError, match="executed twice"):  # nor does the batch go on elsewhere
        slot.execute(0)
    slot.new_epoch()
    finish(slot)


def test_a_batch_that_ran_to_its_end_and_was_not_committed_leaves_no_trace(slot: Slot) -> None:
    for _ in range(5):
        list(slot.levels())
        slot.new_epoch()
        slot.batch()
    finish(slot)


def test_a_batch_that_was_committed_before_the_driver_knew_counts(slot: Slot) -> None:
    for _ in range(5):
        slot.batch()
        slot.new_epoch()
    finish(slot)


def test_a_worker_of_an_epoch_that_is_over_changes_nothing(slot: Slot) -> None:
    zombie = slot.lease
    slot.batch()
    (first, _) = slot.levels()
    slot.new_epoch()
    for level, sent in ((0, []), (1, [data for _, to, data in first.sends if to == 1])):
        with pytest.raises(AckerError, match="is over") as no:
            slot.execute(level, sent, lease=zombie)
        assert no.value.code == "acker-epoch"
    finish(slot)


def test_a_late_worker_of_a_committed_batch_changes_nothing(slot: Slot) -> None:
    outcomes = list(slot.levels())
    slot.commit(outcomes)
    slot.execute(0)  # by which the acker hears that the batch before has committed
    slot.next_batch -= 1
    with pytest.raises(AckerError, match="batch 0 was applied already"):
        slot.execute(1, [data for _, to, data in outcomes[0].sends if to == 1])
    slot.next_batch += 1
    slot.new_epoch()
    finish(slot)


def test_nobody_hears_of_work_whose_worker_has_gone(slot: Slot) -> None:
    """So Spark's next try is the first that the acker hears of: no epoch is lost to it."""
    slot.batch()
    with pytest.raises(RelayLost):
        slot.execute(0, abandoned=lambda: True)
    (first,) = [slot.execute(0)]
    sent = [data for _, to, data in first.sends if to == 1]
    with pytest.raises(RelayLost):
        slot.execute(1, sent, abandoned=lambda: True)
    slot.commit([first, slot.execute(1, sent)])
    finish(slot)


def test_a_lost_acker_fails_what_is_pending(slot: Slot) -> None:
    slot.batch()
    with AckerServer() as other:
        lost = slot.lease.incarnations
        slot.control = AckerControl(AckerTarget("t", "token", (other.address,)))
        slot.new_epoch()
        assert slot.lease.incarnations != lost
        slot.batch()
        slot.batch()
        (report, *_) = [Report.unpack(kept.payload) for kept in slot.control.status(0).payloads]
        assert report.metrics[1 + 1].failed_by == {"acker lost": 2}


def test_a_lost_acker_with_a_journal_rebuilds_what_is_pending(slot: Slot) -> None:
    slot.batch()
    with AckerServer() as other:
        slot.control = AckerControl(AckerTarget("t", "token", (other.address,)), rebuilds=True)
        slot.new_epoch()
        slot.batch()
        slot.batch()
        (report, *_) = [Report.unpack(kept.payload) for kept in slot.control.status(0).payloads]
        assert not report.metrics[1 + 1].failed_by
        while slot.next_batch < 12:
            slot.batch()
        status = slot.control.status()
        assert (status.pending, status.acked, status.failed_by) == (0, 12, {})


class LastTick(BasicBolt):
    """Keeps nothing that is saved; says when it has a tick."""

    outputs = ("tick",)

    def get_component_configuration(self) -> dict[str, Any]:
        return {"topology.tick.tuple.freq.secs": 1e6}

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            self.emit(["tick"])


class KeepsNothing(LastTick):
    stateless = True


@pytest.mark.parametrize("ticked", [LastTick(), KeepsNothing()])
def test_a_last_tick_comes_once_and_again_if_it_was_rolled_back(
    target: AckerTarget, ticked: BasicBolt
) -> None:
    slot = Slot(target, line(Numbers(2), ticked))
    slot.batch()
    slot.batch()
    slot.new_epoch(Mode.LAST_TICK)
    list(slot.levels())
    slot.new_epoch(Mode.LAST_TICK)
    for _ in range(3):
        slot.batch()
    assert slot.emitted("b1") == [["tick"]]


def test_a_last_tick_that_was_committed_does_not_come_again_in_another_process(
    target: AckerTarget,
) -> None:
    slot = Slot(target, line(Numbers(2), LastTick()))
    slot.batch()
    slot.batch()
    slot.new_epoch(Mode.LAST_TICK)
    slot.batch()
    slot.new_process()
    slot.batch()
    assert (slot.next_batch - 1, 1) in slot.restored
    slot.batch()
    assert slot.emitted("b1") == [["tick"]]


def test_what_gets_more_after_its_last_tick_has_another_one_to_come(target: AckerTarget) -> None:
    slot = Slot(target, line(Numbers(2), LastTick()))
    slot.new_epoch(Mode.LAST_TICK)
    slot.batch()  # the spout has yet to say something
    assert LAST_TICKED in slot.committed[1]
    slot.new_epoch()  # a driver that was started again, and so were the slots
    slot.new_process()
    slot.batch()
    assert LAST_TICKED not in slot.committed[1]
    slot.new_epoch(Mode.LAST_TICK)
    for _ in range(2):
        slot.batch()
    assert slot.emitted("b1") == [["tick"], ["tick"]]


def test_what_is_told_of_the_states_size_is_what_is_committed_of_it(target: AckerTarget) -> None:
    slot = Slot(target, line(Numbers(12), Sums()))
    stored: list[dict[int, int]] = []  # after each batch, by task
    for batch in range(6):
        if batch == 3:
            slot.new_process()
        slot.batch()
        sizes: dict[int, int] = {}
        for records in slot.committed.values():
            for (task, _), record in records.items():
                sizes[task] = sizes.get(task, 0) + len(record)
        stored.append(sizes)
    told: dict[int, int] = {}
    compared = 0
    for kept in slot.control.status(0).payloads:
        for task, metrics in Report.unpack(kept.payload).metrics.items():
            told[task] = metrics.saved_bytes or told[task]
            assert told[task] == stored[kept.batch][task]
            compared += 1
    assert compared == 5 * 2  # all batches but the one that may not be committed


class Raises(BasicBolt):
    def __init__(self, path: Path) -> None:
        self.path = path

    def execute(self, tup: Tuple) -> None:
        with self.path.open("a") as calls:
            calls.write(f"{tup[0]};")
        raise ValueError("once is enough")


def test_an_error_is_not_provoked_again_by_sparks_next_tries(
    target: AckerTarget, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    slot = Slot(target, line(Numbers(1), Raises(calls)))
    first = slot.execute(0)
    for _ in range(4):
        with pytest.raises(UncaughtError, match="once is enough"):
            slot.execute(1, [data for _, to, data in first.sends if to == 1])
    assert calls.read_text() == "0;"


@bolt(outputs=("num",))
def twice(tup: Tuple) -> Iterator[list[int]]:
    yield [tup[0]]
    yield [tup[0]]


def test_a_level_that_keeps_nothing_has_nothing_to_write(target: AckerTarget) -> None:
    slot = Slot(target, line(Numbers(4), twice))
    for _ in range(4):
        outcomes = list(slot.levels())
        assert (outcomes[1].writes, outcomes[1].removes) == ([], [])
        slot.commit(outcomes)
    assert slot.emitted("b1") == [[number // 2] for number in range(8)]


def test_an_inactive_topology_opens_nothing(target: AckerTarget) -> None:
    slot = Slot(target, line(Numbers(4), Sums()))
    slot.new_epoch(Mode.INACTIVE)
    slot.batch()
    assert slot.committed == {0: {}, 1: {}}


def test_what_was_never_opened_does_not_wait_to_be_closed(
    target: AckerTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = Slot(target, line(Numbers(4), Sums()))
    waited_in = note_waits(slot, monkeypatch)
    for mode in (Mode.DRAIN, Mode.CLOSE):
        slot.new_epoch(mode)
        slot.batch()
    assert waited_in == [0]  # it waits while it drains, for what there may be to do


def test_a_report_that_is_too_large_for_the_acker_goes_by_a_file(tmp_path: Path) -> None:
    small, large = Report({}, 1), Report({}, 2, rows=[("b", "default", 1, [["x" * 2_000_000]])])
    assert Report.unpack(small.pack(str(tmp_path))) == small
    assert list(tmp_path.iterdir()) == []
    packed = large.pack(str(tmp_path))
    assert len(packed) < 1000 < len(large.pack())
    assert Report.unpack(packed) == large
    assert list(tmp_path.iterdir()) == []


def note_waits(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches that wait for something to do; without really waiting."""
    waited_in: list[int] = []

    def note(*_: object) -> int:
        waited_in.append(slot.next_batch)
        return 0

    monkeypatch.setattr(Polling, "wait", note)
    return waited_in


def test_a_batch_that_has_heard_verdicts_does_not_wait(
    target: AckerTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = Slot(target, line(Numbers(2), Total()))
    slot.batch()
    slot.control.command(Mode.DRAIN)
    waited_in = note_waits(slot, monkeypatch)
    for _ in range(3):
        slot.batch()
    assert slot.control.status().acked == 2
    assert waited_in == [2, 3]  # in batch 1 the spout's acks were news, to be committed at once


def test_a_batch_that_begins_with_restored_messages_does_not_wait(
    target: AckerTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = Slot(target, line(Numbers(2), Sums()))  # which holds both of them
    slot.batch()
    waited_in = note_waits(slot, monkeypatch)
    slot.batch()
    slot.new_process()
    slot.new_epoch()
    slot.batch()  # what became of them before is told in the next one
    slot.batch()
    assert waited_in == [1, 3]


def test_a_slot_that_waits_for_data_executes_nothing(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = mmap.mmap(-1, NOTE_BYTES)
    monkeypatch.setattr("topo.runtime.slot._note", note)
    executed: list[bytes] = []

    def wait(*_: object) -> int:
        executed.append(note[:].rstrip(b"\0"))
        return 0

    monkeypatch.setattr(Polling, "wait", wait)
    while not executed:
        slot.batch()
    assert executed == [b""]


class FailsAll(Bolt):
    def execute(self, tup: Tuple) -> None:
        raise ValueError(f"bad row {tup[0]}")


class KeepsAll(Bolt):
    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)


def large_batches(monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    monkeypatch.setattr(polling, "_FIRST_BUDGET", 5000)
    for key, value in {"topology.batch.max.tuples": 5000, **more}.items():
        monkeypatch.setitem(CONF, key, value)


def failed_in(slot: Slot, kind: str) -> tuple[int, int]:
    """Return the number of errors of this kind, and the size of the largest report."""
    payloads = [kept.payload for kept in slot.control.status(0).payloads]
    metrics = [m for payload in payloads for m in Report.unpack(payload).metrics.values()]
    count = sum(error.count for m in metrics for error in m.errors if error.kind == kind)
    return count, max(map(len, payloads))


def test_a_batch_in_which_all_fails_has_a_small_report(
    target: AckerTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    large_batches(monkeypatch, **{"topology.uncaught.error": "fail"})
    slot = Slot(target, line(Numbers(5000), FailsAll()), capture=False)
    for _ in range(4):
        slot.batch()
    assert slot.control.status().failed_by == {"failed": 5000}
    for kind in ("uncaught", "failed"):
        count, largest = failed_in(slot, kind)
        assert count == 5000
        assert largest < 200_000


def test_what_an_acker_that_is_lost_fails_has_a_small_report(
    target: AckerTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    large_batches(monkeypatch)
    slot = Slot(target, line(Numbers(5000), KeepsAll()), capture=False)
    slot.batch()
    with AckerServer() as other:
        slot.control = AckerControl(AckerTarget("t", "token", (other.address,)))
        slot.new_process()
        slot.new_epoch()
        slot.batch()
        slot.batch()
        count, largest = failed_in(slot, "failed")
    assert count == 5000
    assert largest < 5_000


class Says(Bolt):
    """Says what is done with it."""

    said: ClassVar[list[str]] = []

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.said.append("prepare")

    def execute(self, tup: Tuple) -> None:
        self.ack(tup)

    def cleanup(self) -> None:
        self.said.append("cleanup")


def test_what_was_never_active_is_not_woken_to_be_closed(
    target: AckerTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = Slot(target, line(Numbers(4), Says()))
    note_waits(slot, monkeypatch)
    for mode in (Mode.INACTIVE, Mode.DRAIN, Mode.CLOSE):
        slot.new_epoch(mode)
        slot.batch()
    assert Says.said == []
    for mode in (Mode.ACTIVE, Mode.DRAIN, Mode.CLOSE):
        slot.new_epoch(mode)
        slot.batch()
    assert Says.said == ["prepare", "cleanup"]


class Hears(Bolt):
    """Emits the sum of all; writes down of which batch it hears, with what it had then."""

    outputs = ("sum",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.sum = 0

    def execute(self, tup: Tuple) -> None:
        self.sum += tup[0]
        self.emit([self.sum], anchors=tup)
        self.ack(tup)

    def committed(self, batch_id: int) -> None:
        with open(self.context.conf["heard"], "a") as heard:
            heard.write(f"{self.context.checkpoint_id} {batch_id} {self.sum}\n")


@pytest.fixture
def hearing(
    target: AckerTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Slot, Callable[[], list[list[str]]]]:
    file = tmp_path / "heard"
    file.touch()
    monkeypatch.setitem(CONF, "heard", str(file))
    slot = Slot(target, line(Numbers(8), Hears()))
    return slot, lambda: [text.split() for text in file.read_text().splitlines()]


def test_a_level_hears_of_its_batch_when_the_next_one_begins(
    hearing: tuple[Slot, Callable[[], list[list[str]]]],
) -> None:
    slot, heard = hearing
    slot.batch()
    assert heard() == []
    slot.execute(0)  # level 1 is not executed in this batch yet
    assert heard() == [["run", "0", "1"]]
    slot.new_epoch()
    slot.batch()
    assert heard() == [["run", "0", "1"]]


def test_a_new_process_hears_of_the_last_batch_again(
    hearing: tuple[Slot, Callable[[], list[list[str]]]],
) -> None:
    slot, heard = hearing
    slot.batch()
    slot.new_process()
    slot.batch()
    assert heard() == [["run", "0", "1"]]
    slot.new_process()
    slot.batch()
    assert heard() == [["run", "0", "1"], ["run", "1", "6"]]


def test_what_was_rolled_back_is_never_told_that_it_is_committed(
    hearing: tuple[Slot, Callable[[], list[list[str]]]],
) -> None:
    """The batch is done again by another process, and this one goes on with what it did."""
    slot, heard = hearing
    slot.batch()
    first = slot.runner
    list(slot.levels())
    slot.new_process()
    slot.new_epoch()
    slot.batch()
    slot.runner = first
    slot.new_epoch()
    slot.execute(0)
    assert [batch for _, batch, _ in heard()] == ["0", "0"]  # by the two processes
    slot.new_epoch()
    slot.batch()
    assert [row[1:] for row in heard()] == [["0", "1"], ["0", "1"], ["1", "6"]]


class EmitsEarly(Spout):
    """Emits before it is asked, and has nothing when it is."""

    outputs = ("x",)

    def __init__(self, where: str) -> None:
        self.where = where

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        if self.where == "open":
            self.emit(["hello"])

    def activate(self) -> None:
        if self.where == "activate":
            self.emit(["hello"])

    def next_tuple(self) -> None:
        pass


@pytest.mark.parametrize("where", ["open", "activate"])
def test_what_a_spout_emits_before_it_is_asked_does_not_wait(
    target: AckerTarget, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(*_: Any) -> int:
        raise AssertionError("the batch waits for data, which it has")

    monkeypatch.setattr(Polling, "wait", wait)
    slot = Slot(target, line(EmitsEarly(where), Total()))
    slot.commit(list(slot.levels()))
