"""`topo bench streams`: operators over several streams, through `topo.runtime` alone, on one core.

    operators       programs of streams beside bolts by hand (`benchmarks/operators.py`)
    interval-join   two streams of orders and payments, one payment for each order, up to 10 s after
                    it; half a million live rows
    table-table     two tables of 100,000 keys, joined by key; see `tables`

Every result is compared with a direct computation. Beside each stands a plain loop over the same
columns: two dict probes a row, and rows let go after 10 s. Over a tenth of the events stands
bytewax's `join_window` in windows of 10 s, if bytewax is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from time import perf_counter, process_time
from typing import Any

from benchmarks import operators, tables
from benchmarks.model import BenchOptions, Measurement
from benchmarks.slots import ChunkSpout, run_to_end
from topo import BasicBolt, EventTime, IntervalJoin, Topology, TopologyBuilder, Tuple

_BATCH = 40_000
_CHUNK = 4_000
_EVENTS_A_SECOND = 500_000  # a guess that turns --seconds into an amount of work
_PER_MS = 10
"""Events in a millisecond of event time."""
_REACH = 10_000

Checked = tuple[int, int]
"""The number of results, and a sum over their times."""


def events(total: int, side: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield chunks of keys and times in milliseconds; a payment comes up to 5 s after its order."""
    half = total // 2
    for start in range(0, half, _CHUNK):
        numbers = range(start, min(start + _CHUNK, half))
        if side == 0:
            yield [2 * n for n in numbers], [2 * n // _PER_MS for n in numbers]
            continue
        # Neighbours change places within blocks: the keys of payments are in another order.
        keys = [n - n % 50 + (n * 7) % 50 if n - n % 50 + 50 <= half else n for n in numbers]
        yield (
            [2 * key for key in keys],
            [2 * n // _PER_MS + 500 + key % 4_000 for n, key in zip(numbers, keys, strict=True)],
        )


class Results(BasicBolt):
    """Adds results up."""

    transient = ("count", "total")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.count = self.total = 0

    def execute(self, tup: Tuple) -> None:
        self.count += 1
        self.total += tup[0] + tup[1] + 3 * tup[2]


def _events(total: int, side: int, tracked: bool) -> ChunkSpout:
    return ChunkSpout(("key", "ts"), partial(events, total, side), tracked)


def topology(total: int, tracked: bool) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("orders", _events(total, 0, tracked))
    builder.set_spout("payments", _events(total, 1, tracked))
    join = IntervalJoin(
        left="orders",
        right="payments",
        on="key",
        within=(0, _REACH),
        time=EventTime("ts", lag=4_000, idle=None),
        select=("key", "orders:ts", "payments:ts"),
    )
    joined = builder.set_bolt("join", join)
    joined.fields_grouping("orders", ["key"]).fields_grouping("payments", ["key"])
    builder.set_bolt("results", Results()).global_grouping("join")
    return builder.create_topology()


def with_topo(total: int, tracked: bool) -> tuple[Checked, float]:
    """Return what came out, and the seconds that it took."""
    host, layout, seconds = run_to_end(topology(total, tracked), _BATCH)
    results = host.tasks[layout.tasks_of("results")[0]].component
    assert isinstance(results, Results)
    return (results.count, results.total), seconds


def loop(total: int) -> tuple[Checked, float]:
    """Return the plain loop's results, and its seconds without making the events."""
    chunks = list(zip(events(total, 0), events(total, 1), strict=True))
    started = perf_counter()
    orders: dict[int, int] = {}
    payments: dict[int, int] = {}
    due: deque[tuple[int, int]] = deque()
    count = total_of = 0
    for (keys, times), (other_keys, other_times) in chunks:
        for key, ts in zip(keys, times, strict=True):
            paid = payments.pop(key, None)
            if paid is not None:
                count += 1
                total_of += key + ts + 3 * paid
            orders[key] = ts
            due.append((ts, key))
        for key, ts in zip(other_keys, other_times, strict=True):
            ordered = orders.get(key)
            if ordered is None:
                payments[key] = ts
            elif ordered <= ts <= ordered + _REACH:
                count += 1
                total_of += key + ordered + 3 * ts
        while due and due[0][0] + _REACH < times[-1] - 4_000:
            orders.pop(due.popleft()[1], None)
    return (count, total_of), perf_counter() - started


def bytewax_rate(total: int) -> float | None:
    """Return bytewax's events per second for the join; None if it is not installed."""
    if importlib.util.find_spec("bytewax") is None:
        return None
    op, win, dataflow, testing = (
        importlib.import_module(f"bytewax.{name}")
        for name in ("operators", "operators.windowing", "dataflow", "testing")
    )
    epoch = datetime(2020, 1, 1, tzinfo=UTC)
    flow = dataflow.Dataflow("bench")
    streams = []
    for side, name in enumerate(("orders", "payments")):
        rows = [
            (str(key), epoch + timedelta(milliseconds=ts))
            for keys, times in events(total, side)
            for key, ts in zip(keys, times, strict=True)
        ]
        streams.append(op.input(name, flow, testing.TestingSource(rows, batch_size=1000)))
    clock = win.EventClock(lambda ts: ts, wait_for_system_duration=timedelta(seconds=4))
    windower = win.TumblingWindower(length=timedelta(seconds=10), align_to=epoch)
    out: list[Any] = []
    joined = win.join_window("join", clock, windower, *streams)
    op.output("out", joined.down, testing.TestingSink(out))
    started = process_time()
    testing.run_main(flow)
    return total / (process_time() - started)


def run(options: BenchOptions) -> list[Measurement]:
    peer = bytewax_rate(int(options.seconds * _EVENTS_A_SECOND) // 20)
    joins = [_measure(options, tracked, peer) for tracked in (False, True)]
    both = [tables.measure(options, tracked) for tracked in (False, True)]
    return [*joins, *both, *operators.measure(options)]


def _measure(options: BenchOptions, tracked: bool, peer: float | None) -> Measurement:
    total = max(_BATCH, int(options.seconds * _EVENTS_A_SECOND) // 2)
    rates, loop_rates, cpu = [], [], 0.0
    verified = True
    for repeat in range(options.repeat):
        options.progress(f"interval-join tracked={tracked}: {repeat + 1} of {options.repeat}")
        expected, seconds = loop(total)
        loop_rates.append(total / seconds)
        before = process_time()
        found, seconds = with_topo(total, tracked)
        cpu += process_time() - before
        rates.append(total / seconds)
        verified = verified and found == expected
    return Measurement.of(
        "streams",
        {"kind": "interval-join", "tracked": tracked},
        "events",
        rates,
        verified=verified,
        loop_rates=loop_rates,
        cpu_secs=cpu / options.repeat,
        detail={"bytewax_per_sec": peer} if peer is not None else {},
    )
