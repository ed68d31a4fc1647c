"""The loops over columns do to the bit what an `execute`, tuple by tuple, does.

Random chains of operators, whose functions fail here and there, run both ways with the same edge
ids: what is emitted and to whom, what is anchored, acked and failed and why, what is counted,
reported and saved has to be the same.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.by_tuples import execute_chain, execute_running
from tests.property.scale import examples
from topo import (
    BasicBolt,
    EventTime,
    FailTuple,
    OutputFieldsDeclarer,
    Spout,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
)
from topo.errors import EmitError, UncaughtError
from topo.operators.aggregates.combiners import Collect, Combiner, Count, Max, Mean, Sum
from topo.runtime.basic_bolt_task import BasicBoltTask
from topo.runtime.column_loops import ColumnLoops
from topo.runtime.slot import Batch, SlotTasks, TaskEnvironment, full_conf
from topo.streams import KeyedStream, Stream, StreamBuilder
from topo.streams.compile.chains import ChainBolt
from topo.streams.totals import RunningBolt
from topo.testing import TestCluster, complete_topology
from topo.topology.layout import TaskLayout

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMES: dict[str, Callable[[int], Any]] = {
    "ms": lambda n: 100 * n,
    "s": lambda n: n / 10,
    "datetime": lambda n: START + timedelta(milliseconds=100 * n),
}


class Numbers(Spout):
    """Emits numbers as rows or columns, in batches; every third one is untracked."""

    def __init__(
        self, fields: tuple[str, ...], rows: list[tuple[Any, ...]], size: int, tracked: bool
    ) -> None:
        self.outputs = fields
        self.rows = rows
        self.size = size
        self.tracked = tracked
        self.sent = 0

    def next_tuple(self) -> None:
        rows = self.rows[self.sent : self.sent + self.size]
        ids = [
            n if self.tracked and n % 3 else None for n in range(self.sent, self.sent + len(rows))
        ]
        if rows:
            columns = dict(zip(self.outputs, zip(*rows, strict=True), strict=True))
            self.emit_many(columns if self.size % 2 else rows, msg_ids=ids)
        self.sent += len(rows)

    def is_exhausted(self) -> bool:
        return self.sent >= len(self.rows)


class Kept(BasicBolt):
    """Keeps what it gets, and fails some of it."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def execute(self, tup: Tuple) -> None:
        stream = sys.intern(tup.source_stream)  # pickles tell equal texts from one and the same
        self.kept.append([stream, *tup.values])
        if len(self.kept) % 23 == 0:
            raise FailTuple("enough")


def number(value: Any) -> int:
    """Return a number in an element of whatever shape."""
    if isinstance(value, tuple | list):
        return sum(map(number, value))
    return value if isinstance(value, int) else len(str(value))


def touchy(value: Any) -> int:
    if number(value) % 13 == 5:
        raise ValueError(f"no {number(value)}")
    if number(value) % 17 == 3:
        raise FailTuple("not this one")
    return number(value)


def breaking_off(value: Any) -> Iterator[int]:
    for n in range(number(value) % 4):
        yield n
        if n == 2:
            raise KeyError(n)


