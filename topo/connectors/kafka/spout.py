"""Reads Kafka topics; the positions are part of the topology's state.

Each task has a consumer of its own and is given partitions by a hash of their topic, without the
group protocol: nothing rebalances, and no poll is ever too late. The position of a partition is
committed with the batch that emitted up to it. Messages that fail are read again by a second
consumer, so that the main reading never goes back.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topo.connectors.base import BAD_FIELDS, BadRecord, OnBad, check_choice, check_positive
from topo.connectors.kafka.client import (
    REQUIRES,
    TP,
    Message,
    OutOfRange,
    Topics,
    check_consumer_settings,
    checked_servers,
)
from topo.connectors.kafka.failures import Failures
from topo.connectors.kafka.partitions import Partition
from topo.connectors.kafka.reading import PartitionReader
from topo.connectors.kafka.records import DEAD_FIELDS, Record, Translation, bad_record
from topo.connectors.kafka.starts import Start
from topo.connectors.retries import Backoff
from topo.connectors.serdes import Decode
from topo.errors import ComponentError
from topo.tuples import DEFAULT_STREAM

_NAME = "KafkaSpout"
_MOST = 500  # messages a call of next_tuple; Kafka's own default of a poll

GUARANTEES = ("at_least_once", "exactly_once", "at_most_once", "none")


class KafkaSpout(PartitionReader):
    """A spout of the records of Kafka topics.

    `topics` is a name, a list of names, a pattern, or `{(topic, partition): offset}`. By default a
    tuple is `(topic, partition, offset, key, value)`; `fields` names others of a `Record`, or, with
    `value="json"`, those of its value. `translate` is given a Record and returns the values to
    emit, `(stream, values)`, or None for nothing.

    `guarantee`: "at_least_once" tracks each message, and one that fails is emitted again after a
    pause (`retry`); "exactly_once" tracks nothing, and counts once in the state of bolts;
    "at_most_once" and "none" drop what fails. By default it is the first if there are ackers, the
    second if there are none.
    """

    requires: Iterable[str] = (REQUIRES,)
    transient = (
        *PartitionReader.transient,
        "_failures",
        "_queue",
        "_held",
        "_is_tracked",
        "_ready_in",
        "_decoders",
        "_quick",
    )

    def __init__(
        self,
        servers: str,
        topics: str | Iterable[str] | re.Pattern[str] | Mapping[tuple[str, int], int],
        *,
        start: Any = "committed-earliest",
        until: Any = None,
        group: str | None = None,
        guarantee: str | None = None,
        fields: str | Iterable[str] = (),
        key: str | Decode = "bytes",
        value: str | Decode = "bytes",
        translate: Callable[[Record], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        retry: Backoff | None = None,
        max_uncommitted: int = 100_000,
        discover_secs: float = 10.0,
        missing: str = "wait",
        on_data_loss: str = "stop",
        on_bad: OnBad = "stop",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.servers, self.settings = checked_servers(servers), dict(settings or {})
        check_consumer_settings(self.settings)
        reset = self.settings.pop("auto.offset.reset", None)
        if reset in ("earliest", "latest", "smallest", "largest") and on_data_loss == "stop":
            on_data_loss = "earliest" if reset in ("earliest", "smallest") else "latest"
        if guarantee is not None:
            check_choice(_NAME, "guarantee", guarantee, GUARANTEES)
        check_choice(_NAME, "missing", missing, ("wait", "fail"))
        check_choice(_NAME, "on_data_loss", on_data_loss, ("stop", "earliest", "latest"))
        check_choice(_NAME, "on_bad", on_bad, ("stop", "stream", "skip"))
        check_positive(_NAME, max_uncommitted=max_uncommitted, discover_secs=discover_secs)
        self.topics = Topics(topics)
        only = self.topics.names[0] if len(self.topics.names) == 1 else None
        given = {tp: offset for tp, offset in self.topics.given.items() if offset is not None}
        self.start = Start.of(given or start, only)
        self.until, self.group, self.guarantee = until, group, guarantee
        self.translation = Translation(key, value, fields, translate)
        self.retry = retry or Backoff()
        self.max_uncommitted, self.discover_secs = max_uncommitted, discover_secs
        self.missing, self.on_data_loss, self.on_bad = missing, on_data_loss, on_bad
        self.outputs = self._streams(dict(streams or {}))

    def _streams(self, others: dict[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {DEFAULT_STREAM: self.translation.fields}
        if self.retry.retries is not None:
            own["dead"] = DEAD_FIELDS
        if self.on_bad == "stream":
            own["bad"] = BAD_FIELDS
        for name in others:
            if name in own:
                raise ComponentError(f"{_NAME}: the stream {name!r} has its fields already")
        return {**own, **others}

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        default = "at_least_once" if conf["topology.acker.executors"] else "exactly_once"
        self._is_tracked = (self.guarantee or default) == "at_least_once"
        self._decoders = self.translation.decoders()
        self._quick = self.translation.quick(*self._decoders)
        self.open_reader()
        self._failures = Failures(self, self.connect, self.retry, context.now)
        self._queue: deque[Message] = deque()
        self._held: dict[TP, deque[Message]] = {}  # of partitions at their limit
        self._ready_in = -1

    def restored(self) -> None:
        """Go on where the committed batch was."""
        self._failures.restore()

    def close(self) -> None:
        self._failures.close()
        self.close_reader()

    def position_lost(self, key: TP) -> None:
        """Forget what failed of a partition that is read elsewhere now."""
        self._failures.forget_partition(key)

    def is_exhausted(self) -> bool:
        """Return True if a bounded reading has come to the end of every partition."""
        if self.until is None or not self.has_started or self._queue or self._held:
            return False
        self.follow_holes(self._own)
        partitions = self.state.raw().values()  # a list of topics may lack some for a moment
        done = all(one.is_finished and not (one.again or one.dead) for one in partitions)
        return done and not self._failures.is_waiting

    # -- reading ------------------------------------------------------------------------------

    def next_tuple(self) -> None:
        if not self.look_for_partitions():
            return
        if self._failures and self._failures.emit():
            return
        if self.guarantee == "at_most_once":
            self._emit_of_earlier_batches()
            return
        self._release_held()
        if not self._queue:
            self._fetch()
        self._emit_queue()

    def _fetch(self) -> None:
        client, discovery = self._client, self._discovery
        assert client is not None
        try:
            fetched = client.fetch(_MOST)
        except OutOfRange as lost:
            self.check_position(lost.partition)
            client.assign({lost.partition: self.state.raw()[lost.partition].position})
            fetched = client.fetch(_MOST)
        if not fetched and discovery is not None and discovery.error is not None:
            raise discovery.error
        self._queue.extend(fetched)
        if fetched:
            self.context.counter("fetched", len(fetched))

    def _emit_queue(self) -> None:
        """Emit what was fetched; what is beyond a limit waits."""
        rows: list[Any] = []
        ids: list[Any] = []
        key: TP = ("", -1)
        while self._queue:
            message = self._queue.popleft()
            if message.partition() != key[1] or message.topic() != key[0]:
                key = (message.topic(), message.partition())
                partition: Partition = self.state[key]
            offset = message.offset()
            if partition.until is not None and offset >= partition.until:
                partition.position = max(partition.position, partition.until)
                continue
            if self._is_tracked and partition.offsets.span >= self.max_uncommitted:
                self._hold(key, message)
                continue
            partition.position = offset + 1
            values = self._values(message)
            if values is None:
                continue
            if self._is_tracked:
                partition.offsets.emit(offset)
            if isinstance(values, tuple) and len(values) == 2 and isinstance(values[0], str):
                self.emit(values[1], stream=values[0], msg_id=self._id_of(key, offset))
                continue
            rows.append(values)
            if self._is_tracked:
                ids.append((*key, offset))
        if rows:
            self.emit_many(rows, msg_ids=ids if self._is_tracked else None)

    def _id_of(self, key: TP, offset: int) -> Any:
        return (*key, offset) if self._is_tracked else None

    def _hold(self, key: TP, message: Message) -> None:
        """Keep a message until its partition has fewer that are not done."""
        assert self._client is not None
        if key not in self._held:
            self._held[key] = deque()
            self._client.pause([key])
        self._held[key].append(message)

    def _release_held(self) -> None:
        assert self._client is not None
        for key in list(self._held):
            partition: Partition = self.state.raw()[key]
            partition.offsets.settle()
            if partition.offsets.span < self.max_uncommitted:
                self._queue.extend(self._held.pop(key))
                self._client.resume([key])

    def _emit_of_earlier_batches(self) -> None:
        """Emit what was fetched in a batch that has committed; fetch for the next one."""
        if self._ready_in < self.context.batch_id:
            self._emit_queue()
        if not self._queue:
            self._fetch()
            for message in self._queue:
                key = (message.topic(), message.partition())
                self.state[key].position = message.offset() + 1
            if self._queue:
                self._ready_in = self.context.batch_id
                self.context.end_batch()

    def _values(self, message: Message) -> Any:
        """Return what to emit for a message; tell of one that cannot be read."""
        try:
            if self._quick is not None:
                try:
                    return self._quick(message)
                except Exception as error:
                    raise bad_record(message, error) from error
            record = self.translation.record(message, *self._decoders)
            return self.translation.values(record, message)
        except BadRecord as bad:
            self.context.counter("bad_records")
            if self.on_bad == "stop":
                raise ComponentError(
                    f"{_NAME}: a record cannot be read: {bad}",
                    hint="on_bad='stream' emits such records on the stream 'bad', 'skip' drops "
                    "them",
                ) from bad
            if self.on_bad == "stream":
                self.emit([bad.raw, bad.error, bad.where], stream="bad")
            return None

    # -- what becomes of messages -------------------------------------------------------------

    def ack(self, msg_id: Any) -> None:
        topic, number, offset = msg_id
        partition = self.state.get((topic, number))
        if partition is None:
            return
        partition.offsets.ack(offset)
        self._failures.acked((topic, number), offset)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        topic, number, offset = msg_id
        key = (topic, number)
        partition = self.state.get(key)
        if not self._is_tracked or partition is None or not partition.offsets.is_open(offset):
            return
        if not self._failures.failed(key, offset):
            self._give_up(key, offset, reason)

    def _give_up(self, key: TP, offset: int, reason: str) -> None:
        """Tell of a message that failed too often; what it held is read again for that."""
        self.context.counter("dead")
        if self.context.this_targets.get("dead"):
            self._failures.give_up(key, offset, reason)
            return
        self.state[key].offsets.ack(offset)
        self.report_error(
            f"{key[0]}-{key[1]} at {offset} failed {self._most_failures} times, and is given up; "
            f"the last time: {reason}"
        )

    @property
    def _most_failures(self) -> int:
        return 1 + (self.retry.retries or 0)

    def emit_once_more(self, key: TP, message: Message) -> bool:
        """Emit a message that has failed; return False if nothing is to be emitted of it now."""
        values = self._values(message)
        stream = DEFAULT_STREAM
        if isinstance(values, tuple) and len(values) == 2 and isinstance(values[0], str):
            stream, values = values
        if values is None:
            return False
        self.context.counter("replayed")
        self.emit(values, stream=stream, msg_id=(*key, message.offset()))
        return True

    def bury(self, key: TP, offset: int, message: Message | None, reason: str) -> None:
        """Emit a message that was given up on the stream `dead`; None: the log has it no longer."""
        held = [None] * 3 if message is None else [message.key(), message.value()]
        if message is not None:
            held.append(message.headers())
        self.emit([*key, offset, *held, reason, self._most_failures], stream="dead")

    # -- the end of a batch -------------------------------------------------------------------

    def pre_commit(self, batch_id: int) -> None:
        """Note what the batch is to keep, and how far behind the reading is."""
        if not self._queue:
            self.follow_holes(self._own - set(self._held))
        for key in self._own:
            partition: Partition = self.state.raw()[key]
            self._failures.save(key)
            found = partition.offsets.next()
            if found is not None:
                self.state[key].offsets.commit(found)
            end = self._client.known_end(key) if self._client is not None else None
            if end is not None:
                behind = max(0, end - partition.position)
                self.context.gauge("lag", behind, topic=key[0], partition=key[1])

    def committed(self, batch_id: int) -> None:
        """Tell the group how far the topology is; tools look at it, the spout does not."""
        if self.group is None or self._client is None:
            return
        offsets = {key: self.state.raw()[key].committable for key in self._own}
        if offsets:
            self._client.commit(offsets, self.commit_metadata)
