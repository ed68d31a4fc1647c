"""The calls that the spout makes of a Kafka consumer, and their form for librdkafka.

A few calls, so that tests can play the broker. All of them are made in the task's own thread, save
`partitions`, which may block and is asked by a thread of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from topo.connectors.base import load_client
from topo.errors import ComponentError, Unavailable

TP: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""

REQUIRES = "confluent_kafka>=2.6"
RECONNECT_MS = 1_000  # a broker that is back is found within a second, not within ten
_TIMEOUT_SECS = 10.0
_NO_ID = "A" * 22  # zeros in base 64
_OWNED = {
    "allow.auto.create.topics": "a topic that is read is there already, or waited for: missing=",
    "auto.offset.reset": "start= says where reading begins, on_data_loss= where it resumes if the "
    "log has lost the position",
    "bootstrap.servers": "it is the first argument",
    "enable.auto.commit": "positions are kept with the topology's state; group= commits them too",
    "enable.auto.offset.store": "positions are kept with the topology's state",
    "enable.partition.eof": "the spout has to hear where a partition ends",
    "error_cb": "errors are the reason of STALLED, and in topo errors",
    "group.id": "it is group=",
    "metadata.broker.list": "it is the first argument",
    "on_commit": "commits that fail are counted: commits_failed",
}


class Message(Protocol):
    """One record, as librdkafka gives it."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> Any: ...


class Client(Protocol):
    """A consumer without a group protocol: it reads the partitions that it is given."""

    def partitions(self, topics: Topics) -> set[TP]:
        """Return the partitions that there are of these topics."""

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the ids of topics, of those that have one: a topic made anew has another."""

    def ends(self, partition: TP) -> tuple[int, int]:
        """Return the first offset of the log and the one after its last."""

    def committed(self, partitions: Collection[TP]) -> dict[TP, tuple[int, str]]:
        """Return the group's offsets with their metadata, of partitions that have one."""

    def at_time(self, partitions: Collection[TP], millis: int) -> dict[TP, int]:
        """Return the first offsets at or after a time; the end where nothing is that late."""

    def assign(self, positions: Mapping[TP, int]) -> None:
        """Read these partitions as well, from these offsets."""

    def drop(self, partitions: Collection[TP]) -> None:
        """Read these partitions no longer."""

    def pause(self, partitions: Collection[TP]) -> None: ...

    def resume(self, partitions: Collection[TP]) -> None: ...

    def fetch(self, most: int) -> Sequence[Message]:
        """Return what has arrived, without waiting; raise OutOfRange or Unavailable."""

    def position(self, partition: TP) -> int | None:
        """Return the offset after what was fetched, holes behind it included, if it is known."""

    def known_end(self, partition: TP) -> int | None:
        """Return the log's end as the last fetch told it."""

    def commit(self, offsets: Mapping[TP, int], metadata: str) -> int:
        """Commit the group's offsets, without waiting; return how many earlier commits failed."""

    def close(self) -> None:
        """End it; twice does no harm."""


class Heard:
    """What librdkafka tells by callbacks.

    They hold this and not the client that owns librdkafka's object: so there is no cycle, and the
    object is freed with the last reference to it. Each takes one of the 1,024 keys for data of
    threads that a process has, and gives it back only then.
    """

    def __init__(self) -> None:
        self.last_error = ""
        self.failed_commits = 0

    def note_error(self, error: Any) -> None:
        self.last_error = str(error.str())

    def note_commit(self, error: Any, partitions: Any) -> None:
        """Count a commit of the group's offsets that failed."""
        if error is not None:
            self.failed_commits += 1


class OutOfRange(Exception):
    """A position that the log does not have: data was lost, or the topic made anew."""

    def __init__(self, partition: TP) -> None:
        super().__init__(f"{partition[0]}-{partition[1]}")
        self.partition = partition


