"""Projects written for streamparse: their hooks, signatures and topology classes."""

from __future__ import annotations

import importlib
import logging
import pickle
from pathlib import Path
from typing import Any, cast

import pytest

import topo
from topo import streamparse
from topo.cli.target import load_target
from topo.errors import (
    ComponentError,
    FailTuple,
    InvalidTopologyError,
    TargetError,
    UncaughtError,
)
from topo.streamparse import (
    BatchingBolt,
    Bolt,
    Grouping,
    ReliableSpout,
    Spout,
    Stream,
    TicklessBatchingBolt,
    Topology,
    Tuple,
)
from topo.testing import (
    FeederSpout,
    TestCluster,
    complete_topology,
    make_tuple,
    run_bolt,
    run_spout,
)


class WordSpout(Spout):
    outputs = ["word"]
    words = ["dog", "cat", "dog"]

    def initialize(self, stormconf: Any, context: Any) -> None:
        self.left = list(self.words)
        self.acked: list[int] = []

    def next_tuple(self) -> None:
        if self.left:
            self.emit([self.left.pop(0)], tup_id=len(self.left))

    def ack(self, tup_id: int) -> None:
        self.acked.append(tup_id)

    def is_exhausted(self) -> bool:
        return not self.left


class CountBolt(Bolt):
    outputs = ["word", "count"]

    def initialize(self, conf: Any, ctx: Any) -> None:
        self.counts: dict[str, int] = {}

    def process(self, tup: Tuple) -> None:
        (word,) = tup.values
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, self.counts[word]])


class WordCount(Topology):
    word_spout = WordSpout.spec()
    count_bolt = CountBolt.spec(inputs={word_spout: Grouping.fields("word")}, par=2)


class Names(Bolt):
    """Uses what streamparse's components and tuples offer; ids of tuples are kept with them."""

    outputs = ["id", "component", "stream", "task", "values"]

    def initialize(self, storm_conf: Any, context: Any) -> None:
        assert self.storm_conf["topology.workers"] == storm_conf["topology.workers"]
        self.held: dict[str, Tuple] = {}

    def process(self, tup: Tuple) -> None:
        self.log("got it", level="debug")
        assert tup.values.word == tup.values[0] == tup.word
        assert tup.values._asdict() == {"word": tup.word, "id": tup["id"]}
        assert not self.is_heartbeat(tup)
        assert not self.is_tick(tup)
        self.report_metric("length", len(tup))
        if tup.values.word == "wrong":
            self.raise_exception(ValueError("a wrong word"), tup)
        row = [tup.id, tup.component, tup.stream, tup.task, tup.values]
        self.emit_many([row, row])

    auto_ack = False


class Holds(Names):
    """Acks a tuple when the next one comes, from wherever it was kept meanwhile."""

    def process(self, tup: Tuple) -> None:
        for id, kept in self.held.items():
            assert id == kept.id
            self.emit(
                [kept.id, kept.component, kept.stream, kept.task, kept.values], anchors=[kept]
            )
            self.ack(kept)
        self.held = {tup.id: tup}


def test_names_of_streamparse_in_a_bolt() -> None:
    given = make_tuple({"word": "wrong", "id": 7}, component="words", stream="s", task=3)
    result = run_bolt(Names(), [given])
    first, second = result.emitted
    assert first == second
    assert first[1:] == ["words", "s", 3, ["wrong", 7]]
    assert first[0] not in ("", 7)
    assert [str(error) for error in result.errors] == ["a wrong word"]
    assert result.pending == [given]


def test_a_held_tuple_keeps_its_names_and_its_id_over_a_restart() -> None:
    feeder = FeederSpout(["word", "id"])
    builder = topo.TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("holds", Holds()).shuffle_grouping("words")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        feeder.feed(["a", 1], msg_id="a")
        run.settle()
        run.restart()
        assert feeder.acked == []
        feeder.feed(["b", 2], msg_id="b")
        run.settle()
        assert feeder.acked == ["a"]
        ((_, *names),) = run.tuples("holds")
        assert names == ["words", "default", 2, ["a", 1]]


def test_an_id_is_no_tuple_to_ack() -> None:
    class AcksById(Names):
        def process(self, tup: Tuple) -> None:
            self.ack(tup.id)  # type: ignore[arg-type]

    with pytest.raises(ComponentError, match="keep the tuple itself, not its id"):
        run_bolt(AcksById(), [make_tuple({"word": "a"})])


def test_a_wrong_name_of_a_value_is_told_with_the_right_one() -> None:
    values = Tuple(make_tuple({"word": "a"})).values
    with pytest.raises(AttributeError, match=r"no field \'wrod\'.*did you mean 'word'"):
        values.wrod  # noqa: B018
    assert pickle.loads(pickle.dumps(values)).word == "a"


