"""The row `table-table` of `topo bench streams`: an inner join of two tables by key.

Changes of 100,000 keys come in on both sides, and the changes of the joined table go out. The plain
loop beside it keeps three dicts.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from time import perf_counter, process_time
from typing import Any

from benchmarks.model import BenchOptions, Measurement
from benchmarks.slots import ChunkSpout, run_to_end
from topo import BasicBolt, Topology, Tuple
from topo.streams import StreamBuilder

_BATCH = 40_000
_CHUNK = 4_000
_CHANGES_A_SECOND = 250_000  # a guess that turns --seconds into an amount of work
_KEYS = 100_000

Columns = tuple[list[str], list[int]]
Table = dict[str, Any]


def changes(side: int, total: int) -> Iterator[Columns]:
    """Yield chunks of keys and rows of one side: the same ones each time."""
    names = [f"key-{number}" for number in range(_KEYS)]
    state = side + 1
    for start in range(0, total, _CHUNK):
        size = min(_CHUNK, total - start)
        keys = []
        for _ in range(size):
            state = (state * 1_103_515_245 + 12_345) % (1 << 31)
            keys.append(names[(state >> 8) % _KEYS])
        yield keys, list(range(start, start + size))


class Results(BasicBolt):
    """Takes the changes of the joined table."""

    transient = ("found",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.found: Table = {}

    def execute(self, tup: Tuple) -> None:
        self.found[tup[0]] = tup[1]


def _changes(side: int, total: int, tracked: bool) -> ChunkSpout:
    return ChunkSpout(("key", "value"), partial(changes, side, total), tracked)


def table_table(total: int, tracked: bool) -> Topology:
    program = StreamBuilder()
    left, right = (
        program.stream(_changes(side, total // 2, tracked)).pairs().to_table() for side in (0, 1)
    )
    left.join(right).to_stream().to(Results(), name="results")
    return program.build()


def table_table_loop(total: int) -> Table:
    tables: tuple[Table, Table] = ({}, {})
    found: Table = {}
    for chunks in zip(changes(0, total // 2), changes(1, total // 2), strict=True):
        for side, (keys, rows) in enumerate(chunks):
            own, other = tables[side], tables[1 - side]
            for key, row in zip(keys, rows, strict=True):
                own[key] = row
                match = other.get(key)
                if match is not None:
                    found[key] = (match, row) if side else (row, match)
    return found


def with_topo(total: int, tracked: bool) -> tuple[Table, float]:
    """Return the joined table, and the seconds that it took."""
    topology = table_table(total, tracked)
    thresholds = gc.get_threshold()
    # As in the processes of slots: a table is millions of containers, none of which is garbage.
    gc.set_threshold(50_000, 20, 20)
    host, layout, seconds = run_to_end(topology, _BATCH)
    gc.set_threshold(*thresholds)
    results = host.tasks[layout.tasks_of("results")[0]].component
    assert isinstance(results, Results)
    return results.found, seconds


def _loop(total: int) -> tuple[Table, float]:
    """Return the loop's table, and its seconds without making the changes."""
    started = perf_counter()
    for side in (0, 1):
        for _ in changes(side, total // 2):
            pass
    making = perf_counter() - started
    started = perf_counter()
    found = table_table_loop(total)
    return found, max(1e-9, perf_counter() - started - making)


def measure(options: BenchOptions, tracked: bool) -> Measurement:
    """Measure the join, with tuples that are tracked or not."""
    total = max(2 * _BATCH, int(options.seconds * _CHANGES_A_SECOND) // 2)
    rates, loop_rates, cpu = [], [], 0.0
    verified = True
    for repeat in range(options.repeat):
        options.progress(f"table-table tracked={tracked}: {repeat + 1} of {options.repeat}")
        expected, seconds = _loop(total)
        loop_rates.append(total / seconds)
        before = process_time()
        found, seconds = with_topo(total, tracked)
        cpu += process_time() - before
        rates.append(total / seconds)
        verified = verified and found == expected
    return Measurement.of(
        "streams",
        {"kind": "table-table", "tracked": tracked},
        "changes",
        rates,
        verified=verified,
        loop_rates=loop_rates,
        cpu_secs=cpu / options.repeat,
        detail={"per_cpu_sec": total * options.repeat / cpu},
    )
