"""The example between Kafka and PostgreSQL: every session once, over rolled back batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from examples.click_sessions import sessions
from tests.connectors.moving import moved_until
from tests.servers import kafka, postgres
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer
from topo.testing import TestCluster

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("servers")]

GAP = 30 * 60_000
PARTITIONS = 2
RESTARTS = 12  # so many that one comes at every moment; without an end, a slow broker never gets on
USERS = ("ann", "bob", "cleo", "dan")
COLUMNS = """username text, began timestamptz, ended timestamptz, clicks integer, last_url text,
    primary key (username, began)"""


@pytest.fixture(scope="module")
def broker() -> KafkaServer:
    return kafka.shared()


@pytest.fixture(scope="module")
def base() -> Iterator[PostgresServer]:
    server = postgres.start()
    yield server
    server.stop()


def made_clicks(count: int) -> list[dict[str, Any]]:
    """Make clicks of a day or so, in bursts with pauses around the gap; nearly in order."""
    random = Random(3)
    now = 1_767_225_600_000
    clicks = []
    for number in range(count):
        now += random.choice((10_000, 60_000, 600_000, GAP - 1, GAP, GAP + 1))
        back = random.randrange(50_000)
        clicks.append({"user": random.choice(USERS), "url": f"/{number}", "ts": now - back})
    return clicks


def oracle(clicks: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the sessions as plain loops find them."""
    rows = []
    for user in USERS:
        own = sorted((c for c in clicks if c["user"] == user), key=lambda click: click["ts"])
        session: list[dict[str, Any]] = []
        for click in [*own, None]:
            if session and (click is None or click["ts"] - session[-1]["ts"] >= GAP):
                began, last = session[0]["ts"], session[-1]
                times = [datetime.fromtimestamp(t / 1000, UTC) for t in (began, last["ts"] + GAP)]
                rows.append((user, *times, len(session), last["url"]))
                session = []
            session += [click] if click is not None else []
    return sorted(rows)


def test_every_session_is_in_the_table_once(broker: KafkaServer, base: PostgresServer) -> None:
    topic, table = broker.topic(PARTITIONS), base.table(COLUMNS)
    clicks = made_clicks(400)
    end = clicks[-1]["ts"] + 10 * GAP
    for number in range(PARTITIONS):  # a user's clicks are all in one partition
        own = [click for click in clicks if USERS.index(click["user"]) % PARTITIONS == number]
        last = {"user": "nobody", "url": "", "ts": end}
        broker.write(topic, [json.dumps(one).encode() for one in [*own, last]], partition=number)
    broker.write(topic, [b"no JSON"], partition=0)
    expected = oracle(clicks)
    query = f"select * from {table} order by username, began"
    with TestCluster() as cluster:
        topology = sessions(broker.address, base.url, topic, table, PARTITIONS)
        run = cluster.submit_topology("sessions", topology)
        looks = 0

        def is_done() -> bool:
            nonlocal looks
            looks += 1
            if looks % 3 == 0 and looks <= 3 * RESTARTS:
                run.restart()
            return len(base.rows(query)) >= len(expected)

        moved_until(cluster, is_done)  # no faster than the broker's time, or it would pass for idle
        cluster.advance(5)
    found = [(user, *times, count, url) for user, *times, count, url in base.rows(query)]
    assert found == expected
