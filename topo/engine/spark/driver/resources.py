"""The resources of a run: Spark's session, the ackers, the slot processes, the checkpoint."""

from __future__ import annotations

import logging
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.config import Config
from topo.config.masters import is_local, local_cores
from topo.engine.spark.datasets.sinks import SinkWriter
from topo.engine.spark.driver.ackers import Ackers, outer_ackers
from topo.engine.spark.driver.attempts import task_failures
from topo.engine.spark.driver.checkpoint import Checkpoint
from topo.engine.spark.driver.executors import executors_of
from topo.engine.spark.driver.hangs import Hangs
from topo.engine.spark.driver.jvm_death import Jvm, drop_dead_spark
from topo.engine.spark.driver.query import build_query, start_query
from topo.engine.spark.driver.query_errors import error_of, with_cause
from topo.engine.spark.driver.rescaling import deal, initial_of
from topo.engine.spark.driver.run_resources import (
    Abandoned,
    Claim,
    OpenedRun,
    if_asked,
    resizes,
    spec_for,
    tracking_plan,
)
from topo.engine.spark.driver.savepoints import begin_batches, save
from topo.engine.spark.driver.scratch import make_run_directory
from topo.engine.spark.driver.slots import SlotProcesses
from topo.engine.spark.driver.worker_check import check_workers
from topo.engine.spark.jvm.local_files import sync_below
from topo.engine.spark.jvm.session import query_session, query_settings, start_session
from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.beginning import start_of
from topo.engine.spark.worker.run_spec import RunSpec
from topo.engine.spark.worker.slot_runner import SlotRunner
from topo.engine.spark.worker.stage_errors import STATE_REFUSED
from topo.errors import AckerError, ConfigError, EngineError
from topo.logs.capture import are_wanted
from topo.shipping.requirements import check_requirements
from topo.storage.checkpoints import REPORTS, local_path
from topo.storage.ownership import Sighting
from topo.storage.savepoints import Savepoint
from topo.tracing.exporting import check_tracing
from topo.tracking.client import AckerControl, Lease
from topo.tracking.clock import monotonic
from topo.tracking.plan import Mode
from topo.tracking.transport import GrpcTransport
from topo.wire.column import dump

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("topo.spark")

# The log lines of a batch travel with its reports, of which the ackers hold 64 MB.
_LOGGED_BYTES = 4 << 20
_LOGGED_BYTES_EACH = 256 << 10
_DURATION = re.compile(r"(\w+)=(\d+)")


_ALL_PAYLOADS = 1 << 62


