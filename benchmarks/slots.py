"""One slot with all tasks of a topology, run to the end of its input: what an engine does, bare."""

from __future__ import annotations

from time import perf_counter

from topo import Topology
from topo.runtime.slot import Batch, SlotTasks, TaskEnvironment, full_conf
from topo.topology.layout import TaskLayout
from topo.tracking.ledger import Ledger


def run_to_end(topology: Topology, batch: int) -> tuple[SlotTasks, TaskLayout, float]:
    """Return the slot after the last batch, the layout, and the seconds that it took."""
    conf = full_conf({})
    layout = TaskLayout(topology, conf)
    tasks = range(1, layout.count + 1)
    setting = TaskEnvironment(
        topology, layout, conf, "bench", perf_counter, local_tasks=frozenset(tasks)
    )
    host = SlotTasks(setting, tasks, travelling=True)
    ledger = Ledger(conf["topology.message.timeout.secs"], layout.component_of)
    host.open()
    started = perf_counter()
    number = 0
    while not (host.exhausted and not host.pending):
        _batch(host, ledger, Batch(number, float(number), number - 1.0), batch)
        number += 1
    _batch(host, ledger, Batch(number, float(number), number - 1.0), batch, last=True)
    return host, layout, perf_counter() - started


def _batch(host: SlotTasks, ledger: Ledger, batch: Batch, most: int, *, last: bool = False) -> None:
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
