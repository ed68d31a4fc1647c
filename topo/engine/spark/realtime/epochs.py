"""Decides when epochs end, and when one is committed: the coordinator's rules, without its I/O.

An epoch is what a micro-batch is elsewhere: the unit that is saved, applied to the ledger and
reported as a whole. It ends some milliseconds after the one before, if anything has happened at
all, and never before the one before is committed. It is complete when every slot has staged every
level; then it becomes one `EpochRecord`, is made durable, and is applied to what is `Committed`.

`Committed` changes by records alone, and a record says what the time was. So a log that is read
again leads to the same ledger, verdict by verdict: messages that are pending survive the driver.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from topo.errors import EngineError
from topo.tracking.batches import Batches
from topo.tracking.ids import Updates
from topo.tracking.ledger import Ledger
from topo.tracking.plan import Mode, TrackingPlan
from topo.tracking.verdicts import Verdicts

Key = tuple[int, str]
"""A task and a name: what a record is filed under."""


class EpochRefused(EngineError):
    """A slot said something that does not belong to the epoch in work."""

    code = "epoch-refused"


@dataclass(frozen=True)
class Staged:
    """The changes and updates of one level of one slot in an epoch."""

    puts: Mapping[Key, bytes] = field(default_factory=dict)
    deletes: Collection[Key] = ()
    updates: Updates = field(default_factory=Updates)
    cursors: Mapping[int, int] = field(default_factory=dict)
    """By spout task, the number of the last verdict that it had heard."""
    report: bytes = b""
    moved: int = 0
    """How many bytes of tuples it has sent."""


@dataclass(frozen=True)
class EpochRecord:
    """A complete epoch, as it is written to the log."""

    epoch: int
    clock: float
    puts: Mapping[Key, bytes]
    deletes: Collection[Key]
    updates: Updates
    cursors: Mapping[int, int]


class Committed:
    """The last committed epoch, and the ledger as of then."""

    def __init__(self, plan: TrackingPlan, epoch: int = 0) -> None:
        self.epoch = epoch
        self.clock = 0.0
        self.ledger = Ledger(plan.timeout_secs, plan.component_of)

    def apply(self, record: EpochRecord) -> None:
        """Take in the next epoch."""
        if record.epoch != self.epoch + 1:
            raise EpochRefused(f"epoch {record.epoch} does not follow epoch {self.epoch}")
        self.ledger.apply(record.updates, record.clock)
        self.ledger.expire(record.clock)
        for task, number in record.cursors.items():
            self.ledger.forget(task, number)
        self.epoch, self.clock = record.epoch, record.clock

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, for a snapshot."""
        return {"epoch": self.epoch, "clock": self.clock, "ledger": self.ledger.as_data()}

    def take_data(self, data: Mapping[str, Any]) -> None:
        """Take over what `as_data` gave; nothing was applied before."""
        self.epoch, self.clock = data["epoch"], data["clock"]
        self.ledger.take_data(data["ledger"])


@dataclass(frozen=True)
class Cut:
    """An order to the slots: the epoch ends here, in this mode, at this time."""

    epoch: int
    mode: Mode
    clock: float


class Epochs:
    """The epoch in work, and when it ends.

    `now` is a monotonic time, in seconds; `clock` what the run's steady clock shows, by which ticks
    and timeouts go.
    """

    def __init__(
        self, plan: TrackingPlan, committed: Committed, mode: Mode, period_secs: float
    ) -> None:
        self.committed = committed
        self.batches: Batches[Staged] = Batches(plan, mode)
        self._period = period_secs
        self._next_cut = -math.inf
        self._has_news = True  # the first epoch says that everybody is there
        self._cut: Cut | None = None
        self._pushed: dict[int, int] = {}

    # -- pacing -------------------------------------------------------------------------------

    def note_news(self) -> None:
        """Remember that something has happened that an epoch has to save or tell."""
        self._has_news = True

    def due_at(self, now: float, clock: float) -> float:
        """Return when the present epoch is to end: `now` or later, infinity if nothing is known."""
        if self._cut is not None:
            return math.inf
        if self._has_news or self.batches.has_command:
            return max(now, self._next_cut)
        timeout = self.committed.ledger.next_timeout()
        if timeout is None:
            return math.inf
        return max(now + timeout - clock, self._next_cut)

    def cut(self, now: float, clock: float) -> Cut:
        """End the present epoch."""
        if self._cut is not None:
            raise EpochRefused(f"epoch {self._cut.epoch} is not committed yet")
        self._has_news = False
        self._next_cut = now + self._period
        mode = self.batches.begin()
        self._cut = Cut(self.committed.epoch + 1, mode, max(clock, self.committed.clock))
        return self._cut

    @property
    def in_work(self) -> Cut | None:
        """The epoch that was cut and is not committed yet."""
        return self._cut

    # -- staging and commit -------------------------------------------------------------------

    def stage(self, epoch: int, level: int, slot: int, staged: Staged) -> bool:
        """Take in what a level of a slot did; return True if the epoch is complete with it."""
        if self._cut is None or epoch != self._cut.epoch:
            work = f"epoch {self._cut.epoch}" if self._cut else "none"
            raise EpochRefused(
                f"level {level} of slot {slot} staged epoch {epoch}; in work is {work}"
            )
        if not self.batches.is_of_plan((level, slot)):
            raise EpochRefused(f"the plan has no level {level}, slot {slot}")
        if self.batches.did((level, slot)) is not None:
            raise EpochRefused(f"level {level} of slot {slot} staged epoch {epoch} twice")
        self.batches.stage((level, slot), staged)
        return self.batches.is_complete

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The (level, slot) that the epoch in work still waits for."""
        return self.batches.missing if self._cut is not None else []

    @property
    def moved(self) -> int:
        """The bytes that all levels of all slots have sent, of those that have staged."""
        return sum(staged.moved for _, staged in self.batches.staged)

    def record(self) -> EpochRecord:
        """Return the complete epoch, for the log."""
        if self._cut is None or not self.batches.is_complete:
            raise EpochRefused("the epoch is not complete")
        puts: dict[Key, bytes] = {}
        deletes: list[Key] = []
        cursors: dict[int, int] = {}
        executions = self.batches.staged
        for _, staged in executions:
            puts.update(staged.puts)
            deletes += staged.deletes
            cursors.update(staged.cursors)
        updates = Updates.concat([staged.updates for _, staged in executions])
        return EpochRecord(self._cut.epoch, self._cut.clock, puts, deletes, updates, cursors)

    def commit(self, record: EpochRecord) -> list[tuple[int, int, bytes]]:
        """Apply the record, which is durable by now; return the reports as (level, slot, bytes)."""
        self.committed.apply(record)
        self._cut = None
        return [(*execution, staged.report) for execution, staged in self.batches.take()]

    # -- verdicts -----------------------------------------------------------------------------

    def resume_from(self, cursors: Mapping[int, int]) -> None:
        """Begin to tell verdicts behind these: what the spouts heard in committed epochs."""
        self._pushed = dict(cursors)

    def new_verdicts(self) -> dict[int, Verdicts]:
        """Return, by spout task, the committed verdicts that were not told yet."""
        new = {}
        ledger = self.committed.ledger
        for task, number in self._pushed.items():
            if ledger.last_verdict(task) > number:
                new[task] = verdicts = ledger.verdicts(task, number)
                self._pushed[task] = verdicts.last
        return new
