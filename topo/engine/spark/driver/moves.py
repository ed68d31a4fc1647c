"""The move of a run to another number of slots, while it runs.

It is decided by those who call, and made by the run's own thread: the query stops behind its last
commit, everything but Spark is closed and opened again with the other number, and the checkpoint is
dealt in between. If that cannot be opened, the number before is opened again, and the run has the
error to tell; whatever has happened to the checkpoint by then, it is dealt back.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from topo.config.masters import is_local, local_cores
from topo.engine.spark.driver.checkpoint import REAL_TIME
from topo.engine.spark.driver.masters import with_room
from topo.engine.spark.driver.rescaling import refuse_sources
from topo.engine.spark.plan import make_plan
from topo.engine.spark.realtime.places import check_places
from topo.errors import EngineError, RunError, TopoError
from topo.topology.model import Topology

_WORKERS = "topology.workers"


class Moves:
    """The moves of a run, one at a time. Every thread may call `ask`; the run's own the rest."""

    def __init__(self, topology: Topology, conf: Mapping[str, Any], master: str) -> None:
        self._topology = topology
        self._conf = conf
        self._master = master
        self._lock = threading.Lock()
        self._workers: int | None = None  # asked for
        self._before: int | None = None
        self.is_moving = False
        """True from the end of the slots before to the beginning of the new ones."""
        self.failure: TopoError | None = None
        """Why the last move was taken back."""

    @property
    def is_due(self) -> bool:
        """True if there is one to begin."""
        return self._workers is not None and not self.is_moving

    @property
    def is_asked(self) -> bool:
        """True from the question to the end of a move."""
        return self._workers is not None

    def ask(self, workers: int, present: int) -> None:
        """Ask for a move; raise what can be known to keep it from being made."""
        self._check(workers, present)
        with self._lock:
            if self._workers is not None:
                raise RunError(f"it is moving to {self._workers} slots already")
            self.failure = None
            self._workers = workers

    def shrink(self, slots: int) -> None:
        """Have the run go over to the slots that are left, whatever was asked for."""
        with self._lock:
            self._workers, self.is_moving = slots, False

    def begin(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings to open with."""
        self.is_moving, self._before = True, conf[_WORKERS]
        return {**conf, _WORKERS: self._workers}

    def grows_beyond(self, slots: int) -> bool:
        """True if the move needs more cores than this Spark was started with."""
        return self._workers is not None and self._workers > slots and not is_local(self._master)

    def arrive(self, conf: Mapping[str, Any], slots: int) -> Mapping[str, Any]:
        """Note that this many slots are open; return the settings to open with next time."""
        workers = self._workers
        if not self.is_moving:
            return conf
        self._end()
        if slots == workers:
            return conf
        self.failure = EngineError(
            f"there are cores for {slots} slots, and not for {workers}",
            hint="a cluster has half a minute to give more",
        )
        return {**conf, _WORKERS: self._before}

    def _end(self) -> None:
        self._workers, self.is_moving = None, False

    def take_back(self, conf: Mapping[str, Any], error: TopoError) -> dict[str, Any]:
        """Return the settings to open with after a move that failed."""
        self.failure = error
        self._end()
        return {**conf, _WORKERS: self._before}

    def _check(self, workers: int, present: int) -> None:
        if workers == present:
            raise RunError(f"it has {workers} slots already")
        if self._conf["topology.mode"] == REAL_TIME and not self._conf["topology.epoch.ms"]:
            raise RunError(
                "with topology.epoch.ms=0 nothing is saved, so nothing can move",
                hint="set topology.epoch.ms, or submit it again with other topology.workers",
            )
        if not self._conf["topology.checkpoint.dir"]:
            raise RunError(
                "it has no topology.checkpoint.dir, so its state ends with its slots",
                hint="submit it with one",
            )
        plan = make_plan(self._topology, workers, self._conf)
        if is_local(self._master):
            cores = local_cores(self._master)
            if workers > cores:
                raise RunError(f"{self._master} has {cores} cores, so no more slots than that")
            if self._conf["topology.mode"] == REAL_TIME:
                check_places(plan, local_cores(with_room(self._master)))
        refuse_sources(plan)
