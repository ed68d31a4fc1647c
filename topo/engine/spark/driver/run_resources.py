"""The seam between a run and what its mode has open: what `SparkRun` needs of it, and its parts.

Each mode opens what it needs when it is made, on a stack that the run closes, and starts queries.
The parts that both have are here: the claim to the checkpoint, and what the slots are to run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Protocol

from topo.config import for_component
from topo.engine.spark.driver.checkpoint import Checkpoint, Rescale
from topo.engine.spark.driver.executors import Executors
from topo.engine.spark.driver.jvm_death import Jvm
from topo.engine.spark.driver.moves import Moves
from topo.engine.spark.plan import Plan, make_plan
from topo.engine.spark.worker.run_spec import RunSpec
from topo.runtime.dealing import Resize
from topo.storage.ownership import Ownership, Sighting
from topo.storage.savepoints import Savepoint
from topo.topology.model import Topology
from topo.tracking.commits import Commits
from topo.tracking.plan import Mode, TrackingPlan


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
    def moves(self) -> Moves: ...

    @property
    def is_pointless(self) -> bool:
        """True if the run was killed and there is nothing left to wait for."""

    def wake(self) -> None:
        """Look at once how far the run is; any thread may call it."""

    def take_spark(self, jvm: Jvm, ui: str) -> None:
        """Take note of the Spark it runs on, and of the address of its pages."""

    def take_executors(self, executors: Executors) -> None:
        """Take note of the cluster it runs on."""


class RunResources(Protocol):
    """The open resources of a run in some mode; whoever opens them closes the stack they are on."""

    @property
    def plan(self) -> Plan: ...

    @property
    def checkpoint(self) -> Checkpoint: ...

    @property
    def claim(self) -> Claim: ...

    @property
    def commits(self) -> Commits:
        """Whoever commits the batches of the present query."""

    @property
    def preparing(self) -> str:
        """The tasks that are being opened outside a batch, in words; or ""."""

    def next_batch(self) -> int:
        """Return the first batch of the next query."""

    def start_query(self, first_batch: int, mode: Mode) -> Any:
        """Start a query from the last committed batch."""

    def tell_committed(self, first_batch: int, mode: Mode) -> None:
        """Have those who count batches know, with no query, which was committed last."""

    def note_committed(self, batch: int) -> None:
        """Take note that this batch, and all before it, are committed."""

    def go_on(self, batch: int) -> None:
        """Let the slots that wait in this batch resume."""

    def look_for_hangs(self, batch: int) -> str:
        """Return which tasks do not come to an end; a mode that cannot tell names none."""

    def batch_times(self, query: Any) -> tuple[float, dict[str, float]]:
        """Return the milliseconds of the last batch, and of its phases."""

    def error_of(self, query: Any) -> Exception:
        """Return the error that ended a query."""

    def save(self, directory: Path) -> Savepoint:
        """Write a savepoint while the run goes on; raise a RunError if that cannot be."""


# -- the parts that both modes have -------------------------------------------------------------


class Claim:
    """The claim of a run to its checkpoint; there is none to one that ends with the run."""

    def __init__(self, ownership: Ownership | None) -> None:
        self._ownership = ownership

    @classmethod
    def of(
        cls,
        run: OpenedRun,
        checkpoint: Checkpoint,
        stack: ExitStack,
        sighting: Sighting | None = None,
    ) -> Claim:
        """Claim the checkpoint, once no other driver has it, until the stack is closed.

        `sighting` is of its owner, before Spark was started.
        """
        if not run.conf["topology.checkpoint.dir"]:
            return cls(None)

        def sleep(secs: float) -> None:
            if run.is_pointless:
                raise Abandoned
            time.sleep(secs)

        claimed = checkpoint.claim(run.name, run.run_id, sleep, sighting)
        owned = stack.enter_context(closing(claimed))
        if run.fate:
            checkpoint.meet(run.fate, run.name)
        return cls(owned)

    def check(self) -> None:
        """Raise a CheckpointError if another driver was seen to have taken the checkpoint."""
        if self._ownership is not None:
            self._ownership.check()

    def confirm(self) -> None:
        """Look whether the checkpoint is still this run's; raise a CheckpointError if not."""
        if self._ownership is not None:
            self._ownership.confirm()

    def note_committed(self, batch: int) -> None:
        """Have the checkpoint remember, wherever its parts may go, that it has got so far."""
        if self._ownership is not None:
            self._ownership.note_committed(batch)


def spec_for(run: OpenedRun, cores: int, directory: str) -> RunSpec:
    """Return what the slots are to run on so many cores; large reports go to the directory."""
    slots = min(run.conf["topology.workers"] or cores, cores)
    return RunSpec(
        run.name,
        run.topology.to_bytes(),
        run.conf,
        make_plan(run.topology, slots, run.conf),
        run.capture,
        run.conclusions,
        frames=directory,
        reports=directory,
    )


def resizes(plan: Plan, before: Mapping[str, Any]) -> list[Resize]:
    """Return which components of a plan have another number of tasks than in the one before."""
    return [Resize(name, then, now) for name, (then, now) in plan.resized(before).items()]


def if_asked(run: OpenedRun, checkpoint: Checkpoint, rescale: Rescale) -> Rescale | None:
    """Return it if the user has said how many slots there are to be.

    The run's moves hear first which tasks the checkpoint has, to which they return if need be.
    """
    if run.conf["topology.workers"] is None:
        return None

    def noted(before: Mapping[str, Any]) -> None:
        run.moves.found(checkpoint.task_ids)
        rescale(before)

    return noted


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
