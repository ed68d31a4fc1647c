"""Topics that are looked for before the first record, and made where they are to be."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topo.connectors.base import check_positive, load_client
from topo.connectors.kafka.client import in_words, made
from topo.errors import Unavailable

_TIMEOUT_SECS = 10.0
_LOOK_SECS = 2.0
_LOOK_AGAIN_SECS = 0.1
_LOOKS = 20
_AS_BROKER = -1
"""What asks for the broker's own default."""


@dataclass(frozen=True)
class NewTopic:
    """How a topic is made if it is not there; what is not given is as the broker has it."""

    partitions: int | None = None
    replicas: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The topic's own: `{"cleanup.policy": "compact"}`."""

    def __post_init__(self) -> None:
        check_positive("NewTopic", partitions=self.partitions, replicas=self.replicas)


class TopicAdmin:
    """A client that asks brokers of topics, and makes them."""

    def __init__(self, connector: str, servers: str, settings: Mapping[str, Any]) -> None:
        self._kafka = load_client("confluent_kafka", connector, "kafka")
        self._admins = load_client("confluent_kafka.admin", connector, "kafka")
        self._servers = servers
        ours = {"bootstrap.servers": servers, "log_level": 2}
        self._client: Any = made(connector, self._admins.AdminClient, {**settings, **ours})

    def ensure(self, name: str, new: NewTopic) -> bool:
        """Make a topic unless it is there; return True if it was made.

        Raise Unavailable if no broker answers, and ComponentError if it is not allowed.
        """
        request = self._admins.NewTopic(
            name,
            num_partitions=new.partitions or _AS_BROKER,
            replication_factor=new.replicas or _AS_BROKER,
            config={key: str(value) for key, value in new.settings.items()},
        )
        futures = self._client.create_topics([request], request_timeout=_TIMEOUT_SECS)
        try:
            futures[name].result(_TIMEOUT_SECS + 1)
        except self._kafka.KafkaException as error:
            if error.args[0].code() == self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise in_words(self._kafka, error.args[0], self._servers, f"topic {name!r}") from error
        return True

    def look_for(self, name: str) -> None:
        """Raise Unavailable, with its name, if a topic is not there; librdkafka says so after 30 s.

        To ask for it has brokers make it that are set so, of which the first answer does not know
        yet. Brokers that do not answer are waited for by what writes.
        """
        for _ in range(_LOOKS):
            try:
                topic = self._client.list_topics(name, timeout=_LOOK_SECS).topics.get(name)
            except self._kafka.KafkaException:
                return
            if topic is None or topic.error is None:
                return
            if topic.error.code() != self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
            time.sleep(_LOOK_AGAIN_SECS)
        raise Unavailable(
            f"Kafka at {self._servers}: there is no topic {name!r}; create=NewTopic() makes it"
        )

    def close(self) -> None:
        """Free librdkafka's object."""
        self._client = None
