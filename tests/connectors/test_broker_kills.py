"""Slots are killed at the points of a batch on the way from MQTT to AMQP, and back to MQTT.

Nothing may be lost: every message is in a committed batch, and every committed row is published. A
bolt that publishes after the commit shows nothing else, and what it publishes twice bears the same
id. TOPO_KILLS=100 kills each component a hundred times, dealt over its points.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.dying import (
    A_KILL_SECS,
    KILLS,
    OF_BOLTS,
    OF_SPOUTS,
    DyingBolt,
    DyingSpout,
    killed,
    kills_at_each,
    told,
)
from tests.fault.spark_processes import wait_until
from tests.servers import mosquitto, rabbitmq
from tests.servers.mosquitto import MosquittoServer
from tests.servers.rabbitmq import RabbitServer
from topo import LocalCluster, TopologyBuilder
from topo.connectors.amqp import AmqpBolt, AmqpSpout
from topo.connectors.mqtt import MqttBolt, MqttSpout

pytestmark = [
    pytest.mark.spark,
    pytest.mark.fault,
    pytest.mark.server,
    pytest.mark.timeout(900 + 4 * A_KILL_SECS * KILLS),
]

CONF = {"topology.workers": 2, "topology.restart.max": 20}
PAUSE_SECS = 0.02 if KILLS == 1 else 0.25
LEAST = 500
POINTS: dict[str, tuple[str, ...]] = {
    "mqtt-source": OF_SPOUTS,
    "queue": OF_BOLTS,
    "amqp-source": ("prepared", "committed"),
    "topic": ("prepared", "committed"),
}


@pytest.fixture(scope="module")
def mqtt() -> Iterator[MosquittoServer]:
    server = mosquitto.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def amqp() -> RabbitServer:
    return rabbitmq.shared()


class DyingMqttSpout(DyingSpout, MqttSpout):
    pass


class DyingAmqpSpout(DyingSpout, AmqpSpout):
    pass


class DyingMqttBolt(DyingBolt, MqttBolt):
    pass


class DyingAmqpBolt(DyingBolt, AmqpBolt):
    pass


class Arrived:
    """The numbers that have come out of the other end."""

    def __init__(self, messages: list[Any]) -> None:
        self._messages, self._read, self.numbers = messages, 0, set[int]()

    def count(self) -> int:
        new = self._messages[self._read :]
        self._read += len(new)
        self.numbers.update(json.loads(message.payload)["number"] for message in new)
        return len(self.numbers)


def test_what_is_committed_is_published_wherever_slots_die(
    mqtt: MosquittoServer, amqp: RabbitServer, tmp_path: Path
) -> None:
    queue = amqp.queue()
    components: dict[str, Any] = {
        "mqtt-source": DyingMqttSpout(mqtt.url, "in", value="json", fields="value", track=False),
        "queue": DyingAmqpBolt(amqp.url, queue, after_commit=True),
        "amqp-source": DyingAmqpSpout(
            amqp.url,
            queue,
            value="json",
            fields=("id", "number"),
            translate=lambda message: [message.message_id, message.value["value"]],
        ),
        "topic": DyingMqttBolt(mqtt.url, "out"),
    }
    builder = TopologyBuilder()
    for name, component in components.items():
        component.dying_at(POINTS[name], tmp_path / name)
    for source, sink in (("mqtt-source", "queue"), ("amqp-source", "topic")):
        builder.set_spout(source, components[source])
        builder.set_bolt(sink, components[sink]).shuffle_grouping(source)
    directories = [tmp_path / name for name in components]
    deaths = sum(len(points) * kills_at_each(points) for points in POINTS.values())

    with LocalCluster("local[2]") as cluster, mqtt.reader("out") as found, mqtt.client() as client:
        topology, capture = builder.create_topology(), ["mqtt-source", "amqp-source"]
        run = cluster.submit_topology("kills", topology, CONF, capture=capture)
        wait_until(lambda: connected(run) or run.wait(0), "the source")
        arrived, pause, count = Arrived(found), threading.Event(), 0
        while count < LEAST or (killed(directories) < deaths and not run.wait(0)):
            for number in range(count, count + 10):
                client.publish("in", str(number), 1).wait_for_publish(30)
            count += 10
            pause.wait(PAUSE_SECS)
        wait_until(lambda: arrived.count() == count or run.wait(0), "all of it")
        for each in directories:
            (each / "stop").touch()
        run.await_completion(120)
        into, back = (run.tuples(name) for name in capture)
    print(f"{told(directories)}; {count} messages")
    assert killed(directories) == deaths
    assert {number for (number,) in into} == arrived.numbers == set(range(count))
    by_id: dict[str, set[int]] = {}
    for name, number in back:
        by_id.setdefault(name, set()).add(number)
    assert all(len(numbers) == 1 for numbers in by_id.values())
    published = sorted(number for numbers in by_id.values() for number in numbers)
    assert published == sorted(number for (number,) in into)
    assert amqp.length(queue) == 0


def connected(run: Any) -> float:
    return float(run.stats().components["mqtt-source"].gauges.get("connected") or 0)
