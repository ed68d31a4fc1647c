"""Kafka topics as a source and as a sink: `KafkaSpout` and `KafkaBolt`."""

from topo.connectors.kafka.sink import KafkaBolt
from topo.connectors.kafka.spout import KafkaSpout
from topo.connectors.kafka.topics import NewTopic
from topo.connectors.retries import Backoff

__all__ = ["Backoff", "KafkaBolt", "KafkaSpout", "NewTopic"]
