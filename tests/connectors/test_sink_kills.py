"""Slots are killed at every point of a batch, and the servers in the middle of one.

A table, a Redis list, and what a replication slot tells of the table must then have every record of
every committed batch once, and nothing else; although the spout never says the same again.

TOPO_KILLS=100 kills each of the two sinks a hundred times, dealt over the points.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
from tests.connectors.test_kafka_kills import Fresh
from tests.fault.spark_processes import wait_until
from tests.servers import postgres, redis
from topo import LocalCluster, TopologyBuilder, Tuple
from topo.connectors.redis import RedisStoreBolt
from topo.connectors.sql import PostgresChanges, SqlBolt
from topo.connectors.sql.rows import Rows, halves

pytestmark = [
    pytest.mark.spark,
    pytest.mark.fault,
    pytest.mark.server,
    pytest.mark.timeout(900 + 2 * A_KILL_SECS * KILLS),
]

POINTS = (*OF_BOLTS, "publishing")
CONF = {"topology.workers": 2, "topology.restart.max": 20}


class DyingTable(DyingBolt, SqlBolt):
    execute = SqlBolt.execute  # it takes columns

    def process_columns(self, fields: Any, columns: Any, count: int) -> None:
        super().process_columns(fields, columns, count)
        self.die("executed")

    def _execute(self, connection: Any, rows: Rows) -> None:
        first, second = halves([rows])
        for half in first:
            super()._execute(connection, half)
        self.die("publishing")  # with a transaction open, in which rows are
        for half in second:
            super()._execute(connection, half)


class DyingList(DyingBolt, RedisStoreBolt):
    def _commands_of(self, key: str, tup: Tuple) -> list[list[Any]]:
        self.die("publishing")  # its script runs as a whole: here is another point of a batch
        return super()._commands_of(key, tup)


def said(tup: Tuple) -> str:
    return f"{tup.number} {tup.token}"


def inserted(tup: Tuple) -> str:
    return f"{tup.op} {tup.after['number']} {tup.after['token']}"


def test_what_was_committed_is_published_once_whoever_dies(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    base, store = postgres.start(), redis.start(tmp_path / "redis")
    try:
        table = base.table("number bigint primary key, token text")
        builder = TopologyBuilder()
        builder.set_spout("fresh", Fresh(tmp_path / "stop"))
        builder.set_spout("changes", PostgresChanges(base.url, table))
        sinks: dict[str, Any] = {
            "table": DyingTable(base.url, table, guarantee="exactly_once"),
            "list": DyingList(
                store.url, key=_fresh, value=said, type="list", guarantee="exactly_once"
            ),
        }
        for name, sink in sinks.items():
            builder.set_bolt(name, sink.dying_at(POINTS, tmp_path / name)).shuffle_grouping("fresh")
        changed = RedisStoreBolt(
            store.url, key=_changes, value=inserted, type="list", guarantee="exactly_once"
        )
        builder.set_bolt("changed", changed).shuffle_grouping("changes")
        deaths = [tmp_path / name for name in sinks]
        kills = len(POINTS) * kills_at_each(POINTS) * len(sinks)
        client = store.client()
        with LocalCluster("local[2]") as cluster:
            topology = builder.create_topology()
            run = cluster.submit_topology("kills", topology, CONF, capture=["fresh"])
            await_kills(run, deaths, kills)
            for server in (base.process, store.process):
                server.kill()
                wait_until(lambda: run.status == "STALLED" or run.wait(0), "the stall")
                base.start() if server is base.process else server.start()
            last = run.stats().batch.id
            wait_until(lambda: run.stats().batch.id >= last + 3 or run.wait(0), "batches")
            (tmp_path / "stop").touch()

            def is_told() -> bool:
                rows = len(run.tuples("fresh"))
                return {client.llen("fresh"), client.llen("changes")} == {rows}

            wait_until(lambda: is_told() or run.wait(0), "all of it")
            run.kill()
            committed = run.tuples("fresh")
        print(f"{told(deaths)}; {len(committed)} records")
        assert killed(deaths) == kills
        assert [row[0] for row in committed] == list(range(len(committed)))
        rows = base.rows(f"select number, token from {table} order by number")
        assert rows == list(map(tuple, committed))
        listed = [f"{number} {token}" for number, token in committed]
        assert client.lrange("fresh", 0, -1) == listed
        changes = [change.partition(" ") for change in client.lrange("changes", 0, -1)]
        assert {op for op, _, _ in changes} <= {"read", "insert"}
        assert [rest for _, _, rest in changes] == listed
        client.close()
    finally:
        base.stop()
        store.process.stop()


def _fresh(tup: Tuple) -> str:
    return "fresh"


def _changes(tup: Tuple) -> str:
    return "changes"
