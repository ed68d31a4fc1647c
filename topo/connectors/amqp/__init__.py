"""AMQP 0-9-1 as a source and a sink: RabbitMQ, and brokers that speak its protocol."""

from topo.connectors.amqp.sink import AmqpBolt
from topo.connectors.amqp.spout import AmqpSpout, Message
from topo.connectors.retries import Backoff

__all__ = ["AmqpBolt", "AmqpSpout", "Backoff", "Message"]
