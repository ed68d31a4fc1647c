"""Completes call records by rules, and sets aside what no rule knows, for people to look at.

    topo local examples/mediation.py

The rules say which way a call went and by which route it came in. The names of routes are a
reference table, which follows its source: a route that is renamed has its new name in all records
from then on. The first rule that fires is the last one asked.
"""

from __future__ import annotations

import random

from topo import FromList, Rule, RuleBolt, Spout, Table, Topology, TopologyBuilder, Tuple, bolt

ROUTES = [["R1", "north"], ["R2", "south"], ["R3", "east"]]
RULES = [
    Rule("TR33_A", "CALL_RECORD_TYPE in (1, 4)", set={"CALL_DIRECTION": "'O'"}),
    Rule(
        "TR33_B",
        "CALL_RECORD_TYPE == 2",
        let={"X": "lookup(incomingRoute, 'DIM_MCS_ROUTE', 'ROUTE')"},
        set={"CALL_DIRECTION": "'I'", "ROUTE": "coalesce(X, 'UNKNOWN')"},
    ),
    Rule("TR34", "duration is not None and duration < 0", set={"duration": "0"}),
]


def record(chance: random.Random) -> tuple[int, str, int | None]:
    """Return a record: its type, the route it came by, and its length in seconds."""
    return chance.randrange(6), f"R{chance.randrange(5)}", chance.choice([None, -1, 30, 300])


class Records(Spout):
    """Call records, which come after the routes."""

    outputs = ("CALL_RECORD_TYPE", "incomingRoute", "duration")

    def __init__(self, count: int) -> None:
        self.count = count
        self.number = 0
        self.random = random.Random(1)

    def next_tuple(self) -> None:
        if not self.is_exhausted():
            self.emit(list(record(self.random)), msg_id=self.number)
            self.number += 1

    def is_exhausted(self) -> bool:
        return self.number >= self.count


@bolt(outputs=())
def show(tup: Tuple) -> None:
    """Print a record, and whether people have to look at it."""
    mark = "? " if tup.source_stream == "errors" else ""
    print(mark + " ".join(str(value) for value in tup.values))


def topology(count: str = "30") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("routes", FromList(ROUTES, ["ID", "ROUTE"]))
    builder.set_spout("records", Records(int(count)))
    table = Table("routes", key="ID")
    bolt = RuleBolt(RULES, match="first", unmatched="errors", tables={"DIM_MCS_ROUTE": table})
    mediate = builder.set_bolt("mediate", bolt, 2)
    mediate.shuffle_grouping("records").all_grouping("routes")
    shown = builder.set_bolt("show", show)
    shown.global_grouping("mediate").global_grouping("mediate", "errors")
    return builder.create_topology()
