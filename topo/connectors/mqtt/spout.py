"""Reads MQTT topics; the broker keeps each message until its batch has committed.

The session outlives connections and crashes: the broker knows the task by its client id, and
delivers again what was not acked. Subscriptions ask for QoS 1. QoS 2 would lose messages: it hands
a message over in its first step, before topo has committed anything.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice, check_positive, load_client
from topo.connectors.deliveries import Delivery, DeliverySpout, Link
from topo.connectors.formats import Decode, Format
from topo.connectors.mqtt.connection import REQUIRES, SCHEMES, Access, Connection
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "MqttSpout"
_MOST_TOPICS = 10_000  # whose filters are known by heart
_MOST_QUEUED = 100_000
"""Messages that are not acked, QoS 0, and so not bounded by the protocol; then they are dropped."""


class Message(NamedTuple):
    """A message, its value decoded; what `translate` is given."""

    topic: str
    value: Any
    qos: int
    retain: bool
    properties: dict[str, str]
    """The user properties of MQTT 5."""


class MqttSpout(DeliverySpout):
    """A spout of the messages of MQTT topics.

    `topics` is a filter, or several: "sensors/+/celsius". By default a tuple is `(topic, value)`;
    `fields` names others of a `Message`, or, with `value="json"`, those of its value. `translate`
    is given a Message and returns the values to emit, `(stream, values)`, or None for nothing.

    Several tasks share the messages of a shared subscription, `group`; so do several topologies
    that name the same one.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    schemes = SCHEMES
    refused = {
        "exactly_once": "MQTT cannot say whether a message that comes again was committed before; "
        "use 'at_least_once', and drop in a StatefulBolt the ids that it knows",
    }

    @answering()
    def __init__(
        self,
        url: str | Secret,
        topics: str | Iterable[str],
        *,
        guarantee: str = "at_least_once",
        track: bool | None = None,
        retry: Backoff | None = None,
        qos: int = 1,
        group: str | None = None,
        value: str | Format | Decode = "bytes",
        fields: str | Iterable[str] = (),
        translate: Callable[[Message], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        max_in_flight: int = 10_000,
        session_secs: int = 86_400,
        client_id: str | None = None,
        keepalive_secs: int = 60,
        version: int = 5,
        tls: Mapping[str, Any] | None = None,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
    ) -> None:
        self.set_access(url, tls)
        check_choice(_NAME, "qos", qos, (0, 1, 2))
        check_choice(_NAME, "version", version, (4, 5))
        check_positive(
            _NAME,
            max_in_flight=max_in_flight,
            session_secs=session_secs,
            keepalive_secs=keepalive_secs,
        )
        if max_in_flight > 65_535:
            raise ComponentError(f"{_NAME}: max_in_flight={max_in_flight}; MQTT has at most 65,535")
        self.topics = tuple(Fields(topics))
        for topic in self.topics or ("",):
            _check_filter(topic)
        if qos == 0 and guarantee == "at_least_once":
            raise ComponentError(
                f"{_NAME}: the broker forgets messages of QoS 0 as it sends them",
                hint="qos=1, or guarantee='none'",
            )
        self.qos, self.group = qos, group
        self.max_in_flight, self.session_secs, self.client_id = (
            max_in_flight,
            session_secs,
            client_id,
        )
        self.keepalive_secs, self.version = keepalive_secs, version
        self.set_up(
            Message,
            ("topic", "value"),
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

    def connect(self) -> MqttLink:
        context = self.context
        tasks = len(context.component_tasks(context.this_component_id))
        shares = f"topo-{context.topology_name}-{context.this_component_id}"
        group = self.group or (shares if tasks > 1 else None)
        filters = [f"$share/{group}/{topic}" if group else topic for topic in self.topics]
        alone_or_shared = [*self.topics, *(f"$share/{shares}/{topic}" for topic in self.topics)]
        keeps = self.guarantee != "none"
        return MqttLink(
            Access(_NAME, self.url, self.tls, self.version, self.keepalive_secs),
            self.task_name(self.client_id),
            filters,
            min(self.qos, 1) if keeps else self.qos,
            session_secs=self.session_secs if keeps else 0,
            most=self.max_in_flight,
            acks=keeps,
            former=[name for name in alone_or_shared if name not in filters],
            session=self._session,
            wake=context.wake,
            count=context.counter,
        )


def _check_filter(topic: str) -> None:
    levels = topic.split("/")
    wrong = (
        not topic
        or "\0" in topic
        or any(len(level) > 1 and ("+" in level or "#" in level) for level in levels)
        or "#" in levels[:-1]
    )
    if wrong or topic.startswith("$share/"):
        raise ComponentError(
            f"{_NAME}: topics has {topic!r}",
            hint="group= makes a shared subscription"
            if topic.startswith("$share/")
            else '"sensors/+/celsius" or "sensors/#": + is a whole level, # the rest',
        )


def _matcher(filters: Iterable[str]) -> Callable[[str], bool]:
    """Return what says whether a topic is of these filters.

    The broker's session has the filters of earlier runs too, which may have read other topics.
    """
    matches = load_client("paho.mqtt.client", _NAME, "mqtt").topic_matches_sub
    plain = [_without_group(name) for name in filters]
    return lru_cache(_MOST_TOPICS)(lambda topic: any(matches(name, topic) for name in plain))


def _without_group(name: str) -> str:
    return name.split("/", 2)[2] if name.startswith("$share/") else name


class MqttLink(Link):
    """A subscribed connection, and the messages that have arrived by it."""

    def __init__(
        self,
        access: Access,
        client_id: str,
        filters: Sequence[str],
        qos: int,
        *,
        session_secs: int,
        most: int,
        acks: bool,
        former: Sequence[str],
        session: Hashable,
        wake: Callable[[], None],
        count: Callable[[str, int], None],
    ) -> None:
        super().__init__()
        self._connection = connection = Connection(
            access, client_id, session_secs=session_secs, most=most
        )
        self._acks = acks
        self._subscribed = threading.Event()
        self._session_before = session
        self._arrived: deque[Any] = deque()
        self._count = count
        arrived, is_wanted = self._arrived, _matcher(filters)

        def receive(client: Any, userdata: Any, message: Any) -> None:
            if not is_wanted(message.topic):
                self.not_subscribed += 1
                if acks and message.qos:
                    client.ack(message.mid, message.qos)
                return
            if message.qos == 0 and len(arrived) >= _MOST_QUEUED:
                self.dropped += 1
                return
            arrived.append(message)
            if len(arrived) == 1:
                wake()

        self.dropped = self.not_subscribed = 0
        connection.client.manual_ack_set(acks)
        connection.client.on_message = receive
        connection.client.on_subscribe = _Subscribed(connection, filters, self._subscribed)
        connection.on_connected = _Subscribe(connection, filters, qos, former)
        connection.on_ended = wake
        connection.start()

    @property
    def is_ready(self) -> bool:
        return self._subscribed.is_set() and not self._connection.has_ended.is_set()

    def take(self, most: int) -> Sequence[Delivery]:
        connection = self._connection
        if self.session is None and connection.is_connected.is_set():
            known = connection.has_session and self._session_before is not None
            self.session = self._session_before if known else object()
        if self.dropped:
            dropped, self.dropped = self.dropped, 0
            self._count("dropped", dropped)
        if self.not_subscribed:
            passed, self.not_subscribed = self.not_subscribed, 0
            self._count("not_subscribed", passed)
        arrived = self._arrived
        if not arrived or most <= 0:  # what is full is emptied by the next connection
            connection.check()
            return ()
        return [self._delivery(arrived.popleft()) for _ in range(min(most, len(arrived)))]

    def _delivery(self, message: Any) -> Delivery:
        topic = message.topic

        def record(value: Any) -> Message:
            user = getattr(message.properties, "UserProperty", ()) or ()
            return Message(topic, value, message.qos, bool(message.retain), dict(user))

        tag = message.mid if message.qos else None
        return Delivery(tag, message.payload, record, topic, bool(message.dup), self)

    def ack(self, deliveries: Sequence[Delivery]) -> bool:
        connection = self._connection
        if connection.has_ended.is_set() or not self._acks:
            return False
        ack = connection.client.ack
        for delivery in deliveries:
            ack(delivery.tag, 1)
        return True

    def refuse(self, delivery: Delivery) -> None:
        self.ack([delivery])

    def close(self) -> None:
        self._connection.close()


class _Subscribe:
    """The first act of a connection.

    `former` are the filters by which a run with another number of tasks has read these topics: the
    broker's session would deliver each message by both.
    """

    def __init__(
        self, connection: Connection, filters: Sequence[str], qos: int, former: Sequence[str]
    ) -> None:
        self._connection, self._filters, self._qos = connection, filters, qos
        self._former = former

    def __call__(self) -> None:
        client = self._connection.client
        client.subscribe([(topic, self._qos) for topic in self._filters])
        if self._connection.has_session and self._former:
            client.unsubscribe(list(self._former))


class _Subscribed:
    """The broker's answers to the subscriptions."""

    def __init__(
        self, connection: Connection, filters: Sequence[str], done: threading.Event
    ) -> None:
        self._connection, self._filters, self._done = connection, filters, done

    def __call__(self, client: Any, userdata: Any, mid: int, reasons: Any, more: Any) -> None:
        connection = self._connection
        for topic, reason in zip(self._filters, reasons, strict=False):
            if not reason.is_failure:
                continue
            text = f"the broker refuses the subscription {topic!r}: {reason}"
            if str(reason) == "Quota exceeded":
                connection.fail(connection.unavailable(text))
                continue
            hint = "the user needs permission to read it"
            if "hared" in str(reason):
                hint = "without shared subscriptions only one task can read: parallelism=1"
            connection.fail(connection.refused(text, hint))
        self._done.set()
