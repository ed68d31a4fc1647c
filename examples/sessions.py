"""Sessions of users, with a first report five seconds after they begin.

    topo local examples/sessions.py -t 60 --show sessions

A session ends when its user does nothing for twelve seconds. Reports before that are "early"; in
mode "retract" a report that has become wrong is taken back first, so that a sum over all reports,
"+" less "-", is right at any time.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from topo import (
    AfterDelay,
    AtWatermark,
    Count,
    EventTime,
    Last,
    Session,
    Spout,
    Topology,
    TopologyBuilder,
    WindowAggregate,
)

USERS = ("ann", "bob", "cleo")
PAGES = ("home", "search", "basket", "pay")


class Visits(Spout):
    """Emits what a user does now and then."""

    outputs = ("user", "page", "ts")

    def __init__(self) -> None:
        self.random = Random(0)
        self.emitted = 0
        self.next_time = 0.0

    def next_tuple(self) -> None:
        now = self.context.now()
        if now >= self.next_time:
            self.emitted += 1
            self.next_time = now + self.random.randint(1, 8)
            user, page = self.random.choice(USERS), self.random.choice(PAGES)
            self.emit([user, page, int(1000 * now)], msg_id=self.emitted)


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("visits", Visits())
    sessions = WindowAggregate(
        key="user",
        window=Session(timedelta(seconds=12)),
        time=EventTime("ts", lag=timedelta(seconds=1), when_idle="clock"),
        aggregates={"visits": Count(), "last_page": Last("page")},
        trigger=AtWatermark(early=AfterDelay(timedelta(seconds=5))),
        mode="retract",
    )
    builder.set_bolt("sessions", sessions).fields_grouping("visits", ["user"])
    return builder.create_topology()
