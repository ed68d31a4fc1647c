"""Words are counted, and clients ask how often some of them have come.

    topo submit examples/word_queries.py --name words
    topo drpc call words "cat the dog" --name words

The counts are a state of the topology, which each batch changes exactly once; a call is a stream of
its own, which asks the state. The answer is the JSON list of all results, here one: [[17]].
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import add

from topo import Count, Spout, Topology
from topo.streams import StreamBuilder

SENTENCES = (
    "the cow jumped over the moon",
    "the man went to the store and bought some candy",
    "four score and seven years ago",
    "how many apples can you eat",
)


class Sentences(Spout):
    """Emits the sentences in turn, a few a second, for as long as the topology runs."""

    outputs = ("sentence",)

    def __init__(self, per_second: float = 20.0) -> None:
        self.pause_secs = 1 / per_second
        self.emitted = 0
        self.next_time = 0.0

    def next_tuple(self) -> None:
        now = self.context.now()
        if now >= self.next_time:
            self.next_time = now + self.pause_secs
            self.emit([SENTENCES[self.emitted % len(SENTENCES)]], msg_id=self.emitted)
            self.emitted += 1


def words_of(sentence: str) -> Iterator[str]:
    yield from sentence.split()


def is_known(count: int | None) -> bool:
    return count is not None


def topology() -> Topology:
    s = StreamBuilder()
    words = s.stream(Sentences()).flat_map(words_of).key_by()
    counts = words.persistent_aggregate(Count(), parallelism=2)
    asked = s.requests("words").flat_map(words_of).key_by().state_query(counts)
    asked.values().filter(is_known).fold(0, add).answer()
    return s.build()
