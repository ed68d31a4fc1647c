"""streamparse's names over topo's: port a project by changing the import.

`from topo.streamparse import Bolt, Grouping, Spout, Topology` replaces the import of streamparse;
`bolt`, `spout` and `dsl` are there for what imports from streamparse's modules. `components` has
the spouts and bolts, `tuples` what bolts get, `batching` the bolts that gather tuples, `specs` the
topology as a class. docs/migrate/streamparse.md shows a project taken over step by step.
"""

from topo.streamparse.batching import BatchingBolt, TicklessBatchingBolt
from topo.streamparse.components import Bolt, ReliableSpout, Spout, Stream
from topo.streamparse.specs import Grouping, Topology
from topo.streamparse.tuples import Tuple

__all__ = [
    "BatchingBolt",
    "Bolt",
    "Grouping",
    "ReliableSpout",
    "Spout",
    "Stream",
    "TicklessBatchingBolt",
    "Topology",
    "Tuple",
]
