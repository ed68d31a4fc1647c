"""The specification of a run, as the processes of its slots get it, in either mode.

It has a module of its own because a slot of real-time mode needs nothing of gRPC, whose import is a
tenth of what its process needs to start, and to start again after a death.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from topo.engine.spark.plan import Plan
from topo.runtime.task import TaskEnvironment
from topo.shipping.pickling import install_user_classes
from topo.topology.layout import TaskLayout
from topo.topology.model import Topology


@dataclass(frozen=True)
class RunSpec:
    """The specification of a run, the same for every slot."""

    name: str
    topology: bytes
    conf: Mapping[str, Any]
    plan: Plan
    capture: tuple[str, ...] = ()
    conclusions: bool = False
    frames: str = ""
    """A directory for frames, if all slots are on one machine."""
    reports: str = ""
    """A directory for large reports, if slots and driver share one."""
    log_bytes: int = 0
    """Maximum bytes of log lines that an execution sends to the driver; 0 for none."""

    def environment(self, slot: int, clock: Callable[[], float]) -> TaskEnvironment:
        """Return what the tasks of a slot share; makes the user's classes known here."""
        topology = Topology.from_bytes(self.topology)
        install_user_classes(topology.user_classes)
        return TaskEnvironment(
            topology,
            TaskLayout(topology, self.conf),
            self.conf,
            self.name,
            clock,
            local_tasks=self.plan.tasks_in(slot),
        )
