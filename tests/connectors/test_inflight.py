"""What arrives how often, source by source: what fails comes again, what is killed loses nothing.

Each source has the numbers 0 to 4 and emits them as the field `n`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from tests.connectors.moving import Collects, Once, Told, counters, moved_until
from tests.connectors.scripted_kafka import Broker, ScriptedSpout
from tests.connectors.test_http import Server, server
from tests.connectors.test_push import Server as PushServer
from tests.connectors.test_push import resuming
from tests.servers import aws, mosquitto, postgres, rabbitmq, redis
from tests.servers.processes import free_port
from topo import BasicBolt, Bolt, Spout, TopologyBuilder, Tuple, Unavailable
from topo.connectors.amqp import AmqpSpout
from topo.connectors.aws import KinesisSpout, SqsSpout
from topo.connectors.files import FileSpout
from topo.connectors.http import HttpPollSpout, HttpSpout
from topo.connectors.mongodb import MongoChanges
from topo.connectors.mqtt import MqttSpout
from topo.connectors.pubsub import PubSubSpout
from topo.connectors.redis import RedisListSpout, RedisPubSubSpout, RedisStreamSpout
from topo.connectors.replay import ReplaySpout
from topo.connectors.retries import Backoff
from topo.connectors.socket import SocketSpout
from topo.connectors.sql import PostgresChanges, SqlSpout
from topo.testing import TestCluster
from topo.testing.cluster import SteppedRun

__all__ = ["server"]  # a fixture
NUMBERS = range(5)
_names = iter(range(10_000))
Make = Callable[..., Spout]

pytestmark = pytest.mark.xdist_group("servers")


@pytest.fixture(scope="module")
def aws_server() -> Iterator[aws.AwsServer]:
    server = aws.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.RedisServer]:
    server = redis.start(tmp_path_factory.mktemp("redis"))
    yield server
    server.process.stop()


def in_thread(request: pytest.FixtureRequest, work: Callable[[], None]) -> None:
    """Have a thread do some work until the end of the test; it waits until somebody listens."""
    thread = threading.Thread(target=work)
    thread.start()
    request.addfinalizer(thread.join)


def sql(request: pytest.FixtureRequest) -> Make:
    path = request.getfixturevalue("tmp_path") / "base.db"
    connection = sqlite3.connect(path)
    connection.execute("create table t (n integer primary key)")
    connection.executemany("insert into t values (?)", [(number,) for number in NUMBERS])
    connection.commit()
    connection.close()
    return lambda **more: SqlSpout(f"sqlite:///{path}", "t", by="n", fields="n", **more)


def kinesis(request: pytest.FixtureRequest) -> Make:
    server: aws.AwsServer = request.getfixturevalue("aws_server")
    stream = server.stream(2)
    server.client("kinesis").put_records(
        StreamName=stream,
        Records=[{"Data": b'{"n": %d}' % n, "PartitionKey": str(n)} for n in NUMBERS],
    )
    return lambda **more: KinesisSpout(stream, fields="n", poll_secs=0.01, **server.options, **more)


def sqs(request: pytest.FixtureRequest) -> Make:
    server: aws.AwsServer = request.getfixturevalue("aws_server")
    queue = server.queue()
    for number in NUMBERS:
        server.client("sqs").send_message(QueueUrl=queue, MessageBody=json.dumps({"n": number}))
    return lambda **more: SqsSpout(queue, fields="n", poll_secs=0.01, **server.options, **more)


def redis_stream(request: pytest.FixtureRequest) -> Make:
    server: redis.RedisServer = request.getfixturevalue("redis_server")
    client = server.client()
    client.flushall()
    for number in NUMBERS:
        client.xadd("s", {"n": number})
    client.close()
    return lambda **more: RedisStreamSpout(
        server.url, "s", fields="n", translate=lambda record: [int(record.entry["n"])], **more
    )


def redis_group(request: pytest.FixtureRequest) -> Make:
    make = redis_stream(request)
    return lambda **more: make(group="g", **more)


def redis_list(request: pytest.FixtureRequest) -> Make:
    server: redis.RedisServer = request.getfixturevalue("redis_server")
    client = server.client()
    client.flushall()
    client.rpush("l", *NUMBERS)
    client.close()
    return lambda **more: RedisListSpout(
        server.url, "l", fields="n", translate=lambda record: [int(record.value)], **more
    )


def files(request: pytest.FixtureRequest) -> Make:
    path: Path = request.getfixturevalue("tmp_path") / "a.json"
    path.write_text("".join(json.dumps({"n": number}) + "\n" for number in NUMBERS))

    def make(track: bool | None = None, **more: Any) -> Spout:
        guarantee: Any = "exactly_once" if track is False else "at_least_once"
        return FileSpout(path, "json", fields="n", guarantee=guarantee, **more)

    return make


def replay(request: pytest.FixtureRequest) -> Make:
    return lambda **more: ReplaySpout([{"n": number} for number in NUMBERS], **more)


def mongodb(request: pytest.FixtureRequest) -> Make:
    from tests.connectors.scripted_mongodb import MongoServer

    server = MongoServer()
    request.addfinalizer(server.close)
    for number in NUMBERS:
        server.insert("t", {"_id": number, "n": number})
    start = datetime(2020, 1, 1, tzinfo=UTC)
    return lambda **more: MongoChanges(server.url, "d", "t", start=start, fields="n", **more)


def pubsub(request: pytest.FixtureRequest) -> Make:
    from tests.connectors.scripted_pubsub import PubSubServer

    server = PubSubServer()
    request.addfinalizer(server.close)
    server.write(*(b'{"n": %d}' % number for number in NUMBERS))
    name = "projects/p/subscriptions/t"
    return lambda **more: PubSubSpout(name, emulator=server.emulator, fields="n", **more)


def kafka(request: pytest.FixtureRequest) -> Make:
    broker = Broker()
    request.getfixturevalue("monkeypatch").setattr(ScriptedSpout, "broker", broker)
    for number in NUMBERS:
        broker.write("t", 0, 1, data=b'{"n": %d}' % number)

    def make(track: bool | None = None, **more: Any) -> Spout:
        guarantee = "exactly_once" if track is False else None
        return ScriptedSpout("t", value="json", fields="n", guarantee=guarantee, **more)

    return make


def feed(request: pytest.FixtureRequest) -> Make:
    listening = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"".join(b"%d\n" % number for number in NUMBERS))
            done.wait(60)

    thread = threading.Thread(target=serve)
    thread.start()

    def end() -> None:
        done.set()
        thread.join()
        listening.close()

    request.addfinalizer(end)
    port = listening.getsockname()[1]
    return lambda **more: SocketSpout("127.0.0.1", port, value="json", **more)


def http_poll(request: pytest.FixtureRequest) -> Make:
    server: Server = request.getfixturevalue("server")
    content = json.dumps([{"n": number} for number in NUMBERS]).encode()

    def answer(asked: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        is_known = asked.headers.get("If-None-Match") == "x"
        return (304, {}, b"") if is_known else (200, {"ETag": "x"}, content)

    server.answer = answer
    return lambda **more: HttpPollSpout(server.url, every_secs=3600, fields="n", **more)


def http_ingest(request: pytest.FixtureRequest) -> Make:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    ended = threading.Event()

    def post() -> None:
        body = [{"n": number} for number in NUMBERS]
        headers = {"Idempotency-Key": "k"}  # what is not answered is sent again
        with httpx.Client(timeout=60, trust_env=False, headers=headers) as client:
            while not ended.is_set():
                # It listens before its task is active, and says 503 until then.
                with contextlib.suppress(httpx.TransportError):
                    if client.post(url, json=body).status_code == 200:
                        return
                ended.wait(0.02)

    def make(**more: Any) -> Spout:
        in_thread(request, post)
        request.addfinalizer(ended.set)
        return HttpSpout(f"127.0.0.1:{port}", fields="n", **more)

    return make


def websocket(request: pytest.FixtureRequest) -> Make:
    server = PushServer(len(NUMBERS), len(NUMBERS))
    request.addfinalizer(server.close)
    return lambda **more: resuming(server, **more)


def redis_published(request: pytest.FixtureRequest) -> Make:
    server: redis.RedisServer = request.getfixturevalue("redis_server")

    def publish() -> None:
        client, pause = server.client(), threading.Event()
        while not client.pubsub_numsub("c")[0][1]:
            pause.wait(0.01)
        for number in NUMBERS:
            client.publish("c", number)
        client.close()

    def make(**more: Any) -> Spout:
        in_thread(request, publish)
        return RedisPubSubSpout(
            server.url, "c", fields="n", translate=lambda record: [int(record.message)], **more
        )

    return make


def mqtt(request: pytest.FixtureRequest) -> Make:
    server: mosquitto.MosquittoServer = request.getfixturevalue("mqtt_server")
    topic = f"t{next(_names)}"

    def publish() -> None:
        with server.client() as client:
            taken, pause = threading.Event(), threading.Event()

            def on_publish(client: Any, data: Any, number: Any, code: Any, more: Any) -> None:
                if code.value == 0:  # else nobody listens
                    taken.set()

            client.on_publish = on_publish
            while not taken.is_set():
                client.publish(topic, b'{"n": 0}', qos=1).wait_for_publish(30)
                pause.wait(0.01)
            for number in NUMBERS[1:]:
                client.publish(topic, b'{"n": %d}' % number, qos=1).wait_for_publish(30)

    def make(**more: Any) -> Spout:
        in_thread(request, publish)
        # The broker keeps a client's session, and what was not acked in it, for the next test.
        return MqttSpout(server.url, topic, client_id=topic, value="json", fields="n", **more)

    return make


def amqp(request: pytest.FixtureRequest) -> Make:
    server = rabbitmq.shared()
    queue = server.queue()
    server.write(queue, [b'{"n": %d}' % number for number in NUMBERS])
    return lambda **more: AmqpSpout(server.url, queue, value="json", fields="n", **more)


def postgres_changes(request: pytest.FixtureRequest) -> Make:
    server: postgres.PostgresServer = request.getfixturevalue("postgres_server")
    table = server.table("n integer primary key")
    server.run(f"insert into {table} values (0), (1), (2)")
    Told.place = Collects.place = 2  # the key

    def make(**more: Any) -> Spout:
        # Some are rows of the snapshot, others changes.
        in_thread(request, lambda: _insert_behind_a_slot(server, table))
        return PostgresChanges(server.url, table, poll_secs=0.01, **more)

    return make


def _insert_behind_a_slot(server: postgres.PostgresServer, table: str) -> None:
    pause = threading.Event()
    while not server.rows("select 1 from pg_replication_slots"):
        pause.wait(0.01)
    server.run(f"insert into {table} values (3), (4)")


SERVERS = (
    kinesis, sqs, redis_stream, redis_group, redis_list, redis_published, mqtt, amqp,
    postgres_changes,
)  # fmt: skip
SOURCES = (
    sql, files, replay, mongodb, pubsub, kafka, feed, websocket, http_poll, http_ingest, *SERVERS,
)  # fmt: skip
FORGET = (redis_published,)
"""Those that nobody keeps for a spout that does not listen."""
MAY_REPEAT = (mqtt, amqp, sqs)
"""Those whose server says the same again if it has not heard that it was taken."""


def params(*sources: Any) -> list[Any]:
    return [
        pytest.param(source, id=source.__name__, marks=[pytest.mark.server] * (source in SERVERS))
        for source in sources
    ]


@pytest.fixture(scope="module")
def mqtt_server() -> Iterator[mosquitto.MosquittoServer]:
    server = mosquitto.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def _postgres() -> Iterator[postgres.PostgresServer]:
    server = postgres.start()
    yield server
    server.stop()


@pytest.fixture
def postgres_server(_postgres: postgres.PostgresServer) -> Iterator[postgres.PostgresServer]:
    yield _postgres
    for (slot,) in _postgres.rows("select slot_name from pg_replication_slots"):
        _postgres.run(f"select pg_drop_replication_slot('{slot}')")


class Dead(BasicBolt):
    outputs = ("value", "where", "reason", "failures")

    def execute(self, tup: Tuple) -> None:
        self.emit(list(tup.values)[-4:])


@pytest.fixture(autouse=True)
def fails() -> Iterator[dict[Any, int]]:
    Told.fails.clear()
    Collects.counts.clear()
    Once.given.clear()
    yield Told.fails
    Told.fails.clear()
    Told.place = Collects.place = 0
    Collects.rolls_back = False


def started(
    cluster: TestCluster, spout: Spout, bolt: Bolt | BasicBolt, conf: Any = None
) -> SteppedRun:
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    builder.set_bolt("b", bolt).shuffle_grouping("s")
    if isinstance(spout.outputs, dict) and "dead" in spout.outputs:
        builder.set_bolt("dead", Dead()).shuffle_grouping("s", "dead")
    run: SteppedRun = cluster.submit_topology("t", builder.create_topology(), conf)
    return run


def emitted(run: SteppedRun) -> Counter[int]:
    return Counter(row[Told.place] for row in run.tuples("s"))


def all_acked(run: SteppedRun) -> bool:
    """Return True if each number is acked; the description of a table's columns is tracked too."""
    acked = [one for one in run.acked.get("s", ()) if getattr(one, "stream", "") != "schema"]
    return len(acked) == len(NUMBERS)


