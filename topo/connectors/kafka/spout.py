"""Reads Kafka topics; the positions are part of the topology's state.

Each task has a consumer of its own and is given partitions by a hash of their topic, without the
group protocol: nothing rebalances, and no poll is ever too late. The position of a partition is
committed with the batch that emitted up to it. Messages that fail are read again by a second
consumer, so that the main reading never goes back.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Literal

from topo.config.secrets import revealed
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice, check_positive
from topo.connectors.formats import Decode, Format, requirements_of
from topo.connectors.kafka.client import (
    REQUIRES,
    TP,
    Message,
    OutOfRange,
    Topics,
    check_consumer_settings,
    checked_servers,
    split_of,
)
from topo.connectors.kafka.dead_letters import DeadLetters
from topo.connectors.kafka.failures import Failures
from topo.connectors.kafka.partitions import Partition
from topo.connectors.kafka.reading import PartitionReader
from topo.connectors.kafka.records import DEAD_FIELDS, MessageReader, Record, Translation
from topo.connectors.kafka.starts import Start, check_until
from topo.connectors.retries import Backoff
from topo.connectors.translation import Columns, stream_and_values
from topo.errors import ComponentError, Unavailable
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

    `dead_letter` is a topic of the same brokers for messages that are given up after their retries,
    and with `on_bad="dead_letter"` for those that cannot be read.
    """

    requires: Iterable[str] = (REQUIRES,)
    transient = (
        *PartitionReader.transient,
        "_failures",
        "_letters",
        "_queue",
        "_held",
        "_is_tracked",
        "_ready_in",
        "_reader",
    )

    @answering()
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
        key: str | Format | Decode = "bytes",
        value: str | Format | Decode = "bytes",
        translate: Callable[[Record], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        retry: Backoff | None = None,
        dead_letter: str | None = None,
        max_in_flight: int = 100_000,
        discover_secs: float = 10.0,
        missing: str = "null",
        missing_topics: str = "wait",
        on_data_loss: str = "stop",
        on_bad: OnBad | Literal["dead_letter"] = "stop",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.servers, self.settings = checked_servers(servers), dict(settings or {})
        check_consumer_settings(self.settings)
        if guarantee is not None:
            check_choice(_NAME, "guarantee", guarantee, GUARANTEES)
        if missing in ("wait", "fail"):  # as `missing_topics` was called
            missing, missing_topics = "null", missing
        check_choice(_NAME, "missing_topics", missing_topics, ("wait", "fail"))
        check_choice(_NAME, "on_data_loss", on_data_loss, ("stop", "earliest", "latest"))
        check_positive(_NAME, max_in_flight=max_in_flight, discover_secs=discover_secs)
        self.topics = Topics(topics)
        given = {tp: offset for tp, offset in self.topics.given.items() if offset is not None}
        self.start = Start.of(given or start, self.topics.only)
        check_until(until, self.topics.only)
        self.until, self.group, self.guarantee = until, group, guarantee
        self.retry, self.dead_letter = retry or Backoff(), dead_letter
        self._check_dead_letter(on_bad)
        self.max_in_flight, self.discover_secs = max_in_flight, discover_secs
        self.missing_topics, self.on_data_loss = missing_topics, on_data_loss
        self.translation = Translation(
            key,
            value=value,
            fields=fields,
            translate=translate,
            streams=streams,
            dead=DEAD_FIELDS if self.retry.retries is not None else (),
            missing=missing,
            on_bad=on_bad,
            on_bad_choices=("stop", "stream", "skip", "dead_letter"),
        )
        self.on_bad, self.outputs = on_bad, self.translation.outputs
        self.requires = (REQUIRES, *requirements_of(key, value))

    def _check_dead_letter(self, on_bad: str) -> None:
        if self.dead_letter is None:
            if on_bad == "dead_letter":
                raise ComponentError(
                    f"{_NAME}: on_bad='dead_letter' without a topic",
                    hint='dead_letter="clicks-dead"',
                )
            return
        if self.topics.has(self.dead_letter):
            raise ComponentError(
                f"{_NAME}: dead_letter={self.dead_letter!r} is a topic that it reads itself"
            )
        gives_up = self.retry.retries is not None and self.guarantee in (None, "at_least_once")
        if not gives_up and on_bad != "dead_letter":
            raise ComponentError(
                f"{_NAME}: dead_letter={self.dead_letter!r}, and nothing is ever given up",
                hint="retry=Backoff(retries=3) with guarantee='at_least_once', or "
                "on_bad='dead_letter' for what cannot be read",
            )

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        default = "at_least_once" if conf["topology.acker.executors"] else "exactly_once"
        self._is_tracked = (self.guarantee or default) == "at_least_once"
        self.open_reader()
        self._letters = self.dead_letters()
        self._reader = MessageReader(self.translation, self, self._letters)
        self._failures = Failures(self, self.connect, self.retry, context.now)
        self._queue: deque[Message] = deque()
        self._held: dict[TP, deque[Message]] = {}  # of partitions at their limit
        self._ready_in = -1

    def dead_letters(self) -> DeadLetters | None:
        """Return what writes to the topic of messages that are given up, if there is one."""
        if self.dead_letter is None:
            return None
        letters = DeadLetters(self.servers, revealed(self.settings), self.dead_letter)
        self._open.add(letters.close)
        return letters

    def restored(self) -> None:
        """Go on where the committed batch was."""
        self._failures.restore()

    def close(self) -> None:
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
        """Emit what was fetched; what is beyond a limit waits, or lacks its schema for now."""
        room = len(self._queue)
        if self._is_tracked:
            room = self.room(room + self._failures.asked) - self._failures.asked
        columns = self._reader.read_messages(list(islice(self._queue, max(0, room))))
        rows: list[Any] = []
        ids: list[Any] = []
        try:
            self._read_queue(room, rows, ids, columns)
        finally:
            if rows:
                self._emit_rows(rows, ids, columns)

    def _emit_rows(self, rows: list[Any], ids: list[Any], columns: Columns | None) -> None:
        """Emit rows; or, of messages that were read as columns, those at these places of them."""
        emitted: Any = rows
        if columns is not None:
            first, end = rows[0], rows[-1] + 1
            if end - first == len(rows):
                emitted = {name: column[first:end] for name, column in columns.items()}
            else:
                emitted = {name: [column[row] for row in rows] for name, column in columns.items()}
        self.emit_many(emitted, msg_ids=ids if self._is_tracked else None)

    def _read_queue(
        self, room: int, rows: list[Any], ids: list[Any], columns: Columns | None
    ) -> None:
        """Take messages from the queue; add those of the default stream to `rows`, with ids.

        If the first `room` of them were read as columns, add their places in these instead.
        """
        key: TP = ("", -1)
        place, end = -1, room - 1 if columns is not None else sys.maxsize
        while self._queue and room > 0 and place < end:
            message = self._queue.popleft()
            place += 1
            if message.partition() != key[1] or message.topic() != key[0]:
                if rows and self.collector.hears_splits:
                    self._emit_rows(list(rows), list(ids), columns)
                    rows.clear()
                    ids.clear()
                key = (message.topic(), message.partition())
                self.collector.from_split(split_of(key))
                partition: Partition = self.state[key]
            offset = message.offset()
            if partition.until is not None and offset >= partition.until:
                partition.position = max(partition.position, partition.until)
                continue
            if self._is_tracked and partition.offsets.span >= self.max_in_flight:
                self._hold(key, message)
                continue
            values: Any = place
            if columns is None:
                try:
                    values = self._reader.read_message(self, message)
                except Unavailable:
                    self._queue.appendleft(message)
                    raise
            partition.position = offset + 1
            if values is None:
                continue
            if self._is_tracked:
                partition.offsets.emit(offset)
                room -= 1
            stream, own = stream_and_values(values)
            if stream != DEFAULT_STREAM:
                self.emit(own, stream=stream, msg_id=self._id_of(key, offset))
                continue
            rows.append(own)
            if self._is_tracked:
                ids.append((*key, offset))

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
            if partition.offsets.span < self.max_in_flight:
                # What is still in the queue of this partition came later.
                self._queue.extendleft(reversed(self._held.pop(key)))
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
        if self._letters is not None or self.context.this_targets.get("dead"):
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
        translated = self._reader.read_message(self, message)
        if translated is None:
            return False
        stream, values = stream_and_values(translated)
        self.context.counter("replayed")
        self.collector.from_split(split_of(key))
        self.emit(values, stream=stream, msg_id=(*key, message.offset()))
        return True

    def bury(self, key: TP, offset: int, message: Message | None, reason: str) -> None:
        """Tell of a message that was given up; None: the log has it no longer."""
        if self._letters is not None:
            self.context.end_batch()
            if message is not None:
                self._letters.bury(message, reason, self._most_failures)
            else:
                self.report_error(
                    f"{split_of(key)} at {offset} is given up, and the log has it no longer; "
                    f"the last time: {reason}"
                )
            if not self.context.this_targets.get("dead"):
                return
        held = [None] * 3 if message is None else [message.key(), message.value()]
        if message is not None:
            held.append(message.headers())
        self.emit([*key, offset, *held, reason, self._most_failures], stream="dead")

    # -- the end of a batch -------------------------------------------------------------------

    def pre_commit(self, batch_id: int) -> None:
        """Note what the batch is to keep, and how far behind the reading is."""
        if self._letters is not None:
            self._letters.flush()
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
        if self._client is not None and self.has_started and self.collector.hears_splits:
            self.collector.read_splits(self._splits())

    def _splits(self) -> dict[str, bool]:
        """Return the partitions that are not read to their end, each with whether it has more."""
        assert self._client is not None
        queued = {(message.topic(), message.partition()) for message in self._queue}
        splits = {}
        for key in self._own:
            partition: Partition = self.state.raw()[key]
            if not partition.is_finished:
                end = self._client.known_end(key)
                has_more = key in queued or key in self._held
                splits[split_of(key)] = has_more or (end is not None and partition.position < end)
        return splits

    def committed(self, batch_id: int) -> None:
        """Tell the group how far the topology is; tools look at it, the spout does not."""
        if self.group is None or self._client is None:
            return
        offsets = {key: self.state.raw()[key].committable for key in self._own}
        if offsets:
            failed = self._client.commit(offsets, self.commit_metadata)
            if failed:
                self.context.counter("commits_failed", failed)
