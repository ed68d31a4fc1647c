"""KafkaSpout and KafkaBolt against a broker."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from examples.clicks_kafka import clicks
from tests.connectors.messages import CLICK
from tests.connectors.moving import moved_until as moved
from tests.connectors.scripted_kafka import Keeps, Reading
from tests.connectors.scripted_registry import Registry
from tests.connectors.test_kafka_spout import Told, clients_alive, uncollected
from tests.servers import kafka
from tests.servers.kafka import KafkaServer
from tests.wiring import line
from topo import ComponentError, Spout, StatefulSpout, TopologyBuilder, Unavailable
from topo.connectors.kafka import Backoff, KafkaBolt, KafkaSpout, NewTopic
from topo.connectors.schemas import Avro, JsonSchema, Protobuf, SchemaRegistry
from topo.testing import TestCluster, make_tuple, run_bolt

__all__ = ["uncollected"]  # a fixture
pytestmark = [pytest.mark.server, pytest.mark.xdist_group("servers")]


@pytest.fixture(scope="module")
def server() -> KafkaServer:
    return kafka.shared()


@pytest.fixture(autouse=True)
def told() -> None:
    Told.held.clear()
    Told.fails.clear()


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """End what a test has begun: its clients would go on beside those of the next ones."""
    Reading.begun.clear()
    yield
    while Reading.begun:
        Reading.begun.pop().run.kill()


def moved_until(reading: Reading, condition: Callable[[], bool], secs: float = 0.0) -> None:
    """Move the topology until the condition holds; the test's time-out ends it otherwise."""
    pause = threading.Event()
    while not condition():
        reading.cluster.advance(secs)
        pause.wait(0.02)


