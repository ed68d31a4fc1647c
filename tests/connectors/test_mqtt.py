"""MqttSpout and MqttBolt against a broker."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples import sensors_mqtt
from tests.connectors.moving import Collects, Keeps, Once, Told, counters, moved_until
from tests.servers import mosquitto, redis
from tests.servers.mosquitto import MosquittoServer
from tests.servers.processes import free_port
from tests.wiring import line
from topo import ComponentError, Spout, TopologyBuilder, Tuple, Unavailable
from topo.connectors.mqtt import Backoff, MqttBolt, MqttSpout
from topo.testing import TestCluster, make_tuple, run_bolt
from topo.testing.cluster import SteppedRun

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("servers")]
_names = iter(range(10_000))


@pytest.fixture(scope="module")
def server() -> Iterator[MosquittoServer]:
    server = mosquitto.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def told() -> None:
    Told.fails.clear()
    Collects.counts.clear()
    Collects.rolls_back = False
    Once.given.clear()


@pytest.fixture
def topic() -> str:
    return f"t{next(_names)}"


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(start, count)]


def connected(run: SteppedRun, spout: str = "s") -> float:
    return run.stats().components[spout].gauges.get("connected") or 0


class Reading:
    """A spout that reads the broker, and is subscribed."""

    def __init__(self, spout: Spout, bolt: Any = None, *, cluster: Any = None, name: str) -> None:
        self.cluster = cluster or TestCluster()
        self.run = self.cluster.submit_topology(name, line(spout, bolt or Keeps()))
        self.subscribed()

    def subscribed(self) -> None:
        """Wait until the broker knows the spout."""
        moved_until(self.cluster, lambda: connected(self.run) == 1)

    def values(self, place: int = 0) -> list[Any]:
        return [row[place] for row in self.run.tuples("s")]


# -- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("track", [None, False])
@pytest.mark.parametrize("version", [4, 5])
def test_every_message_comes_over_restarts_and_is_acked(
    server: MosquittoServer, topic: str, track: Any, version: int
) -> None:
    spout = MqttSpout(
        server.url, f"{topic}/+", track=track, version=version, value="json", fields="value"
    )
    reading = Reading(spout, name=topic)
    for start in range(0, 300, 100):
        server.write(f"{topic}/a", numbers(start + 100, start))
        moved_until(reading.cluster, lambda to=start: len(reading.values()) >= to + 100)  # type: ignore[misc]
        reading.cluster.advance(1)
        reading.run.restart()
    moved_until(reading.cluster, lambda: counters(reading.run)["acked"] >= 300)
    assert Counter(reading.values()) == dict.fromkeys(range(300), 1)


def test_messages_wait_for_a_topology_that_is_away(server: MosquittoServer, topic: str) -> None:
    spout = MqttSpout(server.url, topic, fields=("topic", "value", "qos", "retain"))
    with TestCluster() as cluster:
        Reading(spout, cluster=cluster, name=topic)
    server.write(topic, numbers(50))
    server.write(topic, [b"0 is not kept"], qos=0)
    again = Reading(spout, name=topic)
    moved_until(again.cluster, lambda: len(again.values()) >= 50)
    assert again.run.tuples("s")[0] == [topic, b"0", 1, False]
    assert [value for value in again.values(1) if value != b"0 is not kept"] == numbers(50)


def test_topics_of_an_earlier_run_are_not_read(server: MosquittoServer, topic: str) -> None:
    """The session that the broker keeps has their filter, and what came meanwhile."""
    with TestCluster() as cluster:
        Reading(MqttSpout(server.url, f"{topic}/old"), cluster=cluster, name=topic)
    server.write(f"{topic}/old", numbers(10))
    again = Reading(MqttSpout(server.url, f"{topic}/new/+"), name=topic)
    server.write(f"{topic}/old", numbers(20, 10))
    server.write(f"{topic}/new/a", numbers(5))
    moved_until(again.cluster, lambda: counters(again.run).get("not_subscribed") == 20)
    moved_until(again.cluster, lambda: counters(again.run).get("acked") == 5)
    assert again.run.tuples("s") == [[f"{topic}/new/a", number] for number in numbers(5)]


@pytest.mark.parametrize("track", [None, False])
def test_batches_that_are_rolled_back_lose_nothing(
    server: MosquittoServer, topic: str, track: Any
) -> None:
    Collects.rolls_back = True
    spout = MqttSpout(server.url, topic, track=track, value="json", fields="value")
    reading = Reading(spout, Collects(), name=topic)
    for start in range(0, 400, 40):
        server.write(topic, numbers(start + 40, start))
        moved_until(reading.cluster, lambda to=start: len(Collects.counts) >= to + 40, 0.25)  # type: ignore[misc]
    assert set(Collects.counts) == set(range(400))
    if track is False:  # what was rolled back was not acked, what was acked was committed
        assert set(Collects.counts.values()) == {1}


def test_failed_messages_come_again_and_the_hopeless_are_told(
    server: MosquittoServer, topic: str
) -> None:
    Told.fails.update({3: 1, 5: 2, 7: 9})
    spout = MqttSpout(
        server.url, topic, value="json", fields="value", retry=Backoff(retries=3, period=0.01)
    )
    reading = Reading(spout, Told(), name=topic)
    server.write(topic, numbers(10))
    moved_until(reading.cluster, lambda: counters(reading.run).get("dead"))
    moved_until(reading.cluster, lambda: counters(reading.run)["acked"] >= 9)
    assert Counter(reading.values()) == dict.fromkeys(range(10), 1) | {3: 2, 5: 3, 7: 4}
    (error,) = [one for one in reading.run.errors() if one.kind == "reported"]
    assert "failed 4 times, and is given up" in error.message


def test_the_dead_have_a_stream(server: MosquittoServer, topic: str) -> None:
    Told.fails[7] = 9
    builder = TopologyBuilder()
    spout = MqttSpout(server.url, topic, value="json", fields="value", retry=Backoff(retries=1))
    builder.set_spout("s", spout)
    builder.set_bolt("b", Told()).shuffle_grouping("s")
    builder.set_bolt("dead", Keeps()).shuffle_grouping("s", "dead")
    with TestCluster() as cluster:
        run = cluster.submit_topology(topic, builder.create_topology())
        moved_until(cluster, lambda: connected(run) == 1)
        server.write(topic, numbers(10))
        moved_until(cluster, lambda: counters(run).get("acked", 0) >= 10)
        (dead,) = run.tuples("s", "dead")
    assert dead == [b"7", topic, "failed by 'b' task 1: as told", 2]


def test_the_broker_holds_back_what_is_not_acked(server: MosquittoServer, topic: str) -> None:
    spout = MqttSpout(server.url, topic, value="json", fields="value", max_in_flight=7, track=False)
    reading = Reading(spout, name=topic)
    server.write(topic, numbers(60))
    moved_until(reading.cluster, lambda: len(reading.values()) >= 60)
    assert 1 < max(batch.rows for batch in reading.run.batches()) <= 7
    assert reading.values() == list(range(60))


def test_messages_that_yield_nothing_do_not_stop_the_reading(
    server: MosquittoServer, topic: str
) -> None:
    spout = MqttSpout(
        server.url,
        topic,
        value="json",
        fields="n",
        translate=lambda message: None if message.value % 50 else [message.value],
        max_in_flight=5,
    )
    reading = Reading(spout, name=topic)
    server.write(topic, numbers(101))
    moved_until(reading.cluster, lambda: len(reading.values()) >= 3)
    assert reading.values() == [0, 50, 100]


def test_tasks_share_the_messages(server: MosquittoServer, topic: str) -> None:
    builder = TopologyBuilder()
    spout = MqttSpout(server.url, topic, value="json", fields="value")
    builder.set_spout("s", spout, parallelism=3)
    builder.set_bolt("b", Keeps()).shuffle_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology(topic, builder.create_topology())
        moved_until(cluster, lambda: connected(run) == 3)
        server.write(topic, numbers(300))
        moved_until(cluster, lambda: len(run.tuples("s")) >= 300)
        assert sorted(row[0] for row in run.tuples("s")) == list(range(300))
        host: Any = run
        assert all(task.component._serial for task in host._host.spouts)


@pytest.mark.parametrize("tasks", [(1, 2), (2, 1)])
def test_another_number_of_tasks_reads_each_message_once(
    server: MosquittoServer, topic: str, tasks: tuple[int, int]
) -> None:
    """One task subscribes for itself, several share; the broker's session knows both."""
    read: list[Any] = []
    for number in tasks:
        builder = TopologyBuilder()
        spout = MqttSpout(server.url, topic, value="json", fields="value")
        builder.set_spout("s", spout, parallelism=number)
        builder.set_bolt("b", Keeps()).shuffle_grouping("s")
        with TestCluster() as cluster:
            run = cluster.submit_topology(topic, builder.create_topology())
            moved_until(cluster, lambda to=number, run=run: connected(run) == to)  # type: ignore[misc]
            server.write(topic, numbers(100))
            moved_until(cluster, lambda run=run: counters(run).get("acked", 0) >= 100)  # type: ignore[misc]
            for _ in range(5):
                cluster.advance(1)
            read.append(sorted(row[0] for row in run.tuples("s")))
    assert read == [list(range(100))] * 2


