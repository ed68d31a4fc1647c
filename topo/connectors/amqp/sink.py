"""Publishes tuples to an AMQP exchange.

Publisher confirms are gathered, and waited for once a batch: one confirm a message costs more than
ten times as much. Whatever a broker has confirmed stays published, so at least once is what there
is; with `after_commit` a message that is published twice has the same message_id.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from topo.config.secrets import Secret
from topo.connectors.amqp.broker import REQUIRES, SCHEMES, Access, Broker
from topo.connectors.amqp.spout import check_declare
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad
from topo.connectors.brokers import BrokerSink, Publisher
from topo.connectors.formats import Encode, Format, check_form, requirements_of
from topo.connectors.outbox import Chosen, Outgoing, Refused, chosen
from topo.errors import ComponentError, Unavailable
from topo.tuples import Tuple

_NAME = "AmqpBolt"
_WINDOW = 5_000  # messages that are not confirmed
_PERSISTENT = 2


class AmqpBolt(BrokerSink):
    """A sink of AMQP messages.

    `routing_key` is a text, or a function of the tuple; one that returns None skips it. With the
    default exchange it is the name of a queue. The value is a dict of the tuple's fields, or what
    `map` makes of the tuple, encoded by `value`. `headers` is a function of the tuple, or the field
    that has them. A message that no queue takes is rejected, unless `mandatory` is False.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    schemes = SCHEMES
    client = ("pika", "amqp")
    refused = {
        "exactly_once": "AMQP has no marker that a broker would compare; use after_commit=True, "
        "and drop at the consumer the message_ids that it knows",
        "by_batch": "AMQP replaces nothing that was published; use 'at_least_once'",
    }

    @answering()
    def __init__(
        self,
        url: str | Secret,
        routing_key: str | Callable[[Tuple], str | None],
        *,
        exchange: str = "",
        value: str | Format | Encode = "json",
        map: Callable[[Tuple], Any] | None = None,
        headers: Chosen | None = None,
        persistent: bool = True,
        mandatory: bool = True,
        declare: Mapping[str, Any] | None = None,
        guarantee: str = "at_least_once",
        after_commit: bool = False,
        tls: Mapping[str, Any] | None = None,
        retry_secs: float = 30.0,
        on_bad: OnBad = "stop",
    ) -> None:
        self.set_access(url, tls)
        check_form(value, _NAME, "value", writes=True)
        if not callable(routing_key) and not isinstance(routing_key, str):
            raise ComponentError(
                f"{_NAME}: routing_key={routing_key!r}; it is a text, or a function of tuples"
            )
        self.declare = check_declare(_NAME, declare)
        if declare is not None and (exchange or callable(routing_key)):
            raise ComponentError(
                f"{_NAME}: declare= declares the queue that routing_key names, and it names none",
                hint="declare exchanges, queues and bindings at the broker",
            )
        self.routing_key, self.exchange, self.value = routing_key, exchange, value
        self.headers, self.persistent, self.mandatory = headers, persistent, mandatory
        self.requires = (*self.requires, *requirements_of(value))
        self.set_up(
            guarantee=guarantee,
            after_commit=after_commit,
            map=map,
            on_bad=on_bad,
            retry_secs=retry_secs,
        )

    def connect(self) -> AmqpPublisher:
        return AmqpPublisher(Access(_NAME, self.url, self.tls, 0, self.task_name()), self)

    def outgoing(self, tup: Tuple) -> Outgoing | None:
        key = self.routing_key if isinstance(self.routing_key, str) else self.routing_key(tup)
        if key is None:
            return None
        if len(key.encode()) > 255:
            raise ValueError(f"a routing key of more than 255 bytes: {key[:40]!r}...")
        return Outgoing(key, self._encode(self.as_record(tup)), chosen(self.headers, tup))

    def send(self, records: Sequence[Outgoing]) -> Refused:
        try:
            return super().send(records)
        except Unavailable:
            if self.guarantee != "none":
                raise
            self.context.counter("lost", len(records))
            return []


