"""`topo bench memory`: what a word count holds, over time.

One endless, tracked run of `--seconds` (give it 1800), looked at sixty times: the resident memory
of the driver with its acker, the JVM, the slot processes, and Spark's Python workers. `detail` has
the median of each over the first quarter and over the last, in megabytes. It runs at full load in
micro-batches; with `--mode` in that mode and at `--rate` sentences a second (1,000), and `detail`
has the percentiles of all latencies as well.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence

from benchmarks.following import end, follow, running
from benchmarks.latency import MODES, PacedForLong, paced_word_count
from benchmarks.latency import is_right as is_paced_right
from benchmarks.model import BenchOptions, Measurement, Param
from benchmarks.processes import DRIVER, JVM, SLOT, WORKER, resident_bytes
from benchmarks.word_count import endless_word_count, is_right, left_behind, slots_of
from topo.engine.base import Run
from topo.errors import EngineError

LEAST_SECONDS = 60
LEAST_REASON = "memory shows what it does after minutes"

_LOOKS = 60
_KINDS = (DRIVER, JVM, SLOT, WORKER)
_RATE = 1000


def run(options: BenchOptions) -> list[Measurement]:
    if options.modes:
        asked = options.rates or (_RATE,)
        return [_paced(options, mode, rate) for mode in options.modes for rate in asked]
    slots = slots_of(options)
    conf = {"topology.workers": slots, "topology.acker.executors": options.ackers}
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
        with running(endless_word_count(True, directory, slots), conf) as endless:
            looks, rates = _look(options, endless)
            end(endless, "sentences")
        right = is_right(directory, slots, tracked=True)
    params: dict[str, Param] = {"tracked": True, "workers": slots}
    return [Measurement.of("memory", params, "words", rates, verified=right, detail=_detail(looks))]


def _paced(options: BenchOptions, mode: str, rate: int) -> Measurement:
    slots = slots_of(options)
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
        topology = paced_word_count(rate, directory, slots, PacedForLong)
        with running(topology, {**MODES[mode], "topology.workers": slots}) as paced:
            looks, rates = _look(options, paced)
            end(paced, "sentences")
        right = is_paced_right(directory, slots)
        latencies: Counter[int] = Counter()
        for _, _, by_tenth in left_behind(directory, "spout"):
            latencies.update(by_tenth)
    detail = {f"p{q:g}_ms": _percentile(latencies, q) for q in (50, 90, 99, 99.9)}
    shown = ", ".join(f"{name.removesuffix('_ms')} {ms:g}" for name, ms in detail.items())
    options.progress(f"memory {mode} at {rate}/s: {shown} ms")
    params: dict[str, Param] = {"mode": mode, "rate": rate, "workers": slots}
    detail_of_all = {**detail, **_detail(looks)}
    return Measurement.of("memory", params, "words", rates, verified=right, detail=detail_of_all)


def _look(options: BenchOptions, run: Run) -> tuple[list[dict[str, int]], list[float]]:
    """Return what all processes held, look by look, and how many words they counted a second."""
    looks: list[dict[str, int]] = []
    rates = []
    began = time.monotonic()
    while (after := time.monotonic() - began) < options.seconds:
        rates.append(follow(run, "count", options.seconds / _LOOKS).executed_per_sec)
        held = resident_bytes()
        if held is None:
            raise EngineError("memory is measured by /proc, which is not here")
        looks.append(held)
        shown = ", ".join(f"{kind} {held.get(kind, 0) >> 20}" for kind in _KINDS)
        options.progress(f"memory: {after:.0f} s, {rates[-1]:,.0f} words/s, MB: {shown}")
    return looks, rates


def _percentile(by_tenth: Counter[int], percent: float) -> float:
    wanted = by_tenth.total() * percent / 100
    passed = 0
    for tenth in sorted(by_tenth):
        passed += by_tenth[tenth]
        if passed >= wanted:
            return tenth / 10
    return 0.0


def _detail(looks: Sequence[dict[str, int]]) -> dict[str, Param]:
    quarter = max(1, len(looks) // 4)
    found: dict[str, Param] = {}
    for kind in _KINDS:
        for when, some in (("first", looks[:quarter]), ("last", looks[-quarter:])):
            median = statistics.median(held.get(kind, 0) for held in some)
            found[f"{kind}_mb_{when}_quarter"] = round(median / 2**20, 1)
    return found
