"""The order of a bolt's inputs: by levels, then as it declares them; never by names."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo import BasicBolt, Spout, Topology, TopologyBuilder, Tuple
from topo.engine.inline.run import InlineRun

GROUPINGS = ("all", "global", "fields")


class Counts(Spout):
    outputs = ("path",)

    def __init__(self, place: int, count: int) -> None:
        self.place, self.count, self.next = place, count, 0

    def next_tuple(self) -> None:
        if self.next < self.count:
            self.emit([f"{self.place}.{self.next}"])
            self.next += 1

    def is_exhausted(self) -> bool:
        return self.next == self.count


class Passes(BasicBolt):
    """Passes tuples on, and notes in which batch and from which component each has come."""

    outputs = ("path",)

    def __init__(self) -> None:
        self.batch = 0

    def execute(self, tup: Tuple) -> None:
        task = (self.context.this_component_id, self.context.this_task_index)
        Noted.arrivals[task].append((self.batch, tup.source_component, tup.path))
        self.emit([tup.path])

    def pre_commit(self, batch_id: int) -> None:
        self.batch = batch_id + 1


class Noted:
    """The arrivals of the present run: (batch, component, path), by component and task index."""

    arrivals: defaultdict[tuple[str, int], list[tuple[int, str, str]]] = defaultdict(list)


@dataclass(frozen=True)
class Node:
    tasks: int
    reads: tuple[tuple[int, str], ...]
    """The numbers of the components that it reads, in the order of declaration; none: a spout."""


def topology(nodes: list[Node], names: list[str]) -> Topology:
    builder = TopologyBuilder()
    for place, node in enumerate(nodes):
        if not node.reads:
            builder.set_spout(names[place], Counts(place, 3), node.tasks)
            continue
        declarer = builder.set_bolt(names[place], Passes(), node.tasks)
        for source, grouping in node.reads:
            keyed = [["path"]] if grouping == "fields" else []
            getattr(declarer, f"{grouping}_grouping")(names[source], *keyed)
    return builder.create_topology()


@st.composite
def topologies(draw: st.DrawFn) -> list[Node]:
    tasks = st.integers(1, 2)
    nodes = [Node(draw(tasks), ()) for _ in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(2, 5))):
        sources = draw(st.permutations(range(len(nodes))))[: draw(st.integers(1, 3))]
        reads = tuple((source, draw(st.sampled_from(GROUPINGS))) for source in sources)
        nodes.append(Node(draw(tasks), reads))
    return nodes


def arrivals(nodes: list[Node], names: list[str], seed: int | None, rounds: int) -> dict[Any, Any]:
    """Return what each task of each bolt got, in order, with numbers instead of names."""
    Noted.arrivals.clear()
    shuffled = None if seed is None else Random(seed)
    run = InlineRun("t", topology(nodes, names), {}, now=lambda: 0.0, shuffled=shuffled)
    while run.status == "ACTIVE":
        run.step(rounds)
    numbers = {name: number for number, name in enumerate(names)}
    return {
        (numbers[name], index): [(batch, numbers[source], path) for batch, source, path in notes]
        for (name, index), notes in Noted.arrivals.items()
    }


def names_of(nodes: list[Node]) -> st.SearchStrategy[list[str]]:
    return st.permutations("abcdefg"[: len(nodes)])


@given(data=st.data(), nodes=topologies(), rounds=st.integers(1, 4))
@examples(40)
def test_no_name_changes_the_order_of_arrival(
    data: st.DataObject, nodes: list[Node], rounds: int
) -> None:
    before, after = data.draw(names_of(nodes)), data.draw(names_of(nodes))
    assert arrivals(nodes, before, None, rounds) == arrivals(nodes, after, None, rounds)


@given(data=st.data(), nodes=topologies(), seed=st.integers(0, 1000), rounds=st.integers(1, 4))
@examples(40)
def test_a_shorter_way_comes_first_in_a_batch_then_what_is_declared_first(
    data: st.DataObject, nodes: list[Node], seed: int, rounds: int
) -> None:
    levels: list[int] = []
    for node in nodes:
        levels.append(max((levels[source] + 1 for source, _ in node.reads), default=0))
    got = arrivals(nodes, data.draw(names_of(nodes)), seed, rounds)
    for (bolt, _), notes in got.items():
        declared = [source for source, _ in nodes[bolt].reads]
        order = [(b, levels[source], declared.index(source)) for b, source, _ in notes]
        assert order == sorted(order)
