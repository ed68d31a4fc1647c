"""Real-time mode on Spark: what differs from micro-batches, or could."""

from __future__ import annotations

import time
from collections import Counter as Tally
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Numbers
from topo import (
    BasicBolt,
    Bolt,
    CheckpointError,
    LocalCluster,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tuple,
)
from topo.errors import EngineError
from topo.testing import complete_topology

pytestmark = pytest.mark.spark
CONF: dict[str, Any] = {"topology.mode": "real-time", "topology.workers": 2}


class CountModulo(StatefulBasicBolt):
    outputs = ("key", "count")

    def execute(self, tup: Tuple) -> None:
        key = tup.num % 7
        self.state[key] = self.state.get(key, 0) + 1
        self.emit([key, self.state[key]])


def counting(numbers: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(numbers), parallelism=2)
    count = builder.set_bolt("count", CountModulo(), parallelism=2)
    count.fields_grouping("numbers", "num")
    return builder.create_topology()


def last_counts(rows: list[list[Any]]) -> dict[int, int]:
    counts: Tally[int] = Tally()
    for key, _ in rows:
        counts[key] += 1
    return dict(counts)


@pytest.mark.parametrize("epoch_ms", [0, 10])
def test_everything_is_counted_and_acked(epoch_ms: int) -> None:
    conf = {**CONF, "topology.epoch.ms": epoch_ms}
    if epoch_ms:
        result = complete_topology(counting(2000), conf=conf, engine="spark")
    else:
        with pytest.warns(UserWarning, match="what 'count' keep is lost"):
            result = complete_topology(counting(2000), conf=conf, engine="spark")
    assert sum(last_counts(result.tuples("count")).values()) == 2000
    assert sorted(result.acked["numbers"]) == list(range(2000))
    assert not result.failed["numbers"]


def test_a_run_resumes_where_the_last_one_stopped(cluster: LocalCluster, tmp_path: Path) -> None:
    conf = {**CONF, "topology.checkpoint.dir": str(tmp_path)}
    for _ in range(2):
        run = cluster.submit_topology("count", counting(500), conf, capture=["count"])
        run.await_completion(120)
    assert run.tuples("count") == []  # all of it was done before
    assert run.stats().components["numbers"].emitted == 0
    with pytest.raises(CheckpointError, match="was made in real-time mode"):
        cluster.submit_topology(
            "count", counting(500), {**conf, "topology.mode": "micro-batch"}
        ).await_completion(120)


class Pass(BasicBolt):
    outputs = ("num",)
    stateless = True

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.num])


def test_too_few_places_are_told_before_anything_starts(cluster: LocalCluster) -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(1))
    before = "numbers"
    for number in range(40):
        builder.set_bolt(f"b{number}", Pass(), parallelism=2).shuffle_grouping(before)
        before = f"b{number}"
    run = cluster.submit_topology("deep", builder.create_topology(), CONF)
    with pytest.raises(EngineError, match="real-time mode needs 82 task places") as raised:
        run.await_completion(60)
    assert "topology.workers" in raised.value.hint


class Large(Bolt):
    """Makes megabytes of a number."""

    outputs = ("num", "text")

    def execute(self, tup: Tuple) -> None:
        for part in range(10):
            self.emit([tup.num, str(part) * 1_000_000], anchors=tup)
        self.ack(tup)


class Multiplies(BasicBolt):
    """Makes a thousand tuples of one, and a megabyte."""

    outputs = ("num", "text")

    def execute(self, tup: Tuple) -> None:
        for part in range(1000):
            self.emit([tup.num, f"{part:04d}" * 250])


class Size(BasicBolt):
    outputs = ("num", "size")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.num, len(tup.text)])


class Slow(BasicBolt):
    """Counts, slower than what is before it, and tells the memory of its process."""

    outputs = ("count", "most_kb")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.count = 0

    def execute(self, tup: Tuple) -> None:
        self.count += 1
        if self.count % 1000 == 0:
            time.sleep(0.002)
            status = Path("/proc/self/status").read_text()
            (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
            self.emit([self.count, int(line.split()[1])])


def test_much_of_a_little_does_not_block() -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(20), parallelism=2)
    builder.set_bolt("large", Large(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("size", Size(), parallelism=2).shuffle_grouping("large")
    result = complete_topology(builder.create_topology(), conf=CONF, engine="spark")
    sizes = Tally(num for num, size in result.tuples("size") if size == 1_000_000)
    assert sizes == dict.fromkeys(range(20), 10)
    assert sorted(result.acked["numbers"]) == list(range(20))


def test_what_a_bolt_multiplies_by_a_thousand_takes_no_memory(cluster: LocalCluster) -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(400), parallelism=2)
    builder.set_bolt("many", Multiplies(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("slow", Slow(), parallelism=2).shuffle_grouping("many")
    run = cluster.submit_topology("many", builder.create_topology(), CONF, capture=["slow"])
    run.await_completion(200)
    assert run.stats().components["numbers"].acked == 400
    told = run.tuples("slow")
    assert sum(1000 for _ in told) >= 400_000 - 2 * 1000
    assert max(most_kb for _, most_kb in told) < 400_000  # of 400 MB that went through
