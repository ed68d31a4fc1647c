"""Streams: programs of operators, compiled to an ordinary topology.

`api` is what a program is written with, and `graph` is the program as data. `compile` makes bolts
of it: stateless operators share a generated function, operators with state are bolts of their own
(`totals`, `process`, `trident`, `patterns`, and those of the core).

`records`, `window_results` and `state` have what users keep, so that checkpoints name them.
"""

from topo.streams.api.builder import StreamBuilder
from topo.streams.api.elements import KeyedStream, Stream
from topo.streams.api.requests import KeyedRequestStream, RequestStream
from topo.streams.api.results import WindowedStream
from topo.streams.api.tables import GroupedTable, StreamTable
from topo.streams.process import Process
from topo.streams.records import Record
from topo.streams.state import (
    CachedMap,
    MapState,
    MemoryStore,
    NonTransactional,
    Opaque,
    OpaqueValue,
    Store,
    Transactional,
)
from topo.streams.window_results import Window, WindowResult
from topo.tables.leaving import RowChange

__all__ = [
    "CachedMap",
    "GroupedTable",
    "KeyedRequestStream",
    "KeyedStream",
    "MapState",
    "MemoryStore",
    "NonTransactional",
    "Opaque",
    "OpaqueValue",
    "Process",
    "Record",
    "RequestStream",
    "RowChange",
    "Store",
    "Stream",
    "StreamBuilder",
    "StreamTable",
    "Transactional",
    "Window",
    "WindowResult",
    "WindowedStream",
]
