"""One topology on one acker: epochs, batches in two phases, the fence, and the ledger behind them.

The module is pure: it has no I/O and no lock, and every call is told the time. The updates of an
execution (one batch, level and slot) are *staged*; they are applied when the batch is known to be
committed, which the first call for the next batch says, or the registration of an epoch that starts
later. XOR is its own inverse, so no update may be applied twice, or for an attempt that failed.

Updates that are too large for one call come in parts, in order; they are staged with the last part.
An attempt that ended before its last part has staged nothing.

An execution that stages a second time, as another attempt, may have other outputs than those that
were staged: its batch must not continue (*the fence*). An attempt that is refused never completes,
so staged updates are always those of the committed batch.

A loss (a restarted acker, or a batch that it did not hear in full) shows as a new *incarnation*.
With a journal of failures the trees are rebuilt from the saved state of the tasks; without one,
spouts fail the messages that are pending under another incarnation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from topo.errors import sentence_of
from topo.tracking.batches import Batches, Rate, Reports
from topo.tracking.exchange import (
    BeginAnswer,
    Cursor,
    Registration,
    StagedExecution,
    TrackingFigures,
)
from topo.tracking.ids import Updates, fresh_nonce
from topo.tracking.journal import FailureJournal
from topo.tracking.ledger import Ledger
from topo.tracking.plan import Mode
from topo.tracking.refusals import Refusal, Refused

MAX_PAYLOAD_BYTES = 64 << 20
_MOST_CHARS = 300  # of an error of a file system


@dataclass
class _Parts:
    """The parts that one attempt has sent so far."""

    nonce: int
    said: list[StagedExecution] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.said)

    def whole(self) -> StagedExecution:
        if len(self.said) == 1:
            return self.said[0]
        updates = Updates.concat([part.updates for part in self.said])
        return StagedExecution(self.nonce, updates, self.said[-1].payload, self.nbytes)


class Tracking:
    """The state of one topology on one acker."""

    def __init__(
        self, registration: Registration, now: float, journal: FailureJournal | None = None
    ) -> None:
        self._journal = journal
        self._batches: Batches[StagedExecution] = Batches(registration.plan, registration.mode)
        self._reports = Reports()
        self._rate = Rate()
        self._epoch = fresh_nonce() >> 16
        self._clock = self._previous_clock = 0.0
        self._registration = registration
        self._start_over(registration, now)
        self._open_epoch(registration)

    # -- epochs

    def register(self, new: Registration, now: float) -> None:
        """Begin an epoch; repeating the registration of the present epoch changes nothing."""
        old = self._registration
        if new.nonce == old.nonce:
            return
        now = max(now, self._clock)
        same = (new.run_id, new.shard, new.shards) == (old.run_id, old.shard, old.shards)
        if same and new.tasks == old.tasks and self._reaches(new.first_batch):
            if new.first_batch > self._next_batch:
                self._previous_clock = self._clock
                self._apply_staged(now)
            self._ledger.timeout_secs = new.plan.timeout_secs
        else:
            self._start_over(new, now)
        self._open_epoch(new)

    def _reaches(self, first_batch: int) -> bool:
        """True iff this acker has heard of exactly the batches before `first_batch`."""
        if first_batch == self._next_batch:
            return True
        return first_batch == self._next_batch + 1 and self._batches.is_complete

    def _start_over(self, registration: Registration, now: float) -> None:
        self._ledger = Ledger(registration.plan.timeout_secs, self._name_of)
        self._foretold: dict[int, str] = {}
        self._foretold_in = registration.first_batch  # spouts hear of them after this batch
        if self._journal is not None:
            self._foretold = self._journal.begin(registration.shard, registration.first_batch)
            self._ledger.foretell(self._foretold)
        self._incarnation = fresh_nonce()
        self._next_batch = registration.first_batch
        self._clock = self._previous_clock = max(now, self._previous_clock)

    def _open_epoch(self, registration: Registration) -> None:
        if self._journal is not None:
            self._journal.forget(registration.shard, registration.first_batch)
        self._registration = registration
        self._tasks = registration.tasks
        self._epoch = registration.epoch if registration.shard else self._epoch + 1
        self._next_batch = registration.first_batch
        self._batches = Batches(registration.plan, registration.mode, self._batches.mode_version)
        self._parts: dict[tuple[int, int], _Parts] = {}
        self._staged_bytes = 0
        self._poison = ""
        self._begun = False
        self._go = False

    # -- batches

    def begin(
        self, epoch: int, batch: int, slot: int, clock: float, cursors: Sequence[Cursor], now: float
    ) -> BeginAnswer:
        """Begin a slot's part of a batch; the cursors are those of its committed state."""
        if slot >= self._registration.plan.slots:
            raise Refused(Refusal.MALFORMED, f"the plan has no slot {slot}")
        for cursor in cursors:
            self._check_cursor(cursor)
        self._enter(epoch, batch, clock, now)
        verdicts = {}
        for cursor in cursors:
            heard = cursor.number if cursor.incarnation == self._incarnation else 0
            self._ledger.forget(cursor.task, heard)
            verdicts[cursor.task] = self._ledger.verdicts(cursor.task, heard)
        return BeginAnswer(
            incarnation=self._incarnation,
            clock=self._clock,
            previous_clock=self._previous_clock,
            mode=self._batches.begun_mode,
            mode_version=self._batches.begun_version,
            verdicts=verdicts,
            next_timeout=self._ledger.next_timeout(),
        )

    def stage(
        self,
        epoch: int,
        batch: int,
        level: int,
        slot: int,
        clock: float,
        execution: StagedExecution,
        busy: bool,
        now: float,
    ) -> float | None:
        """Stage an execution's updates; return the time of the next timeout."""
        plan = self._registration.plan
        if slot >= plan.slots or level >= plan.levels:
            raise Refused(Refusal.MALFORMED, f"the plan has no level {level}, slot {slot}")
        self._enter(epoch, batch, clock, now)
        before = self._batches.did((level, slot))
        if before is not None and before.nonce != execution.nonce:
            self._poison = f"slot {slot} of level {level} was executed twice in batch {batch}"
            raise Refused(Refusal.FENCE, self._poison)
        if before is None:
            parts = self._with_part(level, slot, execution)
            if len(parts.said) >= execution.parts:
                self._batches.stage((level, slot), parts.whole())
                try:
                    self._write_failures(batch)
                except BaseException:  # then it has not staged, and a repeated call tries again
                    self._batches.take_back((level, slot))
                    raise
                del self._parts[level, slot]
                self._go = self._go or (busy and level == 0)
        return self._ledger.next_timeout()

    def _write_failures(self, batch: int) -> None:
        """Write the failures of a batch to the journal once it is staged in full."""
        if self._journal is None or not self._batches.is_complete:
            return
        failures = {
            root: reason
            for _, staged in reversed(self._batches.staged)
            for root, reason in zip(
                staged.updates.fail_roots.tolist(), staged.updates.fail_reasons, strict=True
            )
        }
        if batch == self._foretold_in:
            failures = {**self._foretold, **failures}
        if not failures:
            return
        try:
            self._journal.write(self._registration.shard, batch, failures)
        except Exception as error:  # of whatever file system it is on
            why = f"{type(error).__name__}: {sentence_of(error)}"[:_MOST_CHARS]
            raise Refused(
                Refusal.JOURNAL, f"the failures of batch {batch} cannot be written: {why}"
            ) from error

    def _with_part(self, level: int, slot: int, said: StagedExecution) -> _Parts:
        """Add a part to those of its attempt, and return them all.

        Another attempt may begin before one has sent its last part. The earlier attempt is refused
        from then on, since the stored parts are not its own.
        """
        before = self._parts.get((level, slot))
        parts = before if before and before.nonce == said.nonce else _Parts(said.nonce)
        if said.part > len(parts.said):
            self._poison = f"slot {slot} of level {level} was executed by two attempts at a time"
            raise Refused(Refusal.FENCE, self._poison)
        if before and before is not parts:
            self._staged_bytes -= before.nbytes
        self._parts[level, slot] = parts
        if said.part == len(parts.said):
            parts.said.append(said)
            self._staged_bytes += said.nbytes
        return parts

    def should_go(self, epoch: int, batch: int, busy: bool, wake_at: float, now: float) -> bool:
        """Return True if the slots that wait in this batch are to resume."""
        self._enter(epoch, batch, now, now)
        if busy or self._batches.has_command or now >= self.wakes_at(wake_at):
            self._go = True
        return self._go

    def wakes_at(self, wake_at: float) -> float:
        """Return the time at which a tick or a timeout, on any shard, ends the waiting."""
        due = (self._registration.plan.next_tick(self._clock), self._ledger.next_timeout())
        return min([wake_at, *(time for time in due if time is not None)])

    def command(self, mode: Mode) -> int:
        """Set the mode from the next batch on; return the version of the command."""
        return self._batches.command(mode)

    def _enter(self, epoch: int, batch: int, clock: float, now: float) -> None:
        """Check a call's epoch and batch; the first call of a batch commits the one before."""
        if epoch != self._epoch:
            raise Refused(Refusal.EPOCH, f"epoch {epoch} is over; {self._epoch} is in force")
        if self._poison:
            raise Refused(Refusal.FENCE, self._poison)
        if batch not in (self._next_batch, self._next_batch + 1):
            which = "was applied already" if batch < self._next_batch else "is not the next one"
            raise Refused(
                Refusal.BATCH, f"batch {batch} {which}; batch {self._next_batch} is in work"
            )
        if batch == self._next_batch and self._begun:
            return
        # The coordinator reads the clock once a batch; other shards are told what it read.
        read = max(clock if self._registration.shard else now, self._clock)
        if batch > self._next_batch:
            if missing := self._batches.missing:
                level, slot = missing[0]
                self._poison = (
                    f"batch {batch} begins, but slot {slot} of level {level} said nothing of "
                    f"batch {self._next_batch}"
                )
                raise Refused(Refusal.FENCE, self._poison)
            self._previous_clock = self._clock
            self._apply_staged(read)
        self._clock = read
        self._begun = True
        self._go = False
        self._batches.begin()

    def _apply_staged(self, now: float) -> None:
        """Apply the staged batch, which is committed, then fail overdue messages."""
        executions = self._batches.take()
        self._parts.clear()
        self._staged_bytes = 0
        self._ledger.apply([staged.updates for _, staged in executions], now)
        self._ledger.expire(now)
        for execution, staged in executions:
            self._reports.add(self._next_batch, execution, staged.payload)
        # All of one batch are kept, whatever their size: none could be fetched yet.
        self._reports.lose(MAX_PAYLOAD_BYTES, self._next_batch)
        self._rate.add(sum(len(staged.updates) for _, staged in executions), now)
        self._next_batch += 1

    def _check_cursor(self, cursor: Cursor) -> None:
        if cursor.task not in self._tasks:
            raise Refused(Refusal.MALFORMED, f"task {cursor.task} is no spout task of this acker")
        if cursor.incarnation == self._incarnation:
            last = self._ledger.last_verdict(cursor.task)
            if cursor.number > last:
                raise Refused(
                    Refusal.MALFORMED,
                    f"spout task {cursor.task} has {last} verdicts, not {cursor.number}",
                )

    # -- figures

    def figures(
        self, now: float, waiting: int = 0, payloads_after: int | None = None
    ) -> TrackingFigures:
        """Return the figures, with the payloads after a number; those up to it are dropped."""
        return TrackingFigures(
            **vars(self._ledger.counts(now)),
            epoch=self._epoch,
            incarnation=self._incarnation,
            next_batch=self._next_batch,
            staged=[execution for execution, _ in self._batches.staged],
            poisoned=bool(self._poison),
            mode=self._batches.mode,
            mode_version=self._batches.mode_version,
            mode_version_begun=self._batches.begun_version,
            waiting=waiting,
            clock=self._clock,
            updates_per_sec=self._rate.per_sec(now),
            payloads=[] if payloads_after is None else self._reports.after(payloads_after),
            held_bytes=self.nbytes,
            payloads_lost=self._reports.lost,
        )

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def incarnation(self) -> int:
        return self._incarnation

    @property
    def clock(self) -> float:
        return self._clock

    @property
    def is_coordinator(self) -> bool:
        return self._registration.shard == 0

    @property
    def spout_tasks(self) -> frozenset[int]:
        """The spout tasks whose roots are on this acker."""
        return self._tasks

    @property
    def nbytes(self) -> int:
        """The bytes that are held for this topology."""
        return self._ledger.nbytes + self._staged_bytes + self._reports.nbytes

    def _name_of(self, task: int) -> str:
        return self._registration.plan.component_of(task)
