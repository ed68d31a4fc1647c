"""Google Pub/Sub: `PubSubSpout` takes messages from a subscription, `PubSubBolt` publishes."""

from topo.connectors.pubsub.sink import PubSubBolt
from topo.connectors.pubsub.spout import Message, PubSubSpout

__all__ = ["Message", "PubSubBolt", "PubSubSpout"]