def all_emitted(run: SteppedRun) -> bool:
    return set(emitted(run)) == set(NUMBERS)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("source", params(*SOURCES))
def test_a_tuple_that_fails_comes_again(
    request: pytest.FixtureRequest, source: Any, restarts: bool, fails: dict[Any, int]
) -> None:
    if restarts and source in FORGET:
        pytest.skip("what is published meanwhile is not heard")
    make = source(request)
    fails |= {1: 1, 3: 4}
    with TestCluster() as cluster:
        run = started(cluster, make(), Told())
        for _ in range(3 if restarts else 0):
            run.step()
            if run.status == "ACTIVE":
                run.restart()
        moved_until(cluster, lambda: all_acked(run), 0.1)
        for _ in range(3):
            cluster.advance(1)
        exactly = {0: 1, 1: 2, 2: 1, 3: 5, 4: 1}
        if restarts and source in MAY_REPEAT:
            assert emitted(run) >= Counter(exactly)
        else:
            assert emitted(run) == exactly
        assert run.pending == 0


class Dies(Collects):
    """Counts, and dies with its first batch before the commit, and with the next one after it."""

    deaths: ClassVar[list[str]] = []

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.has_work = True

    def pre_commit(self, batch_id: int) -> None:
        if getattr(self, "has_work", False) and self.deaths[:1] == ["before"]:
            self.deaths.pop(0)
            raise Unavailable("now", after_secs=1)

    def committed(self, batch_id: int) -> None:
        super().committed(batch_id)
        if self.counts and self.deaths[:1] == ["after"]:
            self.deaths.pop(0)
            raise Unavailable("now", after_secs=1)


