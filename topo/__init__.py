"""Apache Storm topologies in Python, run on Apache Spark.

Everything a user needs is here and in `topo.testing`. Importing topo imports neither pyspark nor
grpc; those load when a topology runs on Spark.
"""

from typing import TYPE_CHECKING, Any

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
    MissingExtra,
    Problem,
    RunError,
    StatelessError,
    TopoError,
    TupleSettledError,
    Unavailable,
    UncaughtError,
    UnpicklableComponentError,
    UnsavableAttributeError,
)
from topo.functions import bolt
from topo.groupings import CustomStreamGrouping
from topo.state import KeyValueState
from topo.tuples import Fields, Tuple

if TYPE_CHECKING:
    from topo.builder import TopologyBuilder
    from topo.cluster import LocalCluster
    from topo.context import TopologyContext
    from topo.topology.model import Topology

__version__ = "0.1.0"

# These names are loaded at their first use, to keep `import topo` light.
_LATER = {
    "LocalCluster": "topo.cluster",
    "Topology": "topo.topology.model",
    "TopologyBuilder": "topo.builder",
    "TopologyContext": "topo.context",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'topo' has no attribute {name!r}")


__all__ = [
    "AckerError",
    "AnchorError",
    "BasicBolt",
    "BasicOutputCollector",
    "Bolt",
    "CheckpointError",
    "ComponentError",
    "Config",
    "ConfigError",
    "CustomStreamGrouping",
    "EmitError",
    "EngineError",
    "FailTuple",
    "Fields",
    "InvalidTopologyError",
    "KeyValueState",
    "LocalCluster",
    "MissingExtra",
    "OutputCollector",
    "OutputFieldsDeclarer",
    "Problem",
    "RunError",
    "Spout",
    "SpoutOutputCollector",
    "StatefulBasicBolt",
    "StatefulBolt",
    "StatefulSpout",
    "StatelessError",
    "Stream",
    "TopoError",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "Tuple",
    "TupleSettledError",
    "Unavailable",
    "UncaughtError",
    "UnpicklableComponentError",
    "UnsavableAttributeError",
    "bolt",
]
