"""The open resources of a run in real-time mode: Spark, the log of epochs, slots, coordinator.

It offers `SparkRun` what the resources of micro-batches offer, so that status, figures, commands
and the way to the end are the same. A start of the query begins everything anew but Spark and the
log.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local, join_address, local_cores
from topo.engine.spark.driver.ackers import listening_place, tls_of
from topo.engine.spark.driver.checkpoint import REAL_TIME, Checkpoint
from topo.engine.spark.driver.executors import Executors, look_at
from topo.engine.spark.driver.jvm_death import Jvm, drop_dead_spark
from topo.engine.spark.driver.resources import Abandoned, RunResources, tracking_plan
from topo.engine.spark.driver.scratch import make_run_directory, make_slots_directory
from topo.engine.spark.driver.shipment import ARCHIVE
from topo.engine.spark.driver.worker_check import check_workers
from topo.engine.spark.jvm.session import query_session, query_settings, start_session
from topo.engine.spark.plan import make_plan
from topo.engine.spark.realtime.coordinator import Coordinator
from topo.engine.spark.realtime.epochs import Committed
from topo.engine.spark.realtime.java import check_spark, load_classes
from topo.engine.spark.realtime.messages import Place, SlotSetup
from topo.engine.spark.realtime.places import (
    await_places,
    check_places,
    places_needed,
    plan_that_fits,
    too_few,
)
from topo.engine.spark.realtime.query import build_rows, home_on_cluster, start_streaming
from topo.engine.spark.realtime.start import Streaming, end_slot, spawn_slot
from topo.engine.spark.realtime.store import EpochStore
from topo.errors import ConfigError, EngineError
from topo.logs.capture import LOG_DIR
from topo.shipping.requirements import check_requirements
from topo.storage.checkpoints import EPOCHS, local_path
from topo.topology.model import Topology
from topo.tracing.exporting import check_tracing
from topo.tracking.figures import AckerStatus
from topo.tracking.plan import Mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topo.engine.spark.driver.run import SparkRun

_REPORTS_MS = 200  # between epochs that nothing waits for: acks go at once
_LOGGED_BYTES = 256 << 10  # of a process in an epoch
_TOO_FEW = "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT"


class RealTimeResources(RunResources):
    """The open resources of a run in real-time mode."""

    def __init__(self, run: SparkRun) -> None:
        super().__init__(run)
        self._streaming: Streaming | None = None
        self._payload_number = 0
        self._store: EpochStore | None = None
        self._driver_host = ""
        self._spares: list[subprocess.Popen[bytes]] = []
        """Processes for slots, which import beside the start of Spark, or the end of its tasks."""

    def _open(self) -> None:
        import pyspark

        run = self._run
        check_spark(pyspark.__version__)
        if is_local(run.master):
            check_requirements(run.topology)
        else:
            _check_encryption(run.conf)
        check_tracing(run.conf)
        self._directory = make_run_directory()
        self.callback(shutil.rmtree, self._directory, ignore_errors=True)
        drop_dead_spark()
        if is_local(run.master):
            self._plan_for(local_cores(run.master), "")
            self.callback(self._end_spares)
            self._spares = [spawn_slot() for _ in range(self.plan.slots)]
        session = start_session(run.master, run.conf, run.log_file, places=self._places_asked())
        run.jvm = Jvm(session.sparkContext)
        run.ui = session.sparkContext.uiWebUrl or ""
        load_classes(session.sparkContext)
        path = run.conf["topology.checkpoint.dir"] or f"{self._directory}/checkpoint"
        self.checkpoint = Checkpoint(session, path)
        if run.conf["topology.checkpoint.dir"]:
            self._own_checkpoint()
        if is_local(run.master):
            self._spec = replace(self._spec, reports=self._directory)
            check_places(self.plan, local_cores(session.sparkContext.master))
        else:
            self._plan_for_cluster(session)
        self._id = self.checkpoint.adopt(self.plan, REAL_TIME)
        self._tracking = tracking_plan(run.topology, self.plan, run.conf)
        self._acks_at_once = not run.conf["topology.epoch.ms"]
        self._committed = Committed(self._tracking)
        if not self._acks_at_once:
            self._open_log()
        settings = query_settings(self.plan.slots, path, run.conf)
        self.session = query_session(session, settings)

    def _end_spares(self) -> None:
        for process in self._spares:
            end_slot(process)
            process.wait()
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()

    def _places_asked(self) -> int | None:
        """Return how many places the topology takes, if that is known without a cluster."""
        run = self._run
        slots = run.conf["topology.workers"]
        return places_needed(make_plan(run.topology, slots, run.conf)) if slots else None

    def _plan_for_cluster(self, session: SparkSession) -> None:
        run = self._run
        self._driver_host = session.conf.get("spark.driver.host", "") or ""
        slots = run.conf["topology.workers"] or self.checkpoint.slots()
        plan = make_plan(run.topology, slots, run.conf) if slots else None
        wanted = places_needed(plan) if plan else None
        executors = run.executors = Executors(look_at(session), wanted=wanted, at_once=True)
        cores = executors.wait_for_cores(lambda: run.is_pointless, time.sleep)
        if run.is_pointless or not cores:
            raise Abandoned
        plan = plan or plan_that_fits(run.topology, cores, run.conf)
        check_places(plan, cores)
        check_workers(session, cores, run.topology)
        self._plan_for(plan.slots, "")
        executors.slots = places_needed(self.plan)
        logged = _LOGGED_BYTES if os.environ.get(LOG_DIR) else 0
        self._spec = replace(self._spec, log_bytes=logged)

    def _open_log(self) -> None:
        where = local_path(self.checkpoint.location)
        if where is None:
            raise EngineError(
                "the log of epochs of real-time mode needs a directory of the driver's machine, "
                f"not {self.checkpoint.location}",
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
        error = query.error
        if _TOO_FEW not in str(error):
            return error
        if is_local(self._run.master):
            return too_few(self.plan)
        return EngineError("Spark has lost an executor", code="spark")  # the next start waits

    @property
    def _coordinator(self) -> Coordinator:
        assert self._streaming is not None
        assert self._streaming.coordinator is not None
        return self._streaming.coordinator

    # -- a start ------------------------------------------------------------------------------

    def start_query(self, first_batch: int, mode: Mode) -> Streaming:
        """Start slots, coordinator and query; they resume behind the last committed epoch."""
        run = self._run
        if run.executors is not None and not await_places(
            self.plan, run.executors, lambda: run.is_pointless, time.sleep
        ):
            raise Abandoned
        if self._streaming is not None:
            self._payload_number = self._coordinator.payload_number
            if self._acks_at_once:  # nobody remembers what was pending
                epoch = self._committed.epoch
                self._committed = Committed(self._tracking)
                self._committed.epoch = epoch
                self._id = uuid.uuid4().hex
        streaming = Streaming(self._spares)
        token = secrets.token_hex(16)
        try:
            home = self._prepare(streaming, token, mode)
            checkpoint = os.path.join(self._directory, f"query-{token}")
            rows = build_rows(self.session, self.plan, home, token)
            streaming.query = start_streaming(rows, run.name, checkpoint)
        except BaseException:
            streaming.stop()
            raise
        self._streaming = streaming
        return streaming

    def _prepare(self, streaming: Streaming, token: str, mode: Mode) -> str:
        """Start the coordinator, and on one machine the slots; return where Spark finds these."""
        if is_local(self._run.master):
            home = streaming.directory = make_slots_directory()
            address = os.path.join(home, "coordinator")
            self._coordinate(streaming, token, address, mode)
            for slot in range(self.plan.slots):
                place = Place(address, token, slot, os.path.join(home, f"slot-{slot}"))
                streaming.start_slot(place)
            return home
        host, port, called = listening_place(self._run.conf, self._driver_host)
        coordinator = self._coordinate(streaming, token, join_address(host, port), mode)
        address = join_address(called, coordinator.port)
        context: Any = self.session.sparkContext
        return home_on_cluster(address, context.pythonExec, ARCHIVE)

    def _coordinate(
        self, streaming: Streaming, token: str, address: str, mode: Mode
    ) -> Coordinator:
        period_ms = self._run.conf["topology.epoch.ms"] or _REPORTS_MS
        coordinator = streaming.coordinator = Coordinator(
            self.plan,
            self._tracking,
            self._committed,
            self._store,
            mode=mode,
            period_secs=period_ms / 1000,
            incarnation=self._id,
            address=address,
            token=token,
            setup=self._setup_of,
            payload_number=self._payload_number,
            notify=self._run.wake,
        )
        coordinator.start()
        return coordinator

    def _setup_of(self, slot: int) -> SlotSetup:
        """Return what a process of a slot is to run."""
        here = is_local(self._run.master)
        levels = tuple(range(len(self.plan.levels))) if here else ()
        context: Any = self.session.sparkContext
        sent = tuple(context._python_includes) if not here else ()
        path = tuple(sys.path) if here else (*sent, "")
        return SlotSetup(self._spec, slot, levels, self._acks_at_once, path)


def _check_encryption(conf: Mapping[str, Any]) -> None:
    """Raise a ConfigError if workers are to be called encrypted."""
    server, client = tls_of(conf)
    if server is not None or client is not None:
        raise ConfigError(
            "topology.acker.tls.* encrypts calls of workers to ackers; real-time mode has no such "
            "calls, and what its slots and the driver say is not encrypted",
            at="topology.acker.tls.certificate",
            hint="set topology.mode=micro-batch; or take topology.acker.tls.* out, if only hosts "
            "that you trust are on the network between driver and executors",
        )


def refuse_external(topology: Topology) -> None:
    """Raise a ConfigError for a component that Spark reads or writes for, in batches."""
    for component in topology.components.values():
        if component.external:
            raise ConfigError(
                f"{component.kind} {component.id!r} is a {component.class_name}: Spark reads and "
                "writes in micro-batches, and topology.mode is real-time",
                at="topology.mode",
                hint="set topology.mode=micro-batch, or use another connector",
            )


def real_time_warnings(topology: Topology, conf: Mapping[str, Any]) -> list[str]:
    """Return what a user may not expect of these settings."""
    told = []
    if conf["topology.acker.addresses"]:
        told.append(
            "topology.acker.addresses is for micro-batches: in real-time mode the driver's log of "
            "epochs keeps pending messages"
        )
    keeping = [bolt.id for bolt in topology.bolts if not bolt.stateless]
    if keeping and not conf["topology.epoch.ms"]:
        names = ", ".join(map(repr, keeping))
        told.append(
            f"topology.epoch.ms is 0, so nothing is saved: what {names} keep is lost when a "
            "process dies; set it to 10, or declare stateless = True"
        )
    return told
