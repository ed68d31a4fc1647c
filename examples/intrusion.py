"""Raises alerts about events of a network, by the rules of a file.

    topo rules check examples/intrusion.toml --fields group,event,src,dst,ts
    topo local examples/intrusion.py 3000

One file serves three bolts: one counts by the target, one by the source, one looks at each event
alone. Whoever writes rules need not know of that.
"""

from __future__ import annotations

import random
from pathlib import Path

from topo import EventTime, RuleBolt, Spout, Topology, TopologyBuilder, Tuple, bolt

RULES = Path(__file__).with_suffix(".toml")
GROUPS = ("generalbruteforce", "httpscan", "p2p", "web", "web", "web", "web")


def event(chance: random.Random, number: int) -> tuple[str, str, str, str, int]:
    """Return an event: its group, what it is, source, target, and time; a second apart."""
    group = "p2p" if chance.random() < 0.01 else chance.choice(GROUPS[:2] + GROUPS[3:])
    name = f"e{chance.randrange(9)}"
    source, target = f"10.0.0.{chance.randrange(8)}", f"10.0.1.{chance.randrange(2)}"
    return group, name, source, target, 1_000 * number


class Events(Spout):
    """The events of a sensor."""

    outputs = ("group", "event", "src", "dst", "ts")

    def __init__(self, count: int) -> None:
        self.count = count
        self.number = 0
        self.random = random.Random(1)

    def next_tuple(self) -> None:
        if not self.is_exhausted():
            self.emit(list(event(self.random, self.number)), msg_id=self.number)
            self.number += 1

    def is_exhausted(self) -> bool:
        return self.number >= self.count


@bolt(outputs=())
def show(tup: Tuple) -> None:
    """Print an alert."""
    print(f"{tup.ts}: {tup.rule} {tup.key or ''}".rstrip())


def topology(count: str = "3000") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("events", Events(int(count)))
    time = EventTime("ts")
    by_target = builder.set_bolt("by_target", RuleBolt(RULES, key="dst", time=time), 2)
    by_target.fields_grouping("events", ["dst"])
    by_source = builder.set_bolt("by_source", RuleBolt(RULES, key="src", time=time), 2)
    by_source.fields_grouping("events", ["src"])
    single = builder.set_bolt("single", RuleBolt(RULES, time=time), 2)
    single.shuffle_grouping("events")
    shown = builder.set_bolt("show", show)
    for name in ("by_target", "by_source", "single"):
        shown.global_grouping(name, "alerts")
    return builder.create_topology()
