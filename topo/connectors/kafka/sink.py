"""Writes tuples to Kafka topics.

`at_least_once` produces in `execute` and waits for the brokers in `pre_commit`. `exactly_once`
keeps a batch's records in state and publishes them, once the batch has committed, in a transaction
that also says which batch it was. Nothing is open in Kafka between batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from topo.columns import TakesColumns
from topo.config.secrets import revealed
from topo.connectors.arguments import answering
from topo.connectors.base import (
    Guarantee,
    OnBad,
    as_record,
    check_choice,
    check_positive,
    load_client,
    record_of,
    rows_of,
)
from topo.connectors.formats import (
    Encode,
    Format,
    Place,
    check_form,
    dump_json,
    dump_json_rows,
    encoder,
    passes_on,
    requirements_of,
)
from topo.connectors.kafka.client import REQUIRES, check_settings
from topo.connectors.kafka.publisher import Batch, Publisher, Record, Sender
from topo.connectors.kafka.topics import NewTopic, TopicAdmin
from topo.connectors.publication import Bad, PublishingSink, Rejected
from topo.errors import ComponentError, did_you_mean
from topo.takeover import Belongings, Claim, close_earlier, hold, let_go
from topo.tuples import Tuple
from topo.ways import BY_BATCH, BY_TUPLE

_NAME = "KafkaBolt"
_MOST_BYTES = 1_000_000
_CONNECT_SECS = 5.0
_OWNED = {
    "bootstrap.servers": "it is the first argument",
    "delivery.report.only.error": "what is delivered is not reported",
    "enable.idempotence": "it is always on",
    "error_cb": "errors are the reason of STALLED, and in topo errors",
    "metadata.broker.list": "it is the first argument",
    "on_delivery": "what is not delivered goes to `rejected`, or is sent again",
    "transactional.id": "guarantee='exactly_once' sets it, for each task its own",
}


class KafkaBolt(TakesColumns, PublishingSink):
    """A sink of Kafka records.

    `topic` is a name, or a function of the tuple; one that returns None skips it. A value is a dict
    of the tuple's fields, or what `map` makes of the tuple, encoded by `value`. `key`, `partition`,
    `timestamp` (milliseconds) and `headers` are a field's name or a function of the tuple. With
    `create=NewTopic(partitions=6)` a topic that is missing is made before the first record.

    With no more than a topic, a field as key, and forms by name, tuples are taken by the column.
    Rejected records go to their stream with the tuple that each is of, so that `on_bad="stream"`
    takes tuples.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = (
        "_sender",
        "_publisher",
        "_admin",
        "_open",
        "_claim",
        "_batch",
        "_columns",
        "_encoders",
        "_most",
        "_has_more",
    )

    @answering()
    def __init__(
        self,
        servers: str,
        topic: str | Callable[[Tuple], str | None],
        *,
        key: str | Callable[[Tuple], Any] | None = None,
        value: str | Format | Encode = "json",
        key_format: str | Format | Encode = "str",
        map: Callable[[Tuple], Any] | None = None,
        partition: str | Callable[[Tuple], int] | None = None,
        timestamp: str | Callable[[Tuple], int] | None = None,
        headers: str | Callable[[Tuple], Any] | None = None,
        guarantee: Guarantee = "at_least_once",
        on_bad: OnBad = "stop",
        create: NewTopic | None = None,
        retry_secs: float = 30.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(servers, str) or not servers:
            raise ComponentError(f'{_NAME}: servers={servers!r}; it is "host:port,host:port"')
        if not (isinstance(topic, str) and topic) and not callable(topic):
            raise ComponentError(f"{_NAME}: topic={topic!r}; it is a name, or a function of tuples")
        check_choice(_NAME, "guarantee", guarantee, ("none", "at_least_once", "exactly_once"))
        check_positive(_NAME, retry_secs=retry_secs)
        check_form(value, _NAME, "value", writes=True, asks=True)
        check_form(key_format, _NAME, "key_format", writes=True, asks=True)
        self.requires = (REQUIRES, *requirements_of(value, key_format))
        self.servers, self.settings = servers, dict(settings or {})
        check_settings(_NAME, self.settings, _OWNED)
        self.create = create
        self.topic, self.key, self.value, self.key_format = topic, key, value, key_format
        self.map, self.partition, self.timestamp, self.headers = map, partition, timestamp, headers
        self.guarantee, self.retry_secs = guarantee, retry_secs
        self.set_on_bad(on_bad)
        by_columns = (
            not any(callable(each) for each in (topic, key, value, key_format))
            and all(each is None for each in (map, partition, timestamp, headers))
            and on_bad != "stream"
            and type(self).execute is KafkaBolt.execute
        )
        self.hook = BY_BATCH if by_columns else BY_TUPLE

    # -- life ---------------------------------------------------------------------------------

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        load_client("confluent_kafka", _NAME, "kafka")
        self._encoders: dict[str, tuple[Encode, Encode]] = {}  # by topic
        self._batch: list[Record] = []
        self._columns: list[Batch] = []
        self._most = int(self.settings.get("message.max.bytes", _MOST_BYTES))
        self._has_more = any((self.partition, self.timestamp, self.headers))
        self._admin: TopicAdmin | None = None
        self._sender: Sender | None = None
        self._publisher: Publisher | None = None
        close_earlier(self.context)
        self._open = Belongings()
        self._claim: Claim = hold(self.context, self._open)
        if self.guarantee == "exactly_once":
            self.publisher().connect(min(self.retry_secs, _CONNECT_SECS))

    def cleanup(self) -> None:
        sender, self._sender, self._publisher, self._admin = self._sender, None, None, None
        try:
            if sender is not None:
                sender.flush(self.retry_secs)
        finally:
            let_go(self.context, self._open)

    def sender(self) -> Sender:
        """Return the producer of records that are not in a transaction."""
        if self._sender is None:
            self._sender = Sender(self.servers, revealed(self.settings))
            self._open.add(self._sender.close)
        return self._sender

    def publisher(self) -> Publisher:
        """Return the producer of transactions."""
        if self._publisher is None:
            context = self.context
            name = f"topo/{context.checkpoint_id}/{context.this_component_id}"
            self._publisher = Publisher(
                self.servers,
                f"{name}/{context.this_task_index}",
                revealed(self.settings),
                self.retry_secs,
            )
            self._open.add(self._publisher.close)
        return self._publisher

    def look_for_topic(self, topic: str) -> None:
        """Make a topic that is missing, or raise Unavailable."""
        if self._admin is None:
            self._admin = TopicAdmin(_NAME, self.servers, revealed(self.settings))
            self._open.add(self._admin.close)
        if self.create is None:
            self._admin.look_for(topic)
        elif self._admin.ensure(topic, self.create):
            self.context.counter("topics_created")

    # -- a batch ------------------------------------------------------------------------------

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            return
        try:
            outgoing = self._outgoing(tup)
        except Exception as error:
            if passes_on(error):
                raise
            self.reject(list(tup.values), error)
            return
        if outgoing is None:
            self.context.counter("skipped")
        elif self.guarantee == "exactly_once":
            self._batch.append(outgoing)
        else:
            for values, reason in self.sender().send([outgoing]):
                self.reject(values, reason)

    def _outgoing(self, tup: Tuple) -> Record | None:
        topic = self.topic if isinstance(self.topic, str) else self.topic(tup)
        if topic is None:
            return None
        encode_key, encode = self._encoders.get(topic) or self._encoders_of(topic)
        key, record = _chosen(self.key, tup), as_record(tup, self.map)
        raw_key = None if key is None else encode_key(key)
        raw = None if record is None else encode(record)
        self._check_sizes([raw_key], [raw])
        if not self._has_more:
            return topic, raw_key, raw, None, None, None
        return (
            topic,
            raw_key,
            raw,
            _chosen(self.partition, tup),
            _chosen(self.timestamp, tup),
            _chosen(self.headers, tup),
        )

    def _encoders_of(self, topic: str) -> tuple[Encode, Encode]:
        """Return what makes keys and values of a topic, which is there then, or is made."""
        self.look_for_topic(topic)
        encoders = self._encoders[topic] = (
            encoder(self.key_format, _NAME, "key_format", Place(topic, "key")),
            encoder(self.value, _NAME, "value", Place(topic, "value")),
        )
        return encoders

    def process_columns(
        self, fields: Sequence[str], columns: Sequence[Sequence[Any]], count: int
    ) -> None:
        """Write what can be written of them; reject, skip or stop at the others."""
        assert isinstance(self.topic, str)
        bad: Bad = {}
        try:
            batch = self._raw(self.topic, fields, columns, count)
        except Exception as error:
            if passes_on(error):
                raise
            batch = self._raw_of_each(self.topic, fields, columns, count, bad)
        if self.guarantee == "exactly_once":
            self._columns.append(batch)
        elif batch:
            for row, reason in self.sender().send(batch.records()):
                self.reject(row, reason)
        self.reject_some(bad)

    def _raw(
        self, topic: str, fields: Sequence[str], columns: Sequence[Sequence[Any]], count: int
    ) -> Batch:
        """Return tuples as records; raise if one of them cannot be one, or is too long."""
        encode_key, encode = self._encoders.get(topic) or self._encoders_of(topic)
        values: list[bytes | None]
        if encode is dump_json:
            values = [*dump_json_rows(fields, columns, count)]
        else:
            values = [encode(record_of(fields, row)) for row in rows_of(columns, count)]
        keys: list[bytes | None] = [None] * count
        if isinstance(self.key, str):
            if self.key not in fields:
                hint = did_you_mean(self.key, fields) or f"they are {', '.join(fields)}"
                raise ValueError(f"key={self.key!r} is no field; {hint}")
            column = columns[fields.index(self.key)]
            keys = [None if key is None else encode_key(key) for key in column]
        self._check_sizes(keys, values)
        return Batch(topic, keys, values, None)

    def _check_sizes(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        for key, value in zip(keys, values, strict=True):
            if len(key or b"") + len(value or b"") > self._most:
                raise ValueError(f"a record of more than {self._most} bytes (message.max.bytes)")

    def _raw_of_each(
        self,
        topic: str,
        fields: Sequence[str],
        columns: Sequence[Sequence[Any]],
        count: int,
        bad: Bad,
    ) -> Batch:
        """Return those of them that can be records, and note the others."""
        batches = [Batch(topic, [], [], None)]
        for place, row in enumerate(rows_of(columns, count)):
            try:
                batches.append(self._raw(topic, fields, [[each] for each in row], 1))
            except Exception as error:
                if passes_on(error):
                    raise
                bad[place] = list(row), error
        return Batch.joined(batches)

    def pre_commit(self, batch_id: int) -> None:
        """Wait for the brokers; or keep the batch until it has committed."""
        if self.guarantee == "exactly_once":
            batch, self._batch = self._batch, []
            columns, self._columns = self._columns, []
            if batch:
                self.keep(batch_id, Batch.of(batch))
            elif columns:
                self.keep(batch_id, Batch.joined(columns))
        elif self._sender is not None and self.guarantee == "at_least_once":
            for values, reason in self._sender.flush(self.retry_secs):
                self.reject(values, reason)

    def publish(self, number: int, batch: Any) -> Rejected:
        """Publish a batch, unless its transaction says that it is published."""
        if isinstance(batch, list):  # as an earlier topo has saved it
            batch = Batch.of(batch)
        self.context.counter("published", self.publisher().publish(number, batch))
        return []


def _chosen(given: str | Callable[[Tuple], Any] | None, tup: Tuple) -> Any:
    if given is None:
        return None
    return tup[given] if isinstance(given, str) else given(tup)
