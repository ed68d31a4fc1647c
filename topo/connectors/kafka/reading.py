"""The reading of a task's partitions: which there are, where each begins, and where it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from topo.components import StatefulSpout
from topo.config.secrets import revealed
from topo.connectors.kafka.client import TP, Client, KafkaClient, Topics
from topo.connectors.kafka.discovery import Discovery
from topo.connectors.kafka.offsets import Offsets
from topo.connectors.kafka.partitions import Partition
from topo.connectors.kafka.starts import Start, end_offsets
from topo.errors import ComponentError
from topo.takeover import Belongings, Claim, close_earlier, hold, let_go

_NAME = "KafkaSpout"


class PartitionReader(StatefulSpout):
    """The base of a spout whose tasks read partitions; their positions are its keyed state."""

    transient: Iterable[str] = ("_client", "_discovery", "_fetched", "_own", "_open", "_claim")
    servers: str
    topics: Topics
    start: Start
    until: Any
    group: str | None
    missing_topics: str
    on_data_loss: str
    discover_secs: float
    settings: Mapping[str, Any]

    def open_reader(self) -> None:
        """Begin with no partitions; called by `open`."""
        close_earlier(self.context)
        self._open = Belongings()
        self._claim: Claim = hold(self.context, self._open)
        self._client: Client | None = None
        self._discovery: Discovery | None = None
        self._fetched: frozenset[TP] = frozenset()  # the partitions as they were found last
        self._own: set[TP] = set()
        self.has_started = False

    def close_reader(self) -> None:
        let_go(self.context, self._open)
        self._client = self._discovery = None

    def position_lost(self, key: TP) -> None:
        """Hear that a partition goes on elsewhere than it was left."""

    def connects(self) -> Callable[[], Client]:
        """Return what makes a consumer, without holding the spout."""
        return partial(KafkaClient, self.servers, self.group, revealed(self.settings))

    def connect(self) -> Client:
        """Make a consumer that is closed with what else the spout has open."""
        client = self.connects()()
        self._open.add(client.close)
        return client

    def discover(self) -> frozenset[TP] | None:
        """Return the partitions that there are, None if they are not known yet."""
        if self._discovery is None:
            connect, wake = self.connects(), self.context.wake
            self._discovery = Discovery(connect, self.topics, self.discover_secs, wake)
            self._open.add(self._discovery.close)
            self._discovery.start()
        if self._discovery.found is None and self._discovery.error is not None:
            raise self._discovery.error
        return self._discovery.found

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that `discover` has found, as far as they are known."""
        return self._discovery.ids if self._discovery is not None else {}

    def owner(self, key: Any, tasks: int) -> int:
        """Return the task of a partition: one topic's go round from a hash of its name."""
        topic, number = key
        return (self.context.stable_hash(topic) + int(number)) % tasks

    def look_for_partitions(self) -> bool:
        """Read what is new among the partitions; return False while none are known."""
        found = self.discover()
        if found is None:
            return False
        if found is self._fetched:
            return True
        missing = self.topics.missing(found)
        if missing and self.missing_topics == "fail":
            raise ComponentError(f"{_NAME}: there is no topic {', '.join(map(repr, missing))}")
        self.context.gauge("missing_topics", len(missing) or None)
        fresh = {key for key in found if self.owns(key)} - self._own
        self._begin(sorted(fresh))
        self._look_for_new_topics(self._own & found)
        self._fetched, self._own, self.has_started = found, self._own | fresh, True
        return True

    def _begin(self, fresh: list[TP]) -> None:
        """Begin to read these partitions, where they were left or where the rule says."""
        if self._client is None:
            self._client = self.connect()
        client = self._client
        unknown = [key for key in fresh if key not in self.state]
        if not self.has_started:
            first = self.start.first_offsets(client, unknown, self.commit_metadata)
        else:
            first = {key: client.ends(key)[0] for key in unknown}
        ends: dict[TP, int] = {}
        if self.until is not None:
            ends = end_offsets(self.until, client, unknown, self.topics.only)
        ids = self.topic_ids()
        for key in unknown:
            partition = Partition(first[key], Offsets(first[key]), ends.get(key))
            partition.topic_id = ids.get(key[0], "")
            self.state[key] = partition
        for key in fresh:
            if not self._check_topic(key):
                self.check_position(key)
        client.assign({key: self.state.raw()[key].position for key in fresh})

    def _look_for_new_topics(self, keys: Iterable[TP]) -> None:
        """Read partitions anew whose topics were made anew."""
        assert self._client is not None
        for key in keys:
            if self._check_topic(key):
                self._client.assign({key: self.state.raw()[key].position})

    def _check_topic(self, key: TP) -> bool:
        """Return True if a position was another topic's of the same name, and is given up."""
        topic_id = self.topic_ids().get(key[0], "")
        position_id = self.state.raw()[key].topic_id
        if not topic_id or topic_id == position_id:
            return False
        if not position_id:
            partition: Partition = self.state[key]
            partition.know_topic(topic_id)
            return False
        self._lose_position(key, "is of an earlier topic of this name, and not of the log")
        return True

    def check_position(self, key: TP) -> None:
        """Raise, or go on elsewhere, if the log has not got the position any more."""
        assert self._client is not None
        partition: Partition = self.state.raw()[key]
        first, end = self._client.ends(key)
        if first <= partition.position <= end:
            return
        self._lose_position(key, "is not in the log")

    def _lose_position(self, key: TP, reason: str) -> None:
        """Raise, or resume at the log's beginning or end, as `on_data_loss` says."""
        assert self._client is not None
        partition: Partition = self.state.raw()[key]
        first, end = self._client.ends(key)
        lost = (
            f"{_NAME}: {key[0]}-{key[1]}: the position {partition.position} {reason}, "
            f"which has {first} to {end}"
        )
        if self.on_data_loss == "stop":
            raise ComponentError(
                f"{lost}: data was deleted before it was read, or the topic was made anew",
                hint="on_data_loss='earliest' or 'latest' resumes there, and reports it",
            )
        self.report_error(f"{lost}: resumes at its {self.on_data_loss}")
        self.context.counter("data_losses")
        position = first if self.on_data_loss == "earliest" else end
        self.state[key] = Partition(position, Offsets(position), partition.until)
        self.state[key].topic_id = self.topic_ids().get(key[0], "")
        self.position_lost(key)

    def follow_holes(self, keys: Iterable[TP]) -> None:
        """Take over positions behind markers, aborted records and compacted ones.

        For partitions of which everything that was fetched has been emitted.
        """
        if self._client is None:
            return
        for key in keys:
            position = self._client.position(key)
            if position is not None and position > self.state.raw()[key].position:
                self.state[key].position = position

    @property
    def commit_metadata(self) -> str:
        return f"topo {self.context.topology_name}"
