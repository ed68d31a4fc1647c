"""One topology running on Spark: its start, watch, restarts and end.

A thread of its own starts everything and then watches the reports of committed batches, the query,
and the requests of callers. A query that ends by itself is restarted from its last commit, except
after a failure of the user's code, or when restarts make no progress.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from topo.config import Config
from topo.engine.completion import Completion
from topo.engine.spark.driver.checkpoint import REAL_TIME
from topo.engine.spark.driver.executors import Executors
from topo.engine.spark.driver.jvm_death import Jvm
from topo.engine.spark.driver.lifecycle import Lifecycle
from topo.engine.spark.driver.progress import Progress
from topo.engine.spark.driver.query_errors import in_words, sentence
from topo.engine.spark.driver.resources import Abandoned, RunResources
from topo.engine.spark.driver.restarts import Restarts
from topo.engine.spark.realtime.resources import (
    RealTimeResources,
    real_time_warnings,
    refuse_external,
)
from topo.errors import RunError, TopoError, Unavailable, UncaughtError
from topo.running import (
    ACTIVE,
    COMPLETED,
    ENDED,
    FAILED,
    INACTIVE,
    KILLED,
    STALLED,
    STARTING,
    BatchRecord,
    ErrorEntry,
    Listener,
    RunStats,
)
from topo.runtime.slot import full_conf
from topo.runtime.user_errors import report_of
from topo.topology.model import Topology
from topo.tracking.figures import AckerStatus

log = logging.getLogger("topo.spark")
_WATCH_SECS = 0.05
_IDLE_WATCH_SECS = 0.5
_FIRST_PAUSE_SECS = 0.25
_LONGEST_PAUSE_SECS = 30.0


class SparkRun(Completion):
    """A topology on Spark. `start` returns at once; all other methods may be called at any time."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        conf: Mapping[str, Any] | None = None,
        *,
        master: str = "local[*]",
        active: bool = True,
        capture: Sequence[str] = (),
        conclusions: bool = False,
        log_file: Path | None = None,
        listener: Listener | None = None,
        run_id: str = "",
    ) -> None:
        self.run_id = run_id or uuid.uuid4().hex[:12]
        """Names this run in what it owns; a submitted one keeps it from driver to driver."""
        given = Config(conf or {})
        self.warnings = Config.validate(given, components=topology.components)
        self.name = name
        self.topology = topology
        self.conf = full_conf(given)
        if self._is_real_time:
            refuse_external(topology)
            self.warnings += real_time_warnings(topology, self.conf)
        self.error: Exception | None = None
        self.ui = ""
        for captured in capture:
            topology.component(captured)
        self.capture = tuple(capture)
        self.conclusions = conclusions
        self.master = master
        self.log_file = log_file
        self.executors: Executors | None = None
        """Of the cluster it runs on."""
        self.jvm: Jvm | None = None
        """That of its Spark, once there is one."""
        self._progress = Progress(topology, self.conf, listener)
        self._ending = Lifecycle(topology, active)
        self._started = time.time()
        self._status = STARTING
        self._reason = "starting Spark"
        self._is_unavailable = False
        """True while the query is not running, or runs again, for what is out of reach outside."""
        self._ended = threading.Event()
        self._asked = threading.Event()
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._main, name=f"topo-{name}", daemon=True)

    def start(self) -> SparkRun:
        self._thread.start()
        return self

    # -- what it looks like -------------------------------------------------------------------

    @property
    def status(self) -> str:
        stalled = self._is_unavailable or self._progress.stall() or self._has_no_executor
        if self._status in (STARTING, ACTIVE) and stalled:
            return STALLED
        return self._status

    @property
    def reason(self) -> str:
        if self._status in ENDED:
            return self._reason
        missing = self.executors.reason if self.executors else ""
        why = self._reason or (self._progress.stall() if self._status == ACTIVE else "")
        return "; ".join(filter(None, [missing, why]))

    @property
    def _has_no_executor(self) -> bool:
        return self.executors is not None and self.executors.are_gone

    @property
    def is_pointless(self) -> bool:
        """Return True if the run was killed and there is nothing left to wait for."""
        return self._ending.is_pointless(time.monotonic())

    def stats(self) -> RunStats:
        with self._lock:
            return RunStats(
                name=self.name,
                status=self.status,
                reason=self.reason,
                uptime_secs=time.time() - self._started,
                window="all",
                batch=self._progress.batch(),
                components=self._progress.book.components(),
                acker=self._progress.acker(),
            )

    def batches(self) -> list[BatchRecord]:
        """Return the latest batches, the oldest first."""
        with self._lock:
            return self._progress.book.batches()

    def errors(self) -> list[ErrorEntry]:
        with self._lock:
            return self._progress.book.errors()

    def tuples(self, component: str, stream: str = "default") -> list[list[Any]]:
        """Return the tuples that a captured component has emitted in committed batches."""
        if component not in self.capture:
            known = ", ".join(map(repr, self.capture)) or "none"
            raise RunError(
                f"the tuples of {component!r} are not captured; captured: {known}",
                hint=f"submit_topology(..., capture=[{component!r}])",
            )
        self.topology.component(component).declared(stream)
        with self._lock:
            return list(self._progress.rows.get((component, stream), []))

    @property
    def rows(self) -> dict[tuple[str, str], list[list[Any]]]:
        """The captured value lists by component and stream."""
        return self._progress.rows

    @property
    def acked(self) -> dict[str, list[Any]]:
        """The ids of acked messages by spout, if conclusions were requested."""
        return self._progress.acked

    @property
    def failed(self) -> dict[str, list[Any]]:
        return self._progress.failed

    # -- what can be asked of it --------------------------------------------------------------

    def activate(self) -> None:
        self._ask("activated", lambda: self._ending.set_active(True))

    def deactivate(self) -> None:
        self._ask("deactivated", lambda: self._ending.set_active(False))

    def kill(self, wait_secs: float = 0) -> None:
        """Stop the spouts, wait up to `wait_secs` for messages in flight, close, stop."""
        if self._status in ENDED:
            return
        self._ending.kill(time.monotonic(), wait_secs)
        self._await_end()

    def wake(self) -> None:
        """Look at once how far the run is; any thread may call it."""
        self._asked.set()

    def stop(self) -> None:
        """Stop at once; the state is that of the last committed batch."""
        self._ending.stop(time.monotonic())
        self._await_end()

    def _await_end(self) -> None:
        if not self._thread.ident:  # it was never started
            self._status = KILLED
            self._ended.set()
        self._asked.set()
        self._ended.wait()

    def wait(self, secs: float | None = None) -> bool:
        """Wait up to `secs` for the end of the run; return True if it has ended."""
        return self._ended.wait(secs)

    def _ask(self, what: str, change: Callable[[], None]) -> None:
        if self._status in ENDED:
            raise RunError(f"{self.name} is {self._status}; it cannot be {what}")
        change()
        self._asked.set()

    # -- the thread ---------------------------------------------------------------------------

    def _main(self) -> None:
        status, error = KILLED, None
        try:
            with self._resources() as opened:
                self._supervise(opened)
            status = COMPLETED if self._ending.is_completed else KILLED
        except Abandoned:
            pass
        except Exception as raised:
            log.debug("%s failed", self.name, exc_info=True)
            error, status = self._in_words(raised), FAILED
        with suppress(OSError):  # a full disk's, and nobody is to wait for ever
            self._progress.logs.close()
        with self._lock:
            self.error = error
            if isinstance(error, UncaughtError):  # its batch will never report it
                self._progress.book.add_error(report_of(error), time.time())
            self._reason = "" if error is None else sentence(error)
            self._status = status
        self._ended.set()

    @property
    def _is_real_time(self) -> bool:
        return bool(self.conf["topology.mode"] == REAL_TIME)

    def _resources(self) -> RunResources:
        return RealTimeResources(self) if self._is_real_time else RunResources(self)

    def _in_words(self, raised: Exception) -> TopoError:
        if self.jvm is None:
            return in_words(raised)
        death = self.jvm.death_behind(raised)
        self.jvm.drop_if_dead()
        return death or in_words(raised)

    def _supervise(self, opened: RunResources) -> None:
        self._reason = ""
        restarts = Restarts(
            opened.checkpoint.path,
            self.conf["topology.restart.max"],
            of_each_start=1 if self._is_real_time else 0,
        )
        while not self.is_pointless:
            opened.confirm_ownership()
            first, mode = opened.next_batch(), self._ending.mode
            restarts.begin(first)
            again, self._reason = self._reason, self._reason or "starting its query"
            query = opened.start_query(first, mode)
            self._reason = again or "in its first batch"
            self._ending.registered(mode)
            self._progress.begin_epoch(opened.spout_slots)
            ended = False
            try:
                ended = self._watch(opened, query)
            finally:
                if not ended:
                    self._look_once_more(opened, query)
                query.stop()
            if ended:
                return
            error = opened.error_of(query)
            self._progress.logs.write("failed", error.__dict__.pop("lines", ()))
            restarts.failed(error, opened.next_batch())
            if isinstance(error, Unavailable):
                self._wait_for(error, restarts.failures)
                continue
            log.warning("%s starts again from its last commit: %s", self.name, sentence(error))
            self._reason = f"starting again: {sentence(error)}"

    def _wait_for(self, error: Unavailable, failures: int) -> None:
        """Wait before the batch is tried again; such failures never end a topology."""
        secs = error.after_secs
        if secs is None:
            secs = min(_LONGEST_PAUSE_SECS, _FIRST_PAUSE_SECS * 2 ** min(failures, 10))
        self._reason, self._is_unavailable = error.message, True
        log.warning("%s tries again in %.1f s: %s", self.name, secs, error.message)
        until = time.monotonic() + secs
        while not self.is_pointless and (left := until - time.monotonic()) > 0:
            self._asked.wait(min(left, _IDLE_WATCH_SECS))
            self._asked.clear()

    def _watch(self, opened: RunResources, query: Any) -> bool:
        """Follow the query to its end; return True if the end was intended."""
        pause = _WATCH_SECS
        while query.isActive:
            opened.check_ownership()
            status = opened.status(self._progress.last_payload)
            self._take_in(status, opened, query)
            if self.executors:
                self.executors.look()
                if self.executors.idle_slots_block_others(status.next_batch, status.waiting):
                    opened.go_on(status.next_batch)
            command = self._ending.next_command(status, self._progress.reports, time.monotonic())
            if command is not None:
                self._ending.commanded(opened.command(command), command)
            if self._ending.is_over or (self.is_pointless and self._has_no_executor):
                return True
            # An idle topology commits little and is looked at less often.
            pause = _WATCH_SECS if status.payloads else min(1.2 * pause, _IDLE_WATCH_SECS)
            self._asked.wait(pause)
            self._asked.clear()
        return False

    def _look_once_more(self, opened: RunResources, query: Any) -> None:
        """Take the reports that were committed before the query failed.

        An error in this is ignored: the query's own failure matters more.
        """
        with suppress(Exception):
            status = opened.status(self._progress.last_payload)
            batch_ms = 0.0
            with suppress(Exception):
                batch_ms, _ = opened.batch_times(query)
            with self._lock:
                self._progress.take_in(status, batch_ms)

    def _take_in(self, status: AckerStatus, opened: RunResources, query: Any) -> None:
        with self._lock:
            if self._status in (STARTING, ACTIVE, INACTIVE) and status.clock:
                self._status = ACTIVE if self._ending.wants_active else INACTIVE
            ms, phases = opened.batch_times(query) if status.payloads else (0.0, {})
            if self._progress.take_in(status, ms, phases):
                self._reason, self._is_unavailable = "", False