class BatchResources:
    """The open resources of a run in micro-batches; also the ackers and the slot processes."""

    preparing = ""  # which belongs to the batch here

    def __init__(self, run: OpenedRun, stack: ExitStack) -> None:
        self._run, self._stack = run, stack
        self._lease: Lease
        self._has_begun = False
        self._is_alone = False  # the generation of the checkpoint: there is no other
        self._ackers: Ackers | None = None  # in this process
        self._run_id = uuid.uuid4().hex  # of this opening, as the workers know it
        self._sinks: SinkWriter | None = None
        self._paths: tuple[str, ...] = ()  # of the slot processes; none on a cluster
        self._slots: SlotProcesses | None = None
        self._hangs = Hangs(())
        directory = make_run_directory()
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        check_tracing(run.conf)
        if is_local(run.master):
            check_requirements(run.topology)
        if is_local(run.master):  # Spark starts last: what takes its time starts beside it
            self._open_own_ackers("")
            self._start_slots(directory)
        drop_dead_spark()
        sighting = Sighting.of(run.conf["topology.checkpoint.dir"], monotonic)
        session = start_session(run.master, run.conf, run.log_file)
        run.take_spark(Jvm(session.sparkContext), session.sparkContext.uiWebUrl or "")
        path = run.conf["topology.checkpoint.dir"] or f"{directory}/checkpoint"
        self.checkpoint = Checkpoint(session, path)
        self.claim = Claim.of(run, self.checkpoint, stack, sighting)
        if run.conf["topology.checkpoint.dir"]:
            self._sync_checkpoint(session)
        if not is_local(run.master):
            self._open_own_ackers(session.conf.get("spark.driver.host", "") or "")
            self._plan_for_cluster(session)
        settings = query_settings(self.plan.slots, self.checkpoint.location, run.conf)
        self.session: SparkSession = query_session(session, settings)
        self._id = self.checkpoint.adopt(
            self.plan,
            rescale=if_asked(run, self.checkpoint, self._deal),
            begin_with=self._begin_with if run.begin else None,
        )
        self._open_outer_ackers()
        if self._ackers is not None:
            self._ackers.keep_failures_in(self.checkpoint)

    def _deal(self, before: Mapping[str, Any]) -> None:
        resized = resizes(self.plan, before)
        others = "".join(f", {each}" for each in resized)
        log.info(
            "%s has the state of %s slots: dealing it%s", self._run.name, before["slots"], others
        )
        dealing = self._run.moves.dealers(self._run.conf, resized)
        deal(self.session, self.checkpoint, self.plan, resized, dealing)

    def _begin_with(self) -> Mapping[str, Any]:
        run = self._run
        ackers = max(1, run.conf["topology.acker.executors"])
        start = start_of(run.begin)
        return begin_batches(self.session, self.checkpoint, start, self.plan, ackers)

    def save(self, directory: Path) -> Savepoint:
        """Write the last committed batch into a directory; any thread may call it."""
        session = query_session(
            self.session,
            query_settings(self.plan.slots, self.checkpoint.location, self._run.conf),
        )
        return save(session, self.checkpoint, directory, self._run.name)

    def _sync_checkpoint(self, session: SparkSession) -> None:
        wanted = self._run.conf["topology.checkpoint.sync"]
        path = local_path(self.checkpoint.location)
        if wanted is False or (wanted is None and (path is None or not is_local(self._run.master))):
            return
        if path is None or not is_local(self._run.master):
            raise ConfigError(
                "topology.checkpoint.sync is for a Spark on one machine, and a checkpoint in its "
                "own file system",
                at="topology.checkpoint.sync",
                hint="elsewhere, the file system of the checkpoint says when a file is durable",
            )
        sync_below(session.sparkContext, str(path), is_required=bool(wanted))

    def look_for_hangs(self, batch: int) -> str:
        """Return which tasks do not come to an end; end slots whose task may take no longer."""
        self._hangs.look(batch)
        limit = self._run.conf[Config.hang_secs.key]
        if limit is not None and self._slots is not None:
            for hang in self._hangs.longer_than(limit):
                why = f"was ended after more than {limit:g} s ({Config.hang_secs.key})"
                self._slots.end(hang.slot, why)
                self._hangs.forget(hang.slot)
        executors = self._run.executors
        return self._hangs.words or (executors.in_work if executors else "")

    def _open_own_ackers(self, host: str) -> None:
        conf = self._run.conf
        if conf["topology.acker.addresses"] and conf["topology.acker.executors"]:
            return  # there are others, which the checkpoint's id opens
        self._ackers = self._stack.enter_context(closing(Ackers(self._run.name, conf, host)))
        self.control = self._ackers.control()

    def _open_outer_ackers(self) -> None:
        token = self.checkpoint.acker_token
        target = outer_ackers(self._run.name, self._run.conf, self._id, token)
        if target is None:
            return
        transport = self._stack.enter_context(closing(GrpcTransport(target)))
        self.control = AckerControl(target, transport)
        self._stack.callback(self._leave_outer_ackers)

    def _leave_outer_ackers(self) -> None:
        """Make outer ackers forget the run, unless they know of messages that a later one needs."""
        with suppress(AckerError):
            status = self.control.status()
            if not status.pending and not status.unheard:
                self.control.unregister()

    def _start_slots(self, directory: str) -> None:
        self._spec = spec_for(self._run, local_cores(self._run.master), directory)
        slots = range(self.plan.slots)
        factories = {slot: dump(_Factory(self._spec, slot)) for slot in slots}
        self._slots = self._stack.enter_context(closing(SlotProcesses(factories)))
        self._paths = tuple(map(self._slots.path, slots))
        self._hangs = Hangs(self._paths)

    def _plan_for_cluster(self, session: SparkSession) -> None:
        run = self._run
        asked, planned = run.conf["topology.workers"], self.checkpoint.slots()
        executors = executors_of(session, asked or planned, run.log_file)
        run.take_executors(executors)
        if planned and asked in (None, planned):
            # A checkpoint's slots stay, whatever the cluster gives now.
            executors.plan_for(planned, of_checkpoint=True)
        cores = executors.wait_for_cores(lambda: run.is_pointless, time.sleep)
        if run.is_pointless or not cores:
            raise Abandoned
        check_workers(session, cores, run.topology)
        has_asked = asked is not None and cores >= asked
        cores = executors.slots or (cores if has_asked else planned or cores)
        self._spec = spec_for(run, cores, "")
        executors.plan_for(self.plan.slots)
        executions = self.plan.slots * len(self.plan.levels)
        logged = min(_LOGGED_BYTES // executions, _LOGGED_BYTES_EACH)
        self._spec = replace(
            self._spec,
            reports=_reports_in(self.checkpoint.location),
            log_bytes=logged if are_wanted() else 0,
        )

    def go_on(self, batch: int) -> None:
        """Let the slots that wait in this batch resume, as if one of them had data."""
        with suppress(AckerError):  # it has gone on, or is over: the next look will tell
            self.control.let_go_on(self._lease, batch)

    def next_batch(self) -> int:
        """Return the first batch of the next query."""
        return self.checkpoint.next_batch()

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        return self._spec.plan

    @property
    def commits(self) -> AckerControl:
        """The ackers, which tell the slots what the driver tells them."""
        return self.control

    def error_of(self, query: Any) -> Exception:
        """Return the error that ended a query."""
        failures = partial(task_failures, self.session.sparkContext, query)
        if self._sinks is not None and self._sinks.failure is not None:
            return self._sinks.failure
        error = error_of(query, self.control.target.token, failures)
        if isinstance(error, EngineError) and error.code == STATE_REFUSED and self._run.jvm:
            return with_cause(error, self._run.jvm.state_failure())
        return error

    def batch_times(self, query: Any) -> tuple[float, dict[str, float]]:
        """Return the milliseconds of the last batch, and of what Spark did in it."""
        # `query.lastProgress` has all figures, but as JSON that the JVM writes and this parses.
        progress: Any = query._jsq.lastProgress()
        if not progress:
            return 0.0, {}
        # As text in one call: "{addBatch=120, commitOffsets=14, ...}".
        durations = _DURATION.findall(progress.durationMs().toString())
        return float(progress.batchDuration()), {name: float(ms) for name, ms in durations}

    def tell_committed(self, first_batch: int, mode: Mode) -> None:
        """Have the ackers know of the last commit, as the next batch would have done."""
        self._register(first_batch, mode)

    def _register(self, first_batch: int, mode: Mode) -> Lease:
        plan = tracking_plan(self._run.topology, self.plan, self._run.conf)
        return self.control.register(plan, first_batch, self._id, mode)

    def start_query(self, first_batch: int, mode: Mode) -> Any:
        """Register an epoch and start its query."""
        lease = self._lease = self._register(first_batch, mode)
        if self._ackers is None and not self._has_begun:
            # The dead driver's reports; large ones were in a directory that went with it.
            self.control.status(_ALL_PAYLOADS)
        self._has_begun = True
        factory = b"" if self._paths else dump(_AnyFactory(self._spec))
        topology = self._run.topology
        generation = self.checkpoint.generation
        rows = build_query(
            self.session,
            self.plan,
            topology,
            self._run_id,
            lease,
            self._paths,
            factory,
            first_batch=generation.first_batch,
            initial=partial(initial_of, self.session, self.checkpoint),
        )
        if self.plan.sinks:
            self._sinks = SinkWriter(
                self.plan, topology, self._id, first_batch, generation.first_batch
            )
        return start_query(rows, self._run.name, self.checkpoint.query_place, self._sinks)

    def note_committed(self, batch: int) -> None:
        """Have the checkpoint remember it; it needs no earlier generation any more."""
        self.claim.note_committed(batch)
        if not self._is_alone:
            self._is_alone = True
            self.checkpoint.clear_others()


def _reports_in(checkpoint: str) -> str:
    """Make a directory in a local checkpoint for reports too large for the ackers; else "".

    Workers reach the directory: Spark's state is beside it.
    """
    path = local_path(checkpoint)
    if path is None:
        return ""
    directory = path / REPORTS
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return str(directory)


class _AnyFactory:
    """A factory of any slot's runner."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec

    def __call__(self, slot: int) -> SlotRunner:
        return SlotRunner(self._spec, slot)


class _Factory:
    """A factory of one slot's runner."""

    def __init__(self, spec: RunSpec, slot: int) -> None:
        self._spec, self._slot = spec, slot

    def __call__(self) -> SlotRunner:
        return SlotRunner(self._spec, self._slot)
