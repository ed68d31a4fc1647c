"""The test kit itself."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import topo
from tests.conformance.doubles import (
    Agg,
    Branch,
    Counter,
    Identity,
    KeyedState,
    Numbers,
    Sink,
    Total,
    Words,
)
from tests.wiring import line
from topo import (
    BasicBolt,
    Bolt,
    ComponentError,
    ConfigError,
    EmitError,
    FailTuple,
    LocalCluster,
    RunError,
    Spout,
    StatefulBasicBolt,
    Stream,
    TopoError,
    TopologyBuilder,
    Tuple,
    TupleSettledError,
    bolt,
)
from topo.components import Outputs
from topo.engine.spark.driver.run import SparkRun
from topo.testing import (
    FeederSpout,
    TestCluster,
    complete_topology,
    make_tick,
    make_tuple,
    run_bolt,
    run_spout,
)


def test_make_tuple_refuses_what_makes_no_tuple() -> None:
    with pytest.raises(TypeError, match="takes a list of values or a mapping; got 'ab'"):
        make_tuple("ab")
    with pytest.raises(TypeError, match="got 3"):
        make_tuple(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 values for 2 fields"):
        make_tuple([1], fields=["a", "b"])
    assert make_tuple({"b": 1, "a": 2}, fields=["a", "b"]).values == [2, 1]


# -- run_bolt --------------------------------------------------------------------------------------


def test_run_bolt_shows_what_a_bolt_did() -> None:
    tuples = [make_tuple({"num": n}) for n in range(4)]
    run = run_bolt(Agg(3), tuples)
    assert run.emitted == [[1]]
    assert run.emitted[0].anchors == tuples[:3]
    assert (run.emitted[0].stream, run.emitted[0].task) == ("default", None)
    assert run.acked == tuples[:3]
    assert (run.failed, run.pending) == ([], tuples[3:])
    run.execute(make_tuple([1])).execute(make_tuple([1]))
    assert run.pending == []


def test_run_bolt_of_a_basic_bolt() -> None:
    first, second = make_tuple(["a"]), make_tuple(["a"])
    run = run_bolt(Counter, [first, second])
    assert run.emitted == [["a", 1], ["a", 2]]
    assert [emitted.anchors for emitted in run.emitted] == [[first], [second]]
    assert (run.acked, run.pending) == ([first, second], [])


def test_run_bolt_of_a_function() -> None:
    @bolt(outputs="word")
    def split(tup: Tuple) -> Any:
        for word in tup.line.split():
            yield [word]

    assert run_bolt(split, [make_tuple({"line": "a b"})]).emitted == [["a"], ["b"]]


@pytest.mark.parametrize("base", [Bolt, BasicBolt])
def test_run_bolt_fails_a_tuple(base: Any) -> None:
    class Refuses(base):  # type: ignore[misc]
        def execute(self, tup: Tuple) -> None:
            raise FailTuple("no", report=True)

    tup = make_tuple([1])
    run = run_bolt(Refuses(), [tup])
    assert (run.failed, run.acked, run.pending) == ([tup], [], [])
    assert [str(error) for error in run.errors] == ["no"]


def test_run_bolt_raises_what_the_bolt_raises() -> None:
    class Breaks(BasicBolt):
        def execute(self, tup: Tuple) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_bolt(Breaks(), [make_tuple([1])])


def test_run_bolt_gives_keyed_state_settings_and_a_context() -> None:
    assert run_bolt(KeyedState(), [make_tuple([1])]).emitted[0] == ["get a", 1]

    class Looks(BasicBolt):
        outputs = ("what",)

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.seen = [conf["mine"], context.this_task_index, list(context.this_sources)]

        def execute(self, tup: Tuple) -> None:
            self.emit([self.seen])

    tup = make_tuple([1], component="up", stream="side")
    assert run_bolt(Looks(), [tup], conf={"mine": 5}).emitted == [[[5, 0, [("up", "side")]]]]


@pytest.mark.parametrize("base", [Bolt, BasicBolt])
@pytest.mark.parametrize("make", [lambda: make_tuple([1]), lambda: make_tick()])
def test_run_bolt_takes_a_tuple_again_that_another_run_has_settled(base: Any, make: Any) -> None:
    class Settles(base):  # type: ignore[misc]
        outputs = ("x",)

        def execute(self, tup: Tuple) -> None:
            if base is Bolt:
                self.emit([1], anchors=tup)
                self.ack(tup)

    tup = make()
    first = run_bolt(Settles(), [tup])
    keeps = run_bolt(Keeps(), [tup])
    again = run_bolt(Settles(), [tup])
    assert first.acked == again.acked == [tup]
    assert (first.pending, keeps.pending, again.pending) == ([], [tup], [])


def test_run_bolt_still_refuses_to_settle_a_tuple_twice() -> None:
    tup = make_tuple([1])
    with pytest.raises(TupleSettledError, match="cannot be anchored to"):
        run_bolt(Identity(), [tup, tup])


def test_run_bolt_with_ticks_and_direct_emits() -> None:
    class Ticked(Bolt):
        outputs = {"default": "x", "out": Stream("x", direct=True)}

        def execute(self, tup: Tuple) -> None:
            self.emit_direct(4, [tup[0]], stream="out", anchors=[])
            self.ack(tup)

        def on_tick(self, tup: Tuple) -> None:
            assert self.emit(["tick"], task_ids=True) == []

    tick = make_tick(3)
    run = run_bolt(Ticked(), [make_tuple([1]), tick])
    assert run.emitted == [[1], ["tick"]]
    assert (run.emitted[0].task, run.emitted[0].stream) == (4, "out")
    assert tick in run.acked


def test_run_bolt_refuses_what_is_no_bolt_or_no_tuple() -> None:
    class Generator(BasicBolt):
        def execute(self, tup: Tuple) -> Any:
            yield [1]

    with pytest.raises(TypeError, match="run_bolt takes a bolt"):
        run_bolt(Words())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a bolt executes tuples; got .* see make_tuple"):
        run_bolt(Sink(), [[1]])  # type: ignore[list-item]
    with pytest.raises(ComponentError, match="execute is a generator"):
        run_bolt(Generator())


# -- run_spout -------------------------------------------------------------------------------------


class Retries(Spout):
    outputs = ("x",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.waiting = [1, 2]
        self.heard: list[Any] = []

    def next_tuple(self) -> None:
        if self.waiting:
            number = self.waiting.pop(0)
            self.emit([number], msg_id=number)

    def ack(self, msg_id: Any) -> None:
        self.heard.append(msg_id)

    def fail(self, msg_id: Any) -> None:  # type: ignore[override]
        self.waiting.append(msg_id)


def test_run_spout_shows_what_a_spout_did() -> None:
    spout = Retries()
    run = run_spout(spout, calls=2)
    assert run.emitted == [[1], [2]]
    assert [emitted.msg_id for emitted in run.emitted] == [1, 2]
    assert spout.pending_count == 2
    run.ack(1).fail(2, "late").next(3)
    assert spout.heard == [1]
    assert run.emitted == [[1], [2], [2]]
    assert spout.pending_count == 1


class OfParts(Retries):
    def next_tuple(self) -> None:
        self.collector.from_split("a part")
        super().next_tuple()

    def pre_commit(self, batch_id: int) -> None:
        if self.collector.hears_splits:
            raise AssertionError("nothing reads it in event time")
        self.collector.read_splits({"a part": True})


def test_run_spout_takes_a_spout_that_tells_the_parts_of_its_source() -> None:
    assert run_spout(OfParts(), calls=2).commit().emitted == [[1], [2]]


def test_run_spout_refuses_what_is_no_spout() -> None:
    with pytest.raises(TypeError, match="run_spout takes a spout"):
        run_spout(Sink())  # type: ignore[arg-type]


# -- complete_topology -----------------------------------------------------------------------------


def test_mock_items_are_dealt_over_the_spouts_tasks() -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Words(), parallelism=3)
    builder.set_bolt("b", Total()).global_grouping("s")
    result = complete_topology(
        builder.create_topology(), mock_sources={"s": [[n] for n in range(7)]}
    )
    assert sorted(result.tuples("s")) == [[n] for n in range(7)]
    assert sorted(result.acked["s"]) == list(range(7))


def test_mock_sources_may_name_streams() -> None:
    class Two(Words):
        outputs: Outputs = {"default": "a", "other": ("a", "b")}  # type: ignore[assignment]

    result = complete_topology(
        line(Two(), Identity()), {"s": {"default": [[1]], "other": [[2, 3]]}}
    )
    assert (result.tuples("s"), result.tuples("s", stream="other")) == ([[1]], [[2, 3]])
    assert (result.tuples("b1"), sorted(result.acked["s"])) == ([[1]], [0, 1])


def test_complete_topology_refuses_an_endless_spout() -> None:
    with pytest.raises(RunError, match=r"spout 's' never says that it is exhausted.*is_exhausted"):
        complete_topology(line(Words(), Sink()))


def test_complete_topology_refuses_what_is_not_there() -> None:
    topology = line(Words(), Identity())
    with pytest.raises(TopoError, match="no component 'z'"):
        complete_topology(topology, {"z": []})
    with pytest.raises(TopoError, match="'b1' is a bolt; only spouts are mocked"):
        complete_topology(topology, {"b1": []})
    with pytest.raises(ValueError, match="engine is 'inline' or 'spark'; got 'storm'"):
        complete_topology(topology, {"s": []}, engine="storm")
    result = complete_topology(topology, {"s": []})
    with pytest.raises(TopoError, match=r"'b1' declares no stream 'defualt'.*did you mean 'defaul"):
        result.tuples("b1", stream="defualt")


WRONG_VALUES = [
    ("ab", "a str, 'ab'; values are a list or a tuple", "write ['ab']"),
    (b"ab", "a bytes, b'ab'; values", "write [b'ab']"),
    ({"word": "cow"}, "a dict, {'word': 'cow'}; values", "emit a list of values"),
    (make_tuple(["cow"]), "a Tuple, <Tuple of ", "emit a list of values"),
    (7, "an int, 7; values", "emit a list of values"),
]


@pytest.mark.parametrize(("values", "message", "hint"), WRONG_VALUES)
def test_mock_items_are_lists_of_values(values: Any, message: str, hint: str) -> None:
    topology = line(Words(), Identity())
    for items in ([["fine"], values], {"default": [values]}):
        with pytest.raises(TypeError) as refused:
            complete_topology(topology, {"s": items})
        assert isinstance(refused.value, EmitError)
        assert f"mock_sources: spout 's' was given {message}" in str(refused.value)
        assert refused.value.hint == hint
    with pytest.raises(EmitError, match=r"spout 's' was given a str, 'a'.*write \['a'\]"):
        complete_topology(topology, {"s": "ab"})  # type: ignore[dict-item]


@pytest.mark.parametrize(("values", "message", "hint"), WRONG_VALUES)
def test_a_feeder_is_fed_lists_of_values(values: Any, message: str, hint: str) -> None:
    with pytest.raises(TypeError) as refused:
        FeederSpout(["word"]).feed(values, 1)
    assert isinstance(refused.value, EmitError)
    assert f"FeederSpout(['word']) was fed {message}" in str(refused.value)
    assert refused.value.hint == hint


class Keeps(Bolt):
    def execute(self, tup: Tuple) -> None:
        self.kept = tup


def test_complete_topology_moves_time_when_nothing_else_can() -> None:
    assert complete_topology(line(Numbers(1), Keeps())).failed == {"s": [0]}


def test_complete_topology_says_that_a_topology_stands_still() -> None:
    conf = {"topology.enable.message.timeouts": False}
    with pytest.raises(RunError, match="stands still with 1 messages in flight"):
        complete_topology(line(Numbers(1), Keeps()), conf=conf)


def test_complete_topology_says_so_though_ticks_come_for_ever() -> None:
    conf = {"topology.enable.message.timeouts": False, "topology.tick.tuple.freq.secs": 60}
    with pytest.raises(RunError, match="stands still with 1 messages in flight"):
        complete_topology(line(Numbers(1), Keeps()), conf=conf)


# -- TestCluster and FeederSpout -------------------------------------------------------------------


def test_a_feeder_shares_its_queue_over_its_tasks() -> None:
    feeder = FeederSpout(["a", "b"])
    builder = TopologyBuilder()
    builder.set_spout("s", feeder, parallelism=3)
    builder.set_bolt("b", Sink()).shuffle_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for number in range(5):
            feeder.feed((number, None), msg_id=number)
        feeder.feed([9, 9])
        run.settle()
        assert sorted(feeder.acked) == [0, 1, 2, 3, 4]
        assert len(run.tuples("s")) == 6


def test_a_feeder_belongs_to_its_test() -> None:
    feeder = FeederSpout("a")
    topology = line(feeder, Sink())
    assert copy.copy(feeder)._feed is feeder._feed
    del feeder
    with TestCluster() as cluster, pytest.raises(RunError, match="in the process of its test only"):
        cluster.submit_topology("t", topology).settle()


TAKES = "submit_topology(name, topology, conf) takes a Topology; got "


@pytest.mark.parametrize("make", [TestCluster, LocalCluster])
@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (("t", {}, None), f"{TAKES}a dict", "give what builder.create_topology() returns"),
        (("t", None), f"{TAKES}None", "give what builder.create_topology() returns"),
        (("t", TopologyBuilder()), f"{TAKES}a TopologyBuilder", "write builder.create_topology()"),
    ],
)
def test_a_cluster_takes_a_topology(make: Any, given: Any, message: str, hint: str) -> None:
    with pytest.raises(TopoError) as refused, make() as cluster:
        cluster.submit_topology(*given)
    assert (refused.value.message, refused.value.hint) == (message, hint)


def test_complete_topology_takes_a_topology() -> None:
    builder = TopologyBuilder()
    with pytest.raises(TopoError, match=r"complete_topology takes a Topology; got a Topology"):
        complete_topology(builder)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [TestCluster, LocalCluster])
@pytest.mark.parametrize("name", ["", "a/b", "../t", "a b", "-n", None, 3, "x" * 101])
def test_a_cluster_takes_the_names_that_the_command_line_takes(make: Any, name: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be a topology's name; letters, digits"):
        make().submit_topology(name, line(Numbers(1), Sink()))


def steps(seed: int) -> tuple[list[Any], list[Any]]:
    builder = TopologyBuilder()
    builder.set_spout("s", Numbers(30), parallelism=3)
    builder.set_bolt("b", Branch(2), parallelism=3).shuffle_grouping("s")
    builder.set_bolt("c", Total()).global_grouping("b").global_grouping("s")
    with TestCluster(seed=seed) as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        run.settle()
        return run.tuples("s"), run.acked["s"]


def test_the_same_seed_is_the_same_run_and_another_seed_another_order() -> None:
    assert steps(1) == steps(1)
    orders = {tuple(map(tuple, steps(seed)[0])) for seed in range(5)}
    assert len(orders) > 1
    assert all(sorted(order) == [(n,) for n in range(30)] for order in orders)


def test_pytest_does_not_collect_the_cluster() -> None:
    assert TestCluster.__test__ is False


USERS_TEST = """
    from topo import BasicBolt, TopologyBuilder
    from topo.testing import FeederSpout, TestCluster

    class Shout(BasicBolt):
        outputs = ("word",)
        def execute(self, tup):
            self.emit([tup.word.upper()])

    def test_shout(topo_cluster):
        feeder = FeederSpout("word")
        builder = TopologyBuilder()
        builder.set_spout("words", feeder)
        builder.set_bolt("shout", Shout()).shuffle_grouping("words")
        run = topo_cluster.submit_topology("t", builder.create_topology())
        feeder.feed(["hey"], msg_id=1)
        run.settle()
        assert run.tuples("shout") == [["HEY"]]
        assert feeder.acked == [1]
