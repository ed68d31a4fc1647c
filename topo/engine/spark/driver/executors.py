"""The executors that a cluster gives to a run: their cores, losses, and the consequences.

A slot of a level is a Spark task, which takes a core. With fewer cores than slots a level's slots
run one after the other: correctly, but slowly. The run reports missing executors while they are
missing, and a slot whose spouts have no data soon leaves its core to other slots.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.config.masters import STANDALONE
from topo.engine.shapes import Executor

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
_MANY_ENDS = 3
"""So many executors that end without a batch are no accident."""
_CLIENT = "org.apache.spark.deploy.client.StandaloneAppClient$ClientEndpoint"
_END = re.compile(r"Executor updated: \S+ is now (?:EXITED|FAILED) \(([^)\n]{1,200})\)")


Look = Callable[[], Sequence[Executor]]
Ends = Callable[[], Sequence[str]]
Doing = Callable[[], Mapping[int, frozenset[str]]]


class Executors:
    """The executors of a run; `look` asks Spark.

    `at_once`: all slots, of which each level is one then, run at the same time or not at all.
    `ends`: how executors ended that the cluster started and Spark never saw.
    `driver`: where the executors have to reach the driver. `doing`: the executors that execute each
    slot at this moment; `placed` alone asks it, from any thread.
    """

    def __init__(
        self,
        look: Look,
        monotonic: Callable[[], float] = time.monotonic,
        wanted: int | None = None,
        *,
        at_once: bool = False,
        ends: Ends = tuple,
        driver: str = "",
        doing: Doing = dict,
    ) -> None:
        self._doing = doing
        self._places: Mapping[int, frozenset[str]] = {}
        self._asked_at: float | None = None
        self._asking = threading.Lock()  # however many pages look, Spark is asked once a second
        self._ends = ends
        self._driver = driver
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
        self._at_start = 0
        self._waiting: tuple[int, float] | None = None

    @property
    def cores(self) -> int:
        return sum(executor.cores for executor in self.known if executor.lost_at is None)

    @property
    def _there(self) -> int:
        return sum(executor.lost_at is None for executor in self.known)

    @property
    def reason(self) -> str:
        """The shortage of cores or slots in words; "" if there is none."""
        cores, slots = self.cores, self.slots or self.wanted or 1
        if not self._settled and cores < slots:
            waiting = f"waiting for executors: {cores} of {_counted(slots, 'core')} so far"
            return waiting if cores else f"{waiting}; {self.why_none}"
        if cores < slots:
            return self._loss(cores, slots)
        if self.wanted and self.slots < self.wanted:
            why = "its checkpoint has" if self.are_of_checkpoint else "the cluster gave"
            return f"{_counted(self.slots, 'slot')} of {self.wanted}: {why} no more"
        return ""

    @property
    def why_none(self) -> str:
        """Why there may be no executor, in words."""
        lost = [f"{each.why} on {each.place}" for each in self.known if each.lost_at and each.why]
        ends = [*lost, *self._ends()]
        if len(ends) < _MANY_ENDS:
            return _WHY_NONE
        where = f" at {self._driver}" if self._driver else ""
        return (
            f"{len(ends)} executors ended at once: {ends[-1]}; can the workers reach the "
            f"driver{where}? set spark.driver.host"
        )

    @property
    def in_work(self) -> str:
        """Where tasks are that have not ended, in words: a host that is gone may say nothing."""
        places = sorted(each.place for each in self.known if each.tasks and each.lost_at is None)
        return f"tasks are with the executors at {', '.join(places)}" if places else ""

    @property
    def are_gone(self) -> bool:
        """True iff the run has no executor left, or not enough of them to go on."""
        return self._settled and (self.cores < self.slots if self._at_once else not self.cores)

    def plan_for(self, slots: int, *, of_checkpoint: bool = False) -> None:
        """Note how many slots there are."""
        self.slots, self.are_of_checkpoint = slots, self.are_of_checkpoint or of_checkpoint

    def look(self) -> None:
        """Ask Spark, unless it was asked just before."""
        now = self._monotonic()
        if self._looked_at is None or now - self._looked_at >= LOOK_SECS:
            self._looked_at = now
            self.known = self._look()

    def placed(self) -> list[Executor]:
        """Return the executors as they were seen last, with the slots that they execute.

        Between batches a slot is where it was; one whose executor is lost is nowhere. In real-time
        mode each level of a slot may have another executor.
        """
        with self._asking:
            now = self._monotonic()
            if self._asked_at is None or now - self._asked_at >= LOOK_SECS:
                self._places = {**self._places, **self._doing()}
                self._asked_at = now
        return [
            each
            if each.lost_at is not None
            else replace(
                each,
                slots=tuple(sorted(s for s, where in self._places.items() if each.place in where)),
            )
            for each in self.known
        ]

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
        self._at_start = self._there
        return self.cores

    def _loss(self, cores: int, slots: int) -> str:
        lost = [executor for executor in self.known if executor.lost_at is not None]
        if not lost and self._at_once:
            return f"{_counted(cores, 'core')} for {_counted(slots, 'task')} at the same time"
        if not lost:
            return f"{_counted(cores, 'core')} for {_counted(slots, 'slot')}: one after the other"
        missing = max(1, self._at_start - self._there)
        since = time.strftime("%H:%M", time.localtime(max(e.lost_at or 0.0 for e in lost)))
        text = f"{missing} of {_counted(self._there + missing, 'executor')} lost since {since}"
        if not cores or self._at_once:
            return f"{text}; nothing runs until the cluster gives another"
        return f"{text}; {_counted(slots, 'slot')} share {_counted(cores, 'core')}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def executors_of(
    session: SparkSession, wanted: int | None, log: Path | None, *, at_once: bool = False
) -> Executors:
    """Return the executors of this session's Spark, whose output goes to `log`."""
    if session.sparkContext.master.startswith(STANDALONE):
        jvm: Any = session._jvm
        log4j = jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setLevel(_CLIENT, log4j.Level.INFO)
    host, port = (session.conf.get(f"spark.driver.{name}", "") or "" for name in ("host", "port"))
    return Executors(
        look_at(session),
        wanted=wanted,
        at_once=at_once,
        ends=ends_in(log),
        driver=f"{host}:{port}",
        doing=doing_at(session),
    )


