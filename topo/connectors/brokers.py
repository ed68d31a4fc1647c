"""The parts of MQTT and AMQP: access to a broker, and sinks that keep a connection to it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topo.config.secrets import Secret
from topo.connectors.addresses import check_tls, check_url
from topo.connectors.base import load_client
from topo.connectors.formats import Encode, Format, encoder
from topo.connectors.outbox import OutboxSink, Outgoing, Refused
from topo.context import TopologyContext
from topo.errors import ComponentError, Unavailable
from topo.takeover import Claim, Shared, close_earlier, hold

_PAUSE_SECS = 0.25
"""Before a broker that was lost is connected to again."""


class BrokerAccess:
    """The arguments of a component by which it reaches a broker, and its name there."""

    connector = ""
    schemes: Mapping[str, int] = {}
    """The schemes of its URLs, with their ports."""
    context: TopologyContext

    def set_access(self, url: str | Secret, tls: Mapping[str, Any] | None) -> None:
        """Check and keep how the broker is reached; called by the constructor."""
        check_url(self.connector, url, self.schemes)
        check_tls(self.connector, tls)
        self.url, self.tls = url, None if tls is None else dict(tls)

    def task_name(self, first: str | None = None) -> str:
        """Return a name that this task alone has, and keeps; `first` names its component."""
        context = self.context
        first = first or f"topo/{context.topology_name}/{context.this_component_id}"
        return f"{first}/{context.this_task_index}"


class Publisher(Shared):
    """What publishes records, and connects again if it has to."""

    def __init__(self) -> None:
        self._refused: dict[int, Exception] = {}
        """By their places, the records that the broker refuses."""

    def attempt(self, left: dict[int, Outgoing], until: float) -> None:
        """Publish what is left, and take out of it what the broker has confirmed.

        `left` has the records by their places; `until` is a time of the monotonic clock.
        """
        raise NotImplementedError

    def publish(self, records: Sequence[Outgoing], secs: float) -> Refused:
        """Publish records; return those that the broker refuses, raise Unavailable in the end."""
        until = time.monotonic() + secs
        left = dict(enumerate(records))
        refused: Refused = []
        while left:
            try:
                self.attempt(left, until)
            except Unavailable as error:
                self.close()
                if time.monotonic() + _PAUSE_SECS >= until:
                    reason = f"{error.message}; {len(left)} messages are not confirmed"
                    raise Unavailable(reason) from error
                time.sleep(_PAUSE_SECS)
            except ComponentError:
                self.close()
                raise
            finally:
                for place, reason_of in self._refused.items():
                    refused.append((left.pop(place), reason_of))
                self._refused.clear()
        return refused


class BrokerSink(BrokerAccess, OutboxSink):
    """A sink with a connection that lives from batch to batch, and outlives a rebuilt instance."""

    client: tuple[str, str]
    """The module of the client's library, and the extra that installs it."""
    value: str | Format | Encode
    transient: Iterable[str] = ("_publisher", "_claim", "_encode", *OutboxSink.transient)

    def connect(self) -> Shared:
        """Make what publishes, connected when it is first used; a `Publisher` for `send`."""
        raise NotImplementedError

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        module, extra = self.client
        load_client(module, self.connector, extra)
        self._encode = encoder(self.value, self.connector, "value")
        self._publisher: Any = None

    def cleanup(self) -> None:
        close_earlier(self.context)

    def publisher(self) -> Any:
        """Return what publishes, and keeps its connection from batch to batch."""
        if self._publisher is None:
            close_earlier(self.context)
            self._publisher = self.connect()
            self._claim: Claim = hold(self.context, self._publisher)
        return self._publisher

    def send(self, records: Sequence[Outgoing]) -> Refused:
        publisher: Publisher = self.publisher()
        return publisher.publish(records, self.retry_secs)
