"""Sessions of clicks, from a Kafka topic into a table of PostgreSQL, each exactly once.

    pip install 'topo-spark[kafka,postgres]'
    psql -c 'create table sessions (username text, began timestamptz, ended timestamptz,
             clicks integer, last_url text, primary key (username, began))'
    topo local examples/click_sessions.py

reads `{"user": "ann", "url": "/", "ts": 1767225600000}` (milliseconds) from the topic `clicks` of
the broker at `localhost:9092`, or at `CLICKS_SERVERS`, and writes to the database at
`CLICKS_DATABASE`, for example `postgresql+psycopg://ann@localhost/shop`.

A session ends when its user has not clicked for half an hour. The clicks of a partition may be a
minute out of order. One task reads each partition, so that one that is far behind is waited for;
one that has been silent for half a minute is not.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from topo import (
    Count,
    EventTime,
    Last,
    Session,
    Topology,
    TopologyBuilder,
    Tuple,
    WindowAggregate,
)
from topo.connectors import Secret
from topo.connectors.kafka import KafkaSpout
from topo.connectors.sql import SqlBolt


def row(session: Tuple) -> dict[str, Any]:
    """Return a session as the table has it; its window ends a gap after the last click."""
    began, ended = (
        datetime.fromtimestamp(millis / 1000, UTC) for millis in (session.start, session.end)
    )
    return {
        "username": session.user,
        "began": began,
        "ended": ended,
        "clicks": session.clicks,
        "last_url": session.last_url,
    }


def sessions(
    servers: str,
    database: str | Secret,
    topic: str = "clicks",
    table: str = "sessions",
    partitions: int = 2,
) -> Topology:
    """Return the topology from a topic to a table."""
    clicks = KafkaSpout(
        servers,
        topic,
        value="json",
        fields=("user", "url", "ts"),
        guarantee="exactly_once",
        on_bad="skip",
    )
    by_user = WindowAggregate(
        key="user",
        window=Session(timedelta(minutes=30)),
        time=EventTime("ts", lag=timedelta(minutes=1), idle=timedelta(seconds=30)),
        aggregates={"clicks": Count(), "last_url": Last("url")},
    )
    written = SqlBolt(database, table, map=row, guarantee="exactly_once")
    builder = TopologyBuilder()
    builder.set_spout("clicks", clicks, parallelism=partitions)
    builder.set_bolt("sessions", by_user, parallelism=2).fields_grouping("clicks", ["user"])
    builder.set_bolt("table", written).shuffle_grouping("sessions")
    return builder.create_topology()


def topology() -> Topology:
    servers = os.environ.get("CLICKS_SERVERS", "localhost:9092")
    return sessions(servers, Secret.env("CLICKS_DATABASE"))
