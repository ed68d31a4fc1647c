"""The owner of one slot's instances, which executes the slot's part of every level."""

from __future__ import annotations

import time
from collections.abc import Mapping

from topo.config.secrets import masked
from topo.engine.spark.worker.execution import Execution, Instances
from topo.engine.spark.worker.messages import (
    Abandoned,
    Outcome,
    Restore,
    Work,
)
from topo.engine.spark.worker.polling import Polling
from topo.engine.spark.worker.report import Capture
from topo.engine.spark.worker.rounds import TakenRound
from topo.engine.spark.worker.run_spec import RunSpec
from topo.engine.spark.worker.spool import Spool
from topo.errors import AckerError, EngineError, TopoError
from topo.logs.capture import collect_logs
from topo.logs.requests import LogRequests
from topo.runtime.slot import SlotTasks
from topo.tracking.client import AckerClient, Lease
from topo.tracking.clock import SteadyClock


class SlotRunner:
    """The owner of the instances of one slot, at every level."""

    def __init__(self, spec: RunSpec, slot: int) -> None:
        self.plan = spec.plan
        self._slot = slot
        self.capture = Capture(spec.capture, spec.conclusions)
        self.reports = spec.reports
        self.spool = Spool(spec.frames, slot, spec.conf["topology.batch.file.bytes"])
        if spec.log_bytes:
            collect_logs(spec.log_bytes)
        self.environment = spec.environment(slot, SteadyClock())
        if spec.capture or spec.conclusions:
            self.environment.listener = self.capture
        self.topology = self.environment.topology
        self.log_requests = LogRequests(masked)
        self._instances: dict[int, Instances] = {}
        self.polling = Polling(spec.conf, asks_spark=bool(spec.plan.sources))
        self.environment.wake = self.polling.wake
        self._lease: Lease | None = None
        self._client: AckerClient | None = None
        self.incarnations: Mapping[int, int] = {}
        self._raised: tuple[tuple[int, int, int], TopoError] | None = None
        self._epoch_asked = -1
        self.most_loop_mb: int = spec.conf["topology.loop.max.mb"]
        self.said_exhausted = False
        self.said_stalls: tuple[str, ...] = ()

    def execute(self, work: Work, restore: Restore, abandoned: Abandoned) -> Outcome:
        """Execute this slot's part of a level."""
        self.capture.clear()
        which = (work.lease.epoch, work.batch, work.level)
        if self._raised is not None and self._raised[0] == which:
            raise self._raised[1]  # Spark's retries are for failures of machines
        started = time.monotonic()
        try:
            return self._execute(work, restore, abandoned)
        except TopoError as error:
            if not isinstance(error, AckerError | EngineError):
                self._raised = (which, error)
            raise
        finally:
            self.polling.budget.worked(started, time.monotonic())

    def _execute(self, work: Work, restore: Restore, abandoned: Abandoned) -> Outcome:
        self.environment.checkpoint_id = work.lease.run_id
        execution = Execution(self, work, restore, abandoned)
        # Until the execution is done, these instances must not pass for those of a committed state.
        execution.instances = self._instances.pop(work.level, None)
        outcome = execution.run_spouts() if work.level == 0 else execution.run_bolts()
        if execution.instances is not None:
            execution.instances.batch = work.batch
            execution.instances.epoch = work.lease.epoch
            self._instances[work.level] = execution.instances
        return outcome

    def tell_committed(self, batch: int, epoch: int) -> None:
        """Tell the instances of other levels that their batch is committed: the next has begun.

        Those that executed it in another epoch may be of an attempt that was rolled back and done
        again elsewhere; they hear at their own next execution, if they are of the committed state.
        """
        for known in self._instances.values():
            if known.batch < batch and known.epoch == epoch and not known.closed:
                known.host.tell_committed()

    def rounds(self, batch: int, epoch: int) -> list[TakenRound] | None:
        """Return what goes round from the batch before this one; None if that is not known."""
        rounds = []
        for level, placed in enumerate(self.plan.levels):
            tasks = {task for each in placed if each.loops for task in each.tasks}
            if tasks.isdisjoint(self.plan.tasks_at(level, self._slot)):
                continue
            instances = self._instances.get(level)
            if instances is None or instances.batch != batch - 1 or instances.epoch != epoch:
                return None
            waiting = instances.host.roundabout.waiting()
            if waiting.frames and not instances.closed:
                rounds.append(TakenRound(level, instances.committed, waiting))
        return rounds

    def is_first_of(self, epoch: int) -> bool:
        """Return True once for each epoch: what other levels have is not known yet."""
        before, self._epoch_asked = self._epoch_asked, epoch
        return before != epoch

    @property
    def is_called(self) -> bool:
        """True if threads of user code have left calls for a task, at any level but the present."""
        return any(each.host.is_called for each in self._instances.values())

    def wakes_at(self, spouts: SlotTasks | None) -> float | None:
        """Return when, by the clock, a task of this slot in event time has something to do."""
        hosts = [known.host for known in self._instances.values() if not known.closed]
        if spouts is not None:
            hosts.append(spouts)
        times = [time for host in hosts for time in host.wakes_at() if time is not None]
        return min(times, default=None)

    def client(self, lease: Lease) -> AckerClient:
        if self._client is None or self._lease != lease:
            self._lease, self._client = lease, AckerClient(lease)
            self.incarnations = lease.incarnation_of()
            self.said_exhausted = False
            self.said_stalls = ()
        return self._client
