"""`committed`, `Unavailable` and what else the engine gives to connectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.wiring import Fed, line
from topo import (
    BasicBolt,
    Bolt,
    EmitError,
    InvalidTopologyError,
    MissingExtra,
    Spout,
    StatefulBolt,
    StatefulSpout,
    TopoError,
    TopologyBuilder,
    Tuple,
    Unavailable,
    UncaughtError,
)
from topo.engine.inline.realtime import RealTimeRun
from topo.engine.inline.run import InlineRun
from topo.testing import FeederSpout, TestCluster, make_tuple, run_bolt, run_spout


class Target:
    """An outside system: what was published, with the batch under which it was."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.batches: list[tuple[str, int]] = []
        self.failures: list[Exception] = []

    def publish(self, checkpoint: str, batch: int, rows: list[Any]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        if (checkpoint, batch) not in self.batches:
            self.rows += rows
        self.batches.append((checkpoint, batch))


TARGET = Target()


@pytest.fixture(autouse=True)
def target() -> Target:
    TARGET.__init__()  # type: ignore[misc]
    return TARGET


class Publishing(StatefulBolt):
    """Publishes a batch's values once the batch has committed."""

    def execute(self, tup: Tuple) -> None:
        batch = self.context.batch_id
        self.state[batch] = [*self.state.get(batch, []), tup[0]]
        self.ack(tup)

    def committed(self, batch_id: int) -> None:
        rows = self.state.get(batch_id)
        if rows is not None:
            TARGET.publish(self.context.checkpoint_id, batch_id, rows)
        for old in [key for key in self.state if key < batch_id]:
            del self.state[old]


def test_a_batch_is_published_when_it_has_committed_and_once_more_after_a_restart(
    target: Target,
) -> None:
    fed = Fed(Publishing())
    fed.feed(1, 2)
    assert target.rows == [1, 2]
    heard = len(target.batches)
    fed.run.restart()
    fed.feed(3)
    assert target.rows == [1, 2, 3]
    assert target.batches[heard] == target.batches[heard - 1]  # once more, for the same batch
    checkpoints = {checkpoint for checkpoint, _ in target.batches}
    numbers = [batch for _, batch in target.batches]
    assert len(checkpoints) == 1
    assert numbers == sorted(numbers)


def test_another_run_has_another_checkpoint_id(target: Target) -> None:
    for _ in range(2):
        Fed(Publishing()).feed(1)
    assert len({checkpoint for checkpoint, _ in target.batches}) == 2


class HearingSpout(Spout):
    outputs = ("x",)
    heard: ClassVar[list[int]] = []

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.left = 3

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([self.left])

    def committed(self, batch_id: int) -> None:
        self.heard.append(batch_id)


class Nothing(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        pass


def test_spouts_hear_of_commits_too() -> None:
    HearingSpout.heard.clear()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(HearingSpout(), Nothing()))
        run.settle()
        run.restart()
        run.settle()
    heard = HearingSpout.heard
    assert heard
    assert heard == sorted(heard)
    assert len(heard) > len(set(heard))


class Emitting(Bolt):
    outputs = ("x",)

    def execute(self, tup: Tuple) -> None:
        self.ack(tup)

    def committed(self, batch_id: int) -> None:
        self.emit([batch_id])


class Acking(Bolt):
    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)

    def committed(self, batch_id: int) -> None:
        for tup in self.kept:
            self.ack(tup)


@pytest.mark.parametrize("bolt", [Emitting(), Acking()])
def test_committed_must_not_emit_or_ack(bolt: Bolt) -> None:
    with pytest.raises(TopoError, match="committed emitted, acked or failed something"):
        Fed(bolt, Nothing()).feed(1) if bolt.outputs else Fed(bolt).feed(1)


class Stateless(Publishing):
    stateless = True


def test_what_keeps_nothing_cannot_publish_later() -> None:
    with pytest.raises(InvalidTopologyError) as refused:
        line(FeederSpout(["x"]), Stateless())
    assert [problem.code for problem in refused.value.problems] == ["stateless-committed"]


def test_a_test_gives_a_bolt_batches(target: Target) -> None:
    one, two = make_tuple([1]), make_tuple([2])
    run = run_bolt(Publishing(), batches=[[one], [two]])
    assert target.rows == [1, 2]
    run.commit()
    assert target.batches[-1] == target.batches[-2]
    assert run.batch([make_tuple([3])], commit=False).batch_id == 2
    assert target.rows == [1, 2]
    run.commit()
    assert target.rows == [1, 2, 3]
    assert run.acked[:2] == [one, two]


# -- Unavailable --------------------------------------------------------------------------------


