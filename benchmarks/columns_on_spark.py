"""`topo bench columns-on-spark`: filter, map, sum, and a count by key, the whole way through Spark.

The bolts are those of `columns`; the values come as Arrow columns. The topologies are endless, as
in `word_count`: they warm up, then whole batches are measured, then they are ended in good order,
and what the spouts have sent has to be what was summed up and counted. The plain loop does the same
on one core, right before and right after.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from time import perf_counter
from typing import Any

from benchmarks.columns import (
    CountBatch,
    CountValues,
    ProjectBatch,
    ProjectValues,
    SumBatch,
    SumValues,
    group_in_a_loop,
    keys,
    numbers,
    project_in_a_loop,
)
from benchmarks.following import end, follow, running
from benchmarks.model import BenchOptions, Measurement
from benchmarks.word_count import LEAST_REASON as LEAST_REASON
from benchmarks.word_count import LEAST_SECONDS as LEAST_SECONDS
from benchmarks.word_count import leave, left_behind, slots_of
from topo import Spout, Topology, TopologyBuilder

_VALUES, _CHUNK, _WARM_SECS = 1 << 20, 1 << 14, 8.0


class EndlessColumns(Spout):
    """Emits the same columns over and over, and leaves behind how many rows it has sent."""

    outputs = ("value",)
    transient = ("array",)

    def __init__(self, make: Callable[[int], list[Any]], directory: str) -> None:
        self.make = make
        self.directory = directory
        self.sent = 0

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        import pyarrow as pa

        self.array = pa.array(self.make(_VALUES))

    def next_tuple(self) -> None:
        first = self.sent % _VALUES
        self.emit_batch({"value": self.array[first : first + _CHUNK]})
        self.sent += _CHUNK

    def close(self) -> None:
        leave(self.directory, "spout", self.context.this_task_id, self.sent)


class _Lasting:
    """Leaves behind what it has found."""

    directory = ""
    context: Any
    found: Any

    def to(self, directory: str) -> Any:
        self.directory = directory
        return self

    def cleanup(self) -> None:
        leave(self.directory, "end", self.context.this_task_id, self.found)


class LastingSumValues(_Lasting, SumValues):
    """By values."""


class LastingSumBatch(_Lasting, SumBatch):
    """By batch."""


class LastingCountValues(_Lasting, CountValues):
    """By values."""


class LastingCountBatch(_Lasting, CountBatch):
    """By batch."""


def project(directory: str, tasks: int, way: str) -> Topology:
    first, last = (
        (ProjectBatch, LastingSumBatch) if way == "batch" else (ProjectValues, LastingSumValues)
    )
    builder = TopologyBuilder()
    builder.set_spout("values", EndlessColumns(numbers, directory), tasks)
    builder.set_bolt("rows", first(), tasks).shuffle_grouping("values")
    builder.set_bolt("end", last().to(directory), tasks).shuffle_grouping("rows")
    return builder.create_topology()


def group(directory: str, tasks: int, way: str) -> Topology:
    counts = LastingCountBatch() if way == "batch" else LastingCountValues()
    builder = TopologyBuilder()
    builder.set_spout("values", EndlessColumns(keys, directory), tasks)
    builder.set_bolt("rows", counts.to(directory), tasks).fields_grouping("values", ["value"])
    return builder.create_topology()


_WORKS: dict[str, tuple[Any, Any, Any]] = {
    "project": (project, numbers, project_in_a_loop),
    "group": (group, keys, group_in_a_loop),
}


def run(options: BenchOptions) -> list[Measurement]:
    return [_measure(options, work, way) for work in _WORKS for way in ("values", "batch")]


def _measure(options: BenchOptions, work: str, way: str) -> Measurement:
    make, values_of, loop = _WORKS[work]
    values, tasks = values_of(_VALUES), slots_of(options)
    rates, loop_rates, cpu, verified = [], [], [], True
    for repeat in range(options.repeat):
        options.progress(f"columns-on-spark {work} {way}: {repeat + 1} of {options.repeat}")
        before = _rate(loop, values)
        with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
            with running(make(directory, tasks, way), {"topology.workers": tasks}) as endless:
                follow(endless, "rows", _WARM_SECS)
                followed = follow(endless, "rows", options.seconds)
                end(endless, "values")
            verified = verified and _is_right(directory, tasks, loop, values)
        loop_rates.append((before + _rate(loop, values)) / 2)
        rates.append(followed.executed_per_sec)
        if followed.cpu_secs is not None:
            first, last = followed.batches[0], followed.batches[-1]
            cpu.append(followed.cpu_secs / (last.executed - first.executed) * 1e9)
    return Measurement.of(
        "columns-on-spark",
        {"work": work, "way": way, "workers": tasks},
        "rows",
        rates,
        verified=verified,
        loop_rates=loop_rates,
        detail={"processor time of a row, ns": round(sum(cpu) / len(cpu), 1)} if cpu else None,
    )


def _rate(loop: Callable[[list[Any]], Any], values: list[Any]) -> float:
    started = perf_counter()
    loop(values)
    return len(values) / (perf_counter() - started)


def _is_right(
    directory: str, tasks: int, loop: Callable[[list[Any]], Any], values: list[Any]
) -> bool:
    """True iff what was found is what comes of all that was sent."""
    sent, found = left_behind(directory, "spout"), left_behind(directory, "end")
    if len(sent) != tasks or len(found) != tasks:
        return False
    expected: Counter[Any] = Counter()
    for count in sent:
        rounds, rest = divmod(count, _VALUES)
        for times, result in ((rounds, loop(values)), (1, loop(values[:rest]))):
            expected.update({k: v * times for k, v in _named(result).items()})
    all_found: Counter[Any] = Counter()
    for each in found:
        all_found.update(_named(each))
    return +all_found == +expected


def _named(result: Any) -> dict[Any, int]:
    """Return a result as counts; a sum is one of them."""
    return dict(result) if isinstance(result, dict) else {"sum": result}
