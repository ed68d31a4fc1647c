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
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from topo.config import Config
from topo.drpc.calls import DEFAULT_SECS
from topo.drpc.hosting import HostedServer, driver_server
from topo.drpc.places import ADDRESSES, TOKEN_FILE, call_elsewhere, functions_of, no_server
from topo.engine.completion import Completion
from topo.engine.shapes import Executor
from topo.engine.spark.driver.checkpoint import FRESH, REAL_TIME
from topo.engine.spark.driver.executors import Executors
from topo.engine.spark.driver.jvm_death import Jvm
from topo.engine.spark.driver.lifecycle import Lifecycle
from topo.engine.spark.driver.moves import Moves
from topo.engine.spark.driver.progress import Progress
from topo.engine.spark.driver.query_errors import in_words, sentence
from topo.engine.spark.driver.resources import BatchResources
from topo.engine.spark.driver.restarts import Restarts
from topo.engine.spark.driver.run_resources import Abandoned, RunResources
from topo.engine.spark.jvm.session import stop_session
from topo.engine.spark.realtime.places import FewerSlots
from topo.engine.spark.realtime.resources import (
    RealTimeResources,
    real_time_warnings,
    refuse_external,
    refuse_loops,
)
from topo.errors import (
    AckerError,
    EngineError,
    RunError,
    TopoError,
    Unavailable,
    UncaughtError,
    sentence_of,
)
from topo.running import (
    ACTIVE,
    COMPLETED,
    ENDED,
    FAILED,
    INACTIVE,
    KILLED,
    REBALANCING,
    STALLED,
    STARTING,
    BatchRecord,
    ErrorEntry,
    Listener,
    RunStats,
)
from topo.runtime.dealing import CannotDeal
from topo.runtime.slot import full_conf
from topo.runtime.user_errors import report_of
from topo.storage.checkpoints import kept_task_ids
from topo.storage.savepoints import summary_of
from topo.topology.layout import TASK_IDS
from topo.topology.model import Topology
from topo.tracking.client import can_restart
from topo.tracking.figures import AckerStatus

