"""Other numbers of tasks: ids, what is refused and in which words, and what a crash leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.test_plan import bolt, spout
from tests.unit.test_rescaling import PLAN, moves
from topo import (
    BasicBolt,
    Bolt,
    EventTime,
    InvalidTopologyError,
    KeyedBolt,
    PerEvent,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    WindowAggregate,
)
from topo import Count as CountOf
from topo.config import Config
from topo.engine.spark.driver.moves import Moves
from topo.engine.spark.driver.run_resources import if_asked
from topo.engine.spark.plan import Plan, make_plan
from topo.engine.spark.realtime.epochs import Committed, EpochRecord
from topo.engine.spark.realtime.records import read_values
from topo.engine.spark.realtime.rescaling import deal_tasks, drop_gone_tasks
from topo.engine.spark.realtime.store import EpochStore
from topo.errors import ConfigError, RunError, TopoError
from topo.metrics.counters import TaskMetrics
from topo.metrics.totals import RunTotals
from topo.runtime.dealing import CannotDeal, Resize, deal_all, dealers
from topo.runtime.task import full_conf
from topo.storage.checkpoints import kept_task_ids, task_ids_in
from topo.storage.keyed import saved_state
from topo.storage.saving import Changes, SavedMapping
from topo.testing import FeederSpout, TestCluster
from topo.topology.layout import MAX_TASKS, TASK_IDS, TaskLayout, listed_ids, with_other_counts
from topo.tracking.ids import Updates

# -- ids ------------------------------------------------------------------------------------------


def three(count: int = 2) -> Topology:
    return Topology(
        [
            spout("a"),
            bolt("b", ("a", "fields"), parallelism=count),
            bolt("c", ("b", "fields"), parallelism=2),
        ]
    )


def test_new_tasks_have_ids_behind_all_others_and_those_keep_theirs() -> None:
    before = TaskLayout(three())
    ids = with_other_counts(before.components, {"b": 4})
    assert ids == {"a": [1, 1], "b": [6, 4], "c": [4, 2]}
    layout = TaskLayout(three(), {TASK_IDS: ids})
    assert (layout.count, layout.highest, layout.ids) == (7, 9, [1, 4, 5, 6, 7, 8, 9])
    assert [layout.component_of(task) for task in layout.ids] == list("accbbbb")
    assert [layout.index_of(task) for task in (4, 5, 6, 9)] == [0, 1, 0, 3]
    for task in (0, 2, 3, 10):
        with pytest.raises(Exception, match=f"no task {task}; the topology has tasks 1, 4 to 9"):
            layout.component_of(task)
    assert with_other_counts(layout.components, {"b": 1, "c": 3}) == {
        "a": [1, 1], "b": [10, 1], "c": [11, 3],
    }  # fmt: skip


def test_ids_that_run_out_are_taken_from_gaps() -> None:
    present = {"a": range(1, 2), "b": range(4, 6), "c": range(MAX_TASKS, MAX_TASKS + 1)}
    assert with_other_counts(present, {"b": 2})["b"] == [2, 2]
    assert with_other_counts(present, {"b": 3})["b"] == [6, 3]


def test_ids_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidTopologyError, match="gives 'a' and 'b' the same ids"):
        TaskLayout(three(), {TASK_IDS: {"a": [1, 3], "b": [3, 1], "c": [9, 2]}})
    with pytest.raises(InvalidTopologyError, match="65536 tasks; 65535 is the most"):
        TaskLayout(three(), {TASK_IDS: {"a": [1, 1], "b": [2, 1], "c": [MAX_TASKS, 2]}})
    for bad in ({"a": [0, 1]}, {"a": [1]}, {"a": 3}, [1, 2], {"a": [1, "2"]}):
        with pytest.raises(ConfigError, match=r"must be a mapping of components to \[first id"):
            Config.validate({TASK_IDS: bad})
    assert listed_ids([1, 2, 3, 7, 9, 10]) == "1 to 3, 7, 9 to 10"


def test_only_new_ids_are_another_number_of_tasks() -> None:
    before = make_plan(three(), 2).to_json()

    def plan(ids: dict[str, list[int]] | None, count: int = 2) -> Plan:
        return make_plan(three(count), 2, {TASK_IDS: ids} if ids else {})

    dealt = plan({"a": [1, 1], "b": [6, 4], "c": [4, 2]})
    assert dealt.keeps_ids
    assert dealt.is_rescaled(before, deals=True)
    assert dealt.resized(json.loads(before)) == {"b": (range(2, 4), range(6, 10))}
    assert not dealt.is_rescaled(before), "nobody asked for it"
    assert not plan(None, 3).is_rescaled(before, deals=False), "the code alone asks for nothing"
    overlapping = plan({"a": [1, 1], "b": [3, 3], "c": [6, 2]})
    assert not overlapping.is_rescaled(before, deals=True)
    shifted = plan({"a": [1, 1], "b": [8, 4], "c": [5, 2]})
    assert not shifted.is_rescaled(before, deals=True), "ids of c mean other tasks"
    fewer = make_plan(Topology([spout("a"), bolt("b", ("a", "fields"))]), 2, {TASK_IDS: {}})
    assert not fewer.is_rescaled(before, deals=True)


def test_a_checkpoint_tells_the_ids_that_it_keeps(tmp_path: Path) -> None:
    assert kept_task_ids(str(tmp_path)) is None
    assert kept_task_ids("hdfs://nn/state") is None
    for text in ("", "{}", '{"task_ids": 3}', '{"task_ids": {"a": 3}}', '{"task_ids": null}'):
        assert task_ids_in(text) is None
    (tmp_path / "topo-plan.json").write_text('{"task_ids": {"a": [4, 2]}}')
    assert kept_task_ids(f"file://{tmp_path}") == {"a": [4, 2]}


def test_other_tasks_that_cannot_be_are_no_move() -> None:
    several = moves({})
    with pytest.raises(Exception, match="no component 'nobody'"):
        several.ask(None, 2, {"nobody": 3})
    with pytest.raises(CannotDeal, match="spout 's' cannot have another number of tasks"):
        several.ask(3, 2, {"s": 3})
    assert not several.is_asked


def test_a_move_to_other_tasks_and_back() -> None:
    topology = run_of(Words(), BY_KEY).topology
    conf = full_conf({"topology.checkpoint.dir": "/state", "topology.workers": 2})
    several = Moves(topology, conf, "local[4]")
    changed = {"topology.workers": 2, TASK_IDS: {"b": [4, 3], "s": [3, 1]}}
    assert several.ask(None, 2, {"b": 3}, conf) == changed, "the slots stay"
    moving = several.begin(conf)
    assert moving == {**conf, **changed}
    back = several.take_back(moving, RunError("no room"))
    assert back == {**conf, TASK_IDS: {"b": [1, 2], "s": [3, 1]}}, "by name: it is dealt back"
    assert several.ask(4, 2, {"b": 1}, back) == {
        "topology.workers": 4, TASK_IDS: {"b": [4, 1], "s": [3, 1]},
    }  # fmt: skip
    assert several.arrive(several.begin(back), 4)[TASK_IDS] == {"b": [4, 1], "s": [3, 1]}
    with pytest.raises(CannotDeal, match="bolt 'b' has 1 tasks already"):
        several.ask(None, 4, {"b": 1}, {**conf, TASK_IDS: {"b": [4, 1], "s": [3, 1]}})
    assert not several.is_asked


def to_other_tasks(master: str, count: int, workers: int | None = None) -> tuple[Moves, Any]:
    """Return moves of which one to so many tasks of `b` has begun, and its settings."""
    topology = run_of(Words(), BY_KEY).topology
    conf = full_conf({"topology.checkpoint.dir": "/state", "topology.workers": 2})
    several = Moves(topology, conf, master)
    several.ask(workers, 2, {"b": count}, conf)
    return several, several.begin(conf)


TWO, THREE = {"b": [1, 2], "s": [3, 1]}, {"b": [4, 3], "s": [3, 1]}


def test_the_way_back_needs_no_proof_of_few_keys() -> None:
    run = run_of(Words(), BY_KEY)
    several, moving = to_other_tasks("local[4]", 1)
    there, back = Resize("b", range(1, 3), range(4, 5)), Resize("b", range(4, 5), range(1, 3))
    dealt = deal_all(several.dealers(moving, [there]), [there], run._saved)
    with pytest.raises(CannotDeal, match="has 40 keys in 1 tasks, which proves nothing"):
        deal_all(several.dealers(moving, [back]), [back], dealt)
    before = several.take_back(moving, RunError("no room"))
    again = deal_all(several.dealers(before, [back]), [back], dealt)
    assert {task: saved_state(each) for task, each in again.items()} == {
        task: saved_state(run._saved[task]) for task in (1, 2)
    }
    several.arrive(before, 2)
    with pytest.raises(CannotDeal, match="proves nothing"):  # it has gone back: this is another
        deal_all(several.dealers(before, [back]), [back], dealt)


def test_what_cannot_be_dealt_back_stays_and_the_true_cause_is_told() -> None:
    several, moving = to_other_tasks("local[4]", 3)
    several.found(None)  # before it was dealt
    back = several.take_back(moving, RunError("no room", hint="make some"))
    several.found(THREE)
    stays = several.refuse(back, CannotDeal("redistribute raised KeyError: 3"))
    assert stays == {**back, TASK_IDS: THREE}
    assert str(several.failure) == (
        "no room; its tasks cannot be dealt back, redistribute raised KeyError: 3; now 'b' has 3 "
        "tasks; make some"
    )
    assert several.arrive(stays, 2) == stays
    several.refuse(moving, CannotDeal("of an earlier driver"))
    assert str(several.failure) == "of an earlier driver", "there was no other cause"


def test_a_move_of_a_run_that_loses_a_host_keeps_the_tasks_that_were_asked_for() -> None:
    several, moving = to_other_tasks("local[4]", 3)
    several.arrive(moving, 2)
    several.ask(None, 2, {"b": 4}, moving)
    several.shrink(1)  # before it begins
    changed = several.begin(moving)
    four = {"b": [7, 4], "s": [3, 1]}
    assert (changed["topology.workers"], changed[TASK_IDS]) == (1, four)
    several.shrink(1)  # on its way
    assert several.begin(changed)[TASK_IDS] == four
    assert several.take_back(changed, RunError("no room"))[TASK_IDS] == THREE


def test_fewer_slots_than_asked_for_leave_the_tasks_that_were_dealt() -> None:
    several, moving = to_other_tasks("spark://m1:7077", 3, workers=8)
    arrived = several.arrive(moving, 4)
    assert (arrived["topology.workers"], arrived[TASK_IDS]) == (2, THREE)
    assert several.failure is not None
    assert several.failure.message == "there are cores for 4 slots, and not for 8"


@pytest.mark.parametrize("kept", [None, THREE])
def test_what_another_driver_began_is_refused_by_what_the_checkpoint_keeps_anywhere(
    kept: Any,
) -> None:
    class Remote:
        """A checkpoint on a file system that this process has no files of."""

        task_ids = kept

    several, moving = to_other_tasks("local[4]", 4)
    several = Moves(run_of(Words(), BY_KEY).topology, moving, "local[4]")
    conf = {**moving, "topology.checkpoint.dir": "hdfs://nn/state"}
    run: Any = SimpleNamespace(conf=conf, moves=several)

    def deal(before: Any) -> None:
        raise CannotDeal(f"not {before}")

    rescale = if_asked(run, cast("Any", Remote), deal)
    assert rescale is not None
    with pytest.raises(CannotDeal, match="not those before") as refused:
        rescale(cast("Any", "those before"))
    assert several.refuse(conf, refused.value) == {**conf, TASK_IDS: kept}
    assert several.failure is refused.value
    unasked: Any = SimpleNamespace(conf={"topology.workers": None})
    assert if_asked(unasked, cast("Any", Remote), deal) is None


def test_counts_of_tasks_that_are_gone_stay_with_their_component() -> None:
    layout = TaskLayout(three())
    totals = RunTotals(three(), layout)

    def counted(executed: int) -> TaskMetrics:
        metrics = TaskMetrics()
        metrics.executed, metrics.state_rows = executed, 7
        return metrics

    totals.add({2: counted(3), 3: counted(4), 4: counted(5)}, 0.0)
    ids = with_other_counts(layout.components, {"b": 1})
    totals.take_layout(TaskLayout(three(), {TASK_IDS: ids}))
    totals.add({6: counted(1)}, 1.0)
    found = totals.components()
    assert (found["b"].executed, found["b"].tasks, list(found["b"].by_task)) == (8, 1, [6])
    assert found["c"].executed == 5


# -- what is refused ------------------------------------------------------------------------------


class Words(StatefulBasicBolt):
    outputs = ("key",)

    def execute(self, tup: Tuple) -> None:
        self.state[self.of(tup)] = 1

    def of(self, tup: Tuple) -> Any:
        return tup.key


class Total(Words):
    def of(self, tup: Tuple) -> Any:
        return "total"


class Days(Words):
    def of(self, tup: Tuple) -> Any:
        return tup.key, "monday"


class Failing(Words):
    def input_key(self, key: Any) -> Any:
        raise LookupError("no such key")


class Attribute(BasicBolt):
    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.seen: Any = None

    def execute(self, tup: Tuple) -> None:
        self.seen = [tup.key]


class NoDict(Attribute):
    keyed = ("seen",)


class Redealt(Attribute):
    @classmethod
    def redistribute(cls, states: list[dict[str, Any]], tasks: int) -> list[dict[str, Any]]:
        return states  # too few


class Once(BasicBolt):
    """Gives what `prepare` has filled in, once for each key."""

    outputs = ("key", "given")
    keyed = ("left",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.left = {"k0": 10}

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.key, self.left.pop(tup.key, None)])

    def input_key(self, key: Any) -> Any:
        return key


class Alias(BasicBolt):
    keyed = ("one", "other")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.one: dict[Any, int] = {}
        self.other = self.one

    def execute(self, tup: Tuple) -> None:
        self.one[tup.key] = 1


class Seen(BasicBolt):
    keyed = ("seen",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.seen: dict[Any, int] = {}

    def execute(self, tup: Tuple) -> None:
        self.seen[tup.key] = 1


class Holding(Bolt):
    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)


class Publishing(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        pass

    def committed(self, batch_id: int) -> None:
        pass


class Mine(KeyedBolt):
    key = "key"

    def execute(self, tup: Tuple) -> None:
        self.n = 1


def per_event() -> WindowAggregate:
    return WindowAggregate(
        key="key", window=PerEvent(50), time=EventTime("at"), aggregates={"n": CountOf()}
    )


Reads = Callable[[Any], Any]
BY_KEY: Reads = lambda declarer: declarer.fields_grouping("s", "key")  # noqa: E731
BY_BOTH: Reads = lambda declarer: declarer.fields_grouping("s", ["key", "at"])  # noqa: E731
BY_CHANCE: Reads = lambda declarer: declarer.shuffle_grouping("s")  # noqa: E731
TO_ONE: Reads = lambda declarer: declarer.global_grouping("s")  # noqa: E731


def fed_by_hand(made: Any, reads: Reads, tasks: int) -> tuple[FeederSpout, TestCluster, Any]:
    feeder = FeederSpout(["key", "at"])
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    reads(builder.set_bolt("b", made, tasks))
    cluster = TestCluster()
    return feeder, cluster, cluster.submit_topology("t", builder.create_topology())


def run_of(made: Any, reads: Reads, tasks: int = 2, count: int = 40) -> Any:
    feeder, _, run = fed_by_hand(made, reads, tasks)
    for number in range(count):
        feeder.feed([f"k{number}", number], msg_id=number)
    run.settle()
    return run


@pytest.mark.parametrize(
    ("made", "reads", "why"),
    [
        (Total(), BY_KEY, r"bolt 'b' task \d: the state's key 'total' is not what the input is gr"),
        (Days(), BY_KEY, r"the state's key \('k\d+', 'monday'\) is not what the input is grouped"),
        (Words(), BY_BOTH, r"the state's key 'k\d+' is not made of the 2 fields"),
        (Words(), BY_CHANCE, "keeps state and reads 's' by shuffle grouping"),
        (Failing(), BY_KEY, "input_key raised LookupError: no such key"),
        (Attribute(), BY_KEY, "has changed its attribute 'seen', which belongs to a task"),
        (NoDict(), BY_KEY, "names 'seen' in keyed, which is no dict"),
        (Redealt(), BY_KEY, "redistribute returned"),
        (Holding(), BY_KEY, "holds [0-9]+ tuples that it has neither acked nor failed"),
        (Alias(), BY_KEY, "its attributes 'one' and 'other' are one object"),
        (Publishing(), BY_KEY, "publishes in `committed` what a task has prepared"),
        (per_event(), BY_KEY, "keeps 'cells', which cannot be dealt to other tasks"),
    ],
)
def test_what_cannot_be_dealt_is_refused_and_the_run_goes_on(
    made: Any, reads: Reads, why: str
) -> None:
    run = run_of(made, reads)
    before = {task: dict(saved) for task, saved in run._saved.items()}
    with pytest.raises(CannotDeal, match=why):
        run.rebalance({"b": 3})
    assert list(run.layout.tasks_of("b")) == [1, 2]
    assert run._saved == before


def test_few_keys_prove_nothing_unless_the_class_says_what_they_are() -> None:
    class Said(Words):
        def input_key(self, key: Any) -> Any:
            return key

    for tasks, count in ((2, 19), (1, 40)):
        run = run_of(Words(), BY_KEY, tasks, count)
        with pytest.raises(CannotDeal, match=f"has {count} keys in {tasks} tasks, which proves n"):
            run.rebalance({"b": 3})
        run = run_of(Said(), BY_KEY, tasks, count)
        run.rebalance({"b": 3})
        kept = [run._saved.get(task, {}) for task in run.layout.tasks_of("b")]
        assert sum(len(saved_state(each)) for each in kept) == count
    run_of(Words(), BY_KEY, 2, 20).rebalance({"b": 3})


def test_few_keys_of_an_attribute_prove_nothing_either() -> None:
    run = run_of(Seen(), BY_KEY, 1)
    with pytest.raises(CannotDeal, match="has 40 keys of 'seen' in 1 tasks, which proves nothing"):
        run.rebalance({"b": 3})
    run_of(Seen(), BY_KEY, 2).rebalance({"b": 3})


@pytest.mark.parametrize("tasks", [(2, 3), (1, 6), (3, 1)])
def test_what_was_deleted_of_a_prepared_attribute_stays_deleted(tasks: tuple[int, int]) -> None:
    before, after = tasks
    feeder, _, run = fed_by_hand(Once(), BY_KEY, before)
    feeder.feed(["k0", 0])
    run.settle()
    run.rebalance({"b": after})
    for key in ("k0", "k1", "k2"):
        feeder.feed([key, 0])
    run.settle()
    assert sorted(run.tuples("b"), key=str) == [["k0", 10], *([f"k{n}", None] for n in range(3))]


@pytest.mark.parametrize("count", [0, 5])
@pytest.mark.parametrize("reads", [BY_CHANCE, TO_ONE])
def test_state_by_no_key_is_refused_before_there_is_any(reads: Reads, count: int) -> None:
    for made in (Words(), Seen()):
        run = run_of(made, reads, 1, count)
        with pytest.raises(CannotDeal, match="no key says which of its tasks has what"):
            run.rebalance({"b": 3})


def test_a_bound_of_keys_holds_for_fewer_tasks_and_the_longest_silent_go() -> None:
    class Bounded(KeyedBolt):
        outputs = ("key", "why")
        key = "key"
        max_keys = 5

        def execute(self, tup: Tuple) -> None:
            self.n = 1

        def removed(self, why: str) -> None:
            self.emit([self.key, why])

    feeder, cluster, run = fed_by_hand(Bounded(), BY_KEY, 4)
    for number in range(100):
        feeder.feed([f"k{number}", number])
        cluster.advance(1)
    removed = {key for key, _ in run.tuples("b")}
    kept = [f"k{number}" for number in range(100) if f"k{number}" not in removed]
    assert len(kept) == 20
    run.rebalance({"b": 1})
    feeder.feed(["new", 0])
    cluster.advance(1)
    assert [key for key, _ in run.tuples("b")[80:]] == kept[:16]


def test_a_declaration_that_asks_for_one_task_has_one() -> None:
    run = run_of(Mine(), TO_ONE, 1)
    with pytest.raises(CannotDeal, match="keeps state and reads 's' by global grouping"):
        run.rebalance({"b": 2})
    run = run_of(Mine(), BY_CHANCE, 1)
    with pytest.raises(CannotDeal, match="reads 's' by shuffle, which sends a key to several task"):
        run.rebalance({"b": 2})


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ({"s": 2}, "spout 's' cannot have another number of tasks"),
        ({"b": 2}, "bolt 'b' has 2 tasks already"),
        ({"nobody": 2}, "no component 'nobody'"),
    ],
)
def test_what_is_no_other_number_of_tasks(tasks: dict[str, int], why: str) -> None:
    with pytest.raises(TopoError, match=why):
        run_of(Words(), BY_KEY).rebalance(tasks)


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_tuple_that_new_tasks_hold_times_out_by_their_names(has_begun: bool) -> None:
    feeder, cluster = FeederSpout(["key", "at"]), TestCluster()
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    builder.set_bolt("b", Holding(), 2).fields_grouping("s", "key")
    conf = {"topology.message.timeout.secs": 5}
    run = cluster.submit_topology("t", builder.create_topology(), conf)
    if has_begun:
        run.settle()
    run.rebalance({"b": 4})
    feeder.feed(["cow", 1], msg_id=1)
    run.settle()
    cluster.advance(20)
    assert run.failed == {"s": [1]}
    assert run.status == "ACTIVE"


def test_a_layout_that_cannot_be_changes_nothing() -> None:
    feeder = FeederSpout(["key", "at"])
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    builder.set_bolt("b", Words(), 2).fields_grouping("s", "key")
    builder.set_bolt("c", Attribute(), 2).same_task_grouping("b")
    run: Any = TestCluster().submit_topology("t", builder.create_topology())
    run.settle()
    before = run.conf, run.layout, run._host
    with pytest.raises(InvalidTopologyError, match="2 tasks where 'b' has 3"):
        run.rebalance({"b": 3})
    assert (run.conf, run.layout, run._host) == before
    assert run._host is before[2], "nothing was restarted"


# -- a log of epochs ------------------------------------------------------------------------------


def saved(keys: list[str]) -> dict[str, bytes]:
    changes, data = Changes(), dict.fromkeys(keys, 1)
    SavedMapping("state", "b").save(data, data, changes)
    return dict(changes.puts)


def test_a_try_that_was_cut_short_leaves_nothing_under_the_new_ids(tmp_path: Path) -> None:
    """What it wrote is of an earlier commit; the tasks before go only with their plan."""
    run = run_of(Words(), BY_KEY)
    topology = run.topology
    ids = with_other_counts(TaskLayout(topology).components, {"b": 3})
    before, after = make_plan(topology, 1), make_plan(topology, 1, {TASK_IDS: ids})
    resized = [Resize("b", range(1, 3), range(4, 7))]
    dealing = dealers(topology, run.conf, resized)
    store = EpochStore(tmp_path)
    committed = store.recover(Committed(PLAN))
    puts = {(task, name): data for task in (1, 2) for name, data in run._saved[task].items()}
    stale = {(task, name): data for task in (4, 5) for name, data in saved(["old"]).items()}
    stale |= {(6, "state/000000000007"): saved(["older"])["state/000000000000"]}
    first = EpochRecord(1, 1.0, {**puts, **stale}, (), Updates(), {})
    store.append(first, committed)
    committed.apply(first)
    deal_tasks(store, committed, resized, dealing)
    store.close()

    store = EpochStore(tmp_path)
    committed = store.recover(Committed(PLAN))
    of_new = read_values(store.directory, store.places({4, 5, 6}))
    keys = [key for task in of_new.values() for key in saved_state(task)]
    assert sorted(keys) == sorted(f"k{number}" for number in range(40))
    drop_gone_tasks(store, committed, before)  # the plan was not written: as if nothing had been
    assert store.tasks == {1, 2}
    deal_tasks(store, committed, resized, dealing)
    drop_gone_tasks(store, committed, after)
    assert store.tasks == {4, 5, 6}
    epoch = committed.epoch
    drop_gone_tasks(store, committed, after)
    assert committed.epoch == epoch, "nothing is written that says nothing"
    store.close()
