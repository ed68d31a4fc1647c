"""The reports of committed batches: figures, captured tuples, and reasons of a stall."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from topo.engine.spark.driver.checkpoint import REAL_TIME
from topo.engine.spark.worker.report import Report
from topo.errors import EngineError
from topo.logs.capture import ReceivedLines
from topo.metrics.totals import RunTotals
from topo.running import AckerStats, BatchStats, Listener
from topo.runtime.roundabout import rounds_in_words
from topo.topology.layout import TaskLayout
from topo.topology.model import Topology
from topo.tracking.figures import AckerStatus

_SLOW_SECS = 60.0
_QUIET_SECS = 1.0


class Progress:
    """The progress of a run, from reports that the acker delivers for committed batches only."""

    def __init__(
        self,
        topology: Topology,
        conf: Mapping[str, Any],
        listener: Listener | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rows: dict[tuple[str, str], list[list[Any]]] = {}
        self.acked: dict[str, list[Any]] = {}
        self.failed: dict[str, list[Any]] = {}
        self.last_payload = 0
        # Ackers that outlive drivers count on from what an earlier driver was told.
        self._counts_from_one = not conf["topology.acker.addresses"]
        self.reports: dict[int, Report] = {}
        """Of each slot with spouts, the last one in this epoch."""
        self._topology = topology
        self._layout = TaskLayout(topology, conf)
        self.book = RunTotals(topology, self._layout)
        self.logs = ReceivedLines()
        self._executors: int = conf["topology.acker.executors"]
        self._is_real_time = conf["topology.mode"] == REAL_TIME
        self._timeouts = bool(conf["topology.enable.message.timeouts"])
        self._listener = listener
        self._status: AckerStatus | None = None
        self._next_batch: int | None = None
        """That of the last status of this query."""
        self._monotonic = monotonic
        self._moved = monotonic()
        self._spout_slots = 0
        self._hanging = ""

    def begin_anew(self, conf: Mapping[str, Any]) -> None:
        """Note that other ackers, which number their reports from 1, take the place of these.

        Components may have other tasks, by these settings.
        """
        self._layout = TaskLayout(self._topology, conf)
        self.book.take_layout(self._layout)
        self.last_payload = 0
        self._status = None

    def begin_epoch(self, spout_slots: int) -> None:
        """Note that a query starts, in so many slots with spouts: no report is there yet."""
        self.reports.clear()
        self._next_batch = None
        self._spout_slots = spout_slots
        self._hanging = ""
        self._moved = self._monotonic()

    def note_hanging(self, tasks: str) -> None:
        """Note which tasks do not come to an end, to be told if the batch makes no progress."""
        self._hanging = tasks

    def has_committed(self, status: AckerStatus) -> bool:
        """Return True if batches were committed since the last status: some report nothing."""
        is_later = self._next_batch is not None and status.next_batch > self._next_batch
        return bool(status.payloads) or is_later

    def take_in(
        self, status: AckerStatus, batch_ms: float, phases: Mapping[str, float] | None = None
    ) -> bool:
        """Take a new status; return True if batches were committed since the last one."""
        has_committed = self.has_committed(status)
        self._status, self._next_batch = status, status.next_batch
        if not has_committed:
            if status.waiting >= self._spout_slots > 0 and not status.pending:
                self.book.settle()  # they wait for data, and began with all verdicts
            return False
        lost = status.payloads[0].number - self.last_payload - 1 if status.payloads else 0
        if lost and (
            self.last_payload or self._counts_from_one
        ):  # the acker keeps them for a while only
            raise EngineError(
                f"{lost} reports of committed batches were lost, the driver being too slow to "
                "fetch them",
                hint="capture less, or lower topology.batch.max.tuples",
            )
        self._moved = self._monotonic()
        emitted = 0
        waited = []
        for payload in status.payloads:
            report = Report.unpack(payload.payload)
            self.last_payload = payload.number
            self.book.add(report.metrics, time.time())
            if payload.level == 0:
                self.reports[payload.slot] = report
                emitted += report.tuples
                if report.exhausted is not None:
                    waited.append(report.waited_secs)
            self._note(report)
            self.logs.write(f"slot-{payload.slot}", report.lines)
        # The batch waited while no spout had data.
        waited_ms = 1000 * min(waited, default=0.0)
        self.book.batch_done(
            status.next_batch - 1,
            self._moved,
            ms=batch_ms,
            rows=emitted,
            waited_ms=waited_ms,
            phases=phases,
        )
        return True

    def batch(self) -> BatchStats:
        return self.book.batch(self._monotonic())

    def acker(self) -> AckerStats | None:
        """Return the ackers' figures in their last status."""
        status = self._status
        if status is None or not self._executors:
            return None
        return AckerStats(
            executors=len(status.incarnations),
            pending=self.book.total("pending"),
            lag_secs=self._lag_secs(status),
            quiet_secs=self._monotonic() - self._moved,
            unheard=status.unheard,
            updates=status.updates,
            updates_per_sec=status.updates_per_sec,
            held_bytes=status.held_bytes,
        )

    def _lag_secs(self, status: AckerStatus) -> float:
        """Return the age of the oldest message of which its spout has not heard.

        The ackers know a verdict when a batch commits; in micro-batches, the spout hears of it when
        the next one begins. What it knew at the end of a batch was older by that batch's time.
        """
        if self._is_real_time or not self.book.total("pending"):
            return status.oldest_secs
        secs = self.book.oldest_pending_secs() + self.batch().ms / 1000
        return max(status.oldest_secs, secs + self._monotonic() - self._moved)

    def _note(self, report: Report) -> None:
        for component, stream, task, rows in report.rows:
            if self._listener is not None:
                self._listener.emitted(component, stream, task, rows)
            else:
                self.rows.setdefault((component, stream), []).extend(rows)
        for spout, msg_id, reason in report.concluded:
            kept = self.acked if reason is None else self.failed
            kept.setdefault(spout, []).append(msg_id)

    @property
    def looping(self) -> int:
        """The tuples that go round, as tasks have reported it last."""
        return self.book.total("looping")

    def rounds(self) -> str:
        """Return what goes round, if nothing else moves."""
        if not self._topology.has_loops or self.book.batch(self._monotonic()).rows:
            return ""
        components = self.book.components()
        return rounds_in_words(
            self._topology, {name: figures.looping for name, figures in components.items()}
        )

    def stall(self) -> str:
        """Return why the run does not advance although it should, or ""."""
        status = self._status
        if status is None:
            return ""
        quiet = self._monotonic() - self._moved
        reports = list(self.reports.values())  # another thread takes in more meanwhile
        stalls = [reason for report in reports for reason in report.stalls]
        if stalls:
            return stalls[0]
        at_limit = [task for report in reports for task in report.at_limit]
        if at_limit and not self._timeouts and quiet > _QUIET_SECS:
            spout = self._layout.component_of(at_limit[0])
            return f"spout {spout!r} at its pending limit, nothing in flight"
        if quiet > _SLOW_SECS and status.waiting < self._spout_slots:
            done = ", ".join(f"level {level} slot {slot}" for level, slot in status.staged)
            hanging = f"{self._hanging}; " if self._hanging else ""
            return (
                f"batch {status.next_batch} has made no progress for {quiet:.0f} s; {hanging}"
                f"done: {done or 'nothing'}"
            )
        return ""
