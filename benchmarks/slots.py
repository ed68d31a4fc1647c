"""One slot with all tasks of a topology, run to the end of its input: what an engine does, bare."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from topo import Spout, Topology
from topo.runtime.slot import Batch, SlotTasks, TaskEnvironment, full_conf
from topo.topology.layout import TaskLayout
from topo.tracking.ledger import Ledger

Columns = tuple[list[Any], ...]


class ChunkSpout(Spout):
    """Emits prepared chunks of columns, one a call."""

    transient = ("chunks",)

    def __init__(
        self, fields: tuple[str, ...], make: Callable[[], Iterable[Columns]], tracked: bool = False
    ) -> None:
        self.outputs = fields
        self.make = make
        self.tracked = tracked
        self.sent = 0

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.chunks = list(self.make())

    def next_tuple(self) -> None:
        if self.sent < len(self.chunks):
            columns = self.chunks[self.sent]
            ids = range(len(columns[0])) if self.tracked else None
            named = dict(zip(self.outputs, columns, strict=True))
            self.collector.emit_many(named, msg_ids=ids)
            self.sent += 1

    def is_exhausted(self) -> bool:
        return self.sent >= len(self.chunks)


class OneSlot:
    """One slot with all the tasks of a topology, opened, and a ledger."""

    def __init__(self, topology: Topology) -> None:
        conf = full_conf({})
        self.layout = TaskLayout(topology, conf)
        tasks = range(1, self.layout.count + 1)
        setting = TaskEnvironment(
            topology, self.layout, conf, "bench", perf_counter, local_tasks=frozenset(tasks)
        )
        self.host = SlotTasks(setting, tasks, travelling=True)
        for (
            made
        ) in self.host.tasks.values():  # on Spark, such bolts are in one level with their input
            made.outlet.outbox.unpacked_for = self._local_readers(topology, made.component_id)
        self._ledger = Ledger(conf["topology.message.timeout.secs"], self.layout.component_of)
        self._number = 0
        self.host.open()

    def _local_readers(self, topology: Topology, component: str) -> frozenset[int]:
        read = topology.consumers(component)
        local = [consumer.id for consumer, how in read if how.grouping.is_local]
        return frozenset(task for reader in local for task in self.layout.tasks_of(reader))

    def batch(self, most: int, *, last: bool = False) -> None:
        """Run one batch, of so many tuples at most."""
        host, ledger = self.host, self._ledger
        batch = Batch(self._number, float(self._number), self._number - 1.0)
        self._number += 1
        host.begin(batch)
        for spout in host.spouts:
            ledger.forget(spout.id, spout.cursor)
            host.deliver(spout.id, "bench", ledger.verdicts(spout.id, spout.cursor))
        host.poll(most)
        for frame in host.work(last_tick=last):
            raise AssertionError(f"a frame for task {frame.target_task}, which is not here")
        host.save()
        ledger.apply(host.take_updates(), batch.now)
        host.take_metrics()


def run_to_end(
    topology: Topology, batch: int, clock: Callable[[], float] = perf_counter
) -> tuple[SlotTasks, TaskLayout, float]:
    """Return the slot after the last batch, the layout, and the seconds that it took."""
    slot = OneSlot(topology)
    started = clock()
    while not (slot.host.exhausted and not slot.host.pending):
        slot.batch(batch)
    slot.batch(batch, last=True)
    return slot.host, slot.layout, clock() - started
