"""One bolt that reads one or two spouts: what laws draw to run it with, its topology, its task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.property.test_column_laws import Kept, Numbers
from topo import BasicBolt, Bolt, Topology, TopologyBuilder
from topo.runtime.bolt_task import BoltTask
from topo.runtime.slot import SlotTasks, TaskEnvironment, full_conf
from topo.topology.layout import TaskLayout

PAIRS = st.tuples(st.integers(0, 60), st.integers(0, 60))


@dataclass(frozen=True)
class Inputs:
    """What a bolt is run with; `flag` is for what one law alone varies."""

    rows: list[tuple[int, int]]
    size: int = 7
    sources: int = 1
    tracked: bool = False
    stops: bool = False
    strict: bool = False
    flag: bool = False

    @property
    def policy(self) -> str:
        """What becomes of an uncaught error."""
        return "stop" if self.stops else "fail"

    def topology(self, bolt: Bolt | BasicBolt, *, read: bool = True) -> Topology:
        """Return the topology of the bolt; nobody reads its output unless `read`."""
        builder = TopologyBuilder()
        declared = builder.set_bolt("bolt", bolt)
        for number in range(self.sources):
            fields = ("n", "m") if number == 0 else ("m", "n")
            rows: list[Any] = self.rows
            builder.set_spout(f"s{number}", Numbers(fields, rows, self.size, self.tracked))
            declared.shuffle_grouping(f"s{number}")
        if bolt.outputs and read:
            kept = builder.set_bolt("kept", Kept()).shuffle_grouping("bolt")
            if isinstance(bolt.outputs, dict):
                kept.shuffle_grouping("bolt", stream="odd")
        return builder.create_topology()


INPUTS = st.builds(
    Inputs,
    rows=st.lists(PAIRS, max_size=60),
    size=st.sampled_from([7, 40, 41]),
    sources=st.sampled_from([1, 2]),
    tracked=st.booleans(),
    stops=st.booleans(),
    strict=st.booleans(),
    flag=st.booleans(),
)


def task_of(topology: Topology, *, strict: bool) -> BoltTask:
    """Return the task of the bolt, opened."""
    conf = full_conf({})
    layout = TaskLayout(topology, conf)
    tasks = range(1, layout.count + 1)
    env = TaskEnvironment(
        topology, layout, conf, "laws", lambda: 0.0, frozenset(tasks), strict=strict
    )
    host = SlotTasks(env, tasks)
    host.open()
    (task,) = (one for one in host.tasks.values() if one.component_id == "bolt")
    assert isinstance(task, BoltTask)
    return task
