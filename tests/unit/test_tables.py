"""Tables: what is refused, what is kept and for how long, and what the rarer options do."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.conformance.test_streams import Items, Sink, results
from tests.property.scale import seeds
from topo import (
    Combiner,
    Count,
    EventTime,
    First,
    InvalidTopologyError,
    JoinError,
    Max,
    Min,
    Spout,
    Sum,
    Table,
    TableJoin,
    Topology,
    TopologyBuilder,
    UncaughtError,
)
from topo.errors import StreamError
from topo.streams import StreamBuilder, StreamTable
from topo.testing import FeederSpout, TestCluster

RATES = Table("rates", key="currency")
VERSIONED = Table("rates", key="currency", versioned=timedelta(seconds=1))
BY_TS = EventTime("ts", idle=None)


class World:
    """Orders and rates, and the join of both under test."""

    def __init__(
        self,
        join: TableJoin,
        tasks: int = 2,
        fields: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        names = {"orders": ["currency", "amount", "ts"], "rates": ["currency", "rate", "ts"]}
        self.feeders = {name: FeederSpout(list((fields or names)[name])) for name in names}
        builder = TopologyBuilder()
        for name, feeder in self.feeders.items():
            builder.set_spout(name, feeder)
        declarer = builder.set_bolt("joined", join, tasks)
        declarer.fields_grouping("orders", list(join.on))
        declarer.fields_grouping("rates", list(join.table.keys))
        self.cluster = TestCluster()
        self.run = self.cluster.submit_topology("t", builder.create_topology())

    def feed(self, name: str, *rows: Sequence[Any]) -> None:
        for row in rows:
            self.feeders[name].feed(list(row), msg_id=str(row))
        self.run.settle()

    def out(self, stream: str = "default") -> list[list[Any]]:
        return self.run.tuples("joined", stream)


def problems(build: Any) -> str:
    with pytest.raises(InvalidTopologyError) as caught:
        build()
    return str(caught.value)


def topology(join: TableJoin, wire: Any, tasks: int = 2) -> Any:
    def build() -> Topology:
        builder = TopologyBuilder()
        builder.set_spout("orders", FeederSpout(["currency", "amount", "ts"]))
        builder.set_spout("rates", FeederSpout(["currency", "rate", "ts"]))
        wire(builder.set_bolt("joined", join, tasks))
        return builder.create_topology()

    return build


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table("rates", key=()), "has no key"),
        (lambda: Table("", key="k"), "takes a component"),
        (lambda: Table("rates", key="k", ttl=timedelta(0)), "ttl is"),
        (lambda: Table("rates", key="k", max_keys=0), "max_keys is 0"),
        (lambda: Table("rates", key="k", max_keys=1, versioned=1), "goes without versioned"),
        (lambda: TableJoin(stream="orders", table="rates"), "takes a Table"),  # type: ignore[arg-type]
        (lambda: TableJoin(stream="rates", table=RATES), "both the stream and the table"),
        (lambda: TableJoin(stream="orders", table=RATES, how="outer"), "'inner' or 'left'"),
        (lambda: TableJoin(stream="orders", table=RATES, grace=1), "grace needs a versioned"),
        (lambda: TableJoin(stream="orders", table=VERSIONED), "needs event time"),
        (lambda: TableJoin(stream="orders", table=RATES, on=("a", "b")), "same number of fields"),
        (lambda: TableJoin(stream="orders", table=RATES, on={"order": "x"}), "on has no key"),
        (lambda: TableJoin(stream="orders", table=RATES, merge="left"), "merge is 'left'"),
        (lambda: TableJoin(stream="orders", table=RATES, outputs=("x",)), "goes with merge"),
        (
            lambda: TableJoin(stream="orders", table=RATES, select="rate", merge="raise"),
            "not both",
        ),
    ],
)
def test_a_join_that_cannot_be(make: Any, message: str) -> None:
    with pytest.raises(JoinError, match=message):
        make()


def test_inputs_must_come_by_the_key_and_the_error_shows_the_line() -> None:
    join = TableJoin(stream="orders", table=RATES)
    by_key = ".fields_grouping('orders', ['currency'])"
    assert by_key in problems(
        topology(
            join, lambda b: b.shuffle_grouping("orders").fields_grouping("rates", ["currency"])
        )
    )
    assert ".fields_grouping('rates', ['currency'])" in problems(
        topology(join, lambda b: b.fields_grouping("orders", ["currency"]))
    )
    wrong = topology(
        join,
        lambda b: b.fields_grouping("orders", ["amount"]).fields_grouping("rates", ["currency"]),
    )
    assert by_key in problems(wrong)
    topology(join, lambda b: b.shuffle_grouping("orders").shuffle_grouping("rates"), tasks=1)()
    topology(join, lambda b: b.global_grouping("orders").global_grouping("rates"))()
    topology(join, lambda b: b.shuffle_grouping("orders").all_grouping("rates"))()


def test_unknown_fields_are_named() -> None:
    def wire(bolt: Any) -> None:
        bolt.global_grouping("orders").global_grouping("rates")

    missing = TableJoin(stream="orders", table=RATES, on="currencies")
    assert "the key 'currencies' is no field" in problems(topology(missing, wire))
    chosen = TableJoin(stream="orders", table=RATES, select=("amount", "rates:rat"))
    assert "select has 'rates:rat', which no input has" in problems(topology(chosen, wire))
    with pytest.raises(JoinError, match="'rate' is no input of the join"):
        TableJoin(stream="orders", table=RATES, select=("amount", "rate:rate"))
    clash = TableJoin(stream="orders", table=RATES, merge="raise")
    assert "both have ts" in problems(topology(clash, wire))
    deleted = TableJoin(stream="orders", table=Table("rates", key="currency", deleted="gone"))
    assert "deleted='gone' is no field" in problems(topology(deleted, wire))
    untimed = TableJoin(stream="orders", table=VERSIONED, time=EventTime({"orders": "ts"}))
    assert "reads 'rates' in event time" in problems(topology(untimed, wire))


# -- lookups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(5))
def test_the_tables_changes_of_a_batch_come_before_its_rows(seed: int) -> None:
    join = TableJoin(stream=("both", "o"), table=Table(("both", "r"), key="k"), how="left")
    builder = TopologyBuilder()
    builder.set_spout("both", Both())
    declarer = builder.set_bolt("joined", join, 2)
    declarer.fields_grouping("both", ["k"], stream="o")
    declarer.fields_grouping("both", ["k"], stream="r")
    with TestCluster(seed=seed) as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        run.step()
        assert run.tuples("joined") == [[1, "order", "rate"]]


class Both(Spout):
    """Emits an order and then the rate that it needs, in one batch."""

    outputs = {"o": ("k", "order"), "r": ("k", "rate")}

    def __init__(self) -> None:
        self.done = False

    def next_tuple(self) -> None:
        if not self.done:
            self.done = True
            self.emit([1, "order"], stream="o")
            self.emit([1, "rate"], stream="r")


def test_a_key_with_none_in_it_matches_nothing() -> None:
    fields = {"orders": ["a", "b", "amount"], "rates": ["a", "b", "rate"]}
    join = TableJoin(stream="orders", table=Table("rates", key=("a", "b")), how="left")
    world = World(join, fields=fields)
    world.feed("rates", [None, 1, "x"], [2, 1, "y"])
    world.feed("orders", [None, 1, "p"], [2, 1, "q"])
    assert sorted(world.out(), key=str) == [[2, 1, "q", "y"], [None, 1, "p", None]]


def test_a_key_that_cannot_be_one_is_named() -> None:
    world = World(TableJoin(stream="orders", table=RATES))
    with pytest.raises(UncaughtError, match=r"the key \{'a'\} is a set"):
        world.feed("rates", [{"a"}, 1, 0])


def test_late_rows_are_set_aside_and_rows_for_which_no_version_is_kept_are_counted() -> None:
    join = TableJoin(stream="orders", table=VERSIONED, time=BY_TS, how="left", select="amount,rate")
    world = World(join)
    world.feed("rates", ["eur", 1, 0], ["eur", 2, 5_000])
    world.feed("orders", ["eur", "a", 6_000])
    world.feed("rates", ["eur", 3, 9_000])  # the watermark is 6000
    world.feed("orders", ["eur", "late", 1_000])
    assert [row[0].amount for row in world.out("late")] == ["late"]
    assert world.run.stats().components["joined"].late == 1
    as_of = World(
        TableJoin(stream="orders", table=VERSIONED, time=BY_TS, wait=False, how="left",
                  select="amount,rate")
    )  # fmt: skip
    as_of.feed("rates", ["eur", 1, 0], ["eur", 2, 5_000], ["eur", 3, 9_000])
    as_of.feed("rates", ["eur", 9, 7_000])  # older than a second before the newest
    as_of.feed("orders", ["eur", "a", 8_500], ["eur", "b", 4_000], ["eur", "c", 9_000])
    assert as_of.out() == [["a", 2], ["b", None], ["c", 3]]
    assert as_of.run.stats().components["joined"].expired == 1


def test_waiting_rows_and_versions_survive_restarts_and_the_end_gives_all() -> None:
    join = TableJoin(stream="orders", table=VERSIONED, time=BY_TS, select="amount,rate")
    world = World(join)
    world.feed("rates", ["eur", 1, 0])
    world.feed("orders", ["eur", "b", 2_000], ["eur", "a", 1_000])
    world.run.restart()
    world.feed("rates", ["eur", 2, 1_500], ["eur", 3, 30_000])
    world.run.restart()
    world.feed("orders", ["eur", "c", 31_000])
    assert world.out() == [["a", 1], ["b", 2]]
    assert not world.feeders["orders"].failed
    assert len(world.feeders["orders"].acked) == 3


@pytest.mark.parametrize("unit", ["ms", "s", "datetime"])
def test_times_of_every_unit(unit: str) -> None:
    def at(second: int) -> Any:
        shown = {"ms": second * 1000, "s": second, "datetime": None}[unit]
        return shown if shown is not None else datetime.fromtimestamp(second, UTC)

    s = StreamBuilder()
    time = EventTime("ts", idle=None, unit=unit)
    orders, rates = FeederSpout(["key", "value", "ts"]), FeederSpout(["key", "value", "ts"])
    table = s.stream(rates, time=time).to_table(key="key", versioned=timedelta(seconds=5))
    rows = s.stream(orders, time=time).key_by("key")
    joined = rows.join(table, lambda order, rate: (order.value, rate.value))
    joined.named("joined")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        rates.feed(["k", "r1", at(1)])
        rates.feed(["k", "r2", at(3)])
        orders.feed(["k", "o2", at(2)])
        rates.feed(["k", "r9", at(9)])
        orders.feed(["k", "o9", at(9)])
        run.settle()
        assert run.tuples("joined") == [["k", ("o2", "r1"), at(2)]]


def test_rows_are_forgotten_by_time_and_by_number() -> None:
    lasting = Table("rates", key="currency", ttl=timedelta(seconds=10))
    world = World(TableJoin(stream="orders", table=lasting, how="left", select="amount,rate"))
    world.feed("rates", ["eur", 1, 0], ["usd", 2, 0])
    world.cluster.advance(6)
    world.feed("rates", ["usd", 3, 0])
    world.run.restart()
    world.cluster.advance(5)
    world.feed("orders", ["eur", "a", 0], ["usd", "b", 0])
    assert sorted(world.out()) == [["a", None], ["b", 3]]
    few = Table("rates", key="currency", max_keys=2)
    world = World(TableJoin(stream="orders", table=few, how="left", select="amount,rate"), 1)
    world.feed("rates", ["eur", 1, 0], ["usd", 2, 0])
    world.feed("rates", ["eur", 3, 0])
    world.run.restart()
    world.feed("rates", ["gbp", 4, 0])
    world.feed("orders", ["eur", "a", 0], ["usd", "b", 0], ["gbp", "c", 0])
    assert sorted(world.out()) == [["a", 3], ["b", None], ["c", 4]]


def test_merges() -> None:
    def row(**options: Any) -> tuple[Sequence[str], list[Any]]:
        world = World(TableJoin(stream="orders", table=RATES, how="left", **options))
        world.feed("rates", ["eur", 1.5, 7])
        world.feed("orders", ["eur", 2, 9])
        declared = world.run.topology.component("joined").declared("default")
        return declared.fields, world.out()[0]

    assert row() == (("currency", "amount", "left_ts", "rate", "right_ts"), ["eur", 2, 9, 1.5, 7])
    assert row(merge="keep-left")[1] == ["eur", 2, 9, 1.5]
    assert row(merge="keep-right") == (("currency", "amount", "ts", "rate"), ["eur", 2, 7, 1.5])
    assert row(merge=lambda a, b: a["amount"] * b["rate"]) == (("value",), [3.0])
    assert row(merge=lambda a, b: [a["ts"], b["ts"]], outputs=("x", "y"))[1] == [9, 7]
    named = row(select={"paid": "amount", "at": "rates:ts", "own": "left:ts"})
    assert named == (("paid", "at", "own"), [2, 7, 9])


# -- tables in streams ----------------------------------------------------------------------------


class OneWay(Combiner):
    """A combiner that has no way back."""

    def add(self, acc: Any, value: Any) -> Any:
        return value


def pairs(s: StreamBuilder, *items: Any) -> Any:
    return s.stream(Items(items)).pairs()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda a, b: a.to_table().join(b), "a table joins a table; got KeyedStream"),
        (lambda a, b: a.outer_join(b.to_table()), "not outer"),
        (lambda a, b: a.to_table(ttl=3), "ttl is 3"),
        (lambda a, b: a.to_table().group_by(str).aggregate(First("v")), "not what came before"),
        (
            lambda a, b: a.to_table().group_by(str).aggregate(OneWay(None)),
            "cannot take a value away",
        ),
        (lambda a, b: a.to_table().group_by(str).aggregate(Count), "takes an instance"),
        (lambda a, b: a.to_table().group_by(str).aggregate(adder=max), "adder and a subtractor"),
        (lambda a, b: a.to_table(versioned=3).to_stream(), "needs event time"),
        (lambda a, b: a.join(b.to_table(versioned=3)), "needs event time"),
        (lambda a, b: a.join(b.to_table(), grace=3), "grace needs a versioned"),
        (
            lambda a, b: a.to_table(max_keys=3).group_by(str).count().to_stream(),
            "a table with max_keys forgets rows in silence",
        ),
    ],
)
def test_programs_that_cannot_be(write: Any, message: str) -> None:
    s = StreamBuilder()

    def build() -> None:
        write(pairs(s), pairs(s))
        s.build()

    with pytest.raises(StreamError, match=message) as caught:
        build()
    assert "test_tables.py:" in str(caught.value)


def test_an_error_names_the_operator_that_called_the_function() -> None:
    s = StreamBuilder()
    table = pairs(s, ("a", 1)).to_table().map_values(lambda value: value / 0)
    table.to_stream().print()
    with TestCluster() as cluster, pytest.raises(UncaughtError) as caught:
        cluster.submit_topology("t", s.build()).settle()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "in table_map at test_tables.py:" in str(caught.value.__cause__.__notes__)


def test_tables_with_one_key_share_a_bolt_and_a_shared_one_is_kept_once() -> None:
    s = StreamBuilder()
    a, b, c = (pairs(s).to_table() for _ in range(3))
    first = a.join(b).map_values(str).filter(lambda key, value: value)
    first.left_join(c, lambda left, right: left).to_stream().print()
    assert sum(name.startswith("table_join") for name in s.build().components) == 1
    s = StreamBuilder()
    a, b, c = (pairs(s).to_table() for _ in range(3))
    shared = a.join(b)
    shared.join(c).to_stream().print()
    shared.group_by(lambda key, value: value).count().to_stream().print()
    shared.join(shared).to_stream().print()
    assert sum(name.startswith("table_join") for name in s.build().components) == 3


def test_a_table_joined_with_itself() -> None:
    def write(s: StreamBuilder, i: Mapping[str, Any]) -> Any:
        table = i[""].pairs().to_table()
        return table.join(table, lambda a, b: a + b).to_stream()

    assert results(write, {"": [("a", 1), ("b", 2)]}) == [["a", 2], ["b", 4]]


def test_elements_that_delete_and_values_that_do_not_change() -> None:
    feeder = FeederSpout(["id", "state"])
    s = StreamBuilder()
    rows = s.stream(feeder)
    rows.to_table(key="id", deleted=lambda row: row.state == "gone").changes().named("changes").to(
        Sink(), name="sink"
    )
    kept: StreamTable[Any, Any] = rows.to_table(key="id", emit_unchanged=True)
    kept.to_stream().map_values(lambda row: row and row.state).named("all").to(Sink(), name="every")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for state in ("new", "new", "gone", "gone", "back"):
            feeder.feed([1, state])
            run.settle()
        pairs_of = [row[0][1] for row in run.tuples("sink")]
        found = [tuple(one.state if one else None for one in change) for change in pairs_of]
        assert found == [(None, "new"), ("new", None), (None, "back")]
        assert [row[0][1] for row in run.tuples("every")] == ["new", "new", "gone", "gone", "back"]


class Longest(Combiner):
    """The longest text, which can be taken away again."""

    def init(self) -> list[str]:
        return []

    def add(self, acc: list[str], value: str) -> list[str]:
        return sorted([*acc, value], key=len)

    def remove(self, acc: list[str], value: str) -> list[str]:
        return [text for text in acc if text != value]

    def result(self, acc: list[str]) -> str:
        return acc[-1]


def test_a_combiner_of_the_users_with_remove() -> None:
    feeder = FeederSpout(["key", "value"])
    s = StreamBuilder()
    table: StreamTable[Any, Any] = s.stream(feeder).pairs().to_table()
    table.group_by(lambda key, value: "all").aggregate(Longest()).to_stream().to(Sink(), name="x")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        for key, value in (("a", "long text"), ("b", "text"), ("a", None), ("b", None)):
            feeder.feed([key, value])
            run.settle()
            run.restart()
        assert [row[0][1] for row in run.tuples("x")] == ["long text", "text", None]


def test_what_is_saved_follows_what_changed() -> None:
    """A change of one row of a large table, or of one value of a large group, saves little."""
    feeder = FeederSpout(["key", "value"])
    s = StreamBuilder()
    table: StreamTable[Any, Any] = s.stream(feeder).pairs().to_table()
    group = table.group_by(lambda key, value: "all")
    for name, combiner in (("min", Min), ("max", Max), ("sum", Sum)):
        made = group.aggregate(combiner(lambda value: value)).named(name)
        made.to_stream().for_each(str)
    with TestCluster() as cluster:
        run: Any = cluster.submit_topology("t", s.build())
        for number in range(3_000):
            feeder.feed([number, number])
        run.settle()
        before = {task: dict(saved) for task, saved in run._saved.items()}
        written, changes = 0, 200
        for number in range(changes):
            feeder.feed([number, -number])
            run.settle()
            after = {task: dict(saved) for task, saved in run._saved.items()}
            written += sum(
                len(blob)
                for task, saved in after.items()
                for name, blob in saved.items()
                if before[task].get(name) != blob and name.split("/")[0] in LOGS
            )
            before = after
        table_size = sum(len(pickle.dumps((number, number))) for number in range(3_000))
        assert 0 < written / changes < table_size / 20


LOGS = ("table_0", "groups", "counts")
