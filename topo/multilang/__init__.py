"""Spouts and bolts in any language, by Storm's multi-language protocol, over the public API.

`wire` has the messages, `process` the life of a child, `handshake` and `files` what it is started
with, `bolt` and `spout` the two components, `child` the other side: topo's components in Storm.
"""

from topo.multilang.bolt import ShellBolt
from topo.multilang.spout import ShellSpout

__all__ = ["ShellBolt", "ShellSpout"]
