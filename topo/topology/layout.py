"""The tasks of a topology under a configuration: ids from 1, over the sorted component names.

A component that got another number of tasks while its topology was running has ids of its own,
behind all others (`topology.task.ids`). So no id changes its meaning: what other tasks have saved,
roots of messages above all, names tasks by their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

from topo.config.layers import for_component
from topo.errors import InvalidTopologyError, Problem, TopoError
from topo.topology.model import ComponentDef, Topology

TASK_IDS = "topology.task.ids"
"""The setting with the ids of components: {name: [first, number of tasks]}."""
MAX_TASKS = 65_535  # a root's id holds its spout task in 16 bits


class TaskLayout:
    """The task ids of every component of a topology."""

    def __init__(self, topology: Topology, conf: Mapping[str, Any] | None = None) -> None:
        self._tasks: dict[str, range] = {}
        self._components: list[str] = [""]
        fixed: Mapping[str, Sequence[int]] = (conf or {}).get(TASK_IDS) or {}
        first = 1 + max((begin + count - 1 for begin, count in fixed.values()), default=0)
        for component in topology.components.values():
            if component.id in fixed:
                begin, count = fixed[component.id]
                self._tasks[component.id] = range(begin, begin + count)
                continue
            tasks = range(first, first + task_count(component, conf or {}))
            self._tasks[component.id] = tasks
            first = tasks.stop
        self._check_ids()
        for name, tasks in self._tasks.items():
            self._components.extend([""] * (tasks.stop - len(self._components)))
            self._components[tasks.start : tasks.stop] = [name] * len(tasks)

        problems = list(self._unequal(topology))
        if problems:
            raise InvalidTopologyError(problems)

    def _check_ids(self) -> None:
        """Raise an InvalidTopologyError for more ids than there are, or one of two components."""
        problem = None
        if (
            highest := max((tasks.stop - 1 for tasks in self._tasks.values()), default=0)
        ) > MAX_TASKS:
            text = f"{highest} tasks; {MAX_TASKS} is the most"
            problem = Problem("too-many-tasks", "topology", text)
        in_order = sorted(self._tasks.items(), key=lambda of: of[1].start)
        for (name, tasks), (other, following) in pairwise(in_order):
            if tasks.stop > following.start:
                text = f"{TASK_IDS} gives {name!r} and {other!r} the same ids"
                problem = Problem("task-ids", "topology", text, f"take {TASK_IDS} away")
        if problem is not None:
            raise InvalidTopologyError([problem])

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
        return sum(map(len, self._tasks.values()))

    @property
    def highest(self) -> int:
        """The highest id of a task."""
        return len(self._components) - 1

    @property
    def ids(self) -> list[int]:
        """The ids of all tasks, in order."""
        return sorted(task for tasks in self._tasks.values() for task in tasks)

    @property
    def components(self) -> Mapping[str, range]:
        return self._tasks

    def tasks_of(self, component: str) -> range:
        return self._tasks[component]

    def component_of(self, task: int) -> str:
        name = self._components[task] if 1 <= task <= self.highest else ""
        if not name:
            raise TopoError(f"no task {task}; the topology has tasks {listed_ids(self.ids)}")
        return name

    def index_of(self, task: int) -> int:
        """Return the task's number in its component, from 0."""
        return task - self._tasks[self.component_of(task)].start


def with_other_counts(
    present: Mapping[str, range], counts: Mapping[str, int]
) -> dict[str, list[int]]:
    """Return the setting `topology.task.ids` by which some components have other numbers of tasks.

    Their ids are new ones, behind all that are in use, or in the first gap that is wide enough.
    """
    ids = {name: [tasks.start, len(tasks)] for name, tasks in present.items()}
    for name, count in sorted(counts.items()):
        in_use = sorted(
            [*present.values(), *(range(a, a + n) for a, n in ids.values())],
            key=lambda tasks: tasks.stop,
        )
        first = in_use[-1].stop
        if first + count - 1 > MAX_TASKS:
            starts = sorted(in_use, key=lambda tasks: tasks.start)
            stops = accumulate((tasks.stop for tasks in starts), max, initial=1)
            gaps = zip(stops, starts, strict=False)
            first = next((at for at, tasks in gaps if tasks.start - at >= count), first)
        ids[name] = [first, count]
    return ids


def listed_ids(ids: Sequence[int]) -> str:
    """Return ids in words, the shortest ones: "1 to 4, 9 to 12"."""
    runs = groupby(enumerate(ids), key=lambda each: each[1] - each[0])
    ends = [[task for _, task in run] for _, run in runs]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in ends)


def task_count(component: ComponentDef, conf: Mapping[str, Any]) -> int:
    """Return the task count: `topology.tasks` or the parallelism, capped by the maximum."""
    own: Mapping[str, Any] = for_component(conf, component.id, component.conf)
    count = own.get("topology.tasks") or component.parallelism
    cap = own.get("topology.max.task.parallelism")
    return min(int(count), int(cap)) if cap else int(count)
