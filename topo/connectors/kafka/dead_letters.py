"""A topic of what a spout has given up: the message as it was, and in headers why and whence.

Written before the batch commits that gives up: a batch that runs again writes them again. Nothing
is given up for good before the brokers have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.connectors.kafka.client import Message
from topo.connectors.kafka.publisher import Sender
from topo.connectors.kafka.topics import NewTopic, TopicAdmin
from topo.errors import ComponentError

_NAME = "KafkaSpout"
_RETRY_SECS = 30.0
_MOST_REASON = 2_000


class DeadLetters:
    """The topic, and what writes to it, which is made when there is something to write."""

    def __init__(self, servers: str, settings: Mapping[str, Any], topic: str) -> None:
        self._servers, self._settings, self._topic = servers, settings, topic
        self._sender: Sender | None = None

    def connect(self) -> Sender:
        """Return what writes; make the topic if it is not there."""
        TopicAdmin(_NAME, self._servers, self._settings).ensure(self._topic, NewTopic())
        return Sender(self._servers, self._settings)

    def bury(self, message: Message, reason: str, failures: int) -> None:
        """Write a message that was given up, with the reason and its failures."""
        if self._sender is None:
            self._sender = self.connect()
        headers = [
            *(message.headers() or []),
            ("topo-topic", message.topic().encode()),
            ("topo-partition", str(message.partition()).encode()),
            ("topo-offset", str(message.offset()).encode()),
            ("topo-reason", reason[:_MOST_REASON].encode()),
            ("topo-failures", str(failures).encode()),
        ]
        record = (self._topic, message.key(), message.value(), None, None, headers)
        self._check(self._sender.send([record]))

    def flush(self) -> None:
        """Wait until the brokers have all of it."""
        if self._sender is not None:
            self._check(self._sender.flush(_RETRY_SECS))

    def close(self) -> None:
        """Let go of what writes: what was not flushed belongs to no commit."""
        self._sender = None

    def _check(self, rejected: list[Any]) -> None:
        if rejected:
            values, error = rejected[0]
            raise ComponentError(
                f"{_NAME}: the dead-letter topic {self._topic!r} does not take a record of "
                f"{len(values[2] or b''):,} bytes: {error}",
                hint="max.message.bytes of that topic, and message.max.bytes in settings=",
            )