def numbers(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once", "at_most_once"])
def test_every_record_of_every_partition_once(server: KafkaServer, guarantee: str) -> None:
    topic = server.topic(3)
    server.write(topic, numbers(1000))
    spout = KafkaSpout(
        server.address, topic, guarantee=guarantee, value="json", fields="value", until="latest"
    )
    reading = Reading(spout, tasks=2)
    moved_until(reading, lambda: reading.run.status == "COMPLETED")
    assert sorted(reading.offsets(0)) == list(range(1000))


def test_rebuilt_instances_resume_where_they_were(server: KafkaServer) -> None:
    topic = server.topic(2)
    reading = Reading(KafkaSpout(server.address, topic, value="json", fields="value"))
    for start in range(0, 300, 100):
        server.write(topic, numbers(start + 100)[start:])
        done = start + 100
        moved_until(reading, lambda done=done: len(reading.offsets(0)) >= done)  # type: ignore[misc]
        reading.run.restart()
    moved_until(reading, lambda: "lag" in str(reading.run.stats().components["kafka"].gauges))
    assert sorted(reading.offsets(0)) == list(range(300))


def test_failed_messages_come_again_and_the_hopeless_are_told(server: KafkaServer) -> None:
    topic = server.topic()
    server.write(topic, numbers(20), headers=[("h", b"1")])
    Told.fails.update({3: 1, 4: 1, 11: 2, 15: 9})
    spout = KafkaSpout(server.address, topic, group="watchers", retry=Backoff(retries=3))
    reading = Reading(spout, Told(), dead=Keeps())
    moved_until(reading, lambda: bool(reading.run.tuples("kafka", "dead")), 0.1)
    expected = dict.fromkeys(range(20), 1) | {3: 2, 4: 2, 11: 3, 15: 4}
    assert Counter(reading.offsets()) == expected
    (dead,) = reading.run.tuples("kafka", "dead")
    assert dead[:6] == [topic, 0, 15, None, b"15", [("h", b"1")]]


def test_what_is_given_up_goes_to_a_topic_that_is_made(server: KafkaServer) -> None:
    topic = server.topic()
    server.write(topic, [*numbers(5), b"{"], headers=[("h", b"1")])
    Told.fails.update({3: 9})
    spout = KafkaSpout(
        server.address, topic, key="str", value="json", retry=Backoff(retries=1),
        dead_letter=f"{topic}-dead", on_bad="dead_letter", fields=("offset", "value"),
        settings={"fetch.wait.max.ms": 50},
    )  # fmt: skip
    reading = Reading(spout, Told())
    dead = KafkaSpout(
        server.address, f"{topic}-dead", value="str", fields=("value", "failures", "reason", "h"),
        translate=lambda record: [
            record.value,
            *(dict(record.headers)[name] for name in ("topo-failures", "topo-reason", "h")),
        ],
    )  # fmt: skip
    burials = Reading(dead)

    def both_are_there() -> bool:
        burials.cluster.advance(0.0)
        return len(burials.run.tuples("kafka")) >= 2

    moved_until(reading, both_are_there, 0.1)
    by_value = {row[0]: row[1:] for row in burials.run.tuples("kafka")}
    assert by_value["3"] == [b"2", b"failed by 'b' task 1: told so", b"1"]
    assert by_value["{"][0] == b"0"
    assert b"JSON" in by_value["{"][1]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_values_with_schemas_go_from_topic_to_topic(
    server: KafkaServer, kind: str, guarantee: Any
) -> None:
    fields = [{"name": "user", "type": "string"}, {"name": "n", "type": "long"}]
    topic = server.topic()
    registry = Registry()
    address = SchemaRegistry(registry.url)
    form = {
        "avro": Avro(address, {"type": "record", "name": "Click", "fields": fields}),
        "json": JsonSchema(address, {"title": "Click", "type": "object", "required": ["user"]}),
        "protobuf": Protobuf(address, CLICK),
    }[kind]
    try:
        bolt = KafkaBolt(server.address, topic, value=form, guarantee=guarantee)
        rows = [make_tuple([f"u{n}", n], fields=("user", "n")) for n in range(20)]
        run_bolt(bolt, batches=[rows])
        spout = KafkaSpout(server.address, topic, value=form, fields=("n", "user"), until="latest")
        reading = Reading(spout)
        moved_until(reading, lambda: reading.run.status == "COMPLETED")
        assert reading.run.tuples("kafka") == [[n, f"u{n}"] for n in range(20)]
        assert list(registry.by_subject) == [f"{topic}-value"]
    finally:
        registry.close()


def test_a_topic_that_is_missing_is_made_as_it_is_wanted(server: KafkaServer) -> None:
    topic = f"{server.topic()}-new"
    new = NewTopic(partitions=3, settings={"cleanup.policy": "compact"})
    for _ in range(2):  # the second time it is there
        bolt = KafkaBolt(server.address, topic, key="n", create=new)
        run_bolt(bolt, batches=[[make_tuple([n], fields="n") for n in range(10)]])
    spout = KafkaSpout(server.address, topic, until="latest")
    reading = Reading(spout)
    moved_until(reading, lambda: reading.run.status == "COMPLETED")
    assert len(reading.offsets()) == 20
    assert set(reading.offsets(1)) == {0, 1, 2}
    wrong = NewTopic(settings={"cleanup.policy": "burn"})
    bolt = KafkaBolt(server.address, f"{topic}-2", create=wrong)
    with pytest.raises(ComponentError, match=r"cleanup\.policy"):
        run_bolt(bolt, [make_tuple([1], fields="n")])


def test_aborted_records_are_not_read_and_markers_are_no_lag(server: KafkaServer) -> None:
    """[X-02, L-05]"""
    from confluent_kafka import Producer

    topic = server.topic()
    producer = Producer(
        {"bootstrap.servers": server.address, "transactional.id": topic, "log_level": 2}
    )
    producer.init_transactions(60)
    for commit in (True, False, True):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{commit} {number}")
        producer.flush(60)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    spout = KafkaSpout(server.address, topic, value="str", fields="value", until="latest")
    reading = Reading(spout)
    moved_until(reading, lambda: reading.run.status == "COMPLETED")
    assert reading.offsets(0) == [f"True {number}" for number in (0, 1, 2)] * 2
    gauges = reading.run.stats().components["kafka"].gauges
    assert gauges[f'lag{{partition="0",topic="{topic}"}}'] == 0


def test_a_partition_that_is_added_is_read_from_its_beginning(server: KafkaServer) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    topic = server.topic()
    spout = KafkaSpout(server.address, topic, start="latest", discover_secs=0.1)
    reading = Reading(spout)
    moved_until(reading, lambda: bool(reading.run.stats().components["kafka"].gauges))
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    server.write(topic, numbers(5), partition=1)
    moved_until(reading, lambda: len(reading.offsets()) >= 5, 0.1)
    assert reading.offsets(1) == [1] * 5


def test_data_that_was_deleted_before_it_was_read_is_an_error(server: KafkaServer) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = server.topic()
    server.write(topic, numbers(10))
    reading = Reading(KafkaSpout(server.address, topic))
    moved_until(reading, lambda: len(reading.offsets()) == 10)
    reading.run.deactivate()
    server.write(topic, numbers(10))
    admin = AdminClient({"bootstrap.servers": server.address})
    for future in admin.delete_records([TopicPartition(topic, 0, 15)]).values():
        future.result(60)
    reading.run.restart()
    reading.run.activate()
    with pytest.raises(ComponentError, match="the position 10 is not in the log, which has 15 to"):
        moved_until(reading, lambda: False)


def test_a_wrong_address_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """[C-06]"""
    monkeypatch.setattr("topo.connectors.kafka.client._TIMEOUT_SECS", 1.0)
    reading = Reading(KafkaSpout("127.0.0.1:1", "t"))
    moved_until(reading, lambda: reading.run.status == "STALLED", 1)
    assert "127.0.0.1:1" in reading.run.reason


def test_settings_that_librdkafka_does_not_know(server: KafkaServer) -> None:
    reading = Reading(KafkaSpout(server.address, "t", settings={"fetch.max": 1}))
    with pytest.raises(ComponentError, match=r'KafkaSpout: .*"fetch\.max"'):
        moved_until(reading, lambda: False)


# -- the sink -----------------------------------------------------------------------------------


def values(server: KafkaServer, topic: str) -> list[Any]:
    return [json.loads(message.value()) for message in server.read(topic)]


class Counts(StatefulSpout):
    """Counts up; says the same again after a restart."""

    outputs = ("number",)

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def next_tuple(self) -> None:
        number = self.state.get("next", 0)
        if number < self.limit:
            self.emit([number])
            self.state["next"] = number + 1

    def is_exhausted(self) -> bool:
        return bool(self.state.get("next", 0) >= self.limit)


@pytest.mark.parametrize("guarantee", ["none", "at_least_once", "exactly_once"])
def test_records_are_there_when_the_topology_has_ended(server: KafkaServer, guarantee: Any) -> None:
    """[K-01, K-08, K-09]"""
    topic = server.topic(3)
    sink = KafkaBolt(server.address, topic, key="number", guarantee=guarantee)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Counts(100), sink))
        run.settle()
        assert run.status == "COMPLETED"
    assert sorted(value["number"] for value in values(server, topic)) == list(range(100))
    assert {message.key() for message in server.read(topic)} == set(numbers(100))


