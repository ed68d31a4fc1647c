"""Producers: one that sends at once, and one whose transactions say which batch they hold.

The marker of a batch is an offset of a consumer group, sent with the transaction: it is there if
and only if the transaction committed. It is read after `init_transactions` and never before: right
after a commit it may still read as it was, since the answer comes before the markers of the
transaction are written everywhere, and `init_transactions` waits for them. It also aborts what a
dead process of the same task has left open, and fences one that lives on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from topo.connectors.kafka.client import RECONNECT_MS, Heard, in_words, made, permanent_error
from topo.errors import ComponentError, Unavailable

_NAME = "KafkaBolt"
_GRACE_SECS = 2.0  # for a call to end by itself
Rejected = list[tuple[list[Any], Exception]]


Record = tuple[str, "bytes | None", "bytes | None", "int | None", "int | None", Any]
"""Topic, key, value, partition, timestamp, headers."""


@dataclass(slots=True)
class Batch:
    """The records of a batch by the column, which are saved in less time and bytes than records."""

    topic: str | list[str]
    """One for all of them, or one each."""
    keys: list[bytes | None]
    values: list[bytes | None]
    more: list[tuple[int | None, int | None, Any]] | None
    """Partition, timestamp and headers of each; None if no record has any."""

    @classmethod
    def of(cls, records: Sequence[Record]) -> Batch:
        """Make a batch of records, of which there is one at least."""
        topics, keys, values, *more = zip(*records, strict=True)
        one = len(set(topics)) == 1
        plain = all(value is None for column in more for value in column)
        return cls(
            topics[0] if one else list(topics),
            list(keys),
            list(values),
            None if plain else list(zip(*more, strict=True)),
        )

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Make one of several plain ones for the same topic, of which there is one at least."""
        keys = [key for batch in batches for key in batch.keys]
        return cls(batches[0].topic, keys, [raw for batch in batches for raw in batch.values], None)

    def __len__(self) -> int:
        return len(self.values)

    def records(self) -> Iterator[Record]:
        topics = repeat(self.topic, len(self)) if isinstance(self.topic, str) else self.topic
        more = self.more or repeat((None, None, None), len(self))
        for topic, key, value, others in zip(topics, self.keys, self.values, more, strict=True):
            yield (topic, key, value, *others)


class _Deliveries(Heard):
    """What a producer tells: its errors, and what was not delivered."""

    def __init__(self, kafka: Any, servers: str) -> None:
        super().__init__()
        self._kafka, self._servers = kafka, servers
        self.rejected: Rejected = []
        self.lost: list[Any] = []
        self.wrong: ComponentError | None = None
        """Why what is lost will never be taken."""

    def note_delivery(self, error: Any, message: Any) -> None:
        """Hear that a message was not delivered."""
        if error is not None:
            self.judge(error, [message.topic(), message.key(), message.value()])

    def judge(self, error: Any, values: list[Any]) -> None:
        """Note what became of a record that was not taken: it is rejected, or lost for now."""
        codes = self._kafka.KafkaError
        poison = (
            codes.MSG_SIZE_TOO_LARGE,
            codes.INVALID_RECORD,
            codes._UNKNOWN_PARTITION,
            codes._INVALID_ARG,
        )
        if error.code() in poison:
            self.rejected.append((values, ValueError(error.str())))
            return
        self.last_error = str(error.str())
        self.wrong = self.wrong or permanent_error(self._kafka, error, self._servers)
        self.lost.append(values)


class _Producer:
    """A librdkafka producer, and what it told."""

    def __init__(self, servers: str, settings: Mapping[str, Any]) -> None:
        import confluent_kafka

        self.kafka = confluent_kafka
        self.servers = servers
        self.heard = deliveries = _Deliveries(confluent_kafka, servers)
        self.producer: Any = made(
            _NAME,
            confluent_kafka.Producer,
            {
                "linger.ms": 5,
                "compression.type": "lz4",
                "reconnect.backoff.max.ms": RECONNECT_MS,
                "log_level": 2,
                **settings,
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "error_cb": deliveries.note_error,
                "delivery.report.only.error": True,
                "on_delivery": deliveries.note_delivery,
            },
        )

    def produce(self, outgoing: Sequence[Any], until: float) -> None:
        """Hand a record to librdkafka; wait while its queue is full."""
        topic, key, value, partition, timestamp, headers = outgoing
        more: dict[str, Any] = {}
        if partition is not None:
            more["partition"] = partition
        if timestamp is not None:
            more["timestamp"] = timestamp
        if headers is not None:
            more["headers"] = headers
        while True:
            try:
                self.producer.produce(topic, value, key, **more)
                return
            except BufferError:
                self.producer.poll(0.1)
                if time.monotonic() > until:
                    raise self.unavailable("its queue stays full") from None

    def produce_all(self, batch: Batch, until: float) -> None:
        """Hand the records of a batch to librdkafka."""
        if isinstance(batch.topic, str) and batch.more is None:
            produce, topic = self.producer.produce, batch.topic
            for key, value in zip(batch.keys, batch.values, strict=True):
                try:
                    produce(topic, value, key)
                except BufferError:
                    self.produce((topic, key, value, None, None, None), until)
            return
        for record in batch.records():
            self.produce(record, until)

    def unavailable(self, doing: str) -> Unavailable:
        """Return what to raise if the brokers cannot be reached."""
        last = f": {self.heard.last_error}" if self.heard.last_error else ""
        return Unavailable(f"Kafka at {self.servers}: {doing}{last}")


