"""`process_batch` and `emit_batch`: columns of Arrow, who is anchored to whom, what fails."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from topo import (
    UNANCHORED,
    BasicBolt,
    ColumnError,
    EmitError,
    FailTuple,
    FromList,
    InvalidTopologyError,
    Spout,
    TopologyBuilder,
    Tuple,
)
from topo.runtime.slot import Batch, SlotTasks, TaskEnvironment, full_conf
from topo.testing import TestCluster, complete_topology, make_tuple, run_bolt, run_spout
from topo.topology.layout import TaskLayout
from topo.wire.arrow import ArrowColumn
from topo.wire.frame import Frame, Section

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

UTC = dt.UTC
VALUES: dict[str, list[Any]] = {
    "text": ["a", None, "", "ä\0b"],
    "whole numbers": [1, None, -(1 << 62)],
    "numbers": [1.5, None, float("inf")],
    "bools": [True, None, False],
    "bytes": [b"", None, b"\0x"],
    "dates": [dt.date(2026, 1, 1), None],
    "times": [dt.datetime(2026, 1, 1, 5, 6, 7, 89), None],
    "times with zones": [dt.datetime(2026, 1, 1, tzinfo=UTC), None],
    "decimals": [Decimal("1.50"), None, Decimal("2.25")],
    "lists": [[1, 2], None, []],
    "structs": [{"a": 1, "b": "x"}, None],
    "nothing": [None, None],
}


class Same(BasicBolt):
    outputs = ("v", "n")

    def process_batch(self, batch: Any) -> None:
        assert batch.num_rows
        self.emit_batch(batch)


class Doing(BasicBolt):
    """Does what it is told to with a batch."""

    outputs = ("v",)

    def __init__(self, do: Any) -> None:
        self.do = do

    def process_batch(self, batch: Any) -> None:
        self.do(self, batch)


def tuples(*values: Any) -> list[Tuple]:
    return [make_tuple({"v": value}) for value in values]


def doing(do: Any, *values: Any) -> Any:
    """Run a bolt that does this with a batch of values; return its record."""
    return run_bolt(Doing(do), tuples(*values))


def anchors_of(run: Any) -> list[list[Any]]:
    return [[tup.v for tup in one.anchors] for one in run.emitted]


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_values_of_each_type_come_through_batches_as_they_were(kind: str) -> None:
    rows = [(value, number) for number, value in enumerate(VALUES[kind])]
    builder = TopologyBuilder()
    builder.set_spout("s", FromList(rows, fields=("v", "n")))
    builder.set_bolt("one", Same(), parallelism=2).shuffle_grouping("s")
    builder.set_bolt("two", Same()).fields_grouping("one", ["n"])
    result = complete_topology(builder.create_topology())
    assert sorted(result.tuples("two"), key=lambda row: row[1]) == list(map(list, rows))
    assert result.acked == {"s": list(range(len(rows)))}


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_an_array_in_a_frame_travels_with_its_type(kind: str) -> None:
    array = pa.array([*VALUES[kind], *VALUES[kind]])[1:-1]
    frame = Frame(1, 2, 3, [Section("default", len(array), [ArrowColumn(array)])])
    ((column,),) = (one.columns for one in Frame.decode(frame.encode()).sections)
    assert isinstance(column, ArrowColumn)
    assert column.array.equals(array)
    first, rest = frame.cut(1)
    assert [*first.listed().sections[0].columns[0], *rest.listed().sections[0].columns[0]] == (
        array.to_pylist()
    )


def test_a_dictionary_array_keeps_its_type_and_is_grouped_by_its_values() -> None:
    array = pa.array(["a", "b", "a", None]).dictionary_encode()[1:]
    column = ArrowColumn.decode(ArrowColumn(array).encode())
    assert column.array.type == array.type
    assert column.tolist() == ["b", "a", None]
    assert column.take(np.array([1])).tolist() == ["a"]


def test_nan_stays_a_number_and_none_a_null() -> None:
    seen: list[Any] = []
    doing(lambda bolt, batch: seen.append(batch), 1.0, None, float("nan"))
    (batch,) = seen
    assert batch["v"].null_count == 1
    assert batch["v"].is_valid().to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1, 2, 2.5], "has mixed numbers.*int first, and at row 2 the float 2.5; emit numbers"),
        (["a", "b", 3], "is no Arrow column: at row 2, 3, a int among .* began with a str"),
        ([None, object()], "is no Arrow column: at row 1, <object"),
        ([1 << 70], "is no Arrow column: at row 0, 1180591620717411303424"),
        (["\ud800"], "is no Arrow column: at row 0"),
    ],
)
def test_a_column_without_a_type_names_field_and_value(values: list[Any], said: str) -> None:
    with pytest.raises(ColumnError, match=f"field 'v' of 'component' {said}"):
        doing(lambda bolt, batch: None, *values)


# -- who is anchored to whom --------------------------------------------------------------------


def test_as_many_rows_are_anchored_one_by_one() -> None:
    run = doing(lambda bolt, batch: bolt.emit_batch({"v": pc.add(batch["v"], 10)}), 1, 2, 3)
    assert run.emitted == [[11], [12], [13]]
    assert anchors_of(run) == [[1], [2], [3]]
    assert [tup.v for tup in run.acked] == [1, 2, 3]


def test_fewer_and_more_rows_say_their_parents() -> None:
    def explode(bolt: Any, batch: Any) -> None:
        words = pc.split_pattern(batch["v"], " ")
        bolt.emit_batch({"v": words.flatten()}, parents=pc.list_parent_indices(words))

    def keep(bolt: Any, batch: Any) -> None:
        mask = pc.greater(batch["v"], 1)
        bolt.emit_batch(batch.filter(mask), parents=np.flatnonzero(mask))

    run = doing(explode, "a b", "", "c")
    assert run.emitted == [["a"], ["b"], [""], ["c"]]
    assert anchors_of(run) == [["a b"], ["a b"], [""], ["c"]]
    assert anchors_of(doing(keep, 1, 2, 3)) == [[2], [3]]
    assert anchors_of(doing(lambda bolt, _: bolt.emit_batch({"v": ["x"]}, parents=[1]), 4, 5)) == [
        [5]
    ]
    run = doing(lambda bolt, _: bolt.emit_batch({"v": ["x"]}, parents=UNANCHORED), 4, 5)
    assert anchors_of(run) == [[]]
    assert doing(lambda bolt, batch: bolt.emit_batch(batch.slice(0, 0)), 4, 5).emitted == []


@pytest.mark.parametrize(
    ("columns", "parents", "said"),
    [
        ({"v": [1]}, None, "emitted 1 rows of a batch of 2 inputs, .*; parents= has .*UNANCHORED"),
        ({"v": [1]}, [0, 1], "emitted 1 rows with 2 parents"),
        ({"v": [1]}, [2], "named input 2 in parents, of a batch of 2"),
        ({"v": [1]}, [-1], "named input -1 in parents"),
        ({"v": [1]}, [True, False], "gave a mask as parents; .*flatnonzero"),
        ({"v": [1]}, [0.5], "gave .* which are no positions"),
        ({"v": [1]}, pa.array([None], pa.int64()), "gave .* which are no positions"),
        ({"w": [1, 2]}, None, "emitted columns w on stream 'default', whose fields are v"),
        ({}, None, "emitted columns none on stream 'default'"),
        ({"v": "ab"}, None, "emitted 'ab' as the column of field 'v'; a column has a value"),
        ([1, 2], None, r"called emit_batch with a list, \[1, 2\]"),
    ],
)
def test_a_wrong_batch_is_refused(columns: Any, parents: Any, said: str) -> None:
    with pytest.raises(EmitError, match=said):
        doing(lambda bolt, _: bolt.emit_batch(columns, parents=parents), 1, 2)


def test_columns_of_different_lengths_and_an_unknown_stream_are_refused() -> None:
    class Two(BasicBolt):
        outputs = ("a", "b")

        def process_batch(self, batch: Any) -> None:
            self.emit_batch({"a": [1], "b": [1, 2]}, stream=batch["v"][0].as_py())

    with pytest.raises(EmitError, match=r"columns of different lengths: {'a': 1, 'b': 2}"):
        run_bolt(Two(), tuples("default"))
    with pytest.raises(EmitError, match="stream 'defolt', which it does not declare"):
        run_bolt(Two(), tuples("defolt"))


def test_a_single_emit_in_a_batch_is_refused_and_elsewhere_is_not() -> None:
    with pytest.raises(EmitError, match=r"called emit in process_batch.*emit_batch\(columns, par"):
        doing(lambda bolt, batch: bolt.emit([1]), 1)

    class AtTheEnd(Doing):
        def pre_commit(self, batch_id: int) -> None:
            self.emit([batch_id])
            self.emit_batch({"v": [7, 8]})

    run = run_bolt(AtTheEnd(lambda bolt, batch: None), batches=[tuples(1, 2), tuples(3)])
    assert run.emitted == [[0], [7], [8], [1], [7], [8]]


def test_outputs_with_types_are_fields_to_which_columns_are_cast() -> None:
    class Typed(BasicBolt):
        outputs = {"v": pa.string(), "n": pa.float64()}

        def process_batch(self, batch: Any) -> None:
            self.emit_batch({"n": batch["v"], "v": pc.cast(batch["v"], pa.string())})

    assert run_bolt(Typed(), tuples(1, 2)).emitted == [["1", 1.0], ["2", 2.0]]

    class Wrong(Typed):
        def process_batch(self, batch: Any) -> None:
            self.emit_batch({"n": batch["v"], "v": batch["v"]})

    with pytest.raises(EmitError, match=r"emitted string in field 'n' .* declared as double"):
        run_bolt(Wrong(), tuples("x"))


def test_data_frames_arrays_of_numpy_and_tables_are_columns() -> None:
    pandas = pytest.importorskip("pandas")

    def frames(bolt: Any, batch: Any) -> None:
        frame = batch.to_pandas()
        bolt.emit_batch(frame[frame["v"] > 1], parents=np.flatnonzero(frame["v"] > 1))
        bolt.emit_batch({"v": np.array([1.5, 2.5, 3.5])})
        bolt.emit_batch({"v": pandas.Series([7, 8, 9])})
        bolt.emit_batch(pa.table({"v": pa.chunked_array([[1], [2, 3]])}))

    run = doing(frames, 1, 2, 3)
    assert [value for (value,) in run.emitted] == [2, 3, 1.5, 2.5, 3.5, 7, 8, 9, 1, 2, 3]


# -- failures ------------------------------------------------------------------------------------


def test_single_rows_fail_and_the_rest_is_acked() -> None:
    def fail_odd(bolt: Any, batch: Any) -> None:
        bolt.emit_batch(batch)
        raise FailTuple("odd", rows=np.flatnonzero(pc.bit_wise_and(batch["v"], 1)))

    run = doing(fail_odd, 1, 2, 3)
    assert run.emitted == [[1], [2], [3]]
    assert [tup.v for tup in run.acked] == [2]
    assert [tup.v for tup in run.failed] == [1, 3]


def test_a_failure_without_rows_is_of_all_and_wrong_rows_are_an_error() -> None:
    def fail(bolt: Any, batch: Any) -> None:
        raise FailTuple("no")

    def wrong(bolt: Any, batch: Any) -> None:
        raise FailTuple("no", rows=[5])

    assert [tup.v for tup in doing(fail, 1, 2).failed] == [1, 2]
    with pytest.raises(EmitError, match="named input 5 in rows, of a batch of 2"):
        doing(wrong, 1, 2)


class Fails(BasicBolt):
    outputs = ("v",)

    def process_batch(self, batch: Any) -> None:
        self.emit_batch({"v": batch["v"]})
        if pc.any(pc.equal(batch["v"], 3)).as_py():
            raise ValueError("a three")


def test_an_exception_fails_the_frame_or_stops() -> None:
    def build(policy: str) -> Any:
        builder = TopologyBuilder()
        builder.set_spout("s", FromList(range(6), fields="v", attempts=1), parallelism=2)
        builder.set_bolt("fails", Fails()).shuffle_grouping("s")
        return complete_topology(
            builder.create_topology(), conf={"topology.uncaught.error": policy}
        )

    result = build("fail")
    assert result.acked == {"s": [0, 2, 4]}
    assert sorted(result.failed["s"]) == [1, 3, 5]
    with pytest.raises(ValueError, match="a batch of 3 tuples of 's': ValueError: a three") as seen:
        build("stop")
    assert "test_batches.py" in str(seen.value)


# -- hooks ---------------------------------------------------------------------------------------


def test_ticks_go_to_tick() -> None:
    class Ticking(Doing):
        def get_component_configuration(self) -> dict[str, Any]:
            return {"topology.tick.tuple.freq.secs": 1}

        def tick(self) -> None:
            self.emit_batch({"v": ["tick"]})

    builder = TopologyBuilder()
    builder.set_spout("s", FromList([1], fields="v"))
    builder.set_bolt("t", Ticking(lambda bolt, batch: None)).shuffle_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology("ticks", builder.create_topology())
        run.settle()
        cluster.advance(1)
        assert run.tuples("t") == [["tick"]]


def test_a_returned_value_and_a_generator_are_told_of() -> None:
    with pytest.raises(EmitError, match=r"returned a dict, which goes nowhere; call self.emit_ba"):
        run_bolt(Returning(), tuples(1))

    class Yields(BasicBolt):
        def process_batch(self, batch: Any) -> Any:
            yield batch

    builder = TopologyBuilder()
    builder.set_spout("s", FromList([1], fields="v"))
    builder.set_bolt("t", Yields()).shuffle_grouping("s")
    with pytest.raises(InvalidTopologyError, match="process_batch is a generator"):
        builder.create_topology()


class Returning(BasicBolt):
    outputs = "v"

    def process_batch(self, batch: Any) -> Any:
        return {"v": batch["v"]}


# -- spouts, and the way ----------------------------------------------------------------------


class Columns(Spout):
    outputs = ("v", "n")

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = False

    def next_tuple(self) -> None:
        if not self.sent:
            self.sent = True
            numbers = pa.array(range(self.size))
            words = pc.cast(pc.multiply(numbers, 7), pa.string())
            self.emit_batch({"n": numbers, "v": words}, msg_ids=range(self.size))

    def is_exhausted(self) -> bool:
        return self.sent


def test_a_spout_by_itself_emits_batches() -> None:
    run = run_spout(Columns(3))
    assert run.emitted == [["0", 0], ["7", 1], ["14", 2]]
    assert [one.msg_id for one in run.emitted] == [0, 1, 2]


class Kinds(BasicBolt):
    """Keeps the types of the columns that it gets, and the values."""

    outputs = ("v", "n")

    def __init__(self) -> None:
        self.types: set[str] = set()
        self.values: list[Any] = []

    def process_batch(self, batch: Any) -> None:
        self.types |= {str(type) for type in batch.schema.types}
        self.values += batch.to_pylist()
        self.emit_batch({"v": batch["v"], "n": pc.cast(batch["n"], pa.int16())})


@pytest.mark.parametrize("grouping", ["shuffle", "fields", "partial", "all"])
def test_columns_stay_arrow_through_groupings(grouping: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Columns(1000))
    one = builder.set_bolt("one", Kinds(), parallelism=2)
    two = builder.set_bolt("two", Kinds(), parallelism=3)
    for bolt, source in ((one, "s"), (two, "one")):
        if grouping == "fields":
            bolt.fields_grouping(source, ["v"])
        elif grouping == "partial":
            bolt.partial_key_grouping(source, ["v"])
        elif grouping == "all":
            bolt.all_grouping(source)
        else:
            bolt.shuffle_grouping(source)
    topology = builder.create_topology()
    conf = full_conf({})
    layout = TaskLayout(topology, conf)
    tasks = range(1, layout.count + 1)
    env = TaskEnvironment(topology, layout, conf, "t", lambda: 0.0, frozenset(tasks))
    host = SlotTasks(env, tasks, travelling=True, nonce=lambda: 7)
    host.open()
    host.begin(Batch(0, 0.0, -1.0))
    host.poll(10_000, rounds=2)
    list(host.work(last_tick=False))
    copies = {"all": 2}.get(grouping, 1)
    for name, number, times in (("one", "int64", copies), ("two", "int16", copies * 3)):
        bolts = [task.component for task in host.tasks.values() if task.component_id == name]
        rows = [row for bolt in bolts for row in bolt.values]  # type: ignore[attr-defined]
        times = times if grouping == "all" else 1
        assert sorted(row["n"] for row in rows) == sorted([*range(1000)] * times)
        assert {one for bolt in bolts for one in bolt.types} == {"string", number}  # type: ignore[attr-defined]
        assert all(row["v"] == str(row["n"] * 7) for row in rows)
        if grouping == "fields":
            assert len([bolt for bolt in bolts if bolt.values]) > 1  # type: ignore[attr-defined]
