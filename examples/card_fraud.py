"""Cards that were tried out: a payment below one, and then one above 500 within a minute.

    topo local examples/card_fraud.py

A thief tries a card with a small payment first. The pattern is found by card, in event time; what
was tried and not used within the minute is told as well, since it is worth a look.
"""

from __future__ import annotations

import random
from datetime import timedelta

from topo import (
    BasicBolt,
    EventTime,
    FromList,
    Pattern,
    PatternBolt,
    Topology,
    TopologyBuilder,
    Tuple,
)

CARDS = 25


def payments(count: int = 600, seed: int = 7) -> list[tuple[str, int, float]]:
    """Return payments of some cards, a second or so apart, as card, time in ms and amount."""
    rng = random.Random(seed)
    amounts = (0.5, 0.9, 12.0, 30.0, 80.0, 250.0, 700.0, 900.0)
    ts, rows = 0, []
    for _ in range(count):
        ts += rng.randint(0, 4_000)
        rows.append((f"c{rng.randrange(CARDS)}", ts, rng.choice(amounts)))
    return rows


TRIED_OUT = (
    Pattern("small", "amount < 1")
    .followed_by("large", "amount > 500")
    .within(timedelta(minutes=1))
    .skip("past_last")
)


class Desk(BasicBolt):
    """Tells of cards that were stolen, it seems."""

    outputs = ("card", "amount")

    def execute(self, tup: Tuple) -> None:
        print(f"card {tup.card}: {tup.tried} and then {tup.amount}, within {tup.took} ms")
        self.emit([tup.card, tup.amount])


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("payments", FromList(payments(), fields=("card", "ts", "amount")))
    found = PatternBolt(
        TRIED_OUT,
        key="card",
        time=EventTime("ts"),
        select={
            "card": "card",
            "tried": "small.amount",
            "amount": "large.amount",
            "took": "large.ts - small.ts",
        },
        timed_out_stream="unused",
    )
    builder.set_bolt("tried_out", found, 2).fields_grouping("payments", ["card"])
    builder.set_bolt("desk", Desk()).shuffle_grouping("tried_out")
    return builder.create_topology()
