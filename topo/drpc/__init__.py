"""Functions that clients call and a topology computes: Storm's distributed RPC.

    client -> server -> DrpcSpout -> bolts -> ReturnResults -> server -> client

`calls` is the server's machine, without a clock or a socket; `desk` is that machine for callers and
tasks in threads of one process, `remote` the same over gRPC. `spout`, `results` and `request` are
the components of a topology, `linear` wires them.
"""

from topo.drpc.errors import DrpcError
from topo.drpc.linear import LinearDrpcBuilder
from topo.drpc.request import RequestBolt
from topo.drpc.results import ReturnResults
from topo.drpc.spout import DrpcSpout

__all__ = ["DrpcError", "DrpcSpout", "LinearDrpcBuilder", "RequestBolt", "ReturnResults"]
