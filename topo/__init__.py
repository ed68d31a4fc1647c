"""Apache Storm topologies in Python, run on Apache Spark.

Everything a user needs is here and in `topo.testing`. Importing topo imports neither pyspark nor
grpc; those load when a topology runs on Spark.
"""

import typing

from topo.collectors import BasicOutputCollector, OutputCollector, SpoutOutputCollector
from topo.components import (
    BasicBolt,
    Bolt,
    OutputFieldsDeclarer,
    Spout,
    StatefulBasicBolt,
    StatefulBolt,
    StatefulSpout,
    Stream,
)
from topo.config import Config
from topo.errors import (
    AckerError,
    AnchorError,
    CheckpointError,
    ComponentError,
    ConfigError,
    EmitError,
    EngineError,
    FailTuple,
    InvalidTopologyError,
    JoinError,
    MissingExtra,
    Problem,
    RunError,
    StatelessError,
    TimestampError,
    TopoError,
    TupleSettledError,
    Unavailable,
    UncaughtError,
    UnpicklableComponentError,
    UnsavableAttributeError,
    WindowError,
)
from topo.functions import bolt
from topo.groupings import CustomStreamGrouping
from topo.state import KeyValueState
from topo.tuples import Fields, Tuple

if typing.TYPE_CHECKING:
    from topo.builder import TopologyBuilder
    from topo.cluster import LocalCluster
    from topo.context import TopologyContext
    from topo.event_time import EventTime
    from topo.joins.cogroup import CoGroup
    from topo.joins.interval import IntervalJoin
    from topo.joins.join_bolt import JoinBolt
    from topo.joins.windowed import WindowJoin
    from topo.tables.declared import Table, TableJoin
    from topo.timed import TimedBolt
    from topo.topology.model import Topology
    from topo.windows.aggregate import WindowAggregate
    from topo.windows.assigners import Global, PerEvent, Session, Sliding, Tumbling
    from topo.windows.bolt import StatefulWindowedBolt, WindowedBolt
    from topo.windows.combiners import (
        ArgMax,
        Collect,
        Combiner,
        Count,
        Distinct,
        First,
        Last,
        Max,
        Mean,
        Min,
        Sum,
        TopK,
        Var,
    )
    from topo.windows.triggers import (
        AfterCount,
        AfterDelay,
        AllOf,
        AtWatermark,
        EachBatch,
        Every,
        EveryEventTime,
        Then,
        Trigger,
        When,
    )
    from topo.windows.triggers import Any_ as Any
    from topo.windows.window import Window

__version__ = "0.1.0"

# These names are loaded at their first use, to keep `import topo` light.
_LATER = {
    "LocalCluster": "topo.cluster",
    "Topology": "topo.topology.model",
    "TopologyBuilder": "topo.builder",
    "TopologyContext": "topo.context",
}

_WINDOWS = {
    "topo.event_time": "EventTime",
    "topo.joins.cogroup": "CoGroup",
    "topo.joins.interval": "IntervalJoin",
    "topo.joins.join_bolt": "JoinBolt",
    "topo.joins.windowed": "WindowJoin",
    "topo.tables.declared": "Table TableJoin",
    "topo.timed": "TimedBolt",
    "topo.windows.aggregate": "WindowAggregate",
    "topo.windows.assigners": "Global PerEvent Session Sliding Tumbling",
    "topo.windows.bolt": "StatefulWindowedBolt WindowedBolt",
    "topo.windows.window": "Window",
    "topo.windows.combiners": "ArgMax Collect Combiner Count Distinct First Last Max Mean Min "
    "Sum TopK Var",
    "topo.windows.triggers": "AfterCount AfterDelay AllOf AtWatermark EachBatch Every "
    "EveryEventTime Then Trigger When",
}
_LATER |= {name: module for module, names in _WINDOWS.items() for name in names.split()}
_LATER["Any"] = "topo.windows.triggers"


def __getattr__(name: str) -> typing.Any:
    import importlib

    if name in _LATER:
        module = importlib.import_module(_LATER[name])
        return getattr(module, "Any_" if name == "Any" else name)
    raise AttributeError(f"module 'topo' has no attribute {name!r}")


__all__ = [
    "AckerError",
    "AfterCount",
    "AfterDelay",
    "AllOf",
    "AnchorError",
    "Any",
    "ArgMax",
    "AtWatermark",
    "BasicBolt",
    "BasicOutputCollector",
    "Bolt",
    "CheckpointError",
    "CoGroup",
    "Collect",
    "Combiner",
    "ComponentError",
    "Config",
    "ConfigError",
    "Count",
    "CustomStreamGrouping",
    "Distinct",
    "EachBatch",
    "EmitError",
    "EngineError",
    "EventTime",
    "Every",
    "EveryEventTime",
    "FailTuple",
    "Fields",
    "First",
    "Global",
    "IntervalJoin",
    "InvalidTopologyError",
    "JoinBolt",
    "JoinError",
    "KeyValueState",
    "Last",
    "LocalCluster",
    "Max",
    "Mean",
    "Min",
    "MissingExtra",
    "OutputCollector",
    "OutputFieldsDeclarer",
    "PerEvent",
    "Problem",
    "RunError",
    "Session",
    "Sliding",
    "Spout",
    "SpoutOutputCollector",
    "StatefulBasicBolt",
    "StatefulBolt",
    "StatefulSpout",
    "StatefulWindowedBolt",
    "StatelessError",
    "Stream",
    "Sum",
    "Table",
    "TableJoin",
    "Then",
    "TimedBolt",
    "TimestampError",
    "TopK",
    "TopoError",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "Trigger",
    "Tumbling",
    "Tuple",
    "TupleSettledError",
    "Unavailable",
    "UncaughtError",
    "UnpicklableComponentError",
    "UnsavableAttributeError",
    "Var",
    "When",
    "Window",
    "WindowAggregate",
    "WindowError",
    "WindowJoin",
    "WindowedBolt",
    "bolt",
]
