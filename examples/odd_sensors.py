"""Finds machines that behave oddly, with a model of its own for each machine.

    pip install 'topo-spark[learn]'
    topo local examples/odd_sensors.py 3000

Each machine has its own temperature and speed, so one model of all would find none of them odd. A
model (river's half-space trees) scores each reading between 0 and 1, and then learns it: nobody has
to say which readings are odd. What scores high is printed.
"""

from __future__ import annotations

import random
from typing import Any

from river import anomaly, compose, preprocessing

from topo import LearnBolt, Spout, Topology, TopologyBuilder, Tuple, bolt

MACHINES = {"press": (60.0, 12.0), "saw": (35.0, 80.0), "oven": (180.0, 1.0)}
ODD_EVERY = 200
LIMIT = 0.9


def reading(chance: random.Random, number: int) -> tuple[str, float, float]:
    """Return a machine's temperature and speed; now and then it runs hot and fast."""
    machine = chance.choice(list(MACHINES))
    heat, speed = (chance.gauss(mean, 0.02 * mean) for mean in MACHINES[machine])
    if number and number % ODD_EVERY == 0:
        return machine, 1.5 * heat, 1.5 * speed
    return machine, heat, speed


class Readings(Spout):
    """The readings of all machines."""

    outputs = ("number", "machine", "heat", "speed")

    def __init__(self, count: int) -> None:
        self.count = count
        self.number = 0
        self.random = random.Random(1)

    def next_tuple(self) -> None:
        if not self.is_exhausted():
            self.emit([self.number, *reading(self.random, self.number)], msg_id=self.number)
            self.number += 1

    def is_exhausted(self) -> bool:
        return self.number >= self.count


def detector() -> Any:
    """Return a model that has seen nothing; what it sees is scaled to a few deviations."""
    limits = dict.fromkeys(("heat", "speed"), (-8, 8))
    trees = anomaly.HalfSpaceTrees(height=6, window_size=100, limits=limits, seed=1)
    return compose.Pipeline(preprocessing.StandardScaler(), trees)


@bolt(outputs=())
def show(tup: Tuple) -> None:
    """Print what is odd."""
    if tup.number > 300 and tup.prediction > LIMIT:
        print(f"reading {tup.number} of the {tup.machine}: {tup.heat:.0f} degrees, {tup.speed:.1f}")


def topology(count: str = "3000") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("readings", Readings(int(count)))
    learn = LearnBolt(detector(), key="machine", features=["heat", "speed"], emit="predictions")
    builder.set_bolt("odd", learn, 2).fields_grouping("readings", ["machine"])
    builder.set_bolt("show", show).global_grouping("odd")
    return builder.create_topology()
