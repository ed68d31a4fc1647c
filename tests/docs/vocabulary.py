"""The table of the words that connectors share, and who has which, by their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from topo.connectors.amqp import AmqpBolt, AmqpSpout
from topo.connectors.aws import KinesisBolt, KinesisSpout, SqsBolt, SqsSpout
from topo.connectors.clickhouse import ClickHouseBolt
from topo.connectors.elasticsearch import ElasticsearchBolt
from topo.connectors.files import FileBolt, FileSpout
from topo.connectors.http import HttpBolt, HttpPollSpout, HttpSpout, SseSpout
from topo.connectors.kafka import KafkaBolt, KafkaSpout
from topo.connectors.mongodb import MongoBolt, MongoChanges
from topo.connectors.mqtt import MqttBolt, MqttSpout
from topo.connectors.pubsub import PubSubBolt, PubSubSpout
from topo.connectors.redis import (
    RedisListSpout,
    RedisPubSubSpout,
    RedisStoreBolt,
    RedisStreamSpout,
)
from topo.connectors.replay import ReplaySpout
from topo.connectors.socket import SocketSpout
from topo.connectors.spark import SparkSink, SparkSource
from topo.connectors.sql import PostgresChanges, SqlBolt, SqlSpout
from topo.connectors.websocket import WebSocketBolt, WebSocketSpout

VOCABULARY: Mapping[str, str] = {
    "value": "the form of a value as bytes",
    "fields": "the fields of the tuples: parts of a record, or keys of its value",
    "translate": "a function of a record that returns the values to emit",
    "streams": "the fields of other streams that `translate` uses",
    "missing": "what a record is that lacks one of `fields`",
    "map": "a function of a tuple that returns what is written",
    "on_bad": "what becomes of a record that cannot be read, or is refused",
    "guarantee": "what is promised when something dies",
    "track": "whether a message that fails comes again",
    "retry": "the pauses before that, and how often",
    "retry_secs": "how long a target is waited for before the topology is STALLED",
    "max_in_flight": "how many messages a task holds that are not done",
    "page": "how many records are asked for at once",
    "tls": "certificates: `ca`, `cert`, `key`, `check`",
    "settings": "settings of the client's own library",
}
"""Each word with its meaning."""

SOURCES: tuple[type[Any], ...] = (
    AmqpSpout, FileSpout, HttpPollSpout, HttpSpout, KafkaSpout, KinesisSpout, MongoChanges,
    MqttSpout, PostgresChanges, PubSubSpout, RedisListSpout, RedisPubSubSpout, RedisStreamSpout,
    ReplaySpout, SocketSpout, SparkSource, SqlSpout, SqsSpout, SseSpout, WebSocketSpout,
)  # fmt: skip
SINKS: tuple[type[Any], ...] = (
    AmqpBolt, ClickHouseBolt, ElasticsearchBolt, FileBolt, HttpBolt, KafkaBolt, KinesisBolt,
    MongoBolt, MqttBolt, PubSubBolt, RedisStoreBolt, SparkSink, SqlBolt, SqsBolt, WebSocketBolt,
)  # fmt: skip


def words_of(connector: type[Any]) -> set[str]:
    """Return the arguments of a connector."""
    return set(inspect.signature(connector).parameters)


def vocabulary_table() -> str:
    """Return the table: a word a line, with its meaning and the connectors that have it."""
    lines = ["| word | meaning | sources | sinks |", "|---|---|---|---|"]
    for word, meaning in VOCABULARY.items():
        lines.append(f"| `{word}` | {meaning} | {_have(SOURCES, word)} | {_have(SINKS, word)} |")
    return "\n".join(lines)


def _have(connectors: tuple[type[Any], ...], word: str) -> str:
    """Return which of the connectors have a word, in the shorter way."""
    having = [each.__name__ for each in connectors if word in words_of(each)]
    lacking = [each.__name__ for each in connectors if word not in words_of(each)]
    if not having:
        return ""
    if not lacking:
        return "all"
    if len(lacking) < len(having):
        return f"all but {', '.join(_short(name) for name in lacking)}"
    return ", ".join(_short(name) for name in having)


def _short(name: str) -> str:
    return f"`{name}`"
