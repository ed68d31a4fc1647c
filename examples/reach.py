"""How many people a page reaches: a function that clients call, computed over many tasks.

    topo submit examples/reach.py --name reach
    topo drpc call reach foo.com/blog/1 --name reach

The reach of a page is the number of different people who follow somebody who has passed it on.
Each step of a request is done by several tasks at once; a `RequestBolt` has an instance for each
request, and hears when all tuples of the request have come.
"""

from __future__ import annotations

from topo import BasicBolt, Topology, Tuple
from topo.drpc import LinearDrpcBuilder, RequestBolt

TWEETERS = {
    "foo.com/blog/1": ["sally", "bob", "tim", "george", "nathan"],
    "engineering.twitter.com/blog/5": ["adam", "david", "sally", "nathan"],
    "tech.backtype.com/blog/123": ["tim", "mike", "john"],
}
FOLLOWERS = {
    "sally": ["bob", "tim", "alice", "adam", "jim", "chris", "jai"],
    "bob": ["sally", "nathan", "jim", "mary", "david", "vivian"],
    "tim": ["alex"],
    "nathan": ["sally", "bob", "adam", "harry", "chris", "vivian", "emily", "jordan"],
    "adam": ["david", "carissa"],
    "mike": ["john", "bob"],
    "john": ["alice", "nathan", "jim", "mike", "bob"],
}


class Tweeters(BasicBolt):
    """Emits who has passed a page on."""

    outputs = ("id", "tweeter")
    stateless = True

    def execute(self, tup: Tuple) -> None:
        for tweeter in TWEETERS.get(tup.args, []):
            self.emit([tup.id, tweeter])


class FollowersOf(BasicBolt):
    """Emits the followers of somebody."""

    outputs = ("id", "follower")
    stateless = True

    def execute(self, tup: Tuple) -> None:
        for follower in FOLLOWERS.get(tup.tweeter, []):
            self.emit([tup.id, follower])


class Distinct(RequestBolt):
    """Counts the followers that came to one task, each once."""

    outputs = ("id", "count")

    def begin(self) -> None:
        self.followers: set[str] = set()

    def execute(self, tup: Tuple) -> None:
        self.followers.add(tup.follower)

    def finish(self) -> None:
        self.emit([self.request, len(self.followers)])


class Total(RequestBolt):
    """Adds the counts of all tasks."""

    outputs = ("id", "reach")

    def begin(self) -> None:
        self.total = 0

    def execute(self, tup: Tuple) -> None:
        self.total += tup.count

    def finish(self) -> None:
        self.emit([self.request, self.total])


def topology() -> Topology:
    builder = LinearDrpcBuilder("reach")
    builder.add_bolt(Tweeters(), 4)
    builder.add_bolt(FollowersOf(), 12).shuffle_grouping()
    builder.add_bolt(Distinct(), 6).fields_grouping(["id", "follower"])
    builder.add_bolt(Total(), 3).fields_grouping("id")
    return builder.create_topology()