"""


def run_users_test(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_users.py").write_text(textwrap.dedent(code))
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(topo.__file__).parents[1]),
        "COLUMNS": "200",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # it need not be installed for this
    }
    return subprocess.run(
        [*command, "-p", "topo._pytest"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )


def test_the_pytest_plugin_offers_a_cluster(tmp_path: Path) -> None:
    ran = run_users_test(tmp_path, USERS_TEST)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_summary_of_pytest_names_the_users_error(tmp_path: Path) -> None:
    ran = run_users_test(tmp_path, USERS_TEST.replace("tup.word.upper()", "tup.word.uper()"))
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("FAILED")]
    assert "bolt 'shout' task 1, tuple ['hey'] of 'words': AttributeError: 'str' object" in line


def test_pytest_shows_the_users_frames_and_the_traceback_once(tmp_path: Path) -> None:
    code = USERS_TEST.replace("tup.word.upper()", "__import__('json').loads(tup.word)")
    ran = run_users_test(tmp_path, code)
    assert "topo/engine" not in ran.stdout
    assert "topo/runtime" not in ran.stdout
    assert "Traceback (most recent" not in ran.stdout
    line = next(n for n, text in enumerate(code.splitlines(), 1) if "json" in text)
    assert f"test_users.py:{line})" in ran.stdout  # and not a line of json's


def test_a_mocked_spout_is_stepped() -> None:
    with TestCluster() as cluster:
        topology = line(Numbers(1), Identity())
        run = cluster.submit_topology("t", topology, mock_sources={"s": [[7], [8]]})
        run.step()
        assert run.tuples("b1") == [[7]]
        run.settle()
        assert (run.tuples("b1"), run.acked["s"]) == ([[7], [8]], [0, 1])


def test_a_container_of_the_class_is_warned_of() -> None:
    class Shares(BasicBolt):
        outputs = ("num",)
        seen: list[int] = []

        def execute(self, tup: Tuple) -> None:
            self.seen.append(tup[0])

    with pytest.warns(UserWarning, match=r"self.seen is a container of the class.*make it in prep"):
        complete_topology(line(Numbers(1), Shares()))


def test_a_completed_topology_shows_what_became_of_it() -> None:
    result = complete_topology(line(Numbers(2), Identity()))
    assert repr(result) == "<CompletedTopology: 2 acked, 0 failed; emitted b1: 2, s: 2>"


def test_the_state_of_one_component() -> None:
    class Totals(StatefulBasicBolt):
        outputs = ("num",)

        def execute(self, tup: Tuple) -> None:
            self.state["sum"] = self.state.get("sum", 0) + tup[0]

    assert run_bolt(Totals(), [make_tuple([3]), make_tuple([4])]).state == {"sum": 7}
    with pytest.raises(TypeError, match="Identity has no keyed state"):
        run_bolt(Identity()).state  # noqa: B018


def test_an_error_that_is_reported_without_being_raised_names_its_place() -> None:
    class Reports(BasicBolt):
        def execute(self, tup: Tuple) -> None:
            self.report_error("as a text" if tup[0] else ValueError("never raised"))

    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Numbers(2), Reports()))
        run.settle()
        first = Reports.execute.__code__.co_firstlineno
        assert [error.at for error in run.errors()] == [f"{__file__}:{first + 1}"] * 2


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_what_settings_are_warned_of_on_every_engine(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in ("start", "await_completion", "kill"):  # which need Spark
        monkeypatch.setattr(SparkRun, method, lambda *_: None)
    conf = {"topology.worker.childopts": "-Xmx1g"}
    with pytest.warns(UserWarning, match="is Storm's and means nothing on Spark") as warned:
        complete_topology(line(Numbers(1), Sink()), conf=conf, engine=engine)
    assert len(warned) == 1