def batch(*listed: Any) -> list[Any]:
    return [make_tuple({"number": value}) for value in listed]


def test_a_batch_that_was_published_is_not_published_again(server: KafkaServer) -> None:
    """[K-10, K-20, K-22]"""
    topic = server.topic()
    run = run_bolt(KafkaBolt(server.address, topic, guarantee="exactly_once"), batches=[batch(1)])
    run.batch([])
    run.batch(batch(2, 3), commit=False)
    assert values(server, topic) == [{"number": 1}]
    saved = dict(run.bolt.state.raw())  # type: ignore[union-attr]
    run.commit()
    for _ in range(2):  # a process that died after the transaction, and had not saved that
        again = run_bolt(KafkaBolt(server.address, topic, guarantee="exactly_once"))
        again.bolt.state.update(saved)  # type: ignore[union-attr]
        again.batch_id = run.batch_id
        again.commit()
    assert values(server, topic) == [{"number": 1}, {"number": 2}, {"number": 3}]


def test_what_a_dead_process_left_open_is_aborted(server: KafkaServer) -> None:
    """[K-11, K-19]"""
    from confluent_kafka import Producer

    topic = server.topic()
    name = "topo/test-checkpoint/bolt_under_test/0"
    dead = Producer({"bootstrap.servers": server.address, "transactional.id": name, "log_level": 2})
    dead.init_transactions(60)
    dead.begin_transaction()
    dead.produce(topic, b'{"number": "of a dead attempt"}')
    dead.flush(60)
    run_bolt(KafkaBolt(server.address, topic, guarantee="exactly_once"), batches=[batch(1)])
    assert values(server, topic) == [{"number": 1}]


