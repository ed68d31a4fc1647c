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


def test_a_sink_takes_what_map_makes() -> None:
    sink = SparkSink("json", path="/o", schema="a int, b int", map=_own_value, on_bad="stream")
    given = [{"a": 1}, {"c": 1}, None]
    made = run_bolt(sink, batches=[[make_tuple([value], fields="x") for value in given]])
    assert [values for values, _ in made.emitted] == [[{"c": 1}], [None]]


def _own_value(tup: Tuple) -> Any:
    return tup.x
