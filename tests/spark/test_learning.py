"""Learning on Spark gives what the inline engine gives: models travel, are saved and restored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.test_learning import Accuracy, Majority
from topo import LearnBolt, ScoreBolt, Spout, Topology, TopologyBuilder
from topo.testing import complete_topology

pytestmark = pytest.mark.spark

COUNT = 300


class Examples(Spout):
    """Examples, on `labelled`, and then requests, on `requests`."""

    outputs = {"labelled": ("x", "y"), "requests": ("id", "x")}

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        if self.number < COUNT:
            for number in range(self.number, self.number + 20):
                self.emit([number % 7, number % 3], stream="labelled", msg_id=number)
            self.number += 20
        elif self.number == COUNT:
            self.number += 1
            for x in range(7):
                self.emit([x, x], stream="requests", msg_id=f"r{x}")

    def is_exhausted(self) -> bool:
        return self.number > COUNT


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("examples", Examples())
    learn = LearnBolt(
        Majority(), label="y", metrics={"accuracy": Accuracy()}, report=50, publish=COUNT
    )
    builder.set_bolt("learn", learn).global_grouping("examples", "labelled")
    score = builder.set_bolt("score", ScoreBolt("learn"), 2)
    score.shuffle_grouping("examples", "requests").all_grouping("learn", "model")
    return builder.create_topology()


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_what_was_learnt_is_measured_and_scores(mode: str) -> None:
    inline = complete_topology(topology())
    spark = complete_topology(topology(), conf={"topology.mode": mode}, engine="spark")
    assert spark.tuples("learn", "evaluation") == inline.tuples("learn", "evaluation")
    assert sorted(spark.tuples("score")) == sorted(inline.tuples("score"))
    assert all(prediction is not None for *_, prediction in spark.tuples("score"))
