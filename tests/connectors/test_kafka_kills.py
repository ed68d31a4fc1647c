"""Slots are killed at every point of a batch, and the broker in the middle of one.

Readers that are `read_committed` must see every record of every committed batch once, and nothing
else; although the spout never says the same again. The control publishes before the commit, as
sinks do that rely on sources to repeat themselves: it must show records that topo never committed.

TOPO_KILLS=100 kills a hundred times, dealt over the points.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.between_topics import Driver
from tests.connectors.dying import (
    A_KILL_SECS,
    KILLS,
    OF_BOLTS,
    DyingBolt,
    await_kills,
    killed,
    kills_at_each,
    told,
)
from tests.fault.spark_processes import kill_a_slot, wait_until
from tests.servers import kafka
from tests.servers.kafka import KafkaServer
from topo import LocalCluster, Spout, StatefulBasicBolt, TopologyBuilder, Tuple
from topo.connectors.kafka import KafkaBolt, KafkaSpout
from topo.connectors.kafka.publisher import Batch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.fault,
    pytest.mark.server,
    pytest.mark.timeout(300 + A_KILL_SECS * KILLS),
]

CONF = {"topology.workers": 2, "topology.restart.max": 20}


@pytest.fixture(scope="module")
def server() -> KafkaServer:
    return kafka.shared()


class Fresh(Spout):
    """Numbers with a token that is another one each time; ends when the test says so."""

    outputs = ("number", "token")

    def __init__(self, stop: Path) -> None:
        self.stop = stop

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next = 0
        self.due = 0.0

    def next_tuple(self) -> None:
        if time.time() >= self.due and not self.is_exhausted():
            self.due = time.time() + 0.02
            for _ in range(20):
                self.emit([self.next, secrets.token_hex(8)])
                self.next += 1

    def is_exhausted(self) -> bool:
        return self.stop.exists()


class Dying(DyingBolt, KafkaBolt):
    """Dies at one more point: in the middle of what it publishes."""

    def committed(self, batch_id: int) -> None:
        kept = [batch for key, batch in self.state.raw().items() if key == ("outbox", batch_id)]
        if kept and self.is_due("publishing"):
            self.publish_half(kept[0])
        super().committed(batch_id)

    def publish_half(self, batch: Batch) -> None:
        """Die with a transaction open, in which records are."""
        publisher = self.publisher()
        assert isinstance(batch.topic, str)
        publisher._begin(30)
        assert publisher._producer is not None
        publisher._producer.producer.begin_transaction()
        for record in islice(batch.records(), len(batch) // 2 + 1):
            publisher._producer.produce(record, time.monotonic() + 30)
        publisher._producer.producer.flush(30)
        self.die("publishing")


class PublishesEarly(Dying):
    """The control: publishes in a transaction of Kafka's, before topo's commit."""

    def pre_commit(self, batch_id: int) -> None:
        batch, self._batch = self._batch, []
        if batch:
            self.publisher().publish(time.time_ns() // 1000, Batch.of(batch))
        self.die("prepared")


def visible(server: KafkaServer, topic: str) -> list[list[Any]]:
    return [list(json.loads(message.value()).values()) for message in server.read(topic)]


def committed_rows(sink: Dying, directory: Path, kills: int) -> list[list[Any]]:
    """Run until so many were killed; return what the spout emitted in committed batches."""
    builder = TopologyBuilder()
    builder.set_spout("fresh", Fresh(directory / "stop"))
    builder.set_bolt("sink", sink).shuffle_grouping("fresh")
    with LocalCluster("local[2]") as cluster:
        run = cluster.submit_topology("kills", builder.create_topology(), CONF, capture=["fresh"])
        await_kills(run, [directory], kills)
        last = run.stats().batch.id
        wait_until(lambda: run.stats().batch.id >= last + 3 or run.wait(0), "batches after them")
        (directory / "stop").touch()
        run.await_completion(120)
        return run.tuples("fresh")


POINTS = (*OF_BOLTS, "publishing")


def test_what_was_committed_is_published_once_wherever_slots_die(
    server: KafkaServer, tmp_path: Path
) -> None:
    """[K-19, K-20, K-23]"""
    topic = server.topic(2)
    sink = Dying(server.address, topic, guarantee="exactly_once").dying_at(POINTS, tmp_path)
    kills = len(POINTS) * kills_at_each(POINTS)
    committed = committed_rows(sink, tmp_path, kills)
    print(f"{told([tmp_path])}; {len(committed)} records")
    assert killed([tmp_path]) == kills
    assert sorted(visible(server, topic)) == sorted(committed)
    assert [row[0] for row in committed] == list(range(len(committed)))


def test_publishing_before_the_commit_shows_what_was_rolled_back(
    server: KafkaServer, tmp_path: Path
) -> None:
    topic = server.topic()
    sink = PublishesEarly(server.address, topic, guarantee="exactly_once")
    committed = committed_rows(sink.dying_at(("prepared",), tmp_path, 1), tmp_path, 1)
    shown = Counter(row[0] for row in visible(server, topic))
    assert len(visible(server, topic)) > len(committed)
    assert max(shown.values()) > 1


def test_a_topology_between_two_topics_survives_slots_and_the_broker(
    server: KafkaServer, tmp_path: Path
) -> None:
    """[G-08, I-06]"""
    with server.restarted():
        source, target = server.topic(4), server.topic(2)
        first, second = (
            [json.dumps({"number": number}).encode() for number in range(start, start + 5000)]
            for start in (0, 5000)
        )
        server.write(source, first)
        builder = TopologyBuilder()
        spout = KafkaSpout(
            server.address,
            source,
            value="json",
            fields="number",
            guarantee="exactly_once",
            discover_secs=0.5,
        )
        builder.set_spout("source", spout, parallelism=2)
        sink = Dying(server.address, target, guarantee="exactly_once", retry_secs=1)
        points = ("executed", "published")
        builder.set_bolt("sink", sink.dying_at(points, tmp_path, 2)).shuffle_grouping("source")
        with LocalCluster("local[2]") as cluster:
            run = cluster.submit_topology("between", builder.create_topology(), CONF)
            wait_until(lambda: published(run) >= 1 or run.wait(0), "the first batch")
            server.process.kill()
            wait_until(lambda: server.address in run.reason or run.wait(0), "the stall")
            assert run.status == "STALLED"
            server.process.start()
            for start in range(0, 5000, 500):
                server.write(source, second[start : start + 500])
            wait_until(lambda: seen(server, target) >= 10_000 or run.wait(0), "all of it")
        numbers = Counter(row[0] for row in visible(server, target))
        assert numbers == dict.fromkeys(range(10_000), 1)


def test_a_driver_that_is_killed_goes_on_where_it_was(server: KafkaServer, tmp_path: Path) -> None:
    """[G-08]"""
    source, target = server.topic(2), server.topic()
    first, second = (
        [json.dumps({"number": number}).encode() for number in range(start, start + 4000)]
        for start in (0, 4000)
    )
    server.write(source, first)
    arguments = (tmp_path, server.address, source, target)
    with Driver(*arguments) as driver:
        wait_until(lambda: seen(server, target) >= 500 or driver.has_ended, "the first batches")
        assert not driver.has_ended, driver.words()
        driver.kill()
    server.write(source, second)
    with Driver(*arguments) as driver:
        wait_until(lambda: seen(server, target) >= 8000 or driver.has_ended, "all of it")
        assert not driver.has_ended, driver.words()
    numbers = Counter(row[0] for row in visible(server, target))
    assert numbers == dict.fromkeys(range(8000), 1)


class Sums(StatefulBasicBolt):
    """Counts the messages of each partition, and adds up their numbers and their offsets."""

    outputs = ("partition", "count", "numbers", "offsets")
    transient = ("changed",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.changed: set[int] = set()

    def execute(self, tup: Tuple) -> None:
        count, numbers, offsets = self.state.get(tup.partition, (0, 0, 0))
        sums = count + 1, numbers + int(tup.value), offsets + tup.offset
        self.state[tup.partition] = sums
        self.changed.add(tup.partition)

    def pre_commit(self, batch_id: int) -> None:
        for partition in sorted(self.changed):
            self.emit([partition, *self.state[partition]])
        self.changed.clear()


@pytest.mark.skipif(KILLS < 2, reason="takes minutes; TOPO_KILLS=2 and more asks for it")
@pytest.mark.timeout(1800)
def test_a_million_messages_count_once_each_while_slots_are_killed(server: KafkaServer) -> None:
    """[G-08]"""
    total, partitions, kills = 1_000_000, 4, max(4, KILLS)
    topic = server.topic(partitions)
    for number in range(partitions):
        own = range(number, total, partitions)
        server.write(topic, (str(each).encode() for each in own), partition=number)
    spout = KafkaSpout(
        server.address,
        topic,
        fields=("partition", "offset", "value"),
        guarantee="exactly_once",
        until="latest",
    )
    builder = TopologyBuilder()
    builder.set_spout("source", spout, parallelism=4)
    builder.set_bolt("sums", Sums(), parallelism=4).fields_grouping("source", ["partition"])
    conf = {**CONF, "topology.workers": 4}

    def done() -> int:
        return sum({row[0]: row[1] for row in run.tuples("sums")}.values())

    with LocalCluster("local[4]") as cluster:
        run = cluster.submit_topology("many", builder.create_topology(), conf, capture=["sums"])
        began = time.monotonic()
        for number in range(kills):
            least = (number + 1) * total // (kills + 1)
            wait_until(lambda least=least: done() >= least or run.wait(0), "messages")  # type: ignore[misc]
            wait_until(kill_a_slot, "a slot's process")
        run.await_completion(1200)
        print(f"{total:,} messages, {kills} slots killed: {time.monotonic() - began:.1f} s")
        sums = {row[0]: tuple(row[1:]) for row in run.tuples("sums")}
    each = total // partitions
    offsets = each * (each - 1) // 2
    assert sums == {
        number: (each, sum(range(number, total, partitions)), offsets)
        for number in range(partitions)
    }


def published(run: Any) -> int:
    return int(run.stats().components["sink"].counters.get("published", 0))


def seen(server: KafkaServer, topic: str) -> int:
    return len(server.read(topic))
