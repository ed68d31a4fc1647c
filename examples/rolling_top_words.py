"""The words of the last minute, counted every ten seconds, and the five most frequent of them.

    topo local examples/rolling_top_words.py -t 60 --show ranking

storm-starter's RollingTopWords needs a rolling counter, intermediate and total rankings, and ticks.
Here the counts are a sliding window; the ranking is a window of windows: it takes the time of the
counts, so it reports each minute's ranking in the same batch in which the counts are complete.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from topo import (
    Count,
    EventTime,
    Sliding,
    Spout,
    TopK,
    Topology,
    TopologyBuilder,
    Tumbling,
    WindowAggregate,
)

WORDS = ["nathan", "mike", "jackson", "golda", "bertels"]
SLIDE = timedelta(seconds=10)


class Words(Spout):
    """Emits words, the first of the list more often, with the time of their emission."""

    outputs = ("word", "ts")

    def __init__(self) -> None:
        self.random = Random(0)
        self.emitted = 0
        self.next_time = 0.0

    def next_tuple(self) -> None:
        now = self.context.now()
        if now >= self.next_time:
            self.emitted += 1
            self.next_time = now + 0.1
            word = WORDS[min(self.random.randint(0, 9), self.random.randint(0, 4))]
            self.emit([word, int(1000 * now)], msg_id=self.emitted)


def topology(top: str = "5") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    counts = WindowAggregate(
        key="word",
        window=Sliding(timedelta(minutes=1), SLIDE),
        time=EventTime("ts"),
        aggregates={"count": Count()},
    )
    ranking = WindowAggregate(
        window=Tumbling(SLIDE),
        time=EventTime(),
        aggregates={"words": TopK(int(top), by="count", field="word")},
    )
    builder.set_bolt("counts", counts, parallelism=2).fields_grouping("words", ["word"])
    builder.set_bolt("ranking", ranking).global_grouping("counts")
    return builder.create_topology()
