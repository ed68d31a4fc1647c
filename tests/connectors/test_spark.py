"""SparkSource and SparkSink without Spark: what they declare, what they refuse, what they check."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from topo import ComponentError, EngineError, Topology, TopologyBuilder, Tuple
from topo.connectors.base import OnBad
from topo.connectors.spark import SparkSink, SparkSource
from topo.connectors.spark.schemas import arrow_schema
from topo.engine.base import Launch, engine_named
from topo.testing import TestCluster, complete_topology, make_tuple, run_bolt
from topo.wire.arrow import ArrowColumn


def copying(sink: SparkSink) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("in", SparkSource("json", {"path": "/in"}, fields=("user", "total")))
    builder.set_bolt("out", sink).shuffle_grouping("in")
    return builder.create_topology()


def users(on_bad: OnBad = "stop") -> SparkSink:
    return SparkSink("orc", path="/out", schema="user string, total bigint", on_bad=on_bad)


def test_fields_come_from_what_is_selected() -> None:
    select = "cast(value as string) as line, topic, struct(a, b).b AS `c`, concat('x, y', k) as k"
    assert SparkSource("kafka", select=select).outputs == ("line", "topic", "c", "k")
    assert SparkSource("kafka", select=["upper(k)"], fields="key").outputs == ("key",)
    assert SparkSource("json", fields=("a", "b")).external["source"]["select"] == ["`a`", "`b`"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SparkSource("json"), "fields of its tuples are not known"),
        (lambda: SparkSource("kafka", select="upper(k)"), r"'upper\(k\)', whose name is not known"),
        (lambda: SparkSource("rate", select="a, b", fields="a"), "1 fields and 2 expressions"),
        (lambda: SparkSource("rate", {"n": [1]}, fields="a"), r"option 'n' is \[1\]"),
        (lambda: SparkSource("", fields="a"), "format=''"),
        (lambda: SparkSink("parquet", schema="a int"), "needs path="),
        (lambda: SparkSink("jdbc", schema="a int", guarantee="by_batch"), "is for files"),
        (lambda: SparkSink("csv", path="/x", schema="a int", partition_by="b"), "names 'b'"),
        (lambda: SparkSink("csv", path="/x", schema="a itn"), "no type 'itn'.*did you mean"),
        (lambda: SparkSink("csv", path="/x", schema="a int b"), "',' is missing"),
        (lambda: SparkSink("csv", path="/x", schema="a decimal(x)"), "'x' where a number"),
        (lambda: SparkSink("csv", path="/x", schema="a array<int"), "ends too early"),
        (lambda: SparkSink("csv", path="/x", schema="a int; b int"), "belongs to no schema"),
        (lambda: SparkSink("csv", path="/x", schema="a int, A int"), "a column twice"),
        (lambda: SparkSink("csv", path="/x", schema=""), "names no column"),
    ],
)
def test_what_cannot_be_is_said_when_it_is_made(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ComponentError, match=said):
        make()


def test_schemas_are_sparks() -> None:
    text = "a decimal(10,2), `b c` map<string,array<int>>, s: struct<x: double, y timestamp_ntz>"
    assert arrow_schema(text) == pa.schema(
        {
            "a": pa.decimal128(10, 2),
            "b c": pa.map_(pa.string(), pa.list_(pa.int32())),
            "s": pa.struct({"x": pa.float64(), "y": pa.timestamp("us")}),
        }
    )


def test_tests_give_rows_in_place_of_spark() -> None:
    topology = copying(users())
    assert topology == Topology.from_bytes(topology.to_bytes())
    done = complete_topology(topology, mock_sources={"in": [["ann", 1], ["bob", 2]]})
    assert done.tuples("in") == [["ann", 1], ["bob", 2]]


def test_engines_without_spark_refuse_by_name() -> None:
    topology = copying(users())
    for submit in (
        lambda: complete_topology(topology),
        lambda: TestCluster().submit_topology("t", topology),
    ):
        with pytest.raises(EngineError, match=r"Spark reads for spout 'in'.*mock_sources="):
            submit()
    with pytest.raises(EngineError, match="Spark reads for spout 'in'"):
        engine_named("inline").launch(Launch("t", topology, {}))


def test_a_sink_hands_out_what_fits_its_schema() -> None:
    schema = "at timestamp, price decimal(6,2), tags array<string>"
    sink = SparkSink("json", path="/out", schema=schema, on_bad="stream")
    good = [datetime(2026, 1, 2, tzinfo=UTC), Decimal("3.50"), ["a", None]]
    bad = [["no time", Decimal(1), []], [good[0], Decimal("12345.678"), []], [good[0], None, [1]]]
    rows: list[list[Any]] = [good, *bad, [None, None, None]]
    tuples = [make_tuple(row, fields=["at", "price", "tags"]) for row in rows]
    done = run_bolt(sink, batches=[tuples])
    refused = [list(emitted) for emitted in done.emitted]
    assert [values for values, _ in refused] == bad
    assert [error.split(" is ")[0] for _, error in refused] == [
        "ValueError: column 'at'",
        "ValueError: column 'price'",
        "ValueError: column 'tags'",
    ]


@pytest.mark.parametrize(
    ("kind", "whole", "cut"),
    [
        ("int", 2.0, 1.5),
        ("bigint", Decimal(3), Decimal("1.5")),
        ("timestamp", 5, 1.5),
        ("date", datetime(2026, 1, 2), datetime(2026, 1, 2, 3)),
        ("float", 0.1, 1e300),
        ("array<int>", [1, 2.0], [1, 2.5]),
        ("map<string,int>", {"a": 1.0}, {"a": 1.5}),
        ("struct<a: int>", {"a": 1.0}, {"a": 1.5}),
        ("struct<a: int>", {}, {"a": 1, "z": 2}),
        ("array<struct<a: date>>", [{"a": None}], [{"a": datetime(2026, 1, 2, 3)}]),
    ],
)
def test_a_value_that_would_be_cut_short_is_refused(kind: str, whole: Any, cut: Any) -> None:
    sink = SparkSink("parquet", path="/out", schema=f"v {kind}", on_bad="stream")
    done = run_bolt(sink, batches=[[make_tuple({"v": value}) for value in (whole, cut, None)]])
    assert [values for values, _ in done.emitted] == [[cut]]
    (part,) = done.bolt.context.handed_out
    assert pa.ipc.open_stream(part).read_all().num_rows == 2


NAN = float("nan")
KINDS: dict[str, list[Any]] = {
    "bigint": [1, None, True, 2.0, 1.5, NAN, 1 << 63, "1", Decimal(1), [1]],
    "int": [1, None, 1 << 31, -(1 << 31)],
    "double": [1.5, None, NAN, float("inf"), 3, True, 1 << 60, "1.5", Decimal("1.5")],
    "string": ["a", None, "", "\ud800", b"a", 1, ["a"]],
    "binary": [b"a", None, bytearray(b"b"), "a", 1],
    "boolean": [True, None, False, 0, "true"],
    "timestamp": [datetime(2026, 1, 2, tzinfo=UTC), None, datetime(2026, 1, 2), 1, "2026-01-02"],
    "decimal(6,2)": [Decimal("1.50"), None, Decimal("1.505"), 1, 1.5, Decimal("NaN")],
    "array<int>": [[1, None], None, [], (2,), [1, "a"], {"a": 1}, [[1]]],
    "map<string,int>": [{"a": 1}, None, {}, [("a", 1)], {"b": None}, {1: 1}],
    "struct<a: int, b: string>": [
        {"a": 1, "b": "x"},
        None,
        {"a": 1},
        {"c": 1},
        [1, "x"],
        {"a": "x"},
    ],
}


def _by_name(tup: Tuple) -> dict[str, Any]:
    return dict(zip(tup.fields, tup.values, strict=True))


def _written(run: Any) -> tuple[str, str]:
    """Return what was handed out, and what was refused."""
    rows = [pa.ipc.open_stream(part).read_all() for part in run.bolt.context.handed_out]
    assert all(table.schema == arrow_schema(run.bolt.schema) for table in rows)
    values = [table.to_pylist() for table in rows]
    return repr(values), repr([list(emitted) for emitted in run.emitted])


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_written_as_rows_are(kind: str) -> None:
    values = KINDS[kind]
    draws = [values, values[:2], [None], values[1:2] * 3, []]
    draws += [[value, values[0]] for value in values]
    for drawn in draws:
        made = [
            run_bolt(
                SparkSink("orc", path="/o", schema=f"n int, x {kind}", map=way, on_bad="stream"),
                batches=[[make_tuple([x, n], fields=["x", "n"]) for n, x in enumerate(drawn)]],
            )
            for way in (None, _by_name)
        ]
        by_columns, by_rows = map(_written, made)
        assert by_columns == by_rows


@pytest.mark.parametrize("kind", KINDS)
def test_arrows_columns_are_written_as_rows_are(kind: str) -> None:
    schema = arrow_schema(f"n int, x {kind}")
    sound = pa.array([KINDS[kind][0], None], schema.field("x").type)
    parts: list[list[Any]] = [
        [[0, 1], ["no" if kind != "string" else 7, None]],
        [ArrowColumn(pa.array([2, 3], pa.int32())), ArrowColumn(sound)],
        [ArrowColumn(pa.array([4, 1 << 40])), ArrowColumn(pa.nulls(2))],
        [ArrowColumn(pa.array([5, 6], pa.int32())), [None, None]],
    ]
    by_columns, by_rows = (
        run_bolt(
            SparkSink("orc", path="/o", schema=f"n int, x {kind}", map=way, on_bad="stream"),
            batches=[],
        )
        for way in (None, _by_name)
    )
    sink = by_columns.bolt
    assert isinstance(sink, SparkSink)
    for columns in parts:
        sink.process_columns(("n", "x"), columns, 2)
        rows = zip(*columns, strict=True)
        by_rows.execute_all([make_tuple(list(row), fields=["n", "x"]) for row in rows])
    sink.pre_commit(0)
    by_rows.bolt.pre_commit(0)
    assert _written(by_columns) == _written(by_rows)


def test_a_sink_names_a_column_that_its_input_has_not() -> None:
    tuples = [make_tuple(["ann", 1], fields=["user", "totl"])]
    with pytest.raises(ComponentError, match=r"no field 'total'.*did you mean 'totl'"):
        run_bolt(users(), batches=[tuples])
    run = run_bolt(users("stream"), batches=[tuples])
    assert [values for values, _ in run.emitted] == [["ann", 1]]
    assert not run_bolt(users("skip"), batches=[tuples]).emitted


def test_a_sink_takes_what_map_makes() -> None:
    sink = SparkSink("json", path="/o", schema="a int, b int", map=_own_value, on_bad="stream")
    given = [{"a": 1}, {"c": 1}, None]
    made = run_bolt(sink, batches=[[make_tuple([value], fields="x") for value in given]])
    assert [values for values, _ in made.emitted] == [[{"c": 1}], [None]]


def _own_value(tup: Tuple) -> Any:
    return tup.x
