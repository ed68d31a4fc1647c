"""The figures of each stream that a bolt reads, by a clock that its bolt moves."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, Bolt, FailTuple, TopologyBuilder, Tuple, WindowedBolt
from topo.metrics.figure import difference
from topo.metrics.figures import COMPONENT
from topo.metrics.inputs import InputFigures, inputs_of
from topo.runtime import input_seconds
from topo.testing import FeederSpout, TestCluster

NOW = [0.0]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    NOW[0] = 0.0
    monkeypatch.setattr(input_seconds, "perf_counter", lambda: NOW[0])


def work(value: int) -> None:
    """Take as many milliseconds as the value says."""
    NOW[0] += value / 1024


class Sides(BasicBolt):
    """Emits what is even to one stream, and the rest to another."""

    outputs = {"even": ("x",), "odd": ("x",)}

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.x], stream="odd" if tup.x % 2 else "even")


class Works(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        work(tup.x)


class WorksOnValues(BasicBolt):
    def process(self, x: int) -> None:
        work(x)


class WorksOnBatches(BasicBolt):
    def process_batch(self, batch: Any) -> None:
        work(sum(batch.column("x").to_pylist()))


class WorksByHand(Bolt):
    def execute(self, tup: Tuple) -> None:
        work(tup.x)
        self.ack(tup)


class Fails(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        work(tup.x)
        raise FailTuple("no")


class Windows(WindowedBolt):
    def execute(self, window: Any) -> None: ...


class Holds(Bolt):
    """Keeps each tuple until the next one comes."""

    kept: Tuple | None = None

    def execute(self, tup: Tuple) -> None:
        if self.kept is not None:
            self.ack(self.kept)
        self.kept = tup


def figures(bolt: Any, fed: dict[str, list[int]], *, is_mixed: bool) -> list[InputFigures]:
    """Run a bolt that reads two streams: of two spouts, or of one bolt in the order of emits."""
    feeders = {name: FeederSpout(["x"]) for name in fed}
    builder = TopologyBuilder()
    for name, feeder in feeders.items():
        builder.set_spout(name, feeder)
    if is_mixed:
        (name,) = fed
        builder.set_bolt("sides", Sides()).shuffle_grouping(name)
        reader = builder.set_bolt("reader", bolt)
        reader.shuffle_grouping("sides", "even").shuffle_grouping("sides", "odd")
    else:
        reader = builder.set_bolt("reader", bolt)
        for name in fed:
            reader.shuffle_grouping(name)
    cluster = TestCluster()
    run = cluster.submit_topology("t", builder.create_topology())
    for name, values in fed.items():
        for number, value in enumerate(values):
            feeders[name].feed([value], msg_id=(name, number))
    run.settle()
    whole = run.stats().components["reader"]
    assert sum(whole.executed_by_input.values()) == whole.executed
    assert sum(whole.settled_by_input.values()) == whole.settled == whole.executed
    for by, of_all in ((whole.execute_ms_by_input, whole.execute_ms),
                       (whole.process_ms_by_input, whole.process_ms)):  # fmt: skip
        total = sum(ms * whole.executed_by_input[key] for key, ms in by.items())
        assert total == pytest.approx((of_all or 0.0) * whole.executed)
    assert all(not of.executed_by_input for of in whole.by_task.values())
    return inputs_of(vars(whole))


HOOKS = [Works, WorksOnValues, WorksOnBatches, WorksByHand, Fails]


@pytest.mark.parametrize("bolt", HOOKS)
def test_each_stream_has_its_own_time(bolt: Any) -> None:
    slow, quick = figures(bolt(), {"a": [8, 8, 8], "b": [1, 3]}, is_mixed=False)
    assert (slow.component, slow.stream, slow.executed) == ("a", "default", 3)
    assert (quick.component, quick.stream, quick.executed) == ("b", "default", 2)
    assert (slow.execute_ms, quick.execute_ms) == pytest.approx((8000 / 1024, 2000 / 1024))
    assert slow.process_ms == slow.execute_ms


@pytest.mark.parametrize("bolt", HOOKS)
def test_streams_that_come_mixed_have_their_own_times(bolt: Any) -> None:
    values = [2, 2, 17, 2, 15, 2, 2]
    even, odd = figures(bolt(), {"a": values}, is_mixed=True)
    assert (even.component, even.stream, even.executed) == ("sides", "even", 5)
    assert (odd.component, odd.stream, odd.executed) == ("sides", "odd", 2)
    assert (even.execute_ms, odd.execute_ms) == pytest.approx((2000 / 1024, 16_000 / 1024))


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_bolt_in_event_time_counts_by_stream(is_mixed: bool) -> None:
    fed = {"a": [1, 2, 3]} if is_mixed else {"a": [1, 2], "b": [3]}
    found = figures(Windows().with_window(2), fed, is_mixed=is_mixed)
    assert sorted(one.executed for one in found) == [1, 2]


def test_a_held_tuple_waits_for_its_ack_that_long() -> None:
    feeder = FeederSpout(["x"])
    builder = TopologyBuilder()
    builder.set_spout("a", feeder)
    builder.set_bolt("reader", Holds()).shuffle_grouping("a")
    cluster = TestCluster()
    run = cluster.submit_topology("t", builder.create_topology())
    for number in range(2):
        feeder.feed([number], msg_id=number)
        run.settle()
        cluster.advance(10)
    whole = run.stats().components["reader"]
    (read,) = inputs_of(vars(whole))
    assert (read.executed, read.execute_ms) == (2, 0.0)
    assert read.process_ms == whole.process_ms
    assert (whole.settled, sum(whole.settled_by_input.values())) == (1, 1)
    assert 10_000 <= (read.process_ms or 0.0) < 11_000, "10 s of the one that is acked"


class HoldsAll(Bolt):
    """Acks everything when the value is 0, and fails it when it is negative."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)
        if tup.x <= 0:
            for one in self.kept:
                (self.ack if tup.x == 0 else self.fail)(one)
            self.kept = []


