"""`topo bench windows`, kind raw: a WindowedBolt beside a bolt that keeps its tuples in a list."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from statistics import median
from time import process_time
from typing import Any

from benchmarks.model import BenchOptions, Measurement, Param
from benchmarks.slots import OneSlot
from topo import Bolt, Spout, TopologyBuilder, Tuple, Window, WindowedBolt

_BATCH = 40_000


class InWindows(WindowedBolt):
    """Reads a field of each tuple of each window."""

    outputs = ()
    total = 0

    def execute(self, window: Window) -> None:
        for tup in window:
            self.total += tup.ts >= window.start


class InAList(Bolt):
    """Keeps a second of tuples in a list, and reads a field of each."""

    outputs = ()
    transient = ("kept", "collector")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []
        self.collector = collector
        self.total = 0

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)
        self.collector.ack(tup)
        if len(self.kept) == 10_000:
            for one in self.kept:
                self.total += one.ts >= 0
            self.kept = []


_BOLTS: dict[str, Callable[[], Bolt]] = {
    "list": InAList,
    "windows": lambda: _seconds(InWindows()),
    "by key": lambda: _seconds(InWindows()).with_key("key"),
}


def _seconds(bolt: InWindows) -> InWindows:
    return bolt.with_tumbling_window(timedelta(seconds=1)).with_timestamp_field("ts")


def _run(bolt: Bolt, spout: Spout) -> tuple[float, int]:
    """Return the processor seconds that it took, and how many tuples were read."""
    builder = TopologyBuilder()
    builder.set_spout("events", spout)
    builder.set_bolt("raw", bolt).fields_grouping("events", ["key"])
    slot = OneSlot(builder.create_topology())
    started = process_time()
    while not (slot.host.exhausted and not slot.host.pending):
        slot.batch(_BATCH)
    slot.batch(_BATCH, last=True)
    seconds = process_time() - started
    made: Any = slot.host.tasks[slot.layout.tasks_of("raw")[0]].component
    return seconds, made.total + len(getattr(made, "kept", ()))


def measure_raw(
    options: BenchOptions, spout: Callable[[int, bool], Spout], total: int
) -> list[Measurement]:
    """Measure windows of a second over all tuples, and by key."""
    made: list[Measurement] = []
    for tracked in (False, True):
        seconds: dict[str, list[float]] = {kind: [] for kind in _BOLTS}
        right = dict.fromkeys(_BOLTS, True)
        for repeat in range(options.repeat):
            options.progress(f"raw tracked={tracked}: {repeat + 1} of {options.repeat}")
            for kind, bolt in _BOLTS.items():
                took, read = _run(bolt(), spout(total, tracked))
                seconds[kind].append(took)
                right[kind] = right[kind] and read == total
        for kind in list(_BOLTS)[1:]:
            ratios = [a / b for a, b in zip(seconds["list"], seconds[kind], strict=True)]
            detail: dict[str, Param] = {"times_list": round(median(ratios), 2)}
            options.progress(f"raw {kind} tracked={tracked}: {median(ratios):.2f} times a list")
            rates = [total / one for one in seconds[kind]]
            made.append(
                Measurement.of(
                    "windows",
                    {"kind": "raw" if kind == "windows" else "raw by key", "tracked": tracked},
                    "events",
                    rates,
                    verified=right[kind],
                    loop_rates=[total / one for one in seconds["list"]],
                    cpu_secs=median(seconds[kind]),
                    detail=detail,
                )
            )
    return made
