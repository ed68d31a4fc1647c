"""MQTT as a source and a sink."""

from topo.connectors.mqtt.sink import MqttBolt
from topo.connectors.mqtt.spout import Message, MqttSpout
from topo.connectors.retries import Backoff

__all__ = ["Backoff", "Message", "MqttBolt", "MqttSpout"]
