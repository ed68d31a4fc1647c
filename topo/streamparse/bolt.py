"""streamparse's module of this name: `from topo.streamparse.bolt import Bolt`."""

from topo.streamparse.batching import BatchingBolt, TicklessBatchingBolt
from topo.streamparse.components import Bolt

__all__ = ["BatchingBolt", "Bolt", "TicklessBatchingBolt"]
