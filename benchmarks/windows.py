"""`topo bench windows`: aggregates in event-time windows, through `topo.runtime` alone.

All of it runs on one core.

    ysb        the Yahoo streaming benchmark without its JSON: views per campaign in 10 s windows,
               behind a bolt that filters and looks up the campaign
    tumbling   counts by key in 10 s windows
    sliding    counts by key in 60 s windows, one every second
    sessions   counts by key in sessions

Every result is compared with a direct computation. Beside each stands a plain loop over the same
columns; bytewax's `fold_window` too, if it is installed, over a tenth of the events.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from time import perf_counter, process_time
from typing import Any

from benchmarks.model import BenchOptions, Measurement
from benchmarks.slots import run_to_end
from topo import (
    BasicBolt,
    Count,
    EventTime,
    Session,
    Sliding,
    Spout,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
)

_BATCH = 40_000
_CHUNK = 4_000
_EVENTS_A_SECOND = 800_000  # a guess that turns --seconds into an amount of work
_PER_MS = 10
"""Events in a millisecond of event time."""
_KEYS = [f"campaign-{number}" for number in range(100)]
_ADS = [f"ad-{number}" for number in range(1000)]
_CAMPAIGN_OF = {ad: _KEYS[number // 10] for number, ad in enumerate(_ADS)}
_TYPES = ("view", "click", "purchase")
_GAP = 4

Found = dict[Any, int]


def events(total: int, keys: list[str]) -> Iterator[tuple[list[str], list[int], list[str]]]:
    """Yield chunks of keys, times in milliseconds, and types: the same ones each time."""
    state = 1
    for start in range(0, total, _CHUNK):
        size = min(_CHUNK, total - start)
        # A multiplicative walk over the keys: as good as random, and free.
        state = (state * 1_103_515_245 + 12_345) % (1 << 31)
        own = [keys[(state + 7_919 * i * i) % len(keys)] for i in range(size)]
        times = [(start + i) // _PER_MS for i in range(size)]
        types = [_TYPES[(state + i) % 3] for i in range(size)]
        yield own, times, types


class Events(Spout):
    """Emits prepared chunks."""

    outputs = ("key", "ts", "type")
    transient = ("chunks",)

    def __init__(self, total: int, keys: list[str], tracked: bool) -> None:
        self.total, self.keys, self.tracked = total, keys, tracked
        self.sent = 0

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.chunks = list(events(self.total, self.keys))

    def next_tuple(self) -> None:
        if self.sent < len(self.chunks):
            key, ts, kind = self.chunks[self.sent]
            ids = range(len(key)) if self.tracked else None
            columns: dict[str, list[Any]] = {"key": key, "ts": ts, "type": kind}
            self.collector.emit_many(columns, msg_ids=ids)
            self.sent += 1

    def is_exhausted(self) -> bool:
        return self.sent >= len(self.chunks)


class Views(BasicBolt):
    """Keeps views, and looks up their campaign."""

    outputs = ("campaign", "ts")

    def execute(self, tup: Tuple) -> None:
        if tup.type == "view":
            self.emit([_CAMPAIGN_OF[tup.key], tup.ts])


class Results(BasicBolt):
    """Takes the results of windows."""

    transient = ("found",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.found: Found = {}

    def execute(self, tup: Tuple) -> None:
        key, start, end, n = tup.values
        self.found[(key, start, end)] = n


def topology(kind: str, total: int, tracked: bool) -> Topology:
    time = EventTime("ts", idle=None)
    windows: dict[str, Any] = {
        "ysb": Tumbling(timedelta(seconds=10)),
        "tumbling": Tumbling(timedelta(seconds=10)),
        "sliding": Sliding(timedelta(seconds=60), timedelta(seconds=1)),
        "sessions": Session(timedelta(milliseconds=_GAP)),
    }
    keys = _ADS if kind == "ysb" else _KEYS
    builder = TopologyBuilder()
    builder.set_spout("events", Events(total, keys, tracked))
    source, key = "events", "key"
    if kind == "ysb":
        builder.set_bolt("views", Views()).local_or_shuffle_grouping("events")
        source, key = "views", "campaign"
    bolt = WindowAggregate(key=key, window=windows[kind], time=time, aggregates={"n": Count()})
    builder.set_bolt("windows", bolt).fields_grouping(source, [key])
    builder.set_bolt("results", Results()).global_grouping("windows")
    return builder.create_topology()


def with_topo(kind: str, total: int, tracked: bool) -> tuple[Found, float]:
    """Return the results, and the seconds that it took."""
    host, layout, seconds = run_to_end(topology(kind, total, tracked), _BATCH)
    results = host.tasks[layout.tasks_of("results")[0]].component
    assert isinstance(results, Results)
    return results.found, seconds


# -- the same in a loop ---------------------------------------------------------------------------


def tumbling_loop(total: int, keys: list[str], *, views: bool = False) -> Found:
    found: Found = {}
    cells: dict[str, int] = {}
    last = 0
    for key_column, times, types in events(total, keys):
        for key, ts, kind in zip(key_column, times, types, strict=True):
            if views:
                if kind != "view":
                    continue
                key = _CAMPAIGN_OF[key]
            start = ts - ts % 10_000
            if start != last:
                found.update(((key, last, last + 10_000), n) for key, n in cells.items())
                cells, last = {}, start
            cells[key] = cells.get(key, 0) + 1
    found.update(((key, last, last + 10_000), n) for key, n in cells.items())
    return found


def sliding_loop(total: int) -> Found:
    panes: dict[int, dict[str, int]] = {}
    for key_column, times, _ in events(total, _KEYS):
        for key, ts in zip(key_column, times, strict=True):
            cells = panes.setdefault(ts // 1000, {})
            cells[key] = cells.get(key, 0) + 1
    found: Found = {}
    totals: Counter[str] = Counter()
    last = max(panes)
    for end in range(1, last + 61):
        totals.update(panes.get(end - 1, {}))
        totals.subtract(panes.get(end - 61, {}))
        start = 1000 * (end - 60)
        found.update(((key, start, start + 60_000), n) for key, n in totals.items() if n)
    return found


def sessions_loop(total: int) -> Found:
    found: Found = {}
    live: dict[str, list[int]] = {}
    for key_column, times, _ in events(total, _KEYS):
        for key, ts in zip(key_column, times, strict=True):
            own = live.get(key)
            if own is None:
                live[key] = [ts, ts, 1]
            elif ts - own[1] > _GAP:
                found[(key, own[0], own[1] + _GAP)] = own[2]
                live[key] = [ts, ts, 1]
            else:
                own[1] = ts
                own[2] += 1
    found.update(((key, own[0], own[1] + _GAP), own[2]) for key, own in live.items())
    return found


_LOOPS: dict[str, Callable[[int], Found]] = {
    "ysb": partial(tumbling_loop, keys=_ADS, views=True),
    "tumbling": partial(tumbling_loop, keys=_KEYS),
    "sliding": sliding_loop,
    "sessions": sessions_loop,
}


def _loop(kind: str, total: int) -> tuple[Found, float]:
    """Return the loop's results, and its seconds without making the events."""
    started = perf_counter()
    for _ in events(total, _ADS if kind == "ysb" else _KEYS):
        pass
    making = perf_counter() - started
    started = perf_counter()
    found = _LOOPS[kind](total)
    return found, max(1e-9, perf_counter() - started - making)


