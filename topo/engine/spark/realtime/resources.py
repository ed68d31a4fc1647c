"""The open resources of a run in real-time mode: Spark, the log of epochs, slots, coordinator.

It offers `SparkRun` what the resources of micro-batches offer, so that status, figures, commands
and the way to the end are the same. A start of the query begins everything anew but Spark and the
log: slots, their sockets, the token, the coordinator's thread. So nothing of an earlier start,
however it ended, can reach a later one.
"""

from __future__ import annotations

import os
import pickle
import secrets
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local, local_cores
from topo.engine.spark.driver.checkpoint import REAL_TIME, Checkpoint
from topo.engine.spark.driver.jvm_death import Jvm, drop_dead_spark
from topo.engine.spark.driver.query_errors import error_of
from topo.engine.spark.driver.resources import RunResources, tracking_plan
from topo.engine.spark.driver.scratch import make_run_directory, make_slots_directory
from topo.engine.spark.jvm.session import query_session, query_settings, start_session
from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.coordinator import Coordinator, SlotLost
from topo.engine.spark.realtime.epochs import Committed
from topo.engine.spark.realtime.messages import SlotSetup
from topo.engine.spark.realtime.query import build_rows, start_streaming
from topo.engine.spark.realtime.store import EpochStore
from topo.engine.spark.worker.doing import last_words, note_end
from topo.engine.spark.worker.slot_process import write_setup
from topo.errors import EngineError
from topo.shipping.requirements import check_requirements
from topo.storage.checkpoints import EPOCHS, local_path
from topo.topology.model import Topology
from topo.tracing.exporting import check_tracing
from topo.tracking.figures import AckerStatus
from topo.tracking.plan import Mode

if TYPE_CHECKING:
    from topo.engine.spark.driver.run import SparkRun

_REPORTS_MS = 200  # between epochs that nothing waits for: acks go at once
_TOO_FEW = "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT"


class Streaming:
    """One start of the query, with its slots and its coordinator."""

    def __init__(self) -> None:
        self.query: Any = None
        self.coordinator: Coordinator | None = None
        self.processes: list[subprocess.Popen[bytes]] = []
        self.directory = ""
        self.found_lost: list[int] = []
        """The slots that were lost when it was stopped."""

    @property
    def isActive(self) -> bool:
        """True until something has ended it; named as Spark's."""
        assert self.coordinator is not None
        if self.coordinator.failure is not None or self.lost:
            return False
        return bool(self.query.isActive)

    @property
    def lost(self) -> list[int]:
        """The slots whose process has ended, though nobody told it to."""
        return [at for at, process in enumerate(self.processes) if process.poll() is not None]

    def stop(self) -> None:
        """End the slots, Spark's tasks, and the coordinator."""
        self.found_lost = self.lost
        failure = self.coordinator.failure if self.coordinator else None
        if isinstance(failure, SlotLost) and failure.slot is not None:
            self._note_last_words(failure, failure.slot)
        for process in self.processes:
            with suppress(OSError):
                process.kill()
        if self.query is not None:
            with suppress(Exception):  # what it failed of is known, or follows from the above
                self.query.stop()
        if self.coordinator is not None:
            self.coordinator.close()
        for process in self.processes:
            process.wait()
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _note_last_words(self, failure: SlotLost, slot: int) -> None:
        """Add to the failure how the slot's process ended, and in which task."""
        path = os.path.join(self.directory, f"slot-{slot}")
        with suppress(subprocess.TimeoutExpired):
            note_end(path, self.processes[slot].wait(timeout=1))
            if words := last_words(path):
                failure.message = f"{failure.message}: {words}"


