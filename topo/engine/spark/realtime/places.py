"""The task places of a run in real-time mode: each level of each slot has one, all the time.

Spark starts all stages of the query at once, or refuses. So a run that cannot have its places says
so before anything starts, and one that has lost some waits for them, and says that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from topo.engine.spark.driver.executors import Executors
from topo.engine.spark.plan import Plan, make_plan
from topo.errors import EngineError
from topo.topology.model import Topology

_PAUSE_SECS = 0.05
_MOST_SLOTS = 100
"""What topo is made for; a cluster may have more cores."""


def places_needed(plan: Plan) -> int:
    """Return how many of Spark's task places a plan takes in real-time mode, all the time."""
    return plan.slots * len(plan.levels)


def check_places(plan: Plan, places: int) -> None:
    """Raise an EngineError if this Spark can never run all tasks of the plan at once."""
    if places_needed(plan) > places:
        raise too_few(plan, f"this Spark has {places}")


def too_few(plan: Plan, have: str = "others take the rest") -> EngineError:
    """Return the error that there are not enough places."""
    needed, levels = places_needed(plan), len(plan.levels)
    return EngineError(
        f"real-time mode needs {needed} task places at the same time ({levels} levels on "
        f"{plan.slots} slots), and {have}",
        code="real-time-places",
        hint="lower topology.workers, give Spark more cores, or set topology.mode=micro-batch",
    )


def plan_that_fits(topology: Topology, places: int, conf: Mapping[str, Any]) -> Plan:
    """Return the plan with the most slots that have all their places; with one, if none has."""
    for slots in range(min(places, _MOST_SLOTS), 1, -1):
        plan = make_plan(topology, slots, conf)
        if places_needed(plan) <= places:
            return plan
    return make_plan(topology, 1, conf)


def await_places(
    plan: Plan,
    executors: Executors,
    stopped: Callable[[], bool],
    sleep: Callable[[float], None],
    fewer: Callable[[int], int | None] = lambda cores: None,
    patience_secs: float = math.inf,
) -> bool:
    """Wait until the executors have the places of a plan; return False if the run was stopped.

    After a loss a cluster takes some seconds to give another executor; the run's `reason` says
    what is missing meanwhile. After `patience_secs` it raises FewerSlots if there are places for
    some, which `fewer` tells of a number of cores.
    """
    waited = 0.0
    while not stopped():
        executors.look()
        if executors.cores >= places_needed(plan):
            return True
        if waited >= patience_secs and (slots := fewer(executors.cores)):
            raise FewerSlots(slots)
        sleep(_PAUSE_SECS)
        waited += _PAUSE_SECS
    return False


def fewer_slots(topology: Topology, plan: Plan, cores: int, conf: Mapping[str, Any]) -> int | None:
    """Return how many slots have all their places on so many cores; None if none has."""
    fits = plan_that_fits(topology, cores, conf)
    return fits.slots if fits.slots < plan.slots and places_needed(fits) <= cores else None


class FewerSlots(EngineError):
    """The loss of places for good: some slots would have theirs."""

    def __init__(self, slots: int) -> None:
        super().__init__(f"places were lost; there are those of {slots} slots", code="spark")
        self.slots = slots
