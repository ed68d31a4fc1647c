"""Programs of streams give one result over live input, whatever its cuts, restarts and tasks.

The values are None, NaN, and numbers of several types that equal each other. Rows come out of
order, within the lag; the watermark ends behind the last of them, so that what waits for it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import nan
from random import Random
from typing import Any

import pytest

from tests.property.scale import scaled, seeds
from topo import (
    ArgMax,
    AtWatermark,
    Collect,
    Combiner,
    Count,
    Distinct,
    EachBatch,
    EventTime,
    First,
    Last,
    Max,
    Mean,
    Min,
    PerEvent,
    Session,
    Sliding,
    Sum,
    TopK,
    Topology,
    Tumbling,
    Var,
)
from topo.streams import KeyedStream, Process, Stream, StreamBuilder
from topo.testing import laws_of_batches

VALUES = [None, nan, 0, 1, 1.0, True, -1, 2.5, 2, 10**18, -0.0]
SAFE = [value for value in VALUES if value == value]
LAG = 6
ROWS = 7

AGGREGATES: dict[str, Combiner] = {
    "n": Count(),
    "some": Count("v"),
    "sum": Sum("v"),
    "lowest": Min("v"),
    "highest": Max("v"),
    "mean": Mean("v"),
    "variance": Var("v"),
    "different": Distinct("v"),
    "best": TopK(2, by="v", field="id"),
    "at": ArgMax("id", by="v"),
    "first": First("id"),
    "last": Last("id"),
    "all": Collect("id"),
}


class Silences(Process[Any, Any, Any]):
    """Tells how much came before a silence."""

    def on_value(self, key: Any, value: Any) -> None:
        self.state["ids"] = [*self.state.get("ids", ()), value.id]
        self.set_timer("silent", self.ts + 5)

    def on_timer(self, key: Any, name: str, at: Any) -> None:
        self.emit((key, (at, sorted(self.state.pop("ids")))))


def of_value(keyed: KeyedStream[Any, Any]) -> KeyedStream[Any, Any]:
    return keyed.map_values(lambda row: row.v)


def ids(*both: Any) -> Any:
    return tuple(row and row.id for row in both)


def latest(one: Any, other: Any) -> Any:
    return max(one, other, key=lambda row: row.id)


def odd(keyed: KeyedStream[Any, Any]) -> KeyedStream[Any, Any]:
    return keyed.filter(lambda pair: pair[1].id % 2)


Write = Callable[[KeyedStream[Any, Any]], Stream[Any]]
PROGRAMS: dict[str, Write] = {
    "tumbling": lambda s: s.window(Tumbling(5)).aggregate(**AGGREGATES),
    "sliding": lambda s: s.window(Sliding(10, 3)).aggregate(**AGGREGATES),
    "sessions": lambda s: s.window(Session(3)).aggregate(**AGGREGATES),
    "around each": lambda s: s.window(PerEvent(4)).aggregate(**AGGREGATES),
    "kept for late ones": lambda s: (
        s.window(Tumbling(5), allowed_lateness=10)
        .aggregate(**AGGREGATES)
        .filter(lambda r: r.timing == "on_time")
        .map(list)
    ),
    "of the batches so far": lambda s: (
        s.window(Sliding(10, 5), trigger=AtWatermark(early=EachBatch()), mode="retract")
        .aggregate(n=Count(), mean=Mean("v"))
        .filter(lambda r: r.change == "+" and r.timing == "on_time")
        .map(lambda r: list(r)[:5])
    ),
    "one alone": lambda s: of_value(s).window(Tumbling(5)).max().map(tuple),
    "reduced": lambda s: s.window(Sliding(10, 5)).reduce(latest),
    "folded": lambda s: s.window(Tumbling(5)).fold(list, lambda acc, row: sorted([*acc, row.id])),
    "windows of windows": lambda s: (
        s.window(Tumbling(2)).count().key_by("start").window(Sliding(8, 4)).aggregate(
            n=Count(), all=Collect("value")
        ).map(lambda r: (*r[:4], sorted(r.all)))
    ),
    "joined": lambda s: s.outer_join(odd(s), within=(2, 4), merge=ids),
    "joined in windows": lambda s: s.left_join(odd(s), window=Tumbling(5), merge=ids),
    "joined sessions": lambda s: s.join(s, window=Session(3), merge=ids),
    "side by side": lambda s: (
        s.cogroup(odd(s), window=Tumbling(5)).map_values(
            lambda sides: [sorted(row.id for row in side) for side in sides]
        )
    ),
    "silences": lambda s: s.process(Silences()),
    "counted": lambda s: s.aggregate(Count()),
    "a window behind a join": lambda s: (
        s.join(s, within=2, merge=lambda a, b: a.id - b.id).window(Tumbling(5)).collect().map(
            lambda r: (r.key, r.start, sorted(r.value))
        )
    ),
}  # fmt: skip


def program(write: Write, tasks: int) -> Topology:
    s = StreamBuilder()
    rows = s.stream(
        [], fields=("id", "k", "v", "ts"), time=EventTime("ts", lag=LAG, idle=None), name="rows"
    )
    result = write(rows.repartition(tasks).key_by("k"))
    result.map(lambda element: element).named("out").print()
    return s.build()


def rows_of(seed: int) -> list[Any]:
    random = Random(seed)
    ts, rows = 0, []
    for number in range(ROWS):
        ts += random.choice((0, 1, 1, 2, 6))
        rows.append((number, random.choice("ab"), random.choice(VALUES), ts - random.randint(0, 5)))
    return [*rows, (ROWS, "z", 0, ts + 2 * LAG)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_input_gives_one_result(name: str) -> None:
    # Between the values of a batch, each task of a process goes by those that it gets itself.
    tasks = (1,) if name == "silences" else (1, 3)
    for seed in seeds(5):
        rows = {"rows": rows_of(seed)}
        found = laws_of_batches(
            lambda tasks: program(PROGRAMS[name], tasks),
            rows,
            results="out",
            tasks=tasks,
            most=scaled(8, least=2),
            seed=seed,
        )
        assert found["out"] or seed


def test_duplicates_are_the_same_however_they_come() -> None:
    """In order: of several that are equal the first to arrive passes."""

    def write(tasks: int) -> Topology:
        s = StreamBuilder()
        rows = s.stream([], fields=("k", "v", "ts"), time=EventTime("ts"), name="rows")
        within = timedelta(milliseconds=5)
        rows.repartition(tasks).dedupe("k", within=within).named("out").print()
        return s.build()

    random = Random(0)
    for _ in seeds(5):
        ts = sorted(random.randint(0, 20) for _ in range(6))
        rows = [(random.choice("ab"), random.choice(SAFE), at) for at in ts]
        assert laws_of_batches(write, {"rows": rows}, results="out", tasks=[1, 2], most=2)["out"]