@pytest.mark.parametrize("module", ["bolt", "spout", "dsl"])
def test_modules_have_streamparses_names(module: str) -> None:
    names = importlib.import_module(f"topo.streamparse.{module}")
    for name in names.__all__:
        assert getattr(names, name) is getattr(streamparse, name)


def test_a_spout_emits_many() -> None:
    class Many(Spout):
        outputs = ["word"]

        def next_tuple(self) -> None:
            self.emit_many([["a"], ["b"]], tup_ids=[1, 2])

    result = run_spout(Many)
    assert [(row, row.msg_id) for row in result.emitted] == [(["a"], 1), (["b"], 2)]


def test_a_topology_class_runs() -> None:
    result = complete_topology(WordCount.create_topology())
    assert sorted(result.tuples("count_bolt")) == [["cat", 1], ["dog", 1], ["dog", 2]]
    assert sorted(result.acked["word_spout"]) == [0, 1, 2]


def test_a_topology_class_is_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ported.py").write_text(
        "from tests.unit.test_streamparse import CountBolt, WordSpout\n"
        "from topo.streamparse import Grouping, Topology\n"
        "class Ported(Topology):\n"
        '    config = {"topology.message.timeout.secs": 7}\n'
        "    words = WordSpout.spec(name='w')\n"
        "    counts = CountBolt.spec(inputs=[words])\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TargetError, match="it has Ported"):
        load_target("ported.py")
    target = load_target("ported.py:Ported")
    assert sorted(target.topology.components) == ["counts", "w"]
    assert target.conf.values == {"topology.message.timeout.secs": 7}


class Router(Bolt):
    outputs = [Stream(["n"]), Stream(fields=["n"], name="odd"), Stream(["n"], "to", direct=True)]

    def process(self, tup: Tuple) -> None:
        (n,) = tup.values
        self.emit((n,), stream="odd" if n % 2 else None)


def test_streams_are_declared_by_name() -> None:
    emitted = run_bolt(Router(), [make_tuple({"n": 1}), make_tuple({"n": 2})]).emitted
    assert [(item.stream, list(item)) for item in emitted] == [("odd", [1]), ("default", [2])]


class Sink(Bolt):
    def process(self, tup: Tuple) -> None: ...


class Routed(Topology):
    spout = WordSpout.spec()
    router = Router.spec(inputs=spout)
    odd = Sink.spec(inputs={router["odd"]: Grouping.SHUFFLE, router["to"]: Grouping.DIRECT})


def test_inputs_name_streams() -> None:
    topology = Routed.create_topology()
    read = [(i.component, i.stream, i.grouping.kind) for i in topology.component("odd").inputs]
    assert read == [("router", "odd", "shuffle"), ("router", "to", "direct")]


class ByHand(Bolt):
    outputs = ["n"]
    auto_ack = False
    auto_anchor = False

    def process(self, tup: Tuple) -> None:
        self.emit([1])
        self.emit([2], anchors=[tup])


def test_switches_are_honoured() -> None:
    result = run_bolt(ByHand(), [make_tuple({"n": 0})])
    assert [len(item.anchors) for item in result.emitted] == [0, 1]
    assert (len(result.acked), len(result.pending)) == (0, 1)
    result = run_bolt(CountBolt(), [make_tuple({"word": "a"})])
    assert [len(item.anchors) for item in result.emitted] == [1]
    assert len(result.acked) == 1


def test_auto_fail_cannot_be_switched_off() -> None:
    with pytest.raises(ComponentError, match=r"Loose\.auto_fail is False"):
        type("Loose", (Bolt,), {"auto_fail": False})


class Sums(BatchingBolt):
    outputs = ["key", "sum"]
    ticks_between_batches = 2

    def group_key(self, tup: Tuple) -> bool:
        return bool(tup.values[0] % 2)

    def process_batch(self, key: bool, tups: list[Tuple]) -> None:
        if sum(tup.values[0] for tup in tups) > 100:
            raise FailTuple("too much")
        self.emit([key, sum(tup.values[0] for tup in tups)])


def _batched(feeder: FeederSpout, numbers: list[int]) -> topo.Topology:
    for number in numbers:
        feeder.feed([number], msg_id=number)
    builder = topo.TopologyBuilder()
    builder.set_spout("numbers", feeder)
    builder.set_bolt("sums", Sums()).shuffle_grouping("numbers")
    return builder.create_topology()