# -- bytewax --------------------------------------------------------------------------------------


def bytewax_rate(total: int) -> float | None:
    """Return bytewax's events per second for the tumbling counts; None if it is not installed."""
    if importlib.util.find_spec("bytewax") is None:
        return None
    op, win, dataflow, testing = (
        importlib.import_module(f"bytewax.{name}")
        for name in ("operators", "operators.windowing", "dataflow", "testing")
    )
    epoch = datetime(2020, 1, 1, tzinfo=UTC)
    rows = [
        (key, epoch + timedelta(milliseconds=ts))
        for key_column, times, _ in events(total, _KEYS)
        for key, ts in zip(key_column, times, strict=True)
    ]
    flow = dataflow.Dataflow("bench")
    out: list[Any] = []
    stream = op.input("in", flow, testing.TestingSource(rows, batch_size=1000))
    clock = win.EventClock(lambda ts: ts, wait_for_system_duration=timedelta(0))
    windower = win.TumblingWindower(length=timedelta(seconds=10), align_to=epoch)
    counts = win.count_window("count", stream, clock, windower, lambda row: row[0])
    op.output("out", counts.down, testing.TestingSink(out))
    started = process_time()
    testing.run_main(flow)
    return total / (process_time() - started)


# -- the suite ------------------------------------------------------------------------------------


def run(options: BenchOptions) -> list[Measurement]:
    peer = bytewax_rate(int(options.seconds * _EVENTS_A_SECOND) // 10)
    kinds = [(kind, tracked) for kind in _LOOPS for tracked in (False, True)]
    return [_measure(options, kind, tracked, peer) for kind, tracked in kinds]


def _measure(options: BenchOptions, kind: str, tracked: bool, peer: float | None) -> Measurement:
    total = max(_BATCH, int(options.seconds * _EVENTS_A_SECOND) // len(_LOOPS))
    rates, loop_rates, cpu = [], [], 0.0
    verified = True
    for repeat in range(options.repeat):
        options.progress(f"{kind} tracked={tracked}: {repeat + 1} of {options.repeat}")
        expected, seconds = _loop(kind, total)
        loop_rates.append(total / seconds)
        before = process_time()
        found, seconds = with_topo(kind, total, tracked)
        cpu += process_time() - before
        rates.append(total / seconds)
        verified = verified and found == expected
    detail = {"bytewax_per_sec": peer} if peer is not None and kind == "tumbling" else {}
    return Measurement.of(
        "windows",
        {"kind": kind, "tracked": tracked},
        "events",
        rates,
        verified=verified,
        loop_rates=loop_rates,
        cpu_secs=cpu / options.repeat,
        detail=detail,
    )
