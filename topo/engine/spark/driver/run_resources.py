"""The open resources of a run, whatever its mode: what `SparkRun` needs of them.

Each mode has a subclass, which opens what the mode needs and starts its queries. Here is what they
share: the run, its plan, and the ownership of its checkpoint.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from topo.config import for_component
from topo.engine.spark.driver.checkpoint import Checkpoint, Rescale
from topo.engine.spark.driver.executors import Executors
from topo.engine.spark.driver.jvm_death import Jvm
from topo.engine.spark.plan import Plan, make_plan
from topo.engine.spark.worker.run_spec import RunSpec
from topo.storage.ownership import Ownership
from topo.storage.savepoints import Savepoint
from topo.topology.model import Topology
from topo.tracking.commits import Commits
from topo.tracking.plan import Mode, TrackingPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Abandoned(Exception):
    """The signal that a run was killed before it began."""


class OpenedRun(Protocol):
    """The run whose resources they are, as far as these know it."""

    @property
    def name(self) -> str: ...

    @property
    def run_id(self) -> str: ...

    @property
    def fate(self) -> str:
        """Of the state that is found in its checkpoint."""

    @property
    def begin(self) -> Mapping[str, Any]:
        """The savepoint that a new checkpoint is to begin with, if any."""

    @property
    def topology(self) -> Topology: ...

    @property
    def conf(self) -> Mapping[str, Any]: ...

    @property
    def master(self) -> str: ...

    @property
    def capture(self) -> tuple[str, ...]: ...

    @property
    def conclusions(self) -> bool: ...

    @property
    def log_file(self) -> Path | None: ...

    @property
    def jvm(self) -> Jvm | None: ...

    @property
    def executors(self) -> Executors | None: ...

    @property
    def is_pointless(self) -> bool:
        """True if the run was killed and there is nothing left to wait for."""

    def wake(self) -> None:
        """Look at once how far the run is; any thread may call it."""

    def take_spark(self, jvm: Jvm, ui: str) -> None:
        """Take note of the Spark it runs on, and of the address of its pages."""

    def take_executors(self, executors: Executors) -> None:
        """Take note of the cluster it runs on."""


class RunResources(ExitStack):
    """The open resources of a run: Spark, the checkpoint, and what its mode adds."""

    checkpoint: Checkpoint
    plan: Plan
    session: SparkSession

    def __init__(self, run: OpenedRun) -> None:
        super().__init__()
        self._run = run
        self._spec: RunSpec
        self._ownership: Ownership | None = None  # of a checkpoint that outlives the run

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    @abstractmethod
    def _open(self) -> None:
        """Open everything; what has been opened is closed if it raises."""

    # -- what a mode does ---------------------------------------------------------------------

    @abstractmethod
    def next_batch(self) -> int:
        """Return the first batch of the next query."""

    @abstractmethod
    def start_query(self, first_batch: int, mode: Mode) -> Any:
        """Start a query from the last committed batch."""

    @property
    @abstractmethod
    def commits(self) -> Commits:
        """Whoever commits the batches of the present query."""

    @property
    @abstractmethod
    def preparing(self) -> str:
        """The tasks that are being opened outside a batch, in words; or ""."""

    @abstractmethod
    def go_on(self, batch: int) -> None:
        """Let the slots that wait in this batch resume."""

    @abstractmethod
    def batch_times(self, query: Any) -> tuple[float, dict[str, float]]:
        """Return the milliseconds of the last batch, and of its phases."""

    @abstractmethod
    def error_of(self, query: Any) -> Exception:
        """Return the error that ended a query."""

    @abstractmethod
    def save(self, directory: Path) -> Savepoint:
        """Write a savepoint while the run goes on; raise a RunError if that cannot be."""

    # -- what they share ----------------------------------------------------------------------

    def _plan_for(self, cores: int, directory: str) -> None:
        run = self._run
        slots = min(run.conf["topology.workers"] or cores, cores)
        self.plan: Plan = make_plan(run.topology, slots, run.conf)
        self._spec = RunSpec(
            run.name,
            run.topology.to_bytes(),
            run.conf,
            self.plan,
            run.capture,
            run.conclusions,
            frames=directory,
            reports=directory,
        )

    def _rescale_if(self, rescale: Rescale) -> Rescale | None:
        """Return it if the user has said how many slots there are to be."""
        return None if self._run.conf["topology.workers"] is None else rescale

    def _own_checkpoint(self) -> None:
        run = self._run

        def sleep(secs: float) -> None:
            if run.is_pointless:
                raise Abandoned
            time.sleep(secs)

        owned = self.checkpoint.claim(run.name, run.run_id, sleep)
        self._ownership = self.enter_context(closing(owned))
        if run.fate:
            self.checkpoint.meet(run.fate, run.name)

    @property
    def spout_slots(self) -> int:
        """The number of slots that have a task of a spout."""
        spouts = (placed for placed in self.plan.components if placed.kind == "spout")
        return len({slot for placed in spouts for slot in placed.slots})

    def check_ownership(self) -> None:
        """Raise a CheckpointError if another driver was seen to have taken the checkpoint."""
        if self._ownership is not None:
            self._ownership.check()

    def note_committed(self, batch: int) -> None:
        """Have the checkpoint remember, wherever its parts may go, that it has got so far."""
        if self._ownership is not None:
            self._ownership.note_committed(batch)

    def look_for_hangs(self, batch: int) -> str:
        """Return which tasks do not come to an end; a mode that cannot tell names none."""
        return ""

    def confirm_ownership(self) -> None:
        """Look whether the checkpoint is still this run's; raise a CheckpointError if not."""
        if self._ownership is not None:
            self._ownership.confirm()


def tracking_plan(topology: Topology, plan: Plan, conf: Mapping[str, Any]) -> TrackingPlan:
    """Return the part of a plan that the ackers need."""
    spouts = [placed for placed in plan.components if placed.kind == "spout"]
    periods = {
        for_component(conf, bolt.id, bolt.conf)["topology.tick.tuple.freq.secs"]
        for bolt in topology.bolts
    }
    timeouts = conf["topology.enable.message.timeouts"]
    return TrackingPlan(
        levels=len(plan.levels),
        slots=plan.slots,
        spout_tasks=tuple(task for placed in spouts for task in placed.tasks),
        components={p.id: (p.tasks.start, len(p.tasks)) for p in plan.components},
        timeout_secs=conf["topology.message.timeout.secs"] if timeouts else None,
        tick_secs=tuple(sorted(float(p) for p in periods if isinstance(p, int | float))),
    )
