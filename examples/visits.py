"""Visits to a shop, with one instance of a bolt for each visitor.

    topo local examples/visits.py -t 60 --show visits

A visitor who does nothing for ten seconds has left; who has put something into the basket is
reminded after four. The instance of a visitor is gone with the visit, so that memory follows those
who are there.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

from topo import KeyedBolt, Spout, Topology, TopologyBuilder, Tuple

USERS = ("ann", "bob", "cleo")
PAGES = ("home", "search", "basket", "pay")


class Clicks(Spout):
    """Emits what a visitor looks at, now and then."""

    outputs = ("user", "page")

    def __init__(self) -> None:
        self.random = Random(0)
        self.emitted = 0
        self.next_time = 0.0

    def next_tuple(self) -> None:
        now = self.context.now()
        if now >= self.next_time:
            self.emitted += 1
            self.next_time = now + self.random.randint(1, 5)
            self.emit([self.random.choice(USERS), self.random.choice(PAGES)], msg_id=self.emitted)


class Visit(KeyedBolt):
    """One visitor's visit: what was seen in it, and what became of it."""

    outputs = ("user", "what", "pages")
    ttl = timedelta(seconds=10)

    def created(self) -> None:
        self.pages: list[str] = []

    def execute(self, tup: Tuple) -> None:
        self.pages.append(tup.page)
        if tup.page == "basket":
            self.set_timer("remind", after=timedelta(seconds=4))
        if tup.page == "pay":
            self.delete_timer("remind")
            self.emit([self.key, "bought", len(self.pages)])
            self.forget()

    def on_timer(self, name: str, at: Any) -> None:
        self.emit([self.key, name, len(self.pages)])

    def removed(self, why: str) -> None:
        if why == "ttl":
            self.emit([self.key, "left", len(self.pages)])


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("clicks", Clicks())
    builder.set_bolt("visits", Visit(), 2).fields_grouping("clicks", "user")
    return builder.create_topology()
