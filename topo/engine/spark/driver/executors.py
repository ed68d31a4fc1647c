"""The executors that a cluster gives to a run: their cores, losses, and the consequences.

A slot of a level is a Spark task, which takes a core. With fewer cores than slots a level's slots
run one after the other: correctly, but slowly. The run reports missing executors while they are
missing, and a slot whose spouts have no data soon leaves its core to other slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECS = 1.0
TURN_SECS = 1.0
"""How long a slot may wait for data while another one waits for its core."""
_SETTLED_SECS = 3.0
_REGISTRATION_SECS = 30.0
_ALL_REGISTERED_SECS = 60.0  # where fewer will not do
_PAUSE_SECS = 0.1
_WHY_NONE = "is the cluster full, or spark.executor.memory more than its workers have?"


@dataclass(frozen=True)
class Executor:
    """An executor that the cluster gives, or gave."""

    cores: int
    lost_at: float | None = None
    """When Spark noticed the loss; None if the executor is alive."""


Look = Callable[[], Sequence[Executor]]


class Executors:
    """The executors of a run; `look` asks Spark.

    `at_once`: all slots, of which each level is one then, run at the same time or not at all.
    """

    def __init__(
        self,
        look: Look,
        monotonic: Callable[[], float] = time.monotonic,
        wanted: int | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        self._at_once = at_once
        self._look = look
        self._monotonic = monotonic
        self._looked_at: float | None = None
        self.wanted = wanted
        """How many slots were asked for."""
        self.slots = 0
        """How many there are; 0 before that is known. Known beforehand, fewer cores will do."""
        self.are_of_checkpoint = False
        """That many slots, because the state that is continued is of as many."""
        self.known: Sequence[Executor] = ()
        self._settled = False
        self._waiting: tuple[int, float] | None = None

    @property
    def cores(self) -> int:
        return sum(executor.cores for executor in self.known if executor.lost_at is None)

    @property
    def reason(self) -> str:
        """The shortage of cores or slots in words; "" if there is none."""
        cores, slots = self.cores, self.slots or self.wanted or 1
        if not self._settled and cores < slots:
            waiting = f"waiting for executors: {cores} of {_counted(slots, 'core')} so far"
            return waiting if cores else f"{waiting}; {_WHY_NONE}"
        if cores < slots:
            return self._loss(cores, slots)
        if self.wanted and self.slots < self.wanted:
            why = "its checkpoint has" if self.are_of_checkpoint else "the cluster gave"
            return f"{_counted(self.slots, 'slot')} of {self.wanted}: {why} no more"
        return ""

    @property
    def are_gone(self) -> bool:
        """True iff the run has no executor left, or not enough of them to go on."""
        return self._settled and (self.cores < self.slots if self._at_once else not self.cores)

    def look(self) -> None:
        """Ask Spark, unless it was asked just before."""
        now = self._monotonic()
        if self._looked_at is None or now - self._looked_at >= LOOK_SECS:
            self._looked_at = now
            self.known = self._look()

    def idle_slots_block_others(self, batch: int, waiting: int) -> bool:
        """True if idle slots occupy cores that other slots need."""
        now = self._monotonic()
        if self._at_once or not waiting or not 0 < self.cores < self.slots:
            self._waiting = None
            return False
        if self._waiting is None or self._waiting[0] != batch:
            self._waiting = (batch, now)
        return now - self._waiting[1] > TURN_SECS

    def wait_for_cores(self, stopped: Callable[[], bool], sleep: Callable[[float], None]) -> int:
        """Wait until all wanted cores have come, or no more come; return their number.

        With no core at all the wait continues: a cluster may be full. 0 means that it was stopped.
        """
        patience = _REGISTRATION_SECS if self.wanted and not self.slots else _SETTLED_SECS
        if self.wanted and self._at_once:
            patience = _ALL_REGISTERED_SECS
        since = self._monotonic()
        while not stopped():
            before = self.cores
            self.known = self._look()
            if self.wanted and self.cores >= self.wanted:
                break
            if self.cores != before:
                since = self._monotonic()
            elif self.cores and self._monotonic() - since > patience:
                break
            sleep(_PAUSE_SECS)
        self._settled = True
        return self.cores

    def _loss(self, cores: int, slots: int) -> str:
        lost = [executor for executor in self.known if executor.lost_at is not None]
        if not lost and self._at_once:
            return f"{_counted(cores, 'core')} for {_counted(slots, 'task')} at the same time"
        if not lost:
            return f"{_counted(cores, 'core')} for {_counted(slots, 'slot')}: one after the other"
        size = max(1, lost[-1].cores)
        missing = -(-(slots - cores) // size)
        there = sum(executor.lost_at is None for executor in self.known)
        since = time.strftime("%H:%M", time.localtime(max(e.lost_at or 0.0 for e in lost)))
        text = f"{missing} of {_counted(there + missing, 'executor')} lost since {since}"
        if not cores or self._at_once:
            return f"{text}; nothing runs until the cluster gives another"
        return f"{text}; {_counted(slots, 'slot')} share {_counted(cores, 'core')}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def look_at(session: SparkSession) -> Look:
    """Return a function that lists the executors of this session's Spark."""
    jsc: Any = session.sparkContext._jsc

    def look() -> list[Executor]:
        summaries = jsc.sc().statusStore().executorList(False)
        found = [summaries.apply(number) for number in range(summaries.size())]
        return [_executor(summary) for summary in found if summary.id() != "driver"]

    return look


def _executor(summary: Any) -> Executor:
    removed = summary.removeTime()
    if summary.isActive():
        return Executor(summary.totalCores())
    lost_at = removed.get().getTime() / 1000 if removed.isDefined() else time.time()
    return Executor(summary.totalCores(), lost_at)
