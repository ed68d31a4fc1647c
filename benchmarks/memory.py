"""`topo bench memory`: what a word count at full load holds, over time.

One endless, tracked run of `--seconds` (give it 1800), looked at sixty times: the resident memory
of the driver with its acker, the JVM, the slot processes, and Spark's Python workers. `detail` has
the median of each over the first quarter and over the last, in megabytes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence

from benchmarks.following import end, follow, running
from benchmarks.model import BenchOptions, Measurement, Param
from benchmarks.processes import DRIVER, JVM, SLOT, WORKER, resident_bytes
from benchmarks.word_count import endless_word_count, is_right, slots_of
from topo.errors import EngineError

LEAST_SECONDS = 60
LEAST_REASON = "memory shows what it does after minutes"

_LOOKS = 60
_KINDS = (DRIVER, JVM, SLOT, WORKER)


def run(options: BenchOptions) -> list[Measurement]:
    slots = slots_of(options)
    conf = {"topology.workers": slots, "topology.acker.executors": options.ackers}
    looks: list[dict[str, int]] = []
    rates = []
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
        with running(endless_word_count(True, directory, slots), conf) as endless:
            began = time.monotonic()
            while (after := time.monotonic() - began) < options.seconds:
                rates.append(follow(endless, "count", options.seconds / _LOOKS).executed_per_sec)
                held = resident_bytes()
                if held is None:
                    raise EngineError("memory is measured by /proc, which is not here")
                looks.append(held)
                shown = ", ".join(f"{kind} {held.get(kind, 0) >> 20}" for kind in _KINDS)
                options.progress(f"memory: {after:.0f} s, {rates[-1]:,.0f} words/s, MB: {shown}")
            end(endless, "sentences")
        right = is_right(directory, slots, tracked=True)
    params: dict[str, Param] = {"tracked": True, "workers": slots}
    return [Measurement.of("memory", params, "words", rates, verified=right, detail=_detail(looks))]


def _detail(looks: Sequence[dict[str, int]]) -> dict[str, Param]:
    quarter = max(1, len(looks) // 4)
    found: dict[str, Param] = {}
    for kind in _KINDS:
        for when, some in (("first", looks[:quarter]), ("last", looks[-quarter:])):
            median = statistics.median(held.get(kind, 0) for held in some)
            found[f"{kind}_mb_{when}_quarter"] = round(median / 2**20, 1)
    return found
