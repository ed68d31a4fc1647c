"""The tasks of a topology under a configuration: ids from 1, over the sorted component names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from topo.config.layers import for_component
from topo.errors import InvalidTopologyError, Problem, TopoError
from topo.topology.model import ComponentDef, Topology

MAX_TASKS = 65_535  # a root's id holds its spout task in 16 bits


class TaskLayout:
    """The task ids of every component of a topology."""

    def __init__(self, topology: Topology, conf: Mapping[str, Any] | None = None) -> None:
        self._tasks: dict[str, range] = {}
        self._components: list[str] = [""]
        first = 1
        for component in topology.components.values():
            tasks = range(first, first + task_count(component, conf or {}))
            self._tasks[component.id] = tasks
            self._components.extend([component.id] * len(tasks))
            first = tasks.stop
        if self.count > MAX_TASKS:
            raise InvalidTopologyError(
                [
                    Problem(
                        "too-many-tasks", "topology", f"{self.count} tasks; {MAX_TASKS} is the most"
                    )
                ]
            )

        problems = list(self._unequal(topology))
        if problems:
            raise InvalidTopologyError(problems)

    def _unequal(self, topology: Topology) -> Iterator[Problem]:
        for component in topology.components.values():
            for read in component.inputs:
                own, others = len(self._tasks[component.id]), len(self._tasks[read.component])
                if read.grouping.is_aligned and own != others:
                    where = f"{component.kind} {component.id!r}"
                    yield Problem(
                        "unequal-tasks",
                        where,
                        f"{where} reads {read.component!r} by same_task_grouping, and has {own} "
                        f"tasks where {read.component!r} has {others}",
                        "give both the same parallelism",
                    )

    @property
    def count(self) -> int:
        return len(self._components) - 1

    @property
    def components(self) -> Mapping[str, range]:
        return self._tasks

    def tasks_of(self, component: str) -> range:
        return self._tasks[component]

    def component_of(self, task: int) -> str:
        if not 1 <= task <= self.count:
            raise TopoError(f"no task {task}; the topology has tasks 1 to {self.count}")
        return self._components[task]

    def index_of(self, task: int) -> int:
        """Return the task's number in its component, from 0."""
        return task - self._tasks[self.component_of(task)].start


def task_count(component: ComponentDef, conf: Mapping[str, Any]) -> int:
    """Return the task count: `topology.tasks` or the parallelism, capped by the maximum."""
    own: Mapping[str, Any] = for_component(conf, component.id, component.conf)
    count = own.get("topology.tasks") or component.parallelism
    cap = own.get("topology.max.task.parallelism")
    return min(int(count), int(cap)) if cap else int(count)
