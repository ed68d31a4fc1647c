"""Reads AMQP queues; the broker keeps each message until its batch has committed.

The connection is served from `next_tuple`, in the task's own thread: pika needs no other. Acks of a
batch are one frame. What is not acked when the connection ends, the broker delivers again.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from topo.config.secrets import Secret
from topo.connectors.amqp.broker import REQUIRES, SCHEMES, Access, Broker
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_positive
from topo.connectors.deliveries import Delivery, DeliverySpout, Link
from topo.connectors.formats import Decode, Format
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "AmqpSpout"


class Message(NamedTuple):
    """A message, its value decoded; what `translate` is given."""

    queue: str
    exchange: str
    routing_key: str
    value: Any
    headers: dict[str, Any]
    message_id: str | None
    redelivered: bool
    timestamp: int | None
    """Seconds since 1970, if the publisher has said."""


class AmqpSpout(DeliverySpout):
    """A spout of the messages of AMQP queues.

    By default a tuple is `(routing_key, value)`; `fields` names others of a `Message`, or, with
    `value="json"`, those of its value. `translate` is given a Message and returns the values to
    emit, `(stream, values)`, or None for nothing. Several tasks compete for the messages.

    `max_in_flight` is how many messages the broker gives a task before the first is acked. One that
    failed more often than `retry` says is rejected: its queue's dead-letter exchange gets it.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    schemes = SCHEMES
    refused = {
        "exactly_once": "AMQP cannot say whether a message that comes again was committed before; "
        "use 'at_least_once', and drop in a StatefulBolt the message_ids that it knows",
    }

    @answering()
    def __init__(
        self,
        url: str | Secret,
        queue: str | Iterable[str],
        *,
        guarantee: str = "at_least_once",
        track: bool | None = None,
        retry: Backoff | None = None,
        max_in_flight: int = 5_000,
        declare: Mapping[str, Any] | None = None,
        value: str | Format | Decode = "bytes",
        fields: str | Iterable[str] = (),
        translate: Callable[[Message], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        heartbeat_secs: int = 180,
        tls: Mapping[str, Any] | None = None,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
    ) -> None:
        self.set_access(url, tls)
        check_positive(_NAME, max_in_flight=max_in_flight, heartbeat_secs=heartbeat_secs)
        if max_in_flight > 65_535:
            raise ComponentError(f"{_NAME}: max_in_flight={max_in_flight}; AMQP has at most 65,535")
        self.queues = tuple(Fields(queue))
        if not self.queues or not all(self.queues):
            raise ComponentError(f"{_NAME}: queue={queue!r} names no queue")
        self.max_in_flight, self.heartbeat_secs = max_in_flight, heartbeat_secs
        self.declare = check_declare(_NAME, declare)
        self.set_up(
            Message,
            ("routing_key", "value"),
            guarantee=guarantee,
            track=track,
            retry=retry,
            most_held=max_in_flight,
            value=value,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )

    def deactivate(self) -> None:
        """Leave the queues to others, unless messages are on their way."""
        if not self._held:
            self._let_go()

    def connect(self) -> AmqpLink:
        access = Access(_NAME, self.url, self.tls, self.heartbeat_secs, self.task_name())
        acks = self.guarantee != "none"
        return AmqpLink(access, self.queues, self.max_in_flight, self.declare, acks=acks)

    def pre_commit(self, batch_id: int) -> None:
        super().pre_commit(batch_id)
        if isinstance(self._link, AmqpLink):
            for queue, length in self._link.lengths.items():
                self.context.gauge("length", length, queue=queue)


_DECLARED = ("durable", "exclusive", "auto_delete", "arguments")


def check_declare(connector: str, declare: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the properties of queues to declare; raise ComponentError for unknown ones."""
    if declare is None:
        return None
    unknown = [name for name in declare if name not in _DECLARED]
    if unknown:
        raise ComponentError(
            f"{connector}: declare has {unknown[0]!r}; it has {', '.join(_DECLARED)}",
            hint='declare={"durable": True, "arguments": {"x-queue-type": "quorum"}}',
        )
    return {"durable": True, **declare}


class AmqpLink(Link):
    """A connection with consumers, and the messages that have arrived by it."""

    def __init__(
        self,
        access: Access,
        queues: Sequence[str],
        max_in_flight: int,
        declare: Mapping[str, Any] | None,
        *,
        acks: bool,
    ) -> None:
        super().__init__()
        self._broker = broker = Broker(access)
        self._queues, self._max_in_flight, self._declare, self._acks = (
            queues,
            max_in_flight,
            declare,
            acks,
        )
        self._arrived: deque[Delivery] = deque()
        self._unacked: dict[int, None] = {}  # delivery tags, in order
        self._cancelled = ""
        self.lengths: dict[str, int] = {}
        """The messages of each queue when the connection was made."""
        self._errors = (broker.pika.exceptions.AMQPError, OSError)
        self._connection: Any = None
        self._lost: Exception | None = None
        """Why the connection ended while nothing was taken."""
        self._channel: Any = None

    @property
    def is_ready(self) -> bool:
        return self._channel is not None and bool(self._channel.is_open)

    def take(self, most: int) -> Sequence[Delivery]:
        try:
            if self._lost is not None:
                raise self._lost
            if self._connection is None:
                self._connect()
            self._connection.process_data_events(time_limit=0)
        except self._errors as error:
            raise self._broker.in_words(error) from error
        if self._cancelled:
            raise self._broker.in_words(ConnectionError(self._cancelled))
        if not self._channel.is_open:
            raise self._broker.in_words(ConnectionError("the channel is closed"))
        arrived = self._arrived
        taken = [arrived.popleft() for _ in range(min(most, len(arrived)))]
        if taken and not self._acks:
            self.ack(taken)
        return taken

    def keep_alive(self) -> None:
        """Answer the broker's heartbeats, or it takes all messages back."""
        if self._connection is None or self._lost is not None:
            return
        try:
            self._connection.process_data_events(time_limit=0)
        except self._errors as error:
            self._lost = error  # asked once more, pika would raise a ValueError

    def _connect(self) -> None:
        pika = self._broker.pika
        self._connection = connection = pika.BlockingConnection(self._broker.parameters)
        self._channel = channel = connection.channel()
        self.session = object()
        channel.add_on_cancel_callback(self._cancel)
        channel.basic_qos(prefetch_count=self._max_in_flight)
        for queue in self._queues:
            if self._declare is None:
                found = channel.queue_declare(queue, passive=True)
            else:
                found = channel.queue_declare(queue, **self._declare)
            self.lengths[queue] = int(found.method.message_count)
        for queue in self._queues:
            channel.basic_consume(queue, partial(self._receive, queue))

    def _receive(self, queue: str, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Note a message that has arrived."""
        headers = dict(properties.headers or {})

        def record(value: Any) -> Message:
            return Message(
                queue,
                method.exchange,
                method.routing_key,
                value,
                headers,
                properties.message_id,
                bool(method.redelivered),
                properties.timestamp,
            )

        where = f"{queue}, message {properties.message_id or method.delivery_tag}"
        tag = (self.session, method.delivery_tag) if self._acks else None
        delivery = Delivery(tag, body, record, where, bool(method.redelivered), self)
        delivery.number = method.delivery_tag
        delivery.failures = int(headers.get("x-delivery-count", 0))
        self._unacked[method.delivery_tag] = None
        self._arrived.append(delivery)

    def _cancel(self, method: Any) -> None:
        self._cancelled = "the broker has cancelled the reading: a queue was deleted"

    def ack(self, deliveries: Sequence[Delivery]) -> bool:
        done = {delivery.number for delivery in deliveries}
        run = 0
        for number in self._unacked:
            if number not in done:
                break
            run = number
        try:
            if run:
                self._channel.basic_ack(run, multiple=True)
            for number in done:
                if number > run:
                    self._channel.basic_ack(number)
        except self._errors:
            return False
        for number in done:
            self._unacked.pop(number, None)
        return True

    def refuse(self, delivery: Delivery) -> None:
        with contextlib.suppress(*self._errors):
            self._channel.basic_nack(delivery.number, requeue=False)
        self._unacked.pop(delivery.number, None)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it is lost, or closed
            if self._connection is not None and self._connection.is_open:
                self._connection.close()
