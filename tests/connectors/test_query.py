"""`QueryBolt`: SQL over batches and over the latest rows, and what is said of a wrong query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from topo import InvalidTopologyError, TopologyBuilder, UncaughtError
from topo.connectors.query import QueryBolt
from topo.errors import ComponentError
from topo.testing import FeederSpout, TestCluster
from topo.topology.model import Topology

SUMS = "select user, sum(amount) spent from input group by user order by user"


def orders(feeder: FeederSpout, query: QueryBolt, parallelism: int = 1) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("orders", feeder)
    builder.set_bolt("q", query, parallelism).fields_grouping("orders", ["user"])
    return builder.create_topology()


def fed(query: QueryBolt, *batches: list[list[Any]], restarts: bool = False) -> list[list[Any]]:
    """Return the bolt's tuples after these batches of orders."""
    feeder = FeederSpout(["user", "amount"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", orders(feeder, query))
        for batch in batches:
            for row in batch:
                feeder.feed(row)
            run.settle()
            if restarts:
                run.restart()
        return run.tuples("q")


def test_a_query_over_each_batch() -> None:
    batches = [["ann", 1], ["bob", 2], ["ann", 3]], [["bob", 4]]
    assert fed(QueryBolt(SUMS), *batches) == [["ann", 4], ["bob", 2], ["bob", 4]]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_query_over_the_latest_rows(restarts: bool) -> None:
    batches = [[["a", 2**n]] for n in range(5)]
    assert fed(QueryBolt(SUMS, over="3 rows"), *batches, restarts=restarts) == [
        ["a", 1], ["a", 3], ["a", 7], ["a", 14], ["a", 28],
    ]  # fmt: skip


def test_many_rows_at_once_push_out_what_is_older() -> None:
    batches = [["a", n] for n in range(9)], [["a", n] for n in range(100, 109)]
    assert fed(QueryBolt(SUMS, over="3 rows"), *batches)[-1] == ["a", 106 + 107 + 108]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_query_over_a_time_forgets_what_is_older(restarts: bool) -> None:
    feeder = FeederSpout(["user", "amount"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", orders(feeder, QueryBolt(SUMS, over="10s")))
        for row in (["a", 1], ["a", 2]):
            feeder.feed(row)
            run.settle()
            if restarts:
                run.restart()
            cluster.advance(6)
        cluster.advance(10)
        assert run.tuples("q") == [["a", 1], ["a", 3], ["a", 2]]


def test_inputs_are_acked_and_results_go_on() -> None:
    feeder = FeederSpout(["user", "amount"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", orders(feeder, QueryBolt(SUMS), 2))
        for number in range(20):
            feeder.feed([f"u{number % 5}", 1], msg_id=number)
        run.settle()
        assert sorted(feeder.acked) == list(range(20))
        assert sum(row[1] for row in run.tuples("q")) == 20


def test_fixed_tables_of_a_file_and_of_dicts(tmp_path: Path) -> None:
    path = tmp_path / "it's users.parquet"
    pq.write_table(pa.table({"user": ["ann", "bob"], "country": ["no", "se"]}), path)
    query = QueryBolt(
        "select name, sum(amount) total from input join users using (user) "
        "join countries c on c.code = country group by name order by name",
        tables={
            "users": str(path),
            "countries": [{"code": "no", "name": "Norway"}, {"code": "se", "name": "Sweden"}],
        },
    )
    assert fed(query, [["ann", 1], ["bob", 2], ["eve", 4]]) == [["Norway", 1], ["Sweden", 2]]


def test_two_inputs_are_tables_by_their_names() -> None:
    left, right = FeederSpout(["id", "name"]), FeederSpout(["id", "score"])
    builder = TopologyBuilder()
    builder.set_spout("people", left)
    builder.set_spout("scores", right)
    query = QueryBolt(
        "select name, max(score) best from people join scores using (id) group by name",
        over="100 rows",
    )
    builder.set_bolt("q", query).global_grouping("people").global_grouping("scores")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        left.feed([1, "ann"])
        run.settle()
        right.feed([1, 7])
        run.settle()
        right.feed([1, 5])
        run.settle()
        assert run.tuples("q") == [["ann", 7], ["ann", 7]]


def test_a_bolt_reads_the_results_by_the_names_of_the_columns() -> None:
    builder = TopologyBuilder()
    builder.set_spout("orders", FeederSpout(["user", "amount"]))
    builder.set_bolt("q", QueryBolt(SUMS)).global_grouping("orders")
    builder.set_bolt("again", QueryBolt("select max(spent) m from q")).global_grouping("q")
    topology = builder.create_topology()
    assert topology.component("again").declared("default").fields == ("m",)


def test_values_of_no_common_type_are_named() -> None:
    with pytest.raises(UncaughtError, match=r"(?s)column 'amount' holds int, str"):
        fed(QueryBolt(SUMS), [["a", 1], ["a", "2"]])


def test_a_column_may_be_null_and_then_whole_and_then_a_fraction() -> None:
    batches = [["a", None]], [["a", 1]], [["a", 0.5]]
    assert fed(QueryBolt(SUMS, over="10 rows"), *batches) == [["a", None], ["a", 1], ["a", 1.5]]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (lambda: QueryBolt("select usr from input"), '"usr" not found.*"user"'),
        (lambda: QueryBolt("select user frm input"), "syntax error"),
        (lambda: QueryBolt("select * from elsewhere"), "elsewhere does not exist"),
        (lambda: QueryBolt("select date_trunc('day', amount) from input"), "types="),
        (lambda: QueryBolt("select 1 a, 2 a from input"), "'a'"),
        (lambda: QueryBolt(SUMS, types={"amt": "int64"}), "no input has"),
        (lambda: QueryBolt(SUMS, types={"amount": "floot64"}), "float64"),
        (lambda: QueryBolt(SUMS, tables={"users": "no-such-file.parquet"}), "cannot be read"),
    ],
)
def test_a_wrong_query_is_an_error_when_the_topology_is_built(query: Any, words: str) -> None:
    with pytest.raises(InvalidTopologyError, match=f"(?s){words}"):
        orders(FeederSpout(["user", "amount"]), query())


@pytest.mark.parametrize("over", ["10", "0 rows", "-1s", "1.5h", "", None, 10])
def test_a_wrong_look_back_is_refused(over: Any) -> None:
    with pytest.raises(ComponentError, match="1000 rows"):
        QueryBolt(SUMS, over=over)


def test_named_types_make_ambiguous_calls_clear() -> None:
    query = QueryBolt(
        "select date_trunc('day', amount)::varchar as day from input",
        types={"amount": "timestamp[us]"},
    )
    orders(FeederSpout(["user", "amount"]), query)


def test_a_value_that_a_named_type_would_cut_short_is_an_error() -> None:
    query = QueryBolt(SUMS, types={"amount": "int64"})
    assert fed(query, [["ann", 2.0], ["ann", 3]]) == [["ann", 5]]
    with pytest.raises(UncaughtError, match=r"1\.5 is no whole number"):
        fed(query, [["ann", 1.5]])


def test_a_fixed_table_has_the_columns_of_all_its_rows() -> None:
    query = QueryBolt(
        "select user, city from input join users using (user)",
        tables={"users": [{"user": "ann"}, {"user": "bob", "city": "Rome"}]},
    )
    assert sorted(fed(query, [["ann", 1], ["bob", 1]]), key=str) == [["ann", None], ["bob", "Rome"]]
