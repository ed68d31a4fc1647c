"""Chooses the tasks by hand: a direct stream, and a custom grouping.

    topo local examples/direct_and_custom.py --show load --show account

`dispatch` names the van for each parcel itself, since only it knows how full they are: a direct
stream. Which clerk books a parcel follows from the parcel: a custom grouping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topo import (
    BasicBolt,
    Bolt,
    CustomStreamGrouping,
    FromList,
    OutputCollector,
    Stream,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

PARCELS = [("anvil", 70), ("books", 12), ("lamp", 9), ("rug", 25), ("sofa", 60), ("violin", 2)]


class Dispatch(Bolt):
    """Sends each parcel to the van with the least weight so far."""

    outputs = {"parcels": Stream(("parcel", "kilos"), direct=True)}

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: OutputCollector
    ) -> None:
        self.kilos = dict.fromkeys(context.component_tasks("load"), 0)

    def execute(self, tup: Tuple) -> None:
        van = min(self.kilos, key=lambda task: self.kilos[task])
        self.kilos[van] += tup.kilos
        self.emit_direct(van, tup.values, stream="parcels", anchors=tup)
        self.ack(tup)


class Load(BasicBolt):
    """A van: each task is one."""

    outputs = ("parcel", "van", "kilos")

    def __init__(self) -> None:
        self.kilos = 0

    def execute(self, tup: Tuple) -> None:
        self.kilos += tup.kilos
        self.emit([tup.parcel, self.context.this_task_index, self.kilos])


class ByFirstLetter(CustomStreamGrouping):
    """Shares the alphabet out evenly: the first clerk has a, b, ..., the last has ..., y, z."""

    def prepare(
        self, context: TopologyContext, stream: tuple[str, str], target_tasks: Sequence[int]
    ) -> None:
        self.tasks = target_tasks

    def choose_tasks(self, source_task: int, values: list[Any]) -> list[int]:
        letter = ord(values[0][0]) - ord("a")
        return [self.tasks[letter * len(self.tasks) // 26]]


class Account(BasicBolt):
    """A clerk: each task is one. It keeps nothing and says so, which spares it a state stage."""

    stateless = True
    outputs = ("parcel", "clerk")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.parcel, self.context.this_task_index])


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("parcels", FromList(PARCELS, fields=("parcel", "kilos")))
    builder.set_bolt("dispatch", Dispatch()).shuffle_grouping("parcels")
    builder.set_bolt("load", Load(), parallelism=2).direct_grouping("dispatch", stream="parcels")
    builder.set_bolt("account", Account(), parallelism=2).custom_grouping("load", ByFirstLetter())
    return builder.create_topology()