def test_what_cannot_be_read(server: MosquittoServer, topic: str) -> None:
    def reading(name: str, **more: Any) -> Reading:
        spout = MqttSpout(server.url, topic, value="json", fields="n", **more)
        return Reading(spout, name=name)

    streams, skips = reading("streams", on_bad="stream"), reading("skips", on_bad="skip")
    stops = reading("stops")
    server.write(topic, [b"{", b'{"n": 1}', b"\xff\xfe", b"[1]"])
    for one in (streams, skips):
        moved_until(one.cluster, lambda one=one: counters(one.run).get("acked", 0) >= 4)  # type: ignore[misc]
        assert one.values() == [1]
    assert [(raw, where) for raw, _, where in streams.run.tuples("s", "bad")] == [
        (b"{", topic),
        (b"\xff\xfe", topic),
        (b"[1]", topic),
    ]
    with pytest.raises(ComponentError, match=f"a record cannot be read: {topic}"):
        moved_until(stops.cluster, lambda: False)


def test_messages_without_acks(server: MosquittoServer, topic: str) -> None:
    spout = MqttSpout(server.url, topic, qos=0, guarantee="none", value="json", fields="value")
    reading = Reading(spout, name=topic)
    server.write(topic, numbers(100), qos=0)
    moved_until(reading.cluster, lambda: len(reading.values()) >= 100)
    assert reading.values() == list(range(100))


