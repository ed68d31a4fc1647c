"""Clients are loaded where tasks run, and named where they are missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from topo import MissingExtra
from topo.connectors.amqp import AmqpBolt, AmqpSpout
from topo.connectors.http import HttpBolt, HttpPollSpout, HttpSpout, SseSpout
from topo.connectors.mongodb import MongoBolt, MongoChanges
from topo.connectors.mqtt import MqttBolt, MqttSpout
from topo.connectors.pubsub import PubSubBolt, PubSubSpout
from topo.connectors.websocket import WebSocketBolt, WebSocketSpout
from topo.testing import make_tuple, run_bolt, run_spout

CLIENTS = (
    *("paho", "pika", "httpx", "h11", "websockets", "fastavro", "jsonschema", "msgpack"),
    *("bson", "google.api_core", "google.pubsub_v1", "pymongo"),
)
_BUILD = """
import sys
from topo import TopologyBuilder
from topo.connectors import socket, websocket
from topo.connectors.amqp import AmqpBolt, AmqpSpout
from topo.connectors.clickhouse import ClickHouseBolt
from topo.connectors.elasticsearch import ElasticsearchBolt
from topo.connectors.files import FileSpout
from topo.connectors.http import HttpBolt, HttpPollSpout, HttpSpout, SseSpout
from topo.connectors.mongodb import MongoBolt, MongoChanges
from topo.connectors.mqtt import MqttBolt, MqttSpout
from topo.connectors.pubsub import PubSubBolt, PubSubSpout
from topo.connectors.schemas import Avro, JsonSchema

builder = TopologyBuilder()
builder.set_spout("a", AmqpSpout("amqp://h", "q"))
builder.set_spout("b", HttpSpout())
builder.set_spout("c", HttpPollSpout("http://h"))
builder.set_spout("d", SseSpout("http://h"))
builder.set_spout("e", MqttSpout("mqtt://h", "t"))
builder.set_spout("f", websocket.WebSocketSpout("ws://h"))
builder.set_spout("g", socket.SocketSpout("h", 1))
builder.set_spout("h", MqttSpout("mqtt://h", "t", value=Avro(schema="long")))
builder.set_spout("i", MqttSpout("mqtt://h", "t", value=JsonSchema(schema={})))
builder.set_spout("j", MqttSpout("mqtt://h", "t", value="msgpack"))
builder.set_spout("k", FileSpout("x.avro", "avro"))
builder.set_spout("l", MongoChanges("mongodb://h", "d"))
builder.set_spout("m", PubSubSpout("projects/p/subscriptions/s"))
for name, bolt in {
    "x": AmqpBolt("amqp://h", "q"), "y": HttpBolt("http://h"), "z": MqttBolt("mqtt://h", "t"),
    "c1": ClickHouseBolt("http://h", "t"), "e1": ElasticsearchBolt("http://h", "i"),
    "m1": MongoBolt("mongodb://h", "d", "c"),
    "p1": PubSubBolt("projects/p/topics/t"),
    "w1": websocket.WebSocketBolt("ws://h"),
}.items():
    builder.set_bolt(name, bolt).shuffle_grouping("a")
topology = builder.create_topology()
assert topology.warnings == (), topology.warnings
print(*(name for name in CLIENTS if name in sys.modules))
"""


def test_topologies_are_built_without_clients() -> None:
    code = f"CLIENTS = {CLIENTS!r}\n{_BUILD}"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""


@pytest.mark.parametrize(
    ("module", "extra", "run"),
    [
        ("pika", "amqp", lambda: run_spout(AmqpSpout("amqp://127.0.0.1:1", "q"))),
        ("pika", "amqp", lambda: run_bolt(AmqpBolt("amqp://127.0.0.1:1", "q"))),
        ("paho.mqtt.client", "mqtt", lambda: run_spout(MqttSpout("mqtt://127.0.0.1:1", "t"))),
        ("paho.mqtt.client", "mqtt", lambda: run_bolt(MqttBolt("mqtt://127.0.0.1:1", "t"))),
        ("pymongo", "mongodb", lambda: run_spout(MongoChanges("mongodb://h", "d"))),
        ("pymongo", "mongodb", lambda: run_bolt(MongoBolt("mongodb://h", "d", "c"))),
        ("google.pubsub_v1", "pubsub",
         lambda: run_spout(PubSubSpout("projects/p/subscriptions/s"))),
        ("google.pubsub_v1", "pubsub", lambda: run_bolt(PubSubBolt("projects/p/topics/t"))),
        ("h11", "http", lambda: run_spout(HttpSpout("127.0.0.1:0"))),
        ("httpx", "http", lambda: run_spout(HttpPollSpout("http://127.0.0.1:1"))),
        ("httpx", "http", lambda: run_spout(SseSpout("http://127.0.0.1:1"))),
        ("httpx", "http", lambda: run_bolt(HttpBolt("http://h"), [make_tuple([1])])),
        ("websockets.sync.client", "http",
         lambda: run_spout(WebSocketSpout("ws://127.0.0.1:1"))),
        ("websockets.sync.client", "http",
         lambda: run_bolt(WebSocketBolt("ws://h"), [make_tuple([1])])),
    ],
)  # fmt: skip
def test_a_client_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str, run: Callable[[], Any]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=module) as caught:
        run()
    assert caught.value.hint == f"pip install 'topo-spark[{extra}]'"
