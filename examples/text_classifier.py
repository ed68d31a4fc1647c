"""Learns which headlines a reader likes, while they are read, and shows how well it does.

    pip install 'topo-spark[learn]'
    topo local examples/text_classifier.py 2000

A model (river's naive Bayes over words) predicts each headline, is measured, and then learns
whether it was liked. Halfway the reader's interest turns from football to the stars: the accuracy
of the latest predictions falls, a detector finds the drift, and a new model begins. Every two
hundred headlines the model is published; new headlines are scored by the last one.
"""

from __future__ import annotations

import random
from typing import Any

from river import drift, feature_extraction, metrics, naive_bayes, utils

from topo import LearnBolt, ScoreBolt, Spout, Topology, TopologyBuilder, Tuple, bolt

COMMON = ("today", "the", "new", "first", "again", "of", "last", "big", "after", "in", "year")
TOPICS = (
    ("goal", "match", "league", "coach", "striker", "cup", "transfer", "penalty"),
    ("star", "planet", "telescope", "orbit", "galaxy", "comet", "moon", "probe"),
)


def headline(chance: random.Random, number: int, count: int) -> tuple[str, bool]:
    """Return a headline and whether the reader likes it; halfway the interest changes."""
    topic = chance.randrange(2)
    words = chance.choices(COMMON, k=4) + chance.choices(TOPICS[topic], k=2)
    chance.shuffle(words)
    interest = 2 * number // count
    return " ".join(words), (topic == interest) == (chance.random() < 0.95)


class Headlines(Spout):
    """Headlines that were read, on `read`; each tenth is a new one, on `new`."""

    outputs = {"read": ("text", "liked"), "new": ("text",)}

    def __init__(self, count: int) -> None:
        self.count = count
        self.number = 0
        self.random = random.Random(1)

    def next_tuple(self) -> None:
        if self.is_exhausted():
            return
        text, liked = headline(self.random, self.number, self.count)
        self.number += 1
        if self.number % 10:
            self.emit([text, liked], stream="read", msg_id=self.number)
        else:
            self.emit([text], stream="new", msg_id=self.number)

    def is_exhausted(self) -> bool:
        return self.number >= self.count


def classifier() -> Any:
    """Return a model that has learnt nothing."""
    return feature_extraction.BagOfWords(on="text") | naive_bayes.MultinomialNB()


@bolt(outputs=())
def show(tup: Tuple) -> None:
    """Print how well the model does."""
    if tup.source_stream == "drift":
        print(f"after {tup.examples}: the interest has changed, a new model begins")
    else:
        print(f"after {tup.examples}: accuracy {tup.accuracy:.3f}, of the latest {tup.latest:.3f}")


def topology(count: str = "2000") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("headlines", Headlines(int(count)))
    learn = LearnBolt(
        classifier(),
        label="liked",
        metrics={
            "accuracy": metrics.Accuracy(),
            "latest": utils.Rolling(metrics.Accuracy, window_size=100),
        },
        report=200,
        drift=drift.ADWIN(),
        on_drift="reset",
        publish=200,
    )
    builder.set_bolt("learn", learn).global_grouping("headlines", "read")
    score = builder.set_bolt("score", ScoreBolt("learn", output="liked"), 2)
    score.shuffle_grouping("headlines", "new").all_grouping("learn", "model")
    shown = builder.set_bolt("show", show)
    shown.global_grouping("learn", "evaluation").global_grouping("learn", "drift")
    return builder.create_topology()
