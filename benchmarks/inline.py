"""`topo bench inline`: the word count in three ways through `topo.runtime` alone, on one core.

Every hop is encoded and decoded, state is saved and the ledger told in every batch, as on Spark;
what is not in it is Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

from benchmarks.model import BenchOptions, Measurement
from benchmarks.slots import run_to_end
from benchmarks.words import WAYS, WORDS_A_SENTENCE, count_in_a_loop, sentences, word_count

_BATCH = 20_000
_SENTENCES_A_SECOND = 60_000  # a guess that turns --seconds into an amount of work


def run(options: BenchOptions) -> list[Measurement]:
    return [_measure(options, tracked, way) for way in WAYS for tracked in (False, True)]


def _measure(options: BenchOptions, tracked: bool, way: str) -> Measurement:
    total = max(_BATCH, int(options.seconds * _SENTENCES_A_SECOND))
    words = total * WORDS_A_SENTENCE
    rates, loop_rates, cpu = [], [], 0.0
    verified = True
    for repeat in range(options.repeat):
        options.progress(f"inline {way} tracked={tracked}: {repeat + 1} of {options.repeat}")
        expected, seconds = count_in_a_loop(sentences(), total)
        loop_rates.append(words / seconds)
        cpu_before = process_time()
        counts, seconds = count_with_topo(total, tracked, way)
        cpu += process_time() - cpu_before
        rates.append(words / seconds)
        verified = verified and counts == expected
    return Measurement.of(
        "inline",
        {"tracked": tracked, "way": way},
        "words",
        rates,
        verified=verified,
        loop_rates=loop_rates,
        cpu_secs=cpu / options.repeat,
    )


def count_with_topo(
    total: int, tracked: bool, way: str, clock: Callable[[], float] = perf_counter
) -> tuple[dict[str, int], float]:
    """Count `total` sentences' words: the counts, and the seconds it took by the clock."""
    host, layout, seconds = run_to_end(word_count(total, tracked, way=way), _BATCH, clock)
    counts: dict[str, int] = {}
    for task in layout.tasks_of("count"):
        component: Any = host.tasks[task].component
        counts.update(component.counts)
    return counts, seconds
