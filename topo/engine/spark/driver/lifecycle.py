"""The modes of a run, in order: run, pause, drain, tick for the last time, close.

The acker gives a mode to the batch after the present one. A topology ends in steps, each of which
has to be committed before the next: no message is in flight, bolts with ticks have had their last
tick, components are closed.
"""

from __future__ import annotations

from collections.abc import Mapping

from topo.engine.spark.worker.report import Report
from topo.topology.model import Topology
from topo.tracking.figures import AckerStatus
from topo.tracking.plan import Mode

_CLOSING_SECS = 30.0


class Lifecycle:
    """A state machine that decides the run's next mode."""

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
        self._completes = False
        self.is_over = False
        self.is_completed = False
        """All is done: what the last batches wrote is published, and the components are closed."""

    def set_active(self, active: bool) -> None:
        self.wants_active = active
        if self.mode in (Mode.ACTIVE, Mode.INACTIVE):
            self.mode = self._active_mode()

    def kill(self, now: float, wait_secs: float) -> None:
        """End within `wait_secs`; a later call may only shorten the wait."""
        until = now + wait_secs
        before = self._drain_until
        self._drain_until = until if before is None else min(before, until)
        if self.mode == Mode.CLOSE and self._close_until is None:
            self._close_until = self._drain_until + self._closing_secs

    def stop(self, now: float) -> None:
        """End now, without closing the components."""
        self.kill(now, 0.0)
        self._closing_secs, self._close_until = 0.0, now

    def is_pointless(self, now: float) -> bool:
        """True if starting another query is useless: the kill deadline has passed, or no query has
        been started yet, so that no message is in flight."""
        until = self._drain_until
        return until is not None and (now >= until or not self._has_begun)

    def registered(self, mode: Mode) -> None:
        """Record that an epoch has begun in this mode; later requests are yet to be sent."""
        self._told, self._version, self._has_begun = mode, 0, True

    def commanded(self, version: int, mode: Mode) -> None:
        """Record that the ackers have got this mode."""
        self._version, self._told = version, mode

    def next_command(
        self, status: AckerStatus, reports: Mapping[int, Report], now: float, looping: int = 0
    ) -> Mode | None:
        """Return the mode to send to the ackers now, or None if it is unchanged.

        `looping` is how many tuples the last reports have on loops.
        """
        self._step(status, reports, now, looping)
        return self.mode if self.mode != self._told else None

    def _step(
        self, status: AckerStatus, reports: Mapping[int, Report], now: float, looping: int
    ) -> None:
        idle = not (status.pending or status.unheard or looping)
        # Batches may be shorter than the interval of looks: committed reports tell of themselves.
        committed = any(report.mode == self.mode for report in reports.values())
        if self.mode == Mode.CLOSE:
            patient = self._close_until is None or now < self._close_until
            self.is_over = committed or not patient
            self.is_completed = committed and self._completes
        elif self._drain_until is not None:
            drained = idle and (committed or self._drains) and self.mode == Mode.DRAIN
            self._drains = self.mode == Mode.DRAIN and self._is_in_work(status)
            self.mode = Mode.DRAIN
            if drained or now >= self._drain_until:
                self._close(now)
        elif self.mode == Mode.LAST_TICK:
            if idle and committed:
                self._completes = True
                self._close(now)
        elif self._finite and idle and self.mode == Mode.ACTIVE and _are_exhausted(reports):
            self.mode = Mode.LAST_TICK

    def _close(self, now: float) -> None:
        """Begin the end, which publishes what was committed: only who is killed waits no longer."""
        self.mode = Mode.CLOSE
        self._close_until = None if self._completes else now + self._closing_secs

    def _is_in_work(self, status: AckerStatus) -> bool:
        """True iff some slot has begun a batch in the present mode."""
        knows = self.mode == self._told and status.mode_version_begun >= self._version
        return knows and bool(status.waiting or status.staged)

    def _active_mode(self) -> Mode:
        return Mode.ACTIVE if self.wants_active else Mode.INACTIVE


def _are_exhausted(reports: Mapping[int, Report]) -> bool:
    said = [report.exhausted for report in reports.values() if report.exhausted is not None]
    return bool(said) and all(said)