class Topics:
    """A choice of topics: names, a pattern of whole names, or given partitions."""

    @property
    def only(self) -> str | None:
        """The topic, if one is named; the partitions of others are named with theirs."""
        return self.names[0] if len(self.names) == 1 else None

    def __init__(self, given: Any) -> None:
        self.pattern: re.Pattern[str] | None = None
        self.names: tuple[str, ...] = ()
        self.given: dict[TP, int | None] = {}
        if isinstance(given, str):
            self.names = (given,)
        elif isinstance(given, re.Pattern):
            self.pattern = given
        elif isinstance(given, Mapping):
            self.given = {_partition(key): offset for key, offset in given.items()}
            self.names = tuple(dict.fromkeys(topic for topic, _ in self.given))
        elif isinstance(given, Iterable) and not isinstance(given, bytes):
            listed = list(given)
            if listed and all(isinstance(one, tuple) for one in listed):
                self.given = dict.fromkeys(map(_partition, listed))
                self.names = tuple(dict.fromkeys(topic for topic, _ in self.given))
            else:
                self.names = tuple(dict.fromkeys(listed))
        if not (self.names or self.pattern) or not all(isinstance(n, str) for n in self.names):
            raise ComponentError(
                f"KafkaSpout: topics={given!r}",
                hint="a topic, a list of topics, re.compile(...), or {(topic, partition): offset}",
            )

    def chosen(self, existing: Mapping[str, int]) -> set[TP]:
        """Return the partitions to read of the topics that exist, given with their sizes."""
        if self.given:
            for topic, number in self.given:
                if topic in existing and number >= existing[topic]:
                    raise ComponentError(
                        f"KafkaSpout: Partition '{topic}-{number}' does not exist; the topic has "
                        f"{existing[topic]}"
                    )
            return {partition for partition in self.given if partition[0] in existing}
        names = [name for name in existing if self.has(name)]
        return {(name, number) for name in names for number in range(existing[name])}

    def missing(self, found: Collection[TP]) -> list[str]:
        """Return the named topics of which nothing was found."""
        there = {topic for topic, _ in found}
        return [name for name in self.names if name not in there]

    def has(self, name: str) -> bool:
        """Return True if a topic of this name is chosen."""
        return name in self.names or bool(self.pattern and self.pattern.fullmatch(name))

    def __str__(self) -> str:
        return repr(self.pattern.pattern) if self.pattern else ", ".join(self.names)


def split_of(partition: TP) -> str:
    """Return the name of a partition as a part of the source."""
    return f"{partition[0]}-{partition[1]}"


def _partition(key: Any) -> TP:
    if not (isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], int)):
        raise ComponentError(f"KafkaSpout: {key!r} is no (topic, partition)")
    return str(key[0]), key[1]


def check_settings(connector: str, settings: Mapping[str, Any], owned: Mapping[str, str]) -> None:
    """Raise ComponentError for client settings that the connector sets itself."""
    for name, instead in owned.items():
        if name in settings:
            raise ComponentError(f"{connector} sets {name!r} itself: {instead}")


def checked_servers(servers: Any) -> str:
    """Return the addresses of brokers as one text; raise ComponentError if there are none."""
    if isinstance(servers, str) and servers:
        return servers
    if isinstance(servers, Iterable) and not isinstance(servers, bytes | str):
        listed = [str(one) for one in servers]
        if listed:
            return ",".join(listed)
    raise ComponentError(f'KafkaSpout: servers={servers!r}; it is "host:port,host:port"')


def check_consumer_settings(settings: Mapping[str, Any]) -> None:
    """Raise ComponentError for consumer settings that the spout sets itself."""
    says_nothing = settings.get("auto.offset.reset") in ("none", "error")  # as the spout has it
    owned = dict(_OWNED)
    if says_nothing:
        del owned["auto.offset.reset"]
    check_settings("KafkaSpout", settings, owned)


