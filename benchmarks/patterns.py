"""`topo bench patterns`: three parts in a row, by key, and many open matches of one key.

The topology runs through `topo.runtime` alone, as `topo bench inline` does: frames are encoded and
state is saved in every batch. The plain loop finds the same matches with a list of open ones per
key. With many open matches the events change none of them: their cost is to stay the same.

`matching` is the operator alone, over the same columns as the plain loop, in processor time:
without a spout, frames and a count of tuples. What it saves is measured beside it.
"""

from __future__ import annotations

import gc
import random
from datetime import timedelta
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any

from benchmarks.model import BenchOptions, Measurement
from benchmarks.slots import run_to_end
from topo import BasicBolt, EventTime, Pattern, PatternBolt, Spout, TopologyBuilder, Tuple
from topo.engine.spark.process.slot import GARBAGE_THRESHOLDS
from topo.event_time import BEFORE_ALL
from topo.storage.saving import Changes
from topo.timed import Clock, Rows
from topo.topology.model import Topology

_BATCH = 5_000
_EVENTS_A_SECOND = 40_000  # a guess that turns --seconds into an amount of work
_WITHIN = 60_000
_RESTORED_A_SECOND = 100_000
_OPEN = (100, 1_000, 4_000, 16_000)

IN_A_ROW = (
    Pattern("a", "kind == 'a'")
    .followed_by("b", "kind == 'b'")
    .followed_by("c", "kind == 'c'")
    .within(timedelta(milliseconds=_WITHIN))
    .skip("past_last")
)
WAITING = (
    Pattern("a", "kind == 'a'")
    .followed_by("b", "kind == 'b'")
    .followed_by("c", "kind == 'c'")
    .within(timedelta(days=300))
)

Row = tuple[int, int, str]


class Events(Spout):
    """Emits rows of key, time and kind."""

    outputs = ("key", "ts", "kind")
    transient = ("rows",)

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.at = 0

    def next_tuple(self) -> None:
        for row in self.rows[self.at : self.at + _BATCH]:
            self.emit(list(row))
        self.at += _BATCH

    def is_exhausted(self) -> bool:
        return self.at >= len(self.rows)


class Matches(BasicBolt):
    """Counts what was matched."""

    def __init__(self) -> None:
        self.count = 0

    def execute(self, tup: Tuple) -> None:
        self.count += 1


def run(options: BenchOptions) -> list[Measurement]:
    total = max(_BATCH, int(options.seconds * _EVENTS_A_SECOND))
    runs = []
    for keys, share in ((1_000, 0.3), (1_000, 0.03), (100_000, 0.3)):
        mixed, params = _mixed(total, keys, share), {"keys": keys, "share": share}
        runs.append(_measure_matching(options, {**params, "matching": True}, mixed))
        runs.append(_measure(options, params, mixed, IN_A_ROW))
    for count in _OPEN:
        rows: list[Row] = [(0, n, "a") for n in range(count)]
        rows += [(0, count + n, "cdx"[n % 3]) for n in range(total)]
        runs.append(_measure(options, {"open": count}, rows, WAITING))
    return [*runs, _measure_restores(options, int(options.seconds * _RESTORED_A_SECOND))]


def _mixed(total: int, keys: int, share: float) -> list[Row]:
    rng = random.Random(1)
    kinds = rng.choices("abcx", [share / 3] * 3 + [1 - share], k=total)
    return [(rng.randrange(keys), n, kind) for n, kind in enumerate(kinds)]


def _measure_matching(
    options: BenchOptions, params: dict[str, Any], rows: list[Row]
) -> Measurement:
    rates, loop_rates, verified, saving = [], [], True, 0.0
    for repeat in range(options.repeat):
        options.progress(f"patterns {params}: {repeat + 1} of {options.repeat}")
        before = process_time()
        matches, _ = found_by_hand(rows)
        loop_rates.append(len(rows) / (process_time() - before))
        count, seconds, saved = matched(rows, IN_A_ROW)
        rates.append(len(rows) / seconds)
        saving += saved
        verified = verified and count == matches
    detail = {"saving_us": round(saving / options.repeat / len(rows) * 1e6, 2)}
    return Measurement.of(
        "patterns", params, "events", rates, verified=verified, loop_rates=loop_rates, detail=detail
    )


class _Task:
    """Stands for the task of an operator, and counts what it emits."""

    owner = "bolt 'matches'"

    def __init__(self) -> None:
        self.count = 0
        self.context = SimpleNamespace(gauge=_nothing, counter=_nothing)
        self.component = self

    def emit(self, rows: list[list[Any]], stream: str = "default") -> None:
        self.count += len(rows)


def _nothing(*arguments: Any) -> None:
    """Stand for the figures of a task."""


