"""The move of a run to another number of slots, or of tasks of components, while it runs.

It is decided by those who call, and made by the run's own thread: the query stops behind its last
commit, everything but Spark is closed and opened again with the other number, and the checkpoint is
dealt in between. If that cannot be opened, the number before is opened again, and the run has the
error to tell; whatever has happened to the checkpoint by then, it is dealt back. The way back needs
no proof of the keys, since they have been dealt on the way there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topo.config.masters import is_local, local_cores
from topo.engine.spark.driver.checkpoint import REAL_TIME
from topo.engine.spark.driver.masters import with_room
from topo.engine.spark.driver.rescaling import refuse_sources
from topo.engine.spark.plan import make_plan
from topo.engine.spark.realtime.places import check_places
from topo.errors import EngineError, RunError, TopoError, sentence_of
from topo.runtime.dealing import Dealer, Resize, dealers, resizes_to
from topo.topology.layout import TASK_IDS, TaskLayout, with_other_counts
from topo.topology.model import Topology

_WORKERS = "topology.workers"


@dataclass(frozen=True)
class _Move:
    """What a move was asked to come to: the settings to open with."""

    workers: int
    ids: Mapping[str, Any] | None = None
    """The ids of tasks, if components get other numbers of them."""

    def settings(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        ids = {} if self.ids is None else {TASK_IDS: dict(self.ids)}
        return {**conf, _WORKERS: self.workers, **ids}


class Moves:
    """The moves of a run, one at a time. Every thread may call `ask`; the run's own the rest."""

    def __init__(self, topology: Topology, conf: Mapping[str, Any], master: str) -> None:
        self._topology = topology
        self._conf = conf
        self._master = master
        self._lock = threading.Lock()
        self._asked: _Move | None = None
        self._before: dict[str, Any] = {}
        self._found: Mapping[str, Any] | None = None
        """The ids that the checkpoint keeps, as it was found last."""
        self._goes_back = False
        """True from the end of a move that failed until what was before is open again."""
        self._left: Mapping[str, Any] | None = None
        """The ids before a move that was made another one on its way."""
        self.is_moving = False
        """True from the end of the slots before to the beginning of the new ones."""
        self.failure: TopoError | None = None
        """Why the last move was taken back."""

    @property
    def is_due(self) -> bool:
        """True if there is one to begin."""
        return self._asked is not None and not self.is_moving

    @property
    def is_asked(self) -> bool:
        """True from the question to the end of a move."""
        return self._asked is not None

    def ask(
        self,
        workers: int | None,
        present: int,
        tasks: Mapping[str, int] | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Ask for a move; raise what can be known to keep it from being made.

        It is from `present` slots to `workers`, or to as many as there are; `tasks` are the other
        numbers of tasks, by component, and `conf` the present settings. Return the settings that it
        would change.
        """
        move = self.check(workers, present, tasks, conf)
        with self._lock:
            if self._asked is not None:
                raise RunError(f"it is moving to {self._asked.workers} slots already")
            self.failure = None
            self._asked = move
        return move.settings({})

    def shrink(self, slots: int) -> None:
        """Have the run go over to the slots that are left, with the tasks that were asked for."""
        with self._lock:
            ids = self._asked.ids if self._asked is not None else None
            self._left = self._before.get(TASK_IDS) if self.is_moving else None
            self._asked, self.is_moving = _Move(slots, ids), False

    def begin(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings to open with."""
        assert self._asked is not None, "a move was asked for"
        self.is_moving, self._before = True, {_WORKERS: conf[_WORKERS]}
        if self._asked.ids is not None:
            # By name, so that what has been dealt by then is dealt back.
            present = TaskLayout(self._topology, conf).components
            self._before[TASK_IDS] = self._left or with_other_counts(present, {})
        self._left = None
        return self._asked.settings(conf)

    def grows_beyond(self, slots: int) -> bool:
        """True if the move needs more cores than this Spark was started with."""
        return (
            self._asked is not None and self._asked.workers > slots and not is_local(self._master)
        )

    def arrive(self, conf: Mapping[str, Any], slots: int) -> Mapping[str, Any]:
        """Note that this many slots are open; return the settings to open with next time."""
        move, self._goes_back = self._asked, False
        if not self.is_moving or move is None:
            return conf
        self._end()
        workers = move.workers
        if slots == workers:
            return conf
        self.failure = EngineError(
            f"there are cores for {slots} slots, and not for {workers}",
            hint="a cluster has half a minute to give more",
        )
        return {**conf, _WORKERS: self._before[_WORKERS]}

    def _end(self) -> None:
        self._asked, self.is_moving = None, False

    def take_back(self, conf: Mapping[str, Any], error: TopoError) -> dict[str, Any]:
        """Return the settings to open with after a move that failed."""
        self.failure = error
        self._end()
        self._goes_back = True
        return {**conf, **self._before}

    def found(self, ids: Mapping[str, Any] | None) -> None:
        """Note the ids of tasks that the checkpoint keeps, before it is dealt."""
        self._found = ids

    def dealers(self, conf: Mapping[str, Any], resized: Sequence[Resize]) -> dict[str, Dealer]:
        """Return who deals what these components have saved; raise a CannotDeal if one cannot."""
        return dealers(self._topology, conf, resized, is_proved=self._goes_back)

    def refuse(self, conf: Mapping[str, Any], error: TopoError) -> dict[str, Any]:
        """Return the settings to open with if the checkpoint cannot be dealt: those it is dealt by.

        Another driver has begun what cannot be, or what this one has dealt cannot be dealt back.
        """
        there = {**conf, TASK_IDS: self._found}
        cause = self.failure if self._goes_back else None
        if cause is None:
            self.failure = error
            return there
        before = TaskLayout(self._topology, conf).components
        counts = [
            f"{name!r} has {len(tasks)} tasks"
            for name, tasks in TaskLayout(self._topology, there).components.items()
            if tasks != before[name]
        ]
        self.failure = EngineError(
            f"{sentence_of(cause)}; its tasks cannot be dealt back, {sentence_of(error)}; now "
            + ", ".join(counts),
            at=cause.at,
            hint=cause.hint,
            code=cause.code,
        )
        return there

    def check(
        self,
        workers: int | None,
        present: int,
        tasks: Mapping[str, int] | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> _Move:
        """Return the move that would be made; raise what can be known to keep it from that."""
        now = {**self._conf, **(conf or {})}
        move = _Move(workers or present, self._ids(tasks, now) if tasks else None)
        if move.workers == present and not tasks:
            raise RunError(f"it has {present} slots already")
        self._check_slots(move, now)
        return move

    def _ids(self, tasks: Mapping[str, int], conf: Mapping[str, Any]) -> dict[str, list[int]]:
        """Return the ids with other numbers of tasks; raise a RunError for what cannot be dealt."""
        ids, resized = resizes_to(self._topology, TaskLayout(self._topology, conf), tasks)
        dealers(self._topology, conf, resized)
        return ids

    def _check_slots(self, move: _Move, conf: Mapping[str, Any]) -> None:
        workers = move.workers
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
        plan = make_plan(self._topology, workers, move.settings(conf))
        if is_local(self._master):
            cores = local_cores(self._master)
            if workers > cores:
                raise RunError(f"{self._master} has {cores} cores, so no more slots than that")
            if self._conf["topology.mode"] == REAL_TIME:
                check_places(plan, local_cores(with_room(self._master)))
        refuse_sources(plan)
