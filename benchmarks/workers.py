"""`topo bench workers`: a second worker for a bolt that computes for 50 microseconds a tuple.

A spout emits tracked numbers as fast as it may, and a bolt computes; each worker has a task of
both. One worker and two run in turn, in the same Spark's settings, and every number has to be
computed once and acked. The speed-up by the wall is that of a machine which does nothing else. On
one that does, processor time tells: what a tuple costs its slot, which is one core's, and what it
costs all processes, which share the cores. `possible_per_sec` is what these two allow. It is less
than a quiet machine does, since fewer tuples share what a batch or an epoch costs anyhow.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.following import end, follow, running
from benchmarks.model import BenchOptions, Measurement, Param
from benchmarks.processes import SLOT, cpu_seconds
from benchmarks.word_count import leave, left_behind
from topo import BasicBolt, Spout, Topology, TopologyBuilder, Tuple

WORKERS = (1, 2)
COMPUTE_SECS = 50e-6
_MODES = ("micro-batch", "real-time")
_MASTER = "local[4]"
"""In real-time mode each of two levels in two slots has a place, all the time."""
_EPOCH_MS = 50
_WARM_SECS = 6.0
_CALIBRATION = 200_000


class Numbers(Spout):
    """Emits the numbers of its task as fast as it may."""

    outputs = ("number",)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.emitted = self.acked = 0

    def next_tuple(self) -> None:
        self.emit([self.emitted], msg_id=self.emitted)
        self.emitted += 1

    def ack(self, msg_id: Any) -> None:
        self.acked += 1

    def close(self) -> None:
        leave(self.directory, "spout", self.context.this_task_id, (self.emitted, self.acked))


class Compute(BasicBolt):
    """Computes for a while with each number."""

    def __init__(self, directory: str, rounds: int) -> None:
        self.directory, self.rounds = directory, rounds

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.done = 0

    def execute(self, tup: Tuple) -> None:
        compute(tup.number, self.rounds)
        self.done += 1

    def cleanup(self) -> None:
        leave(self.directory, "compute", self.context.this_task_id, self.done)


def compute(number: int, rounds: int) -> int:
    """Keep one core busy."""
    for _ in range(rounds):
        number = (number * 31 + 7) & 0xFFFF
    return number


@cache
def rounds_of(secs: float) -> int:
    """Return how many rounds take so long on this machine, by processor time."""
    began = time.process_time()
    compute(1, _CALIBRATION)
    return round(secs * _CALIBRATION / (time.process_time() - began))


def run(options: BenchOptions) -> list[Measurement]:
    """One worker and two, in each mode."""
    modes = [mode for mode in _MODES if not options.modes or mode in options.modes]
    return [each for mode in modes for each in _measure(options, mode)]


@dataclass(frozen=True)
class Measured:
    """One run: tuples a second, and what a tuple cost, in seconds."""

    per_sec: float
    slots_secs: float
    all_secs: float
    verified: bool

    def possible_per_sec(self, workers: int) -> float:
        """Return how many tuples a second the slots' cores and those of the machine allow."""
        if not self.all_secs:
            return 0.0
        return min(workers / self.slots_secs, (os.cpu_count() or 1) / self.all_secs)


def _measure(options: BenchOptions, mode: str) -> list[Measurement]:
    measured: dict[int, list[Measured]] = {workers: [] for workers in WORKERS}
    for repeat in range(options.repeat):
        for workers in WORKERS:
            done = f"{repeat + 1} of {options.repeat}"
            options.progress(f"workers mode={mode} workers={workers}: {done}")
            measured[workers].append(_run_once(mode, workers, options.seconds))
    return [_measurement(mode, workers, measured) for workers in WORKERS]


def _measurement(mode: str, workers: int, measured: dict[int, list[Measured]]) -> Measurement:
    runs, alone = measured[workers], measured[WORKERS[0]]
    pairs = list(zip(runs, alone, strict=True))
    detail: dict[str, Param] = {
        "slots_us": _median([1e6 * each.slots_secs for each in runs]),
        "all_us": _median([1e6 * each.all_secs for each in runs]),
        "possible_per_sec": _median([each.possible_per_sec(workers) for each in runs]),
        "speedup": _median([each.per_sec / one.per_sec for each, one in pairs]),
    }
    if all(one.all_secs for one in alone):
        detail["possible_speedup"] = _median(
            [
                each.possible_per_sec(workers) / one.possible_per_sec(WORKERS[0])
                for each, one in pairs
            ]
        )
    return Measurement.of(
        "workers",
        {"mode": mode, "workers": workers, "compute_us": 1e6 * COMPUTE_SECS},
        "tuples",
        [each.per_sec for each in runs],
        verified=all(each.verified for each in runs),
        detail=detail,
    )


def _median(figures: list[float]) -> float:
    return round(sorted(figures)[len(figures) // 2], 3)


def _run_once(mode: str, workers: int, secs: float) -> Measured:
    conf = {
        "topology.workers": workers,
        "topology.mode": mode,
        "topology.max.spout.pending": 20_000,
        "topology.epoch.ms": _EPOCH_MS,
    }
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
        topology = _topology(directory, workers)
        with running(topology, conf, _MASTER) as run:
            follow(run, "compute", _WARM_SECS)
            before = cpu_seconds(with_ended=False) or {}
            executed = run.stats().components["compute"].executed
            followed = follow(run, "compute", secs)
            done = run.stats().components["compute"].executed - executed
            after = cpu_seconds(with_ended=False) or {}
            end(run, "numbers")
        spent = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
        return Measured(
            followed.executed_per_sec,
            spent.get(SLOT, 0.0) / done,
            sum(spent.values()) / done,
            _is_right(directory, workers),
        )


def _topology(directory: str, workers: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(directory), workers)
    bolt = Compute(directory, rounds_of(COMPUTE_SECS))
    builder.set_bolt("compute", bolt, workers).shuffle_grouping("numbers")
    return builder.create_topology()


def _is_right(directory: str, workers: int) -> bool:
    """True iff each number was computed once, and acked."""
    spouts, computed = left_behind(directory, "spout"), left_behind(directory, "compute")
    emitted = sum(each for each, _ in spouts)
    acked = sum(each for _, each in spouts)
    return len(spouts) == workers and emitted == acked == sum(computed)
