"""AmqpSpout and AmqpBolt against a broker."""

from __future__ import annotations

import gc
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from pika.heartbeat import HeartbeatChecker

from tests.connectors.moving import Collects, Keeps, Once, Told, counters, moved_until
from tests.servers import rabbitmq
from tests.servers.processes import free_port
from tests.servers.rabbitmq import RabbitServer
from tests.wiring import line
from topo import Bolt, ComponentError, Spout, TopologyBuilder, Tuple, Unavailable
from topo.connectors.amqp import AmqpBolt, AmqpSpout, Backoff
from topo.testing import TestCluster, make_tuple, run_bolt

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("servers")]


@pytest.fixture(scope="module")
def server() -> RabbitServer:
    return rabbitmq.shared()


@pytest.fixture(autouse=True)
def told() -> None:
    Told.fails.clear()
    Collects.counts.clear()
    Collects.rolls_back = False
    Once.given.clear()


@pytest.fixture
def leaves_sockets() -> Iterator[None]:
    """Collect what a bolt that fails, or pika if its handshake does, leaves open."""
    yield
    gc.collect()


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(start, count)]


class Reading:
    """A spout that reads the broker, in a test's hands."""

    def __init__(
        self, spout: Spout, bolt: Any = None, tasks: int = 1, conf: Any = None, **streams: Any
    ) -> None:
        builder = TopologyBuilder()
        builder.set_spout("s", spout, parallelism=tasks)
        builder.set_bolt("b", bolt or Keeps()).shuffle_grouping("s")
        for name, sink in streams.items():
            builder.set_bolt(name, sink).shuffle_grouping("s", name)
        self.cluster = TestCluster()
        self.run = self.cluster.submit_topology("t", builder.create_topology(), conf)

    def until(self, condition: Callable[[], Any], secs: float = 0.01) -> None:
        moved_until(self.cluster, condition, secs)

    def values(self, place: int = 0) -> list[Any]:
        return [row[place] for row in self.run.tuples("s")]

    def is_done(self) -> bool:
        """Return True if the spout holds nothing that the broker has not heard of."""
        return self.run.stats().components["s"].gauges.get("unacked") == 0

    def acked(self) -> int:
        return int(counters(self.run).get("acked", 0))


# -- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("track", [None, False])
def test_every_message_comes_over_restarts_and_is_acked(server: RabbitServer, track: Any) -> None:
    queue = server.queue()
    reading = Reading(AmqpSpout(server.url, queue, track=track, value="json", fields="value"))
    for start in range(0, 3000, 1000):
        server.write(queue, numbers(start + 1000, start))
        reading.until(lambda to=start: len(reading.values()) >= to + 1000)  # type: ignore[misc]
        reading.cluster.advance(1)
        reading.run.restart()
    reading.until(lambda: reading.acked() >= 3000)
    assert Counter(reading.values()) == dict.fromkeys(range(3000), 1)
    reading.run.kill()
    assert server.length(queue) == 0


@pytest.mark.parametrize("track", [None, False])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_batches_that_are_rolled_back_lose_nothing(
    server: RabbitServer, track: Any, kind: str
) -> None:
    Collects.rolls_back = True
    queue = server.queue(**{"x-queue-type": kind})
    spout = AmqpSpout(
        server.url, queue, track=track, value="json", fields="value", max_in_flight=50
    )
    reading = Reading(spout, Collects())
    for start in range(0, 400, 40):
        server.write(queue, numbers(start + 40, start))
        reading.until(lambda to=start: len(Collects.counts) >= to + 40, 0.25)  # type: ignore[misc]
    assert set(Collects.counts) == set(range(400))
    if track is False:  # what was rolled back was not acked, what was acked was committed
        assert set(Collects.counts.values()) == {1}
    Collects.rolls_back = False  # a count of acks is rolled back too: the broker's books tell
    server.write(queue, numbers(401, 400))
    reading.until(lambda: 400 in Collects.counts and reading.is_done(), 0.25)
    reading.run.kill()
    assert server.length(queue) == 0


class Holds(Bolt):
    """Acks what it has held, once it is told to."""

    lets_go: ClassVar[bool] = False

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)

    def pre_commit(self, batch_id: int) -> None:
        while self.lets_go and self.held:
            self.ack(self.held.pop())

    def get_component_configuration(self) -> Any:
        return {"topology.tick.tuple.freq.secs": 1}


