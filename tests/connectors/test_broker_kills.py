"""Slots are killed at every point of a batch between an MQTT and an AMQP broker, both ways.

Nothing may be lost: every message is in a committed batch, and every committed row is published. A
bolt that publishes after the commit shows nothing else, and what it publishes twice bears the same
id. TOPO_KILLS=100 kills a hundred times at each point instead of once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.dying import KILLS, OF_BOLTS, OF_SPOUTS, DyingBolt, DyingSpout, killed
from tests.fault.spark_processes import wait_until
from tests.servers import mosquitto, rabbitmq
from tests.servers.mosquitto import MosquittoServer
from tests.servers.rabbitmq import RabbitServer
from topo import LocalCluster, Spout, Topology, TopologyBuilder
from topo.connectors.amqp import AmqpBolt, AmqpSpout
from topo.connectors.mqtt import MqttBolt, MqttSpout

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.server]

CONF = {"topology.workers": 2, "topology.restart.max": 20}
COUNT = 2_000


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


def between(source: Spout, sink: Any) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("source", source)
    builder.set_bolt("sink", sink).shuffle_grouping("source")
    return builder.create_topology()


def committed_rows(topology: Topology, write: Any, points: int, *directories: Path) -> list[Any]:
    """Run while the test writes, until all were killed; return what committed batches emitted."""
    deaths = points * KILLS
    with LocalCluster("local[2]") as cluster:
        run = cluster.submit_topology("kills", topology, CONF, capture=["source"])
        wait_until(lambda: connected(run) or run.wait(0), "the source")
        pause = threading.Event()
        count = 0
        while count < COUNT or (killed(directories) < deaths and not run.wait(0)):
            write(count)
            count += 50
            pause.wait(0.1)
        wanted = set(range(count))
        wait_until(lambda: {row[0] for row in run.tuples("source")} >= wanted or run.wait(0), "all")
        for each in directories:
            (each / "stop").touch()
        run.await_completion(120)
        rows = [row[0] for row in run.tuples("source")]
    assert killed(directories) == deaths
    assert set(rows) == wanted
    return rows


def connected(run: Any) -> float:
    return float(run.stats().components["source"].gauges.get("connected") or 0)


def numbers(start: int) -> list[bytes]:
    return [str(number).encode() for number in range(start, start + 50)]


def made_in(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "source", tmp_path / "sink"
    for path in made:
        path.mkdir()
    return made


def test_what_is_committed_reaches_the_queue_wherever_slots_die(
    mqtt: MosquittoServer, amqp: RabbitServer, tmp_path: Path
) -> None:
    queue = amqp.queue()
    of_source, of_sink = made_in(tmp_path)
    source = DyingMqttSpout(mqtt.url, "in", value="json", fields="value", track=False)
    sink = DyingAmqpBolt(amqp.url, queue, after_commit=True)
    topology = between(source.dying_at(OF_SPOUTS, of_source), sink.dying_at(OF_BOLTS, of_sink))
    points = len(OF_SPOUTS) + len(OF_BOLTS)
    rows = committed_rows(
        topology, lambda at: mqtt.write("in", numbers(at)), points, of_source, of_sink
    )
    by_id: dict[str, set[int]] = {}
    for properties, body in amqp.read(queue):
        by_id.setdefault(properties.message_id, set()).add(json.loads(body)["value"])
    assert all(len(values) == 1 for values in by_id.values())
    assert sorted(value for values in by_id.values() for value in values) == sorted(rows)


def test_what_is_committed_reaches_the_topic_wherever_slots_die(
    mqtt: MosquittoServer, amqp: RabbitServer, tmp_path: Path
) -> None:
    queue = amqp.queue()
    of_source, of_sink = made_in(tmp_path)
    source = DyingAmqpSpout(amqp.url, queue, value="json", fields="value")
    sink = DyingMqttBolt(mqtt.url, "out")
    some = ("prepared", "committed")
    topology = between(source.dying_at(some, of_source), sink.dying_at(some, of_sink))
    with mqtt.reader("out") as found:
        rows = committed_rows(
            topology,
            lambda at: amqp.write(queue, numbers(at)),
            2 * len(some),
            of_source,
            of_sink,
        )
        wait_until(
            lambda: {json.loads(one.payload)["value"] for one in found} >= set(rows), "all of it"
        )
    assert amqp.length(queue) == 0
