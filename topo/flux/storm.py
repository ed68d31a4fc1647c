"""Storm's own classes that a Flux file names, and what stands for them here."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topo.components import BasicBolt
from topo.multilang import ShellBolt, ShellSpout
from topo.tuples import Tuple

_log = logging.getLogger(__name__)


class _FluxShell:
    """The methods that Flux's own shell components have."""

    outputs: Any
    config: dict[str, Any]

    def add_component_config(self, key: str, value: Any) -> None:
        """Set a setting of the component."""
        self.config[key] = value

    def set_default_stream(self, fields: Sequence[str]) -> None:
        """Declare the fields of the default stream."""
        self.set_named_stream("default", fields)

    def set_named_stream(self, name: str, fields: Sequence[str]) -> None:
        """Declare the fields of a stream."""
        streams = self.outputs
        if not isinstance(streams, Mapping):
            streams = {"default": streams} if streams else {}
        self.outputs = {**streams, name: tuple(fields)}


class FluxShellBolt(_FluxShell, ShellBolt):
    """A ShellBolt whose streams and settings are set by methods."""


class FluxShellSpout(_FluxShell, ShellSpout):
    """A ShellSpout whose streams and settings are set by methods."""


class LogInfoBolt(BasicBolt):
    """A bolt that logs each tuple."""

    def execute(self, tup: Tuple) -> None:
        _log.info("%s", tup)


_WRAPPERS = "org.apache.storm.flux.wrappers"
SHELLS: dict[str, type[FluxShellBolt] | type[FluxShellSpout]] = {
    f"{_WRAPPERS}.spouts.FluxShellSpout": FluxShellSpout,
    f"{_WRAPPERS}.bolts.FluxShellBolt": FluxShellBolt,
}
CLASSES: dict[str, type] = {f"{_WRAPPERS}.bolts.LogInfoBolt": LogInfoBolt, **SHELLS}
"""The classes that are taken as they are named."""

COUNTERPARTS: dict[str, str] = {
    "kafka": "topo.connectors.kafka.KafkaSpout or KafkaBolt",
    "jdbc": "topo.connectors.sql.SqlBolt or SqlLookupBolt",
    "redis": "topo.connectors.redis.RedisStoreBolt or RedisLookupBolt",
    "hdfs": "topo.connectors.files.FileBolt",
    "jms": "topo.connectors.amqp.AmqpSpout or AmqpBolt",
    "mongodb": "topo.connectors.mongodb.MongoBolt",
    "mqtt": "topo.connectors.mqtt.MqttSpout or MqttBolt",
    "kinesis": "topo.connectors.aws.KinesisSpout",
    "windowing": "topo.WindowedBolt",
    "testing.TestWordSpout": "topo.FromList",
    "testing.FeederSpout": "topo.testing.FeederSpout",
    "tuple.Fields": "a list of names",
}
"""What to name instead of other classes of Storm, by a part of their names."""


def counterpart(name: str) -> str:
    """Return what stands for a class of Storm, or ""."""
    return next((here for part, here in COUNTERPARTS.items() if part in name), "")


def shell_arguments(directory: Path) -> dict[str, Any]:
    """Return what Flux's shell components are made with here: the files beside the YAML."""
    resources = directory / "resources"
    return {"cwd": resources if resources.is_dir() else directory}