class Sender(_Producer):
    """Sends records as they come; idempotent, so that librdkafka's own retries write none twice."""

    def send(self, records: Iterable[Record], secs: float = 30.0) -> Rejected:
        """Send records, each within `secs`; return those that no broker takes, with the reasons."""
        for record in records:
            try:
                self.produce(record, time.monotonic() + secs)
            except self.kafka.KafkaException as error:
                self.heard.judge(error.args[0], list(record))
        self.producer.poll(0)
        return self._taken()

    def flush(self, secs: float) -> Rejected:
        """Wait until all is delivered; raise Unavailable if that takes too long."""
        left = self.producer.flush(secs)
        deliveries = self.heard
        if left or deliveries.lost:
            count, deliveries.lost = left + len(deliveries.lost), []
            self.producer.purge()
            if deliveries.wrong is not None:
                raise deliveries.wrong
            raise self.unavailable(f"{count} records are not delivered")
        return self._taken()

    def close(self) -> None:
        """Free librdkafka's object; what was not flushed belongs to no commit."""
        self.producer = None

    def _taken(self) -> Rejected:
        taken, self.heard.rejected = self.heard.rejected, []
        return taken


class Publisher:
    """Publishes batches, each in a transaction with its marker, in their order."""

    def __init__(
        self, servers: str, name: str, settings: Mapping[str, Any], retry_secs: float
    ) -> None:
        self._servers = servers
        self._name = name
        self._settings = settings
        self._retry_secs = retry_secs
        self._producer: _Producer | None = None
        self._group: Any = None
        self._markers: dict[str, int] = {}  # by topic, the last batch that is published
        self._last = -1

    def connect(self, secs: float) -> None:
        """Make the producer, if the brokers answer in time; raise what is wrong for good."""
        try:
            if self._producer is None:
                self._begin(secs)
        except Unavailable:  # `publish` waits for them, once there is something to publish
            self.close()

    def publish(self, batch: int, records: Batch) -> int:
        """Publish a batch, unless it is; return how many records that were."""
        until = time.monotonic() + self._retry_secs
        topic = records.topic if isinstance(records.topic, str) else min(records.topic)
        while True:
            try:
                return self._publish(batch, records, topic, until)
            except Unavailable:
                self.close()
                if time.monotonic() >= until:
                    raise
                time.sleep(min(1.0, max(0.0, until - time.monotonic())))

    def _publish(self, batch: int, records: Batch, topic: str, until: float) -> int:
        if self._producer is None:
            self._begin(self._retry_secs)
        producer = self._producer
        assert producer is not None
        if self._marker(topic) >= batch:
            return 0
        kafka = producer.kafka
        try:
            producer.producer.begin_transaction()
            producer.produce_all(records, until)
            marker = kafka.TopicPartition(topic, 0, batch)
            send, group = producer.producer.send_offsets_to_transaction, self._group
            self._call(self._timeout(until), send, [marker], group.consumer_group_metadata())
            self._call(self._timeout(until), producer.producer.commit_transaction)
        except kafka.KafkaException as error:
            raise in_words(
                kafka, error.args[0], self._servers, producer.heard.last_error
            ) from error
        self._markers[topic] = batch
        return len(records)

    def _begin(self, secs: float) -> None:
        """Make the producer, and have what a dead one has left open aborted."""
        settings = {**self._settings, "transactional.id": self._name}
        self._producer = producer = _Producer(self._servers, settings)
        try:
            self._call(secs, producer.producer.init_transactions)
        except producer.kafka.KafkaException as error:
            raise in_words(
                producer.kafka, error.args[0], self._servers, producer.heard.last_error
            ) from error
        shared = {
            name: value
            for name, value in self._settings.items()
            if name.startswith(("sasl.", "ssl.", "security."))
        }
        self._group = made(
            _NAME,
            producer.kafka.Consumer,
            {
                **shared,
                "bootstrap.servers": self._servers,
                "group.id": self._name,
                "log_level": 2,
                "enable.auto.commit": False,
            },
        )
        self._markers = {}

    def _marker(self, topic: str) -> int:
        """Return the last batch whose marker is there."""
        if topic not in self._markers:
            assert self._producer is not None
            kafka = self._producer.kafka
            try:
                (found,) = self._group.committed(
                    [kafka.TopicPartition(topic, 0)], timeout=self._retry_secs
                )
            except kafka.KafkaException as error:
                last = self._producer.heard.last_error
                raise in_words(kafka, error.args[0], self._servers, last) from error
            self._markers[topic] = found.offset if found.offset >= 0 else -1
        return self._markers[topic]

    def _call(self, secs: float, call: Callable[..., Any], *values: Any) -> None:
        """Make a call that ends within `secs`; raise Unavailable if it does not.

        librdkafka waits for a coordinator that is gone for a minute or for ever, whatever it is
        told. Such a call is left to its thread, with its producer: the next one fences it.
        """
        raised: list[BaseException] = []

        def run() -> None:
            try:
                call(*values, secs)
            except BaseException as error:
                # Nobody may be waiting any more, and its frames hold this list: a cycle, with the
                # producer in it.
                raised.append(error.with_traceback(None))

        thread = threading.Thread(target=run, name="topo-kafka", daemon=True)
        thread.start()
        thread.join(secs + _GRACE_SECS)
        if raised:
            raise raised.pop()  # a name for it would be a cycle, by way of this frame
        if thread.is_alive():
            assert self._producer is not None
            raise self._producer.unavailable("the coordinator of transactions does not answer")

    def _timeout(self, until: float) -> float:
        return max(1.0, until - time.monotonic())

    def close(self) -> None:
        """Forget the producer: another one aborts what it has left open."""
        if self._group is not None:
            self._group.close()
        self._producer = self._group = None