class Heard(logging.Handler):
    """The words of functions that return nothing; a logger travels by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def say(value: Any) -> None:
    logger = logging.getLogger("column-laws")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.info("%r", value)


Step = Callable[[Any], Any]
STEPS: dict[str, Step] = {
    "map": lambda s: s.map(number),
    "touchy": lambda s: s.map(touchy),
    "filter": lambda s: s.filter(lambda v: number(v) % 3),
    "filter_map": lambda s: s.filter_map(lambda v: number(v) or None),
    "flat_map": lambda s: s.flat_map(lambda v: [number(v), number(v) + 1]),
    "flat_map none": lambda s: s.flat_map(lambda v: None if number(v) % 2 else (v, v)),
    "flat_map breaking off": lambda s: s.flat_map(breaking_off),
    "flat_map no iterable": lambda s: s.flat_map(number),
    "peek": lambda s: s.peek(say),
    "key_by": lambda s: s.key_by(lambda v: number(v) % 7),
    "key_by itself": lambda s: s.map(number).key_by(),
    "map_values": lambda s: s.key_by(number).map_values(touchy),
    "flat_map_values": lambda s: s.key_by(number).flat_map_values(breaking_off),
    "values": lambda s: s.key_by(number).values(),
    "keys": lambda s: s.key_by(number).keys(),
    "pairs": lambda s: s.map(lambda v: (number(v) % 5, v)).pairs(),
    "branches": lambda s: _branches(s),
}


def _aggregated(make: Callable[[], Combiner], stream: Any) -> Any:
    return stream.map(number).key_by(lambda n: n % 5).aggregate(make())


COMBINERS: dict[str, Callable[[], Combiner]] = {
    "count": Count,
    "sum": lambda: Sum(number),
    "max": lambda: Max(number),
    "mean": lambda: Mean(touchy),
    "collect": Collect,
}
ENDS: dict[str, Step] = {
    "to": lambda s: s,
    "twice": lambda s: (s.map(number).to(Kept(), name="other"), s)[1],
    "count": lambda s: s.map(number).key_by().count(),
    "reduce": lambda s: s.key_by(lambda v: number(v) % 5).reduce(lambda a, b: touchy((a, b))),
    "update": lambda s: s.key_by(lambda v: number(v) % 5).update_state_by_key(
        0, lambda a, v: None if a > 50 else a + touchy(v)
    ),
    "persistent": lambda s: s.map(number).key_by().persistent_aggregate(Count()).updates(),
    "batches": lambda s: (s.for_each_batch(lambda b, items: say(items)), s)[1],
    **{name: partial(_aggregated, make) for name, make in COMBINERS.items()},
}  # fmt: skip


def _branches(stream: Any) -> Any:
    """Part a stream and merge it again, so that a bolt reads two streams of one component."""
    parts = stream.map(number).branch(even=lambda n: n % 2 == 0, default="odd")
    return parts["even"].map(lambda n: n * 10).merge(parts["odd"].map(touchy))


def run(topology: Topology, *, strict: bool, policy: str, by_columns: bool) -> list[Any]:
    """Run to the end; return all that can be seen of it."""
    conf = full_conf({"topology.uncaught.error": policy})
    layout = TaskLayout(topology, conf)
    tasks = range(1, layout.count + 1)
    env = TaskEnvironment(
        topology, layout, conf, "laws", lambda: 0.0, frozenset(tasks), strict=strict
    )
    host = SlotTasks(env, tasks, travelling=True, nonce=lambda: 7)
    seen: list[Any] = []
    heard = Heard()
    logging.getLogger("column-laws").addHandler(heard)
    loops = ColumnLoops if by_columns else None
    with patch.object(BasicBoltTask, "loops_over_columns", loops):
        host.open()
    number = 0
    try:
        while not host.exhausted or number < 2:
            host.begin(Batch(number, float(number), number - 1.0))
            host.poll(10_000, rounds=1)
            list(host.work(last_tick=host.exhausted))
            saved = {task: (c.puts, c.deletes) for task, c in host.save().items()}
            updates = host.take_updates()
            sent = {name: _plain(value) for name, value in vars(updates).items()}
            counts = {task: _counts(metrics) for task, metrics in host.take_metrics().items()}
            seen.append((sent, counts, saved))
            number += 1
    except EmitError as error:  # a check's, between two calls of users' code
        seen.append(str(error))
    except UncaughtError as error:
        seen.append((type(error).__name__, str(error), error.user_traceback, error.tuple_text))
    for task in host.tasks.values():
        seen.append(getattr(task.component, "kept", None))
    logging.getLogger("column-laws").removeHandler(heard)
    return [*seen, *heard.said]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _counts(metrics: Any) -> dict[str, Any]:
    counts = {name: value for name, value in vars(metrics).items() if "seconds" not in name}
    counts["errors"] = [asdict(error) for error in counts["errors"]]
    return counts


def both_ways(topology: Topology, *, strict: bool = False, policy: str = "fail") -> list[Any]:
    one = run(topology, strict=strict, policy=policy, by_columns=True)
    with (
        patch.object(ChainBolt, "execute", execute_chain),
        patch.object(RunningBolt, "execute", execute_running),
    ):
        other = run(topology, strict=strict, policy=policy, by_columns=False)
    assert one == other
    return one


@given(
    values=st.lists(st.integers(0, 60), max_size=80),
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    end=st.sampled_from(sorted(ENDS)),
    fields=st.sampled_from([("n",), ("n", "m")]),
    size=st.sampled_from([7, 40, 41, 400]),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
@examples(80)
def test_a_chain_does_the_same_over_columns(
    values: list[int],
    steps: list[str],
    end: str,
    fields: tuple[str, ...],
    size: int,
    flags: tuple[bool, bool, bool],
) -> None:
    tracked, strict, stops = flags
    rows = [(n,) * len(fields) for n in values * (5 if size == 400 else 1)]
    s = StreamBuilder()
    stream: Any = s.stream(Numbers(fields, rows, size, tracked))
    for step in steps:
        stream = STEPS[step](stream)
    ENDS[end](stream).to(Kept(), name="kept")
    both_ways(s.build(), strict=strict, policy="stop" if stops else "fail")


@given(
    values=st.lists(st.integers(0, 60), min_size=1, max_size=60),
    steps=st.lists(st.sampled_from(["filter", "touchy", "flat_map", "keys"]), max_size=3),
    end=st.sampled_from(["panes", "window", "windows of windows", "count", "to"]),
    unit=st.sampled_from(sorted(TIMES)),
    tracked=st.booleans(),
)
@examples(30)
def test_a_chain_in_event_time_does_the_same_over_columns(
    values: list[int], steps: list[str], end: str, unit: str, tracked: bool
) -> None:
    rows = [(n, TIMES[unit](place)) for place, n in enumerate(values)]
    time = EventTime("ts", unit=unit, lag=timedelta(seconds=1), idle=None)
    s = StreamBuilder()
    stream: Any = s.stream(Numbers(("n", "ts"), rows, 11, tracked), time=time)
    stream = stream.map(lambda row: row.n)
    for step in steps:
        stream = STEPS[step](stream)
    keyed: KeyedStream[Any, Any] = stream.map(number).key_by(lambda n: n % 3)
    window = Tumbling(timedelta(seconds=1))
    ended: Stream[Any] = keyed.count()
    if end == "panes":
        ended = keyed.window(window).count()
    elif end == "window":
        ended = keyed.window(window).collect()
    elif end == "windows of windows":
        first = keyed.window(window).count().filter(lambda result: result[1] > 1)
        ended = first.keys().window(Tumbling(timedelta(seconds=3))).count()
    elif end == "to":
        ended = keyed
    ended.to(Kept(), name="kept")
    both_ways(s.build())


class Unmergeable(Combiner):
    """A combiner whose windows get each value, not sums of panes."""

    def __init__(self) -> None:
        super().__init__("n")

    def add(self, acc: Any, value: Any) -> Any:
        return value


class Late(Numbers):
    """Emits a row a batch, and is never done: no end of the input ends a window."""

    def is_exhausted(self) -> bool:
        return False


def windows_of(program: StreamBuilder, stream: Any, kind: str) -> list[list[Any]]:
    """Run the program with windows of a second over a stream's keys; return what they report."""
    windowed = stream.key_by("n").window(Tumbling(timedelta(seconds=1)))
    counted = windowed.count() if kind == "counts" else windowed.aggregate(Unmergeable())
    counted.named("windows").print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("windows", program.build())
        run.settle()
        return run.tuples("windows")


