"""Sensors in Fahrenheit: a filter, a smoothed value, a mean by window and a mean of everything.

    topo local examples/temperatures.py -t 30 --show means

Four ways to keep something of a stream, from nothing to all of it: `celsius` keeps nothing,
`smoothed` an exponentially weighted mean and `overall` a count and a mean for each sensor, `means`
one row for each sensor and open window.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

from topo import (
    Count,
    EventTime,
    Mean,
    Spout,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
    bolt,
)


class Sensors(Spout):
    """Emits a reading every tenth of a second."""

    outputs = ("sensor", "fahrenheit", "ts")

    def __init__(self, sensors: int = 3) -> None:
        self.sensors = sensors
        self.random = Random(0)
        self.emitted = 0
        self.next_time = 0.0

    def next_tuple(self) -> None:
        now = self.context.now()
        if now >= self.next_time:
            self.emitted += 1
            self.next_time = now + 0.1
            sensor = f"sensor-{self.emitted % self.sensors}"
            self.emit([sensor, self.random.gauss(70, 15), int(1000 * now)], msg_id=self.emitted)


@bolt(outputs=("sensor", "celsius", "ts"))
def above_freezing(tup: Tuple) -> Iterator[list[Any]]:
    """Convert readings, and leave out those below freezing."""
    celsius = (tup.fahrenheit - 32) * 5 / 9
    if celsius > 0:
        yield [tup.sensor, celsius, tup.ts]


class Smoothed(StatefulBasicBolt):
    """An exponentially weighted moving average: the newest reading counts `alpha`."""

    outputs = ("sensor", "average")

    def __init__(self, alpha: float = 0.2) -> None:
        self.alpha = alpha

    def execute(self, tup: Tuple) -> None:
        before = self.state.get(tup.sensor, tup.celsius)
        average = before + self.alpha * (tup.celsius - before)
        self.state[tup.sensor] = average
        self.emit([tup.sensor, average])


class Overall(StatefulBasicBolt):
    """The mean of all readings so far, without holding them."""

    outputs = ("sensor", "n", "mean")

    def execute(self, tup: Tuple) -> None:
        n, mean = self.state.get(tup.sensor, (0, 0.0))
        n += 1
        mean += (tup.celsius - mean) / n
        self.state[tup.sensor] = (n, mean)
        self.emit([tup.sensor, n, mean])


def topology(seconds: str = "10") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sensors", Sensors())
    builder.set_bolt("celsius", above_freezing).shuffle_grouping("sensors")
    builder.set_bolt("smoothed", Smoothed(), 2).fields_grouping("celsius", ["sensor"])
    builder.set_bolt("overall", Overall(), 2).fields_grouping("celsius", ["sensor"])
    means = WindowAggregate(
        key="sensor",
        window=Tumbling(timedelta(seconds=int(seconds))),
        time=EventTime("ts", lag=timedelta(seconds=1)),
        aggregates={"mean": Mean("celsius"), "n": Count()},
    )
    builder.set_bolt("means", means, 2).fields_grouping("celsius", ["sensor"])
    return builder.create_topology()
