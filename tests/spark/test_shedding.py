"""Load shedding on Spark, in both modes: what is dropped is acked and counted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.spark.doubles import LONGEST_SECS, WORKERS
from topo import BasicBolt, LocalCluster, Spout, TopologyBuilder, Tuple

pytestmark = pytest.mark.spark
COUNT = 600


class Old(Spout):
    """Emits tuples that are older with each, a few at a time."""

    outputs = ("n", "ts")

    def __init__(self) -> None:
        self.emitted = self.acked = 0

    def next_tuple(self) -> None:
        if self.emitted < COUNT and self.pending_count < 40:
            ts = 1000 * (self.context.now() - 3600 - 10 * self.emitted)
            self.emit([self.emitted, int(ts)], msg_id=self.emitted)
            self.emitted += 1

    def ack(self, msg_id: Any) -> None:
        self.acked += 1

    def is_exhausted(self) -> bool:
        return self.acked == COUNT


class PassOn(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n])


@pytest.mark.parametrize("topology_mode", ["micro-batch", "real-time"])
def test_what_is_dropped_is_acked_and_counted(cluster: LocalCluster, topology_mode: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Old()).shed(after=timedelta(seconds=5), age="ts", least=0.1)
    builder.set_bolt("b", PassOn(), 2).shuffle_grouping("s")
    conf = {**WORKERS, "topology.mode": topology_mode}
    run = cluster.submit_topology("t", builder.create_topology(), conf, capture=["b"])
    run.await_completion(LONGEST_SECS)
    figures = run.stats().components["s"]
    kept = len(run.tuples("b"))
    assert figures.acked == COUNT
    assert figures.failed == 0
    assert figures.counters.get('shed{stream="default"}', 0) == COUNT - kept
    assert figures.emitted == kept
    if topology_mode == "micro-batch":
        assert kept < COUNT
