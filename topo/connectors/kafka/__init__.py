"""Kafka topics as a source and as a sink: `KafkaSpout` and `KafkaBolt`."""

from topo.connectors.kafka.retries import Backoff
from topo.connectors.kafka.sink import KafkaBolt
from topo.connectors.kafka.spout import KafkaSpout

__all__ = ["Backoff", "KafkaBolt", "KafkaSpout"]