def matched(rows: list[Row], pattern: Pattern) -> tuple[int, float, float]:
    """Return how many matches an operator finds, and its seconds of matching and of saving."""
    operator, task = _operator(pattern, {}, BEFORE_ALL)
    batches = _batches(rows)
    matching = saving = 0.0
    watermark = BEFORE_ALL
    thresholds = gc.get_threshold()
    gc.freeze()  # with the thresholds, as in a slot's process
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    for batch in batches:
        before = process_time()
        operator.rows(batch)
        passed, watermark = watermark, batch.columns[1][-1]
        operator.advance(Clock(passed, watermark, 0.0))
        then = process_time()
        operator.save(Changes())
        matching, saving = matching + then - before, saving + process_time() - then
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    return task.count, matching, saving


def _measure_restores(options: BenchOptions, count: int) -> Measurement:
    """Measure what it takes to have so many partial matches of 1,000 keys again, in one task."""
    rates, verified, saved = [], True, dict[str, bytes]()
    for repeat in range(options.repeat):
        options.progress(f"patterns, {count:,} restored: {repeat + 1} of {options.repeat}")
        saved, watermark = _with_open(count)
        operator = _operator(WAITING, {}, BEFORE_ALL)[0]
        before = process_time()
        operator.load(saved, watermark)
        rates.append(count / (process_time() - before))
        verified = verified and operator.state_rows == count
    detail = {"saved_bytes": round(sum(map(len, saved.values())) / count, 1)}
    params: dict[str, Any] = {"restored": count}
    return Measurement.of("patterns", params, "matches", rates, verified=verified, detail=detail)


def _with_open(count: int) -> tuple[dict[str, bytes], int]:
    """Return the saved state of a task with so many partial matches, and its watermark."""
    operator, _ = _operator(WAITING, {}, BEFORE_ALL)
    saved: dict[str, bytes] = {}
    watermark = BEFORE_ALL
    for batch in _batches([(n % 1_000, n, "a") for n in range(count)]):
        operator.rows(batch)
        passed, watermark = watermark, batch.columns[1][-1]
        operator.advance(Clock(passed, watermark, 0.0))
        changes = Changes()
        operator.save(changes)
        changes.apply_to(saved)
    return saved, watermark


def _operator(pattern: Pattern, saved: dict[str, bytes], watermark: int) -> tuple[Any, Any]:
    """Return the operator of a pattern, and what stands for its task."""
    task: Any = _Task()
    bolt = PatternBolt(
        pattern, key="key", time=EventTime("ts"), select={"key": "key"}, limit=1_000_000
    )
    operator = bolt.operator(task)
    operator.load(saved, watermark)
    return operator, task


def _batches(rows: list[Row]) -> list[Rows]:
    batches = []
    for at in range(0, len(rows), _BATCH):
        columns: list[Any] = [list(column) for column in zip(*rows[at : at + _BATCH], strict=True)]
        make: Any = rows.__getitem__
        count = len(columns[0])
        batches.append(Rows("events", "default", Events.outputs, columns, count, columns[1], make))
    return batches


def _measure(
    options: BenchOptions, params: dict[str, Any], rows: list[Row], pattern: Pattern
) -> Measurement:
    rates, loop_rates, cpu, verified = [], [], 0.0, True
    for repeat in range(options.repeat):
        options.progress(f"patterns {params}: {repeat + 1} of {options.repeat}")
        matches, seconds = found_by_hand(rows) if pattern is IN_A_ROW else (0, 0.0)
        if seconds:
            loop_rates.append(len(rows) / seconds)
        before = process_time()
        count, seconds = found_with_topo(rows, pattern)
        cpu += process_time() - before
        rates.append(len(rows) / seconds)
        verified = verified and count == matches
    return Measurement.of(
        "patterns",
        params,
        "events",
        rates,
        verified=verified,
        loop_rates=loop_rates,
        cpu_secs=cpu / options.repeat,
    )


def topology(rows: list[Row], pattern: Pattern) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("events", Events(rows))
    bolt = PatternBolt(
        pattern, key="key", time=EventTime("ts"), select={"key": "key"}, limit=1_000_000
    )
    builder.set_bolt("matches", bolt).fields_grouping("events", ["key"])
    builder.set_bolt("count", Matches()).shuffle_grouping("matches")
    return builder.create_topology()


def found_with_topo(rows: list[Row], pattern: Pattern) -> tuple[int, float]:
    """Return how many matches topo finds, and the seconds it took."""
    host, layout, seconds = run_to_end(topology(rows, pattern), _BATCH)
    [task] = layout.tasks_of("count")
    sink = host.tasks[task].component
    assert isinstance(sink, Matches)
    return sink.count, seconds


def found_by_hand(rows: list[Row]) -> tuple[int, float]:
    """Return how many matches a plain loop finds, and the seconds it took."""
    started, count = perf_counter(), 0
    open_matches: dict[int, list[tuple[int, bool]]] = {}
    for key, ts, kind in rows:
        if kind == "x":
            continue
        waiting = open_matches.get(key)
        if kind == "a":
            if waiting is None:
                waiting = open_matches[key] = []
            waiting.append((ts, False))
        elif waiting and kind == "b":
            for place, (start, _) in enumerate(waiting):
                if ts - start < _WITHIN:
                    waiting[place] = (start, True)
        elif waiting and any(ready and ts - start < _WITHIN for start, ready in waiting):
            waiting.clear()
            count += 1
    return count, perf_counter() - started
