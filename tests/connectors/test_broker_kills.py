"""Slots are killed at every point of a batch between an MQTT and an AMQP broker, both ways.

Nothing may be lost: every message is in a committed batch, and every committed row is published. A
bolt that publishes after the commit shows nothing else, and what it publishes twice bears the same
id. TOPO_KILLS=100 kills a hundred times at each point instead of once.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.spark_processes import wait_until
from tests.servers import mosquitto, rabbitmq
from tests.servers.mosquitto import MosquittoServer
from tests.servers.rabbitmq import RabbitServer
from topo import LocalCluster, Spout, Topology, TopologyBuilder, Tuple
from topo.connectors.amqp import AmqpBolt, AmqpSpout
from topo.connectors.mqtt import MqttBolt, MqttSpout

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.server]

KILLS = int(os.environ.get("TOPO_KILLS", "1"))
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


class Dying:
    """Kills its process at each of its points, so often, and not in the first batches."""

    points: tuple[str, ...] = ()
    deaths = Path()
    context: Any

    def dying_at(self, points: tuple[str, ...], directory: Path) -> Any:
        self.points, self.deaths = points, directory
        return self

    def die(self, point: str) -> None:
        if point not in self.points or self.context.batch_id < 3:
            return
        done = len(list(self.deaths.glob(f"{point}-*")))
        if done < KILLS:
            (self.deaths / f"{point}-{done}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def pre_commit(self, batch_id: int) -> None:
        self.die("pre_commit")
        super().pre_commit(batch_id)  # type: ignore[misc]
        self.die("prepared")

    def committed(self, batch_id: int) -> None:
        self.die("committed")
        super().committed(batch_id)  # type: ignore[misc]
        self.die("published")


class DyingSource(Dying):
    """The same of a spout; ends when the test says so."""

    def next_tuple(self) -> None:
        super().next_tuple()  # type: ignore[misc]
        self.die("emitted")

    def is_exhausted(self) -> bool:
        return (self.deaths / "stop").exists()


class DyingMqttSpout(DyingSource, MqttSpout):
    pass


class DyingAmqpSpout(DyingSource, AmqpSpout):
    pass


class DyingMqttBolt(Dying, MqttBolt):
    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.die("executed")


class DyingAmqpBolt(Dying, AmqpBolt):
    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.die("executed")


SOURCE = ("emitted", "pre_commit", "prepared", "committed", "published")
SINK = ("executed", "pre_commit", "prepared", "committed", "published")


def between(source: Spout, sink: Any) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("source", source)
    builder.set_bolt("sink", sink).shuffle_grouping("source")
    return builder.create_topology()


def committed_rows(topology: Topology, write: Any, *directories: Path) -> list[Any]:
    """Run while the test writes, until all were killed; return what committed batches emitted."""

    def killed() -> int:
        return sum("-" in path.name for each in directories for path in each.iterdir())

    with LocalCluster("local[2]") as cluster:
        run = cluster.submit_topology("kills", topology, CONF, capture=["source"])
        wait_until(lambda: connected(run) or run.wait(0), "the source")
        pause = threading.Event()
        count = 0
        while count < COUNT or (killed() < (len(SOURCE) + len(SINK)) * KILLS and not run.wait(0)):
            write(count)
            count += 50
            pause.wait(0.1)
        wanted = set(range(count))
        wait_until(lambda: {row[0] for row in run.tuples("source")} >= wanted or run.wait(0), "all")
        for each in directories:
            (each / "stop").touch()
        run.await_completion(120)
        rows = [row[0] for row in run.tuples("source")]
    assert killed() == (len(SOURCE) + len(SINK)) * KILLS
    assert set(rows) == wanted
    return rows


def connected(run: Any) -> float:
    return float(run.stats().components["source"].gauges.get("connected") or 0)


def numbers(start: int) -> list[bytes]:
    return [str(number).encode() for number in range(start, start + 50)]


def directories(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "source", tmp_path / "sink"
    for path in made:
        path.mkdir()
    return made


def test_what_is_committed_reaches_the_queue_wherever_slots_die(
    mqtt: MosquittoServer, amqp: RabbitServer, tmp_path: Path
) -> None:
    queue = amqp.queue()
    of_source, of_sink = directories(tmp_path)
    source = DyingMqttSpout(mqtt.url, "in", value="json", fields="value", track=False)
    sink = DyingAmqpBolt(amqp.url, queue, after_commit=True)
    topology = between(source.dying_at(SOURCE, of_source), sink.dying_at(SINK, of_sink))
    rows = committed_rows(topology, lambda at: mqtt.write("in", numbers(at)), of_source, of_sink)
    by_id: dict[str, set[int]] = {}
    for properties, body in amqp.read(queue):
        by_id.setdefault(properties.message_id, set()).add(json.loads(body)["value"])
    assert all(len(values) == 1 for values in by_id.values())
    assert sorted(value for values in by_id.values() for value in values) == sorted(rows)


def test_what_is_committed_reaches_the_topic_wherever_slots_die(
    mqtt: MosquittoServer, amqp: RabbitServer, tmp_path: Path
) -> None:
    queue = amqp.queue()
    of_source, of_sink = directories(tmp_path)
    source = DyingAmqpSpout(amqp.url, queue, value="json", fields="value")
    sink = DyingMqttBolt(mqtt.url, "out")
    topology = between(source.dying_at(SOURCE, of_source), sink.dying_at(SINK, of_sink))
    with mqtt.reader("out") as found:
        rows = committed_rows(
            topology, lambda at: amqp.write(queue, numbers(at)), of_source, of_sink
        )
        wait_until(
            lambda: {json.loads(one.payload)["value"] for one in found} >= set(rows), "all of it"
        )
    assert amqp.length(queue) == 0
