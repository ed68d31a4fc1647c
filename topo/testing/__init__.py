"""The test kit: topologies run in milliseconds, without Spark, by a clock that the test moves.

result = complete_topology(topology, mock_sources={"spout": [["a"], ["b"]]})
result.tuples("count")

with TestCluster(seed=0) as cluster:
    run = cluster.submit_topology("t", topology)
    run.settle()
    cluster.advance(secs=9)
"""

from topo.testing.cluster import TestCluster
from topo.testing.complete import CompletedTopology, complete_topology
from topo.testing.elements import elements
from topo.testing.feeder import FeederSpout
from topo.testing.laws import laws_of_batches
from topo.testing.single import (
    BoltRun,
    Emitted,
    SpoutRun,
    make_tick,
    make_tuple,
    run_bolt,
    run_spout,
)

__all__ = [
    "BoltRun",
    "CompletedTopology",
    "Emitted",
    "FeederSpout",
    "SpoutRun",
    "TestCluster",
    "complete_topology",
    "elements",
    "laws_of_batches",
    "make_tick",
    "make_tuple",
    "run_bolt",
    "run_spout",
]