class AmqpPublisher(Publisher):
    """Publishes messages over a connection whose loop runs while it waits for confirms."""

    def __init__(self, access: Access, sink: AmqpBolt) -> None:
        super().__init__()
        self._broker = Broker(access)
        self._exchange, self._mandatory = sink.exchange, sink.mandatory
        self._declares = None if sink.declare is None else (sink.routing_key, sink.declare)
        self._properties = {
            "delivery_mode": _PERSISTENT if sink.persistent else 1,
            "content_type": "application/json" if sink.value == "json" else None,
        }
        self._loop: Any = None
        self._connection: Any = None
        self._channel: Any = None
        self._is_ready = False
        self._error: Exception | None = None
        self._blocked = ""
        self._tag = 0
        self._open: dict[int, int] = {}  # delivery tags, in order, and the places of their records
        self._places: dict[str, int] = {}  # by message_id, of what is open
        self._confirmed: list[int] = []
        self._enough = 0
        self._done: Callable[[], bool] = lambda: False
        self._running: Any = None  # the loop, while it runs

    def close(self) -> None:
        loop, self._loop, self._is_ready = self._loop, None, False
        connection, self._connection = self._connection, None
        if loop is None:
            return
        self._error = None
        until = time.monotonic() + 1.0
        if connection is not None:
            if not (connection.is_closed or connection.is_closing):
                with contextlib.suppress(self._broker.pika.exceptions.AMQPError):
                    connection.close()
            self._error = None
            self._turn(loop, until, lambda: bool(connection.is_closed))
        self._error = None
        self._turn(loop, time.monotonic(), lambda: False)  # a socket is closed last
        loop.close()

    def attempt(self, left: dict[int, Outgoing], until: float) -> None:
        self._connect(until)
        waiting = deque(left)
        while waiting or self._open:
            for _ in range(min(_WINDOW - len(self._open), len(waiting))):
                place = waiting.popleft()
                self._publish_one(place, left[place])
            self._enough = _WINDOW // 2 if waiting else 0
            done = self._turn(self._loop, until, lambda: len(self._open) <= self._enough)
            confirmed, self._confirmed = self._confirmed, []
            for place in confirmed:
                left.pop(place, None)
            if self._error is not None:
                raise self._error
            if not done:
                blocked = f": it blocks publishers: {self._blocked}" if self._blocked else ""
                raise self._broker.unavailable(f"the broker confirms nothing{blocked}")

    def _publish_one(self, place: int, record: Outgoing) -> None:
        properties = self._broker.pika.BasicProperties(
            message_id=record.id, headers=record.more, **self._properties
        )
        self._tag += 1
        self._open[self._tag] = place
        self._places[record.id] = place
        self._channel.basic_publish(
            self._exchange, record.where, record.body, properties, mandatory=self._mandatory
        )

    # -- the connection -----------------------------------------------------------------------

    def _connect(self, until: float) -> None:
        """Make a connection, unless there is one that lives."""
        if self._loop is not None:
            self._turn(self._loop, time.monotonic(), lambda: False)  # hears of its end
            if self._is_ready and self._error is None:
                return
            self.close()
        self._error, self._tag, self._blocked = None, 0, ""
        for known in (self._open, self._places, self._confirmed, self._refused):
            known.clear()
        pika = self._broker.pika
        self._loop = pika.adapters.select_connection.IOLoop()
        parameters = copy(self._broker.parameters)
        left = max(0.1, until - time.monotonic())
        parameters.stack_timeout = min(parameters.stack_timeout, left)
        pika.SelectConnection.create_connection([parameters], self._answered_at, self._loop)
        until = time.monotonic() + left + 1.0  # pika gives up by itself
        done = self._turn(self._loop, until, lambda: self._is_ready or self._error is not None)
        if self._error is not None:
            raise self._error
        if not done:
            raise self._broker.unavailable("no answer in time")

    def _turn(self, loop: Any, until: float, done: Callable[[], bool]) -> bool:
        """Run the connection's loop until something is done; return False if it is not in time."""
        self._running = loop
        self._done = lambda: done() or self._error is not None
        timer = loop.call_later(max(0.0, until - time.monotonic()), loop.stop)
        if not self._done():
            loop.start()
        loop.remove_timeout(timer)
        self._done, self._running = lambda: False, None
        return done()

    def _stop_if_done(self) -> None:
        if self._running is not None and self._done():
            self._running.stop()

    def _answered_at(self, result: Any) -> None:
        """Hear that a connection was made, or why it was not."""
        if isinstance(result, BaseException):
            self._closed(None, result)
            return
        self._connection = result
        result.add_on_close_callback(self._closed)
        result.add_on_connection_blocked_callback(self._note_blocked)
        result.add_on_connection_unblocked_callback(self._note_unblocked)
        result.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._closed)
        channel.add_on_return_callback(self._returned)
        if self._declares is None:
            self._confirm()
            return
        queue, properties = self._declares
        channel.queue_declare(queue, **properties, callback=lambda _: self._confirm())

    def _confirm(self) -> None:
        self._channel.confirm_delivery(self._answered, callback=self._ready)

    def _ready(self, frame: Any) -> None:
        self._is_ready = True
        self._stop_if_done()

    def _closed(self, who: Any, error: Any) -> None:
        self._is_ready = False
        if self._error is None:
            reason = error if isinstance(error, BaseException) else ConnectionError(str(error))
            self._error = self._broker.in_words(reason)
        self._stop_if_done()

    def _note_blocked(self, connection: Any, frame: Any) -> None:
        self._blocked = str(frame.method.reason)

    def _note_unblocked(self, connection: Any, frame: Any) -> None:
        self._blocked = ""

    def _answered(self, frame: Any) -> None:
        """Note what the broker has confirmed, or will not take."""
        method = frame.method
        tags = [method.delivery_tag]
        if method.multiple:
            tags = []
            for tag in self._open:
                if tag > method.delivery_tag:
                    break
                tags.append(tag)
        is_ack = isinstance(method, self._broker.pika.spec.Basic.Ack)
        for tag in tags:
            place = self._open.pop(tag)
            if is_ack and place not in self._refused:
                self._confirmed.append(place)
        if not is_ack and self._error is None:
            self._error = self._broker.unavailable("the broker takes no more: a queue is full")
        self._stop_if_done()

    def _returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        place = self._places.get(properties.message_id)
        if place is not None:
            reason = f"no queue takes it: {method.reply_text}: routing key {method.routing_key!r}"
            self._refused[place] = ValueError(reason)
