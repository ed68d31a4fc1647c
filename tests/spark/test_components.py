"""Kinds of components, groupings and values on Spark that the conformance cases leave out."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import Counter as Tally
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Numbers
from tests.spark.doubles import WORKERS
from topo import BasicBolt, Bolt, TopologyBuilder, Tuple, bolt
from topo.engine.spark.plan import make_plan
from topo.testing import complete_topology

pytestmark = pytest.mark.spark


@bolt(outputs=("num", "square"))
def squares(tup: Tuple) -> Any:
    yield [tup.num, tup.num**2]


@bolt(outputs={"default": ("num",), "odd": ("num",)})
def sort_out(tup: Tuple, collector: Any) -> None:
    collector.emit([tup.num], stream="odd" if tup.num % 2 else "default")


class Doubles(BasicBolt):
    outputs = ("num",)
    stateless = True

    def execute(self, tup: Tuple) -> None:
        self.emit([2 * tup.num])


def test_levels_that_keep_nothing_keep_order_counts_and_streams() -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(1000), parallelism=2)
    builder.set_bolt("sort", sort_out, parallelism=3).shuffle_grouping("numbers")
    builder.set_bolt("even", Doubles(), parallelism=2).local_or_shuffle_grouping("sort")
    odd = builder.set_bolt("odd", squares, parallelism=2)
    odd.fields_grouping("sort", "num", stream="odd")
    topology = builder.create_topology()
    plan = make_plan(topology, 2)
    assert [plan.keeps_state(level) for level in range(len(plan.levels))] == [True, False, False]
    result = complete_topology(topology, conf=WORKERS, engine="spark")
    assert sorted(result.tuples("even")) == [[2 * number] for number in range(0, 1000, 2)]
    assert sorted(result.tuples("odd")) == [[number, number**2] for number in range(1, 1000, 2)]
    assert sorted(result.acked["numbers"]) == list(range(1000))


class Splits(BasicBolt):
    """Emits an object, and its parts on a stream of their own."""

    outputs = {"objects": ("num",), "parts": ("num", "part")}

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.num], stream="objects")
        for part in range(3):
            self.emit([tup.num, part], stream="parts")


class PassesParts(BasicBolt):
    outputs = ("num", "part")

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values)


class Collects(BasicBolt):
    """Puts objects and parts together; a part that comes before its object is an error."""

    outputs = ("num", "parts")

    def __init__(self) -> None:
        self.parts: dict[int, list[int]] = {}

    def execute(self, tup: Tuple) -> None:
        if tup.source_stream == "objects":
            self.parts[tup.num] = []
            return
        self.parts[tup.num].append(tup.part)
        if len(self.parts[tup.num]) == 3:
            self.emit([tup.num, sorted(self.parts[tup.num])])


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_an_object_reaches_its_collector_before_its_parts(mode: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(300))
    builder.set_bolt("splits", Splits(), parallelism=2).shuffle_grouping("numbers")
    passes = builder.set_bolt("a passes parts", PassesParts(), parallelism=4)
    passes.shuffle_grouping("splits", stream="parts")
    collects = builder.set_bolt("collects", Collects(), parallelism=3)
    collects.fields_grouping("a passes parts", "num")
    collects.fields_grouping("splits", "num", stream="objects")
    topology = builder.create_topology()
    result = complete_topology(topology, conf=WORKERS, engine="spark", mode=mode)
    assert sorted(result.tuples("collects")) == [[number, [0, 1, 2]] for number in range(300)]


class Ticked(Bolt):
    """Holds tuples; each tick passes them on and says how many ticks came."""

    outputs = ("num", "ticks")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.ticks = 0
        self.kept: list[Tuple] = []

    def get_component_configuration(self) -> dict[str, Any]:
        return {"topology.tick.tuple.freq.secs": 0.2}

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)

    def on_tick(self, tup: Tuple) -> None:
        self.ticks += 1
        for kept in self.kept:
            self.emit([kept["num"], self.ticks], anchors=kept)
            self.ack(kept)
        self.kept = []
        self.emit([-1, self.ticks], anchors=[])


@pytest.mark.smoke
def test_ticks_come_while_nothing_else_does_and_once_more_at_the_end() -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(20))
    builder.set_bolt("ticked", Ticked(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("after", Ticked()).global_grouping("ticked")
    result = complete_topology(builder.create_topology(), conf=WORKERS, engine="spark")
    passed = result.tuples("ticked")
    assert sorted(number for number, _ in passed if number >= 0) == list(range(20))
    assert sorted(result.acked["numbers"]) == list(range(20))
    # The last ticks go level by level: what the first level emits on its last, the next one
    # still passes on with its own.
    reached = Tally(number for number, _ in result.tuples("after"))
    sent = Tally(number for number, _ in passed)
    assert [reached[number] for number in range(20)] == [1] * 20
    assert reached[-1] == sent[-1] + max(ticks for _, ticks in result.tuples("after"))


def test_components_of_main_and_closures_run(tmp_path: Path) -> None:
    """A script's own classes are known to no other process."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            from topo import BasicBolt, LocalCluster, Spout, TopologyBuilder, bolt

            FACTOR = 3

            class Own:
                def __init__(self, number):
                    self.number = number

            class Numbers(Spout):
                outputs = ("own",)
                def open(self, conf, context, collector):
                    self.next = 0
                def next_tuple(self):
                    if self.next < 10:
                        self.emit([Own(self.next)], msg_id=Own(self.next))
                        self.next += 1
                def ack(self, msg_id):
                    assert isinstance(msg_id, Own)
                def is_exhausted(self):
                    return self.next >= 10

            @bolt(outputs=("own",))
            def times(tup):
                assert isinstance(tup.own, Own)
                yield [Own(FACTOR * tup.own.number)]

            class Sum(BasicBolt):
                outputs = ("sum",)
                def prepare(self, conf, context, collector):
                    self.sum = Own(0)
                def execute(self, tup):
                    self.sum = Own(self.sum.number + tup.own.number)
                    self.emit([self.sum.number])

            if __name__ == "__main__":
                builder = TopologyBuilder()
                builder.set_spout("numbers", Numbers())
                builder.set_bolt("times", times, parallelism=2).shuffle_grouping("numbers")
                builder.set_bolt("sum", Sum()).global_grouping("times")
                with LocalCluster() as cluster:
                    topology = builder.create_topology()
                    conf = {"topology.workers": 2}
                    run = cluster.submit_topology("t", topology, conf, capture=["sum"])
                    run.await_completion(timeout=120)
                    print(run.tuples("sum")[-1])
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[135]\n", "")