def test_the_broker_is_answered_while_the_spout_is_at_its_limit(
    server: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would take all messages back after two heartbeats that it did not get."""
    sent: list[int] = []
    send = HeartbeatChecker._send_heartbeat_frame

    def count(checker: HeartbeatChecker) -> None:
        sent.append(1)
        send(checker)

    monkeypatch.setattr(HeartbeatChecker, "_send_heartbeat_frame", count)
    monkeypatch.setattr(Holds, "lets_go", False)
    queue = server.queue()
    server.write(queue, numbers(2))
    spout = AmqpSpout(server.url, queue, value="json", fields="value", heartbeat_secs=1)
    reading = Reading(spout, Holds(), conf={"topology.max.spout.pending": 1})
    reading.until(lambda: reading.values() == [0])
    reading.until(lambda: len(sent) > 6)
    monkeypatch.setattr(Holds, "lets_go", True)
    reading.until(lambda: reading.acked() == 2, 0.25)
    assert reading.values() == [0, 1]
    reading.run.kill()


def test_failed_messages_come_again_and_the_hopeless_are_buried(server: RabbitServer) -> None:
    graves = server.queue()
    queue = server.queue(**{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": graves})
    Told.fails.update({3: 1, 5: 2, 7: 9})
    retry = Backoff(retries=3, period=0.01)
    spout = AmqpSpout(server.url, queue, value="json", fields="value", retry=retry)
    reading = Reading(spout, Told())
    server.write(queue, numbers(10))
    reading.until(lambda: counters(reading.run).get("dead"))
    reading.until(lambda: reading.acked() >= 9)
    assert Counter(reading.values()) == dict.fromkeys(range(10), 1) | {3: 2, 5: 3, 7: 4}
    (error,) = [one for one in reading.run.errors() if one.kind == "reported"]
    assert "failed 4 times, and is given up" in error.message
    reading.run.kill()
    assert [body for _, body in server.read(graves)] == [b"7"]
    assert server.length(queue) == 0


def test_the_dead_have_a_stream(server: RabbitServer) -> None:
    queue = server.queue()
    Told.fails[7] = 9
    spout = AmqpSpout(server.url, queue, value="json", fields="value", retry=Backoff(retries=1))
    reading = Reading(spout, Told(), dead=Keeps())
    server.write(queue, numbers(10), message_id="m")
    reading.until(lambda: reading.acked() >= 10)
    (dead,) = reading.run.tuples("s", "dead")
    assert dead == [b"7", f"{queue}, message m", "failed by 'b' task 1: as told", 2]


def test_the_prefetch_bounds_what_is_not_acked(server: RabbitServer) -> None:
    queue = server.queue()
    server.write(queue, numbers(60))
    spout = AmqpSpout(server.url, queue, value="json", fields="value", max_in_flight=7, track=False)
    reading = Reading(spout)
    reading.until(lambda: len(reading.values()) >= 60)
    assert 1 < max(batch.rows for batch in reading.run.batches()) <= 7
    assert reading.values() == list(range(60))


def test_parts_of_messages_of_several_queues_over_several_tasks(server: RabbitServer) -> None:
    queues = [server.queue(), server.queue()]
    for queue in queues:
        server.write(queue, numbers(100), headers={"h": 1}, message_id="m", timestamp=7)
    spout = AmqpSpout(
        server.url,
        queues,
        fields=("queue", "n", "h", "id"),
        value="json",
        translate=lambda m: [m.queue, m.value, m.headers["h"], f"{m.message_id}{m.timestamp}"],
        max_in_flight=10,
    )
    reading = Reading(spout, tasks=2)
    reading.until(lambda: len(reading.values()) >= 200)
    expected = [[queue, n, 1, "m7"] for queue in queues for n in range(100)]
    assert sorted(reading.run.tuples("s")) == sorted(expected)


def test_an_inactive_topology_leaves_the_queue_to_others(server: RabbitServer) -> None:
    queue = server.queue()
    reading = Reading(AmqpSpout(server.url, queue, value="json", fields="value"))
    server.write(queue, numbers(10))
    reading.until(lambda: reading.acked() >= 10)
    reading.run.deactivate()
    reading.cluster.advance(1)
    server.write(queue, numbers(20, 10))
    assert server.length(queue) == 10
    reading.run.activate()
    reading.until(lambda: len(reading.values()) >= 20)
    assert reading.values() == list(range(20))


def test_what_cannot_be_read(server: RabbitServer) -> None:
    queue = server.queue()
    bodies = [b"{", b'{"n": 1}', b"\xff\xfe", b"[1]"]
    server.write(queue, bodies, message_id="m")
    reading = Reading(AmqpSpout(server.url, queue, value="json", fields="n", on_bad="stream"))
    reading.until(lambda: reading.acked() >= 4)
    assert reading.values() == [1]
    assert [(raw, where) for raw, _, where in reading.run.tuples("s", "bad")] == [
        (raw, f"{queue}, message m") for raw in (bodies[0], bodies[2], bodies[3])
    ]
    reading.run.kill()
    server.write(queue, bodies, message_id="m")
    with pytest.raises(ComponentError, match=f"a record cannot be read: {queue}, message m"):
        Reading(AmqpSpout(server.url, queue, value="json", fields="n")).until(lambda: False)


def test_messages_without_acks(server: RabbitServer) -> None:
    queue = server.queue()
    server.write(queue, numbers(100))
    spout = AmqpSpout(server.url, queue, guarantee="none", value="json", fields="value")
    reading = Reading(spout)
    reading.until(lambda: len(reading.values()) >= 100)
    assert reading.values() == list(range(100))
    reading.run.stop()
    assert server.length(queue) == 0


# -- writing ------------------------------------------------------------------------------------


def batch(*values: Any) -> list[Tuple]:
    return [make_tuple({"n": value}) for value in values]


@pytest.mark.parametrize("guarantee", ["none", "at_least_once"])
@pytest.mark.parametrize("after_commit", [False, True])
def test_tuples_become_messages(server: RabbitServer, guarantee: Any, after_commit: bool) -> None:
    if guarantee == "none" and after_commit:
        pytest.skip("refused")
    queue = server.queue()
    bolt = AmqpBolt(
        server.url,
        lambda tup: None if tup.n == 3 else queue,
        headers=lambda tup: {"half": tup.n % 2},
        guarantee=guarantee,
        after_commit=after_commit,
    )
    run = run_bolt(bolt, batches=[batch(*range(1500)), batch(1500)])
    run.commit()
    run.bolt.cleanup()
    found = server.read(queue)
    assert [json.loads(body)["n"] for _, body in found] == [n for n in range(1501) if n != 3]
    assert len({properties.message_id for properties, _ in found}) == 1500
    assert all(one.headers["half"] == json.loads(body)["n"] % 2 for one, body in found)
    assert {(one.delivery_mode, one.content_type) for one, _ in found} == {(2, "application/json")}


class Rollback(AmqpBolt):
    """Fails batches, before their commit and after it."""

    def pre_commit(self, batch_id: int) -> None:
        super().pre_commit(batch_id)
        if batch_id % 5 == 2 and not int(self.context.now()) % 2:
            raise Unavailable("now", after_secs=1)

    def committed(self, batch_id: int) -> None:
        super().committed(batch_id)
        if batch_id % 5 == 4 and not int(self.context.now()) % 2:
            raise Unavailable("now", after_secs=1)


@pytest.mark.parametrize("after_commit", [False, True])
def test_what_is_published_of_batches_that_are_rolled_back(
    server: RabbitServer, after_commit: bool
) -> None:
    queue = server.queue()
    with TestCluster() as cluster:
        bolt = Rollback(server.url, queue, after_commit=after_commit)
        run = cluster.submit_topology("t", line(Once(), bolt))
        while run.status in ("ACTIVE", "STALLED"):
            run.step()
            cluster.advance(1)
    ids: dict[str, set[int]] = {}
    for properties, body in server.read(queue):
        ids.setdefault(properties.message_id, set()).add(json.loads(body)["number"])
    assert all(len(same) == 1 for same in ids.values())
    by_id = [number for same in ids.values() for number in same]
    if after_commit:
        assert 0 < len(by_id) == len(set(by_id)) < 60  # what was rolled back is not among them
    else:
        assert set(by_id) == set(range(60))


def test_what_no_queue_takes_is_rejected_alone(server: RabbitServer) -> None:
    queue = server.queue()
    bolt = AmqpBolt(
        server.url,
        lambda tup: {1: "no-such-queue", 2: "x" * 300}.get(tup.n, queue),
        map=lambda tup: object() if tup.n == 3 else tup.n,
        on_bad="stream",
    )
    run = run_bolt(bolt, batches=[batch(*range(6))])
    run.bolt.cleanup()
    assert [body for _, body in server.read(queue)] == [b"0", b"4", b"5"]
    errors = sorted(error for _, error in (tuple(one) for one in run.emitted))
    assert "a object is no JSON" in errors[0]
    assert "more than 255 bytes" in errors[1]
    assert "no queue takes it: NO_ROUTE" in errors[2]


@pytest.mark.usefixtures("leaves_sockets")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_full_queue_is_waited_for(server: RabbitServer) -> None:
    queue = server.queue(**{"x-max-length": 2, "x-overflow": "reject-publish"})
    with pytest.raises(Unavailable, match="takes no more: a queue is full"):
        run_bolt(AmqpBolt(server.url, queue, retry_secs=2), batches=[batch(*range(10))])


# -- trouble ------------------------------------------------------------------------------------


def stalls_or_stops(spout: Spout, error: type[Exception]) -> str:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        try:
            moved_until(cluster, lambda: run.status == "STALLED", 0)
        except ComponentError:
            assert error is ComponentError
        return run.reason


@pytest.mark.usefixtures("leaves_sockets")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_what_is_wrong_is_said(server: RabbitServer) -> None:
    queue = server.queue()
    closed = f"amqp://127.0.0.1:{free_port()}"
    wrong_password = server.url.replace("guest:guest", "guest:wrong")
    wrong: list[tuple[str, str, type[Exception], str]] = [
        (wrong_password, queue, ComponentError, "refuses access"),
        (server.url, "no-such-queue", ComponentError, "no queue 'no-such-queue'"),
        (f"{server.url}/no-such-host", queue, ComponentError, "virtual host is refused"),
        (closed, queue, Unavailable, "refused"),
        (server.url.replace("amqp:", "amqps:"), queue, Unavailable, "TLS|lost|closed|reset"),
    ]
    for url, name, error, match in wrong:
        reason = stalls_or_stops(AmqpSpout(url, name), error)
        assert re.search(match, reason), reason
        assert "guest:guest" not in reason
        assert "guest:wrong" not in reason
    with pytest.raises(ComponentError, match="refuses access"):
        run_bolt(AmqpBolt(wrong_password, queue), batches=[batch(1)])
    with pytest.raises(ComponentError, match="no exchange 'absent'"):
        run_bolt(AmqpBolt(server.url, queue, exchange="absent"), batches=[batch(1)])
    with pytest.raises(Unavailable, match="refused; 2 messages are not confirmed"):
        run_bolt(AmqpBolt(closed, queue, retry_secs=0.1), batches=[batch(1, 2)])


def test_queues_are_declared_where_that_is_asked_for(server: RabbitServer) -> None:
    queue = f"declared-{server.queue()}"
    bolt = AmqpBolt(server.url, queue, declare={"arguments": {"x-max-length": 9}})
    run_bolt(bolt, batches=[batch(1)]).bolt.cleanup()
    declare = {"arguments": {"x-max-length": 9}}
    reading = Reading(AmqpSpout(server.url, queue, declare=declare))
    reading.until(lambda: reading.values(1) == [b'{"n":1}'])
    with pytest.raises(ComponentError, match="inequivalent arg 'x-max-length'"):
        Reading(AmqpSpout(server.url, queue, declare={})).until(lambda: False)


def test_a_queue_that_is_deleted_is_missed(server: RabbitServer) -> None:
    queue = server.queue()
    reading = Reading(AmqpSpout(server.url, queue))
    reading.until(lambda: reading.run.stats().components["s"].gauges.get("connected"))
    with server.channel() as channel:
        channel.queue_delete(queue)
    with pytest.raises(ComponentError, match="no queue"):
        reading.until(lambda: False, 1)


def test_arguments_that_cannot_be_meant() -> None:
    url = "amqp://host"
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: AmqpSpout("http://host", "q"), "url='http://host'"),
        (lambda: AmqpSpout(url, ()), "names no queue"),
        (lambda: AmqpSpout(url, "q", max_in_flight=70_000), "65,535"),
        (lambda: AmqpSpout(url, "q", guarantee="exactly_once"), "not to be had"),
        (lambda: AmqpSpout(url, "q", declare={"lazy": True}), "declare has 'lazy'"),
        (lambda: AmqpSpout(url, "q", translate=print), "fields of what translate returns"),
        (lambda: AmqpBolt(url, 7), "routing_key=7"),  # type: ignore[arg-type]
        (lambda: AmqpBolt(url, "q", guarantee="exactly_once"), "has no marker"),
        (lambda: AmqpBolt(url, "q", guarantee="by_batch"), "replaces nothing"),
        (lambda: AmqpBolt(url, "q", exchange="e", declare={}), "it names none"),
    ]
    for call, message in wrong:
        with pytest.raises(ComponentError, match=message):
            call()


@pytest.mark.usefixtures("leaves_sockets")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_broker_that_is_killed_is_waited_for(server: RabbitServer) -> None:
    source, target = server.queue(), server.queue()
    server.write(source, numbers(50))
    sink = AmqpBolt(server.url, target, retry_secs=0.5)
    reading = Reading(AmqpSpout(server.url, source, value="json", fields="value"), sink)
    reading.until(lambda: counters(reading.run, "b").get("sent", 0) >= 50)
    server.kill()
    reading.until(lambda: reading.run.status == "STALLED")
    assert f"127.0.0.1:{server.port}" in reading.run.reason
    assert "guest:guest" not in reading.run.reason
    server.start()
    server.write(source, numbers(100, 50))
    reading.until(lambda: counters(reading.run, "b").get("sent", 0) >= 100, 1)
    reading.until(lambda: reading.acked() >= 100)
    reading.run.kill()
    assert {json.loads(body)["value"] for _, body in server.read(target)} == set(range(100))
    assert server.length(source) == 0