def look_at(session: SparkSession) -> Look:
    """Return a function that lists the executors of this session's Spark."""
    jsc: Any = session.sparkContext._jsc

    def look() -> list[Executor]:
        summaries = jsc.sc().statusStore().executorList(False)
        listed = [summaries.apply(number) for number in range(summaries.size())]
        return [_executor(summary) for summary in listed if summary.id() != "driver"]

    return look


def _executor(summary: Any) -> Executor:
    removed, place = summary.removeTime(), str(summary.hostPort())
    if summary.isActive():
        return Executor(summary.totalCores(), place=place, tasks=summary.activeTasks())
    lost_at = removed.get().getTime() / 1000 if removed.isDefined() else time.time()
    reason = summary.removeReason()
    why = str(reason.get()).strip().partition("\n")[0] if reason.isDefined() else ""
    return Executor(summary.totalCores(), lost_at, place, why)


def doing_at(session: SparkSession) -> Doing:
    """Return a function that says which executors execute each slot, as Spark's scheduler has it.

    Spark's store of figures has no task before its end, since topo has it written rarely.
    """
    jsc: Any = session.sparkContext._jsc

    def doing() -> dict[int, frozenset[str]]:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        slots: dict[int, set[str]] = {}
        try:
            scheduler = jsc.sc().taskScheduler()
            for entry in scheduler.taskIdToTaskSetManager().entrySet():
                task = entry.getValue().taskInfos().apply(entry.getKey())
                if task.running():
                    slots.setdefault(task.partitionId(), set()).add(task.executorId())
            summaries = jsc.sc().statusStore().executorList(True)
            listed = [summaries.apply(number) for number in range(summaries.size())]
            places = {summary.id(): str(summary.hostPort()) for summary in listed}
        except (Py4JError, OSError):  # a task ended meanwhile, or this Spark is ending
            return {}
        return {
            slot: frozenset(places[each] for each in of if each in places)
            for slot, of in slots.items()
        }

    return doing


def ends_in(log: Path | None) -> Ends:
    """Return a function that lists how executors of a standalone cluster ended, as the log says.

    One that does not reach the driver is never known to Spark; its master tells of it.
    """
    start = log.stat().st_size if log is not None and log.exists() else 0

    def ends() -> list[str]:
        if log is None:
            return []
        try:
            with log.open("rb") as file:
                file.seek(start)
                return _END.findall(file.read().decode(errors="replace"))
        except OSError:  # cut down meanwhile
            return []

    return ends
