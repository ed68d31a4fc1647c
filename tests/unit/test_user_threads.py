"""Calls of emit, ack and fail from threads of the user's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.doubles import Numbers
from tests.unit.test_spark_execution import Slot, target  # noqa: F401
from tests.wiring import Fed, line
from topo import BasicBolt, Bolt, EmitError, Spout, Tuple, TupleSettledError, UncaughtError
from topo.engine.inline.run import InlineRun
from topo.engine.spark.worker.polling import Polling
from topo.testing import FeederSpout, TestCluster, complete_topology
from topo.tracking.transport import AckerTarget


def elsewhere(call: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """Make the call in another thread; return or raise what it does."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call(*values, **options))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


class Doubles(Bolt):
    """Emits and acks in another thread, and an emit of its own between."""

    outputs = ("x",)

    def execute(self, tup: Tuple) -> None:
        assert elsewhere(self.emit, [2 * tup[0]], anchors=tup) is None
        self.emit([tup[0]], anchors=tup)
        elsewhere(self.fail if tup[0] == 3 else self.ack, tup)


class Ack(Bolt):
    outputs = ("x",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]], anchors=tup)
        self.ack(tup)


def test_a_bolt_emits_and_acks_in_another_thread() -> None:
    fed = Fed(Doubles(), Ack()).feed(1, 2, 3)
    assert sorted(fed.out(2)) == [1, 2, 2, 3, 4, 6]
    assert (sorted(fed.feeder.acked), fed.feeder.failed) == ([1, 2], [3])


class Later(Bolt):
    """Keeps its inputs for a thread that acks them when it is told to."""

    outputs = ("x",)
    kept: list[Callable[[], None]] = []

    def execute(self, tup: Tuple) -> None:
        def settle() -> None:
            self.emit([tup[0]], anchors=tup)
            self.ack(tup)

        self.kept.append(settle)


def test_a_tuple_is_acked_by_a_thread_long_after_its_batch() -> None:
    Later.kept = []
    fed = Fed(Later(), Ack()).feed(1, 2)
    assert not fed.feeder.acked
    elsewhere(Later.kept[1])
    fed.run.settle()
    assert (fed.feeder.acked, fed.out(2)) == ([2], [2])
    elsewhere(Later.kept[0])
    fed.run.settle()
    assert fed.feeder.acked == [2, 1]


def test_many_threads_at_once_mix_nothing_up() -> None:
    class Crowd(Bolt):
        outputs = ("x",)

        def execute(self, tup: Tuple) -> None:
            def send() -> None:
                for number in range(100):
                    self.emit([(tup[0], number)], anchors=tup)

            threads = [threading.Thread(target=send) for _ in range(3)]
            for thread in threads:
                thread.start()
            for number in range(100):
                self.emit([(tup[0], number)], anchors=tup)
            for thread in threads:
                thread.join()
            self.ack(tup)

    class Fails(Bolt):
        def execute(self, tup: Tuple) -> None:
            (self.fail if tup[0] == (2, 50) else self.ack)(tup)

    fed = Fed(Crowd(), Fails()).feed(1, 2, 3)
    assert len(fed.out(1)) == 1200
    assert sorted(fed.feeder.acked) == [1, 3]
    assert fed.feeder.failed == [2]


class Listens(Spout):
    """Is given its values by a thread, as by a client's callback."""

    outputs = ("x",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.asked = 0

    def next_tuple(self) -> None:
        self.asked += 1
        if self.asked < 3:
            elsewhere(self.emit, [self.asked], msg_id=self.asked)

    def is_exhausted(self) -> bool:
        return self.asked > 5


def test_a_spout_emits_in_another_thread() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Listens(), Ack()))
        run.settle()
        assert run.tuples("b1") == [[1], [2]]
        assert run.stats().components["s"].acked == 2


