"""`topo bench columns`: numbers and keys by tuple, by values and by batch, and columns as bytes.

    project      keep every third number, double it and add one: a filter, a map, a sum
    group        count text by key: a fields grouping, then a count
    wire         a column of numbers to bytes and back, beside a pickle of the same values

The first two go through one slot on one core, each hop encoded and decoded, beside a plain loop
over the same values, and must give the same result. All is processor time.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from time import process_time
from typing import Any

from benchmarks.model import BenchOptions, Measurement
from benchmarks.slots import run_to_end
from topo import BasicBolt, Spout, Topology, TopologyBuilder, Tuple
from topo.wire.arrow import ArrowColumn
from topo.wire.column import decode_column, encode_column

_ROWS_A_SECOND = 400_000  # a guess that turns --seconds into an amount of work
_CHUNK, _BATCH, _KEYS = 4_000, 40_000, 1000


class Columns(Spout):
    """Emits prepared Arrow columns, a chunk a call."""

    outputs = ("value",)
    transient = ("array",)

    def __init__(self, make: Callable[[int], list[Any]], total: int) -> None:
        self.make = make
        self.total = total
        self.sent = 0

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        import pyarrow as pa

        self.array = pa.array(self.make(self.total))

    def next_tuple(self) -> None:
        if self.sent < self.total:
            self.emit_batch({"value": self.array[self.sent : self.sent + _CHUNK]})
            self.sent += _CHUNK

    def is_exhausted(self) -> bool:
        return self.sent >= self.total


def numbers(total: int) -> list[Any]:
    return list(range(total))


def keys(total: int) -> list[Any]:
    weights = [1 / (rank + 1) for rank in range(_KEYS)]
    return Random(1).choices([f"key{rank}" for rank in range(_KEYS)], weights, k=total)


class ProjectTuple(BasicBolt):
    outputs = ("value",)

    def execute(self, tup: Tuple) -> None:
        if tup.value % 3 == 0:
            self.emit([tup.value * 2 + 1])


class ProjectValues(BasicBolt):
    outputs = ("value",)

    def process(self, value: int) -> None:
        if value % 3 == 0:
            self.emit_values(value * 2 + 1)


class ProjectBatch(BasicBolt):
    outputs = ("value",)

    def process_batch(self, batch: Any) -> None:
        import numpy as np

        values = batch["value"].to_numpy()
        rows = np.flatnonzero(values % 3 == 0)
        self.emit_batch({"value": values[rows] * 2 + 1}, parents=rows)


class SumTuple(BasicBolt):
    found = 0

    def execute(self, tup: Tuple) -> None:
        self.found += tup.value


class SumValues(BasicBolt):
    found = 0

    def process(self, value: int) -> None:
        self.found += value


class SumBatch(BasicBolt):
    found = 0

    def process_batch(self, batch: Any) -> None:
        self.found += int(batch["value"].to_numpy().sum())


class _Counts(BasicBolt):
    def __init__(self) -> None:
        self.found: Counter[str] = Counter()


class CountTuple(_Counts):
    def execute(self, tup: Tuple) -> None:
        self.found[tup.value] += 1


class CountValues(_Counts):
    def process(self, value: str) -> None:
        self.found[value] += 1


class CountBatch(_Counts):
    def process_batch(self, batch: Any) -> None:
        import pyarrow.compute as pc

        counts = pc.value_counts(batch["value"])
        keys, numbers = counts.field(0).to_pylist(), counts.field(1).to_pylist()
        for key, number in zip(keys, numbers, strict=True):
            self.found[key] += number


_PROJECT = {
    "tuple": (ProjectTuple, SumTuple),
    "values": (ProjectValues, SumValues),
    "batch": (ProjectBatch, SumBatch),
}
_GROUP = {"tuple": CountTuple, "values": CountValues, "batch": CountBatch}


def project(total: int, way: str) -> Topology:
    first, last = _PROJECT[way]
    builder = TopologyBuilder()
    builder.set_spout("numbers", Columns(numbers, total))
    builder.set_bolt("project", first()).shuffle_grouping("numbers")
    builder.set_bolt("end", last()).shuffle_grouping("project")
    return builder.create_topology()


def group(total: int, way: str) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("keys", Columns(keys, total))
    builder.set_bolt("end", _GROUP[way](), 2).fields_grouping("keys", ["value"])
    return builder.create_topology()


def project_in_a_loop(values: list[int]) -> int:
    total = 0
    for value in values:
        if value % 3 == 0:
            total += value * 2 + 1
    return total


def group_in_a_loop(values: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


_WORKS: dict[str, tuple[Any, Any, Any]] = {
    "project": (project, numbers, project_in_a_loop),
    "group": (group, keys, group_in_a_loop),
}


def run(options: BenchOptions) -> list[Measurement]:
    total = max(_BATCH, int(options.seconds * _ROWS_A_SECOND))
    return [
        *(_measure(options, work, way, total) for work in _WORKS for way in _PROJECT),
        *_wire(options),
    ]


def _measure(options: BenchOptions, work: str, way: str, total: int) -> Measurement:
    make, values_of, loop = _WORKS[work]
    values = values_of(total)
    rates, loop_rates, verified = [], [], True
    for repeat in range(options.repeat):
        options.progress(f"columns {work} {way}: {repeat + 1} of {options.repeat}")
        started = process_time()
        expected = loop(values)
        loop_rates.append(total / (process_time() - started))
        slot, layout, seconds = run_to_end(make(total, way), _BATCH, process_time)
        rates.append(total / seconds)
        ends: list[Any] = [slot.tasks[task].component for task in layout.tasks_of("end")]
        result = ends[0].found
        for end in ends[1:]:
            result = result + end.found
        verified = verified and result == expected
    return Measurement.of(
        "columns",
        {"work": work, "way": way},
        "rows",
        rates,
        verified=verified,
        loop_rates=loop_rates,
    )


def _wire(options: BenchOptions) -> Iterator[Measurement]:
    import pyarrow as pa

    floats = [number / 7 for number in range(_CHUNK)]
    for kind, values in (("integers", [n * 1_000_003 for n in range(_CHUNK)]), ("floats", floats)):
        array = pa.array(values)
        data = encode_column(ArrowColumn(array))
        rates, loop_rates = [], []
        for _ in range(options.repeat):
            loop_rates.append(_rate(partial(_pickled, values)))
            rates.append(_rate(partial(_encoded, array)))
        decoded = decode_column(data)
        yield Measurement.of(
            "columns",
            {"work": f"wire of {kind}"},
            "values",
            rates,
            verified=list(decoded) == values,
            loop_rates=loop_rates,
            detail={
                "bytes a value": round(len(data) / _CHUNK, 2),
                "bytes a value of a pickle": round(len(pickle.dumps(values, 5)) / _CHUNK, 2),
            },
        )


def _pickled(values: list[Any]) -> Any:
    return pickle.loads(pickle.dumps(values, 5))


def _encoded(array: Any) -> Any:
    return decode_column(encode_column(ArrowColumn(array)))


def _rate(work: Callable[[], Any], times: int = 200) -> float:
    started = process_time()
    for _ in range(times):
        work()
    return times * _CHUNK / (process_time() - started)
