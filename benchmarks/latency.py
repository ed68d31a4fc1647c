"""`topo bench latency`: the time from a spout's emit to its `ack`, at given rates, mode by mode.

A word count of three levels with keyed state, every sentence tracked. The spouts emit by the clock
and take both times themselves, so a figure holds everything in between. All modes run in the same
Spark, one after the other, in one command. The figures are those of the acks in the measured time;
at the end everything that was emitted has to be counted, to the word. Behind the latencies come the
throughput of each mode and what else it costs (`modes`).
"""

from __future__ import annotations

import tempfile
import time
from array import array
from collections import Counter
from typing import Any

from benchmarks.following import end, running
from benchmarks.model import BenchOptions, Measurement
from benchmarks.modes import KeyedCount, measure
from benchmarks.processes import cpu_seconds
from benchmarks.word_count import leave, left_behind, slots_of
from benchmarks.words import sentences, split
from topo.builder import TopologyBuilder
from topo.components import Spout
from topo.errors import RunError
from topo.topology.model import Topology

LEAST_SECONDS = 2
LEAST_REASON = "a micro-batch takes 100 ms, and a percentile needs many of them"

MODES: dict[str, dict[str, Any]] = {
    "micro-batch": {"topology.mode": "micro-batch"},
    "real-time": {"topology.mode": "real-time", "topology.epoch.ms": 10},
    "at-once": {"topology.mode": "real-time", "topology.epoch.ms": 0},
}
"""What `--mode` may name: real-time commits every 10 ms, at-once acks without saving."""
RATES = (1000, 10_000)
_WARM_SECS = 4.0


class Paced(Spout):
    """Emits so many sentences a second, and notes how long each took to be acked."""

    outputs = ("sentence",)
    transient = ("given", "started", "latencies", "by_tenth")

    def __init__(self, rate: float, directory: str) -> None:
        self.rate = rate
        self.directory = directory

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.given = sentences()
        self.emitted = 0
        self.acked = 0
        self.rate /= len(context.component_tasks(context.this_component_id))

    def activate(self) -> None:
        self.started = time.monotonic() - self.emitted / self.rate
        self.latencies = array("d")

    def next_tuple(self) -> None:
        now = time.monotonic()
        if self.emitted < (now - self.started) * self.rate:
            sentence = self.given[self.emitted % len(self.given)]
            self.emitted += 1
            self.emit([sentence], msg_id=now)

    def ack(self, msg_id: float) -> None:
        self.acked += 1
        self.latencies.extend((msg_id, time.monotonic() - msg_id))

    def close(self) -> None:
        known = (self.emitted, self.acked, self.latencies)
        leave(self.directory, "spout", self.context.this_task_id, known)


class PacedForLong(Paced):
    """Counts latencies by tenths of a millisecond, which takes the same memory for any time."""

    def activate(self) -> None:
        super().activate()
        self.by_tenth: Counter[int] = Counter()

    def ack(self, msg_id: float) -> None:
        self.acked += 1
        self.by_tenth[int(10_000 * (time.monotonic() - msg_id))] += 1

    def close(self) -> None:
        leave(
            self.directory,
            "spout",
            self.context.this_task_id,
            (self.emitted, self.acked, dict(self.by_tenth)),
        )


def paced_word_count(
    rate: float, directory: str, parallelism: int, spout: type[Paced] = Paced
) -> Topology:
    """Build a word count whose spouts emit at a rate, all of them together."""
    builder = TopologyBuilder()
    builder.set_spout("sentences", spout(rate, directory), parallelism)
    builder.set_bolt("split", split, parallelism).shuffle_grouping("sentences")
    counts = builder.set_bolt("count", KeyedCount(directory), parallelism)
    counts.fields_grouping("split", "word")
    return builder.create_topology()


def run(options: BenchOptions) -> list[Measurement]:
    """Measure every rate in every mode, and then every mode at full load."""
    modes = options.modes or tuple(MODES)
    rates = options.rates or RATES
    measured = [_measure(options, rate, mode) for rate in rates for mode in modes]
    return measured + [measure(options, mode, MODES[mode], paced_word_count) for mode in modes]


def _measure(options: BenchOptions, rate: int, mode: str) -> Measurement:
    slots = slots_of(options)
    per_sec: list[float] = []
    latencies: list[float] = []
    cpu: list[float] = []
    verified = True
    for repeat in range(options.repeat):
        options.progress(f"latency {mode} at {rate}/s: {repeat + 1} of {options.repeat}")
        with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
            conf = {**MODES[mode], "topology.workers": slots}
            with running(paced_word_count(rate, directory, slots), conf) as measured:
                measured.wait(_WARM_SECS)
                began, before = time.monotonic(), cpu_seconds()
                measured.wait(options.seconds)
                ended, after = time.monotonic(), cpu_seconds()
                end(measured, "sentences")
            if before is not None and after is not None:
                cpu.append(sum(after.values()) - sum(before.values()))
            acked = _between(directory, began, ended)
            latencies += acked
            per_sec.append(len(acked) / (ended - began))
            verified = verified and is_right(directory, slots)
    if not latencies:
        raise RunError(
            f"no message of the measured {options.seconds:g} s was acked in mode {mode}",
            hint="is the machine busy? take a lower --rate, or more --seconds",
        )
    ordered = sorted(latencies)
    figures = {f"p{q:g}_ms": round(1000 * _percentile(ordered, q), 2) for q in (50, 90, 99, 99.9)}
    shown = ", ".join(f"{name.removesuffix('_ms')} {ms:g}" for name, ms in figures.items())
    options.progress(f"latency {mode} at {rate}/s: {shown} ms")
    return Measurement.of(
        "latency",
        {"mode": mode, "rate": rate, "workers": slots},
        "acks",
        per_sec,
        verified=verified,
        cpu_secs=sum(cpu) / len(cpu) if cpu else None,
        detail=figures,
    )


def _percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def _between(directory: str, began: float, ended: float) -> list[float]:
    """Return the latencies of the messages emitted in this time."""
    flat = [value for _, _, noted in left_behind(directory, "spout") for value in noted]
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return [latency for emitted, latency in pairs if began <= emitted < ended]


def is_right(directory: str, tasks: int) -> bool:
    """True iff everything that was emitted was acked, and counted to the word."""
    spouts, counts = left_behind(directory, "spout"), left_behind(directory, "count")
    if len(spouts) != tasks or len(counts) != tasks:
        return False
    expected: Counter[str] = Counter()
    given = sentences()
    for emitted, acked, _ in spouts:
        if emitted != acked:
            return False
        rounds, rest = divmod(emitted, len(given))
        for at, sentence in enumerate(given):
            for word in sentence.split() if rounds or at < rest else ():
                expected[word] += rounds + (at < rest)
    counted: Counter[str] = Counter()
    for own in counts:
        counted.update(own)
    return counted == expected
