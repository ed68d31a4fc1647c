"""Sums over sliding windows of counts, then means over tumbling ones, as storm-starter has them.

    topo local examples/sliding_window.py -t 20 --show means

The first bolt gets the last 30 numbers at every tenth; `window.new` and `window.expired` keep the
sum up to date without adding all 30 again. What it holds is in the committed state.
"""

from __future__ import annotations

from random import Random
from typing import Any

from topo import Spout, Topology, TopologyBuilder, Window, WindowedBolt


class Numbers(Spout):
    """Emits a number every tenth of a second, for ever."""

    outputs = ("number",)

    def __init__(self) -> None:
        self.random = Random(0)
        self.emitted = 0
        self.next_time = 0.0

    def next_tuple(self) -> None:
        now = self.context.now()
        if now >= self.next_time:
            self.emitted += 1
            self.next_time = now + 0.1
            self.emit([self.random.randint(0, 999)], msg_id=self.emitted)


class SlidingSums(WindowedBolt):
    outputs = ("sum",)
    length, slide = 30, 10

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.sum = 0

    def execute(self, window: Window) -> None:
        self.sum += sum(tup.number for tup in window.new)
        self.sum -= sum(tup.number for tup in window.expired)
        self.emit([self.sum])


class Means(WindowedBolt):
    outputs = ("mean",)
    length, slide = 3, 3

    def execute(self, window: Window) -> None:
        self.emit([sum(tup["sum"] for tup in window) / len(window)])


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("sums", SlidingSums()).shuffle_grouping("numbers")
    builder.set_bolt("means", Means()).shuffle_grouping("sums")
    return builder.create_topology()
