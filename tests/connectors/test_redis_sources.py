"""Redis lists, groups of stream consumers, and published messages, against a server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

import pytest

from tests.connectors.scripted_kafka import Keeps
from tests.servers import redis
from tests.servers.redis import RedisServer
from tests.wiring import line
from topo import (
    Bolt,
    ComponentError,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    Unavailable,
)
from topo.connectors.redis import RedisListSpout, RedisPubSubSpout, RedisStreamSpout
from topo.testing import TestCluster

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("servers")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = redis.start(tmp_path_factory.mktemp("redis"))
    yield server
    server.process.stop()


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    client = server.client()
    client.flushall()
    yield client
    client.close()


class Counts(StatefulBasicBolt):
    """Counts values in state, and fails its batch at random, before the commit or after it."""

    random: ClassVar[Random] = Random(0)
    seen: ClassVar[Counter[str]] = Counter()

    def execute(self, tup: Tuple) -> None:
        value = str(tup[-1])
        self.state[value] = self.state.get(value, 0) + 1

    def pre_commit(self, batch_id: int) -> None:
        self.may_fail()

    def committed(self, batch_id: int) -> None:
        self.seen.clear()
        self.seen.update(self.state)
        self.may_fail()

    def may_fail(self) -> None:
        if self.random.random() < 0.2:
            raise Unavailable("now", after_secs=0)


def counting(spout: Any, tasks: int = 1) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("s", spout, parallelism=tasks)
    builder.set_bolt("b", Counts()).global_grouping("s")
    Counts.random.seed(3)
    Counts.seen.clear()
    return builder.create_topology()


def test_every_item_of_a_list_counts_once(server: RedisServer, client: Any) -> None:
    with TestCluster() as cluster:
        spout = RedisListSpout(server.url, ("jobs", "more"), page=3)
        run = cluster.submit_topology("t", counting(spout, tasks=2))
        for number in range(60):
            client.rpush("more" if number % 5 else "jobs", f"n{number}", "same")
            run.step()
            if number % 7 == 0:
                run.restart()
        cluster.advance(60)
        run.step(5)
        assert Counts.seen == {**{f"n{number}": 1 for number in range(60)}, "same": 60}
    kept = [key for key in client.scan_iter() if client.type(key) == "list"]
    assert kept == []


def test_values_and_streams_of_items_entries_and_messages(server: RedisServer, client: Any) -> None:
    """The same words as on every source."""
    client.rpush("jobs", b'{"n": 1, "even": false}', b"{", b"\xff", b'{"n": 2, "even": true}')
    by_stream: dict[str, Any] = {"streams": {"even": "n"}, "fields": "n", "on_bad": "stream"}
    lists = RedisListSpout(
        server.url, "jobs", value="json", **by_stream,
        translate=lambda item: ("even", [item.value["n"]]) if item.value["even"] else
        [item.value["n"]],
    )  # fmt: skip
    client.xadd("s", {"n": "1"})
    client.xadd("s", {"n": b"\xff"})
    client.xadd("s", {"n": "2"})
    streams = RedisStreamSpout(
        server.url, "s", **by_stream, group="g",
        translate=lambda entry: ("even", ["2"]) if entry.entry["n"] == "2" else ["1"],
    )  # fmt: skip
    with TestCluster() as cluster:
        for name, spout in (("lists", lists), ("streams", streams)):
            run = cluster.submit_topology(name, line(spout, Keeps()))
            run.settle()
            cluster.advance(1)
            assert [str(row[0]) for row in run.tuples("s")] == ["1"]
            assert [str(row[0]) for row in run.tuples("s", "even")] == ["2"]
            bad = [row[0] for row in run.tuples("s", "bad")]
            assert len(bad) == (2 if name == "lists" else 1)
            if name == "lists":
                assert bad == [b"{", b"\xff"]
    assert client.xpending("s", "g")["pending"] == 0


def test_items_of_a_task_that_is_gone_are_emitted_first(server: RedisServer, client: Any) -> None:
    client.rpush("jobs:topo:t/s/0", "a", "b")  # a run that never committed
    client.rpush("jobs", "c")
    spout = RedisListSpout(
        server.url,
        "jobs",
        side="right",
        fields="job",
        translate=lambda record: [record.value.upper()],
    )
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        run.settle()
        assert run.tuples("s") == [["A"], ["B"], ["C"]]


def test_a_group_deals_a_stream_over_tasks(server: RedisServer, client: Any) -> None:
    with TestCluster() as cluster:
        spout = RedisStreamSpout(server.url, ("s0", "s1"), group="g", fields="n", page=4)
        run = cluster.submit_topology("t", counting(spout, tasks=3))
        for number in range(60):
            client.xadd(f"s{number % 2}", {"n": number})
            if number % 3 == 0:
                run.step()
            if number % 10 == 0:
                run.restart()
        cluster.advance(60)
        run.step(5)
        assert Counts.seen == {str(number): 1 for number in range(60)}
        assert [client.xpending(f"s{n}", "g")["pending"] for n in (0, 1)] == [0, 0]


def test_a_group_takes_over_from_the_silent(server: RedisServer, client: Any) -> None:
    client.xgroup_create("s", "g", "0", mkstream=True)
    for number in range(4):
        client.xadd("s", {"n": number})
    client.xreadgroup("g", "somebody", {"s": ">"}, count=2)
    spout = RedisStreamSpout(server.url, "s", group="g", fields="n", claim_secs=0.001)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        for _ in range(20):
            cluster.advance(1)
        assert sorted(run.tuples("s")) == [["0"], ["1"], ["2"], ["3"]]
    assert client.xpending("s", "g")["pending"] == 0


class Holds(Bolt):
    """Acks nothing."""

    def execute(self, tup: Tuple) -> None: ...


@pytest.mark.parametrize("limit", [None, 2])
def test_what_is_in_flight_for_long_is_not_taken_over(
    server: RedisServer, client: Any, limit: int | None
) -> None:
    client.xgroup_create("s", "g", "0", mkstream=True)
    for number in range(3):
        client.xadd("s", {"n": number})
    ((_, ((lost, _),)),) = client.xreadgroup("g", "somebody", {"s": ">"}, count=1)
    spout = RedisStreamSpout(server.url, "s", group="g", fields="n")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Holds()), {PENDING: limit})
        run.settle()
        assert run.tuples("s") == [["1"], ["2"]]
        first, second = (each["message_id"] for each in own(client, "topo/t/s/0"))
        # Time goes by, in which another consumer, or another task, takes one of them over.
        client.xclaim("s", "g", "topo/t/s/0", 0, [first], idle=50_000, justid=True)
        client.xclaim("s", "g", "somebody", 0, [second], idle=50_000, justid=True)
        assert own(client, "topo/t/s/0")[0]["time_since_delivered"] >= 50_000
        cluster.advance(16)
        (kept,) = own(client, "topo/t/s/0")
        assert (kept["message_id"], kept["times_delivered"]) == (first, 1)
        assert kept["time_since_delivered"] < 50_000
        others = own(client, "somebody")
        assert {each["message_id"] for each in others} == {lost, second}
        assert others[-1]["time_since_delivered"] >= 50_000


def test_a_group_that_is_gone_when_the_run_resumes_is_made_anew(
    server: RedisServer, client: Any
) -> None:
    client.xadd("s", {"n": 1})
    spout = RedisStreamSpout(server.url, "s", group="g", fields="n")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Holds()))
        run.settle()
        client.flushall()
        run.restart()
        client.xadd("s", {"n": 2})
        cluster.advance(1)
        assert run.tuples("s") == [["1"], ["2"]]


PENDING = "topology.max.spout.pending"


def own(client: Any, consumer: str) -> list[dict[str, Any]]:
    """Return what a consumer has been given and has not acknowledged."""
    return list(client.xpending_range("s", "g", "-", "+", 10, consumername=consumer))


def test_what_is_published_is_heard(server: RedisServer, client: Any) -> None:
    spout = RedisPubSubSpout(server.url, ("news", "temp.*"), max_in_flight=3)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        run.settle()
        pause = threading.Event()
        while client.publish("news", "first") + client.publish("temp.rome", "21") < 2:
            pause.wait(0.01)
        while len(run.tuples("s")) < 2:
            run.step()
            pause.wait(0.01)
        heard = {tuple(values) for values in run.tuples("s")}
        assert heard == {("news", "first"), ("temp.rome", "21")}
        before = len(run.tuples("s"))
        for number in range(10):
            client.publish("news", str(number))
        live: Any = run
        listener = live._host.spouts[0].component._listener
        while listener._dropped < 7:
            pause.wait(0.01)
        run.step()
        assert run.tuples("s")[before:] == [["news", "0"], ["news", "1"], ["news", "2"]]
        run.deactivate()
        run.settle()
        while client.pubsub_numsub("news")[0][1]:
            pause.wait(0.01)


def test_what_cannot_be_is_said(server: RedisServer) -> None:
    for make, said in (
        (lambda: RedisListSpout(server.url, ()), "names no list"),
        (lambda: RedisListSpout(server.url, "l", fields="a"), "is no part of a record"),
        (lambda: RedisPubSubSpout(server.url, ()), "names no channel"),
        (lambda: RedisPubSubSpout("host", "c"), "url='host'"),
    ):
        with pytest.raises(ComponentError, match=said):
            make()
