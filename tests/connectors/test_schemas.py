"""Avro, Protobuf and JSON Schema with a Schema Registry that answers over HTTP, and without one."""

from __future__ import annotations

import json
import pickle
import ssl
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from tests.certificates import make_certificates
from tests.connectors.messages import ADDRESS, CLICK, EVERYTHING, ORDER
from tests.connectors.scripted_kafka import Broker, Reading, ScriptedSpout
from tests.connectors.scripted_registry import Registry
from tests.connectors.test_kafka_spout import Told
from topo import ComponentError, MissingExtra, Tuple, Unavailable
from topo.connectors import Secret
from topo.connectors.formats import Place, decoder, encoder
from topo.connectors.http import HttpBolt
from topo.connectors.kafka import KafkaBolt, KafkaSpout
from topo.connectors.kafka.records import MessageReader
from topo.connectors.mqtt import MqttSpout
from topo.connectors.schemas import Avro, JsonSchema, Protobuf, SchemaRegistry
from topo.testing import make_tuple, run_bolt

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Click",
    "namespace": "shop",
    "fields": [{"name": "user", "type": "string"}, {"name": "n", "type": "long"}],
}
NEWER = {**AVRO, "fields": [*AVRO["fields"], {"name": "at", "type": "long", "default": -1}]}
JSON = {
    "title": "Click",
    "type": "object",
    "properties": {"user": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["user"],
}
VALUE = {"user": "ann", "n": 7}
VALUES = Place("clicks", "value")
CONFLUENT = {
    "avro": "000000000106616e6e0e",
    "json": "00000000027b2275736572223a22616e6e222c226e223a377d",
    "protobuf": "000000000302020a03616e6e1007",
    "nested": "00000000030402000a03556c6d",
}
"""What Confluent's client (confluent-kafka 2.16) has written of these schemas and values."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(ScriptedSpout, "broker", broker)
    Told.held.clear()
    Told.fails.clear()
    Writes.sent.clear()
    return broker


class Writes(KafkaBolt):
    """Writes to a list."""

    requires = ()
    sent: ClassVar[list[Any]] = []

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        super().prepare(conf, context, collector)
        self._sender: Any = self

    def look_for_topic(self, topic: str) -> None:
        """Find every topic."""

    def send(self, records: Iterable[Any]) -> list[Any]:
        self.sent.extend(records)
        return []

    def flush(self, secs: float) -> list[Any]:
        return []


def written(form: Any, *values: dict[str, Any], topic: Any = "clicks", **more: Any) -> list[bytes]:
    """Return what a KafkaBolt writes of tuples."""
    bolt = Writes("b:1", topic, value=form, **more)
    run_bolt(bolt, [make_tuple(list(each.values()), fields=list(each)) for each in values])
    return [record[2] for record in Writes.sent]


def read(broker: Broker, form: Any, *values: bytes, **more: Any) -> Reading:
    """Return a topology that has read these values from a topic."""
    for value in values:
        broker.write("t", 0, 1, data=value)
    return Reading(ScriptedSpout("t", value=form, **more)).settle()


def rows(reading: Reading, stream: str = "default") -> list[Any]:
    return reading.run.tuples("kafka", stream)


# -- the frame ----------------------------------------------------------------------------------


def test_what_is_written_is_what_confluents_client_writes(registry: Registry) -> None:
    server = SchemaRegistry(registry.url)
    forms = [Avro(server, AVRO), JsonSchema(server, JSON), Protobuf(server, CLICK)]
    data = [form.encoder("X", VALUES)(VALUE) for form in forms]
    data.append(Protobuf(server, ADDRESS).encoder("X", VALUES)({"city": "Ulm"}))
    assert [each.hex() for each in data] == list(CONFLUENT.values())


def test_what_confluents_client_has_written_is_read(registry: Registry) -> None:
    server = SchemaRegistry(registry.url)
    for form in (Avro(server, AVRO), JsonSchema(server, JSON), Protobuf(server, CLICK)):
        form.encoder("X", VALUES)(VALUE)
    data = {name: bytes.fromhex(each) for name, each in CONFLUENT.items()}
    assert Avro(server).decoder("X")(data["avro"]) == VALUE
    assert JsonSchema(server).decoder("X")(data["json"]) == VALUE
    assert Protobuf(server).decoder("X")(data["protobuf"]) == {**VALUE, "at": None}
    assert Protobuf(server).decoder("X")(data["nested"]) == {"city": "Ulm"}


# -- reading ------------------------------------------------------------------------------------


def test_fields_of_records_whose_schema_is_the_registrys(
    broker: Broker, registry: Registry
) -> None:
    data = [written(Avro(SchemaRegistry(registry.url), AVRO), {"user": f"u{n}", "n": n})[n]
            for n in range(3)]  # fmt: skip
    registry.requests.clear()
    reading = read(broker, Avro(SchemaRegistry(registry.url)), *data, fields=("n", "user"))
    assert rows(reading) == [[0, "u0"], [1, "u1"], [2, "u2"]]
    assert registry.requests == ["GET /schemas/ids/1"]


def test_older_and_newer_records_are_brought_to_the_readers_schema(
    broker: Broker, registry: Registry
) -> None:
    server = SchemaRegistry(registry.url)
    older = Avro(server, AVRO).encoder("X", VALUES)(VALUE)
    newer = Avro(server, NEWER).encoder("X", VALUES)({**VALUE, "at": 5})
    reading = read(broker, Avro(server, NEWER), older, newer, fields=("user", "at"))
    assert rows(reading) == [["ann", -1], ["ann", 5]]
    broker.logs.clear()
    reading = read(broker, Avro(server, AVRO), older, newer, fields="value")
    assert rows(reading) == [[VALUE], [VALUE]]


def test_records_that_cannot_be_read_are_bad_ones(broker: Broker, registry: Registry) -> None:
    server = SchemaRegistry(registry.url)
    good = Avro(server, AVRO).encoder("X", VALUES)(VALUE)
    registry.put("j-value", json.dumps(JSON), schemaType="JSON")
    registry.put("wrong-value", '{"type": "record"}')
    data = [b'{"user": 1}', b"", b"\0\0\0\0", good[:-1], good + b"x", b"\0\0\0\0\x02{}",
            b"\0\0\0\0\x03ab", b"\0\0\0\0\x09ab", b"\0\0\0\0\x09cd", good]  # fmt: skip
    reading = read(broker, Avro(server), *data, fields="user", on_bad="stream")
    assert rows(reading) == [["ann"]]
    errors = [error for _, error, _ in rows(reading, "bad")]
    assert "its first byte is 123" in errors[0]
    assert "it is empty" in errors[1]
    assert "not in a Schema Registry's frame" in errors[2]
    assert "it is shorter than its Avro schema says" in errors[3]
    assert "1 bytes follow what its Avro schema says" in errors[4]
    assert "schema id 2 is of type JSON, and not AVRO" in errors[5]
    assert "Avro: the schema is invalid" in errors[6]
    assert "does not have schema id 9: Schema not found" in errors[7]
    assert errors[8] == errors[7]
    assert Counter(registry.requests)["GET /schemas/ids/9"] == 1  # not for every record


def test_a_registry_that_is_away_stalls_and_loses_nothing(
    broker: Broker, registry: Registry
) -> None:
    server = SchemaRegistry(registry.url)
    first = Avro(server, AVRO).encoder("X", VALUES)
    second = Avro(server, NEWER).encoder("X", VALUES)
    data = [first({"user": "u", "n": n}) for n in range(5)]
    data += [second({"user": "u", "n": n, "at": 0}) for n in range(5, 10)]
    for value in data[:5]:
        broker.write("t", 0, 1, data=value)
    spout = ScriptedSpout("t", value=Avro(server), fields=("n", "offset"), on_bad="skip",
                          translate=lambda record: [record.value["n"], record.offset])  # fmt: skip
    reading = Reading(spout).settle()
    registry.away = True
    for value in data[5:]:
        broker.write("t", 0, 1, data=value)
    reading.cluster.advance(5)
    assert reading.run.status == "STALLED"
    assert "the Schema Registry at" in reading.run.reason
    assert "HTTP 503: the Kafka store is away" in reading.run.reason
    assert len(rows(reading)) == 5
    registry.away = False
    reading.cluster.advance(30)
    assert reading.run.status == "ACTIVE"
    assert rows(reading) == [[n, n] for n in range(10)]
    assert "bad_records" not in reading.run.stats().components["kafka"].counters


def test_a_message_that_failed_waits_for_its_schema(broker: Broker, registry: Registry) -> None:
    server = SchemaRegistry(registry.url)
    write = Avro(server, AVRO).encoder("X", VALUES)
    for n in range(3):
        broker.write("t", 0, 1, data=write({"user": "u", "n": n}))
    Told.fails.update({1: 2})
    spout = Forgets("t", value=Avro(server), translate=lambda record: [record.offset],
                    fields="offset")  # fmt: skip
    Forgets.forgets = ()
    reading = Reading(spout, Told())
    reading.run.step()
    registry.away = True
    Forgets.forgets = (1,)
    reading.cluster.advance(5)
    assert reading.run.status == "STALLED"
    registry.away = False
    reading.cluster.advance(30)
    assert Counter(row[0] for row in rows(reading)) == {0: 1, 1: 3, 2: 1}


class Forgets(ScriptedSpout):
    """Asks the registry anew for the schemas of some offsets."""

    forgets: ClassVar[tuple[int, ...]] = ()

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        super().open(conf, context, collector)
        self._reader = ForgetfulReader(self.translation, self, None)


class ForgetfulReader(MessageReader):
    def read_message(self, spout: Any, message: Any) -> Any:
        if message.offset() in Forgets.forgets:
            self.__init__(spout.translation, spout, None)  # type: ignore[misc]
        return super().read_message(spout, message)


def test_schemas_that_use_others(broker: Broker, registry: Registry) -> None:
    address = {"type": "record", "name": "Address", "namespace": "shop",
               "fields": [{"name": "city", "type": "string"}]}  # fmt: skip
    registry.put("address", json.dumps(address))
    order = {"type": "record", "name": "Order", "namespace": "shop",
             "fields": [{"name": "to", "type": "shop.Address"}]}  # fmt: skip
    uses = [{"name": "shop.Address", "subject": "address", "version": 1}]
    assert registry.put("t-value", json.dumps(order), references=uses) == 2
    reading = read(broker, Avro(SchemaRegistry(registry.url)), b"\0\0\0\0\x02\x06Ulm", fields="to")
    assert rows(reading) == [[{"city": "Ulm"}]]


def test_json_is_checked_against_its_schema(broker: Broker, registry: Registry) -> None:
    server = SchemaRegistry(registry.url)
    part = {"$id": "part.json", "type": "object", "properties": {"n": {"type": "integer"}}}
    registry.put("part", json.dumps(part), schemaType="JSON")
    whole = {"type": "object", "properties": {"part": {"$ref": "part.json"}}}
    uses = [{"name": "part.json", "subject": "part", "version": 1}]
    registry.put("t-value", json.dumps(whole), schemaType="JSON", references=uses)
    data = [b'\0\0\0\0\x02{"part": {"n": 1}}', b'\0\0\0\0\x02{"part": {"n": "x"}}']
    reading = read(broker, JsonSchema(server), *data, fields="part", on_bad="stream")
    assert rows(reading) == [[{"n": 1}]]
    ((_, error, _),) = rows(reading, "bad")
    assert error == "ValueError: at $.part.n: 'x' is not of type 'integer'"
    broker.logs.clear()
    reading = read(broker, JsonSchema(server, check=False), *data, fields="part")
    assert rows(reading) == [[{"n": 1}], [{"n": "x"}]]


# -- writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("topic", "clicks-value"),
        ("record", "shop.Click"),
        ("topic-record", "clicks-shop.Click"),
        (lambda topic, part, name: f"{part}/{name}/{topic}", "value/shop.Click/clicks"),
    ],
)
def test_a_schema_is_registered_once_under_its_subject(
    registry: Registry, subject: Any, name: str
) -> None:
    form = Avro(SchemaRegistry(registry.url), AVRO, subject=subject)
    data = written(form, VALUE, VALUE)
    assert data == [bytes.fromhex(CONFLUENT["avro"])] * 2
    assert registry.requests == [f"POST /subjects/{name}/versions"]


def test_every_topic_has_its_subject_and_keys_have_theirs(registry: Registry) -> None:
    form = Avro(SchemaRegistry(registry.url), AVRO)
    key = Avro(SchemaRegistry(registry.url), {"type": "string"})
    written(form, VALUE, {"user": "bob", "n": 2}, topic=lambda tup: tup["user"], key="user",
            key_format=key)  # fmt: skip
    assert sorted(registry.by_subject) == ["ann-key", "ann-value", "bob-key", "bob-value"]


def test_values_that_are_not_of_the_schema_are_rejected(registry: Registry) -> None:
    server = SchemaRegistry(registry.url)
    wrong: list[dict[str, Any]] = [{"user": 1, "n": 7}, {"user": "ann"}, {**VALUE, "more": 1}]
    for form in (Avro(server, AVRO), JsonSchema(server, {**JSON, "additionalProperties": False,
                 "required": ["user", "n"]}), Protobuf(server, CLICK)):  # fmt: skip
        bolt = Writes("b:1", type(form).__name__, value=form, on_bad="stream")
        tuples = [make_tuple(list(each.values()), fields=list(each)) for each in wrong]
        rejected = [e[0] for e in run_bolt(bolt, tuples).emitted if e.stream == "rejected"]
        expected = [0, 2] if isinstance(form, Protobuf) else [0, 1, 2]  # nothing is required there
        assert rejected == [list(wrong[n].values()) for n in expected]


def test_a_schema_that_is_not_compatible_is_told_in_words(registry: Registry) -> None:
    server = SchemaRegistry(registry.url)
    written(Avro(server, AVRO), VALUE)
    registry.incompatible = "the field 'n' has no default"
    with pytest.raises(ComponentError, match="refuses the schema of 'clicks-value'") as caught:
        written(Avro(server, {**AVRO, "fields": AVRO["fields"][:1]}), {"user": "ann"})
    assert "not compatible with the one that is registered" in caught.value.message
    assert "the field 'n' has no default" in caught.value.message
    assert "with a default" in str(caught.value.hint)


def test_writing_by_what_is_registered_alone(registry: Registry) -> None:
    server = SchemaRegistry(registry.url)
    with pytest.raises(ComponentError, match="does not have the schema of 'clicks-value'"):
        written(Avro(server, AVRO, register=False), VALUE)
    with pytest.raises(ComponentError, match="does not have the subject 'clicks-value'"):
        written(Avro(server, latest=True), VALUE)
    assert registry.by_id == {}
    registry.put("clicks-value", json.dumps(AVRO))
    registry.put("clicks-value", json.dumps(NEWER))
    Writes.sent.clear()
    assert written(Avro(server, AVRO, register=False), VALUE)[0][:5] == b"\0\0\0\0\x01"
    assert written(Avro(server, latest=True), {**VALUE, "at": 1})[-1][:5] == b"\0\0\0\0\x02"


def test_a_registry_that_is_away_is_waited_for_by_the_sink(registry: Registry) -> None:
    registry.away = True
    with pytest.raises(Unavailable, match="HTTP 503"):
        written(Avro(SchemaRegistry(registry.url), AVRO), VALUE)


# -- access -------------------------------------------------------------------------------------


def test_logins_and_tokens(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SR_PASSWORD", "s3cret")
    monkeypatch.setenv("SR_TOKEN", "Bearer t0ken")
    registry.login = ("shop", "s3cret")
    with pytest.raises(ComponentError, match="refuses access: HTTP 401") as caught:
        written(Avro(SchemaRegistry(registry.url), AVRO), VALUE)
    assert "password=Secret.env" in str(caught.value.hint)
    server = SchemaRegistry(registry.url, user="shop", password=Secret.env("SR_PASSWORD"))
    assert written(Avro(server, AVRO), VALUE)
    registry.login, registry.token = None, "t0ken"
    server = SchemaRegistry(registry.url, headers={"Authorization": Secret.env("SR_TOKEN")})
    assert written(Avro(server, AVRO), VALUE)


def test_a_certificate_of_an_authority_of_ones_own(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    server = Registry(context)
    try:
        with pytest.raises(ComponentError, match="certificate is refused"):
            written(Avro(SchemaRegistry(server.url), AVRO), VALUE)
        trusting = SchemaRegistry(server.url, tls={"ca": str(tmp_path / "ca.pem")})
        assert written(Avro(trusting, AVRO), VALUE)
    finally:
        server.close()


def test_what_is_no_registry_is_told(registry: Registry) -> None:
    nowhere = SchemaRegistry(registry.url + "/nowhere")
    with pytest.raises(ComponentError, match="HTTP 404") as caught:
        written(Avro(nowhere, AVRO), VALUE)
    assert caught.value.hint == "see url="
    with pytest.raises(Unavailable, match="refused"):
        written(Avro(SchemaRegistry("http://127.0.0.1:1"), AVRO), VALUE)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Avro(), "neither a registry nor a schema"),
        (lambda: Avro(cast(Any, "http://h:8081")), "is no registry"),
        (lambda: Avro(schema="{"), "schema= cannot be read"),
        (lambda: Avro(schema=Path("/nowhere.avsc")), "/nowhere.avsc cannot be read"),
        (lambda: Avro(SchemaRegistry("http://h"), subject=cast(Any, "table")), "subject='table'"),
        (lambda: Avro(SchemaRegistry("http://h"), latest=True, register=True), "latest=True"),
        (lambda: JsonSchema(), "neither a registry nor a schema"),
        (lambda: Protobuf(), "which message"),
        (lambda: Protobuf(message=dict), "no class of messages"),
        (lambda: SchemaRegistry("ftp://h"), "http://host:80"),
        (lambda: SchemaRegistry("http://h", user="u"), "user= and password= belong together"),
        (lambda: SchemaRegistry("http://h", tls={"cafile": "x"}), "tls has no 'cafile'"),
        (lambda: KafkaBolt("b:1", "t", value=Avro(SchemaRegistry("http://h"))), "no schema to"),
        (lambda: KafkaBolt("b:1", "t", value=JsonSchema(SchemaRegistry("http://h"))), "no schema"),
        (lambda: KafkaBolt("b:1", "t", value=Protobuf(SchemaRegistry("http://h"))), "no message"),
        (lambda: MqttSpout("mqtt://h", "t", value=Avro(SchemaRegistry("http://h"))), "Kafka alone"),
        (lambda: HttpBolt("http://h", value=Avro(SchemaRegistry("http://h"), AVRO)), "Kafka alone"),
        (lambda: KafkaSpout("b:1", "t", value="avro"), "value='avro'; it is one of 'json'"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant(make: Any, words: str) -> None:
    with pytest.raises(ComponentError, match=words):
        make()


def test_what_is_needed_is_named_before_it_runs() -> None:
    registry = SchemaRegistry("http://h")
    spout = KafkaSpout("b:1", "t", value=Avro(registry), key="msgpack")
    assert list(spout.requires) == [
        "confluent_kafka>=2.6", "msgpack>=1.0", "fastavro>=1.9", "httpx>=0.28",
    ]  # fmt: skip
    assert list(HttpBolt("http://h", value=Avro(schema=AVRO)).requires)[-1] == "fastavro>=1.9"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(MissingExtra, match="fastavro") as caught:
        decoder(Avro(schema=AVRO), "X", "value")
    assert caught.value.hint == "pip install 'topo-spark[schemas]'"


def test_nothing_secret_is_shown_or_pickled() -> None:
    registry = SchemaRegistry("http://h", user="u", password=Secret.env("SR_PASSWORD"))
    assert b"SR_PASSWORD" in pickle.dumps(Avro(registry))


# -- without a registry -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (Avro(schema=AVRO), VALUE),
        (Avro(schema=json.dumps(AVRO)), VALUE),
        (Avro(schema="long"), 7),
        (JsonSchema(schema=JSON), VALUE),
        (Protobuf(message=CLICK), {**VALUE, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}),
        ("msgpack", {**VALUE, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "raw": b"\0"}),
    ],
)
def test_values_of_one_schema_have_no_frame(form: Any, value: Any) -> None:
    form = pickle.loads(pickle.dumps(form))
    data = encoder(form, "X", "value")(value)
    assert decoder(form, "X", "value")(data) == value


def test_an_avro_schema_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "click.avsc").write_text(json.dumps(AVRO))
    form = Avro(schema=tmp_path / "click.avsc")
    (tmp_path / "click.avsc").unlink()  # it was read: the tasks need no file
    assert decoder(form, "X", "value")(b"\x06ann\x0e") == VALUE


def test_a_schema_that_is_invalid_is_the_users_error() -> None:
    with pytest.raises(ComponentError, match="Avro: the schema is invalid"):
        decoder(Avro(schema={"type": "record"}), "X", "value")
    with pytest.raises(ComponentError, match="JsonSchema: the schema is invalid"):
        decoder(JsonSchema(schema={"type": 7}), "X", "value")


def test_messagepack_that_is_too_deep_or_cut_off_is_bad(broker: Broker) -> None:
    pytest.importorskip("msgpack")
    reading = read(broker, "msgpack", b"\x91" * 250 + b"\x01", b"\x92\x01", b"\x81\xa1n\x07",
                   fields="n", on_bad="stream")  # fmt: skip
    assert rows(reading) == [[7]]
    assert "nested more than 200 deep" in rows(reading, "bad")[0][1]


# -- messages of Protobuf -----------------------------------------------------------------------

EVERY_VALUE: dict[str, Any] = {
    "number": 2**60,
    "raw": b"\0\xff",
    "colour": "RED",
    "names": ["a", "b"],
    "counts": {"x": 1, "y": 2},
    "places": {"home": {"city": "Ulm"}},
    "home": {"city": "Bonn"},
    "at": datetime(1969, 12, 31, 23, 59, 59, 250_000, tzinfo=UTC),
    "lasted": timedelta(days=1, microseconds=5),
    "wrapped": 5,
    "maybe": 0,
    "anything": {"a": [1.0, None, "x"]},
    "days": [datetime(2026, 1, 1, tzinfo=UTC)],
}


def test_every_kind_of_field_comes_back(registry: Registry) -> None:
    form = Protobuf(SchemaRegistry(registry.url), EVERYTHING)
    data = form.encoder("X", VALUES)(EVERY_VALUE)
    assert form.decoder("X")(data) == EVERY_VALUE
    assert Protobuf(SchemaRegistry(registry.url)).decoder("X")(data) == EVERY_VALUE


def test_fields_that_are_not_set() -> None:
    empty = Protobuf(message=EVERYTHING).decoder("X")(b"")
    assert empty["number"] == 0
    assert empty["names"] == []
    assert empty["counts"] == {}
    assert [empty[name] for name in ("home", "at", "wrapped", "maybe")] == [None] * 4
    assert empty["colour"] == "NONE"


def test_files_that_a_message_imports_are_registered_with_it(registry: Registry) -> None:
    server = SchemaRegistry(registry.url)
    order = {"to": {"city": "Ulm"}, "click": VALUE | {"at": None}}
    data = Protobuf(server, ORDER).encoder("X", Place("orders", "value"))(order)
    assert list(registry.by_subject) == ["shop/click.proto", "orders-value"]
    assert Protobuf(server).decoder("X")(data) == order


def test_a_record_of_another_message_is_a_bad_one(broker: Broker, registry: Registry) -> None:
    server = SchemaRegistry(registry.url)
    click = Protobuf(server, CLICK).encoder("X", VALUES)(VALUE)
    nested = Protobuf(server, ADDRESS).encoder("X", VALUES)({"city": "Ulm"})
    text = registry.put("text", 'syntax = "proto3";', schemaType="PROTOBUF")
    other = bytes([0, 0, 0, 0, text, 0])
    data = [nested, click[:5] + b"\x02\x7e\0", click[:6], click[:-1], other, click]
    form = Protobuf(server, CLICK)
    reading = read(broker, form, *data, fields="user", on_bad="stream")
    assert rows(reading) == [["ann"]]
    errors = [error for _, error, _ in rows(reading, "bad")]
    assert "it is a shop.Click.Address, and not a shop.Click" in errors[0]
    assert "which has no such message" in errors[1]
    assert "the path to its message is cut off" in errors[2]
    assert "it is no shop.Click" in errors[3]
    assert "gives no descriptor" in errors[4]


def test_a_message_class_travels_without_its_module() -> None:
    form = pickle.loads(pickle.dumps(Protobuf(message=CLICK)))
    assert form.message.DESCRIPTOR.full_name == "shop.Click"
    with pytest.raises(ValueError, match=r"a dict or a shop\.Click is wanted; got a int"):
        form.encoder("X", None)(7)
    with pytest.raises(ValueError, match="has no field 'more'"):
        form.encoder("X", None)({"more": 1})
    assert form.encoder("X", None)(CLICK(user="ann")) == b"\n\x03ann"


def test_a_tuple_of_a_message_goes_from_topic_to_topic(broker: Broker, registry: Registry) -> None:
    """The map of a sink makes a message, the spout's `translate` sees a dict."""
    server = SchemaRegistry(registry.url)

    def message(tup: Tuple) -> Any:
        return {"user": tup["user"], "n": tup["n"] + 1}

    (data,) = written(Protobuf(server, CLICK), VALUE, map=message)
    reading = read(broker, Protobuf(server, CLICK), data, fields=("user", "n"))
    assert rows(reading) == [["ann", 8]]
