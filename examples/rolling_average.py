"""Averages the last minute of every sensor: ticks and the task's clock instead of a window API.

    topo local examples/rolling_average.py -t 60 --show average

A tick comes every ten seconds; the bolt then forgets what is older than a minute and emits one
average for each sensor. `context.now()` is the clock to use, since a test can move it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from topo import BasicBolt, Spout, Topology, TopologyBuilder, Tuple


class Sensors(Spout):
    """Reads every sensor once a second, for ever."""

    outputs = ("sensor", "value")

    def __init__(self, sensors: int) -> None:
        self.sensors = sensors
        self.next_reading = 0.0

    def next_tuple(self) -> None:
        now = self.context.now()
        if now < self.next_reading:
            return  # nothing to say yet: next_tuple returns, it never waits
        for sensor in range(self.sensors):
            self.emit([f"sensor-{sensor}", 20 + sensor + 5 * math.sin(now / 10)])
        self.next_reading = now + 1


class Average(BasicBolt):
    outputs = ("sensor", "average", "readings")

    def __init__(self, window_secs: float = 60) -> None:
        self.window_secs = window_secs
        self.readings: dict[str, deque[tuple[float, float]]] = {}

    def get_component_configuration(self) -> Mapping[str, Any]:
        return {"topology.tick.tuple.freq.secs": 10}

    def execute(self, tup: Tuple) -> None:
        reading = (self.context.now(), tup.value)
        self.readings.setdefault(tup.sensor, deque()).append(reading)

    def on_tick(self, tup: Tuple) -> None:
        oldest = self.context.now() - self.window_secs
        for sensor, readings in list(self.readings.items()):
            while readings and readings[0][0] <= oldest:
                readings.popleft()
            if not readings:
                del self.readings[sensor]
                continue
            average = sum(value for _, value in readings) / len(readings)
            self.emit([sensor, average, len(readings)])


def topology(sensors: str = "3") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sensors", Sensors(int(sensors)))
    builder.set_bolt("average", Average(), parallelism=2).fields_grouping("sensors", ["sensor"])
    return builder.create_topology()
