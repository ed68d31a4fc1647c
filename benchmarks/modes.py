"""Figures of the modes beside latency: throughput, idle CPU, start, restart after a death.

`topo bench latency` measures them behind its latencies, all modes in the same Spark. Throughput is
that of a tracked word count with keyed state under full load, checked to the word; in real-time
mode it commits every 50 ms. The other figures are of the paced word count: CPU of all processes
while its spouts have nothing, the time from submitting to the first ack while Spark is up, and that
from the death of a slot's process to the next ack.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.following import end, follow, running
from benchmarks.model import BenchOptions, Measurement, Param
from benchmarks.processes import cpu_seconds, slot_pids
from benchmarks.word_count import EndlessSentences, is_right, leave, slots_of
from benchmarks.words import split
from topo.builder import TopologyBuilder
from topo.cluster import LocalCluster
from topo.components import StatefulBasicBolt
from topo.engine.base import Run
from topo.errors import RunError
from topo.topology.model import Topology
from topo.tuples import Tuple

_WARM_SECS = 5.0
_SETTLE_SECS = 2.0
_LOOK_SECS = 0.005
_PATIENCE_SECS = 120.0
_HEARD_SECS = 0.2  # within which the driver has heard of all acks
_EPOCH_MS = 50
_RATE = 1000.0
_NEXT_TO_NOTHING = 1e-6


class KeyedCount(StatefulBasicBolt):
    """Counts words in keyed state."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Tuple) -> None:
        self.state[tup.word] = self.state.get(tup.word, 0) + 1

    def cleanup(self) -> None:
        leave(self.directory, "count", self.context.this_task_id, dict(self.state.items()))


def endless(directory: str, parallelism: int) -> Topology:
    """Build a tracked word count that emits as much as it may."""
    builder = TopologyBuilder()
    builder.set_spout("sentences", EndlessSentences(True, directory), parallelism)
    builder.set_bolt("split", split, parallelism).shuffle_grouping("sentences")
    counts = builder.set_bolt("count", KeyedCount(directory), parallelism)
    counts.fields_grouping("split", "word")
    return builder.create_topology()


def measure(
    options: BenchOptions,
    mode: str,
    conf: Mapping[str, Any],
    paced: Callable[[float, str, int], Topology],
) -> Measurement:
    """Measure one mode; `paced` builds the topology of the figures that are not of full load."""
    slots = slots_of(options)
    rates, cpu, verified = _full_load(options, slots, mode, dict(conf))
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory, LocalCluster() as cluster:
        started = time.monotonic()
        given = {**conf, "topology.workers": slots}
        run = cluster.submit_topology("bench", paced(_RATE, directory, slots), given)
        _await_acks(run, 0)
        start = time.monotonic() - started
        time.sleep(_SETTLE_SECS)
        restart = _restart(run)
        run.kill()
        at_rest = paced(_NEXT_TO_NOTHING, directory, slots)
        with running(at_rest, given):
            time.sleep(_SETTLE_SECS)
            idle = _idle_share(options.seconds)
    detail: dict[str, Param] = {
        "start_to_first_ack_secs": round(start, 2),
        "slot_death_to_next_ack_secs": round(restart, 2),
        "idle_percent_of_a_core": round(100 * idle, 1),
    }
    shown = ", ".join(f"{name} {value:g}" for name, value in detail.items())
    options.progress(f"{mode}: {rates[len(rates) // 2]:,.0f} words/s at full load, {shown}")
    params: dict[str, Param] = {"mode": mode, "load": "full", "workers": slots}
    return Measurement.of(
        "latency", params, "words", rates, verified=verified, cpu_secs=cpu, detail=detail
    )


def _full_load(
    options: BenchOptions, slots: int, mode: str, conf: dict[str, Any]
) -> tuple[list[float], float | None, bool]:
    if conf.get("topology.epoch.ms"):
        conf["topology.epoch.ms"] = _EPOCH_MS
    rates, cpu, verified = [], [], True
    for repeat in range(options.repeat):
        options.progress(f"throughput {mode}: {repeat + 1} of {options.repeat}")
        with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
            with running(endless(directory, slots), {**conf, "topology.workers": slots}) as run:
                follow(run, "count", _WARM_SECS)
                followed = follow(run, "count", options.seconds)
                end(run, "sentences")
            rates.append(followed.executed_per_sec)
            if followed.cpu_secs is not None:
                cpu.append(followed.cpu_secs)
            verified = verified and is_right(directory, slots, tracked=True)
    return rates, sum(cpu) / len(cpu) if cpu else None, verified


def _await_acks(run: Run, more_than: int) -> None:
    until = time.monotonic() + _PATIENCE_SECS
    while run.stats().components["sentences"].acked <= more_than:
        if time.monotonic() > until:
            raise RunError(f"no ack in {_PATIENCE_SECS:g} s", hint=run.reason)
        time.sleep(_LOOK_SECS)


def _restart(run: Run) -> float:
    """Kill the process of a slot; return how long it took until messages were acked again."""
    victim = slot_pids()[0]
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    while victim in slot_pids() or time.monotonic() < killed + _HEARD_SECS:
        time.sleep(_LOOK_SECS)  # what was acked before it was missed does not count
    _await_acks(run, run.stats().components["sentences"].acked)
    return time.monotonic() - killed


def _idle_share(secs: float) -> float:
    """Return the cores that all processes took, of a topology that does nothing."""
    began, before = time.monotonic(), cpu_seconds(with_ended=False)
    time.sleep(secs)
    after, elapsed = cpu_seconds(with_ended=False), time.monotonic() - began
    if before is None or after is None:
        return 0.0
    return sum(after.get(kind, 0.0) - before.get(kind, 0.0) for kind in after) / elapsed