# -- writing ------------------------------------------------------------------------------------


def batch(*values: Any) -> list[Tuple]:
    return [make_tuple({"n": value}) for value in values]


def arrived(found: list[Any], count: int) -> list[Any]:
    pause = threading.Event()
    while len(found) < count:
        pause.wait(0.01)
    return [json.loads(message.payload) for message in found]


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("version", [4, 5])
def test_tuples_become_messages(
    server: MosquittoServer, topic: str, after_commit: bool, version: int
) -> None:
    bolt = MqttBolt(
        server.url,
        lambda tup: None if tup.n == 3 else f"{topic}/{tup.n % 2}",
        after_commit=after_commit,
        version=version,
    )
    with server.reader(f"{topic}/#") as found:
        run = run_bolt(bolt, batches=[batch(*range(1500)), batch(1500)])
        values = arrived(found, 1500)
        run.commit()
        run.bolt.cleanup()
    assert sorted(value["n"] for value in values) == [n for n in range(1501) if n != 3]
    if version == 5:
        ids = [dict(one.properties.UserProperty)["topo-batch"] for one in found]
        assert len(set(ids)) == 1500


class Rollback(MqttBolt):
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
    server: MosquittoServer, topic: str, after_commit: bool
) -> None:
    bolt = Rollback(server.url, topic, after_commit=after_commit)
    with server.reader(topic) as found, TestCluster() as cluster:
        run = cluster.submit_topology(topic, line(Once(), bolt))
        while run.status in ("ACTIVE", "STALLED"):
            run.step()
            cluster.advance(1)
        server.write(topic, [b"the end"])
        pause = threading.Event()
        while not found or found[-1].payload != b"the end":
            pause.wait(0.01)
        del found[-1]
    ids: dict[str, set[int]] = {}
    for message in found:
        (name,) = dict(message.properties.UserProperty).values()
        ids.setdefault(name, set()).add(json.loads(message.payload)["number"])
    by_id = [number for numbers in ids.values() for number in numbers]
    assert all(len(numbers) == 1 for numbers in ids.values())
    if after_commit:
        assert len(by_id) == len(set(by_id)) < 60  # what was rolled back is not among them
    else:
        assert set(by_id) == set(range(60))