def test_the_parts_of_a_record_and_tuples_that_are_skipped(server: KafkaServer) -> None:
    """[K-04, K-07, K-17]"""
    topic = server.topic(3)
    sink = KafkaBolt(
        server.address,
        lambda tup: topic if tup.number else None,
        partition=lambda tup: 1,
        timestamp=lambda tup: 1000,
        headers=lambda tup: [("h", b"v")],
        value=lambda record: b"V",
        map=lambda tup: tup.number,
    )
    run = run_bolt(sink, batches=[batch(0, 1)])
    assert len(run.acked) == 2
    (message,) = server.read(topic)
    assert (message.partition(), message.timestamp()[1]) == (1, 1000)
    assert (message.headers(), message.value(), message.key()) == ([("h", b"v")], b"V", None)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_record_that_is_too_large_is_rejected_alone(server: KafkaServer, guarantee: Any) -> None:
    """[K-02]"""
    topic = server.topic()
    sink = KafkaBolt(server.address, topic, guarantee=guarantee, on_bad="stream")
    run = run_bolt(sink, batches=[batch(1, "x" * 2_000_000, 2)])
    assert [value["number"] for value in values(server, topic)] == [1, 2]
    (rejected,) = run.emitted
    assert "message.max.bytes" in rejected[1]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_topic_that_is_not_there_is_unavailable(server: KafkaServer, guarantee: Any) -> None:
    """[K-15]"""
    sink = KafkaBolt(server.address, "absent", guarantee=guarantee, retry_secs=0.5)
    with pytest.raises(Unavailable, match=f"Kafka at {server.address}: there is no topic 'absent'"):
        run_bolt(sink, batches=[batch(1)])


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_what_cannot_be_written_of_columns_is_left_out_alone(
    server: KafkaServer, guarantee: Any
) -> None:
    topic = server.topic()
    sink = KafkaBolt(server.address, topic, key="number", guarantee=guarantee, on_bad="skip")
    run_bolt(sink, batches=[batch(1, 1j, "x" * 2_000_000, None, "é"), batch(2)])
    written = [(message.key(), message.value()) for message in server.read(topic)]
    assert written == [
        (b"1", b'{"number":1}'),
        (None, b'{"number":null}'),
        ("é".encode(), '{"number":"é"}'.encode()),
        (b"2", b'{"number":2}'),
    ]


@pytest.mark.parametrize(
    ("number", "words"), [(1j, "complex is no JSON"), ("x" * 2_000_000, "max")]
)
def test_what_cannot_be_written_of_columns_stops_the_run(
    server: KafkaServer, number: Any, words: str
) -> None:
    topic = server.topic()
    with pytest.raises(ValueError, match=f"{words}.*, of a tuple with the values"):
        run_bolt(KafkaBolt(server.address, topic), batches=[batch(1, number)])
    run = run_bolt(
        KafkaBolt(server.address, topic),
        conf={"topology.uncaught.error": "fail"},
        batches=[batch(2, number, 3)],
    )
    assert [values[0] for values in run.failed] == [number]
    assert [value["number"] for value in values(server, topic)][-2:] == [2, 3]
    with pytest.raises(ValueError, match="key='numbr' is no field; did you mean 'number'"):
        run_bolt(KafkaBolt(server.address, server.topic(), key="numbr"), batches=[batch(1)])


@pytest.mark.parametrize(
    "wrong",
    [
        {"guarantee": "by_batch"},
        {"settings": {"transactional.id": "x"}},
        {"topic": ""},
        {"value": "xml"},
        {"servers": []},
    ],
)
def test_arguments_that_cannot_be_meant(wrong: dict[str, Any]) -> None:
    """[K-16]"""
    with pytest.raises(ComponentError):
        KafkaBolt(**{"servers": "a:1", "topic": "t", **wrong})


# -- a broker that dies -------------------------------------------------------------------------


class Paced(Spout):
    """Emits what the test lets it emit, and never again."""

    outputs = ("number",)
    allowed: ClassVar[int] = 0
    given: ClassVar[list[int]] = []

    def next_tuple(self) -> None:
        if len(self.given) < self.allowed:
            self.given.append(len(self.given))
            self.emit([self.given[-1]])


