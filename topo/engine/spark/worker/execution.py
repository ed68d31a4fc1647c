"""The execution of one slot's part of a level: instances, their state, and calls to the acker.

Exactly-once depends on the order within an execution. The instances are those that the committed
state names, or are rebuilt from it. The frames sent and the state saved come from one run, and the
acker hears of it last: so the acker recognises a second run of the same execution.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topo.engine.spark.worker.header import BatchHeader
from topo.engine.spark.worker.messages import (
    COMMITTED,
    LAST_TICKED,
    Abandoned,
    Outcome,
    Payload,
    Restore,
    Work,
)
from topo.engine.spark.worker.relay import RelayLost
from topo.engine.spark.worker.report import Report
from topo.engine.spark.worker.rounds import TakenRound, drop_taken
from topo.engine.spark.worker.spool import each_frame
from topo.logs.capture import collected_lines
from topo.runtime.input_times import Marks
from topo.runtime.level import BatchEnd, SlotLevel
from topo.runtime.roundabout import is_too_full
from topo.runtime.slot import Batch, SlotTasks
from topo.tracking.client import BatchStart
from topo.tracking.exchange import Cursor
from topo.tracking.ids import Updates, fresh_nonce
from topo.tracking.plan import Mode
from topo.wire.frame import PackedFrame
from topo.wire.payload import MARKS
from topo.wire.rows import pack_rows, unpack_rows

if TYPE_CHECKING:
    from topo.engine.spark.worker.slot_runner import SlotRunner

_HELD_SECS = 0.05


@dataclass
class Instances:
    """The tasks of one level, and the execution that left their present state."""

    level: SlotLevel
    committed: bytes
    batch: int = -1
    """The last batch that they have executed."""
    epoch: int = -1
    """That in which they have executed it."""

    @property
    def host(self) -> SlotTasks:
        """The tasks by themselves."""
        return self.level.host

    @property
    def closed(self) -> bool:
        """True once the tasks are closed."""
        return self.level.is_closed


class Execution:
    """The state of one execution while it runs."""

    def __init__(
        self, runner: SlotRunner, work: Work, restore: Restore, abandoned: Abandoned
    ) -> None:
        self._runner = runner
        self._work = work
        self._restore = restore
        self._abandoned = abandoned
        self._plan = runner.plan
        self._polling = runner.polling
        self._client = runner.client(work.lease)
        self._keeps_state = self._plan.keeps_state(work.level)
        self.instances: Instances | None = None
        self._has_news = False
        self._is_too_full = False
        self._is_restored = False
        self._outcome = Outcome()
        self._marks: list[Marks] = []

    # -- level 0 ------------------------------------------------------------------------------

    def run_spouts(self) -> Outcome:
        work = self._work
        start, host = self._begin()
        self._runner.tell_committed(work.batch, work.lease.epoch)
        rounds = self._take_rounds(start.mode)
        # After the last tick no other is due.
        ending = start.mode in (Mode.LAST_TICK, Mode.CLOSE)
        before = start.clock if ending else start.previous_clock
        header = BatchHeader(Batch(work.batch, start.clock, before), start.mode)
        report = Report({})
        rows = [unpack_rows(payload) for payload in work.payloads if len(payload)]
        if rows:
            host = self._open()
            self._check_takes_rows()
        # A component that was never opened needs no close, and must not keep others from theirs.
        rests = start.mode != Mode.CLOSE if host is None else self._is_over(start.mode)
        if rests and not self._has_news and self._plan.tasks_at(0, work.slot):
            self._polling.wait(self._client, start, work.slot, None, self._abandoned)
            report.waited_secs = self._polling.waited_secs
        if host is not None and not self._closed:
            self._runner.log_requests.meet(host.tasks.values())
            self._polling.budget.adapt(time.monotonic())
            host.begin(header.batch)
            if self._client.lease.rebuilds:
                host.meet_ackers(self._runner.incarnations)  # of bolts fused with the spouts
            host.set_active(start.mode == Mode.ACTIVE)
            self._has_news |= self._deliver(host, start)
            for task, part in rows:
                report.tuples += host.receive(task, part)
            if host.spouts:
                self._poll(host, start, report)
        resting = start.mode == Mode.ACTIVE and not self._has_news
        if resting and (host is None or not host.spouts):
            self._wait_for_time(start, report)
        for level in range(1, len(self._plan.levels)):
            self._outcome.sends.append((work.slot, level, header.pack()))
        self._send_rounds(rounds)
        return self._finish(host, header, [], report)

    def _take_rounds(self, mode: Mode) -> list[TakenRound]:
        """Take what goes round in this slot; the batch does not wait if there is something."""
        if mode == Mode.CLOSE or not self._plan.has_loops:
            return []
        epoch = self._work.lease.epoch
        rounds = self._runner.rounds(self._work.batch, epoch)
        self._has_news |= bool(rounds) or (self._runner.is_first_of(epoch) and rounds is None)
        nbytes = sum(each.round.nbytes for each in rounds or ())
        self._is_too_full = is_too_full(nbytes, self._runner.most_loop_mb)
        return rounds or []

    def _send_rounds(self, rounds: Iterable[TakenRound]) -> None:
        """Send down what goes round, and tell the levels that made it."""
        with self._runner.spool.begin(self._work.batch) as bundle:
            for each in rounds:
                self._outcome.sends.append((self._work.slot, each.level, each.pack()))
                for frame in each.round.frames:
                    level, slot = self._plan.place_of(frame.target_task)
                    bundle.add(slot, level, frame.data)
                    self._polling.budget.moved(len(frame.data))
        self._outcome.sends += bundle.sends()

    def _begin(self) -> tuple[BatchStart, SlotTasks | None]:
        """Begin the batch; return also the tasks, or None if the topology was never active."""
        work = self._work
        tasks = self._plan.tasks_at(0, work.slot)
        if self._find_instances() is None and not work.committed:
            spouts = [task for task in tasks if task in self._client.lease.plan.spout_tasks]
            start = self._client.begin(work.batch, work.slot, [Cursor(t, 0, 0) for t in spouts])
            if start.mode != Mode.ACTIVE or not tasks:
                return start, None
            return start, self._open()
        host = self._open()
        cursors = [
            Cursor(spout.id, int(spout.incarnation or 0), spout.cursor) for spout in host.spouts
        ]
        return self._client.begin(work.batch, work.slot, cursors), host

    def _deliver(self, host: SlotTasks, start: BatchStart) -> bool:
        """Deliver verdicts to the spouts; return True if there were any."""
        before = host.pending
        for task, verdicts in start.verdicts.items():
            incarnation = str(start.incarnations[task])
            host.deliver(task, incarnation, verdicts, rebuilds=self._client.lease.rebuilds)
        return host.pending != before or any(map(len, start.verdicts.values()))

    def _poll(self, host: SlotTasks, start: BatchStart, report: Report) -> None:
        asking = start.mode == Mode.ACTIVE and not self._is_too_full
        began = time.monotonic()
        report.tuples += self._polling.fill(host) if asking else 0
        self._has_news |= self._says_exhausted(host) | self._ends_early(host)
        self._has_news |= host.is_waiting  # for what `open` or `activate` emitted
        # A spout at its pending limit hears in the next batch what has become of its messages.
        self._has_news |= self._is_restored and host.pending > 0
        # Until the batch commits, the driver counts the delivered verdicts as unheard.
        ends = start.mode in (Mode.LAST_TICK, Mode.CLOSE)
        if not (report.tuples or self._has_news or ends):
            asked = host if asking else None
            slot, abandoned = self._work.slot, self._abandoned
            report.tuples = self._polling.wait(
                self._client,
                start,
                slot,
                asked,
                abandoned,
                lambda: self._says_exhausted(host) | self._ends_early(host),
                self._runner.wakes_at(host) if asking else None,
            )
            report.waited_secs = self._polling.waited_secs
        if asking and (report.tuples or self._has_news):
            before = time.monotonic()
            report.tuples += self._polling.linger(host, began, self._abandoned)
            report.waited_secs += time.monotonic() - before

    def _check_takes_rows(self) -> None:
        """Hold the batch, until it is given up, if it has rows for spouts that are closed.

        Spark began it before the driver, which has seen all it needs, could stop the query; the
        next run of this checkpoint gets the rows.
        """
        while self._closed:
            self._check_wanted()
            time.sleep(_HELD_SECS)

    def _wait_for_time(self, start: BatchStart, report: Report) -> None:
        """Wait in a slot without spouts, if its bolts have something to do at a time to come.

        The slots with spouts wait as well, or have data, which ends this wait.
        """
        wake_at = self._runner.wakes_at(None)
        if wake_at is not None:
            self._polling.wait(
                self._client,
                start,
                self._work.slot,
                None,
                self._abandoned,
                lambda: self._runner.is_called,
                wake_at,
            )
            report.waited_secs = self._polling.waited_secs

    def _ends_early(self, host: SlotTasks) -> bool:
        """Return True if the batch is to end although no spout has emitted anything."""
        called = host.is_called or self._runner.is_called
        return self._says_stalled(host) | host.take_batch_ends() | called

    def _says_stalled(self, host: SlotTasks) -> bool:
        """Return True if the driver has yet to hear why spouts cannot emit, or that they can."""
        stalls = host.stalls
        said, self._runner.said_stalls = self._runner.said_stalls, stalls
        return stalls != said

    def _says_exhausted(self, host: SlotTasks) -> bool:
        """Return True if the driver has yet to hear that these spouts are exhausted."""
        exhausted = host.is_done
        said, self._runner.said_exhausted = self._runner.said_exhausted, exhausted
        return exhausted and not said

    # -- the others ---------------------------------------------------------------------------

    def run_bolts(self) -> Outcome:
        payloads = list(self._work.payloads)
        header = BatchHeader.find(payloads)
        payloads = self._take_marks(payloads)
        tasks = self._plan.tasks_at(self._work.level, self._work.slot)
        # A level that never ran is not opened to be closed. Only an active level gets a last tick.
        runs = header.mode in (Mode.ACTIVE, Mode.LAST_TICK) or payloads or self._work.committed
        if not tasks or (not runs and self._find_instances() is None):
            return self._finish(None, header, [], Report({}))
        host = self._open()
        if not self._closed:
            self._runner.log_requests.meet(host.tasks.values())
            host.begin(header.batch)
            if self._client.lease.rebuilds:
                host.meet_ackers(self._runner.incarnations)
            drop_taken(host, payloads, self._work.committed)
        return self._finish(host, header, payloads, Report({}))

    def _is_over(self, mode: Mode) -> bool:
        """True iff an earlier batch has done the one-time work of this mode."""
        known = self.instances
        return known is not None and (
            known.closed or (mode == Mode.LAST_TICK and known.level.had_last_tick)
        )

    # -- both ---------------------------------------------------------------------------------

    def _find_instances(self) -> Instances | None:
        """Return the present instances if they are in the committed state, else None.

        Instances that have executed this very batch do not count, even without saved changes: the
        batch was rolled back, and they may have had their last tick in it, or have been closed.
        """
        found, work = self.instances, self._work
        if found is not None and (
            found.batch >= work.batch or (self._keeps_state and found.committed != work.committed)
        ):
            found = self.instances = None
        return found

    def _open(self) -> SlotTasks:
        found = self._find_instances()
        if found is None:
            runner, work = self._runner, self._work
            host = SlotTasks(runner.environment, self._plan.tasks_at(work.level, work.slot))
            records = self._restore() if work.committed else {}
            saved: dict[int, dict[str, bytes]] = {}
            for (task, name), record in records.items():
                saved.setdefault(task, {})[name] = bytes(record)
            host.open(saved)
            self._is_restored = bool(saved)
            level = SlotLevel(host, saved, had_last_tick=LAST_TICKED in records)
            found = self.instances = Instances(level, work.committed)
        elif not found.closed:  # of the committed state, which another epoch's level has not heard
            found.host.tell_committed()
        return found.host

    @property
    def _closed(self) -> bool:
        return self.instances is not None and self.instances.closed

    def _finish(
        self, host: SlotTasks | None, header: BatchHeader, payloads: list[Payload], report: Report
    ) -> Outcome:
        """Run the tasks over the arrived frames, save, and stage the updates at the acker."""
        work = self._work
        busy = False
        updates = Updates.empty()
        if host is not None and not self._closed:
            assert self.instances is not None
            level = self.instances.level
            self._run_tasks(level, header.mode, payloads, report)
            end = level.finish(header.mode)
            self._save(end)
            updates = end.updates
            report.metrics = end.metrics
            busy = bool(report.tuples) or not updates.is_empty
            report.note_spouts(host)
        busy |= self._has_news
        report.mode = header.mode
        self._runner.capture.move_to(report)
        report.lines = collected_lines()
        self._check_wanted()
        self._client.stage(
            header.batch.now,
            work.batch,
            work.level,
            work.slot,
            fresh_nonce(),
            updates,
            report.pack(self._runner.reports),
            busy,
        )
        return self._outcome

    def _run_tasks(
        self, slot_level: SlotLevel, mode: Mode, payloads: list[Payload], report: Report
    ) -> None:
        host = slot_level.host
        frames = map(PackedFrame.of, each_frame(payloads))
        more_came = bool(payloads) or report.tuples > 0
        with self._runner.spool.begin(self._work.batch) as bundle:
            for frame in slot_level.work(frames, mode, more_came=more_came, marks=self._marks):
                assert isinstance(frame, PackedFrame), "here nothing stays decoded"
                level, slot = self._plan.place_of(frame.target_task)
                bundle.add(slot, level, frame.data)
                self._polling.budget.moved(len(frame.data))
                self._check_wanted()
        self._outcome.sends += bundle.sends()
        for task, parts in host.take_handed_out().items():
            level = self._plan.sink_level(task)
            packed = [pack_rows(task, part) for part in parts]
            self._outcome.sends += [(self._work.slot, level, part) for part in packed]
            self._polling.budget.moved(sum(map(len, packed)))
        self._send_marks(host.marks)

    def _take_marks(self, payloads: list[Payload]) -> list[Payload]:
        """Take out the times that the slots of other levels have seen."""
        found = [payload for payload in payloads if payload[0] == MARKS]
        self._marks = [Marks.unpack(memoryview(payload)[1:]) for payload in found]
        return [payload for payload in payloads if payload[0] != MARKS] if found else payloads

    def _send_marks(self, marks: Marks) -> None:
        """Tell every slot of the levels below that reads in event time of the times seen here."""
        topology, level = self._runner.topology, self._work.level
        for deeper, placed in enumerate(self._plan.levels):
            timed = [one.id for one in placed if topology.component(one.id).timed]
            if deeper <= level or not timed:
                continue
            own = marks.only_for(timed)
            if own.highest or own.held or (level == 0 and own.asked):
                payload = bytes([MARKS]) + own.pack()
                self._outcome.sends += [(s, deeper, payload) for s in range(self._plan.slots)]

    def _save(self, end: BatchEnd) -> None:
        """Note what is to be written; of a last tick too, or another process would give it again.

        The note is of the same commit as the state after that tick.
        """
        outcome = self._outcome
        assert self.instances is not None
        if self._keeps_state and end.last_tick:
            outcome.writes.append((LAST_TICKED, b"\1"))
        elif self._keeps_state and end.last_tick is False:
            outcome.removes.append(LAST_TICKED)
        for task, changes in end.changes.items():
            outcome.writes += [((task, name), blob) for name, blob in changes.puts.items()]
            outcome.removes += [(task, name) for name in changes.deletes]
        if outcome.writes or outcome.removes:
            committed = os.urandom(8)
            outcome.writes.append((COMMITTED, committed))
            self.instances.committed = committed

    def _check_wanted(self) -> None:
        if self._abandoned():
            raise RelayLost("the worker that asked for this is gone")