def counted(cluster: TestCluster, spout: Spout, *, until: Callable[[], Any]) -> dict[int, int]:
    """Run a spout that is killed in the middle, and begins again from what was saved."""
    Dies.deaths[:] = ["before", "after"]
    run = started(cluster, spout, Dies())
    turns = iter(range(1_000_000))

    def moved() -> bool:
        if next(turns) % 4 == 3 and run.status == "ACTIVE":
            run.restart()
        return bool(until())

    moved_until(cluster, moved, 0.25)
    cluster.advance(5)
    assert not Dies.deaths
    return dict(Collects.counts)


@pytest.mark.parametrize("tracks", [None, False])
@pytest.mark.parametrize("source", params(*(each for each in SOURCES if each not in FORGET)))
def test_what_is_killed_in_the_middle_arrives_once(
    request: pytest.FixtureRequest, source: Any, tracks: bool | None
) -> None:
    # What a dead task has received comes again when its visibility has ended, by the real clock.
    more = {"visibility_secs": 1} if source is sqs else {}
    spout = source(request)(track=tracks, **more)
    with TestCluster() as cluster:
        counts = counted(cluster, spout, until=lambda: set(Collects.counts) == set(NUMBERS))
        if source in MAY_REPEAT:
            assert set(counts) == set(NUMBERS)
        else:
            assert counts == dict.fromkeys(NUMBERS, 1)