def test_tuples_that_were_held_wait_for_their_ack_in_the_window_that_has_it() -> None:
    feeder = FeederSpout(["x"])
    builder = TopologyBuilder()
    builder.set_spout("a", feeder)
    builder.set_bolt("reader", HoldsAll()).shuffle_grouping("a")
    cluster = TestCluster()
    run = cluster.submit_topology("t", builder.create_topology())

    def figures_after(value: int) -> dict[str, Any]:
        feeder.feed([value], msg_id=value)
        run.settle()
        return dict(vars(run.stats().components["reader"]))

    for number in range(1, 10):
        feeder.feed([number], msg_id=number)
    before = figures_after(10)
    assert (before["executed"], before["settled"], before["process_ms"]) == (10, 0, None)
    cluster.advance(10)
    now = figures_after(0)
    assert (now["executed"], now["settled"]) == (11, 11)
    window = difference(COMPONENT, now, before, 10.0)
    (read,) = inputs_of(window)
    assert (window["executed"], window["settled"]) == (1, 11)
    assert read.process_ms == pytest.approx(window["process_ms"])
    assert read.process_ms == pytest.approx(10_000 * 10 / 11, rel=0.01)
    earlier = {name: of for name, of in before.items() if not name.startswith("settled")}
    assert difference(COMPONENT, now, earlier, 10.0)["process_ms"] == now["process_ms"]
    figures_after(20)
    later = figures_after(-1)
    assert (later["executed"], later["settled"]) == (13, 12), "one that failed took no ack"


def test_names_are_read_as_they_are_written() -> None:
    """Slashes, quotes and backslashes in the names of components and streams tell nothing apart."""
    builder = TopologyBuilder()
    name, feeder = 'a/"b\\', FeederSpout(["x"])
    builder.set_spout(name, feeder)
    builder.set_bolt("reader", Works()).shuffle_grouping(name)
    run = TestCluster().submit_topology("t", builder.create_topology())
    feeder.feed([1])
    run.settle()
    (read,) = inputs_of(vars(run.stats().components["reader"]))
    assert (read.component, read.stream, read.executed) == (name, "default", 1)


def test_documents_of_earlier_drivers_have_no_inputs() -> None:
    assert inputs_of({"executed": 7}) == []
    assert inputs_of({"executed_by_input": {"damaged": 7}}) == []
