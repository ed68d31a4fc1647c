"""What the slots are to do next: run, pause, drain, tick for the last time, close.

The acker hands a mode to the batch after the one in work. A topology comes to its end in steps,
each of which has to be committed before the next: nothing is in flight any more, bolts with ticks
have had their last one, components are closed.
"""

from __future__ import annotations

from collections.abc import Mapping

from topo.engine.spark.worker.report import Report
from topo.topology.model import Topology
from topo.tracking.figures import AckerStatus
from topo.tracking.plan import Mode

_CLOSING_SECS = 30.0


class Lifecycle:
    """The modes of one run, from its start to its end."""

    def __init__(self, topology: Topology, active: bool) -> None:
        self._finite = all(spout.finite for spout in topology.spouts)
        self.wants_active = active
        self._told = self.mode = self._active_mode()
        self._version = 0
        self._has_begun = False
        self._drain_until: float | None = None
        self._drains = False
        """At the last look, a batch was in work that only drains. By now every acker knows all that
        was emitted before it, while that batch itself may wait for long: it has nothing to do."""
        self._close_until: float | None = None
        self._closing_secs = _CLOSING_SECS
        self.is_over = False
        self.is_completed = False

    def set_active(self, active: bool) -> None:
        self.wants_active = active
        if self.mode in (Mode.ACTIVE, Mode.INACTIVE):
            self.mode = self._active_mode()

    def kill(self, now: float, wait_secs: float) -> None:
        """Come to an end, within so many seconds; a later call may only shorten them."""
        until = now + wait_secs
        before = self._drain_until
        self._drain_until = until if before is None else min(before, until)

    def stop(self, now: float) -> None:
        """Come to an end now, with components left as they are."""
        self.kill(now, 0.0)
        self._closing_secs, self._close_until = 0.0, now

    def is_pointless(self, now: float) -> bool:
        """Whether no query is to be started any more: it should have ended by now, or none was
        started at all, so that nothing is in flight that would be given the time to finish."""
        until = self._drain_until
        return until is not None and (now >= until or not self._has_begun)

    def registered(self, mode: Mode) -> None:
        """An epoch has begun in this mode; what was asked for since then is still to be told."""
        self._told, self._version, self._has_begun = mode, 0, True

    def commanded(self, version: int, mode: Mode) -> None:
        """The ackers were told."""
        self._version, self._told = version, mode

    def next_command(
        self, status: AckerStatus, reports: Mapping[int, Report], now: float
    ) -> Mode | None:
        """The mode to tell the ackers now, if it is another than before."""
        self._step(status, reports, now)
        return self.mode if self.mode != self._told else None

    def _step(self, status: AckerStatus, reports: Mapping[int, Report], now: float) -> None:
        idle = not status.pending and not status.unheard
        # Batches may be shorter than looks are apart: what is committed says so itself.
        committed = any(report.mode == self.mode for report in reports.values())
        if self.mode == Mode.CLOSE:
            patient = self._close_until is None or now < self._close_until
            self.is_over = committed or not patient
        elif self._drain_until is not None:
            drained = idle and (committed or self._drains) and self.mode == Mode.DRAIN
            self._drains = self.mode == Mode.DRAIN and self._is_in_work(status)
            self.mode = Mode.DRAIN
            if drained or now >= self._drain_until:
                self._close(now)
        elif self.mode == Mode.LAST_TICK:
            if idle and committed:
                self.is_completed = True
                self._close(now)
        elif self._finite and idle and self.mode == Mode.ACTIVE and _are_exhausted(reports):
            self.mode = Mode.LAST_TICK

    def _close(self, now: float) -> None:
        self.mode = Mode.CLOSE
        self._close_until = now + self._closing_secs

    def _is_in_work(self, status: AckerStatus) -> bool:
        """Whether some slot has begun a batch with the present mode, at every acker."""
        knows = self.mode == self._told and status.mode_version_begun >= self._version
        return knows and bool(status.waiting or status.staged)

    def _active_mode(self) -> Mode:
        return Mode.ACTIVE if self.wants_active else Mode.INACTIVE


def _are_exhausted(reports: Mapping[int, Report]) -> bool:
    said = [report.exhausted for report in reports.values() if report.exhausted is not None]
    return bool(said) and all(said)
