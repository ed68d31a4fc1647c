"""Every NaN is one key, whatever object it is: in windows, joins, tables, patterns and streams.

Pickling makes another object of a NaN, which a mapping does not find. So the law is that NaN
behaves as any other key would: a run with NaN, restarted at any place, has the results of a run
that has a text in its place and is not restarted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.property.scale import scaled
from topo import (
    AfterCount,
    BasicBolt,
    CoGroup,
    Collect,
    Count,
    Distinct,
    EventTime,
    Global,
    IntervalJoin,
    JoinBolt,
    KeyedBolt,
    Pattern,
    PatternBolt,
    PerEvent,
    Session,
    Sliding,
    Table,
    TableJoin,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
    WindowedBolt,
    WindowJoin,
)
from topo.routing.hashing import stable_hash
from topo.storage.saving import column_with_one_nan, keys_of, with_one_nan
from topo.streams import Process, StreamBuilder
from topo.testing import FeederSpout, TestCluster, laws_of_batches
from topo.wire.column import dump, load

MS = timedelta(milliseconds=1)
TS = EventTime("ts", lag=5)
FIELDS = ["k", "j", "ts", "v"]
ODD = object()
"""The place of NaN in the rows."""
ROWS: list[tuple[str, Any, int]] = [
    ("a", ODD, 1),
    ("b", "x", 2),
    ("b", ODD, 3),
    ("a", None, 4),
    ("a", ODD, 11),
    ("a", ODD, 8),
    ("b", ODD, 12),
    ("a", "x", 30),
    ("b", ODD, 31),
    ("b", "x", 90),
    ("a", ODD, 91),
    ("a", "x", 500),
    ("b", "x", 500),
]


class Held(WindowedBolt):
    outputs = ("k", "end", "values")

    def execute(self, window: Any) -> None:
        self.emit([window.key, window.end, [tup.v for tup in window]])


class Seen(KeyedBolt):
    key = "k"
    outputs = ("k", "n")

    def created(self) -> None:
        self.n = 0

    def execute(self, tup: Tuple) -> None:
        self.n += 1
        self.emit([self.key, self.n])


class Sink(BasicBolt):
    outputs = ("value",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.values])


class Counting(Process[Any, Any, Any]):
    def on_value(self, key: Any, value: Any) -> None:
        self.state["n"] = self.state.get("n", 0) + 1
        self.set_timer("due", self.ts + 10)
        self.emit((key, self.state["n"]))

    def on_timer(self, key: Any, name: str, at: Any) -> None:
        self.emit((key, ("due", self.state["n"])))


def windows(window: Any, **more: Any) -> Callable[[], Any]:
    more.setdefault("aggregates", {"n": Count(), "of": Collect("v")})
    return lambda: WindowAggregate(key="k", window=window, time=TS, **more)


def held(**more: Any) -> Callable[[], Any]:
    def made() -> Any:
        bolt = Held().with_key("k").with_timestamp_field("ts").with_lag(MS * 5)
        for name, arguments in more.items():
            bolt = getattr(bolt, name)(*arguments)
        return bolt

    return made


def joined(kind: Any, **more: Any) -> Callable[[], Any]:
    sides = {"left": "a", "right": "b", "on": "k", "select": "a:k,a:v,b:k,b:v"}
    return lambda: kind(**sides, how="outer", time=TS, **more)


BOLTS: dict[str, Callable[[], Any]] = {
    "tumbling": windows(Tumbling(10)),
    "counts": windows(Tumbling(10), aggregates={"n": Count()}),
    "lateness": windows(Tumbling(10), allowed_lateness=200),
    "sliding": windows(Sliding(20, 10)),
    "changed": windows(Sliding(20, 10), emit="changed"),
    "session": windows(Session(10)),
    "late session": windows(Session(10), allowed_lateness=200),
    "per event": windows(PerEvent(10)),
    "late per event": windows(PerEvent(10), allowed_lateness=200),
    "global": windows(Global(), trigger=AfterCount(2)),
    "two fields": lambda: WindowAggregate(
        key=("j", "k"), window=Tumbling(10), time=TS, allowed_lateness=9, aggregates={"n": Count()}
    ),
    "held": held(with_window=(MS * 20, MS * 10)),
    "held by count": held(with_window=(3, 2)),
    "held for acks": held(with_window=(MS * 20, MS * 10), with_ack=("expiry",)),
    "held sessions": held(with_session=(10,)),
    "held late": held(with_window=(MS * 10, MS * 10), with_allowed_lateness=(200,)),
    "interval join": joined(IntervalJoin, within=10),
    "window join": joined(WindowJoin, window=Tumbling(20)),
    "session join": joined(WindowJoin, window=Session(10)),
    "cogroup": lambda: CoGroup(["a", "b"], on="k", values="v", window=Tumbling(20), time=TS),
    "running cogroup": lambda: CoGroup(
        ["a", "b"], on=["j", "k"], values="v", time=TS, emit="running"
    ),
    "join bolt": lambda: (
        JoinBolt("a", "k")
        .join("b", "k", "a")
        .select("a:k,a:v,b:v")
        .with_timestamp_field("ts")
        .with_lag(MS * 5)
        .with_window(MS * 20, MS * 20)
    ),
    "table": lambda: TableJoin(stream="a", table=Table("b", key="k"), how="left"),
    "versioned table": lambda: TableJoin(
        stream="a", table=Table("b", key="k", versioned=100), time=TS, how="left", grace=3
    ),
    "pattern": lambda: PatternBolt(
        Pattern("one").followed_by("two").within(30),
        key="k",
        time=TS,
        select={"k": "k", "n": "end"},
    ),
    "keyed": Seen,
}


def of_bolts(a: FeederSpout, b: FeederSpout) -> tuple[Topology, Sequence[str]]:
    builder = TopologyBuilder()
    builder.set_spout("a", a)
    builder.set_spout("b", b)
    for name, make in BOLTS.items():
        builder.set_bolt(name, make(), 1).global_grouping("a").global_grouping("b")
    return builder.create_topology(), list(BOLTS)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "running": lambda a, b: a.count(),
    "running lists": lambda a, b: a.aggregate(Collect()),
    "process": lambda a, b: a.process(Counting()),
    "tables": lambda a, b: a.to_table().join(b.to_table(), lambda x, y: (x, y)).to_stream(),
    "lookup": lambda a, b: a.left_join(b.to_table(), lambda x, y: (x, y)),
    "grouped": lambda a, b: (
        a.to_table().group_by(lambda key, value: key).aggregate(Count()).to_stream()
    ),
}


def of_programs(a: FeederSpout, b: FeederSpout) -> tuple[Topology, Sequence[str]]:
    s = StreamBuilder()
    left, right = (s.stream(one, time=TS).key_by("k").map_values(_v) for one in (a, b))
    for name, program in PROGRAMS.items():
        program(left, right).to(Sink(), name=f"of {name}")
    return s.build(), [f"of {name}" for name in PROGRAMS]


def _v(row: Any) -> Any:
    return row.v


Make = Callable[[FeederSpout, FeederSpout], tuple[Topology, Sequence[str]]]


def results(
    make: Make, odd: Callable[[], Any], restarts: Iterable[int] = ()
) -> dict[str, list[str]]:
    """Return what comes out for the rows, given the rows before which the run is restarted."""
    a, b = FeederSpout(FIELDS), FeederSpout(FIELDS)
    topology, names = make(a, b)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", topology)
        for place, (side, key, ts) in enumerate(ROWS):
            if place in restarts:
                run.restart()
            row = [odd() if key is ODD else key, 1, ts, place]
            (a if side == "a" else b).feed(row, msg_id=place)
            run.settle()
        shown = {name: map(repr, run.tuples(name)) for name in names}
        return {
            name: sorted(row.replace("'nan'", "nan") for row in rows)
            for name, rows in shown.items()
        }


@pytest.mark.parametrize("make", [of_bolts, of_programs])
def test_a_nan_is_a_key_as_any_other_wherever_the_run_is_restarted(make: Make) -> None:
    expected = results(make, lambda: "nan")
    assert [name for name, rows in expected.items() if "nan" not in str(rows)] == []
    assert results(make, lambda: float("nan")) == expected
    some = range(1, len(ROWS), max(len(ROWS) // scaled(len(ROWS)), 1))  # all of them by --all
    for restarts in [*((place,) for place in some), range(len(ROWS))]:
        assert results(make, lambda: float("nan"), restarts) == expected, restarts


class Pair(NamedTuple):
    left: Any
    right: Any


NANS = [float("nan"), Decimal("NaN"), Decimal("sNaN"), np.float32("nan"), np.float64("nan")]


@pytest.mark.parametrize("nan", NANS, ids=repr)
def test_the_nans_of_all_types_are_one_key_as_for_the_grouping(nan: Any) -> None:
    for key, other in [
        (nan, float("nan")),
        (("x", nan), ("x", float("nan"))),
        (("x", (1, nan)), ("x", (1, float("nan")))),
        (Pair("x", nan), Pair("x", float("nan"))),
    ]:
        assert stable_hash(key) == stable_hash(other)
        assert {with_one_nan(key): 1}.get(with_one_nan(other)) == 1
        assert type(with_one_nan(other)) is type(other)


def test_values_that_are_no_nan_stay_the_objects_that_they_are() -> None:
    array = np.array([1.0, float("nan")])
    keys = ["x", 1, None, 2.5, Decimal("1.10"), ("x", 2.5), Pair(1, 2.5), array, [1], True, b"x"]
    assert all(with_one_nan(key) is key for key in keys)
    for column in (["x", None, 1], [1.5, "x", float("inf")], [("x", 1), ("y", None)]):
        assert column_with_one_nan(column) is column
        assert keys_of([column], 3) is column
    assert keys_of([], 2) == [None, None]
    assert keys_of([["x", "y"], [1, 2.5]], 2) == [("x", 1), ("y", 2.5)]
    [key] = column_with_one_nan([(1, float("nan"))])
    assert key == with_one_nan((1, float("nan")))
    first, second = keys_of([["x", "x"], [float("nan"), float("nan")]], 2)
    assert first == second


@pytest.mark.parametrize("nan", [lambda: ("x", float("nan")), lambda: Decimal("NaN")])
def test_a_key_with_a_nan_in_it_is_counted_as_one_over_a_restart(nan: Callable[[], Any]) -> None:
    for make in (of_bolts, of_programs):
        plain = results(make, nan, (3, 9))
        assert {name: len(rows) for name, rows in plain.items()} == {
            name: len(rows) for name, rows in results(make, lambda: "nan").items()
        }


@pytest.mark.parametrize("other", NANS, ids=repr)
def test_all_nans_are_one_of_the_values_that_distinct_counts(other: Any) -> None:
    distinct = Distinct("v")
    for value, again in [(math.nan, other), (("x", math.nan), Pair("x", other))]:
        saved = load(dump(distinct.add(distinct.add(distinct.init(), value), "y")))
        both = distinct.merge(saved, distinct.add(distinct.init(), again))
        assert distinct.result(distinct.add(both, again)) == 2


def test_nans_that_an_operator_makes_are_one_however_batches_are_cut() -> None:
    def program(tasks: int) -> Topology:
        s = StreamBuilder()
        rows = s.stream([], fields=("k", "ts"), time=EventTime("ts"), name="rows")
        nans = rows.repartition(tasks).key_by("k").map_values(lambda row: math.nan)
        nans.window(Tumbling(10)).distinct().named("out").print()
        return s.build()

    found = laws_of_batches(program, {"rows": [("a", 1), ("a", 2), ("a", 30)]}, results="out")
    assert found["out"] == [["a", 0, 10, 1]]
