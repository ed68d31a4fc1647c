"""Sums over windows of the tuples' own time: storm-starter's SlidingTupleTsTopology.

    topo local examples/sliding_tuple_ts.py -t 20 --show sums

Readings come up to four seconds late; the watermark lags by five, so that none is left out. A
window is executed when the watermark has passed its end.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from topo import BasicBolt, Spout, Topology, TopologyBuilder, Tuple, Window, WindowedBolt


class Readings(Spout):
    """Emits a reading every tenth of a second, with a time that is a bit in the past."""

    outputs = ("value", "ts")

    def __init__(self) -> None:
        self.random = Random(0)
        self.emitted = 0
        self.next_time = 0.0

    def next_tuple(self) -> None:
        now = self.context.now()
        if now >= self.next_time:
            self.emitted += 1
            self.next_time = now + 0.1
            ts = int(1000 * now) - self.random.randint(0, 4_000)
            self.emit([self.random.randint(0, 99), ts], msg_id=self.emitted)


class Sums(WindowedBolt):
    outputs = ("start", "end", "sum")

    def execute(self, window: Window) -> None:
        self.emit([window.start, window.end, sum(tup.value for tup in window)])


class Late(BasicBolt):
    """Emits how late tuples are that came after the watermark."""

    outputs = ("ts",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.late_tuple.ts])


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("readings", Readings())
    sums = (
        Sums()
        .with_window(timedelta(seconds=5), timedelta(seconds=3))
        .with_timestamp_field("ts")
        .with_lag(timedelta(seconds=5))
        .with_late_tuple_stream("late")
    )
    builder.set_bolt("sums", sums).shuffle_grouping("readings")
    builder.set_bolt("late", Late()).shuffle_grouping("sums", "late")
    return builder.create_topology()
