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
from topo.ways import UNANCHORED

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


@bolt(outputs=("word",))
def split_values(sentence: str) -> Any:
    for word in sentence.split():
        yield (word,)


class CountValues(BasicBolt):
    outputs = ("word", "count")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.counts: dict[str, int] = {}

    def process(self, word: str) -> None:
        self.counts[word] = count = self.counts.get(word, 0) + 1
        self.emit_values(word, count)


class SplitBatch(BasicBolt):
    outputs = ("word",)

    def process_batch(self, batch: Any) -> None:
        import pyarrow.compute as pc

        words = pc.split_pattern(batch["sentence"], " ")
        self.emit_batch({"word": words.flatten()}, parents=pc.list_parent_indices(words))


class CountBatch(BasicBolt):
    """Counts a batch at once; it emits each word of it once, with the count by then."""

    outputs = ("word", "count")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.counts: dict[str, int] = {}

    def process_batch(self, batch: Any) -> None:
        import pyarrow.compute as pc

        counted = pc.value_counts(batch["word"])
        words, numbers = counted.field(0).to_pylist(), counted.field(1).to_pylist()
        counts = self.counts
        for word, number in zip(words, numbers, strict=True):
            counts[word] = counts.get(word, 0) + number
        self.emit_batch(
            {"word": words, "count": [counts[word] for word in words]}, parents=UNANCHORED
        )


WAYS: dict[str, tuple[Any, type[Any]]] = {
    "values": (split_values, CountValues),
    "tuple": (split, Count),
    "batch": (SplitBatch(), CountBatch),
}
"""The two bolts of the word count in each way to write them, that of the README first."""


def word_count(total: int, tracked: bool, parallelism: int = 2, way: str = "tuple") -> Topology:
    splits, counts = WAYS[way]
    builder = TopologyBuilder()
    builder.set_spout("sentences", Sentences(total, tracked), parallelism)
    builder.set_bolt("split", splits, parallelism).shuffle_grouping("sentences")
    builder.set_bolt("count", counts(), parallelism).fields_grouping("split", ["word"])
    return builder.create_topology()
