"""Random topologies do on Spark what they do on the inline engine: the same tuples and acks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.doubles import Numbers
from tests.property.scale import examples
from topo import BasicBolt, Bolt, FailTuple, Topology, TopologyBuilder, Tuple, bolt
from topo.testing import CompletedTopology, complete_topology

pytestmark = pytest.mark.spark

GROUPINGS = ["shuffle", "fields", "all", "global", "local_or_shuffle", "none", "partial_key"]


def chance(salt: str, number: int) -> int:
    """A number below 12 that depends on nothing but these."""
    return crc32(f"{salt} {number}".encode()) % 12


def children(salt: str, number: int) -> Iterator[int]:
    for child in range(chance(salt, number) % 3):
        yield number * 3 + child


class Basic(BasicBolt):
    """Emits none, one or two; fails some, after what it has emitted."""

    outputs = ("num",)

    def __init__(self, salt: str) -> None:
        self.salt = salt

    def execute(self, tup: Tuple) -> None:
        for child in children(self.salt, tup[0]):
            self.emit([child])
        if chance(self.salt, tup[0]) == 7:
            raise FailTuple("by chance")


class Holding(Bolt):
    """Keeps tuples until the next tick, anchors to two of them at a time, fails some."""

    outputs = ("num",)

    def __init__(self, salt: str) -> None:
        self.salt = salt

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def get_component_configuration(self) -> dict[str, Any]:
        return {"topology.tick.tuple.freq.secs": 0.25}

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)

    def on_tick(self, tup: Tuple) -> None:
        for kept in self.kept:
            for child in children(self.salt, kept[0]):
                self.emit([child], anchors=[kept, kept])
            if chance(self.salt, kept[0]) == 7:
                self.fail(kept, "by chance")
            else:
                self.ack(kept)
        self.kept = []


@bolt(outputs=("num",))
def stateless(tup: Tuple) -> Iterator[list[int]]:
    for child in children("stateless", tup[0]):
        yield [child]


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    builder = TopologyBuilder()
    names = []
    for number in range(draw(st.integers(1, 2))):
        names.append(f"s{number}")
        builder.set_spout(names[-1], Numbers(draw(st.integers(0, 40))), draw(st.integers(1, 3)))
    for number in range(draw(st.integers(1, 4))):
        name = f"b{number}"
        component: Any = draw(st.sampled_from([Basic(name), Holding(name), stateless]))
        reads = builder.set_bolt(name, component, draw(st.integers(1, 3)))
        sources = st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)
        for source in draw(sources):
            kind = draw(st.sampled_from(GROUPINGS))
            fields = [["num"]] if kind in ("fields", "partial_key") else []
            getattr(reads, f"{kind}_grouping")(source, *fields)
        names.append(name)
    return builder.create_topology()


def outcome(topology: Topology, result: CompletedTopology) -> dict[str, Any]:
    return {
        "tuples": {name: sorted(result.tuples(name)) for name in topology.components},
        "acked": {name: sorted(numbers) for name, numbers in result.acked.items()},
        "failed": {name: sorted(numbers) for name, numbers in result.failed.items()},
    }


@pytest.mark.timeout(1200)
@examples(3)
@given(topologies(), st.integers(1, 3))
def test_the_same_tuples_and_the_same_acks(topology: Topology, workers: int) -> None:
    inline = complete_topology(topology)
    spark = complete_topology(topology, conf={"topology.workers": workers}, engine="spark")
    assert outcome(topology, spark) == outcome(topology, inline)
