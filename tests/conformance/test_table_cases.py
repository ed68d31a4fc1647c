"""The cases of cases/joins.jsonl that have tables in them: one runner for each kind, several seeds.

Flink says "watermark w: nothing at or before w comes", topo "nothing before W", so W is w + 1.
What Flink reports as the retraction of an old row and the insertion of a new one is one change in
topo, so the cases of changelogs are compared by the new rows, and by the old one of a deletion.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cases import Case, read_cases
from tests.property.scale import seeds
from topo import (
    BasicBolt,
    EventTime,
    InvalidTopologyError,
    Spout,
    Table,
    TableJoin,
    Topology,
    TopologyBuilder,
    Tuple,
)
from topo.operators.aggregates.combiners import Count
from topo.streams import StreamBuilder, StreamTable
from topo.testing import FeederSpout, TestCluster, complete_topology

CASES = read_cases(Path(__file__).parent / "cases" / "joins.jsonl")
SEEDS = seeds(3)
LAG = 1 << 40
"""With this lag no tuple moves the watermark: a case that sets it by hand observes W + LAG."""
BY_HAND = EventTime("ts", lag=LAG, idle=None)
BY_DATA = EventTime("ts", idle=None)
LONG = timedelta(hours=1)

every_seed = pytest.mark.parametrize("seed", SEEDS)


def of_kind(*kinds: str) -> pytest.MarkDecorator:
    found = [case for case in CASES if case["kind"] in kinds and case["topo"] == "must"]
    assert found
    return pytest.mark.parametrize("case", found, ids=lambda case: case["name"])


class Sink(BasicBolt):
    """Passes on each element: key, value, and its time if it has one."""

    outputs = ("key", "value", "ts")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.key, tup.value, tup.ts if "ts" in tup.fields else None])


class World:
    """A running topology with feeders, and what has come out of one of its components."""

    def __init__(
        self, topology: Topology, component: str, seed: int, feeders: Mapping[str, FeederSpout]
    ) -> None:
        self.feeders = feeders
        self.cluster = TestCluster(seed=seed)
        self.run = self.cluster.submit_topology("t", topology)
        self._component = component
        self._restarts = seed == 1
        self._taken = 0

    def feed(self, values: list[Any], side: str = "left") -> None:
        self.feeders[side].feed(values)
        self.run.settle()

    def restart(self) -> None:
        """Lose every instance, with some seeds."""
        if self._restarts:
            self.run.restart()

    def now(self, secs: float) -> None:
        self.cluster.advance(secs - self.cluster.now)

    def out(self) -> list[list[Any]]:
        """Return what came out since the last call."""
        found = self.run.tuples(self._component)
        start, self._taken = self._taken, len(found)
        return found[start:]


Tables = Callable[[Mapping[str, StreamTable[Any, Any]]], Any]


def feeders_of(*fields: str) -> dict[str, FeederSpout]:
    return {side: FeederSpout(fields) for side in ("left", "right")}


def keyed(builder: StreamBuilder, feeder: FeederSpout, time: EventTime | None = BY_DATA) -> Any:
    return builder.stream(feeder, time=time).key_by("key").map_values(lambda row: row.value)


def table_world(
    write: Tables, seed: int, *, time: EventTime | None = BY_DATA, **limits: Mapping[str, Any]
) -> World:
    """Return the world of a program over one or two tables."""
    builder = StreamBuilder()
    feeders = feeders_of("key", "value", "ts")
    tables = {
        side: keyed(builder, feeder, time).to_table(**limits.get(side, {}))
        for side, feeder in feeders.items()
    }
    write(tables).to(Sink(), name="sink")
    return World(builder.build(), "sink", seed, feeders)


def records(rows: Iterable[list[Any]]) -> list[dict[str, Any]]:
    """Return rows of the sink as the cases write them, without times where there are none."""
    found = []
    for key, value, ts in rows:
        value = list(value) if isinstance(value, tuple) else value
        found.append({"key": key, "value": value, **({} if ts is None else {"ts": ts})})
    return found


def by_key(found: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(json.dumps({k: v for k, v in one.items() if k != "ts"}) for one in found)


def pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def joined(tables: Mapping[str, StreamTable[Any, Any]], how: str, **more: Any) -> Any:
    left, right = tables["left"], tables["right"]
    join: Any = {
        "inner": left.join, "left": left.left_join, "right": left.right_join,
        "outer": left.outer_join,
    }[how]  # fmt: skip
    return join(right, pair, **more)


@every_seed
@of_kind("table-join")
def test_tables_with_the_same_key(case: Case, seed: int) -> None:
    settings = case["settings"]
    limits: dict[str, Any] = {
        side: {"versioned": LONG if settings[f"{side}_versioned"] else None}
        for side in ("left", "right")
    }
    world = table_world(lambda t: joined(t, settings["how"]).to_stream(), seed, **limits)
    for step in case["steps"]:
        if "out" in step:
            assert records(world.out()) == step["out"]
            world.restart()
        else:
            world.feed([step["key"], step["in"], step["ts"]], step["from"])


@every_seed
@of_kind("stream-table-join")
def test_a_stream_that_looks_a_table_up(case: Case, seed: int) -> None:
    settings = case["settings"]
    builder = StreamBuilder()
    feeders = feeders_of("key", "value", "ts")
    versioned = settings["history"] if settings.get("versioned") else None
    table = keyed(builder, feeders["right"]).to_table(versioned=versioned)
    stream = keyed(builder, feeders["left"])
    join = stream.left_join if settings["how"] == "left" else stream.join
    grace = settings.get("grace")
    join(table, pair, wait=grace is not None, grace=grace).to(Sink(), name="sink")
    world = World(builder.build(), "sink", seed, feeders)
    for step in case["steps"]:
        if "out" in step:
            assert records(world.out()) == step["out"]
            world.restart()
        else:
            world.feed([step["key"], step["in"], step["ts"]], step["from"])


@every_seed
@of_kind("foreign-key-join")
def test_a_table_that_points_to_another(case: Case, seed: int) -> None:
    how = case["settings"]["how"]
    for parallelism in (1, 3):
        world = table_world(
            lambda t, tasks=parallelism: joined(  # type: ignore[misc]
                t, how, on=lambda value: value.split("|")[1], parallelism=tasks
            ).to_stream(),
            seed,
        )
        for step in case["steps"]:
            if "out" in step:
                assert by_key(records(world.out())) == by_key(step["out"])
                world.restart()
            else:
                world.feed([step["key"], step["in"], step["ts"]], step["from"])


def trace(sign: str) -> Callable[[str, str], str]:
    return lambda acc, value: f"{acc}{sign}{value}"


AGGREGATES: dict[str, dict[str, Any]] = {
    "count": {"combiner": Count()},
    "set of letters": {
        "init": "",
        "adder": lambda acc, value: "".join(sorted({*acc, value})),
        "subtractor": lambda acc, value: acc.replace(value, ""),
    },
    "trace: +added -taken away": {"init": "", "adder": trace("+"), "subtractor": trace("-")},
}
GROUPS: dict[str, Callable[[Any, Any], Any]] = {
    "the value": lambda key, value: value[1],
    "first letter of the key, value: second letter of the key": lambda key, value: key[0],
    "the key": lambda key, value: key,
    'the value; rows of key "null" and "NULL" have no group': lambda key, value: (
        None if key.lower() == "null" else value[1]
    ),
}


@every_seed
@of_kind("table-aggregate")
def test_a_table_in_groups(case: Case, seed: int) -> None:
    settings = case["settings"]
    builder = StreamBuilder()
    feeder = FeederSpout(["key", "value", "ts"])
    of_key = settings["group_by"].startswith("first letter")
    # An aggregate has the value only, so what is added up goes with it: a part of the key here.
    rows = (
        builder.stream(feeder, time=BY_DATA)
        .key_by("key")
        .map_values(
            lambda row: (
                None if row.value is None else (row.key[1] if of_key else row.value, row.value)
            )
        )
    )
    values: StreamTable[Any, Any] = rows.to_table(
        versioned=LONG if "versioned" in settings else None
    )
    settings_of = dict(AGGREGATES[settings["aggregate"]])
    for name in ("adder", "subtractor"):
        if name in settings_of:
            settings_of[name] = _of_first(settings_of[name])
    grouped = values.group_by(GROUPS[settings["group_by"]])
    result = grouped.aggregate(emit_unchanged=of_key, **settings_of)
    result.to_stream().to(Sink(), name="sink")
    world = World(builder.build(), "sink", seed, {"left": feeder})
    for step in case["steps"]:
        if "out" in step:
            assert records(world.out()) == step["out"]
        else:
            world.feed([step["key"], step["in"], step["ts"]])
            world.restart()


def _of_first(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda acc, value: function(acc, value[0])


@every_seed
@of_kind("changelog-join")
def test_tables_that_forget(case: Case, seed: int) -> None:
    settings = case["settings"]
    limits: dict[str, Any] = {
        side: {"ttl": None if ttl is None else timedelta(milliseconds=ttl)}
        for side, ttl in (("left", settings["ttl_left"]), ("right", settings["ttl_right"]))
    }
    widths = len(settings["left_fields"]), len(settings["right_fields"])

    def row(pair: Any) -> list[Any] | None:
        if pair is None:
            return None
        left, right = pair
        return [*(left or [None] * widths[0]), *(right or [None] * widths[1])]

    world = table_world(lambda t: joined(t, settings["how"]).changes(), seed, time=None, **limits)
    for step in case["steps"]:
        if "now" in step:
            world.now(step["now"] / 1000)
        elif "in" in step:
            side = step["from"]
            key = step["in"][settings[f"{side}_fields"].index(settings["on"])]
            world.feed([key, None if step["op"] == "-D" else step["in"], 0], side)
        else:
            found = [row(change.new) or row(change.old) for _, change, _ in world.out()]
            last = {str(one["row"][:2]): one["row"] for one in step["out"]}
            assert found == list(last.values())
            world.restart()


def lookup_world(
    join: TableJoin, seed: int, feeders: Mapping[str, FeederSpout], key: str, tasks: int = 2
) -> World:
    builder = TopologyBuilder()
    for side, feeder in feeders.items():
        builder.set_spout(side, feeder)
    declarer = builder.set_bolt("joined", join, tasks)
    for side in feeders:
        declarer.fields_grouping(side, [key])
    return World(builder.create_topology(), "joined", seed, feeders)


@every_seed
@of_kind("temporal-join")
def test_versions_of_a_table(case: Case, seed: int) -> None:
    settings = case["settings"]
    by_event = settings["time"] == "event"
    retention = settings.get("retention")
    join = TableJoin(
        stream="left",
        table=Table(
            "right",
            key="key",
            versioned=LONG if by_event else None,
            ttl=timedelta(seconds=retention[0]) if retention else None,
            deleted=lambda tup: tup.value is None,
        ),
        how=settings["how"],
        time=BY_HAND if by_event else None,
        select={"op": "left:op", "key": "key", "left": "left:value", "right": "right:value"}
        | ({"ts": "left:ts", "version": "right:ts"} if by_event else {}),
    )
    feeders = feeders_of("op", "key", "value", "ts")
    # The op of a row is no content of the table.
    feeders["right"] = FeederSpout(["key", "value", "ts"])
    world = lookup_world(join, seed, feeders, "key")
    marks = {"left": 0, "right": 0}
    for step in case["steps"]:
        if "now" in step:
            world.now(step["now"])
        elif "watermark" in step:
            marks[step["from"]] = step["watermark"]
            feeders[step["from"]].observe_time(step["watermark"] + 1 + LAG)
            world.run.settle()
            world.restart()
        elif "in" in step:
            deleted = step["op"] in ("-D", "-U")
            ts = step.get("ts", 0)
            if step["from"] == "left":
                world.feed([step["op"], step["key"], step["in"], ts])
            else:
                value = None if deleted else step["in"]
                world.feed([step["key"], value, ts], "right")
        else:
            expected = [one for one in step["out"] if "op" in one]
            names = ("op", "key", "left", "right", "ts", "version")
            found = []
            for row in world.out():
                one = dict(zip(names, row, strict=False))
                one["value"] = [one.pop("left"), one.pop("right")]
                found.append(one)
            assert found == expected


@every_seed
@of_kind("as-of-join")
def test_the_last_row_before(case: Case, seed: int) -> None:
    settings = case["settings"]
    given: dict[str, list[str]] = {"left": [], "right": []}
    for step in case["steps"]:
        if "in" in step:
            names = given[step["from"]]
            names += [name for name in step["in"] or () if name not in names]
    given["right"] = given["right"] or ["right"]
    # Rows without a key: all of them have the same one.
    feeders = {side: FeederSpout(["one", *names, "ts"]) for side, names in given.items()}
    grace = settings.get("grace")
    join = TableJoin(
        stream="left",
        table=Table("right", key="one", versioned=LONG if grace is None else grace),
        how=settings["how"],
        time=BY_DATA,
        wait=False,
        merge=settings.get("merge", "keep-left"),
    )
    expected = [one for step in case["steps"] for one in step.get("out", ())]
    if expected and "error" in expected[0].get("value", {}):
        with pytest.raises(InvalidTopologyError, match="both have B, C"):
            lookup_world(join, seed, feeders, "one")
        return
    world = lookup_world(join, seed, feeders, "one")
    outputs = world.run.topology.component("joined").declared("default").fields
    for step in case["steps"]:
        if "out" in step:
            found = []
            for row in world.out():
                one = dict(zip(outputs, row, strict=True))
                ts = one.pop("ts")
                del one["one"]
                found.append({"value": {k: v for k, v in one.items() if v is not None}, "ts": ts})
            assert found == step["out"]
            world.restart()
        else:
            row = [(step["in"] or {}).get(name) for name in given[step["from"]]]
            world.feed(["", *row, step["ts"]], step["from"])


# -- on every engine ------------------------------------------------------------------------------


class Items(Spout):
    """Emits the items of a list."""

    outputs = ("key", "value")

    def __init__(self, items: Iterable[tuple[Any, Any]]) -> None:
        self.left = list(items)

    def next_tuple(self) -> None:
        if self.left:
            self.emit(list(self.left.pop(0)), msg_id=len(self.left))

    def is_exhausted(self) -> bool:
        return not self.left


def test_joins_groups_and_foreign_keys_end_the_same(engine: str) -> None:
    """Every table of the kinds above at its end, whatever the batches were."""
    people = [("ann", "fr"), ("bob", "de"), ("cy", "fr"), ("ann", "de"), ("cy", None)]
    spent = [("ann", 5), ("bob", 1), ("ann", 9), ("dan", 3)]
    countries = [("fr", "France"), ("de", "Germany"), ("de", "Deutschland")]
    s = StreamBuilder()
    tables = [
        s.stream(Items(items)).key_by("key").map_values(lambda row: row.value).to_table()
        for items in (people, spent, countries)
    ]
    both = tables[0].join(tables[1], lambda country, total: (country, total))
    groups = both.group_by(lambda key, row: row[0])
    results = {
        "totals": groups.reduce(lambda a, row: (a[0], a[1] + row[1]),
                                lambda a, row: (a[0], a[1] - row[1])),
        "outer": tables[0].outer_join(tables[1], lambda a, b: (a, b)),
        "named": tables[0].left_join(tables[2], lambda a, b: (a, b), on=lambda v: v,
                                     parallelism=2),
    }  # fmt: skip
    for name, table in results.items():
        table.to_stream().to(Sink(), name=name)
    found = complete_topology(s.build(), engine=engine)
    final: dict[str, dict[str, Any]] = {}
    for name in results:
        last = {key: value for key, value, _ in found.tuples(name)}
        final[name] = {key: value for key, value in last.items() if value is not None}
    assert final["totals"]["de"] == ("de", 10)
    assert final["outer"] == {"ann": ("de", 9), "bob": ("de", 1), "dan": (None, 3)}
    assert set(final["named"]) == {"ann", "bob"}
    assert final["named"]["ann"] == ("de", "Deutschland")
    assert final["named"]["bob"] == ("de", "Deutschland")
