"""Hashtags that are written at least twice as often as in the minute before.

    topo local examples/trending_hashtags.py -t 300 --show trending

The counts of each minute are joined with themselves: a count matches the one of the same tag whose
window ended exactly a minute earlier. `EventTime()` without a field is the time of the windows'
results, and a left join keeps tags that nobody wrote in the minute before.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from topo import (
    BasicBolt,
    Count,
    EventTime,
    IntervalJoin,
    Spout,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
)

TAGS = ("#rain", "#goal", "#cats", "#news")
MINUTE = timedelta(minutes=1)


class Posts(Spout):
    """Emits posts; a tag is popular in some minutes."""

    outputs = ("tag", "ts")

    def __init__(self) -> None:
        self.random = Random(0)
        self.emitted = 0
        self.next_time = 0.0

    def next_tuple(self) -> None:
        now = self.context.now()
        if now >= self.next_time:
            self.emitted += 1
            self.next_time = now + 1
            popular = TAGS[int(now // 60) % len(TAGS)]
            tag = popular if self.random.random() < 0.5 else self.random.choice(TAGS)
            self.emit([tag, int(1000 * now)], msg_id=self.emitted)


class Trending(BasicBolt):
    """Passes on the tags whose count has doubled, and how often they were written."""

    outputs = ("tag", "end", "posts", "before")

    def execute(self, tup: Tuple) -> None:
        before = tup.before or 0
        if tup.posts >= max(2, 2 * before):
            self.emit([tup.tag, tup.end, tup.posts, before])


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("posts", Posts())
    counts = WindowAggregate(
        key="tag",
        window=Tumbling(MINUTE),
        time=EventTime("ts", lag=timedelta(seconds=2)),
        aggregates={"posts": Count()},
    )
    builder.set_bolt("counts", counts, 2).fields_grouping("posts", ["tag"])
    growth = IntervalJoin(
        left="counts",
        right="counts",
        on="tag",
        within=(MINUTE, -MINUTE),
        how="left",
        time=EventTime(),
        select={
            "tag": "left:tag",
            "end": "left:end",
            "posts": "left:posts",
            "before": "right:posts",
        },
    )
    builder.set_bolt("growth", growth, 2).fields_grouping("counts", ["tag"])
    builder.set_bolt("trending", Trending()).shuffle_grouping("growth")
    return builder.create_topology()
