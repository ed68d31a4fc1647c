"""The marks of loops: their problems, their drawing, their place in plans and bytes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.parity.loop_doubles import Begin, End, Same, countdown, ring
from topo import (
    BasicBolt,
    CheckpointError,
    Count,
    EventTime,
    FromList,
    Global,
    InvalidTopologyError,
    KeyedBolt,
    Spout,
    Topology,
    TopologyBuilder,
    Tumbling,
    WindowAggregate,
    WindowedBolt,
)
from topo.drpc import DrpcSpout, RequestBolt
from topo.engine.spark.plan import make_plan
from topo.testing import complete_topology
from topo.topology.drawing import dot, mermaid


class Numbers(Spout):
    outputs = ("n",)

    def next_tuple(self) -> None:
        pass


class Pairs(Numbers):
    outputs = ("k", "n")  # type: ignore[assignment]


class Windows(WindowedBolt):
    outputs = ("n",)

    def execute(self, window: Any) -> None:
        pass


class Laps(BasicBolt):
    """Sends each number round until it is 0."""

    outputs = {"default": ("k", "ts"), "again": ("k", "ts", "left")}

    def execute(self, tup: Any) -> None:
        if tup.left:
            self.emit([tup.k, tup.ts, tup.left - 1], stream="again")
        else:
            self.emit([tup.k, tup.ts])


class Arrivals(KeyedBolt):
    outputs = ("k", "n")

    def created(self) -> None:
        self.n = 0

    def execute(self, tup: Any) -> None:
        self.n += 1
        self.set_timer("end", after=timedelta(hours=1))

    def on_timer(self, name: str, at: Any) -> None:
        self.emit([self.key, self.n])


class Gather(RequestBolt):
    outputs = ("id", "n")

    def execute(self, tup: Any) -> None:
        pass


class Same2(BasicBolt):
    outputs = ("id", "n")

    def execute(self, tup: Any) -> None:
        pass


def problems(builder: TopologyBuilder) -> list[tuple[str, str]]:
    with pytest.raises(InvalidTopologyError) as caught:
        builder.create_topology()
    return [(problem.code, problem.where) for problem in caught.value.problems]


def with_spout() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("s", Numbers())
    return builder


def test_a_mark_that_closes_no_cycle_is_a_problem() -> None:
    builder = with_spout()
    builder.set_bolt("a", Same()).shuffle_grouping("s", loop=True)
    assert problems(builder) == [("loop-none", "bolt 'a'")]


def test_several_marks_on_one_cycle_are_allowed() -> None:
    builder = with_spout()
    builder.set_bolt("a", Same()).shuffle_grouping("s").shuffle_grouping("b", loop=True)
    builder.set_bolt("b", Same()).shuffle_grouping("a", loop=True)
    plan = make_plan(builder.create_topology(), 2)
    assert [plan.component(name).level for name in "sab"] == [0, 1, 1]


def test_a_bolt_by_time_on_a_loop_is_a_problem_and_behind_it_is_none() -> None:
    time = EventTime("n", lag=timedelta(seconds=1))
    for back in (True, False):
        builder = with_spout()
        window = Windows().with_tumbling_window(timedelta(seconds=5)).with_event_time(time)
        a = builder.set_bolt("a", Same()).shuffle_grouping("s")
        a.shuffle_grouping("w" if back else "a", loop=True)
        builder.set_bolt("w", window).shuffle_grouping("a")
        if back:
            assert problems(builder) == [("loop-time", "bolt 'w'")]
        else:
            builder.create_topology()


@pytest.mark.parametrize(
    "bolt",
    [
        WindowAggregate(
            key="k",
            window=Tumbling(timedelta(minutes=1)),
            time=EventTime("ts"),
            aggregates={"n": Count()},
        ),
        WindowAggregate(key="k", window=Global(), aggregates={"n": Count()}),
        Arrivals(),
    ],
    ids=["event time", "arrival", "timers"],
)
@pytest.mark.parametrize("ways", [1, 2])
def test_a_bolt_by_time_works_behind_loops(bolt: Any, ways: int) -> None:
    builder = TopologyBuilder()
    rows = [("a", 1_000 * number, number % 4) for number in range(12)]
    builder.set_spout("s", FromList(rows, fields=("k", "ts", "left")))
    read = builder.set_bolt("w", bolt)
    for way in range(ways):
        laps = builder.set_bolt(f"laps{way}", Laps()).shuffle_grouping("s")
        laps.shuffle_grouping(f"laps{way}", stream="again", loop=True)
        read.fields_grouping(f"laps{way}", ["k"])
    (result,) = complete_topology(builder.create_topology()).tuples("w")
    assert (result[0], result[-1]) == ("a", 12 * ways)


def test_requests_are_not_gathered_behind_a_loop() -> None:
    builder = TopologyBuilder()
    builder.set_spout("drpc", DrpcSpout("f"))
    a = builder.set_bolt("a", Same2()).shuffle_grouping("drpc").shuffle_grouping("a", loop=True)
    assert a is not None
    gather = builder.set_bolt("gather", Gather()).fields_grouping("a", "id")
    gather.fields_grouping("drpc", "id", stream="requests")
    assert problems(builder) == [("drpc-loop", "bolt 'gather'")]


def test_the_mark_travels_and_is_drawn() -> None:
    topology = countdown(Numbers())
    assert Topology.from_bytes(topology.to_bytes()) == topology
    assert "again: shuffle, loop" in mermaid(topology)
    assert "-.->" in mermaid(topology)
    assert dot(topology, "t").count("style=dashed") == 1
    assert "a/again shuffle loop" in str(topology)
    assert topology.loops_from("a") == ("a",)


def test_a_bolt_that_reads_over_a_loop_is_not_fused_and_what_feeds_one_keeps_state() -> None:
    builder = with_spout()
    builder.set_bolt("a", Same()).none_grouping("s").none_grouping("a", loop=True)
    component = Same()
    component.stateless = True
    builder.set_bolt("b", component).none_grouping("a")
    plan = make_plan(builder.create_topology(), 1)
    assert plan.component("a").level == 1
    assert plan.component("a").fused_into is None
    assert plan.component("b").fused_into == "a"

    stateless = TopologyBuilder()
    stateless.set_spout("s", Numbers())
    stateless.set_bolt("a", component).shuffle_grouping("s").shuffle_grouping("a", loop=True)
    assert make_plan(stateless.create_topology(), 1).component("a").keeps_state


def test_another_mark_is_another_plan() -> None:
    written = make_plan(ring(Pairs()), 2).to_json()
    builder = TopologyBuilder()
    builder.set_spout("s", Pairs())
    first = builder.set_bolt("a", ring_bolt("a"), 2).fields_grouping("s", "k")
    first.fields_grouping("b", "k")
    builder.set_bolt("b", ring_bolt("b"), 2).fields_grouping("a", "k", loop=True)
    other = make_plan(builder.create_topology(), 2)
    with pytest.raises(CheckpointError, match="sent tuples back to no bolt, and now"):
        other.check_same(written, "here")


def ring_bolt(name: str) -> BasicBolt:
    return Begin() if name == "a" else End(3)