def test_a_broker_that_is_killed_and_started_again_loses_and_doubles_nothing(
    server: KafkaServer,
) -> None:
    with server.restarted():
        source, target = server.topic(), server.topic()
        server.write(source, numbers(50))
        spout = KafkaSpout(server.address, source, value="json", fields="value", discover_secs=0.5)
        sink = KafkaBolt(server.address, target, guarantee="exactly_once", retry_secs=1)
        reading = Reading(spout, sink)
        moved_until(reading, lambda: len(reading.offsets(0)) == 50)
        server.process.kill()
        moved_until(reading, lambda: reading.run.status == "STALLED", 1)
        assert server.address in reading.run.reason
        server.process.start()
        server.write(source, numbers(100)[50:])
        moved_until(reading, lambda: _published(reading) == 100, 1)
        assert sorted(value["value"] for value in values(server, target)) == list(range(100))


def _published(reading: Reading) -> int:
    return int(reading.run.stats().components["b"].counters.get("published", 0))


def test_the_example_counts_clicks(server: KafkaServer) -> None:
    source, target = server.topic(3), server.topic()
    users = ["ann", "ben", "cy"] * 30
    server.write(source, [json.dumps({"user": user}).encode() for user in users])
    server.write(source, [b"no JSON", b'"no click"'])
    with TestCluster() as cluster:
        run = cluster.submit_topology("clicks", clicks(server.address, source, target))
        pause = threading.Event()
        while run.stats().components["counts"].counters.get("published", 0) < len(users):
            cluster.advance(0.1)
            pause.wait(0.02)
    counts = Counter(dict.fromkeys(users, 0))
    for value in values(server, target):
        counts[value["user"]] = max(counts[value["user"]], value["count"])
    assert counts == {"ann": 30, "ben": 30, "cy": 30}


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_topology_that_has_ended_leaves_no_client_behind(
    server: KafkaServer, guarantee: Any
) -> None:
    source, target = server.topic(2), server.topic(1)
    server.write(source, numbers(10))
    before = clients_alive()
    retry = Backoff(retries=0)
    Told.fails.update({3: 9})
    spout = KafkaSpout(server.address, source, value="json", retry=retry, dead_letter=f"{source}-x")
    bolt = KafkaBolt(server.address, target, guarantee=guarantee)
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    builder.set_bolt("told", Told()).shuffle_grouping("s")
    builder.set_bolt("b", bolt).shuffle_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        moved(cluster, lambda: len(server.read(target)) == 10)
        moved(cluster, lambda: clients_alive() >= before + 4)
        for _ in range(3):  # what is left behind keeps none: an instance has eight at most
            run.restart()
            moved(cluster, lambda: run.status == "ACTIVE")
            cluster.advance(1)
            moved(cluster, lambda: before + 2 <= clients_alive() <= before + 8)
        run.kill()
        pause = threading.Event()
        while clients_alive() > before:  # the thread that looks for partitions ends by itself
            pause.wait(0.01)


def test_a_transaction_timeout_above_the_brokers_is_said_at_once(server: KafkaServer) -> None:
    """[K-18] Waiting mends nothing: it is no outage."""
    bolt = KafkaBolt(
        server.address,
        server.topic(),
        guarantee="exactly_once",
        settings={"transaction.timeout.ms": 2_000_000_000},
    )
    with pytest.raises(ComponentError, match=r"transaction.timeout.ms is more than the broker's"):
        run_bolt(bolt, [make_tuple([1])])


@pytest.mark.parametrize("on_data_loss", ["stop", "earliest"])
def test_a_topic_that_was_made_anew_is_known_by_its_id(
    server: KafkaServer, on_data_loss: Any
) -> None:
    """[I-05] Its log may be longer than the position by then."""
    topic = server.topic()
    server.write(topic, numbers(3))
    spout = KafkaSpout(
        server.address, topic, value="json", fields="value", discover_secs=0.05,
        on_data_loss=on_data_loss,
    )  # fmt: skip
    reading = Reading(spout)
    moved_until(reading, lambda: reading.offsets(0) == [0, 1, 2])
    moved_until(reading, lambda: "lag" in str(reading.run.stats().components["kafka"].gauges))
    server.make_anew(topic)
    server.write(topic, numbers(6))
    if on_data_loss == "stop":
        with pytest.raises(ComponentError, match="is of an earlier topic of this name"):
            moved_until(reading, lambda: len(reading.offsets(0)) > 3)
    else:
        moved_until(reading, lambda: len(reading.offsets(0)) == 9)
        assert reading.offsets(0) == [0, 1, 2, *range(6)]
