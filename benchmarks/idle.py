"""`topo bench idle`: what a topology costs that has little to do.

The word count of the latency suite on Spark, at rest and with a trickle of ten sentences a second,
the latter also with batches of a second at least (`topology.batch.least.ms`) and in real-time mode.
`detail` has the processor time in percent of one core and the memory in megabytes, by kind of
process; what a Spark session by itself holds is in them.
"""

from __future__ import annotations

import tempfile
from typing import Any

from benchmarks.following import end, running
from benchmarks.latency import is_right, paced_word_count
from benchmarks.model import BenchOptions, Measurement, Param
from benchmarks.processes import cpu_seconds, resident_bytes
from benchmarks.word_count import slots_of
from topo.errors import EngineError

LEAST_SECONDS = 5
LEAST_REASON = "an idle topology does something every few seconds only"

TRICKLE = 10
_CASES: dict[str, tuple[float, dict[str, Any]]] = {
    "at rest": (1e-6, {}),
    "trickle": (TRICKLE, {}),
    "trickle, batches of 1 s": (TRICKLE, {"topology.batch.least.ms": 1000}),
    "at rest, real-time": (1e-6, {"topology.mode": "real-time"}),
    "trickle, real-time": (TRICKLE, {"topology.mode": "real-time"}),
}
_WARM_SECS = 5.0


def run(options: BenchOptions) -> list[Measurement]:
    return [_measure(options, case, *_CASES[case]) for case in _CASES]


def _measure(options: BenchOptions, case: str, rate: float, conf: dict[str, Any]) -> Measurement:
    slots = slots_of(options)
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
        topology = paced_word_count(rate, directory, slots)
        with running(topology, {**conf, "topology.workers": slots}) as measured:
            measured.wait(_WARM_SECS)
            batch, before = measured.stats().batch.id, cpu_seconds()
            measured.wait(options.seconds)
            stats, after, held = measured.stats(), cpu_seconds(), resident_bytes()
            end(measured, "sentences")
        right = is_right(directory, slots)
    if before is None or after is None or held is None:
        raise EngineError("processor time and memory are measured by /proc, which is not here")
    used = {kind: (after[kind] - before.get(kind, 0.0)) for kind in after}
    detail: dict[str, Param] = {
        "core_percent": round(100 * sum(used.values()) / options.seconds, 1),
        "batches": stats.batch.id - batch,
        "memory_mb": round(sum(held.values()) / 2**20),
    }
    detail |= {f"{kind}_percent": round(100 * used[kind] / options.seconds, 1) for kind in used}
    detail |= {f"{kind}_mb": round(held[kind] / 2**20) for kind in held}
    options.progress(f"idle {case}: {detail['core_percent']} % of a core, {detail['memory_mb']} MB")
    return Measurement.of(
        "idle",
        {"case": case, "workers": slots},
        "batches",
        [max(1, stats.batch.id - batch) / options.seconds],
        verified=right,
        cpu_secs=sum(used.values()),
        detail=detail,
    )
