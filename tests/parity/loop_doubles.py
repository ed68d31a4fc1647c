"""The topologies of the loop cases, by the words in which the cases describe them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from topo import BasicBolt, FailTuple, Spout, StatefulBasicBolt, Topology, TopologyBuilder, Tuple


class Countdown(BasicBolt):
    """Emits what it gets, and one less on its own loop, down to 0."""

    outputs = {"default": ("n",), "again": ("n",)}

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n])
        if tup.n > 0:
            self.emit([tup.n - 1], stream="again")


class Failing(Countdown):
    def execute(self, tup: Tuple) -> None:
        if tup.n == 1:
            raise FailTuple("one")
        super().execute(tup)


class Summing(StatefulBasicBolt):
    outputs = {"default": ("n", "sum"), "again": ("n",)}

    def execute(self, tup: Tuple) -> None:
        self.state["sum"] = self.state.get("sum", 0) + tup.n
        self.emit([tup.n, self.state["sum"]])
        if tup.n > 0:
            self.emit([tup.n - 1], stream="again")


class Begin(BasicBolt):
    """Begins a lap of what it gets."""

    outputs = ("k", "n", "lap")

    def __init__(self, sleep: float = 0.0) -> None:
        self.sleep = sleep

    def execute(self, tup: Tuple) -> None:
        if self.sleep:
            time.sleep(self.sleep)
            self.sleep = 0.0
        lap = tup.lap if "lap" in tup.fields else 0
        self.emit([tup.k, tup.n, lap + 1])


class End(BasicBolt):
    """Sends back what has not gone round often enough."""

    outputs = ("k", "n", "lap")

    def __init__(self, laps: int) -> None:
        self.laps = laps

    def execute(self, tup: Tuple) -> None:
        if tup.lap < self.laps:
            self.emit([tup.k, tup.n, tup.lap])


class Passing(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n])


class Doubling(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n])
        self.emit([tup.n])


class Same(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n])


def countdown(spout: Spout, bolt: BasicBolt | None = None, tasks: int = 2) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    declared = builder.set_bolt("a", bolt or Countdown(), tasks)
    declared.shuffle_grouping("s").shuffle_grouping("a", stream="again", loop=True)
    return builder.create_topology()


def ring(spout: Spout, laps: int = 3, sleep: float = 0.0) -> Topology:
    """Return a ring of two bolts by fields: `a` -> `b`, and back over a loop."""
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    first = builder.set_bolt("a", Begin(sleep), 2)
    first.fields_grouping("s", "k").fields_grouping("b", "k", loop=True)
    builder.set_bolt("b", End(laps), 2).fields_grouping("a", "k")
    return builder.create_topology()


def by_itself(spout: Spout, bolt: BasicBolt) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    builder.set_bolt("a", bolt).shuffle_grouping("s").shuffle_grouping("a", loop=True)
    return builder.create_topology()


def alone(spout: Spout) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    builder.set_bolt("a", Same()).shuffle_grouping("s")
    builder.set_bolt("b", Same()).shuffle_grouping("b", loop=True)
    return builder.create_topology()


_COUNTDOWN = (
    "spout -> a; a emits n - 1 on 'again' while n > 0, and [n] on the default stream; a reads its "
    "own 'again' with loop=True"
)
TOPOLOGIES: dict[str, tuple[tuple[str, ...], Callable[[Any], Topology]]] = {
    _COUNTDOWN: (("n",), countdown),
    f"{_COUNTDOWN}; at 1 it raises FailTuple('one')": (
        ("n",), lambda spout: countdown(spout, Failing()),
    ),
    f"{_COUNTDOWN}; a sums what it executes in its state": (
        ("n",), lambda spout: countdown(spout, Summing(), 1),
    ),
    "a ring of two bolts by fields; each lap carries a number": (("k", "n"), ring),
    "a passes everything to itself": (("n",), lambda spout: by_itself(spout, Passing())),
    "spout -> a <-> b, 20,000 tuples of five laps each; a sleeps 100 ms once": (
        ("k", "n"), lambda spout: ring(spout, 5, 0.1),
    ),
    "a emits two for each on its own loop": (("n",), lambda spout: by_itself(spout, Doubling())),
    "spout -> a; b reads itself alone, with loop=True": (("n",), alone),
}  # fmt: skip
"""By a case's words: the fields of its spout, and what makes the topology."""
