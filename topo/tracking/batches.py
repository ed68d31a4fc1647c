"""A run's batches as whoever commits them knows them: one pure state machine for both modes.

A batch is in work until each execution (a level of a slot) has *staged* what it did. Then all of it
is taken as a whole, once, and what each execution reports waits for the driver. A mode that is
commanded is that of the batch after. `epochs.Tracking` is this for the ackers of micro-batches,
which may be several and hear of a commit later; `engine.spark.realtime` for the coordinator, where
a batch is an epoch. What they add is when a batch begins, what is refused, and who is told.

There is no I/O and no lock here, and every call is told the time.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from topo.tracking.exchange import CommittedPayload
from topo.tracking.plan import Mode, TrackingPlan

Did = TypeVar("Did")
"""What an execution did, as it is staged."""
Execution = tuple[int, int]
"""A level and a slot."""
_RATE_SECS = 10.0
_RATE_STEP_SECS = 0.25  # of what is counted together


class Batches(Generic[Did]):
    """The batch in work: which executions have staged, and in which mode it runs."""

    def __init__(self, plan: TrackingPlan, mode: Mode, mode_version: int = 0) -> None:
        self._executions = dict.fromkeys(plan.executions())  # a set in order
        self._staged: dict[Execution, Did] = {}
        self.mode = mode
        """That of the batch after the one in work."""
        self.mode_version = mode_version
        self.begun_mode = mode
        """That of the batch in work."""
        self.begun_version = mode_version

    # -- modes

    def command(self, mode: Mode) -> int:
        """Set the mode from the next batch on; return the command's number."""
        if mode != self.mode:
            self.mode = mode
            self.mode_version += 1
        return self.mode_version

    def begin(self) -> Mode:
        """Begin a batch in the mode that was commanded last, and return it."""
        self.begun_mode, self.begun_version = self.mode, self.mode_version
        return self.mode

    @property
    def has_command(self) -> bool:
        """True iff the batch in work was begun before the last command."""
        return self.mode_version > self.begun_version

    # -- staging

    def did(self, execution: Execution) -> Did | None:
        """Return what an execution has staged, if it has."""
        return self._staged.get(execution)

    def is_of_plan(self, execution: Execution) -> bool:
        """True iff the plan has such an execution."""
        return execution in self._executions

    def stage(self, execution: Execution, did: Did) -> None:
        """Take in what an execution of the batch in work did."""
        self._staged[execution] = did

    def take_back(self, execution: Execution) -> None:
        """Forget that an execution has staged: it will try again."""
        del self._staged[execution]

    @property
    def is_complete(self) -> bool:
        """True iff every execution has staged."""
        return len(self._staged) == len(self._executions)

    @property
    def missing(self) -> list[Execution]:
        """The executions that have not staged, in order."""
        return [each for each in self._executions if each not in self._staged]

    @property
    def staged(self) -> list[tuple[Execution, Did]]:
        """What was staged so far, in the order of the executions."""
        return [(each, self._staged[each]) for each in sorted(self._staged)]

    def take(self) -> list[tuple[Execution, Did]]:
        """Return what was staged, and forget it: nothing is applied twice, whatever fails then."""
        staged, self._staged = self.staged, {}
        return staged


class Reports:
    """The reports of committed batches that wait for the driver, numbered in order."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        """That of the last one."""
        self.nbytes = 0
        self.lost = 0
        self._waiting: deque[CommittedPayload] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, batch: int, execution: Execution, report: bytes) -> None:
        """Take in what an execution of a batch, which is committed, has to report, if anything."""
        if report:
            self.number += 1
            self._waiting.append(CommittedPayload(self.number, batch, *execution, report))
            self.nbytes += len(report)

    def after(self, number: int) -> list[CommittedPayload]:
        """Return those after this number, and drop those up to it: the driver has them."""
        while self._waiting and self._waiting[0].number <= number:
            self._drop()
        return list(self._waiting)

    def lose(self, most_bytes: int, before: int) -> None:
        """Drop the oldest of batches before this one, while all take more bytes than that."""
        while self.nbytes > most_bytes and self._waiting[0].batch < before:
            self._drop()
            self.lost += 1

    def _drop(self) -> None:
        self.nbytes -= len(self._waiting.popleft().payload)


class Rate:
    """How many updates a second there were lately."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def add(self, count: int, now: float) -> None:
        """Count some updates."""
        if self._counts and now < self._counts[-1][0] + _RATE_STEP_SECS:
            began, so_far = self._counts[-1]
            self._counts[-1] = (began, so_far + count)
            return
        self._counts.append((now, count))
        while self._counts[0][0] < now - _RATE_SECS:
            self._counts.popleft()

    def per_sec(self, now: float) -> float:
        """Return the mean of the last seconds."""
        return sum(count for at, count in self._counts if at > now - _RATE_SECS) / _RATE_SECS
