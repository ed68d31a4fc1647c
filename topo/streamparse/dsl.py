"""streamparse's module of this name: `from topo.streamparse.dsl import Topology`."""

from topo.streamparse.components import Stream
from topo.streamparse.specs import Grouping, Topology

__all__ = ["Grouping", "Stream", "Topology"]
