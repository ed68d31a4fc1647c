"""The registry of groupings: each kind is one line, and another kind is an error everywhere."""

from __future__ import annotations

import pytest

from topo import BasicBolt, InvalidTopologyError, Spout, Topology, TopologyBuilder, Tuple
from topo._pb import topology_pb2 as pb
from topo.builder import BoltDeclarer
from topo.routing.groupers import Grouper, Rows
from topo.routing.registry import GROUPINGS, Wiring
from topo.topology.model import GroupingDef
from topo.topology.order import producers_first


class Source(Spout):
    outputs = ("x",)

    def next_tuple(self) -> None:
        self.emit([1])


class Sink(BasicBolt):
    outputs = ("x",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.x])


def wired() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("s", Source())
    return builder


@pytest.mark.parametrize("kind", GROUPINGS)
@pytest.mark.parametrize("tasks", [[7], [7, 8, 9]])
def test_every_kind_makes_a_grouper_that_deals_to_its_tasks(kind: str, tasks: list[int]) -> None:
    wiring = Wiring(tasks, [0], 1, lambda values: [7], "Seven")
    made = GROUPINGS[kind].grouper(wiring)
    assert isinstance(made, Grouper)
    dealt = made.deal(Rows([["a"], ["b"]], [["a", "b"]], [7, 7]))
    assert dealt
    assert {task for deal in dealt for task, _ in deal.parts} <= set(tasks)


@pytest.mark.parametrize("kind", GROUPINGS)
def test_the_builder_has_a_method_for_every_kind(kind: str) -> None:
    assert callable(getattr(BoltDeclarer, f"{kind}_grouping"))


def test_a_kind_that_is_none_is_no_shuffle() -> None:
    with pytest.raises(InvalidTopologyError) as refused:
        GroupingDef("shufle")
    (problem,) = refused.value.problems
    assert problem.code == "unknown-grouping"
    assert problem.message.startswith("there is no grouping 'shufle'; there are shuffle, fields")
    assert problem.hint == "did you mean 'shuffle'?"


def test_a_kind_of_a_later_topo_is_refused_over_the_wire() -> None:
    builder = wired()
    builder.set_bolt("b", Sink()).shuffle_grouping("s")
    message = pb.Topology()
    message.ParseFromString(builder.create_topology().to_bytes())
    next(c for c in message.components if c.id == "b").inputs[0].grouping = "sticky"
    with pytest.raises(InvalidTopologyError, match="no grouping 'sticky'"):
        Topology.from_bytes(message.SerializeToString())


def test_producers_come_before_those_that_read_them() -> None:
    builder = wired()
    builder.set_bolt("a", Sink()).shuffle_grouping("z").shuffle_grouping("s")
    builder.set_bolt("z", Sink()).shuffle_grouping("m")
    builder.set_bolt("m", Sink()).shuffle_grouping("s")
    assert [c.id for c in producers_first(builder.create_topology())] == ["s", "m", "z", "a"]
