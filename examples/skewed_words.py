"""Counts words of which one comes far too often: each word is counted by two tasks.

    topo local examples/skewed_words.py --show total

With a fields grouping the task of "the" would count half of all words. A partial key grouping gives
each word to the less used of two tasks; what these have counted is added up by word every second,
by a bolt that gets two tuples where it would have got hundreds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from topo import BasicBolt, FromList, StatefulBasicBolt, Topology, TopologyBuilder, Tuple

WORDS = [word for number in range(500) for word in ("the", f"word{number % 7}")]


class PartialCounts(BasicBolt):
    """Counts what comes to this task, and passes the counts on with every tick."""

    outputs = ("word", "count")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def get_component_configuration(self) -> Mapping[str, Any]:
        return {"topology.tick.tuple.freq.secs": 1}

    def execute(self, tup: Tuple) -> None:
        self.counts[tup.word] += 1

    def on_tick(self, tup: Tuple) -> None:
        for word, count in self.counts.items():
            self.emit([word, count])
        self.counts.clear()


class Totals(StatefulBasicBolt):
    outputs = ("word", "count")

    def execute(self, tup: Tuple) -> None:
        self.state[tup.word] = self.state.get(tup.word, 0) + tup.count
        self.emit([tup.word, self.state[tup.word]])


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("words", FromList(WORDS, fields="word"))
    counts = builder.set_bolt("count", PartialCounts(), parallelism=4)
    counts.partial_key_grouping("words", ["word"])
    builder.set_bolt("total", Totals(), parallelism=2).fields_grouping("count", ["word"])
    return builder.create_topology()