log = logging.getLogger("topo.spark")
_WATCH_SECS = 0.05
_IDLE_WATCH_SECS = 0.5
_FIRST_PAUSE_SECS = 0.25
_FIRST_BATCH = "in its first batch"
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
        fate: str = "",
        begin: Mapping[str, Any] | None = None,
    ) -> None:
        self.begin = begin or {}
        """The savepoint that its checkpoint is to begin with, if there is none yet."""
        self.fate = fate
        """Of the state that is found in its checkpoint."""
        self.run_id = run_id or uuid.uuid4().hex[:12]
        """Names this run in what it owns; a submitted one keeps it from driver to driver."""
        given = Config(conf or {})
        self.warnings = Config.validate(given, components=topology.components)
        self.name = name
        self.topology = topology
        self.conf = full_conf(given)
        if self.conf[TASK_IDS] is None and fate != FRESH and self.conf["topology.checkpoint.dir"]:
            self.conf[TASK_IDS] = kept_task_ids(self.conf["topology.checkpoint.dir"])
        refuse_loops(topology, master)
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
        self._drpc: HostedServer | None = None
        self._has_server = threading.Event()
        self._progress = Progress(topology, self.conf, listener)
        self._ending = Lifecycle(topology, active)
        self._moves = Moves(topology, self.conf, master)
        self._slots = 0
        self._opened: RunResources | None = None
        self._started = time.monotonic()
        self._status = STARTING
        self._reason = "starting Spark"
        self._is_unavailable = False
        """True while the query is not running, or runs again, for what is out of reach outside."""
        self._preparing = ""
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
        stall = self._progress.stall() if self._status in (STARTING, ACTIVE) else ""
        rounds = self._progress.rounds() if self._status == ACTIVE and not stall else ""
        return "; ".join(filter(None, [missing, self._preparing, self._reason, stall, rounds]))

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
                uptime_secs=time.monotonic() - self._started,
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

    def call(self, function: str, args: str, timeout: float = DEFAULT_SECS) -> str:
        """Call a function that the topology computes, and wait for the answer."""
        if functions_of(self.topology.components):
            self._has_server.wait(timeout)
        if self._drpc is not None:
            return self._drpc.call(function, args, timeout)
        if not self.conf[ADDRESSES]:
            raise no_server(self.name, self.topology.components)
        return call_elsewhere(self.conf, function, args, timeout)

    @property
    def drpc(self) -> tuple[str, str] | None:
        """The address of the server of calls and the file with the token for it."""
        addresses = self.conf[ADDRESSES]
        if not addresses or not functions_of(self.topology.components):
            return None
        return addresses[0], self.conf[TOKEN_FILE] or ""

    def activate(self) -> None:
        self._ask("activated", lambda: self._ending.set_active(True))

    def deactivate(self) -> None:
        self._ask("deactivated", lambda: self._ending.set_active(False))

    def placed(self) -> Sequence[Executor]:
        """Return the executors of its cluster, and the slots at each; none on one machine."""
        return self.executors.placed() if self.executors is not None else ()

    @property
    def slots(self) -> int:
        """How many slots it has; 0 before that is known."""
        return self._slots

    @property
    def task_ids(self) -> Mapping[str, Any] | None:
        """The ids of its tasks, if they are not those of its topology; see `topology.task.ids`."""
        ids: Mapping[str, Any] | None = self.conf[TASK_IDS]
        return ids

    @property
    def moves(self) -> Moves:
        """Its moves to other slots or tasks, as far as what it has open knows of them."""
        return self._moves

    def rebalance(
        self, workers: int | None, tasks: Mapping[str, int] | None = None, *, explain: bool = False
    ) -> dict[str, Any]:
        """Begin to go over to so many slots, behind the last commit; raise if that cannot be.

        `tasks` are other numbers of tasks, by component; without `workers` the slots stay. Return
        the settings that change. With `explain`, nothing begins. Its status is REBALANCING until it
        runs again; `rebalance_failure` says why it went back.
        """
        if not self._slots:
            raise RunError(f"{self.name} is {self._status}; it cannot be rebalanced yet")
        question = workers, self._slots, tasks, self.conf
        if explain:
            return self._moves.check(*question).settings({})
        changed: dict[str, Any] = {}
        self._ask("rebalanced", lambda: changed.update(self._moves.ask(*question)))
        return changed

    def save(self, directory: Path) -> dict[str, Any]:
        """Write the last commit as a savepoint, while it runs."""
        opened = self._opened
        if opened is None:
            raise RunError(f"{self.name} is {self.status}; it cannot be saved yet")
        return summary_of(opened.save(directory))

    @property
    def is_rebalancing(self) -> bool:
        return self._moves.is_asked and self._status not in ENDED

    @property
    def rebalance_failure(self) -> str:
        """Why it could not go over to other slots, the last time that was asked for; or ""."""
        return sentence(self._moves.failure) if self._moves.failure else ""

    def kill(self, wait_secs: float = 0) -> None:
        """Stop the spouts, wait up to `wait_secs` for messages in flight, close, stop."""
        if self._status in ENDED:
            return
        self._ending.kill(time.monotonic(), wait_secs)
        self._await_end()

    def take_spark(self, jvm: Jvm, ui: str) -> None:
        """Take note of the Spark it runs on, and of the address of its pages."""
        self.jvm, self.ui = jvm, ui

    def take_executors(self, executors: Executors) -> None:
        """Take note of the cluster it runs on."""
        self.executors = executors

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
        """Run to the end and say which it was. Whatever fails on the way, nobody waits for ever."""
        status, error = KILLED, None
        try:
            with ExitStack() as stack:
                self._open_server(stack)
                self._run_and_move()
            status = COMPLETED if self._ending.is_completed else KILLED
        except Abandoned:
            pass
        except BaseException as raised:
            log.debug("%s failed", self.name, exc_info=True)
            error, status = self._words_of_end(raised), FAILED
        try:
            with suppress(OSError):  # a full disk's
                self._progress.logs.close()
            if isinstance(error, UncaughtError):  # its batch will never report it
                with self._lock:
                    self._progress.book.add_error(report_of(error), time.time())
        finally:
            self._has_server.set()
            with self._lock:
                self.error = error
                self._reason = "" if error is None else sentence(error)
                self._status = status
            self._ended.set()

    def _run_and_move(self) -> None:
        """Run to the end, in one number of slots after the other."""
        goes_on = True
        while goes_on:
            try:
                with ExitStack() as stack:
                    opened = self._resources(stack)
                    self._slots = opened.plan.slots
                    self._opened = opened
                    self.conf = dict(self._moves.arrive(self.conf, self._slots))
                    goes_on = self._supervise(opened)
            except FewerSlots as lost:
                log.warning("%s: %s", self.name, lost.message)
                self._moves.shrink(lost.slots)
            except Exception as error:
                if self._moves.is_moving:
                    self.conf = self._moves.take_back(self.conf, self._in_words(error))
                elif isinstance(error, CannotDeal):  # of a move that another driver has begun
                    self.conf = self._moves.refuse(self.conf, error)
                else:
                    raise
                self._progress.begin_anew(self.conf)
                log.warning("%s keeps its slots: %s", self.name, self.rebalance_failure)
                continue
            finally:
                self._opened = None
            if goes_on:
                self._begin_move()

    def _begin_move(self) -> None:
        grows = self._moves.grows_beyond(self._slots)
        self.conf = self._moves.begin(self.conf)
        self._status, self._reason = REBALANCING, "moving its tasks"
        log.info("%s goes over to %s slots", self.name, self.conf["topology.workers"])
        self._progress.begin_anew(self.conf)
        if grows:  # a cluster has given this Spark what it asked for at its start, and no more
            stop_session()

    def _open_server(self, stack: ExitStack) -> None:
        """Start the server of calls, if there is one; workers find it by the settings."""
        server = driver_server(self.topology.components, self.conf, self.master)
        if server is not None:
            stack.callback(server.close)
            self.conf = {**self.conf, **server.settings()}
            self._drpc = server
        self._has_server.set()

    def _words_of_end(self, raised: BaseException) -> TopoError:
        """Return what ended the run; an error of a JVM that has died may not even have a text."""
        if not isinstance(raised, Exception):  # SystemExit, of a user's grouping for example
            return EngineError(f"{type(raised).__name__}: {sentence_of(raised)}", code="uncaught")
        try:
            return self._in_words(raised)
        except Exception as wordless:
            log.debug("the end of %s has no words", self.name, exc_info=True)
            return EngineError(
                f"{type(raised).__name__}, whose text cannot be read: {type(wordless).__name__}",
                hint="Spark's JVM may have died; its log is beside the topology's",
                code="spark-start",
            )

    @property
    def _is_real_time(self) -> bool:
        return bool(self.conf["topology.mode"] == REAL_TIME)

    def _resources(self, stack: ExitStack) -> RunResources:
        """Open what the mode needs, to be closed with the stack, also if some of it fails."""
        if self._is_real_time:
            return RealTimeResources(self, stack)
        return BatchResources(self, stack)

    def _in_words(self, raised: Exception) -> TopoError:
        if self.jvm is None:
            return in_words(raised)
        death = self.jvm.death_behind(raised)
        self.jvm.drop_if_dead()
        return death or in_words(raised)

    def _supervise(self, opened: RunResources) -> bool:
        """Run query after query; return True if the run is to go on in other slots."""
        self._reason = ""
        restarts = Restarts(
            opened.checkpoint.path,
            self.conf["topology.restart.max"],
            of_each_start=1 if self._is_real_time else 0,
        )
        while not self.is_pointless:
            opened.claim.confirm()
            first, mode = opened.next_batch(), self._ending.mode
            restarts.begin(first)
            again, self._reason = self._reason, self._reason or "starting its query"
            query = opened.start_query(first, mode)
            self._reason = again or _FIRST_BATCH
            self._ending.registered(mode)
            self._progress.begin_epoch(opened.plan.spout_slots)
            ended = False
            silence: AckerError | None = None
            try:
                ended = self._watch(opened, query)
            except AckerError as unanswered:  # the query meets it as well, sooner or later
                if not can_restart(unanswered):
                    raise
                silence = unanswered
            finally:
                if not ended:
                    self._look_once_more(opened, query)
                query.stop()
            if ended:
                goes_on = self._moves.is_due and not self._ending.is_over
                if goes_on:  # nobody hears later of what was committed while the query ended
                    with suppress(TopoError):
                        opened.tell_committed(opened.next_batch(), mode)
                    self._look_once_more(opened, query)
                return goes_on
            error = silence or opened.error_of(query)
            self._progress.logs.write("failed", error.__dict__.pop("lines", ()))
            restarts.failed(error, opened.next_batch())
            if isinstance(error, Unavailable):
                self._wait_for(error, restarts.failures)
                continue
            log.warning("%s starts again from its last commit: %s", self.name, sentence(error))
            self._reason = f"starting again: {sentence(error)}"
        return False

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
            opened.claim.check()
            status = opened.commits.status(self._progress.last_payload)
            self._preparing = opened.preparing
            self._take_in(status, opened, query)
            self._progress.note_hanging(opened.look_for_hangs(status.next_batch))
            if self.executors:
                self.executors.look()
                if self.executors.idle_slots_block_others(status.next_batch, status.waiting):
                    opened.go_on(status.next_batch)
            command = self._ending.next_command(
                status, self._progress.reports, time.monotonic(), self._progress.looping
            )
            if command is not None:
                self._ending.commanded(opened.commits.command(command), command)
            if self._ending.is_over or (self.is_pointless and self._has_no_executor):
                return True
            if self._moves.is_due and not self.is_pointless:
                self._look_once_more(opened, query)
                return True
            # An idle topology commits little and is looked at less often.
            pause = _WATCH_SECS if status.payloads else min(1.2 * pause, _IDLE_WATCH_SECS)
            self._asked.wait(pause)
            self._asked.clear()
        return False

    def _look_once_more(self, opened: RunResources, query: Any) -> None:
        """Take the reports that were committed before the query failed, or ended for a move.

        An error in this is ignored: the query's own failure matters more.
        """
        with suppress(Exception):
            status = opened.commits.status(self._progress.last_payload)
            batch_ms = 0.0
            with suppress(Exception):
                batch_ms, _ = opened.batch_times(query)
            with self._lock:
                self._progress.take_in(status, batch_ms)

    def _take_in(self, status: AckerStatus, opened: RunResources, query: Any) -> None:
        with self._lock:
            if self._status in (STARTING, ACTIVE, INACTIVE, REBALANCING) and status.clock:
                self._status = ACTIVE if self._ending.wants_active else INACTIVE
                if self._status == INACTIVE and self._reason == _FIRST_BATCH:
                    self._reason = ""  # it may stay there for as long as nobody activates it
            has_committed = self._progress.has_committed(status)
            ms, phases = opened.batch_times(query) if has_committed else (0.0, {})
            if self._progress.take_in(status, ms, phases):
                self._reason, self._is_unavailable = "", False
                opened.note_committed(status.next_batch - 1)
