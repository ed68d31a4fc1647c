"""Storm's MultilangWordCount: sentences are split by a process of another language.

    topo local examples/multilang_word_count.py                 the splitter is Python
    topo local examples/multilang_word_count.py:with_node       ... is JavaScript

The splitters are in `resources/`, beside this file; they travel with the topology.
"""

from __future__ import annotations

from topo import BasicBolt, FromList, Topology, TopologyBuilder, Tuple
from topo.multilang import ShellBolt

SENTENCES = [
    "the cow jumped over the moon",
    "an apple a day keeps the doctor away",
    "four score and seven years ago",
    "snow white and the seven dwarfs",
    "i am at two with nature",
]


class WordCount(BasicBolt):
    outputs = ("word", "count")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        self.counts[tup.word] = self.counts.get(tup.word, 0) + 1
        self.emit([tup.word, self.counts[tup.word]])


def build(command: list[str]) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sentences", FromList(SENTENCES * 20, fields="sentence"))
    splitter = ShellBolt(command, outputs=("word",))
    builder.set_bolt("split", splitter, parallelism=2).shuffle_grouping("sentences")
    builder.set_bolt("count", WordCount(), parallelism=2).fields_grouping("split", "word")
    return builder.create_topology()


topology = build(["python3", "split_sentence.py"])


def with_node() -> Topology:
    return build(["node", "split_sentence.js"])
