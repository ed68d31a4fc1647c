"""Bad input is refused early and in words: names, depths, periods, identifiers, addresses."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from typing import Any
from unittest import mock

import pytest

from tests.wiring import line
from topo import (
    AnchorError,
    BasicBolt,
    Bolt,
    CheckpointError,
    Config,
    ConfigError,
    EmitError,
    InvalidTopologyError,
    Spout,
    Stream,
    Topology,
    TopologyBuilder,
    Tuple,
    UnsavableAttributeError,
)
from topo.engine.spark.plan import make_plan
from topo.testing import FeederSpout, TestCluster, complete_topology
from topo.topology.layout import TaskLayout
from topo.tuples import HeldTuples
from topo.wire import frame
from topo.wire.column import encode_column
from topo.wire.frame import Frame, Section


class Passes(BasicBolt):
    outputs: Any = ("x",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]])


class ManyStreams(Spout):
    def __init__(self, *names: str) -> None:
        self.outputs = {name: Stream("x") for name in names}

    def next_tuple(self) -> None:
        pass


def problems(builder: TopologyBuilder) -> list[str]:
    with pytest.raises(InvalidTopologyError) as refused:
        builder.create_topology()
    return [problem.code for problem in refused.value.problems]


def named(component: str = "b", *streams: str) -> TopologyBuilder:
    streams = streams or ("default",)
    builder = TopologyBuilder()
    builder.set_spout("s", ManyStreams(*streams))
    bolt = builder.set_bolt(component, Passes())
    for stream in streams:
        bolt.global_grouping("s", stream=stream)
    return builder


def test_names_that_nothing_has_room_for_are_problems() -> None:
    assert problems(named("b" * 1001)) == ["long-name"]
    assert problems(named("b\udc80")) == ["odd-name"]
    assert problems(named("b", "s" * 70_000)) == ["long-name"]
    assert problems(named("b", "s\udc80")) == ["odd-name"]
    named("b" * 1000).create_topology()


def test_a_bolt_reads_no_more_streams_of_a_component_than_a_frame_counts() -> None:
    streams = [f"s{number}" for number in range(257)]
    assert problems(named("b", *streams)) == ["many-streams"]
    named("b", *streams[:256]).create_topology()


def chain(length: int) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("c0", FeederSpout(["x"]))
    for number in range(1, length):
        builder.set_bolt(f"c{number}", Passes()).global_grouping(f"c{number - 1}")
    return builder


def test_a_topology_is_no_deeper_than_ackers_count() -> None:
    assert problems(chain(257)) == ["too-deep"]


@pytest.mark.parametrize("secs", [0.0001, 1e10, 0])
@pytest.mark.parametrize("key", ["topology.message.timeout.secs", "topology.tick.tuple.freq.secs"])
def test_periods_that_ackers_refuse_are_refused_by_the_settings(key: str, secs: float) -> None:
    with pytest.raises(ConfigError, match=r"must be a number from 0.001 to 1e\+09"):
        Config.validate({key: secs})
    Config.validate({key: 0.001})


def test_components_with_a_slash_have_settings_of_their_own() -> None:
    topology = named("team/parse").create_topology()
    conf = {"team/parse/topology.tasks": 4}
    assert Config.validate(conf, components=topology.components) == []
    assert len(TaskLayout(topology, conf).tasks_of("team/parse")) == 4
    with pytest.raises(ConfigError, match="no component 'team/prase'"):
        Config.validate({"team/prase/topology.tasks": 4}, components=topology.components)


def test_storms_hints_take_storms_arguments() -> None:
    builder = named()
    builder.set_bolt("c", Passes()).global_grouping("b").set_memory_load(128, 64)


def test_a_msg_id_that_cannot_be_saved_is_called_that() -> None:
    class Locks(Spout):
        outputs = ("x",)

        def next_tuple(self) -> None:
            self.emit([1], msg_id=threading.Lock())

    class Keeps(Bolt):
        def execute(self, tup: Tuple) -> None:
            pass

    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Locks(), Keeps()))
        with pytest.raises(UnsavableAttributeError, match=r"'s' task \d: a msg_id holds a _thread"):
            run.step()


def test_a_copy_of_a_tuple_cannot_be_settled() -> None:
    class Sends(Bolt):
        outputs = ("x",)

        def execute(self, tup: Tuple) -> None:
            copy = pickle.loads(pickle.dumps(tup))
            for refused in (self.ack, self.fail, lambda it: self.emit([1], anchors=it)):
                with pytest.raises(AnchorError, match="it is a copy, made by pickling"):
                    refused(copy)
            self.ack(tup)

    result = complete_topology(line(FeederSpout(["x"]), Sends()), mock_sources={"s": [[1]]})
    assert result.acked == {"s": [0]}


def test_a_restore_in_one_thread_is_none_in_another() -> None:
    seen: list[bool] = []
    with HeldTuples():
        thread = threading.Thread(target=lambda: seen.append(HeldTuples.is_restoring()))
        thread.start()
        thread.join()
        assert HeldTuples.is_restoring()
    assert seen == [HeldTuples.is_restoring()] == [False]


def grouped(by: str) -> Topology:
    builder = TopologyBuilder()

    class Two(FeederSpout):
        pass

    builder.set_spout("s", Two(["x", "y"]))
    builder.set_bolt("b", Passes(), 2).fields_grouping("s", [by])
    return builder.create_topology()


def test_a_checkpoint_is_refused_when_keys_would_go_to_other_tasks() -> None:
    before, now = make_plan(grouped("x"), 1), make_plan(grouped("y"), 1)
    before.check_same(before.to_json(), "here")
    with pytest.raises(CheckpointError, match=r"keeps state and now reads .*\(y\), before"):
        now.check_same(before.to_json(), "here")


# -- large frames ----------------------------------------------------------------------------------


def test_a_large_frame_is_encoded_twice_at_most_and_held_once() -> None:
    payload = [bytes([number]) * 500_000 for number in range(64)]
    sizes: list[int] = []
    real = encode_column

    def counted(column: Any) -> bytes:
        data = real(column)
        sizes.append(len(data))
        return data

    tracemalloc.start()
    with mock.patch("topo.wire.frame.encode_column", counted):
        packed = list(Frame(1, 2, 0, [Section("default", 64, [payload])]).pack())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    whole = sum(map(len, payload))
    assert [value for part in packed for value in part.unpack().sections[0].columns[0]] == payload
    assert sum(sizes) < 3.5 * whole, "twice, and once more where a part was a little too large"
    assert peak < 3.5 * whole
    assert len({part.sequence for part in packed}) == len(packed)


def test_a_column_that_is_too_long_for_its_length_is_split(monkeypatch: Any) -> None:
    monkeypatch.setattr(frame, "MAX_COLUMN_BYTES", 1000)
    values = ["x" * 300 for _ in range(20)]
    packed = list(Frame(1, 2, 0, [Section("default", 20, [values])]).pack())
    assert [value for part in packed for value in part.unpack().sections[0].columns[0]] == values
    with pytest.raises(EmitError, match="a value of 2,001 bytes was emitted"):
        list(Frame(1, 2, 0, [Section("default", 1, [["x" * 2000]])]).pack())