class Flaky(Spout):
    """Emits numbers; raises what is in `errors` first."""

    outputs = ("x",)
    errors: ClassVar[list[Exception]] = []

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        if self.next < 3:
            self.emit([self.next], msg_id=self.next)
            self.next += 1

    def is_exhausted(self) -> bool:
        return self.next >= 3


def test_a_spout_whose_source_is_away_is_asked_again_and_says_why() -> None:
    Flaky.errors[:] = [Unavailable("the broker is away", after_secs=5), Unavailable("still away")]
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Flaky(), Nothing()))
        run.settle()
        assert (run.status, run.tuples("s")) == ("STALLED", [])
        assert run.reason.endswith("the broker is away")
        assert "spout 's' task" in run.reason
        cluster.advance(4.9)
        assert run.reason.endswith("the broker is away")
        cluster.advance(0.1)
        assert run.reason.endswith("still away")
        cluster.advance(60)
        assert run.tuples("s") == [[0], [1], [2]]
        assert (run.status, run.reason) == ("COMPLETED", "")


class Sums(StatefulBolt):
    """Raises what is in `errors` at the given hook, after it changed its state."""

    outputs = ("x", "sum")
    errors: ClassVar[dict[str, list[Exception]]] = {}

    def execute(self, tup: Tuple) -> None:
        self.state["sum"] = self.state.get("sum", 0) + tup[0]
        self._may_raise("execute")
        self.emit([tup[0], self.state["sum"]], anchors=tup)
        self.ack(tup)

    def pre_commit(self, batch_id: int) -> None:
        self._may_raise("pre_commit")

    def committed(self, batch_id: int) -> None:
        self._may_raise("committed")

    def _may_raise(self, hook: str) -> None:
        if self.errors.get(hook):
            raise self.errors[hook].pop(0)


@pytest.mark.parametrize("hook", ["execute", "pre_commit", "committed"])
def test_a_batch_is_done_again_when_what_was_away_is_back(hook: str) -> None:
    Sums.errors = {hook: [Unavailable("the database restarts", after_secs=2)]}
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Flaky(), Sums()))
        run.settle()
        assert run.status == "STALLED"
        assert "bolt 'b1' task" in run.reason
        assert "the database restarts" in run.reason
        cluster.advance(2)
        assert run.status == "COMPLETED"
        # What the rolled back batch emitted was heard by the test's recorder, and by no state.
        assert run.tuples("b1")[-3:] == [[0, 0], [1, 1], [2, 3]]


class Closing(StatefulBolt):
    """Emits a total at each tick; its target is away when the last one is committed."""

    outputs = ("count",)
    errors: ClassVar[list[Exception]] = []

    def execute(self, tup: Tuple) -> None:
        self.state["count"] = self.state.get("count", 0) + 1
        self.ack(tup)

    def on_tick(self, tup: Tuple) -> None:
        self.state["ticks"] = self.state.get("ticks", 0) + 1
        self.emit([self.state["count"]])

    def committed(self, batch_id: int) -> None:
        if self.state.get("ticks") and self.errors:
            raise self.errors.pop()


def test_what_is_away_after_the_last_tick_brings_no_second_one() -> None:
    Flaky.errors[:] = []
    Closing.errors[:] = [Unavailable("the target restarts", after_secs=2)]
    with TestCluster() as cluster:
        conf = {"topology.tick.tuple.freq.secs": 3600}
        run = cluster.submit_topology("t", line(Flaky(), Closing()), conf)
        run.settle()
        assert run.reason.endswith("the target restarts")
        cluster.advance(2)
        assert run.status == "COMPLETED"
        assert run.tuples("b1") == [[3]]


@pytest.mark.parametrize("policy", ["stop", "fail"])
def test_a_tuple_does_not_fail_for_what_is_away(policy: str) -> None:
    Sums.errors = {"execute": [Unavailable("away")]}
    fed = Fed(Sums(), conf={"topology.uncaught.error": policy})
    fed.feed(1)
    assert fed.run.status == "STALLED"
    assert fed.feeder.failed == []


FAIL = {"topology.uncaught.error": "fail"}


def test_an_error_in_next_tuple_is_reported_and_the_spout_asked_again() -> None:
    Flaky.errors[:] = [ValueError("no such page")]
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Flaky(), Nothing()), FAIL)
        run.settle()
        assert run.status == "STALLED"
        cluster.advance(60)
        assert run.status == "COMPLETED"
        (error,) = [error for error in run.errors() if error.type == "ValueError"]
        assert (error.kind, error.component, error.message) == ("uncaught", "s", "no such page")


