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
from topo.distribution import VERSION as _VERSION
from topo.errors import (
    AckerError,
    AnchorError,
    CheckpointError,
    ColumnError,
    ComponentError,
    ConditionError,
    ConfigError,
    EmitError,
    EngineError,
    FailTuple,
    InvalidTopologyError,
    JoinError,
    LearnError,
    MissingExtra,
    PatternError,
    Problem,
    RuleError,
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
from topo.ways import UNANCHORED

if typing.TYPE_CHECKING:
    from topo.bolts.cogroup import CoGroup
    from topo.bolts.interval_join import IntervalJoin
    from topo.bolts.join_bolt import JoinBolt
    from topo.bolts.keyed_bolt import KeyedBolt
    from topo.bolts.learn_bolt import LearnBolt
    from topo.bolts.pattern_bolt import PatternBolt
    from topo.bolts.rule_bolt import RuleBolt
    from topo.bolts.score_bolt import ScoreBolt
    from topo.bolts.subscription_bolt import SubscriptionBolt
    from topo.bolts.table_join import TableJoin
    from topo.bolts.window_aggregate import WindowAggregate
    from topo.bolts.window_join import WindowJoin
    from topo.bolts.windowed_bolt import StatefulWindowedBolt, WindowedBolt
    from topo.builder import TopologyBuilder
    from topo.cli.submitted import main
    from topo.cluster import LocalCluster
    from topo.context import TopologyContext
    from topo.event_time import EventTime
    from topo.lists import FromList
    from topo.operators.aggregates.combiners import (
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
    from topo.patterns.pattern import Pattern
    from topo.rules.rule import Rule
    from topo.tables.table import Table
    from topo.timed import TimedBolt
    from topo.topology.model import Topology
    from topo.windows.assigners import Global, PerEvent, Session, Sliding, Tumbling
    from topo.windows.triggers import (
        AfterCount,
        AfterDelay,
        AllOf,
        Any_,
        AtWatermark,
        EachBatch,
        Every,
        EveryEventTime,
        Then,
        Trigger,
        When,
    )
    from topo.windows.window import Window

    Any = Any_

__version__ = _VERSION

# These names are loaded at their first use, to keep `import topo` light.
_LATER = {
    "FromList": "topo.lists",
    "LocalCluster": "topo.cluster",
    "main": "topo.cli.submitted",
    "Topology": "topo.topology.model",
    "TopologyBuilder": "topo.builder",
    "TopologyContext": "topo.context",
}

_WINDOWS = {
    "topo.event_time": "EventTime",
    "topo.bolts.cogroup": "CoGroup",
    "topo.bolts.interval_join": "IntervalJoin",
    "topo.bolts.join_bolt": "JoinBolt",
    "topo.bolts.window_join": "WindowJoin",
    "topo.bolts.learn_bolt": "LearnBolt",
    "topo.bolts.score_bolt": "ScoreBolt",
    "topo.bolts.keyed_bolt": "KeyedBolt",
    "topo.bolts.pattern_bolt": "PatternBolt",
    "topo.patterns.pattern": "Pattern",
    "topo.bolts.rule_bolt": "RuleBolt",
    "topo.rules.rule": "Rule",
    "topo.bolts.subscription_bolt": "SubscriptionBolt",
    "topo.bolts.table_join": "TableJoin",
    "topo.tables.table": "Table",
    "topo.timed": "TimedBolt",
    "topo.bolts.window_aggregate": "WindowAggregate",
    "topo.windows.assigners": "Global PerEvent Session Sliding Tumbling",
    "topo.bolts.windowed_bolt": "StatefulWindowedBolt WindowedBolt",
    "topo.windows.window": "Window",
    "topo.operators.aggregates.combiners": "ArgMax Collect Combiner Count Distinct First Last "
    "Max Mean Min Sum TopK Var",
    "topo.windows.triggers": "AfterCount AfterDelay AllOf AtWatermark EachBatch Every "
    "EveryEventTime Then Trigger When",
}
_LATER |= {name: module for module, names in _WINDOWS.items() for name in names.split()}
_LATER["Any"] = "topo.windows.triggers"
"""Not in `__all__`: `from topo import *` is not to take `typing.Any` away."""


if not typing.TYPE_CHECKING:  # a type checker would take every name for one of topo's

    def __getattr__(name: str) -> typing.Any:
        import importlib

        if name in _LATER:
            module = importlib.import_module(_LATER[name])
            return getattr(module, "Any_" if name == "Any" else name)
        raise AttributeError(f"module 'topo' has no attribute {name!r}")


__all__ = [
    "UNANCHORED",
    "AckerError",
    "AfterCount",
    "AfterDelay",
    "AllOf",
    "AnchorError",
    "ArgMax",
    "AtWatermark",
    "BasicBolt",
    "BasicOutputCollector",
    "Bolt",
    "CheckpointError",
    "CoGroup",
    "Collect",
    "ColumnError",
    "Combiner",
    "ComponentError",
    "ConditionError",
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
    "FromList",
    "Global",
    "IntervalJoin",
    "InvalidTopologyError",
    "JoinBolt",
    "JoinError",
    "KeyValueState",
    "KeyedBolt",
    "Last",
    "LearnBolt",
    "LearnError",
    "LocalCluster",
    "Max",
    "Mean",
    "Min",
    "MissingExtra",
    "OutputCollector",
    "OutputFieldsDeclarer",
    "Pattern",
    "PatternBolt",
    "PatternError",
    "PerEvent",
    "Problem",
    "Rule",
    "RuleBolt",
    "RuleError",
    "RunError",
    "ScoreBolt",
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
    "SubscriptionBolt",
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
    "main",
]
