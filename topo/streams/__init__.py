"""Streams: programs of operators, compiled to an ordinary topology.

`builder`, `elements` and `results` are what a program is written with, and `graph` is the program
as data. `compiler` makes bolts of it: stateless operators share a generated function (`chains`),
operators with state are bolts of their own (`totals`, `keyed`, `trident`, and those of the core).
"""

from topo.streams.builder import StreamBuilder
from topo.streams.elements import KeyedStream, Stream
from topo.streams.keyed import Process
from topo.streams.records import Record
from topo.streams.requests import KeyedRequestStream, RequestStream
from topo.streams.results import WindowedStream
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
from topo.streams.tables import GroupedTable, StreamTable
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
