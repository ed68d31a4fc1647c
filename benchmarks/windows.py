"""`topo bench windows`: aggregates in event-time windows, through `topo.runtime` alone.

All of it runs on one core, and processor time is what counts.

    ysb        the Yahoo streaming benchmark without its JSON: views per campaign in 10 s windows,
               behind a bolt that filters and looks up the campaign
    tumbling   counts by key in 10 s windows
    sliding    counts by key in 60 s windows, one every second
    sessions   counts by key in sessions
    live       batches that change 10,000 of so many live keys
    raw        windows of a second over raw tuples, and by key; the loop is a bolt that keeps tuples

Every result is compared with a direct computation. Beside each stands a plain loop over the same
columns; bytewax's `count_window` too, if it is installed, right before each measurement and over
fewer events. `detail` has its rate and how many times that topo does; of `live`, the milliseconds
of a batch and how many times those of 10,000 keys that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from statistics import median
from time import process_time
from typing import Any

from benchmarks.model import BenchOptions, Measurement, Param
from benchmarks.raw_windows import measure_raw
from benchmarks.slots import OneSlot
from benchmarks.window_peers import Found, counted, is_installed, with_bytewax
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
_CHANGED = 10_000


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
    """Return the results, and the processor seconds that it took."""
    slot = OneSlot(topology(kind, total, tracked))
    started = process_time()
    while not (slot.host.exhausted and not slot.host.pending):
        slot.batch(_BATCH)
    slot.batch(_BATCH, last=True)
    seconds = process_time() - started
    results = slot.host.tasks[slot.layout.tasks_of("results")[0]].component
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


def _keys(kind: str) -> list[str]:
    return _ADS if kind == "ysb" else _KEYS


def _loop(kind: str, total: int) -> tuple[Found, float]:
    """Return the loop's results, and its processor seconds without making the events."""
    started = process_time()
    for _ in events(total, _keys(kind)):
        pass
    making = process_time() - started
    started = process_time()
    found = _LOOPS[kind](total)
    return found, max(1e-9, process_time() - started - making)


# -- live keys ------------------------------------------------------------------------------------


class Updates(Spout):
    """Emits 10,000 tuples a call, of keys that come in turn."""

    outputs = ("key", "ts")

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self.sent = 0

    def next_tuple(self) -> None:
        keys = [number % self.keys for number in range(self.sent, self.sent + _CHANGED)]
        self.collector.emit_many({"key": keys, "ts": [self.sent // _CHANGED] * _CHANGED})
        self.sent += _CHANGED


def live_keys(keys: int, batches: int) -> tuple[float, bool]:
    """Return the median seconds of a batch, once so many keys are live, and if all are counted."""
    builder = TopologyBuilder()
    builder.set_spout("updates", Updates(keys))
    bolt = WindowAggregate(
        key="key",
        window=Tumbling(timedelta(hours=1)),
        time=EventTime("ts", idle=None),
        aggregates={"n": Count()},
    )
    builder.set_bolt("windows", bolt).fields_grouping("updates", ["key"])
    slot = OneSlot(builder.create_topology())
    for _ in range(keys // _CHANGED):
        slot.batch(_CHANGED)
    seconds = []
    for _ in range(batches):
        started = process_time()
        slot.batch(_CHANGED)
        seconds.append(process_time() - started)
    (task,) = slot.host.timed
    return median(seconds), task.shown_watermark == keys // _CHANGED + batches - 1


# -- the suite ------------------------------------------------------------------------------------


def run(options: BenchOptions) -> list[Measurement]:
    kinds = [(kind, tracked) for kind in _LOOPS for tracked in (False, True)]
    made = [_measure(options, kind, tracked) for kind, tracked in kinds]
    total = max(_BATCH, int(options.seconds * _EVENTS_A_SECOND) // 8)
    made += measure_raw(options, lambda count, tracked: Events(count, _KEYS, tracked), total)
    return made + _measure_live(options)


def _measure(options: BenchOptions, kind: str, tracked: bool) -> Measurement:
    total = max(_BATCH, int(options.seconds * _EVENTS_A_SECOND) // len(_LOOPS))
    rates, loop_rates, peers, times_peer = [], [], [], []
    cpu = 0.0
    verified = True
    for repeat in range(options.repeat):
        options.progress(f"{kind} tracked={tracked}: {repeat + 1} of {options.repeat}")
        peer = _peer(kind, total)
        expected, seconds = _loop(kind, total)
        loop_rates.append(total / seconds)
        found, seconds = with_topo(kind, total, tracked)
        cpu += seconds
        rates.append(total / seconds)
        verified = verified and found == expected
        if peer is not None:
            peers.append(peer)
            times_peer.append(rates[-1] / peer)
    detail: dict[str, Param] = {}
    if peers:
        detail = {
            "bytewax_per_sec": round(median(peers)),
            "times_bytewax": round(median(times_peer), 2),
        }
        shown = ", ".join(f"{times:.1f}" for times in times_peer)
        options.progress(f"{kind} tracked={tracked}: {shown} times bytewax")
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


def _peer(kind: str, total: int) -> float | None:
    """Return bytewax's events per second, its results checked; None if it is not installed."""
    if not is_installed():
        return None
    fewer = max(10_000, total // (40 if kind == "sliding" else 4))
    chunks = list(events(fewer, _keys(kind)))
    found, seconds = with_bytewax(kind, chunks, _CAMPAIGN_OF, _GAP)
    if found != counted(_LOOPS[kind](fewer)):
        raise AssertionError(f"bytewax counts other {kind} windows: the comparison is not fair")
    return fewer / seconds


def _measure_live(options: BenchOptions) -> list[Measurement]:
    batches = max(5, int(options.seconds))
    made: list[Measurement] = []
    smallest = 0.0
    for keys in (_CHANGED, 100 * _CHANGED):
        options.progress(f"live: {keys:,} keys")
        took = [live_keys(keys, batches) for _ in range(options.repeat)]
        seconds = [one for one, _ in took]
        smallest = smallest or median(seconds)
        detail: dict[str, Param] = {
            "batch_ms": round(1000 * median(seconds), 1),
            "times_smallest": round(median(seconds) / smallest, 2),
        }
        made.append(
            Measurement.of(
                "windows",
                {"kind": "live", "keys": keys},
                "events",
                [_CHANGED / one for one in seconds],
                verified=all(right for _, right in took),
                detail=detail,
            )
        )
    return made
