"""The times of a spout task's pending messages, which hold the watermark: `hold_pending`.

A message that fails is emitted again with its old time, and late if the watermark has passed that.
So a task says in each batch the lowest time of its messages that are not acked, and no reader's
watermark passes it. One that has failed counts on until it is emitted again, under the same id, or
for as long as a message may be pending: some spouts give messages up, and none says so.

The times are noted as rows are dealt, by readers that ask for it; no other spout pays for it. They
are saved as pending messages are, so that a restart forgets none.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topo.components import Spout
from topo.event_time import AFTER_ALL, EventTime, TimeReader
from topo.runtime.time_reading import time_reader
from topo.storage.saving import Changes, SavedMapping
from topo.timed import spouts_before
from topo.topology.model import ComponentDef, Topology
from topo.wire.column import dump

if TYPE_CHECKING:
    from topo.runtime.out_streams import OutStream
    from topo.runtime.spout_task import SpoutTask
    from topo.runtime.task import TaskEnvironment

_LEAST = 1024
"""So many outdated entries of the heap are not worth a look."""


class PendingTimes:
    """The times of one task's pending messages, as one bolt reads them."""

    def __init__(self, consumer: str, owner: str, patience_secs: float) -> None:
        self.consumer = consumer
        self._patience = patience_secs
        self._times: dict[int, Any] = {}  # by sequence; of a failed one with its id and its end
        self._heap: list[tuple[int, int]] = []
        self._failed: dict[Any, list[int]] = {}  # by what stands for their ids
        self._ends: list[tuple[float, int]] = []  # when failed ones are given up
        self._changed: dict[int, None] = {}
        self._log = SavedMapping(f"times:{consumer}", owner)

    def note(self, times: Iterable[int | None], sequences: Iterable[int]) -> None:
        """Note the times of messages that are emitted; 0 is the sequence of an untracked tuple."""
        known, heap = self._times, self._heap
        for ts, sequence in zip(times, sequences, strict=True):
            if sequence and ts is not None:
                known[sequence] = ts
                heapq.heappush(heap, (ts, sequence))
                self._changed[sequence] = None

    @property
    def awaits_failed(self) -> bool:
        """True if messages have failed that may be emitted again."""
        return bool(self._failed)

    def emitted_again(self, msg_ids: Iterable[Any]) -> None:
        """Let failed messages go that are emitted again; note the new ones before."""
        for msg_id in msg_ids:
            if sequences := self._failed.pop(_name_of(msg_id), None):
                self.forget(sequences)

    def forget(self, sequences: Iterable[int]) -> None:
        """Let messages go: those that are acked, or will not be emitted again."""
        for sequence in sequences:
            if self._times.pop(sequence, None) is not None:
                self._changed[sequence] = None

    def fail(self, sequence: int, msg_id: Any, now: float) -> None:
        """Keep the time of a failed message until it is emitted again."""
        ts = self._times.get(sequence)
        if ts is not None:
            self._keep_failed(sequence, ts, _name_of(msg_id), now + self._patience)
            self._changed[sequence] = None

    def _keep_failed(self, sequence: int, ts: int, name: Any, until: float) -> None:
        self._times[sequence] = (ts, name, until)
        self._failed.setdefault(name, []).append(sequence)
        heapq.heappush(self._ends, (until, sequence))

    def lowest(self, now: float) -> int:
        """Return the lowest time; AFTER_ALL if no message holds the watermark."""
        while self._ends and self._ends[0][0] <= now:
            sequence = heapq.heappop(self._ends)[1]
            kept = self._times.get(sequence)
            if kept is not None:
                self._failed[kept[1]].remove(sequence)
                if not self._failed[kept[1]]:
                    del self._failed[kept[1]]
                self.forget([sequence])
        heap = self._heap
        if len(heap) > 2 * len(self._times) + _LEAST:
            self._rebuild()
            heap = self._heap
        while heap and heap[0][1] not in self._times:
            heapq.heappop(heap)
        return heap[0][0] if heap else AFTER_ALL

    def _rebuild(self) -> None:
        """Leave out what is outdated."""
        entries = self._times.items()
        self._heap = [(ts[0] if type(ts) is tuple else ts, sequence) for sequence, ts in entries]
        heapq.heapify(self._heap)

    @property
    def next_end(self) -> float | None:
        """The clock at which a failed message is given up."""
        ends = self._ends
        while ends and ends[0][1] not in self._times:
            heapq.heappop(ends)
        return ends[0][0] if ends else None

    def load(self, saved: Mapping[str, bytes]) -> None:
        """Take over what was saved."""
        self._times = self._log.load(saved)
        self._rebuild()
        for sequence, kept in self._times.items():
            if type(kept) is tuple:
                self._keep_failed(sequence, *kept)

    def save(self, changes: Changes) -> None:
        """Save what changed."""
        changed, self._changed = self._changed, {}
        self._log.save(self._times, changed, changes)