class RealTimeResources(RunResources):
    """The open resources of a run in real-time mode."""

    def __init__(self, run: SparkRun) -> None:
        super().__init__(run)
        self._streaming: Streaming | None = None
        self._payload_number = 0
        self._store: EpochStore | None = None

    def _open(self) -> None:
        run = self._run
        if not is_local(run.master):
            raise EngineError(
                f"real-time mode runs on one machine, and {run.master} is a cluster",
                code="real-time",
                hint="set topology.mode=micro-batch, or run it with --master local[*]",
            )
        check_requirements(run.topology)
        check_tracing(run.conf)
        self._directory = make_run_directory()
        self.callback(shutil.rmtree, self._directory, ignore_errors=True)
        drop_dead_spark()
        session = start_session(run.master, run.conf, run.log_file)
        run.jvm = Jvm(session.sparkContext)
        run.ui = session.sparkContext.uiWebUrl or ""
        self._plan_for(local_cores(run.master), "")
        self._spec = replace(self._spec, reports=self._directory)
        _check_places(self.plan, local_cores(session.sparkContext.master))
        path = run.conf["topology.checkpoint.dir"] or f"{self._directory}/checkpoint"
        self.checkpoint = Checkpoint(session, path)
        if run.conf["topology.checkpoint.dir"]:
            self._own_checkpoint()
        self._id = self.checkpoint.adopt(self.plan, REAL_TIME)
        self._tracking = tracking_plan(run.topology, self.plan, run.conf)
        self._acks_at_once = not run.conf["topology.epoch.ms"]
        self._committed = Committed(self._tracking)
        if not self._acks_at_once:
            self._open_log()
        settings = query_settings(self.plan.slots, path, run.conf)
        self.session = query_session(session, settings)

    def _open_log(self) -> None:
        where = local_path(self.checkpoint.location)
        if where is None:
            raise EngineError(
                "the log of epochs of real-time mode needs a local directory, not "
                f"{self.checkpoint.location}",
                code="real-time",
                hint="set topology.checkpoint.dir to one, or topology.mode=micro-batch",
            )
        self._store = EpochStore(where / EPOCHS, sync=self._run.conf["topology.epoch.sync"])
        self.callback(self._store.close)
        self._committed = self._store.recover(self._committed)
        self._committed.ledger.timeout_secs = self._tracking.timeout_secs

    def next_batch(self) -> int:
        """Return the number of the epoch behind the last committed one."""
        return self._committed.epoch + 1

    def status(self, payloads_after: int) -> AckerStatus:
        """Return the figures of the present start."""
        return self._coordinator.status(payloads_after)

    def command(self, mode: Mode) -> int:
        """Change what the topology does from its next epoch on."""
        return self._coordinator.command(mode)

    def batch_times(self, query: Streaming) -> tuple[float, dict[str, float]]:
        """Return how long the last epoch took from its end to its commit."""
        return self._coordinator.epoch_ms, {}

    def error_of(self, query: Streaming) -> Exception:
        """Return why a start came to its end."""
        failure = self._coordinator.failure
        if failure is not None and getattr(failure, "code", "") != "slot-lost":
            return failure
        error = error_of(query.query, "")
        if _TOO_FEW in str(error):
            return _too_few(self.plan, 0, beside=True)
        if failure is None and query.found_lost:
            slots = ", ".join(map(str, query.found_lost))
            return SlotLost(f"the process of slot {slots} ended by itself", hint="see its log")
        return failure or error

    @property
    def _coordinator(self) -> Coordinator:
        assert self._streaming is not None
        assert self._streaming.coordinator is not None
        return self._streaming.coordinator

    # -- a start ------------------------------------------------------------------------------

    def start_query(self, first_batch: int, mode: Mode) -> Streaming:
        """Start slots, coordinator and query; they resume behind the last committed epoch."""
        run = self._run
        if self._streaming is not None:
            self._payload_number = self._coordinator.payload_number
            if self._acks_at_once:  # nobody remembers what was pending
                epoch = self._committed.epoch
                self._committed = Committed(self._tracking)
                self._committed.epoch = epoch
                self._id = uuid.uuid4().hex
        streaming = Streaming()
        token = secrets.token_hex(16)
        streaming.directory = make_slots_directory()
        try:
            period_ms = run.conf["topology.epoch.ms"] or _REPORTS_MS
            streaming.coordinator = Coordinator(
                self.plan,
                self._tracking,
                self._committed,
                self._store,
                mode=mode,
                period_secs=period_ms / 1000,
                incarnation=self._id,
                sockets=streaming.directory,
                token=token,
                payload_number=self._payload_number,
                notify=run.wake,
            )
            streaming.coordinator.start()
            for slot in range(self.plan.slots):
                at_once = self._acks_at_once
                setup = SlotSetup(self._spec, slot, streaming.directory, token, at_once)
                streaming.processes.append(start_slot(setup))
            checkpoint = os.path.join(self._directory, f"query-{token}")
            rows = build_rows(self.session, self.plan, streaming.directory, token)
            streaming.query = start_streaming(rows, run.name, checkpoint)
        except BaseException:
            streaming.stop()
            raise
        self._streaming = streaming
        return streaming


def start_slot(setup: SlotSetup) -> subprocess.Popen[bytes]:
    """Start the process of a slot; it ends with its standard input."""
    # Inherited: a Ctrl-C that comes before the process can ignore it would end it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "topo.engine.spark.realtime.slot_process"],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert process.stdin is not None
    with suppress(OSError):  # gone already: whoever watches will see
        write_setup(process.stdin, f"slot-{setup.slot}", list(sys.path), pickle.dumps(setup))
    return process


def real_time_warnings(topology: Topology, conf: Mapping[str, Any]) -> list[str]:
    """Return what a user may not expect of these settings."""
    keeping = [bolt.id for bolt in topology.bolts if not bolt.stateless]
    if conf["topology.epoch.ms"] or not keeping:
        return []
    names = ", ".join(map(repr, keeping))
    return [
        f"topology.epoch.ms is 0, so nothing is saved: what {names} keep is lost when a process "
        "dies; set it to 10, or declare stateless = True"
    ]


def _check_places(plan: Plan, cores: int) -> None:
    """Raise an EngineError if this Spark can never run all tasks of the plan at once."""
    if places_needed(plan) > cores:
        raise _too_few(plan, cores)


def places_needed(plan: Plan) -> int:
    """Return how many of Spark's task places a plan takes in real-time mode, all the time."""
    return plan.slots * len(plan.levels)


def _too_few(plan: Plan, places: int, *, beside: bool = False) -> EngineError:
    needed = places_needed(plan)
    levels = len(plan.levels)
    have = "others take the rest" if beside else f"this Spark has {places}"
    return EngineError(
        f"real-time mode needs {needed} task places at the same time ({levels} levels on "
        f"{plan.slots} slots), and {have}",
        code="real-time-places",
        hint="lower topology.workers, give Spark more cores, or set topology.mode=micro-batch",
    )
