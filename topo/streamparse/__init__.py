"""streamparse's names over topo's: port a project by changing the import.

`from topo.streamparse import Bolt, Grouping, Spout, Topology` replaces the import of streamparse.
`components` has the spouts and bolts, `batching` the bolts that gather tuples, `specs` the topology
as a class. docs/migrate/streamparse.md shows a project taken over step by step.
"""

from topo.streamparse.batching import BatchingBolt, TicklessBatchingBolt
from topo.streamparse.components import Bolt, ReliableSpout, Spout, Stream
from topo.streamparse.specs import Grouping, Topology

__all__ = [
    "BatchingBolt",
    "Bolt",
    "Grouping",
    "ReliableSpout",
    "Spout",
    "Stream",
    "TicklessBatchingBolt",
    "Topology",
]
