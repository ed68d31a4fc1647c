"""The word count that the suites run, its input, and the plain Python loop beside it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from random import Random
from time import perf_counter
from typing import Any

from topo.builder import TopologyBuilder
from topo.components import BasicBolt, Spout
from topo.functions import bolt
from topo.topology.model import Topology
from topo.tuples import Tuple

WORDS_A_SENTENCE = 10
_SENTENCES = 20_000
_VOCABULARY = 10_000


def sentences(seed: int = 1) -> list[str]:
    """Sentences whose words are as unevenly frequent as a language's."""
    random = Random(seed)
    vocabulary = [f"{random.choice('abcdefghijklmnop')}word{rank}" for rank in range(_VOCABULARY)]
    weights = [1 / (rank + 1) for rank in range(_VOCABULARY)]
    drawn = random.choices(vocabulary, weights, k=_SENTENCES * WORDS_A_SENTENCE)
    per = WORDS_A_SENTENCE
    return [" ".join(drawn[i : i + per]) for i in range(0, len(drawn), per)]


def count_in_a_loop(given: Sequence[str], total: int) -> tuple[dict[str, int], float]:
    """The plain loop over `total` sentences: its counts, and the seconds it took."""
    counts: dict[str, int] = {}
    started = perf_counter()
    for sentence in islice(cycle(given), total):
        for word in sentence.split():
            counts[word] = counts.get(word, 0) + 1
    return counts, perf_counter() - started


class Sentences(Spout):
    """Emits the sentences over and over, `total` of them in all."""

    outputs = ("sentence",)
    transient = ("given",)

    def __init__(self, total: int, tracked: bool) -> None:
        self.total = total
        self.tracked = tracked

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.given = sentences()
        self.next: int = context.this_task_index
        self.step = len(context.component_tasks(context.this_component_id))

    def next_tuple(self) -> None:
        number = self.next
        if number < self.total:
            self.next = number + self.step
            sentence = self.given[number % _SENTENCES]
            self.emit([sentence], msg_id=number if self.tracked else None)

    def is_exhausted(self) -> bool:
        return self.next >= self.total


@bolt(outputs=("word",))
def split(tup: Tuple) -> Any:
    for word in tup.sentence.split():
        yield [word]


class Count(BasicBolt):
    outputs = ("word", "count")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        word = tup.word
        count = self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, count])


def word_count(total: int, tracked: bool, parallelism: int = 2) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sentences", Sentences(total, tracked), parallelism)
    builder.set_bolt("split", split, parallelism).shuffle_grouping("sentences")
    builder.set_bolt("count", Count(), parallelism).fields_grouping("split", ["word"])
    return builder.create_topology()
