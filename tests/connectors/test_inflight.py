"""What a failed tuple becomes, source by source: it comes again, and is never lost.

Each source has the numbers 0 to 4 and emits them as the field `n`.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.connectors.moving import Told, counters, moved_until
from tests.connectors.scripted_kafka import Broker, ScriptedSpout
from tests.connectors.test_http import Server, server
from tests.servers import aws, redis
from tests.servers.processes import free_port
from topo import BasicBolt, Bolt, Spout, TopologyBuilder, Tuple
from topo.connectors.aws import KinesisSpout, SqsSpout
from topo.connectors.files import FileSpout
from topo.connectors.http import HttpPollSpout, HttpSpout
from topo.connectors.redis import RedisListSpout, RedisStreamSpout
from topo.connectors.replay import ReplaySpout
from topo.connectors.retries import Backoff
from topo.connectors.socket import SocketSpout
from topo.connectors.sql import SqlSpout
from topo.testing import TestCluster
from topo.testing.cluster import SteppedRun

__all__ = ["server"]  # a fixture
NUMBERS = range(5)
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
    server.answer = lambda asked, body: (
        200, {"ETag": "x"}, json.dumps([{"n": number} for number in NUMBERS]).encode()
    )  # fmt: skip
    return lambda **more: HttpPollSpout(server.url, every_secs=3600, fields="n", **more)


def http_ingest(request: pytest.FixtureRequest) -> Make:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    threads: list[threading.Thread] = []

    def post() -> None:
        body = [{"n": number} for number in NUMBERS]
        transport = httpx.HTTPTransport(retries=6)  # until it listens
        with httpx.Client(transport=transport, timeout=60, trust_env=False) as client:
            pause = threading.Event()
            # It listens before its task is active, and says 503 until then.
            while (answer := client.post(url, json=body)).status_code == 503:
                pause.wait(0.02)
            assert answer.status_code == 200

    def make(**more: Any) -> Spout:
        threads.append(threading.Thread(target=post))
        threads[-1].start()
        return HttpSpout(f"127.0.0.1:{port}", fields="n", **more)

    def end() -> None:
        for thread in threads:
            thread.join()

    request.addfinalizer(end)
    return make


SERVERS = (kinesis, sqs, redis_stream, redis_group, redis_list)
SOURCES = (sql, files, replay, kafka, feed, http_poll, http_ingest, *SERVERS)


def params(*sources: Any) -> list[Any]:
    return [
        pytest.param(source, id=source.__name__, marks=[pytest.mark.server] * (source in SERVERS))
        for source in sources
    ]


class Dead(BasicBolt):
    outputs = ("value", "where", "reason", "failures")

    def execute(self, tup: Tuple) -> None:
        self.emit(list(tup.values)[-4:])


@pytest.fixture
def fails() -> Iterator[dict[Any, int]]:
    Told.fails.clear()
    yield Told.fails
    Told.fails.clear()


def started(cluster: TestCluster, spout: Spout, bolt: Bolt, conf: Any = None) -> SteppedRun:
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    builder.set_bolt("b", bolt).shuffle_grouping("s")
    if isinstance(spout.outputs, dict) and "dead" in spout.outputs:
        builder.set_bolt("dead", Dead()).shuffle_grouping("s", "dead")
    run: SteppedRun = cluster.submit_topology("t", builder.create_topology(), conf)
    return run


def emitted(run: SteppedRun) -> Counter[int]:
    return Counter(row[0] for row in run.tuples("s"))


def all_emitted(run: SteppedRun) -> bool:
    return set(emitted(run)) == set(NUMBERS)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("source", params(*SOURCES))
def test_a_tuple_that_fails_comes_again(
    request: pytest.FixtureRequest, source: Any, restarts: bool, fails: dict[Any, int]
) -> None:
    make = source(request)
    fails |= {1: 1, 3: 4}
    with TestCluster() as cluster:
        run = started(cluster, make(), Told())
        for _ in range(3 if restarts else 0):
            run.step()
            if run.status == "ACTIVE":
                run.restart()
        moved_until(cluster, lambda: len(run.acked.get("s", ())) == len(NUMBERS), 0.1)
        for _ in range(3):
            cluster.advance(1)
        assert emitted(run) == {0: 1, 1: 2, 2: 1, 3: 5, 4: 1}
        assert run.pending == 0


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
        moved_until(cluster, lambda: len(run.acked.get("s", ())) == len(NUMBERS), 1)
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