def test_an_error_in_next_tuple_stops_the_topology_by_default() -> None:
    Flaky.errors[:] = [ValueError("no such page")]
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Flaky(), Nothing()))
        with pytest.raises(ValueError, match="no such page"):
            run.settle()
        assert run.status == "FAILED"


class Told(FeederSpout):
    """Raises in `ack` and `fail`."""

    def ack(self, msg_id: Any) -> None:
        super().ack(msg_id)
        raise KeyError("ack")

    def fail(self, msg_id: Any, reason: str = "") -> None:
        super().fail(msg_id)
        raise KeyError("fail")


class FailOdd(Bolt):
    def execute(self, tup: Tuple) -> None:
        if tup[0] % 2:
            self.fail(tup)
        else:
            self.ack(tup)


@pytest.mark.parametrize("numbers", [(0, 2, 4), (0, 1, 2, 3)])
def test_errors_in_ack_and_fail_are_reported_and_the_others_still_told(
    numbers: tuple[int, ...],
) -> None:
    feeder = Told(["x"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(feeder, FailOdd()), FAIL)
        for number in numbers:
            feeder.feed([number], msg_id=number)
        run.settle()
        assert sorted([*feeder.acked, *feeder.failed]) == list(numbers)
        assert run.status == "ACTIVE"
        assert sum(e.count for e in run.errors() if e.type == "KeyError") == len(numbers)


@pytest.mark.parametrize("hook", ["pre_commit", "committed"])
def test_other_errors_before_and_after_a_commit_roll_the_batch_back(hook: str) -> None:
    Sums.errors = {hook: [OSError("disk full")]}
    fed = Fed(Sums(), conf=FAIL)
    fed.feed(1)
    assert fed.run.status == "STALLED"
    assert f"{hook} raised OSError: disk full" in fed.run.reason
    Sums.errors = {hook: [OSError("disk full")]}
    with pytest.raises(OSError, match="disk full"):
        Fed(Sums()).feed(1)


def test_unavailable_keeps_its_class_and_pause_on_its_way_to_the_driver() -> None:
    from topo.runtime.user_errors import uncaught
    from topo.wire.column import dump, load

    error = load(dump(uncaught(Unavailable("away", after_secs=7), "bolt 'b'", "b", 2, None)))
    assert isinstance(error, Unavailable)
    assert isinstance(error, UncaughtError)
    assert error.after_secs == 7


# -- the smaller ones ---------------------------------------------------------------------------


class Needy(Nothing):
    requires = ("numpy>=1.20", "no_such_client>=2.6")


class TooNew(Nothing):
    requires = ("numpy>=99",)


class Misspelt(Nothing):
    requires = "numpy==2"


def test_what_a_component_requires_is_named_before_the_first_batch() -> None:
    feeder = FeederSpout(["x"])
    with pytest.raises(MissingExtra, match=r"bolt 'b1' \(Needy\): no_such_client>=2.6 is not"):
        TestCluster().submit_topology("t", line(feeder, Needy()))
    with pytest.raises(MissingExtra, match=r"numpy>=99 is needed, \d"):
        TestCluster().submit_topology("t", line(feeder, TooNew()))
    with pytest.raises(InvalidTopologyError, match="'numpy==2' in `requires` is no requirement"):
        line(feeder, Misspelt())


class Measuring(Bolt):
    def execute(self, tup: Tuple) -> None:
        self.context.gauge("lag", tup[0], topic="t", partition=3)
        self.context.counter("fetched", 2)
        if tup[0] == 0:
            self.context.gauge("lag", None, topic="t", partition=3)
        self.ack(tup)


def test_gauges_keep_the_latest_level_and_counters_add_up() -> None:
    fed = Fed(Measuring())
    fed.feed(5)
    fed.feed(4)
    stats = fed.run.stats().components["b1"]
    assert dict(stats.gauges) == {'lag{partition="3",topic="t"}': 4.0}
    assert dict(stats.counters) == {"fetched": 4}
    fed.feed(0)
    assert dict(fed.run.stats().components["b1"].gauges) == {}


class Many(Spout):
    outputs = ("word", "count")

    def __init__(self, rows: Any, msg_ids: Any = None) -> None:
        self.rows, self.msg_ids = rows, msg_ids

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.done = False

    def next_tuple(self) -> None:
        if not self.done:
            self.emit_many(self.rows, msg_ids=self.msg_ids)
            self.done = True

    def is_exhausted(self) -> bool:
        return self.done


ROWS = [["a", 1], ["b", 2]]


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        tuple(map(tuple, ROWS)),
        {"count": [1, 2], "word": ["a", "b"]},
        pa.table({"word": ["a", "b"], "count": [1, 2]}),
        pa.record_batch({"word": ["a", "b"], "count": [1, 2]}),
    ],
)
@pytest.mark.parametrize("msg_ids", [None, [7, None], [7, 8]])
def test_many_rows_are_emitted_as_if_one_by_one(given: Any, msg_ids: Any) -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Many(given, msg_ids), Nothing()))
        run.settle()
        assert run.tuples("s") == ROWS
        assert run.acked.get("s", []) == [one for one in msg_ids or [] if one]
    made = run_spout(Many(given, msg_ids)).emitted
    assert [list(row) for row in made] == ROWS


