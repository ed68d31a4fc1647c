"""Topologies in a line, which is all that most tests need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo import BasicBolt, Bolt, Spout, Topology, TopologyBuilder
from topo.testing import FeederSpout, TestCluster
from topo.testing.cluster import SteppedRun

AnyBolt = Bolt | BasicBolt


def line(spout: Spout, *bolts: AnyBolt) -> Topology:
    """Spout "s", then bolts "b1", "b2", ..., one task each."""
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    before = "s"
    for number, bolt in enumerate(bolts, 1):
        builder.set_bolt(f"b{number}", bolt).shuffle_grouping(before)
        before = f"b{number}"
    return builder.create_topology()


class Fed:
    """A line behind a feeder with one field "x", in a cluster of its own."""

    def __init__(self, *bolts: AnyBolt, conf: Mapping[str, Any] | None = None) -> None:
        self.feeder = FeederSpout(["x"])
        self.cluster = TestCluster()
        self.run: SteppedRun = self.cluster.submit_topology("t", line(self.feeder, *bolts), conf)

    def feed(self, *values: Any) -> Fed:
        """Feed each value, tracked by itself, and settle."""
        for value in values:
            self.feeder.feed([value], msg_id=value)
        self.run.settle()
        return self

    def feed_untracked(self, *values: Any) -> Fed:
        for value in values:
            self.feeder.feed([value])
        self.run.settle()
        return self

    def out(self, number: int = 1, stream: str = "default") -> list[Any]:
        """The first values of what bolt `number` has emitted."""
        return [values[0] for values in self.run.tuples(f"b{number}", stream)]


def saves_of(run: SteppedRun) -> list[int]:
    """Return a list to which each batch of an inline run adds how many bytes it saves."""
    host: Any = vars(run)["_level"].host
    keep, sizes = host.save, []

    def save() -> Any:
        changes = keep()
        sizes.append(sum(len(blob) for c in changes.values() for blob in c.puts.values()))
        return changes

    host.save = save
    return sizes
