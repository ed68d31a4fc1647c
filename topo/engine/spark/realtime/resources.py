"""The open resources of a run in real-time mode: Spark, the log of epochs, slots, coordinator.

They offer what the resources of micro-batches offer, so that status, figures, commands
and the way to the end are the same. A start of the query begins everything anew but Spark and the
log.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.config import Config
from topo.config.masters import is_local, join_address, local_cores
from topo.engine.spark.driver.ackers import listening_place, tls_of
from topo.engine.spark.driver.checkpoint import REAL_TIME, Checkpoint
from topo.engine.spark.driver.executors import executors_of
from topo.engine.spark.driver.jvm_death import Jvm, drop_dead_spark
from topo.engine.spark.driver.run_resources import (
    Abandoned,
    Claim,
    OpenedRun,
    if_asked,
    resizes,
    spec_for,
    tracking_plan,
)
from topo.engine.spark.driver.scratch import make_run_directory, make_slots_directory
from topo.engine.spark.driver.shipment import ARCHIVE
from topo.engine.spark.driver.worker_check import check_workers
from topo.engine.spark.jvm.session import query_session, query_settings, start_session
from topo.engine.spark.plan import Plan, make_plan
from topo.engine.spark.process.spawn import SlotProcess
from topo.engine.spark.realtime.beginning import begin_epochs, start_of
from topo.engine.spark.realtime.coordinator import Coordinator
from topo.engine.spark.realtime.encryption import token_with
from topo.engine.spark.realtime.epochs import Committed
from topo.engine.spark.realtime.java import check_spark, load_classes
from topo.engine.spark.realtime.messages import Place, SlotSetup
from topo.engine.spark.realtime.places import (
    await_places,
    check_places,
    fewer_slots,
    places_needed,
    plan_that_fits,
    too_few,
)
from topo.engine.spark.realtime.query import build_rows, home_on_cluster, start_streaming
from topo.engine.spark.realtime.rescaling import (
    copy_last_ticks,
    deal_tasks,
    drop_gone_tasks,
    drop_stale_ticks,
)
from topo.engine.spark.realtime.start import SLOT, Streaming
from topo.engine.spark.realtime.store import EpochStore
from topo.errors import CheckpointError, ConfigError, EngineError, RunError
from topo.logs.capture import are_wanted
from topo.shipping.requirements import check_requirements
from topo.storage.checkpoints import EPOCHS, local_path
from topo.storage.ownership import Sighting
from topo.storage.savepoints import Savepoint
from topo.storage.trust import ON_ONE_MACHINE, make_place
from topo.topology.model import Topology
from topo.tracing.exporting import check_tracing
from topo.tracking.clock import SteadyClock, monotonic
from topo.tracking.plan import Mode
from topo.tracking.security import Tls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPORTS_MS = 200  # between epochs that nothing waits for: acks go at once
_LAP_MS = 10  # and of a topology whose laps wait for them
_LOGGED_BYTES = 256 << 10  # of a process in an epoch
_TOO_FEW = "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT"


class RealTimeResources:
    """The open resources of a run in real-time mode."""

    def __init__(self, run: OpenedRun, stack: ExitStack) -> None:
        self._run, self._stack = run, stack
        self._streaming: Streaming | None = None
        self._payload_number = 0
        self._store: EpochStore | None = None
        self._clock = SteadyClock()  # of all starts: a failed one does not end an adjustment
        self._driver_host = ""
        self._tls: Tls | None = None
        self._slots_tls: Tls | None = None
        """Of a cluster; on one machine no socket leaves it."""
        self._spares: list[SlotProcess] = []
        """Processes for slots, which import beside the start of Spark, or the end of its tasks."""

        import pyspark

        check_spark(pyspark.__version__)
        if is_local(run.master):
            check_requirements(run.topology)
        else:
            self._tls, self._slots_tls = tls_of(run.conf)
        check_tracing(run.conf)
        self._directory = make_run_directory()
        stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
        drop_dead_spark()
        if is_local(run.master):
            self._spec = spec_for(run, local_cores(run.master), "")
            stack.callback(self._end_spares)
            self._spares = [SlotProcess(SLOT) for _ in range(self.plan.slots)]
        sighting = Sighting.of(run.conf["topology.checkpoint.dir"], monotonic)
        session = start_session(run.master, run.conf, run.log_file, places=self._places_asked())
        run.take_spark(Jvm(session.sparkContext), session.sparkContext.uiWebUrl or "")
        load_classes(session.sparkContext)
        path = run.conf["topology.checkpoint.dir"] or f"{self._directory}/checkpoint"
        self.checkpoint = Checkpoint(session, path)
        self.claim = Claim.of(run, self.checkpoint, stack, sighting)
        if is_local(run.master):
            self._spec = replace(self._spec, reports=self._directory)
            check_places(self.plan, local_cores(session.sparkContext.master))
        else:
            self._plan_for_cluster(session)
        self._tracking = tracking_plan(run.topology, self.plan, run.conf)
        self._acks_at_once = not run.conf["topology.epoch.ms"]
        rescale = if_asked(run, self.checkpoint, self._rescale)
        begin = partial(self._begin_with, run.begin) if run.begin else None
        self._id = self.checkpoint.adopt(self.plan, REAL_TIME, rescale, begin)
        self._committed = Committed(self._tracking)
        if not self._acks_at_once:
            self._open_log()
        settings = query_settings(self.plan.slots, path, run.conf)
        self.session = query_session(session, settings)

    @property
    def _patience_secs(self) -> float:
        """How long lost places are waited for; for ever, where nothing that could move is saved."""
        secs = self._run.conf[Config.workers_after_loss_secs.key]
        return math.inf if secs is None or self._acks_at_once else float(secs)

    def _end_spares(self) -> None:
        for process in self._spares:
            process.kill()
            process.wait()

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
        needed = places_needed(plan) if plan else None
        executors = executors_of(session, needed, run.log_file, at_once=True)
        run.take_executors(executors)
        cores = executors.wait_for_cores(lambda: run.is_pointless, time.sleep)
        if run.is_pointless or not cores:
            raise Abandoned
        plan = plan or plan_that_fits(run.topology, cores, run.conf)
        check_places(plan, cores)
        check_workers(session, cores, run.topology)
        self._spec = spec_for(run, plan.slots, "")
        executors.plan_for(places_needed(self.plan))
        logged = _LOGGED_BYTES if are_wanted() else 0
        self._spec = replace(self._spec, log_bytes=logged)

    def _begin_with(self, begin: Mapping[str, Any]) -> Mapping[str, Any]:
        store = self._store_of_epochs()
        self.checkpoint.clear(EPOCHS)  # of a try that was cut short
        begin_epochs(store.directory, start_of(begin), self.plan)
        return {"epochs_begun": True}

    def save(self, directory: Path) -> Savepoint:
        """Refuse: the log of epochs is read by this run alone."""
        raise RunError(
            "in real-time mode the log of epochs is the run's while it runs",
            hint="topo savepoint --stop NAME, or topo kill it first",
        )

    def _rescale(self, before: Mapping[str, Any]) -> None:
        """Make the plan beside the log that of other slots, or other numbers of tasks."""
        resized = resizes(self.plan, before)
        dealing = self._run.moves.dealers(self._run.conf, resized)
        if self.checkpoint.has_begun_epochs:
            committed = Committed(self._tracking)
            with closing(self._store_of_epochs()) as store:
                store.recover(committed)
                copy_last_ticks(store, committed, before, self.plan)
                deal_tasks(store, committed, resized, dealing)
        self.checkpoint.begin(self.checkpoint.generation, self.plan)

    def _open_log(self) -> None:
        store = self._store_of_epochs()
        self._store = store
        self._stack.callback(store.close)
        store.recover(self._committed)
        drop_stale_ticks(store, self._committed, self.plan)
        drop_gone_tasks(store, self._committed, self.plan)
        self.checkpoint.note_epochs()
        self._clock.reach(self._committed.clock)

    def _store_of_epochs(self) -> EpochStore:
        """Return the log of epochs; it is not read yet."""
        where = local_path(self.checkpoint.location)
        if where is None:
            raise EngineError(
                "real-time mode appends to its log of epochs every few milliseconds, which a file "
                f"system such as that of {self.checkpoint.location} does not take: the log needs a "
                "directory of the driver's machine",
                code="real-time",
                hint="set topology.checkpoint.dir to one, or topology.mode=micro-batch",
            )
        make_place(where / EPOCHS, ON_ONE_MACHINE)  # the driver's alone, on a cluster too
        store = EpochStore(
            where / EPOCHS,
            sync=self._run.conf["topology.epoch.sync"],
            confirm=self.claim.confirm,
        )
        if self.checkpoint.has_begun_epochs and not store.is_begun:
            raise CheckpointError(
                "the log of epochs is gone, and with it all that was saved",
                at=str(store.directory),
                hint="bring back a copy of the checkpoint, or start with a fresh one",
            )
        return store

    def next_batch(self) -> int:
        """Return the number of the epoch behind the last committed one."""
        return self._committed.epoch + 1

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        return self._spec.plan

    def note_committed(self, batch: int) -> None:
        """Have the checkpoint remember it."""
        self.claim.note_committed(batch)

    def look_for_hangs(self, batch: int) -> str:
        """Return nothing: which tasks do not come to an end, the slots themselves cannot tell."""
        return ""

    @property
    def preparing(self) -> str:
        """The slot that has been opening its tasks for the longest time, in words; or ""."""
        return self.commits.preparing

    def go_on(self, batch: int) -> None:
        """Do nothing: no slot waits for others in an epoch."""

    def batch_times(self, query: Streaming) -> tuple[float, dict[str, float]]:
        """Return how long the last epoch took from its end to its commit."""
        return self.commits.epoch_ms, {}

    def error_of(self, query: Streaming) -> Exception:
        """Return why a start came to its end."""
        error = query.error
        if _TOO_FEW not in str(error):
            return error
        if is_local(self._run.master):
            return too_few(self.plan)
        return EngineError("Spark has lost an executor", code="spark")  # the next start waits

    @property
    def commits(self) -> Coordinator:
        """The coordinator of the present start."""
        assert self._streaming is not None
        assert self._streaming.coordinator is not None
        return self._streaming.coordinator

    # -- a start ------------------------------------------------------------------------------

    def tell_committed(self, first_batch: int, mode: Mode) -> None:
        """Do nothing: the coordinator commits the epochs itself."""

    def start_query(self, first_batch: int, mode: Mode) -> Streaming:
        """Start slots, coordinator and query; they resume behind the last committed epoch."""
        run = self._run
        if run.executors is not None and not await_places(
            self.plan,
            run.executors,
            lambda: run.is_pointless,
            time.sleep,
            lambda cores: fewer_slots(run.topology, self.plan, cores, run.conf),
            self._patience_secs,
        ):
            raise Abandoned
        if self._streaming is not None:
            self._payload_number = self.commits.last_report
            if self._acks_at_once:  # nobody remembers what was pending
                self._committed = Committed(self._tracking, self._committed.epoch)
                self._id = uuid.uuid4().hex
        home = make_slots_directory() if is_local(run.master) else ""
        streaming = Streaming(self._spares, home)
        start = secrets.token_hex(16)
        token = token_with(start, self._slots_tls)
        try:
            way = self._prepare(streaming, token, mode)
            checkpoint = os.path.join(self._directory, f"query-{start}")
            rows = build_rows(self.session, self.plan, way, token)
            streaming.follow(start_streaming(rows, run.name, checkpoint))
        except BaseException:
            streaming.stop()
            raise
        self._streaming = streaming
        return streaming

    def _prepare(self, streaming: Streaming, token: str, mode: Mode) -> str:
        """Start the coordinator, and on one machine the slots; return where Spark finds these."""
        if home := streaming.directory:
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
        waits_for_none = _LAP_MS if self.plan.has_loops else _REPORTS_MS
        period_ms = self._run.conf["topology.epoch.ms"] or waits_for_none
        coordinator = Coordinator(
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
            clock=self._clock,
            shares_files=is_local(self._run.master),
            tls=self._tls,
            payload_number=self._payload_number,
            notify=self._run.wake,
        )
        streaming.attend(coordinator)
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


def refuse_loops(topology: Topology, master: str) -> None:
    """Raise a ConfigError for a loop where it does not run: what goes round stays in a process.

    Levels of one slot are in one process on one machine. On a cluster Spark deals them over
    workers.
    """
    if not topology.has_loops or is_local(master):
        return
    bolt = next(bolt for bolt in topology.bolts if len(bolt.forward) < len(bolt.inputs))
    raise ConfigError(
        f"bolt {bolt.id!r} reads over a loop, which runs on one machine, and the master is "
        f"{master}",
        hint="set the master to local[*]",
    )


def real_time_warnings(topology: Topology, conf: Mapping[str, Any]) -> list[str]:
    """Return what a user may not expect of these settings."""
    warnings = []
    if conf["topology.acker.addresses"]:
        warnings.append(
            "topology.acker.addresses is for micro-batches: in real-time mode the driver's log of "
            "epochs keeps pending messages"
        )
    if conf[Config.hang_secs.key] is not None:
        warnings.append(
            f"{Config.hang_secs.key} is for micro-batches: in real-time mode all begins anew if an "
            "epoch takes longer than a minute"
        )
    keeping = [bolt.id for bolt in topology.bolts if not bolt.stateless]
    if keeping and not conf["topology.epoch.ms"]:
        names = ", ".join(map(repr, keeping))
        warnings.append(
            f"topology.epoch.ms is 0, so nothing is saved: what {names} keep is lost when a "
            "process dies; set it to 10, or declare stateless = True"
        )
    return warnings
