"""Writes tuples to MQTT topics.

MQTT has no transactions: a message that was published stays so. At least once is what there is; the
user property `topo-batch` of a message lets a consumer know it again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice, check_positive
from topo.connectors.brokers import BrokerSink, Publisher
from topo.connectors.formats import Encode, Format, check_form, requirements_of
from topo.connectors.mqtt.connection import REQUIRES, SCHEMES, Access, Connection
from topo.connectors.outbox import Outgoing
from topo.errors import ComponentError
from topo.tuples import Tuple

_NAME = "MqttBolt"
_MOST_BYTES = 268_435_455  # of a packet; a topic's name and properties belong to it
_WINDOW = 1_000
_NOBODYS = -1
"""The place of a record that nobody waits for."""

_REFUSED_RECORDS = ("Topic name invalid", "Packet too large", "Payload format invalid",
                    "Not authorized", "QoS not supported", "Retain not supported")  # fmt: skip


class MqttBolt(BrokerSink):
    """A sink of MQTT messages.

    `topic` is a name, or a function of the tuple; one that returns None skips it. The value is a
    dict of the tuple's fields, or what `map` makes of the tuple, encoded by `value`. `retain` lets
    the broker keep the last message of a topic for those who subscribe later.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    schemes = SCHEMES
    client = ("paho.mqtt.client", "mqtt")
    refused = {
        "exactly_once": "MQTT has no transactions; use after_commit=True, and drop at the consumer "
        "what it knows by the user property topo-batch",
        "by_batch": "MQTT replaces nothing that was published; use 'at_least_once'",
    }

    @answering()
    def __init__(
        self,
        url: str | Secret,
        topic: str | Callable[[Tuple], str | None],
        *,
        qos: int = 1,
        retain: bool = False,
        value: str | Format | Encode = "json",
        map: Callable[[Tuple], Any] | None = None,
        guarantee: str = "at_least_once",
        after_commit: bool = False,
        client_id: str | None = None,
        keepalive_secs: int = 60,
        version: int = 5,
        tls: Mapping[str, Any] | None = None,
        retry_secs: float = 30.0,
        on_bad: OnBad = "stop",
    ) -> None:
        self.set_access(url, tls)
        check_choice(_NAME, "qos", qos, (0, 1, 2))
        check_choice(_NAME, "version", version, (4, 5))
        check_form(value, _NAME, "value", writes=True)
        check_positive(_NAME, keepalive_secs=keepalive_secs)
        if qos == 0 and guarantee == "at_least_once":
            raise ComponentError(
                f"{_NAME}: nobody confirms a message of QoS 0", hint="qos=1, or guarantee='none'"
            )
        if isinstance(topic, str):
            _check_topic(topic)
        elif not callable(topic):
            raise ComponentError(f"{_NAME}: topic={topic!r}; it is a name, or a function of tuples")
        self.topic, self.qos, self.retain, self.value = topic, qos, retain, value
        self.client_id, self.keepalive_secs, self.version = client_id, keepalive_secs, version
        self.requires = (*self.requires, *requirements_of(value))
        self.set_up(
            guarantee=guarantee,
            after_commit=after_commit,
            map=map,
            on_bad=on_bad,
            retry_secs=retry_secs,
        )

    def connect(self) -> MqttPublisher:
        return MqttPublisher(
            Access(_NAME, self.url, self.tls, self.version, self.keepalive_secs),
            self.task_name(self.client_id),
            qos=self.qos,
            retain=self.retain,
            waits=self.guarantee != "none",
        )

    def outgoing(self, tup: Tuple) -> Outgoing | None:
        topic = self.topic if isinstance(self.topic, str) else self.topic(tup)
        if topic is None:
            return None
        if not isinstance(self.topic, str):
            _check_topic(topic)
        body = self._encode(self.as_record(tup))
        if len(body) > _MOST_BYTES - 70_000:
            raise ValueError(f"a message of {len(body):,} bytes is more than MQTT has")
        return Outgoing(topic, body)


