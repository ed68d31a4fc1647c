"""A broker in this process, and a KafkaSpout that reads it: the spout's own code, no Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from topo import BasicBolt, TopologyBuilder, Tuple, Unavailable
from topo.connectors.kafka import KafkaSpout
from topo.connectors.kafka.client import TP, Client, OutOfRange, Topics
from topo.testing import TestCluster


@dataclass
class Message:
    """One record of the log."""

    of: TP
    at: int
    data: Any
    name: Any = None
    time: int = 0
    more: Any = None

    def topic(self) -> str:
        return self.of[0]

    def partition(self) -> int:
        return self.of[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> Any:
        return self.name

    def value(self) -> Any:
        return self.data

    def headers(self) -> Any:
        return self.more

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time


@dataclass
class Log:
    """One partition: its records by offset, and the ends of the log."""

    records: dict[int, Message] = field(default_factory=dict)
    first: int = 0
    end: int = 0


class Broker:
    """Partitions, and the offsets that groups have committed."""

    def __init__(self) -> None:
        self.logs: dict[TP, Log] = {}
        self.ids: dict[str, str] = {}
        self.committed: dict[TP, tuple[int, str]] = {}
        self.commits = 0
        self.away = ""
        self.commits_fail = False
        self.assigned: list[dict[TP, int]] = []
        self.clients: set[object] = set()  # those that are not closed

    def client(self) -> Client:
        """Return a new client."""
        return ScriptedClient(self)

    def write(self, topic: str, partition: int, count: int, **more: Any) -> None:
        log = self.logs.setdefault((topic, partition), Log())
        for offset in range(log.end, log.end + count):
            data = str(offset).encode()
            of = (topic, partition)
            log.records[offset] = Message(of, offset, **{"data": data, "time": offset, **more})
        log.end += count

    def remove(self, topic: str, partition: int, *offsets: int) -> None:
        """Compact these records away."""
        for offset in offsets:
            del self.logs[topic, partition].records[offset]

    def hole(self, topic: str, partition: int) -> None:
        """Take an offset that no reader sees, as a transaction's marker does."""
        self.logs[topic, partition].end += 1

    def truncate(self, topic: str, partition: int, first: int) -> None:
        log = self.logs[topic, partition]
        log.first = first
        log.records = {offset: one for offset, one in log.records.items() if offset >= first}


class ScriptedClient:
    """A `Client` of the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._positions: dict[TP, int] = {}
        self._paused: set[TP] = set()
        broker.clients.add(self)

    def _check(self) -> None:
        if self._broker.away:
            raise Unavailable(self._broker.away)

    def partitions(self, topics: Topics) -> set[TP]:
        self._check()
        sizes: dict[str, int] = {}
        for topic, number in self._broker.logs:
            sizes[topic] = max(sizes.get(topic, 0), number + 1)
        return topics.chosen(sizes)

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        return {name: self._broker.ids[name] for name in names if name in self._broker.ids}

    def ends(self, partition: TP) -> tuple[int, int]:
        self._check()
        log = self._broker.logs[partition]
        return log.first, log.end

    def committed(self, partitions: Collection[TP]) -> dict[TP, tuple[int, str]]:
        committed = self._broker.committed
        return {one: committed[one] for one in partitions if one in committed}

    def at_time(self, partitions: Collection[TP], millis: int) -> dict[TP, int]:
        found = {}
        for partition in partitions:
            log = self._broker.logs[partition]
            late = [offset for offset, one in log.records.items() if one.time >= millis]
            found[partition] = min(late, default=log.end)
        return found

    def assign(self, positions: Mapping[TP, int]) -> None:
        self._broker.assigned.append(dict(positions))
        self._positions |= positions

    def drop(self, partitions: Collection[TP]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)

    def pause(self, partitions: Collection[TP]) -> None:
        self._paused |= set(partitions)

    def resume(self, partitions: Collection[TP]) -> None:
        self._paused -= set(partitions)

    def fetch(self, most: int) -> Sequence[Message]:
        self._check()
        fetched: list[Message] = []
        for partition in sorted(set(self._positions) - self._paused):
            log = self._broker.logs[partition]
            position = self._positions[partition]
            if not log.first <= position <= log.end:
                raise OutOfRange(partition)
            while position < log.end and len(fetched) < most:
                if position in log.records:
                    fetched.append(log.records[position])
                position += 1
            self._positions[partition] = position
        return fetched

    def position(self, partition: TP) -> int | None:
        return self._positions.get(partition)

    def known_end(self, partition: TP) -> int | None:
        return self._broker.logs[partition].end

    def commit(self, offsets: Mapping[TP, int], metadata: str) -> int:
        if self._broker.commits_fail:
            return 1
        self._broker.commits += 1
        self._broker.committed |= {one: (offset, metadata) for one, offset in offsets.items()}
        return 0

    def close(self) -> None:
        self._positions.clear()
        self._broker.clients.discard(self)


class ScriptedSpout(KafkaSpout):
    """Reads the broker of the test; asks which partitions there are at every call."""

    requires = ()
    broker: Any = Broker()
    """The broker, or something with its `client` and its `ids`."""
    transient = (*KafkaSpout.transient, "_seen")
    _seen: Mapping[str, str] = {}

    def __init__(self, topics: Any, **more: Any) -> None:
        super().__init__("scripted:1", topics, **{"value": "str", **more})

    def connects(self) -> Callable[[], Client]:
        client: Callable[[], Client] = self.broker.client
        return client

    def discover(self) -> frozenset[TP] | None:
        client = self.broker.client()
        found = frozenset(client.partitions(self.topics))
        client.close()
        is_news = found != self._fetched or self.topic_ids() != self._seen
        self._seen = self.topic_ids()
        return found if is_news or not self.has_started else self._fetched

    def topic_ids(self) -> dict[str, str]:
        return dict(self.broker.ids)


class Keeps(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        pass


class Reading:
    """A topology that reads the broker, in a test's hands."""

    begun: ClassVar[deque[Reading]] = deque(maxlen=10)
    """The latest ones, for a test to end."""

    def __init__(
        self,
        spout: KafkaSpout,
        bolt: Any = None,
        *,
        tasks: int = 1,
        conf: Any = None,
        **streams: Any,
    ) -> None:
        builder = TopologyBuilder()
        builder.set_spout("kafka", spout, parallelism=tasks)
        builder.set_bolt("b", bolt or Keeps()).shuffle_grouping("kafka")
        for name, sink in streams.items():
            builder.set_bolt(name, sink).shuffle_grouping("kafka", name)
        self.cluster = TestCluster()
        self.run = self.cluster.submit_topology("reading", builder.create_topology(), conf)
        self.begun.append(self)

    def settle(self) -> Reading:
        self.run.settle()
        return self

    def offsets(self, place: int = 2) -> list[Any]:
        """The offsets that were emitted, in order, or another field."""
        return [row[place] for row in self.run.tuples("kafka")]