def test_on_spark_a_slot_that_waits_hears_a_thread(
    target: AckerTarget,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Waits(Spout):
        outputs = ("x",)

        def next_tuple(self) -> None:
            pass

    slot = Slot(target, line(Waits(), Ack()))
    slot.batch()
    spout = slot.runner._instances[0].host.spouts[0]
    elsewhere(spout.component.emit, ["hello"])

    def wait(*_: Any) -> int:
        raise AssertionError("the batch waits for data, which it has")

    monkeypatch.setattr(Polling, "wait", wait)
    slot.batch()
    assert spout.outlet.dealt == 1


def test_what_is_wrong_with_an_emit_is_raised_where_it_is_made() -> None:
    class Wrong(Bolt):
        outputs = ("x",)

        def execute(self, tup: Tuple) -> None:
            with pytest.raises(EmitError, match="emitted 2 values"):
                elsewhere(self.emit, [1, 2], anchors=tup)
            with pytest.raises(EmitError, match=r"task_ids=True in thread 'Thread-"):
                elsewhere(self.emit, [1], task_ids=True)
            self.ack(tup)

    assert Fed(Wrong()).feed(1).feeder.acked == [1]


def test_what_is_wrong_with_an_ack_stops_the_topology() -> None:
    class Twice(Bolt):
        def execute(self, tup: Tuple) -> None:
            elsewhere(self.ack, tup)
            elsewhere(self.ack, tup)

    with pytest.raises(UncaughtError) as refused:
        Fed(Twice()).feed(1)
    assert isinstance(refused.value, TupleSettledError)


def test_a_basic_bolt_refuses_it_by_name() -> None:
    class Emits(BasicBolt):
        outputs = ("x",)

        def execute(self, tup: Tuple) -> None:
            with pytest.raises(EmitError, match=r"bolt 'b1' emitted in thread 'Thread-.*a Bolt"):
                elsewhere(self.emit, [1])

    assert Fed(Emits()).feed(1).feeder.acked == [1]


def test_the_short_way_of_an_emit_keeps_threads_apart_too() -> None:
    feeder = FeederSpout(["x"])
    topology = line(feeder, Doubles(), Ack())
    run = InlineRun("t", topology, {}, now=lambda: 0.0, strict=False)
    for value in (1, 2, 3):
        feeder.feed([value], msg_id=value)
    run.settle()
    assert sorted(row[0] for row in run.tuples("b2")) == [1, 2, 2, 3, 4, 6]
    assert (sorted(feeder.acked), feeder.failed) == ([1, 2], [3])


class AnswersLater(Bolt):
    """Acks each tuple in a thread of its own, once the others of its batch have come."""

    outputs = ("x",)
    transient = ("go",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.go = threading.Event()

    def execute(self, tup: Tuple) -> None:
        threading.Thread(target=self.answer, args=(tup,)).start()

    def answer(self, tup: Tuple) -> None:
        self.go.wait(30)
        self.emit([tup[0]], anchors=tup)
        self.ack(tup)

    def pre_commit(self, batch_id: int) -> None:
        threading.Timer(0.05, self.go.set).start()


def test_a_complete_run_waits_for_threads_before_time_passes() -> None:
    result = complete_topology(line(Numbers(20), AnswersLater()))
    assert (len(result.acked["s"]), result.failed["s"]) == (20, [])
    assert sorted(result.tuples("b1")) == [[number] for number in range(20)]


class Loses(Bolt):
    """Loses its tuples, while a thread of its own has nothing to do."""

    transient = ("ended",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.ended = threading.Event()
        threading.Thread(target=self.ended.wait, args=(30,)).start()

    def execute(self, tup: Tuple) -> None: ...

    def cleanup(self) -> None:
        self.ended.set()


def test_a_thread_that_says_nothing_stops_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.testing.complete._THREADS_SECS", 0.01)
    result = complete_topology(line(Numbers(2), Loses()))
    assert (result.acked["s"], sorted(result.failed["s"])) == ([], [0, 1])