def test_what_no_broker_takes_is_rejected_alone(server: MosquittoServer, topic: str) -> None:
    bolt = MqttBolt(
        server.url, lambda tup: f"{topic}/+" if tup.n == 1 else topic, on_bad="stream",
        map=lambda tup: {1, 2} if tup.n != 2 else object(),
    )  # fmt: skip
    with server.reader(topic) as found:
        run = run_bolt(bolt, batches=[batch(0, 1, 2, 4)])
        arrived(found, 2)
        run.bolt.cleanup()
    (first, second) = run.emitted
    assert "it is a name without + and #" in first[1]
    assert "a object is no JSON" in second[1]


def test_the_example_keeps_smoothed_readings(server: MosquittoServer, tmp_path: Path) -> None:
    store = redis.start(tmp_path)
    try:
        client = store.client()
        with TestCluster() as cluster:
            run = cluster.submit_topology("sensors", sensors_mqtt.sensors(server.url, store.url))
            moved_until(cluster, lambda: connected(run, "readings") == 1)
            for celsius in (20, 30, "warm", 30):
                body = json.dumps({"celsius": celsius}).encode()
                server.write("sensors/hall/celsius", [body])
            server.write("sensors/attic/celsius", [b'{"celsius": 5}'])
            moved_until(cluster, lambda: client.hget("celsius", "attic") == "5.0")
            moved_until(cluster, lambda: len(run.tuples("smooth")) == 4)
            cluster.advance(1)
            assert float(client.hget("celsius", "hall")) == pytest.approx(23.6)
            assert counters(run, "readings")["bad_records"] == 1
        client.close()
    finally:
        store.process.stop()


# -- trouble ------------------------------------------------------------------------------------


def test_a_broker_that_is_killed_is_waited_for(topic: str) -> None:
    server = mosquitto.start(keeps=True)
    try:
        spout = MqttSpout(server.url, "in", value="json", fields="value", track=False)
        sink = MqttBolt(server.url, "out", retry_secs=0.5, value="json")
        reading = Reading(spout, sink, name=topic)
        server.write("in", numbers(50))
        moved_until(reading.cluster, lambda: counters(reading.run, "b1").get("sent", 0) >= 50)
        server.process.kill()
        moved_until(reading.cluster, lambda: reading.run.status == "STALLED")
        assert server.url in reading.run.reason
        server.process.start()
        with server.reader("out") as found:
            moved_until(reading.cluster, lambda: reading.run.status == "ACTIVE", 1)
            reading.subscribed()
            server.write("in", numbers(100, 50))
            moved_until(reading.cluster, lambda: {r["value"] for r in arrived(found, 0)} >=
                        set(range(50, 100)))  # fmt: skip
        assert set(reading.values()) == set(range(100))
    finally:
        server.stop()


def test_a_bolt_says_why_it_waits() -> None:
    url = f"mqtt://127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=rf"{url}: .*refused; 2 messages are not confirmed"):
        run_bolt(MqttBolt(url, "t", retry_secs=0.1), batches=[batch(1, 2)])


