"""Smooths the readings of MQTT sensors, and keeps the latest value of each in Redis.

    pip install 'topo-spark[mqtt,redis]'
    topo local examples/sensors_mqtt.py

reads `{"celsius": 21.5}` from the topics `sensors/<name>/celsius` of the broker at `SENSORS_MQTT`,
by default mqtt://localhost, and writes the hash `celsius` of the Redis server at `SENSORS_REDIS`.
The smoothed value is an exponentially weighted moving average: each reading moves it a fifth of the
way. Readings that are no numbers are counted (`topo stats`), and dropped.
"""

from __future__ import annotations

import os

from topo import StatefulBasicBolt, Topology, TopologyBuilder, Tuple
from topo.connectors.mqtt import Message, MqttSpout
from topo.connectors.redis import RedisStoreBolt

WEIGHT = 0.2


def reading(message: Message) -> list[object]:
    """Return the sensor and what it has measured."""
    _, sensor, _ = message.topic.split("/")
    return [sensor, float(message.value["celsius"])]


class Smooth(StatefulBasicBolt):
    """A moving average of each sensor."""

    outputs = ("sensor", "celsius")

    def execute(self, tup: Tuple) -> None:
        before = self.state.get(tup.sensor, tup.celsius)
        self.state[tup.sensor] = before + WEIGHT * (tup.celsius - before)
        self.emit([tup.sensor, self.state[tup.sensor]])


def sensors(mqtt: str, redis: str) -> Topology:
    """Return the topology between a broker and a Redis server."""
    spout = MqttSpout(
        mqtt,
        "sensors/+/celsius",
        value="json",
        fields=("sensor", "celsius"),
        translate=reading,
        track=False,
        on_bad="skip",
    )
    store = RedisStoreBolt(redis, key="sensor", value="celsius", type="hash", name="celsius")
    builder = TopologyBuilder()
    builder.set_spout("readings", spout)
    builder.set_bolt("smooth", Smooth(), parallelism=2).fields_grouping("readings", ["sensor"])
    builder.set_bolt("store", store).fields_grouping("smooth", ["sensor"])
    return builder.create_topology()


topology = sensors(
    os.environ.get("SENSORS_MQTT", "mqtt://localhost"),
    os.environ.get("SENSORS_REDIS", "redis://localhost:6379/0"),
)
