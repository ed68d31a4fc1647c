"""A topology with all that the graph draws as what it is: calls, a pattern, rules, and a loop."""

from __future__ import annotations

from datetime import timedelta

from tests.ui.worlds import World
from topo import BasicBolt, EventTime, Pattern, PatternBolt, Rule, RuleBolt, Spout, Tuple
from topo.builder import TopologyBuilder
from topo.drpc import DrpcSpout, ReturnResults
from topo.topology.model import Topology


class Payments(Spout):
    outputs = ("card", "ts", "amount")

    def next_tuple(self) -> None: ...


class Halve(BasicBolt):
    """Sends what is too large round once more."""

    outputs = {"default": ("result", "return_info"), "again": ("args", "return_info")}

    def execute(self, tup: Tuple) -> None: ...


def desk() -> Topology:
    """Calls that a loop answers, and payments that a pattern and rules look at."""
    time = EventTime("ts")
    tried = Pattern("small", "amount < 1").followed_by("large", "amount > 500")
    builder = TopologyBuilder()
    builder.set_spout("calls", DrpcSpout("halve"))
    builder.set_spout("payments", Payments())
    halve = builder.set_bolt("halve", Halve(), 2).shuffle_grouping("calls")
    halve.shuffle_grouping("halve", stream="again", loop=True)
    builder.set_bolt("results", ReturnResults()).shuffle_grouping("halve")
    pattern = PatternBolt(tried.within(timedelta(minutes=1)), key="card", time=time)
    builder.set_bolt("tried-out", pattern, 2).fields_grouping("payments", ["card"])
    rules = RuleBolt([Rule("large", "amount > 500"), Rule("<b>odd</b>", "amount < 0")], time=time)
    builder.set_bolt("alerts", rules, 2).shuffle_grouping("payments")
    return builder.create_topology()


def add_desk(world: World, name: str = "desk") -> None:
    """Add it, with figures of what it does."""
    world.add(name, topology=desk())
    of = world.drivers[name].figures["components"]
    of["calls"] |= {"pending": 3}
    of["halve"] |= {"looping": 21}
    of["results"] |= {"acked": 1300, "counters": {"answered": 1204, "undelivered": 2}}
    of["tried-out"] |= {
        "gauges": {"partial_matches": 412.0, "waiting_events": 6.0, "waiting_matches": 0.0},
        "counters": {"matches": 31, "timed_out": 380},
    }
    of["alerts"] |= {
        "counters": {'firings{rule="large"}': 970, 'firings{rule="<b>odd</b>"}': 30, "rejected": 1}
    }
