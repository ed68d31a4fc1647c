"""Collectors in running topologies: emit, ack, fail, reset, task ids and direct emits."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import pytest

from tests.conformance.doubles import Failing, Identity, Sink, TaskIndex, Words
from tests.wiring import Fed, line
from topo import (
    BasicBolt,
    Bolt,
    EmitError,
    FailTuple,
    OutputCollector,
    Spout,
    Stream,
    TopologyBuilder,
    Tuple,
)
from topo.engine.inline.run import InlineRun
from topo.testing import complete_topology


class Keeps(Bolt):
    """Keeps numbers; a negative one settles the kept one of that size, by `call`."""

    outputs = ("x",)

    def __init__(self, call: str) -> None:
        self.call = call

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: dict[int, Tuple] = {}

    def execute(self, tup: Tuple) -> None:
        if tup.x >= 0:
            self.kept[tup.x] = tup
            return
        kept = self.kept.pop(-tup.x)
        if self.call == "fail":
            self.fail(kept, "late")
        else:
            self.emit([-tup.x], anchors=kept)
            self.ack(kept)
        self.ack(tup)


@pytest.mark.parametrize("restart", [False, True])
def test_a_kept_tuple_may_be_anchored_to_and_acked_in_any_later_batch(restart: bool) -> None:
    fed = Fed(Keeps("ack"), Failing(2)).feed(1, 2, 3)
    assert fed.feeder.acked == []
    if restart:
        fed.run.restart()
    fed.feed(-1, -2)
    assert sorted(fed.feeder.acked) == [-2, -1, 1]
    assert fed.feeder.reasons == {2: "failed by 'b2' task 2: not wanted"}
    assert fed.run.stats().components["b1"].held == 1
    fed.cluster.advance(31)
    assert fed.feeder.reasons[3] == "timeout after 30 s; held by 'b1' task 1"


def test_a_kept_tuple_may_be_failed_later() -> None:
    fed = Fed(Keeps("fail")).feed(1)
    fed.feed(-1)
    assert fed.feeder.reasons == {1: "failed by 'b1' task 1: late"}
    assert fed.feeder.acked == [-1]


def test_a_forgotten_tuple_is_nobodys() -> None:
    class Forgets(Bolt):
        def execute(self, tup: Tuple) -> None: ...

    fed = Fed(Forgets()).feed(1)
    assert fed.run.stats().components["b1"].held == 0
    fed.cluster.advance(30)
    assert fed.feeder.reasons == {1: "timeout after 30 s"}


def test_several_anchors_any_iterable() -> None:
    class Joins(Bolt):
        outputs = ("x",)

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.kept: set[Tuple] = set()

        def execute(self, tup: Tuple) -> None:
            self.kept.add(tup)
            if len(self.kept) == 3:
                self.emit([sum(k.x for k in self.kept)], anchors=(k for k in self.kept))
                for kept in self.kept:
                    self.collector.ack(kept)
                self.kept.clear()

    fed = Fed(Joins(), Failing(6)).feed(1, 2)
    fed.feed(3, 4)
    fed.feed(5, 6)
    assert fed.out() == [6, 15]
    assert sorted(fed.feeder.failed) == [1, 2, 3]
    assert sorted(fed.feeder.acked) == [4, 5, 6]


def test_an_emit_without_anchors_warns_once_and_is_counted() -> None:
    class Forgetful(Bolt):
        outputs = ("x",)

        def execute(self, tup: Tuple) -> None:
            self.emit([tup.x])
            self.ack(tup)

    fed = Fed(Forgetful(), Failing(1, 2))
    with pytest.warns(UserWarning, match="bolt 'b1' emits without anchors while") as warned:
        fed.feed(1).feed(2)
    assert len(warned) == 1
    assert fed.run.stats().components["b1"].unanchored == 2
    assert fed.feeder.acked == [1, 2]
    fed.feed_untracked(3)
    assert fed.run.stats().components["b1"].unanchored == 2


def test_an_emit_with_no_anchors_on_purpose_does_not_warn() -> None:
    class Deliberate(Bolt):
        outputs = ("x",)

        def execute(self, tup: Tuple) -> None:
            self.emit([tup.x], anchors=[])
            self.ack(tup)

    fed = Fed(Deliberate(), Failing(1)).feed(1)
    assert fed.feeder.acked == [1]
    assert fed.run.stats().components["b1"].unanchored == 0


def test_anchors_to_untracked_tuples_do_nothing() -> None:
    fed = Fed(Identity(), Sink()).feed_untracked(1)
    assert fed.out() == [1]
    assert (fed.feeder.acked, fed.feeder.failed) == ([], [])


def test_reset_timeout_of_a_basic_bolts_input() -> None:
    class Slow(BasicBolt):
        outputs = ("x",)

        def execute(self, tup: Tuple) -> None:
            self.reset_timeout(tup)
            self.emit([tup.x])

    assert Fed(Slow(), Sink()).feed(1, 2).feeder.acked == [1, 2]


def test_fail_without_a_reason_names_who() -> None:
    class Refuses(Bolt):
        def execute(self, tup: Tuple) -> None:
            self.fail(tup)

    assert Fed(Refuses()).feed(1).feeder.reasons == {1: "failed by 'b1' task 1"}


@pytest.mark.parametrize("base", [Bolt, BasicBolt])
def test_fail_tuple_may_report(base: type) -> None:
    class Reports(base):  # type: ignore[misc]
        def execute(self, tup: Tuple) -> None:
            raise FailTuple("odd", report=tup.x == 1)

    fed = Fed(Reports()).feed(1, 2)
    assert fed.feeder.reasons[1] == "failed by 'b1' task 1: odd"
    kinds = {(e.kind, e.component): e.count for e in fed.run.errors()}
    assert kinds == {("failed", "s"): 2, ("reported", "b1"): 1}


def test_report_error_shows_and_goes_on() -> None:
    class Reports(BasicBolt):
        def execute(self, tup: Tuple) -> None:
            self.report_error(ValueError("odd") if tup.x else "just text")

    fed = Fed(Reports()).feed(0, 1, 1)
    assert fed.run.status == "ACTIVE"
    latest, text = fed.run.errors()
    assert (latest.kind, latest.type, latest.message, latest.count) == (
        "reported",
        "ValueError",
        "odd",
        2,
    )
    assert (text.type, text.message) == ("", "just text")


# -- task ids and direct emits ---------------------------------------------------------------------


class AsksSpout(Spout):
    outputs = ("x", "targets")

    def prepare(self) -> None:
        """A bolt's hook; in a spout it is a method of the user's own."""

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.asked: list[Any] = []

    def next_tuple(self) -> None:
        if len(self.asked) < 4:
            number = len(self.asked)
            self.asked.append(self.emit([number, None], msg_id=number, task_ids=True))

    def is_exhausted(self) -> bool:
        return len(self.asked) >= 4

    def close(self) -> None:
        heard.append(self.asked)


class AsksBolt(Bolt):
    outputs = ("targets",)

    def execute(self, tup: Tuple) -> None:
        targets = self.emit([None], anchors=tup, task_ids=True)
        heard.append(targets)
        assert self.emit([None], anchors=tup) is None
        self.ack(tup)


class AsksBasicBolt(BasicBolt):
    outputs = ("targets",)

    def execute(self, tup: Tuple) -> None:
        heard.append(self.emit([None], task_ids=True))
        assert self.emit([None]) is None


heard: list[Any] = []


@pytest.mark.parametrize("asks", [AsksBolt, AsksBasicBolt])
@pytest.mark.parametrize(
    ("grouping", "expected"),
    [("all", [[4, 5]] * 4), ("global", [[4]] * 4), ("shuffle", [[4], [4], [5], [5]])],
)
def test_task_ids_of_an_emit(asks: Any, grouping: str, expected: Any) -> None:
    heard.clear()
    builder = TopologyBuilder()
    builder.set_spout("a", AsksSpout())
    builder.set_bolt("b", asks()).shuffle_grouping("a")
    reads = builder.set_bolt("d", Sink(), 2)
    getattr(reads, f"{grouping}_grouping")("b")
    builder.set_bolt("c", Sink()).all_grouping("a")
    result = complete_topology(builder.create_topology())
    assert sorted(result.acked["a"]) == [0, 1, 2, 3]
    spouts = heard.pop()
    assert [sorted(targets) for targets in spouts] == [[2, 3]] * 4
    # Between two of these lies another emit, so that a shuffle of two asks for the same task.
    assert sorted(heard) == expected or heard in ([[4]] * 4, [[5]] * 4)


def test_task_ids_without_readers_are_none() -> None:
    heard.clear()
    builder = TopologyBuilder()
    builder.set_spout("a", AsksSpout())
    complete_topology(builder.create_topology())
    assert heard == [[[], [], [], []]]


class Dispatcher(Spout):
    """Deals by hand, over the tasks of the bolt "d"."""

    outputs = {"out": Stream("x", direct=True)}

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.tasks = context.component_tasks("d")
        self.sent = 0

    def next_tuple(self) -> None:
        if not self.is_exhausted():
            task = self.tasks[self.sent % len(self.tasks)]
            self.emit_direct(task, [self.sent], stream="out", msg_id=self.sent)
            self.sent += 1

    def is_exhausted(self) -> bool:
        return self.sent >= 6


class DirectBolt(Bolt):
    outputs = {"out": Stream("x", direct=True)}

    def execute(self, tup: Tuple) -> None:
        tasks = self.context.component_tasks("e")
        self.emit_direct(tasks[tup.x % 2], [tup.x], stream="out", anchors=tup)
        self.emit_direct(tasks[tup.x % 2], [-tup.x], stream="out", anchors=tup)
        self.ack(tup)


def test_direct_emits_of_spouts_and_bolts() -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Dispatcher())
    builder.set_bolt("d", DirectBolt(), 3).direct_grouping("s", stream="out")
    builder.set_bolt("e", TaskIndex(), 2).direct_grouping("d", stream="out")
    result = complete_topology(builder.create_topology())
    expected = [[x % 2, sign * x] for x in range(6) for sign in (1, -1)]
    assert sorted(result.tuples("e")) == sorted(expected)
    assert sorted(result.acked["s"]) == list(range(6))


def test_collectors_do_not_pickle() -> None:
    class Port:
        emit = emit_direct = report_error = ack = fail = reset_timeout = None

    with pytest.raises(TypeError, match="OutputCollector belongs to its task"):
        pickle.dumps(OutputCollector(Port()))


def test_a_collector_may_be_subclassed() -> None:
    acked: list[Tuple] = []

    class Counting(OutputCollector):
        def ack(self, tup: Tuple) -> None:
            acked.append(tup)
            super().ack(tup)

    class Wraps(Identity):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.mine = Counting(collector._port)

        def execute(self, tup: Tuple) -> None:
            self.mine.emit([tup.x], anchors=tup)
            self.mine.ack(tup)

    fed = Fed(Wraps()).feed(1, 2)
    assert (len(acked), fed.feeder.acked, fed.out()) == (2, [1, 2], [1, 2])


def test_mock_sources_replace_a_spout() -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Words(), 2)
    builder.set_bolt("b", TaskIndex()).shuffle_grouping("s")
    result = complete_topology(builder.create_topology(), {"s": [["a"], ["b"], ["c"]]})
    assert sorted(result.tuples("b")) == [[0, "a"], [0, "b"], [0, "c"]]


class Greets(Bolt):
    """Emits one tuple when it is prepared, and one for each it gets."""

    outputs = ("x",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.emit(["hello"])

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values, anchors=tup)
        self.ack(tup)


class GreetsToo(BasicBolt):
    outputs = ("x",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.emit(["hello"])

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values)


class Unfriendly(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        if tup[0] == "hello":
            raise FailTuple


@pytest.mark.parametrize("kind", [Greets, GreetsToo])
def test_what_prepare_emits_belongs_to_no_input(kind: type[Bolt | BasicBolt]) -> None:
    fed = Fed(kind(), Unfriendly()).feed(1, 2)
    assert fed.out() == ["hello", 1, 2]
    assert fed.feeder.acked == [1, 2]
    assert fed.run.stats().components["b1"].unanchored == 0


class Ticks(Bolt):
    def execute(self, tup: Tuple) -> None:
        self.ack(tup)


class TicksToo(BasicBolt):
    def execute(self, tup: Tuple) -> None: ...


@pytest.mark.parametrize("kind", [Ticks, TicksToo])
def test_ticks_are_not_counted_as_tuples(kind: type[Bolt | BasicBolt]) -> None:
    fed = Fed(kind(), conf={"topology.tick.tuple.freq.secs": 1}).feed(1)
    fed.cluster.advance(3)
    figures = fed.run.stats().components["b1"]
    assert (figures.executed, figures.acked) == (1, 1)


class Numbers(Spout):
    """Emits in every form there is."""

    outputs = ("a", "b")
    emits = 0
    acked: ClassVar[list[Any]] = []

    def next_tuple(self) -> None:
        if self.emits:
            return
        row: list[Any] = [0, "list"]
        self.emit(row, msg_id="list")
        self.emit((1, "tuple"), msg_id="tuple")
        assert self.collector.emit([2, "asked"], msg_id="asked", task_ids=True) == [1]
        self.collector.emit_many([[3, "many"], [4, "more"]], msg_ids=["many", None])
        columns: dict[str, list[Any]] = {"a": [5], "b": ["column"]}
        self.collector.emit_many(columns, msg_ids=["column"])
        with pytest.raises(EmitError, match="3 values"):
            self.emit([1, 2, 3])
        self.emit([6, "untracked"])
        self.emits += 1

    def is_exhausted(self) -> bool:
        return bool(self.emits)

    def ack(self, msg_id: Any) -> None:
        self.acked.append(msg_id)


class EmitsAsItIsWritten(Bolt):
    """Is not rewritten, as it passes its tuple on."""

    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        self.work(tup)
        self.ack(tup)

    def work(self, tup: Tuple) -> None:
        self.emit([tup.a, tup.b], anchors=tup)
        with pytest.raises(TypeError, match="anchor"):
            self.emit([tup.a, "no"], anchors=5)  # type: ignore[call-overload]
        self.emit((tup.a, "tuple"), anchors=[tup, tup])
        self.emit([tup.a, "unanchored"], anchors=[])
        assert self.collector.emit([tup.a, "asked"], anchors=tup, task_ids=True) == [2]
        if tup.b == "many":
            self.emit([tup.a, "failing"], anchors=(tup,))


class FailsOne(BasicBolt):
    seen: ClassVar[list[Any]] = []

    def process(self, a: int, b: str) -> None:
        self.seen.append((a, b))
        if b == "failing":
            raise FailTuple("as asked")


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_emitted_in_any_form_arrives_in_order_with_its_anchors(strict: bool) -> None:
    Numbers.acked.clear()
    FailsOne.seen.clear()
    topology = line(Numbers(), EmitsAsItIsWritten(), FailsOne())
    conf = {"topology.max.spout.pending": 10}
    run = InlineRun("t", topology, conf, now=lambda: 0.0, strict=strict, record=False)
    run.settle()
    names = ["list", "tuple", "asked", "many", "more", "column", "untracked"]
    assert FailsOne.seen == [
        (number, word)
        for number, name in enumerate(names)
        for word in [name, "tuple", "unanchored", "asked", *["failing"][: name == "many"]]
    ]
    assert sorted(Numbers.acked) == ["asked", "column", "list", "tuple"]


class EmitsBothWays(BasicBolt):
    outputs = ("a", "b")

    def process_batch(self, batch: Any) -> None:
        """Keep nothing."""

    def pre_commit(self, batch_id: int) -> None:
        if batch_id == 0:
            self.emit([0, "single"])
            self.emit_batch({"a": [1, 2], "b": ["first", "second"]})
            self.emit([3, "single"])


@pytest.mark.parametrize("record", [True, False])
def test_single_emits_and_batches_stay_in_order_while_somebody_looks(record: bool) -> None:
    FailsOne.seen.clear()
    topology = line(Numbers(), EmitsBothWays(), FailsOne())
    run = InlineRun("t", topology, {}, now=lambda: 0.0, strict=False, record=record)
    run.settle()
    assert FailsOne.seen == [(0, "single"), (1, "first"), (2, "second"), (3, "single")]
    if record:
        assert run.stats().components["b1"].emitted == 4