def test_a_batch_is_held_over_ticks_and_a_restart() -> None:
    feeder = FeederSpout(["n"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", _batched(feeder, [1, 2, 3, 4]), {})
        run.settle()
        cluster.advance(1)
        run.restart()
        assert run.tuples("sums") == []
        cluster.advance(1)
        assert sorted(run.tuples("sums")) == [[False, 6], [True, 4]]
        assert sorted(feeder.acked) == [1, 2, 3, 4]


def test_a_failed_batch_fails_its_tuples_and_no_others() -> None:
    feeder = FeederSpout(["n"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", _batched(feeder, [1, 200, 300]), {})
        run.settle()
        cluster.advance(2)
        assert run.tuples("sums") == [[True, 1]]
        assert (feeder.acked, sorted(feeder.failed)) == ([1], [200, 300])


def test_a_tickless_bolt_has_its_own_pace() -> None:
    class Slow(TicklessBatchingBolt):
        secs_between_batches = 5

    assert Slow().get_component_configuration() == {"topology.tick.tuple.freq.secs": 5}


class Retrying(ReliableSpout):
    outputs = ["n"]
    max_fails = 2

    def initialize(self, stormconf: Any, context: Any) -> None:
        self.sent = False

    def next_tuple(self) -> None:
        if not self.sent:
            self.sent = True
            self.emit([5], tup_id="five")


def test_a_reliable_spout_emits_again_until_it_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    driven = run_spout(Retrying(), calls=1)
    for _ in range(3):
        driven.fail("five", "why not")
    assert [list(item) for item in driven.emitted] == [[5], [5], [5]]
    assert "gave up tuple 'five' after 3 failures: why not" in caplog.text
    driven.fail("five")
    assert len(driven.emitted) == 3


def test_a_reliable_spout_refuses_what_it_cannot_track() -> None:
    class Careless(ReliableSpout):
        outputs = ["n"]

        def next_tuple(self) -> None:
            self.emit([1])

    with pytest.raises(ComponentError, match="needs a tup_id"):
        run_spout(Careless(), calls=1)


def test_log_takes_names_of_levels(caplog: pytest.LogCaptureFixture) -> None:
    bolt = CountBolt()
    with caplog.at_level(logging.DEBUG):
        for level in ("warn", "error", None, logging.DEBUG):
            bolt.log("said", level)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "INFO", "DEBUG"]
    assert caplog.records[0].name.endswith("CountBolt")


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"auto_ack": False}, "'auto_ack', a switch of streamparse's"),
        ({"config": {"topology.tick.tuple.freq.secs": 1}}, "attribute 'config'"),
    ],
)
def test_a_core_bolt_with_streamparse_attributes_is_refused(
    attributes: dict[str, Any], words: str
) -> None:
    builder = topo.TopologyBuilder()
    builder.set_spout("s", WordSpout())
    Odd = type("Odd", (topo.Bolt,), {"execute": lambda self, tup: None, **attributes})
    builder.set_bolt("odd", Odd()).shuffle_grouping("s")
    with pytest.raises(InvalidTopologyError, match=words):
        builder.create_topology()


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"bolt": CountBolt.spec(inputs=cast(Any, ["word_spout"]))}, "an input of 'bolt'"),
        (
            {"bolt": CountBolt.spec(inputs=cast(Any, {WordCount.word_spout: "shuffle"}))},
            "the grouping of an",
        ),
        ({"bolt": CountBolt.spec(inputs=[WordCount.word_spout])}, "reads a component that is not"),
        ({"spout": WordSpout.spec(inputs=[WordCount.word_spout])}, "spout 'spout' of Bad has"),
    ],
)
def test_mistakes_in_specs_are_named(attributes: dict[str, Any], words: str) -> None:
    Bad = cast(type[Topology], type("Bad", (Topology,), attributes))
    with pytest.raises(ComponentError, match=words):
        Bad.create_topology()


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda bolt, tup: bolt.emit([1], anchors=[tup]), "a BasicBolt anchors by itself"),
        (lambda bolt, tup: bolt.emit([1], need_task_ids=True), "it is task_ids=True here"),
    ],
)
def test_streamparse_parameters_in_a_core_component_get_a_hint(call: Any, hint: str) -> None:
    class Ported(topo.BasicBolt):
        outputs = ("n",)

        def execute(self, tup: Tuple) -> None:
            call(self, tup)

    builder = topo.TopologyBuilder()
    builder.set_spout("s", WordSpout())
    builder.set_bolt("ported", Ported()).shuffle_grouping("s")
    with pytest.raises(UncaughtError) as raised:
        complete_topology(builder.create_topology())
    assert hint in raised.value.hint
