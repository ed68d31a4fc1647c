"""Real-time mode on Spark: what differs from micro-batches, or could."""

from __future__ import annotations

import shutil
import time
from collections import Counter as Tally
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Numbers
from tests.spark.doubles import LONGEST_SECS, Endless, wait_until
from topo import (
    BasicBolt,
    Bolt,
    CheckpointError,
    FailTuple,
    FromList,
    LocalCluster,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tuple,
)
from topo.errors import EngineError
from topo.testing import complete_topology
from topo.tracking.clock import SteadyClock

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


class Refuses(BasicBolt):
    """Fails each tuple forty times."""

    outputs = ("num",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.times = 0

    def execute(self, tup: Tuple) -> None:
        self.times += 1
        if self.times <= 40:
            raise FailTuple("not yet")
        self.emit(tup.values)


def test_the_last_message_comes_again_though_an_epoch_ends_as_it_fails() -> None:
    """Such an epoch hears of the failure, and asks no spout; forty of them are a few at least."""
    builder = TopologyBuilder()
    builder.set_spout("list", FromList([7], fields="num"))
    builder.set_bolt("refuses", Refuses()).shuffle_grouping("list")
    conf = {**CONF, "topology.epoch.ms": 1}
    result = complete_topology(builder.create_topology(), conf=conf, engine="spark")
    assert result.tuples("refuses") == [[7]]
    assert result.acked == {"list": [0]}


@pytest.mark.smoke
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
    shutil.rmtree(tmp_path / "topo-epochs")
    with pytest.raises(CheckpointError, match="the log of epochs is gone"):
        cluster.submit_topology("count", counting(500), conf).await_completion(120)


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


class Waits(BasicBolt):
    """Prepares until somebody says that it may end."""

    outputs = ("num",)

    def __init__(self, word: str) -> None:
        self.word = word

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        while not Path(self.word).exists():
            time.sleep(0.01)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.num])


def test_a_long_prepare_is_told_of_and_waited_for(cluster: LocalCluster, tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(10))
    builder.set_bolt("slow", Waits(str(tmp_path / "word"))).shuffle_grouping("numbers")
    run = cluster.submit_topology("slow", builder.create_topology(), CONF, capture=["slow"])
    wait_until(lambda: "has been preparing 'slow' for" in run.reason, "the reason")
    (tmp_path / "word").touch()
    run.await_completion(LONGEST_SECS)
    assert len(run.tuples("slow")) == 10


class Holds(Bolt):
    """Keeps the first numbers, and acks the others."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if tup.num < HELD:
            self.held.append(tup)
        else:
            self.ack(tup)


HELD = 50


def test_a_clock_that_is_set_ahead_fails_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_by = 0.0
    clock = partial(SteadyClock, lambda: time.time() + set_by)
    monkeypatch.setattr("topo.engine.spark.realtime.resources.SteadyClock", clock)
    builder = TopologyBuilder()
    builder.set_spout("numbers", Endless())
    builder.set_bolt("holds", Holds()).shuffle_grouping("numbers")
    conf = {**CONF, "topology.message.timeout.secs": 600}
    run = cluster.submit_topology("clock", builder.create_topology(), conf)

    def acked() -> int:
        return run.stats().components["numbers"].acked

    wait_until(lambda: acked() > 0, "the first ack")
    set_by, before = 3600.0, acked()
    wait_until(lambda: acked() > before + 1000, "acks by the clock as it was set")
    assert run.stats().components["numbers"].failed == 0
    run.kill()