def test_a_spout_that_keeps_nothing_loses_what_is_killed_in_the_middle() -> None:
    with TestCluster() as cluster:
        counts = counted(cluster, Once(), until=lambda: len(Once.given) == Once.most)
        assert 0 < len(counts) < Once.most


@pytest.mark.parametrize("source", params(*SOURCES))
def test_a_tuple_that_is_not_tracked_is_lost(
    request: pytest.FixtureRequest, source: Any, fails: dict[Any, int]
) -> None:
    make = source(request)
    fails[3] = 1
    with TestCluster() as cluster:
        run = started(cluster, make(track=False), Told())
        moved_until(cluster, lambda: all_emitted(run), 0.1)
        for _ in range(3):
            cluster.advance(1)
        assert emitted(run) == dict.fromkeys(NUMBERS, 1)


@pytest.mark.parametrize("source", params(*SOURCES))
def test_a_tuple_that_always_fails_is_dead_after_its_retries(
    request: pytest.FixtureRequest, source: Any, fails: dict[Any, int]
) -> None:
    make = source(request)
    fails[3] = 1_000
    with TestCluster() as cluster:
        run = started(cluster, make(retry=Backoff(first=0.5, retries=2)), Told())
        moved_until(cluster, lambda: run.tuples("dead"), 0.1)
        for _ in range(3):
            cluster.advance(1)
        (dead,) = run.tuples("dead")
        assert dead[-1] == 3
        assert "as told" in dead[-2]
        assert emitted(run) == {0: 1, 1: 1, 2: 1, 3: 3, 4: 1}
        assert counters(run)["dead"] == 1
        assert run.pending == 0


