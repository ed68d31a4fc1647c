"""Joins on Spark give what the inline engine gives: several slots, levels, parallel sources."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from topo import (
    BasicBolt,
    CoGroup,
    Count,
    EventTime,
    IntervalJoin,
    JoinBolt,
    Session,
    Sliding,
    Spout,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
    WindowJoin,
)
from topo.streams import StreamBuilder
from topo.testing import complete_topology

pytestmark = pytest.mark.spark

PER_TASK = 300
SECOND = timedelta(seconds=1)
TIME = EventTime("ts", lag=SECOND)


class Orders(Spout):
    """Emits orders with times that jump back and forth a little; every ninth has no key."""

    outputs = ("key", "ts", "v")
    factor = 1

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.number = 0
        self.index = context.this_task_index

    def next_tuple(self) -> None:
        for _ in range(40):
            if self.number < PER_TASK:
                self.emit(self.row(self.number), msg_id=self.number)
                self.number += 1

    def row(self, n: int) -> list[Any]:
        key = None if n % 9 == 0 else f"k{n * self.factor % 23}"
        return [key, 50 * n + 37 * (n % 5) + self.index, 2 * n + self.index]

    def is_exhausted(self) -> bool:
        return self.number >= PER_TASK


class Payments(Orders):
    factor = 2


JOINS = ("interval", "sliding", "sessions", "groups")


def topology(chosen: tuple[str, ...]) -> Topology:
    """Two streams, the chosen joins of them, and a window behind; all joins have Storm's beside."""
    builder = TopologyBuilder()
    builder.set_spout("orders", Orders(), 2)
    builder.set_spout("payments", Payments(), 2)
    both: dict[str, Any] = {"left": "orders", "right": "payments", "on": "key", "time": TIME}
    values = ("key", "orders:v", "payments:v")
    within = (timedelta(0), 2 * SECOND)
    joins = {
        "interval": IntervalJoin(within=within, how="outer", select=values, result_ts="at", **both),
        "sliding": WindowJoin(window=Sliding(2 * SECOND, SECOND), how="left", **both),
        "sessions": WindowJoin(window=Session(SECOND), how="right", select=values, **both),
        "groups": CoGroup(
            ["orders", "payments"], on="key", window=Tumbling(SECOND), time=TIME, values="v"
        ),
    }
    for name in chosen:
        declarer = builder.set_bolt(name, joins[name], 3)
        declarer.fields_grouping("orders", ["key"]).fields_grouping("payments", ["key"])
    counts = WindowAggregate(
        key="key", window=Tumbling(SECOND), time=EventTime(), aggregates={"n": Count()}
    )
    builder.set_bolt("counts", counts, 2).fields_grouping("interval", ["key"])
    if chosen != JOINS:
        return builder.create_topology()
    storm = JoinBolt("orders", "key").left_join("payments", "key", "orders").select("key,orders:v")
    storm.with_tumbling_window(2 * SECOND).with_timestamp_field("ts").with_lag(SECOND)
    declarer = builder.set_bolt("storm", storm, 2)
    declarer.fields_grouping("orders", ["key"]).fields_grouping("payments", ["key"])
    return builder.create_topology()


def by_value(rows: list[list[Any]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(("interval",), marks=pytest.mark.smoke, id="interval"),
        pytest.param(JOINS, id="all"),
    ],
)
def test_spark_gives_what_the_inline_engine_gives(chosen: tuple[str, ...]) -> None:
    built = topology(chosen)
    results = {}
    for engine in ("inline", "spark"):
        done = complete_topology(built, engine=engine)
        results[engine] = {bolt.id: by_value(done.tuples(bolt.id)) for bolt in built.bolts}
        if "groups" in chosen:
            lists = [[k, sorted(a), sorted(b), *rest] for k, a, b, *rest in done.tuples("groups")]
            results[engine]["groups"] = by_value(lists)
        for name in chosen:
            assert done.tuples(name, "late") == []
        for spout in ("orders", "payments"):
            assert sorted(done.acked[spout]) == sorted([*range(PER_TASK)] * 2)
    assert results["spark"] == results["inline"]
    rows: list[list[Any]] = []
    for source in (Orders(), Payments()):
        own = []
        for source.index in (0, 1):
            own += [source.row(n) for n in range(PER_TASK)]
        rows.append(own)
    pairs = [
        (a, b) for a in rows[0] for b in rows[1]
        if a[0] is not None and a[0] == b[0] and 0 <= b[1] - a[1] <= 2_000
    ]  # fmt: skip
    matched = {id(row) for pair in pairs for row in pair}
    expected = [[a[0], a[2], b[2], max(a[1], b[1])] for a, b in pairs]
    expected += [[a[0], a[2], None, a[1]] for a in rows[0] if id(a) not in matched]
    expected += [[b[0], None, b[2], b[1]] for b in rows[1] if id(b) not in matched]
    assert results["spark"]["interval"] == by_value(expected)


class Sink(BasicBolt):
    outputs = ("key", "value")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.key, tup.value])


def test_joins_of_streams_follow_one_another_on_spark() -> None:
    s = StreamBuilder()
    orders = s.stream(Orders(), time=TIME, parallelism=2).key_by("key").map_values(lambda e: e.v)
    payments = s.stream(Payments(), time=TIME).key_by("key").map_values(lambda e: e.v)
    both = orders.left_join(payments, within=SECOND).join(payments, window=Tumbling(SECOND))
    both.to(Sink(), name="sink")
    built = s.build()
    inline, spark = (
        complete_topology(built, engine=engine).tuples("sink") for engine in ("inline", "spark")
    )
    assert inline
    assert by_value(spark) == by_value(inline)