@pytest.mark.parametrize("unit", sorted(TIMES))
@pytest.mark.parametrize("kind", ["counts", "lists"])
def test_a_selective_filter_does_not_hold_the_watermark_back(unit: str, kind: str) -> None:
    rows = [(n, TIMES[unit](10 * n)) for n in range(6)]
    s = StreamBuilder()
    time = EventTime("ts", unit=unit, idle=None)
    first = s.stream(Late(("n", "ts"), rows, 1, False), time=time).filter(lambda row: row.n == 0)
    assert len(windows_of(s, first, kind)) == 1


@pytest.mark.parametrize("kind", ["counts", "lists"])
def test_a_clock_that_is_ahead_does_not_hide_what_a_filter_has_seen(kind: str) -> None:
    s = StreamBuilder()
    rows = [(0, 0), (1, 5_000), (2, 10**15)]
    time = EventTime("ts", idle=None, max_ahead=timedelta(seconds=60))
    first = s.stream(Late(("n", "ts"), rows, 3, False), time=time).filter(lambda row: row.n == 0)
    assert len(windows_of(s, first, kind)) == 1


def test_ticks_are_no_elements() -> None:
    s = StreamBuilder()
    numbers = s.stream(Numbers(("n",), [(n,) for n in range(5)], 1, True)).filter(lambda n: n > 0)
    numbers.key_by().count().values().to(Kept(), name="kept")
    numbers.count().print()
    numbers.key_by().persistent_aggregate(Count()).updates().print()
    run = complete_topology(s.build(), conf={"topology.tick.tuple.freq.secs": 1})
    assert run.tuples("count_1") == [[n, 1] for n in range(1, 5)]
    assert len(run.acked["stream_1"]) == 3


class Sorter(BasicBolt):
    """Emits on two streams, which one bolt reads together, and makes mistakes in between."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        declarer.declare("n", "m")
        declarer.declare_stream("odd", "n")

    def execute(self, tup: Tuple) -> None:
        n = tup[0]
        if n % 2:
            self.emit((n,) if n % 3 else [n], stream="odd")
        self.emit([n, n + 1])
        if n % 11 == 4:
            mistakes: list[tuple[Any, Any]] = [
                ([n], "default"),
                ([n], "even"),
                ([n], ["odd"]),
                (n, "odd"),
            ]
            values, stream = mistakes[n % 4]
            self.emit(values, stream=stream)
        if n % 5 == 2:
            raise FailTuple("not these")


@given(
    values=st.lists(st.integers(0, 60), max_size=60),
    tracked=st.booleans(),
    policy=st.sampled_from(["fail", "stop"]),
)
@examples(30)
def test_several_streams_are_the_same_without_the_checks_of_tests(
    values: list[int], tracked: bool, policy: str
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(("n",), [(n,) for n in values], 20, tracked))
    builder.set_bolt("sorter", Sorter()).shuffle_grouping("numbers")
    both = builder.set_bolt("both", Kept())
    both.shuffle_grouping("sorter").shuffle_grouping("sorter", stream="odd")
    builder.set_bolt("one", Kept(), 2).fields_grouping("sorter", ["m"])
    topology = builder.create_topology()
    one, other = (
        run(topology, strict=strict, policy=policy, by_columns=True) for strict in (False, True)
    )
    assert one == other
