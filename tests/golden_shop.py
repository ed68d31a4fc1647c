"""A topology whose saved state holds one of everything that is saved, for golden checkpoints."""

from __future__ import annotations

from collections import Counter
from typing import Any

from topo import BasicBolt, Bolt, Spout, StatefulBasicBolt, Topology, TopologyBuilder, Tuple

WORDS = ("cow", "moon", "cow", "dog")


class Numbers(Spout):
    """A spout of numbers; pending messages and its position are saved."""

    outputs = ("n", "word")

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next = 0
        self.settled: list[int] = []

    def next_tuple(self) -> None:
        self.emit([self.next, WORDS[self.next % len(WORDS)]], msg_id=self.next)
        self.next += 1

    def ack(self, msg_id: Any) -> None:
        self.settled.append(msg_id)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        self.settled.append(msg_id)


class Words(StatefulBasicBolt):
    """A counter in keyed state, with plain attributes of several shapes beside it."""

    outputs = ("word", "count")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.seen: Counter[str] = Counter()
        self.latest: dict[str, list[int]] = {}

    def execute(self, tup: Tuple) -> None:
        self.state[tup.word] = self.state.get(tup.word, 0) + 1
        self.seen[tup.word] += 1
        self.latest.setdefault(tup.word, []).append(tup.n)
        self.emit([tup.word, self.state[tup.word]])


class Pairs(Bolt):
    """A bolt that holds every other tuple until the next one."""

    outputs = ("left", "right")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if not self.held:
            self.held.append(tup)
            return
        left = self.held.pop()
        self.emit([left["count"], tup["count"]], anchors=[left, tup])
        self.ack(left)
        self.ack(tup)


class Sums(BasicBolt):
    """A sum of what `Pairs` emits."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.total = 0

    def execute(self, tup: Tuple) -> None:
        self.total += tup.left + tup.right


def shop() -> Topology:
    """Return the topology; its shape must stay, for the saved state belongs to it."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("words", Words()).fields_grouping("numbers", ["word"])
    builder.set_bolt("pairs", Pairs()).shuffle_grouping("words")
    builder.set_bolt("sums", Sums(), parallelism=2).partial_key_grouping("pairs", ["left"])
    return builder.create_topology()
