"""A function that clients call, twice: by the linear builder, and wired by hand.

    topo submit examples/exclaim.py --name exclaim
    topo drpc call exclaim hello goodbye --name exclaim

`topology` is the chain of bolts that Storm calls BasicDRPC, `by_hand` its ManualDRPC: the spout's
`return_info` says where the result goes, and travels with the tuples.
"""

from __future__ import annotations

from topo import BasicBolt, Topology, TopologyBuilder, Tuple
from topo.drpc import DrpcSpout, LinearDrpcBuilder, ReturnResults


class Exclaim(BasicBolt):
    """The last bolt of a chain: it emits the request's id, and the result."""

    outputs = ("id", "result")
    stateless = True

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.id, f"{tup.args}!"])


class ExclaimByHand(BasicBolt):
    """The same between a spout and `ReturnResults`."""

    outputs = ("result", "return_info")
    stateless = True

    def execute(self, tup: Tuple) -> None:
        self.emit([f"{tup.args}!!!", tup.return_info])


def topology() -> Topology:
    builder = LinearDrpcBuilder("exclaim")
    builder.add_bolt(Exclaim(), 3)
    return builder.create_topology()


def by_hand() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("requests", DrpcSpout("exclaim"))
    builder.set_bolt("exclaim", ExclaimByHand(), 3).shuffle_grouping("requests")
    builder.set_bolt("results", ReturnResults()).none_grouping("exclaim")
    return builder.create_topology()
