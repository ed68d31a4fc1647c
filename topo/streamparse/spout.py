"""streamparse's module of this name: `from topo.streamparse.spout import Spout`."""

from topo.streamparse.components import ReliableSpout, Spout

__all__ = ["ReliableSpout", "Spout"]