class KafkaClient:
    """A `Client` over librdkafka."""

    def __init__(self, servers: str, group: str | None, settings: Mapping[str, Any]) -> None:
        self._kafka = load_client("confluent_kafka", "KafkaSpout", "kafka")
        self._servers = servers
        self._heard = callbacks = Heard()
        self._has_group = group is not None
        self._consumer: Any = made(
            "KafkaSpout",
            self._kafka.Consumer,
            {
                "queued.max.messages.kbytes": 16_384,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": RECONNECT_MS,
                "log_level": 2,
                **settings,
                "bootstrap.servers": servers,
                "group.id": group or "topo-without-group",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
                "error_cb": callbacks.note_error,
                "on_commit": callbacks.note_commit,
            },
        )
        self._admin: Any = None
        self._admin_settings = {**settings, "bootstrap.servers": servers, "log_level": 2}
        self._assigned: set[TP] = set()
        self._kept: list[Any] = []  # messages that came with an error
        self._ends_seen: dict[TP, int] = {}  # where reading came to the end, holes included

    def partitions(self, topics: Topics) -> set[TP]:
        metadata = self._ask(lambda: self._consumer.list_topics(timeout=_TIMEOUT_SECS))
        existing = {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None and not name.startswith("__")
        }
        return topics.chosen(existing)

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        if not names:
            return {}
        admin = load_client("confluent_kafka.admin", "KafkaSpout", "kafka")
        if self._admin is None:
            self._admin = made("KafkaSpout", admin.AdminClient, self._admin_settings)
        wanted = self._kafka.TopicCollection(list(names))
        ids = {}
        for name, future in self._admin.describe_topics(wanted).items():
            with suppress(self._kafka.KafkaException):  # brokers before 2.8 have no ids
                topic_id = str(future.result(_TIMEOUT_SECS).topic_id)
                if topic_id != _NO_ID:
                    ids[name] = topic_id
        return ids

    def ends(self, partition: TP) -> tuple[int, int]:
        def ask() -> Any:
            asked = self._kafka.TopicPartition(*partition)
            return self._consumer.get_watermark_offsets(asked, timeout=_TIMEOUT_SECS)

        try:
            found: tuple[int, int] = ask()
        except self._kafka.KafkaException:  # it may not know a partition that is new
            self._ask(lambda: self._consumer.list_topics(partition[0], timeout=_TIMEOUT_SECS))
            found = self._ask(ask)
        return found

    def committed(self, partitions: Collection[TP]) -> dict[TP, tuple[int, str]]:
        if not self._has_group or not partitions:
            return {}
        asked = [self._kafka.TopicPartition(*partition) for partition in partitions]
        listed = self._ask(lambda: self._consumer.committed(asked, timeout=_TIMEOUT_SECS))
        return {
            (one.topic, one.partition): (one.offset, one.metadata or "")
            for one in listed
            if one.offset >= 0
        }

    def at_time(self, partitions: Collection[TP], millis: int) -> dict[TP, int]:
        if not partitions:
            return {}
        asked = [self._kafka.TopicPartition(*partition, millis) for partition in partitions]
        listed = self._ask(lambda: self._consumer.offsets_for_times(asked, timeout=_TIMEOUT_SECS))
        found = {(one.topic, one.partition): one.offset for one in listed}
        return {
            partition: offset if offset >= 0 else self.ends(partition)[1]
            for partition, offset in found.items()
        }

    def assign(self, positions: Mapping[TP, int]) -> None:
        self.drop(self._assigned & set(positions))
        made = [self._kafka.TopicPartition(*key, offset) for key, offset in positions.items()]
        self._ask(lambda: self._consumer.incremental_assign(made))
        self._assigned |= set(positions)
        for partition in positions:
            self._ends_seen.pop(partition, None)

    def drop(self, partitions: Collection[TP]) -> None:
        mine = [partition for partition in partitions if partition in self._assigned]
        if mine:
            dropped = [self._kafka.TopicPartition(*partition) for partition in mine]
            self._ask(lambda: self._consumer.incremental_unassign(dropped))
            self._assigned.difference_update(mine)

    def pause(self, partitions: Collection[TP]) -> None:
        self._consumer.pause([self._kafka.TopicPartition(*one) for one in partitions])

    def resume(self, partitions: Collection[TP]) -> None:
        self._consumer.resume([self._kafka.TopicPartition(*one) for one in partitions])

    def fetch(self, most: int) -> Sequence[Message]:
        listed, self._kept = self._kept, []
        listed += self._ask(lambda: self._consumer.consume(most, timeout=0))
        if not any(message.error() for message in listed):
            return listed
        good = [message for message in listed if not message.error()]
        try:
            for message in listed:
                if message.error():
                    self._raise_for(message)
        except OutOfRange as lost:
            topic, number = lost.partition
            self._kept = [m for m in good if (m.topic(), m.partition()) != (topic, number)]
            raise
        except Exception:
            self._kept = good  # the consumer will not give them again
            raise
        return good

    def _raise_for(self, message: Any) -> None:
        error, codes = message.error(), self._kafka.KafkaError
        if error.code() == codes._PARTITION_EOF:
            self._ends_seen[message.topic(), message.partition()] = message.offset()
            return
        if error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            raise OutOfRange((message.topic(), message.partition()))
        raise self._in_words(error)

    def position(self, partition: TP) -> int | None:
        if partition not in self._assigned or self._kept:
            return None
        (found,) = self._consumer.position([self._kafka.TopicPartition(*partition)])
        known = max(int(found.offset), self._ends_seen.get(partition, -1))
        return known if known >= 0 else None

    def known_end(self, partition: TP) -> int | None:
        ends = self._consumer.get_watermark_offsets(
            self._kafka.TopicPartition(*partition), cached=True
        )
        known = max(int(ends[1]) if ends is not None else -1, self._ends_seen.get(partition, -1))
        return known if known >= 0 else None

    def commit(self, offsets: Mapping[TP, int], metadata: str) -> int:
        listed = [
            self._kafka.TopicPartition(*key, offset, metadata) for key, offset in offsets.items()
        ]
        try:
            self._consumer.commit(offsets=listed, asynchronous=True)
        except self._kafka.KafkaException:
            self._heard.failed_commits += 1
        failed, self._heard.failed_commits = self._heard.failed_commits, 0
        return failed

    def close(self) -> None:
        """Free librdkafka's objects, though an instance that was left behind may hold this one."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._admin = None

    def _ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._kafka.KafkaException as error:
            raise self._in_words(error.args[0]) from error

    def _in_words(self, error: Any) -> Exception:
        return in_words(self._kafka, error, self._servers, self._heard.last_error)


def made(connector: str, kind: Callable[[dict[str, Any]], Any], settings: dict[str, Any]) -> Any:
    """Make a client; raise ComponentError for settings that it does not know."""
    import confluent_kafka as kafka

    try:
        return kind(settings)
    except kafka.KafkaException as error:
        raise ComponentError(
            f"{connector}: {error.args[0].str()}",
            hint="settings= are librdkafka's: its CONFIGURATION.md lists them",
        ) from error


def permanent_error(kafka: Any, error: Any, servers: str, last: str = "") -> ComponentError | None:
    """Return what to raise for an error that no waiting mends; None if it may pass."""
    codes = kafka.KafkaError
    reason = {
        codes._AUTHENTICATION: "authentication failed",
        codes.SASL_AUTHENTICATION_FAILED: "authentication failed",
        codes.TOPIC_AUTHORIZATION_FAILED: "no permission for the topic",
        codes.GROUP_AUTHORIZATION_FAILED: "no permission for the group",
        codes.CLUSTER_AUTHORIZATION_FAILED: "no permission",
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "no permission for the transactional id",
        codes.UNSUPPORTED_SASL_MECHANISM: "the broker does not offer this SASL mechanism",
        codes.SECURITY_DISABLED: "the broker has no security, and settings= ask for some",
        codes.INVALID_TRANSACTION_TIMEOUT: "transaction.timeout.ms is more than the broker's "
        "transaction.max.timeout.ms",
        codes.INVALID_GROUP_ID: "the group's name is invalid",
        codes.TOPIC_EXCEPTION: "the topic's name is invalid",
        codes.INVALID_REQUIRED_ACKS: "acks= is invalid",
        codes.INVALID_CONFIG: "a setting is invalid",
        codes.POLICY_VIOLATION: "a policy of the broker forbids it",
        codes.UNSUPPORTED_VERSION: "the broker is too old",
        codes.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message format is too old",
    }.get(error.code())
    # Another instance of a producer has taken over, or the broker has forgotten it: after a fatal
    # error of these kinds a new producer goes on. _FATAL hides of which kind the first one was.
    renewable = (
        codes._FATAL,
        codes._FENCED,
        codes.INVALID_PRODUCER_EPOCH,
        codes.INVALID_PRODUCER_ID_MAPPING,
        codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
        codes.PRODUCER_FENCED,
        codes.UNKNOWN_PRODUCER_ID,
    )
    if reason is None and error.fatal() and error.code() not in renewable:
        reason = "an error that stays"
    if reason is None:
        return None
    text = _with_last(error, last)
    return ComponentError(f"Kafka at {servers}: {reason}: {text}", hint="see settings=")


def in_words(kafka: Any, error: Any, servers: str, last: str) -> Exception:
    """Return what to raise for an error of librdkafka: what will pass is Unavailable."""
    permanent = permanent_error(kafka, error, servers, last)
    return permanent or Unavailable(f"Kafka at {servers}: {_with_last(error, last)}")


def _with_last(error: Any, last: str) -> str:
    return str(error.str()) + (f"; {last}" if last and last not in error.str() else "")
