"""Sources and sinks of the outside world, as spouts and bolts.

Each connector is a module of its own and imports its client where it runs, so that topologies can
be built where the client is not installed. Every sink names its guarantee by the same words:

    none           nothing is waited for
    at_least_once  written before the batch commits; a batch that runs again is written again
    by_batch       as that, but a batch that runs again replaces what it wrote before
    exactly_once   kept in state with the batch, and published once the batch has committed
"""

from topo.config.secrets import Secret

__all__ = ["Secret"]