def _check_topic(topic: Any) -> None:
    if not isinstance(topic, str) or not topic or any(char in topic for char in "+#\0"):
        raise ComponentError(
            f"{_NAME}: topic={topic!r}; it is a name without + and #",
            hint='"sensors/hall/celsius"',
        )
    if len(topic.encode()) > 65_535:
        raise ComponentError(f"{_NAME}: a topic of more than 65,535 bytes: {topic[:40]!r}...")


class MqttPublisher(Publisher):
    """Publishes messages, and waits for the broker's confirmations."""

    def __init__(
        self, access: Access, client_id: str, *, qos: int, retain: bool, waits: bool
    ) -> None:
        super().__init__()
        self._access, self._client_id = access, client_id
        self._qos, self._retain, self._waits = qos, retain, waits
        self._connection: Connection | None = None
        self._changed = threading.Condition()
        self._open: dict[int, int] = {}  # message ids, and the places of their records
        self._early: dict[int, Any] = {}  # confirmations that came before their ids were known
        self._confirmed: list[int] = []

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self, until: float) -> Connection:
        connection = self._connection
        if connection is not None and not connection.has_ended.is_set():
            return connection
        self.close()
        connection = Connection(self._access, self._client_id, session_secs=0, most=65_535)
        self._connection = connection
        self._open.clear()
        self._early.clear()
        self._confirmed.clear()
        connection.client.on_publish = self._published
        connection.on_ended = self._notify
        connection.on_connected = self._notify
        connection.start()
        with self._changed:
            self._changed.wait_for(
                lambda: connection.is_connected.is_set() or connection.has_ended.is_set(),
                max(0.0, until - time.monotonic()),
            )
        connection.check()
        if not connection.is_connected.is_set():
            raise connection.unavailable("no answer in time")
        return connection

    def attempt(self, left: dict[int, Outgoing], until: float) -> None:
        connection = self._connected(until)
        window = min(connection.window, _WINDOW)
        waiting = deque(left)
        while waiting or self._open:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        len(self._open) < (window if waiting else 1)
                        or connection.has_ended.is_set()
                    ),
                    max(0.0, until - time.monotonic()),
                )
                room = window - len(self._open)
            self._take_out(left)
            connection.check()
            if time.monotonic() > until:
                raise connection.unavailable("the broker confirms nothing")
            for _ in range(min(room, len(waiting))):
                place = waiting.popleft()
                self._publish_one(connection, place, left[place])
            if not self._waits and not waiting:
                with self._changed:
                    self._open = dict.fromkeys(self._open, _NOBODYS)
                left.clear()
                return
        self._take_out(left)

    def _publish_one(self, connection: Connection, place: int, record: Outgoing) -> None:
        more = connection.properties("PUBLISH", UserProperty=("topo-batch", record.id))
        try:
            info = connection.client.publish(
                record.where, record.body, self._qos, self._retain, more
            )
        except ValueError as error:
            self._refused[place] = error
            return
        if info.rc != 0:
            raise connection.unavailable("the connection is lost")
        with self._changed:
            if info.mid in self._early:
                self._confirm(place, self._early.pop(info.mid))
            else:
                self._open[info.mid] = place

    def _take_out(self, left: dict[int, Outgoing]) -> None:
        """Forget what is confirmed."""
        with self._changed:
            confirmed, self._confirmed = self._confirmed, []
        for place in confirmed:
            left.pop(place, None)

    # -- the connection's thread --------------------------------------------------------------

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _published(self, client: Any, userdata: Any, mid: int, reason: Any, more: Any) -> None:
        with self._changed:
            place = self._open.pop(mid, None)
            if place is None:
                self._early[mid] = reason
            else:
                self._confirm(place, reason)
            self._changed.notify_all()

    def _confirm(self, place: int, reason: Any) -> None:
        if not reason.is_failure:
            self._confirmed.append(place)
        elif str(reason) in _REFUSED_RECORDS and place != _NOBODYS:
            self._refused[place] = ValueError(f"the broker refuses it: {reason}")
        elif self._connection is not None and self._waits:
            self._connection.fail(
                self._connection.unavailable(f"the broker refuses a message: {reason}")
            )