SEEN: list[Any] = []
"""What a bolt over batches got: it is unpickled in this process."""


class OverBatches(BasicBolt):
    def process_batch(self, batch: pa.RecordBatch) -> None:
        SEEN.append((list(map(str, batch.schema.types)), batch.to_pylist()))


@pytest.mark.parametrize("msg_ids", [None, range(300)])
def test_a_large_table_is_to_bolts_what_its_rows_are(msg_ids: Any) -> None:
    words = pa.array([None if n % 7 == 0 else f"w{n % 5}" for n in range(300)])
    table = pa.table({"word": words.dictionary_encode(), "count": pa.array(range(300), pa.int16())})
    results = []
    for given in (
        [list(row.values()) for row in table.to_pylist()],
        table,
        pa.concat_tables([table, table])[:300],
        pa.concat_tables([table, table])[300:].combine_chunks().to_batches()[0],
        {"word": words, "count": table.column("count")},
    ):
        SEEN.clear()
        topology = line(Many(given, msg_ids), OverBatches())
        run = InlineRun("t", topology, None, now=lambda: 0.0, strict=False, record=False)
        run.settle()
        acked = run.stats().components["s"].acked
        results.append((list(SEEN), acked))
    assert results == results[:1] * 5
    assert results[0][0][0][0] == ["string", "int64"]
    assert results[0][1] == len(msg_ids or [])


@pytest.mark.parametrize(
    ("given", "msg_ids", "message"),
    [
        ([["a", 1], ["b"]], None, "emitted 1 values"),
        (["ab"], None, "values are a list or a tuple"),
        ("ab", None, "called emit_many with a str"),
        ({"word": ["a"]}, None, "whose fields are word, count"),
        ({"word": ["a"], "count": []}, None, "columns of different lengths"),
        (ROWS, [1], "2 rows with 1 message ids"),
    ],
)
def test_rows_that_do_not_fit_are_refused_whole(given: Any, msg_ids: Any, message: str) -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Many(given, msg_ids), Nothing()))
        with pytest.raises(EmitError, match=message):
            run.settle()
        assert run.tuples("s") == []


class Shards(StatefulSpout):
    """Counts to three in each shard it owns."""

    outputs = ("task", "shard", "number")

    def next_tuple(self) -> None:
        for shard in range(10):
            if self.owns(shard) and self.state.get(shard, 0) < 3:
                self.state[shard] = number = self.state.get(shard, 0) + 1
                self.emit([self.context.this_task_index, shard, number])
                return


class EvenOdd(Shards):
    def owner(self, key: Any, tasks: int) -> int:
        return int(key) % tasks


@pytest.mark.parametrize("kind", [Shards, EvenOdd])
def test_a_stateful_spouts_shards_are_dealt_and_kept(kind: type[Shards]) -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", kind(), parallelism=2)
    builder.set_bolt("b", Nothing()).shuffle_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for _ in range(40):
            run.step()
            run.restart()
        rows = run.tuples("s")
    assert sorted(row[1:] for row in rows) == [[s, n] for s in range(10) for n in (1, 2, 3)]
    tasks = {shard: {task for task, of, _ in rows if of == shard} for shard in range(10)}
    assert all(len(owners) == 1 for owners in tasks.values())
    assert len(set().union(*tasks.values())) == 2
    if kind is EvenOdd:
        assert all(owners == {shard % 2} for shard, owners in tasks.items())


WAKES: list[Callable[[], None]] = []
EMITTED: list[int] = []


class Pushed(Spout):
    """Emits when it is asked a second time."""

    outputs = ("x",)

    def next_tuple(self) -> None:
        if not WAKES:
            WAKES.append(self.wake)
        elif not EMITTED:
            EMITTED.append(1)
            self.emit([1])


def test_waking_ends_the_wait_of_an_idle_topology() -> None:
    run = RealTimeRun("t", line(Pushed(), Nothing()), {"topology.batch.poll.ms": 3_600_000}).start()
    try:
        while not EMITTED:  # the test's time-out ends it, if nothing wakes
            for wake in WAKES:
                wake()
            run.wait(0.01)
    finally:
        run.kill()
