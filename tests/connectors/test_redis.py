"""The Redis connectors against a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.moving import Once
from tests.connectors.scripted_kafka import Keeps
from tests.servers import redis
from tests.servers.redis import RedisServer
from tests.wiring import line
from topo import ComponentError, Tuple, Unavailable
from topo.connectors.redis import (
    RedisFilterBolt,
    RedisLookupBolt,
    RedisStoreBolt,
    RedisStreamSpout,
)
from topo.testing import TestCluster, make_tuple, run_bolt

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


def batch(*values: Any) -> list[Tuple]:
    return [make_tuple({"user": f"u{value}", "score": value}) for value in values]


# -- streams ------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_every_entry_of_every_stream_once(server: RedisServer, client: Any, restarts: bool) -> None:
    for number in range(30):
        client.xadd(f"s{number % 2}", {"n": number})
    spout = RedisStreamSpout(server.url, ("s0", "s1", "absent"), fields="n", page=4)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        for _ in range(20):
            run.step()
            if restarts:
                run.restart()
        client.xadd("s0", {"n": 30})
        client.xadd("absent", {"n": 31})
        run.settle()
        assert sorted(int(row[0]) for row in run.tuples("s")) == list(range(32))
        gauges = run.stats().components["s"].gauges
        assert gauges['length{stream="s0"}'] == 16


def test_where_reading_begins_and_what_cannot_be_read(server: RedisServer, client: Any) -> None:
    first, second = (client.xadd("s", {"n": number}) for number in ("x", "2"))

    def emitted(**more: Any) -> Any:
        with TestCluster() as cluster:
            run = cluster.submit_topology(
                "t", line(RedisStreamSpout(server.url, "s", **more), Keeps())
            )
            run.settle()
            client.xadd("s", {"n": "3"})
            run.settle()
            bad = run.tuples("s", "bad") if more.get("on_bad") == "stream" else []
            client.xdel("s", client.xrevrange("s", count=1)[0][0])
            return run.tuples("s"), bad

    rows, _ = emitted(start=first)
    assert rows[0] == ["s", second, {"n": "2"}]
    assert [row[2] for row in emitted(start="latest")[0]] == [{"n": "3"}]
    translated: dict[str, Any] = {
        "fields": "n",
        "translate": lambda record: [int(record.entry["n"])],
    }
    rows, ((raw, error, where),) = emitted(**translated, on_bad="stream")
    assert rows == [[2], [3]]
    assert (raw, where) == ({"n": "x"}, f"s at {first}")
    assert "ValueError" in error
    with pytest.raises(ComponentError, match=f"a record cannot be read: s at {first}"):
        emitted(**translated)


# -- storing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize(
    ("kind", "read", "expected"),
    [
        ("string", lambda c: [c.get("u1"), c.get("u2")], ["1", "2"]),
        ("hash", lambda c: c.hgetall("all"), {"u1": "1", "u2": "2"}),
        ("list", lambda c: c.lrange("u1", 0, -1), ["1", "1"]),
        ("set", lambda c: c.smembers("u1"), {"1"}),
        ("sorted_set", lambda c: dict(c.zrange("all", 0, -1, withscores=True)),
         {"u1": 1.0, "u2": 2.0}),
        ("hyperloglog", lambda c: c.pfcount("u2"), 1),
        ("geo", lambda c: c.geodist("all", "u1", "u2") is not None, True),
    ],
)  # fmt: skip
def test_the_seven_types(
    server: RedisServer, client: Any, guarantee: Any, kind: str, read: Any, expected: Any
) -> None:
    name = "all" if kind in ("hash", "sorted_set", "geo") else ""
    value: Any = (lambda tup: (tup.score, 10)) if kind == "geo" else "score"
    sink = RedisStoreBolt(
        server.url, key="user", value=value, type=kind, name=name, guarantee=guarantee, ttl_secs=60
    )
    run_bolt(sink, batches=[batch(1, 2), batch(1)])
    found = read(client)
    if isinstance(found, dict):
        found = dict(found)
    assert found == expected
    assert 0 < client.ttl(name or "u1") <= 60


class Rollback(RedisStoreBolt):
    """Fails batches, before their commit and after it."""

    def pre_commit(self, batch_id: int) -> None:
        super().pre_commit(batch_id)
        if batch_id % 5 == 2 and not self.context.now() % 2:
            raise Unavailable("now", after_secs=1)

    def committed(self, batch_id: int) -> None:
        super().committed(batch_id)
        if batch_id % 5 == 4 and not self.context.now() % 2:
            raise Unavailable("now", after_secs=1)


def test_a_list_gets_every_committed_value_once(server: RedisServer, client: Any) -> None:
    Once.given.clear()
    sink = Rollback(
        server.url, key=lambda tup: "all", value="number", type="list", guarantee="exactly_once"
    )
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Once(), sink))
        while run.status in ("ACTIVE", "STALLED"):
            run.step()
            cluster.advance(1)
    found = [int(value) for value in client.lrange("all", 0, -1)]
    assert found == sorted(set(found))
    assert 0 < len(found) < 60


def test_what_redis_cannot_hold_is_rejected_alone(server: RedisServer, client: Any) -> None:
    sink = RedisStoreBolt(server.url, key="user", value="score", on_bad="stream")
    run = run_bolt(sink, batches=[[*batch(1), *batch(None), *batch(2)]])
    assert (client.get("u1"), client.get("u2")) == ("1", "2")
    assert "got a NoneType" in run.emitted[0][1]


# -- asking -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        ("string", "", "v"),
        ("hash", "hash", "v"),
        ("sorted_set", "zset", 7.0),
        ("list", "", ["a", "b"]),
        ("set", "", ["m"]),
        ("hyperloglog", "", 1),
    ],
)
def test_values_are_looked_up(
    server: RedisServer, client: Any, kind: str, name: str, found: Any
) -> None:
    fill(client, kind)

    def looked_up(**more: Any) -> Any:
        bolt = RedisLookupBolt(server.url, key="user", fields="score", type=kind, name=name, **more)
        return run_bolt(bolt, batches=[batch(1, 9)])

    run = looked_up()
    missing = 0 if kind == "hyperloglog" else None
    assert run.emitted == [[1, found], [9, missing]]
    assert len(run.acked) == 2
    if missing is None:
        assert looked_up(on_missing="drop").emitted == [[1, found]]
        assert [one.stream for one in looked_up(on_missing="stream").emitted] == [
            "default",
            "missing",
        ]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("string", ""),
        ("hash", "hash"),
        ("set", "members"),
        ("sorted_set", "zset"),
        ("list", ""),
        ("hyperloglog", ""),
        ("geo", "places"),
    ],
)
def test_what_redis_does_not_know_does_not_pass(
    server: RedisServer, client: Any, kind: str, name: str
) -> None:
    fill(client, kind)
    client.sadd("members", "u1")
    client.geoadd("places", (1, 2, "u1"))
    bolt = RedisFilterBolt(server.url, key="user", fields=("user",), type=kind, name=name)
    assert run_bolt(bolt, batches=[batch(1, 9)]).emitted == [["u1"]]


def fill(client: Any, kind: str) -> None:
    data: dict[str, Callable[[], Any]] = {
        "string": lambda: client.set("u1", "v"),
        "hash": lambda: client.hset("hash", "u1", "v"),
        "sorted_set": lambda: client.zadd("zset", {"u1": 7}),
        "list": lambda: client.rpush("u1", "a", "b"),
        "set": lambda: client.sadd("u1", "m"),
        "hyperloglog": lambda: client.pfadd("u1", "m"),
        "geo": lambda: None,
    }
    data[kind]()


# -- errors -------------------------------------------------------------------------------------


def test_arguments_that_cannot_be_meant(server: RedisServer, client: Any) -> None:
    url = server.url
    client.set("text", "x")
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: RedisStoreBolt("host", key="k", value="v"), "url='host'"),
        (lambda: RedisStoreBolt(url, key="k", value="v", type="tree"), "type='tree'"),
        (lambda: RedisStoreBolt(url, key="k", value="v", type="hash"), "needs name="),
        (lambda: RedisStoreBolt(url, key="k", value="v", guarantee="by_batch"), "guarantee="),
        (lambda: RedisFilterBolt(url, key="k", fields="k", type="set"), "the key of the set"),
        (lambda: RedisStreamSpout(url, ()), "names no stream"),
        (
            lambda: run_bolt(
                RedisLookupBolt(url, key="user", fields="user", type="hash", name="text"),
                batches=[batch(1)],
            ),
            "WRONGTYPE",
        ),
    ]
    for call, message in wrong:
        with pytest.raises(ComponentError, match=message):
            call()


def test_a_server_that_is_killed_and_started_again_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    server = redis.start(tmp_path)
    client = server.client()
    try:
        for number in range(50):
            client.xadd("in", {"n": number})
        spout = RedisStreamSpout(server.url, "in", fields="n", page=10)
        sink = RedisStoreBolt(
            server.url, key=lambda tup: "out", value="n", type="list", guarantee="exactly_once"
        )
        with TestCluster() as cluster:
            run = cluster.submit_topology("t", line(spout, sink))
            run.step()
            server.process.kill()
            cluster.advance(5)
            assert run.status == "STALLED"
            assert server.url in run.reason
            server.process.start()
            for number in range(50, 100):
                client.xadd("in", {"n": number})
            cluster.advance(60)
        assert [int(n) for n in client.lrange("out", 0, -1)] == list(range(100))
    finally:
        client.close()
        server.process.stop()
