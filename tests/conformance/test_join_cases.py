"""cases/joins.jsonl on the inline engine: the joins of streams, one runner for each kind.

The kinds with tables have their runners elsewhere: `TABLES` names them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.conformance.join_world import (
    BY_HAND,
    CASES,
    JoinWorld,
    cases,
    chosen,
    every_seed,
    same,
)
from topo import (
    BasicBolt,
    EventTime,
    IntervalJoin,
    InvalidTopologyError,
    JoinBolt,
    Session,
    Spout,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowJoin,
)
from topo.streams import StreamBuilder
from topo.testing import FeederSpout, TestCluster, complete_topology

TABLES = {
    "table-join",
    "as-of-join",
    "temporal-join",
    "stream-table-join",
    "table-aggregate",
    "changelog-join",
    "foreign-key-join",
}
LONG = 1_000_000


# -- intervals ----------------------------------------------------------------------------------


def pairs(how: str, before: int, after: int, **more: Any) -> IntervalJoin:
    return IntervalJoin(
        left="left",
        right=more.pop("right", "right"),
        on="key",
        within=(before, after),
        how=how,
        time=BY_HAND,
        result_ts="t",
        **more,
    )


@every_seed
@chosen("stream-join")
def test_stream_joins_of_kafka(case: dict[str, Any], seed: int) -> None:
    """Kafka joins late rows with what it still has: that is an allowed lateness."""
    settings = case["settings"]
    alone = bool(settings.get("self_join"))
    bolt = pairs(
        settings["how"],
        settings["before"],
        settings["after"],
        right="left" if alone else "right",
        select=("key", "left:value", "right:value"),
        allowed_lateness=LONG,
    )
    world = JoinWorld(bolt, seed, alone=alone)
    stream_time = 0
    for step in case["steps"]:
        if "out" in step:
            found = [{"key": k, "value": [a, b], "ts": t} for k, a, b, t in world.rows()]
            same(found, step["out"], case)
        elif step["in"] is not None:
            stream_time = max(stream_time, step["ts"])
            world.watermark(stream_time - settings["grace"])
            world.feed(step["from"], step["key"], step["in"], step["ts"])


@every_seed
@chosen("interval-join")
def test_interval_joins_of_flink(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    lower = settings["lower"] + (not settings["lower_inclusive"])
    upper = settings["upper"] - (not settings["upper_inclusive"])
    bolt = pairs(settings["how"], -lower, upper, select=("left:value", "right:value"))
    world = JoinWorld(bolt, seed)
    for step in case["steps"]:
        if "in" in step:
            world.feed(step["from"], "", step["in"], step["ts"])
        elif "watermark" in step:
            # Theirs says that nothing at it comes any more.
            world.watermark(step["watermark"] + 1, step["from"])
        elif "kept" in step:
            for side, wanted in step["kept"].items():
                assert world.kept(side) == wanted
        else:
            found = [{"value": [a, b], "ts": ts} for a, b, ts in world.rows()]
            same(found, step["out"], case)
        if seed:
            world.run.restart()
            world.run.settle()


def merged(rule: str) -> Any:
    if rule == "left + right":
        return lambda left, right: left.value + right.value
    if rule == "keep-right":
        return lambda left, right: {**left.value, **right.value}
    assert rule == "raise"

    def merge(left: Any, right: Any) -> Any:
        assert not set(left.value) & set(right.value)
        return {**left.value, **right.value}

    return merge


@every_seed
@chosen("interval-join-eager")
def test_interval_joins_of_quix(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    assert settings["how"] == "inner", "outer ones differ: they are in 'differs'"
    merge = merged(settings["merge"])
    bolt = pairs("inner", settings["before"], settings["after"], merge=merge)
    world = JoinWorld(bolt, seed)
    for step in case["steps"]:
        if "in" in step:
            world.feed(step["from"], "", step["in"], step["ts"])
        else:
            same([{"value": v, "ts": t} for v, t in world.rows()], step["out"], case)


# -- windows ------------------------------------------------------------------------------------


@every_seed
@chosen("micro-batch-join")
def test_windowed_joins_of_spark(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    bolt = WindowJoin(
        left="left",
        right="right",
        on="key",
        window=Tumbling(10),
        how=settings["how"],
        time=EventTime("ts", lag=settings["lag"], idle=None),
        select=("key", "end", "left:value", "right:value"),
    )
    world = JoinWorld(bolt, seed, tasks=2)
    for step in case["steps"]:
        if "out" in step:
            same(world.rows(), step["out"], case)
            continue
        for side, factor in (("left", 2), ("right", 3)):
            for value in step["batch"][side]:
                world.feeders[side].feed([value, value * factor, value])
        world.run.settle()
        world.run.restart()


class Items(Spout):
    """Emits the items of a list."""

    outputs = ("side", "value", "ts")

    def __init__(self, items: list[list[Any]]) -> None:
        self.left = items[::-1]

    def next_tuple(self) -> None:
        if self.left:
            self.emit(self.left.pop(), msg_id=len(self.left))

    def is_exhausted(self) -> bool:
        return not self.left


class Sink(BasicBolt):
    """Passes on each element as key and value."""

    outputs = ("key", "value")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.key, tup.value])


def two_streams(items: list[list[Any]], time: EventTime | None) -> tuple[StreamBuilder, Any, Any]:
    """Return a builder and its streams of the left and the right values, in common order."""
    builder = StreamBuilder()
    sides = builder.stream(Items(items), time=time).branch(
        left=lambda e: e.side == "left", default="right"
    )
    left, right = (sides[name].map(lambda e: e.value) for name in ("left", "right"))
    return builder, left, right


def of_pairs(case: dict[str, Any], join: Any) -> list[list[Any]]:
    """Run a join of two lists of pairs in one window; return it by key."""
    step, _ = case["steps"]
    items = [[side, tuple(pair), 0] for side in ("left", "right") for pair in step[side]]
    builder, left, right = two_streams(items, None)
    join(left.pairs(), right.pairs()).to(Sink(), name="sink")
    found = complete_topology(builder.build()).tuples("sink")
    return sorted(([key, list(value)] for key, value in found), key=lambda row: str(row[0]))


@chosen("pair-join")
def test_joins_of_pairs_in_a_window(case: dict[str, Any]) -> None:
    how = {"inner": "join", "left": "left_join", "full": "outer_join"}[case["settings"]["how"]]
    window = Tumbling(LONG)
    found = of_pairs(case, lambda left, right: getattr(left, how)(right, window=window))
    assert found == case["steps"][-1]["out"]


@chosen("pair-cogroup")
def test_cogroups_of_pairs_in_a_window(case: dict[str, Any]) -> None:
    found = of_pairs(case, lambda left, right: left.cogroup(right, window=Tumbling(LONG)))
    assert found == sorted(case["steps"][-1]["out"])


@chosen("key-join")
def test_joins_of_bytewax(case: dict[str, Any]) -> None:
    settings = case["settings"]
    window = settings.get("window")
    time = EventTime("ts", lag=100) if window else None
    items = [[s["from"], s["in"], s.get("ts", 0)] for s in case["steps"] if "in" in s]
    builder, left, right = two_streams(items, time)
    options: dict[str, Any] = {"window": Session(window["gap"])} if window else {}
    left.key_by(lambda _: "ALL").cogroup(
        right.key_by(lambda _: "ALL"), keep=settings["insert"], emit=settings["emit"], **options
    ).to(Sink(), name="sink")
    found = complete_topology(builder.build()).tuples("sink")
    assert [list(value) for _, value in found] == case["steps"][-1]["out"]


# -- Storm's JoinBolt ---------------------------------------------------------------------------


def storm_join(settings: dict[str, Any]) -> JoinBolt:
    bolt = JoinBolt(*settings["from"])
    for one in settings["joins"]:
        if isinstance(one, list):
            bolt.join(*one)
            continue
        join = {"inner": bolt.join, "left": bolt.left_join}[one["how"]]
        join(one["stream"], one["field"], one["with"])
    return bolt.select(settings["select"]) if "select" in settings else bolt


def storm_topology(
    bolt: JoinBolt, tables: list[dict[str, Any]]
) -> tuple[Topology, dict[str, FeederSpout]]:
    builder = TopologyBuilder()
    feeders = {table["stream"]: FeederSpout(table["fields"]) for table in tables}
    declarer = builder.set_bolt("j", bolt)
    for name, feeder in feeders.items():
        builder.set_spout(name, feeder)
        declarer.global_grouping(name)
    return builder.create_topology(), feeders


@every_seed
@chosen("storm-join")
def test_joins_of_storm(case: dict[str, Any], seed: int) -> None:
    *tables, expected = case["steps"]
    rows = [(table["stream"], row) for table in tables for row in table["rows"]]
    bolt = storm_join(case["settings"]).with_tumbling_window(len(rows))
    topology, feeders = storm_topology(bolt, tables)
    run = TestCluster(seed=seed).submit_topology("t", topology)
    for stream, row in rows:
        feeders[stream].feed(row)
    run.settle()
    same(run.tuples("j"), expected["out"], case)


@chosen("storm-error")
def test_errors_of_storm(case: dict[str, Any]) -> None:
    settings = case["settings"]
    bolt = storm_join(settings).with_tumbling_window(10)
    if "select" in case["steps"][0]["out"][0]["error"]:
        assert bolt.selected is None
    else:
        bolt.select("k")
    streams = {settings["from"][0], *(one[0] for one in settings["joins"])}
    tables = [{"stream": name, "fields": ["k"]} for name in sorted(streams)]
    with pytest.raises(InvalidTopologyError) as caught:
        storm_topology(bolt, tables)
    assert case["steps"][0]["out"][0]["error"] in str(caught.value)


def test_no_case_is_left_out() -> None:
    """Every kind has a runner here, or is one of tables."""
    by_kind = Counter(case["kind"] for case in CASES)
    run_here = {"stream-join", "interval-join", "interval-join-eager", "micro-batch-join",
                "pair-join", "pair-cogroup", "key-join", "storm-join", "storm-error"}  # fmt: skip
    assert set(by_kind) == run_here | TABLES
    assert sum(1 for _ in cases(*run_here)) == 62