class StreamHold:
    """The reading of the times of one stream's messages, for one bolt."""

    def __init__(
        self, times: PendingTimes, reader: TimeReader, ids_of: Callable[[list[int]], Iterable[Any]]
    ) -> None:
        self._times = times
        self._reader = reader
        self._ids_of = ids_of

    def note(self, columns: Sequence[Sequence[Any]], count: int, sequences: Sequence[int]) -> None:
        """Note rows that are dealt; the sequence of a row's message is 0 if it is untracked."""
        self._times.note(self._reader.times(columns, count), sequences)
        tracked = [one for one in sequences if one] if self._times.awaits_failed else []
        if tracked:
            self._times.emitted_again(self._ids_of(tracked))


def _name_of(msg_id: Any) -> Any:
    """Return what stands for a message's id among others."""
    try:
        hash(msg_id)
    except TypeError:
        return dump(msg_id)
    return msg_id


def held_by(topology: Topology, consumer: ComponentDef, time: EventTime | None) -> set[str]:
    """Return the spouts whose pending messages hold a bolt's watermark."""
    if time is None or not time.hold_pending:
        return set()

    def reads(name: str) -> list[str]:
        found = [read.component for read in topology.component(name).inputs]
        return [one for one in found if name != consumer.id or one not in time.untimed]

    return spouts_before(consumer.id, reads, lambda name: topology.component(name).timed)


class HeldTimes:
    """The times of a spout task's pending messages, for each bolt whose watermark they hold."""

    def __init__(self, task: SpoutTask) -> None:
        self._task = task
        self._kept: list[PendingTimes] = []
        self._replays = type(task.component).fail is not Spout.fail
        setting, spout = task.setting, task.definition
        # Without ackers nothing is ever pending.
        for consumer in setting.topology.bolts if setting.tracking else ():
            time = setting.timed(consumer.id).timing() if consumer.timed else None
            if time is None or spout.id not in held_by(setting.topology, consumer, time):
                continue
            patience = task.conf["topology.message.timeout.secs"]
            times = PendingTimes(consumer.id, f"{task.owner} task {task.id}", patience)
            self._kept.append(times)
            for stream in task.outlet.streams.values():
                reader = _reader(setting, consumer, replace(time, on_bad="late"), spout.id, stream)
                if reader is not None:
                    stream.holds.append(StreamHold(times, reader, task.ids_of))

    def acked(self, sequences: Iterable[int]) -> None:
        """Let messages go."""
        if self._kept:
            numbers = list(map(int, sequences))
            for times in self._kept:
                times.forget(numbers)

    def concluded(self, sequence: int, msg_id: Any, reason: str | None) -> None:
        """Let a message go, or keep the time of one that failed, if its spout hears of it."""
        for times in self._kept:
            if reason is None or not self._replays:
                times.forget([sequence])
            else:
                times.fail(sequence, msg_id, self._task.batch_now)

    def lowest(self) -> Iterator[tuple[str, int]]:
        """Yield each bolt, and the lowest time of what is pending."""
        for times in self._kept:
            yield times.consumer, times.lowest(self._task.batch_now)

    @property
    def next_end(self) -> float | None:
        """The clock at which a failed message is given up."""
        ends = [end for times in self._kept if (end := times.next_end) is not None]
        return min(ends, default=None)

    def load(self, saved: Mapping[str, bytes]) -> None:
        """Take over what was saved."""
        for times in self._kept:
            times.load(saved)

    def save(self, changes: Changes) -> None:
        """Save what changed."""
        for times in self._kept:
            times.save(changes)


def _reader(
    setting: TaskEnvironment, consumer: ComponentDef, time: EventTime, spout: str, stream: OutStream
) -> TimeReader | None:
    """Return what reads the time of a spout's messages; what is no time holds nothing."""
    if time.extractor is not None:
        if all((read.component, read.stream) != (spout, stream.name) for read in consumer.inputs):
            return None
        return time_reader(setting, consumer, setting.timed(consumer.id), spout, stream.name, time)
    name = time.held_field_of(spout)
    if name is None or name not in stream.fields:
        return None
    return TimeReader(time, consumer.id, stream.fields, name=name)
