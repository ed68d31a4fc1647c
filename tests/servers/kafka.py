"""Kafka: broker and controller in one process (KRaft), from the jars that .ci/servers fetches.

Java is the one that topo brings along. `TOPO_KAFKA_JARS` names the directory of the jars.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.processes import (
    ServerProcess,
    end_with_tests,
    free_port,
    may_look_for,
    missing,
)

JARS = Path(os.environ.get("TOPO_KAFKA_JARS", "~/.cache/topo/kafka/jars")).expanduser()
_JVM = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
log.cleaner.dedupe.buffer.size=2097152
auto.create.topics.enable=false
"""


class KafkaServer:
    """A broker of its own, with what tests ask of it."""

    def __init__(self, directory: Path) -> None:
        port, control = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        settings = directory / "server.properties"
        settings.write_text(
            _PROPERTIES.format(port=port, control=control, directory=directory), encoding="utf-8"
        )
        java = [_java(), *_JVM, "-cp", f"{JARS}/*"]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)],
            check=True,
            capture_output=True,
        )
        command = [*java, "kafka.Kafka", str(settings)]
        self.process = ServerProcess("kafka", command, directory, port)
        self.process.start()

    @contextmanager
    def restarted(self) -> Iterator[None]:
        """Have the broker run again after a test that kills it, whatever the test does."""
        try:
            yield
        finally:
            if not self.process.is_running:
                self.process.start()

    def topic(self, partitions: int = 1, **config: Any) -> str:
        """Make a topic with a name of its own."""
        from confluent_kafka.admin import AdminClient, NewTopic

        name = f"t{uuid.uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 2})
        made = admin.create_topics([NewTopic(name, partitions, 1, config=config)])
        made[name].result(60)
        return name

    def make_anew(self, topic: str) -> None:
        """Delete a topic of one partition, and make another one of its name."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 2})
        admin.delete_topics([topic])[topic].result(60)
        pause = threading.Event()
        while True:
            try:
                admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
                return
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                pause.wait(0.05)  # its deletion is under way

    def write(self, topic: str, values: Iterable[bytes], **more: Any) -> None:
        """Produce values, and wait until the broker has them."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5, "log_level": 2})
        for count, value in enumerate(values, 1):
            producer.produce(topic, value, **more)
            if count % 50_000:
                producer.poll(0)
            else:  # or its queue would be full
                producer.flush(60)
        assert producer.flush(60) == 0

    def read(self, topic: str) -> list[Any]:
        """Return all messages that a read_committed reader sees."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "a-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        found, open_ones = [], set(numbers)
        while open_ones:
            for message in consumer.consume(10_000, timeout=1):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(message.partition())
                else:
                    raise RuntimeError(error.str())
        consumer.close()
        return found


def start(directory: Path) -> KafkaServer:
    """Start a broker; skip the test where the jars are not."""
    may_look_for("Kafka")
    if not any(JARS.glob("kafka_*.jar")):
        missing("Kafka")
    return KafkaServer(directory)


_lock = threading.Lock()
_shared: list[KafkaServer] = []


def shared() -> KafkaServer:
    """Start a broker for all tests of this process; each of them makes topics of its own."""
    with _lock:
        if not _shared:
            directory = tempfile.mkdtemp(prefix="topo-kafka-")
            end_with_tests(lambda: shutil.rmtree(directory, ignore_errors=True))
            _shared.append(start(Path(directory)))
            end_with_tests(_shared[0].process.kill)
        return _shared[0]


def _java() -> str:
    from topo.engine.spark.jvm.java import find_java

    return str(find_java().home / "bin" / "java")