class Holds(Bolt):
    """Keeps what it gets until the topology's clock is past a time, and acks it then."""

    until = 5.0

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.held: list[Tuple] = []

    def get_component_configuration(self) -> dict[str, Any]:
        return {"topology.tick.tuple.freq.secs": 1}

    def on_tick(self, tup: Tuple) -> None:
        if self.context.now() >= self.until:
            held, self.held = self.held, []
            for each in held:
                self.ack(each)

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)


@pytest.mark.parametrize("source", params(*SOURCES))
def test_no_more_is_in_flight_than_the_limit_says(
    request: pytest.FixtureRequest, source: Any
) -> None:
    """[E-01]"""
    make = source(request)
    with TestCluster() as cluster:
        run = started(cluster, make(), Holds(), {"topology.max.spout.pending": 2})
        moved_until(cluster, lambda: run.pending == 2, 0.01)
        for _ in range(5):
            cluster.advance(0.1)
            assert run.pending == 2
        moved_until(cluster, lambda: all_acked(run), 1)
        assert emitted(run) == dict.fromkeys(NUMBERS, 1)


@pytest.mark.server
@pytest.mark.parametrize("dead_letters", [False, True])
def test_sqs_has_a_message_until_it_is_acked(
    request: pytest.FixtureRequest, dead_letters: bool, fails: dict[Any, int]
) -> None:
    """What is given up goes to the queue's own dead letters, if nobody reads the stream `dead`."""
    server: aws.AwsServer = request.getfixturevalue("aws_server")
    client = server.client("sqs")
    queue, letters = server.queue(), server.queue()
    if dead_letters:
        name = client.get_queue_attributes(QueueUrl=letters, AttributeNames=["QueueArn"])
        policy = {"deadLetterTargetArn": name["Attributes"]["QueueArn"], "maxReceiveCount": 1}
        client.set_queue_attributes(
            QueueUrl=queue, Attributes={"RedrivePolicy": json.dumps(policy)}
        )
    for number in NUMBERS:
        client.send_message(QueueUrl=queue, MessageBody=json.dumps({"n": number}))
    fails[3] = 1_000

    def count(url: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    retry = Backoff(retries=1) if dead_letters else Backoff()
    spout = SqsSpout(queue, fields="n", poll_secs=0.01, retry=retry, **server.options)
    with TestCluster() as cluster:
        builder = TopologyBuilder()
        builder.set_spout("s", spout)
        builder.set_bolt("b", Told()).shuffle_grouping("s")
        run = cluster.submit_topology("t", builder.create_topology())
        if dead_letters:
            moved_until(cluster, lambda: count(letters) == 1, 1)
            assert counters(run)["dead"] == 1
            assert any("is given up" in error.message for error in run.errors())
        moved_until(cluster, lambda: count(queue) == (0 if dead_letters else 1), 1)
        run.kill()
