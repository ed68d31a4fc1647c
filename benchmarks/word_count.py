"""`topo bench word-count`: the word count on Spark in three ways, tracked and not, beside a loop.

The topology is endless. It warms up until its batches have found their size, then whole batches
are measured; then it is ended in good order, and its tasks leave behind how far the spouts came
and what was counted, which has to agree to the word. The plain loop counts the same sentences,
right before and right after. The floor is the same topology with one sentence a batch and slot.
"""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.following import BatchSeries, end, follow, running
from benchmarks.model import BatchTimes, BenchOptions, Measurement
from benchmarks.words import (
    WAYS,
    WORDS_A_SENTENCE,
    Count,
    CountBatch,
    CountValues,
    Sentences,
    count_in_a_loop,
    sentences,
)
from topo.builder import TopologyBuilder
from topo.config.masters import local_cores
from topo.topology.model import Topology

LEAST_SECONDS = 5
LEAST_REASON = "a batch takes 1 s and more"

_ENDLESS = 1 << 60
_WARM_SECS = 8.0
_FLOOR_SECS = 5.0
_LOOP_SENTENCES = 400_000


class EndlessSentences(Sentences):
    """Leaves behind how far it came."""

    def __init__(self, tracked: bool, directory: str) -> None:
        super().__init__(_ENDLESS, tracked)
        self.directory = directory

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        super().open(conf, context, collector)
        self.acked = 0

    def ack(self, msg_id: Any) -> None:
        self.acked += 1

    def is_exhausted(self) -> bool:
        return False

    def close(self) -> None:
        leave(self.directory, "spout", self.context.this_task_id, (self.next, self.acked))


class _Lasting:
    """Leaves behind what it counted."""

    counts: dict[str, int]
    context: Any

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def cleanup(self) -> None:
        leave(self.directory, "count", self.context.this_task_id, self.counts)


class LastingCount(_Lasting, Count):
    """By tuple."""


class LastingCountValues(_Lasting, CountValues):
    """By values."""


class LastingCountBatch(_Lasting, CountBatch):
    """By batch."""


_LASTING = {"tuple": LastingCount, "values": LastingCountValues, "batch": LastingCountBatch}


def leave(directory: str, kind: str, task: int, what: Any) -> None:
    Path(directory, f"{kind}-{task}").write_bytes(pickle.dumps(what))


def left_behind(directory: str, kind: str) -> list[Any]:
    """Read the files of a kind of task, in the order of their numbers."""
    paths = {int(path.name.partition("-")[2]): path for path in Path(directory).glob(f"{kind}-*")}
    return [pickle.loads(paths[task].read_bytes()) for task in sorted(paths)]


@dataclass(frozen=True)
class Measured:
    followed: BatchSeries
    verified: bool


def run(options: BenchOptions) -> list[Measurement]:
    return [_measure(options, tracked, way) for way in WAYS for tracked in (False, True)]


def _measure(options: BenchOptions, tracked: bool, way: str) -> Measurement:
    slots = slots_of(options)
    rates: list[float] = []
    loop_rates: list[float] = []
    cpu: list[float] = []
    times: list[float] = []
    verified = True
    for repeat in range(options.repeat):
        what = f"word-count {way} tracked={str(tracked).lower()}"
        options.progress(f"{what}: {repeat + 1} of {options.repeat}")
        before = _loop_rate()
        measured = _run_once(options, slots, tracked, way)
        loop_rates.append((before + _loop_rate()) / 2)
        rates.append(measured.followed.executed_per_sec)
        times += measured.followed.ms
        if measured.followed.cpu_secs is not None:
            cpu.append(measured.followed.cpu_secs)
        verified = verified and measured.verified
    options.progress(f"{what}: the floor")
    floor = _run_once(options, slots, tracked, way, floor=True)
    every = sorted(times)
    return Measurement.of(
        "word-count",
        {"tracked": tracked, "way": way, "workers": slots},
        "words",
        rates,
        verified=verified and floor.verified,
        loop_rates=loop_rates,
        cpu_secs=sum(cpu) / len(cpu) if cpu else None,
        batch_ms=BatchTimes(
            p50=every[len(every) // 2],
            floor_p50=floor.followed.p50,
            p99=every[int(0.99 * (len(every) - 1))],
        ),
    )


def _run_once(
    options: BenchOptions, slots: int, tracked: bool, way: str, floor: bool = False
) -> Measured:
    conf: dict[str, Any] = {
        "topology.workers": slots,
        "topology.acker.executors": options.ackers,
    }
    if floor:
        conf["topology.batch.max.tuples"] = 1
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
        topology = endless_word_count(tracked, directory, slots, way)
        with running(topology, conf) as endless:
            follow(endless, "count", _WARM_SECS)
            followed = follow(endless, "count", _FLOOR_SECS if floor else options.seconds)
            end(endless, "sentences")
        return Measured(followed, is_right(directory, slots, tracked))


def endless_word_count(
    tracked: bool, directory: str, parallelism: int, way: str = "tuple"
) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sentences", EndlessSentences(tracked, directory), parallelism)
    builder.set_bolt("split", WAYS[way][0], parallelism).shuffle_grouping("sentences")
    counts = builder.set_bolt("count", _LASTING[way](directory), parallelism)
    counts.fields_grouping("split", ["word"])
    return builder.create_topology()


def is_right(directory: str, tasks: int, tracked: bool) -> bool:
    """True iff exactly the words of the emitted sentences were counted, and all were acked."""
    spouts, counted = left_behind(directory, "spout"), left_behind(directory, "count")
    if len(spouts) != tasks or len(counted) != tasks:
        return False
    given = sentences()
    expected: Counter[str] = Counter()
    acked = 0
    for index, (after, heard) in enumerate(spouts):
        emitted = (after - index) // tasks
        acked += emitted - heard if tracked else 0
        # Task `index` emits every `tasks`-th sentence, over and over.
        own = [given[(index + k * tasks) % len(given)] for k in range(len(given))]
        rounds, rest = divmod(emitted, len(own))
        for sentence, times in zip(own, [rounds + 1] * rest + [rounds] * len(own), strict=False):
            for word in sentence.split():
                expected[word] += times
    found: Counter[str] = Counter()
    for counts in counted:
        found.update(counts)
    return acked == 0 and +found == +expected


def _loop_rate() -> float:
    """Words a second of the plain loop."""
    _, seconds = count_in_a_loop(sentences(), _LOOP_SENTENCES)
    return _LOOP_SENTENCES * WORDS_A_SENTENCE / seconds


def slots_of(options: BenchOptions) -> int:
    """As many as asked for; by default, as the engine has it, one for each core."""
    return options.workers or local_cores("local[*]")