def test_users_permissions_and_tls(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    files = mosquitto.make_certificates(tmp_path)
    passwords, rights = tmp_path / "passwords", tmp_path / "rights"
    mosquitto.make_passwords(passwords, "ann", "secret")
    rights.write_text("user ann\ntopic readwrite mine/#\n")
    rights.chmod(0o644)
    port = free_port()
    server = mosquitto.start(
        more=f"allow_anonymous false\npassword_file {passwords}\nacl_file {rights}\n"
        f"listener {port} 127.0.0.1\ncertfile {files['cert']}\nkeyfile {files['key']}\n"
    )

    def ends(spout: Spout, error: type[Exception], match: str) -> None:
        with TestCluster() as cluster:
            run = cluster.submit_topology("t", line(spout, Keeps()))
            try:
                moved_until(cluster, lambda: run.status == "STALLED", 0)
            except ComponentError:
                assert error is ComponentError
            assert re.search(match, run.reason)
            assert "secret" not in run.reason

    plain, secure = (
        f"mqtt://ann:secret@127.0.0.1:{server.port}",
        f"mqtts://ann:secret@127.0.0.1:{port}",
    )
    try:
        wrong: list[tuple[Spout, type[Exception], str]] = [
            (MqttSpout(server.url, "mine/#"), ComponentError, "the password is"),
            (MqttSpout(plain.replace("secret", "x"), "mine/#"), ComponentError, "the password is"),
            (MqttSpout(plain.replace("secret", "x"), "m", version=4), ComponentError, "is wrong"),
            (MqttSpout(secure, "mine/#"), ComponentError, "the server's certificate is refused"),
            (MqttSpout(plain.replace("mqtt:", "mqtts:"), "mine/#"), Unavailable, "TLS|reset"),
            (MqttSpout(secure.replace("mqtts:", "mqtt:"), "mine/#"), Unavailable, "TLS"),
            (MqttSpout(secure, "m", tls={"ca": "/nowhere"}), ComponentError, "cannot be used"),
            (MqttSpout("mqtt://127.0.0.1:1", "m"), Unavailable, "refused"),
            (MqttSpout("mqtt://no-such-host.invalid", "m"), Unavailable, "name is not known"),
        ]  # fmt: skip
        for spout, error, match in wrong:
            ends(spout, error, match)
        tls = {"ca": files["cert"]}
        reading = Reading(MqttSpout(secure, "mine/#", tls=tls), name="t")
        run_bolt(MqttBolt(secure, "mine/x", tls=tls), batches=[batch(1)]).bolt.cleanup()
        moved_until(reading.cluster, lambda: len(reading.values()) == 1)
        rejected = run_bolt(MqttBolt(plain, "others/x", on_bad="stream"), batches=[batch(1)])
        assert "Not authorized" in rejected.emitted[0][1]
        rejected.bolt.cleanup()
    finally:
        server.stop()


def test_arguments_that_cannot_be_meant() -> None:
    url = "mqtt://host"
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: MqttSpout("http://host", "t"), "url='http://host'"),
        (lambda: MqttSpout(url, ()), "topics has ''"),
        (lambda: MqttSpout(url, "a/#/b"), "topics has 'a/#/b'"),
        (lambda: MqttSpout(url, "a/b+"), "topics has"),
        (lambda: MqttSpout(url, "$share/g/a"), "topics has"),
        (lambda: MqttSpout(url, "t", guarantee="exactly_once"), "not to be had"),
        (lambda: MqttSpout(url, "t", qos=0), "QoS 0"),
        (lambda: MqttSpout(url, "t", max_in_flight=70_000), "65,535"),
        (lambda: MqttSpout(url, "t", fields="user"), "'user' is no part of a record"),
        (lambda: MqttSpout(url, "t", tls={"cafile": "x"}), "tls has no 'cafile'"),
        (lambda: MqttSpout(url, "t", guarantee="none", track=True), "track=True"),
        (lambda: MqttBolt(url, "t/#"), "a name without"),
        (lambda: MqttBolt(url, "t", qos=0), "nobody confirms"),
        (lambda: MqttBolt(url, "t", guarantee="exactly_once"), "no transactions"),
        (lambda: MqttBolt(url, "t", guarantee="by_batch"), "replaces nothing"),
        (lambda: MqttBolt(url, "t", qos=0, guarantee="none", after_commit=True), "after_commit"),
    ]
    for call, message in wrong:
        with pytest.raises(ComponentError, match=message):
            call()
