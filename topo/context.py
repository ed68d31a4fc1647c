"""What a task can know of the topology it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from topo.errors import TopoError, did_you_mean
from topo.tuples import Fields

if TYPE_CHECKING:
    from topo.topology.layout import TaskLayout
    from topo.topology.model import GroupingDef, Topology


class TopologyContext:
    """Given to `open` and `prepare`, and kept as `self.context`; never saved."""

    def __init__(
        self,
        topology: Topology,
        layout: TaskLayout,
        task: int,
        conf: Mapping[str, Any],
        topology_name: str,
        now: Callable[[], float],
    ) -> None:
        self._topology = topology
        self._layout = layout
        self.this_task_id = task
        self.this_component_id = layout.component_of(task)
        self.this_task_index = layout.index_of(task)
        self.topology_name = topology_name
        self.conf = conf
        self.now = now
        """The clock user code should use, in seconds; simulated in tests."""

    @property
    def component_ids(self) -> list[str]:
        return list(self._topology.components)

    def component_tasks(self, component: str) -> list[int]:
        self._topology.component(component)
        return list(self._layout.tasks_of(component))

    def component_of(self, task: int) -> str:
        return self._layout.component_of(task)

    @property
    def this_sources(self) -> dict[tuple[str, str], GroupingDef]:
        """What this component reads: {(component, stream): grouping}."""
        reads = self._topology.component(self.this_component_id).inputs
        return {(read.component, read.stream): read.grouping for read in reads}

    @property
    def this_targets(self) -> dict[str, dict[str, GroupingDef]]:
        """Who reads this component: {stream: {component: grouping}}."""
        targets: dict[str, dict[str, GroupingDef]] = {}
        for consumer, read in self._topology.consumers(self.this_component_id):
            targets.setdefault(read.stream, {})[consumer.id] = read.grouping
        return targets

    def output_fields(self, component: str, stream: str = "default") -> Fields:
        declared = self._topology.component(component)
        found = declared.output(stream)
        if found is None:
            names = [output.name for output in declared.outputs]
            raise TopoError(
                f"{component!r} declares no stream {stream!r}; it declares {names}",
                code="unknown-stream",
                hint=did_you_mean(stream, names),
            )
        return Fields(*found.fields)

    def __repr__(self) -> str:
        return f"<TopologyContext of {self.this_component_id!r} task {self.this_task_id}>"
