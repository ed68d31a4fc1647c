"""Rules and subscriptions on Spark say what they say on the inline engine."""

from __future__ import annotations

from typing import Any

import pytest

from topo import EventTime, Rule, RuleBolt, Spout, SubscriptionBolt, Topology, TopologyBuilder
from topo.testing import complete_topology

pytestmark = pytest.mark.spark

COUNT = 400
RULES = [
    Rule("often", "n % 2 == 0", by="key", having="count() >= 3", within=100, emit={"n": "sum(n)"}),
    Rule("even", "n % 2 == 0 and key == 'k1'", set={"half": "n // 2"}),
]


class Events(Spout):
    """Subscriptions first, on `subs`, and then events, each at a time of its own."""

    outputs = {"events": ("key", "n", "ts"), "subs": ("id", "where")}

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.number = -1

    def next_tuple(self) -> None:
        if self.number < 0:
            for id in range(20):
                self.emit([id, f"key == 'k{id % 5}' and n < {20 * id}"], stream="subs", msg_id=-id)
            self.number = 0
        elif self.number < COUNT:
            for n in range(self.number, self.number + 25):
                self.emit([f"k{n * n % 5}", n, 7 * n], stream="events", msg_id=n)
            self.number += 25

    def is_exhausted(self) -> bool:
        return self.number >= COUNT


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("events", Events())
    often = builder.set_bolt("often", RuleBolt(RULES, key="key", time=EventTime("ts")), 2)
    often.fields_grouping("events", ["key"], "events")
    builder.set_bolt("even", RuleBolt(RULES), 2).shuffle_grouping("events", "events")
    match = builder.set_bolt("match", SubscriptionBolt(("events", "subs")), 2)
    match.all_grouping("events", "subs").shuffle_grouping("events", "events")
    return builder.create_topology()


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_rules_and_subscriptions(mode: str) -> None:
    inline = complete_topology(topology())
    spark = complete_topology(topology(), conf={"topology.mode": mode}, engine="spark")
    for component, stream in (("often", "alerts"), ("even", "default"), ("match", "default")):
        wanted = sorted(inline.tuples(component, stream))
        assert wanted
        assert sorted(spark.tuples(component, stream)) == wanted
