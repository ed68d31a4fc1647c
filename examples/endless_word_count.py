"""Counts words without end: keyed state, a pending limit, settings that come with the code.

    topo local examples/endless_word_count.py -t 30
    topo submit examples/endless_word_count.py -- 1000000      a million different words

`counts` may grow to millions of words: keyed state is saved incrementally, whereas a plain
attribute would be saved whole with every batch.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from topo import (
    Config,
    Spout,
    SpoutOutputCollector,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

conf = Config()
conf.name = "endless-word-count"
conf.max_spout_pending = 100_000  # unacked messages of each spout task: what can be in flight
conf.message_timeout_secs = 60


class Words(Spout):
    """Says words of a vocabulary for ever, some of them more often than others."""

    outputs = ("word",)

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.said = 0

    def open(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector
    ) -> None:
        self.random = random.Random(context.this_task_index)  # every task draws other words

    def next_tuple(self) -> None:
        number = int(self.vocabulary * self.random.random() ** 2)
        self.emit([f"word{number}"], msg_id=self.said)
        self.said += 1


class Count(StatefulBasicBolt):
    """Counts each word in `self.state`, a mapping that knows which of its keys changed."""

    outputs = ("word", "count")

    def execute(self, tup: Tuple) -> None:
        count = self.state.get(tup.word, 0) + 1
        self.state[tup.word] = count
        self.emit([tup.word, count])


def topology(vocabulary: str = "10000") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("words", Words(int(vocabulary)), parallelism=2)
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("words", ["word"])
    return builder.create_topology()
