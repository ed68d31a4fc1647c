"""The SQL connectors over SQLite, and over PostgreSQL where it is installed."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from tests.connectors.moving import RollsBack, committed_numbers
from tests.connectors.scripted_kafka import Keeps
from tests.servers import postgres
from tests.servers.postgres import PostgresServer
from tests.wiring import line
from topo import BasicBolt, ComponentError, Spout, TopologyBuilder, Tuple
from topo.connectors.sql import SqlBolt, SqlLookupBolt, SqlSpout
from topo.connectors.sql.rows import Rows, halves, merged
from topo.engine.inline.run import InlineRun
from topo.testing import TestCluster, make_tuple, run_bolt
from topo.wire.arrow import ArrowColumn


class Sqlite:
    """A database in a file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "base.db"
        self.url = f"sqlite:///{self._path}"
        self._tables = 0

    def table(self, columns: str) -> str:
        self._tables += 1
        self.run(f"create table t{self._tables} ({columns})")
        return f"t{self._tables}"

    def run(self, *statements: str) -> None:
        connection = sqlite3.connect(self._path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    def rows(self, query: str) -> list[Any]:
        connection = sqlite3.connect(self._path)
        found = connection.execute(query).fetchall()
        connection.close()
        return found


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = postgres.start()
    yield server
    server.stop()


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=[pytest.mark.server, pytest.mark.xdist_group("servers")]),
    ]
)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return Sqlite(tmp_path)
    server = request.getfixturevalue("server")
    server.run("drop table if exists topo_batches")
    return server


# -- reading ------------------------------------------------------------------------------------


def started(cluster: TestCluster, spout: SqlSpout) -> Any:
    return cluster.submit_topology("t", line(spout, Keeps()))


@pytest.mark.parametrize("restarts", [False, True])
def test_every_row_once_in_order(base: Any, restarts: bool) -> None:
    table = base.table("id integer primary key, name text, day integer")
    for number in range(25):
        base.run(f"insert into {table} values ({number}, 'n{number}', {number // 10})")
    spout = SqlSpout(base.url, table, by=("day", "id"), fields=("id", "name"), mode="once", page=7)
    with TestCluster() as cluster:
        run = started(cluster, spout)
        while run.status == "ACTIVE":
            run.step()
            if restarts and run.status == "ACTIVE":
                run.restart()
        assert run.tuples("s") == [[number, f"n{number}"] for number in range(25)]


def test_rows_that_are_added_and_rows_that_are_chosen(base: Any) -> None:
    table = base.table("id integer primary key, name text")
    base.run(f"insert into {table} values (1, 'one'), (2, 'two')")
    spout = SqlSpout(
        base.url,
        table,
        by="id",
        fields="name",
        where="name <> 'two'",
        translate=lambda row: [row["name"].upper()],
    )
    with TestCluster() as cluster:
        run = started(cluster, spout)
        run.settle()
        for number in range(3, 6):
            base.run(f"insert into {table} values ({number}, 'more')")
            cluster.advance(3)
            run.restart()
        assert run.tuples("s") == [["ONE"], ["MORE"], ["MORE"], ["MORE"]]


def test_a_lower_key_that_commits_a_little_later_is_read(tmp_path: Path) -> None:
    base = Sqlite(tmp_path)
    table = base.table("id integer primary key")
    with TestCluster() as cluster:
        run = started(cluster, SqlSpout(base.url, table, by="id", fields="id", settle_secs=5))
        for late, early in ((1, 2), (3, 4)):
            base.run(f"insert into {table} values ({early})")
            cluster.advance(1)
            run.restart()
            base.run(f"insert into {table} values ({late})")
            cluster.advance(1)
        cluster.advance(20)
        assert run.tuples("s") == [[2], [1], [4], [3]]
        live: Any = run
        state = live._host.spouts[0].component.state.raw()
        assert state == {table: {"floor": (4,), "recent": {}}}


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_a_row_whose_transaction_ends_later_is_not_missed(server: PostgresServer) -> None:
    table = server.table("id integer primary key")
    slow = server.connect()
    slow.execute(f"insert into {table} values (1)")
    server.run(f"insert into {table} values (2)")
    with TestCluster() as cluster:
        run = started(cluster, SqlSpout(server.url, table, by="id", fields="id"))
        cluster.advance(5)
        assert run.tuples("s") == []
        slow.commit()
        slow.close()
        cluster.advance(5)
        assert run.tuples("s") == [[1], [2]]


# -- writing ------------------------------------------------------------------------------------


class Rollback(RollsBack, SqlBolt):
    pass


@pytest.mark.parametrize("guarantee", ["by_batch", "exactly_once", "at_least_once"])
def test_the_table_has_what_was_committed(base: Any, guarantee: Any) -> None:
    table = base.table("number integer, name text, topo_batch integer, topo_task text")
    committed = committed_numbers(Rollback(base.url, table, guarantee=guarantee), 1)
    written = sorted(row[0] for row in base.rows(f"select number from {table}"))
    if guarantee == "at_least_once":
        assert set(written) > set(committed)
    else:
        assert written == committed


def batch(*rows: dict[str, Any]) -> list[Tuple]:
    return [make_tuple(row) for row in rows]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_rows_are_replaced_and_deleted_by_their_key(base: Any, guarantee: Any) -> None:
    table = base.table("id integer primary key, name text")

    def bolt(mode: Any) -> SqlBolt:
        return SqlBolt(base.url, table, mode=mode, key="id", guarantee=guarantee)

    first = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 1, "name": "c"}]
    run_bolt(bolt("upsert"), batches=[batch(*first), batch({"id": 2, "name": "d"})])
    assert sorted(base.rows(f"select id, name from {table}")) == [(1, "c"), (2, "d")]
    base.run("drop table if exists topo_batches")
    run_bolt(bolt("delete"), batches=[batch({"id": 1, "name": ""})])
    assert base.rows(f"select id, name from {table}") == [(2, "d")]


@pytest.mark.parametrize("count", [1, 150])
def test_scalars_of_numpy_are_written_as_pythons(base: Any, count: int) -> None:
    table = base.table("id integer, n integer, x double precision, name text")
    values = {"n": np.int64(5), "x": np.float32(0.5), "name": np.str_("a")}
    rows = [{"id": np.int32(number), **values} for number in range(count)]
    run_bolt(SqlBolt(base.url, table), batches=[batch(*rows)])
    written = base.rows(f"select n, x, name, count(*) from {table} group by n, x, name")
    assert written == [(5, 0.5, "a", count)]
    ids = [make_tuple({"user": np.int64(0)})]
    bolt = SqlLookupBolt(base.url, table, key="id", on="user", columns="name", fields=())
    assert run_bolt(bolt, batches=[ids]).emitted == [["a"]]


def test_what_of_numpy_is_no_value_of_sql_is_refused(tmp_path: Path) -> None:
    base = Sqlite(tmp_path)
    table = base.table("id integer, v text")
    sink = SqlBolt(base.url, table, on_bad="stream")
    odd = [np.arange(3), np.datetime64("2020-01-01T00:00:00.123456789"), np.longdouble(1)]
    odd += [np.datetime64("20000-01-01"), np.datetime64(300_000, "Y"), np.timedelta64(10**9, "D")]
    odd += [np.timedelta64(3, "Y"), np.timedelta64(5), np.timedelta64(1500, "ns")]
    day = np.datetime64("2020-01-01T00:00:00.5")
    rows = [{"id": number, "v": value} for number, value in enumerate([*odd, day, "last"])]
    run = run_bolt(sink, batches=[batch(*rows)])
    assert [emitted[0][0] for emitted in run.emitted] == [*range(len(odd))]
    assert {emitted[1].split(":")[0] for emitted in run.emitted} == {"ValueError"}
    written = base.rows(f"select id, v from {table} order by id")
    assert written == [(len(odd), "2020-01-01 00:00:00.500000"), (len(odd) + 1, "last")]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_rows_that_the_database_refuses_are_rejected_alone(base: Any, guarantee: Any) -> None:
    table = base.table("id integer primary key, name text not null")
    sink = SqlBolt(base.url, table, guarantee=guarantee, on_bad="stream")
    rows = [{"id": number, "name": None if number == 3 else "x"} for number in range(9)]
    run = run_bolt(sink, batches=[batch(*rows, {"id": 2, "name": "twice"}), []])
    assert [row[0] for row in base.rows(f"select id from {table} order by id")] == [
        number for number in range(9) if number != 3
    ]
    assert sorted(emitted[0][0] for emitted in run.emitted) == [2, 3]
    assert {emitted.stream for emitted in run.emitted} == {"rejected"}
    base.run("drop table if exists topo_batches")
    with pytest.raises(ValueError, match=r"(?i)null"):
        run_bolt(SqlBolt(base.url, table, guarantee=guarantee), batches=[batch(rows[3])])


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_many_rows_are_what_few_are(server: PostgresServer) -> None:
    """They are copied."""
    columns = "id integer not null, t text, j jsonb, d timestamptz, n numeric, a integer[], b bytea"
    columns += ", f float8, y boolean, m numeric, day date, at time, u uuid, e text, s text"
    few, many = server.table(columns), server.table(columns)
    rows = [
        {
            "id": number,
            "t": ["x\ty\n\\N", "", None, "é", "\b\v\f\r", "\\."][number % 6],
            "j": {"k": [number, None]} if number % 3 else None,
            "d": datetime(2026, 1, 2, 3, 4, number % 60, tzinfo=UTC),
            "n": Decimal(number) / 8,
            "a": [number, None],
            "b": bytes([number % 256, 0]),
            "f": [0.1, float("inf"), 1e300, None, -0.0][number % 5],
            "y": [True, None, False][number % 3],
            "m": [number, number / 4, Decimal("1.50")][number % 3],
            "day": date(2026, 1, 1) + timedelta(number),
            "at": time(number % 24, 30),
            "u": UUID(int=number),
            "e": None,
            "s": f"s{number}",
        }
        for number in range(300)
    ]
    for start in range(0, 300, 50):
        run_bolt(SqlBolt(server.url, few), batches=[batch(*rows[start : start + 50])])
    run_bolt(SqlBolt(server.url, many), batches=[batch(*rows)])
    assert server.rows(f"select *, j is null from {many}") == server.rows(
        f"select *, j is null from {few}"
    )
    rows[7] = {**rows[7], "id": None}
    rows[200] = {**rows[200], "n": "no number"}
    rows[250] = {**rows[250], "s": "nul \0"}
    rows[251] = {**rows[251], "s": "half a pair \udc00"}
    rows[252] = {**rows[252], "j": {"k": object()}}
    run = run_bolt(SqlBolt(server.url, many, on_bad="stream"), batches=[batch(*rows)])
    bad = [rows[number] for number in (7, 200, 250, 251, 252)]
    assert [emitted[0] for emitted in run.emitted] == [list(row.values()) for row in bad]
    assert server.rows(f"select count(*) from {many}") == [(595,)]


def typed_columns(count: int) -> dict[str, Any]:
    """Return columns of types that Arrow writes, and of some that it leaves to the driver."""
    days = [date(1, 1, 1), None, date(9999, 12, 31)]
    moments = [datetime(2026, 1, 2, 3, 4, 5, 6), datetime(850, 1, 1), None]
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2)))
    texts = ["x\ty\n\\N", "", None, "é", "\b\v\f\r", "\\.", "\x0e plain"]
    floats = [0.1, float("inf"), 1e300, None, -0.0, 1e-5, float("nan"), 123456789012345678.0]
    made: dict[str, list[Any]] = {
        "id": list(range(count)),
        "small": [number % 100 for number in range(count)],
        "t": [texts[number % 7] for number in range(count)],
        "plain": [f"ü{number}" for number in range(count)],
        "f": [floats[number % 8] for number in range(count)],
        "ft": [floats[number % 8] for number in range(count)],
        "y": [[True, None, False][number % 3] for number in range(count)],
        "day": [days[number % 3] for number in range(count)],
        "ts": [moments[number % 3] for number in range(count)],
        "tst": [moments[number % 3] for number in range(count)],
        "tz": [moment for _ in range(count)],
        "j": [{"k": [number, None]} for number in range(count)],
        "a": [[number, None] for number in range(count)],
        "b": [bytes([number % 256, 0]) for number in range(count)],
        "e": [None] * count,
        "lone": [Decimal(number) / 8 for number in range(count)],
    }
    arrays = {name: pa.array(values) for name, values in made.items()}
    arrays["small"] = arrays["small"].cast(pa.uint8())
    arrays["plain"] = arrays["plain"].dictionary_encode()
    arrays["t"] = arrays["t"].cast(pa.large_string())
    return {name: array[1:] for name, array in arrays.items()}  # with an offset


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_columns_of_arrow_are_copied_as_their_values_are(server: PostgresServer) -> None:
    types = "id bigint, small integer, t text, plain text, f float8, ft text, y boolean, day date"
    types += ", ts timestamp, tst text, tz timestamptz, j jsonb, a integer[], b bytea, e text"
    types += ", lone numeric"
    by_values, by_columns = server.table(types), server.table(types)
    columns = typed_columns(301)
    listed = {name: array.to_pylist() for name, array in columns.items()}
    rows = [dict(zip(listed, values, strict=True)) for values in zip(*listed.values(), strict=True)]
    run_bolt(SqlBolt(server.url, by_values), batches=[batch(*rows)])
    sink = run_bolt(SqlBolt(server.url, by_columns)).bolt
    assert isinstance(sink, SqlBolt)
    mixed: list[Any] = [ArrowColumn(array) for array in columns.values()]
    mixed[-1] = listed["lone"]  # as a bolt by tuples emits it
    sink.process_columns(tuple(columns), mixed, 300)
    sink.pre_commit(0)
    written = server.rows(f"select * from {by_columns} order by id")
    assert len(written) == 300
    assert str(written) == str(server.rows(f"select * from {by_values} order by id"))


class Columns(Spout):
    """Emits numbered rows by batch, each batch once."""

    outputs = ("id", "name")
    transient: tuple[str, ...] = ()
    SIZE = 150

    def __init__(self, odd: dict[int, str | None]) -> None:
        self.odd = odd
        self.sent = 0

    def next_tuple(self) -> None:
        ids = range(self.sent, min(self.sent + self.SIZE, 600))
        if ids:
            names = [self.odd.get(number, f"n{number}") for number in ids]
            self.emit_batch({"id": pa.array(ids), "name": pa.array(names)}, msg_ids=list(ids))
            self.sent = ids.stop

    def is_exhausted(self) -> bool:
        return self.sent >= 600


class Passes(BasicBolt):
    outputs = ("id", "name")

    def process_batch(self, batch: Any) -> None:
        self.emit_batch(batch)


class Looks(SqlBolt):
    """Notes the types of the columns that it gets."""

    kinds: ClassVar[set[Any]] = set()

    def process_columns(self, fields: Any, columns: Any, count: int) -> None:
        self.kinds.update(Rows(tuple(fields), list(columns)).kinds)
        super().process_columns(fields, columns, count)


class Refused(BasicBolt):
    rows: ClassVar[list[Any]] = []

    def process(self, values: list[Any], error: str) -> None:
        self.rows.append(values)


@pytest.mark.parametrize("guarantee", ["at_least_once", "by_batch", "exactly_once"])
def test_columns_that_stay_arrow_are_written_and_refused_alone(base: Any, guarantee: Any) -> None:
    table = base.table(
        "id integer primary key, name text not null, topo_batch bigint, topo_task text"
    )
    Looks.kinds.clear()
    Refused.rows.clear()
    builder = TopologyBuilder()
    builder.set_spout("columns", Columns({7: None, 400: None}))
    builder.set_bolt("passes", Passes()).shuffle_grouping("columns")
    sink = Looks(base.url, table, guarantee=guarantee, on_bad="stream")
    builder.set_bolt("sink", sink).shuffle_grouping("passes")
    builder.set_bolt("refused", Refused()).shuffle_grouping("sink", "rejected")
    topology = builder.create_topology()
    run = InlineRun("t", topology, {}, now=lambda: 0.0, strict=False, record=False)
    while run.status == "ACTIVE":
        run.step()
        if run.status == "ACTIVE" and guarantee == "exactly_once":
            run.restart()  # with rows in state that are Arrow's
    assert Looks.kinds == {pa.int64(), pa.string()}
    written = [row[0] for row in base.rows(f"select id from {table} order by id")]
    assert written == [number for number in range(600) if number not in (7, 400)]
    assert [values[:2] for values in Refused.rows] == [[7, None], [400, None]]


@pytest.mark.parametrize("key", ["id", "key"])
def test_names_without_a_place_are_refused_by_the_column_as_by_the_tuple(
    tmp_path: Path, key: str
) -> None:
    base = Sqlite(tmp_path)
    table = base.table("id integer primary key, key integer, name text")
    fields = {"id": 1, "nam": "a"} if key == "id" else {"id": 1, "name": "a"}
    seen = []
    for made_of in (None, lambda tup: dict(zip(tup.fields, tup.values, strict=True))):
        sink = SqlBolt(base.url, table, mode="upsert", key=key, map=made_of, on_bad="stream")
        run = run_bolt(sink, batches=[batch(fields)])
        seen.append([(list(emitted), emitted.stream) for emitted in run.emitted])
        with pytest.raises((TypeError, ValueError), match=r"no column 'nam'|no value for the key"):
            run_bolt(
                SqlBolt(base.url, table, mode="upsert", key=key, map=made_of),
                batches=[batch(fields)],
            )
    assert seen[0] == seen[1]
    assert len(seen[0]) == 1


def test_a_tuple_without_fields_is_a_row_of_defaults(tmp_path: Path) -> None:
    base = Sqlite(tmp_path)
    table = base.table("id integer primary key, name text default 'x'")
    run_bolt(SqlBolt(base.url, table), batches=[[make_tuple({}), make_tuple({})]])
    assert base.rows(f"select * from {table}") == [(1, "x"), (2, "x")]


def test_a_subclass_with_an_execute_of_its_own_gets_tuples(tmp_path: Path) -> None:
    class Upper(SqlBolt):
        def execute(self, tup: Tuple) -> None:
            super().execute(make_tuple({"name": tup.name.upper()}))

    base = Sqlite(tmp_path)
    table = base.table("name text")
    run_bolt(Upper(base.url, table), batches=[batch({"name": "a"})])
    assert base.rows(f"select * from {table}") == [("A",)]


def test_rows_in_state_are_read_as_they_were_saved() -> None:
    rows = Rows(("n", "t"), [ArrowColumn(pa.array([1, 2, None])), ["a", None, "c"]])
    copied = pickle.loads(pickle.dumps(rows))
    assert list(copied) == list(rows) == [(1, "a"), (2, None), (None, "c")]
    assert copied.kinds == (pa.int64(), None)
    before = object.__new__(Rows)
    before.__setstate__((("n", "t"), 0, [[1, 2], ["a", "b"]]))  # as earlier topos have saved them
    assert list(before) == [(1, "a"), (2, "b")]
    assert [len(part) for part in merged([rows, before, copied, before])] == [6, 4]
    first, rest = halves([rows, before])
    assert [[*each] for each in first] == [[(1, "a"), (2, None)]]
    assert [[*each] for each in rest] == [[(None, "c")], [(1, "a"), (2, "b")]]


def test_a_batch_that_was_written_is_not_written_again(base: Any) -> None:
    table = base.table("number integer")
    run = run_bolt(
        SqlBolt(base.url, table, guarantee="exactly_once"), batches=[batch({"number": 1})]
    )
    base.run("drop table topo_batches")
    run = run_bolt(SqlBolt(base.url, table, guarantee="exactly_once"))
    run.batch(batch({"number": 2}), commit=False)
    saved = dict(run.bolt.state.raw())  # type: ignore[union-attr]
    run.commit()
    again = run_bolt(SqlBolt(base.url, table, guarantee="exactly_once"))
    again.bolt.state.update(saved)  # type: ignore[union-attr]
    again.batch_id = 0
    again.commit()
    assert sorted(base.rows(f"select number from {table}")) == [(1,), (2,)]


def test_wrong_tables_columns_and_arguments(base: Any) -> None:
    table = base.table("number integer")
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: run_bolt(SqlBolt(base.url, f"{table}x")), f"has no table '{table}x'; did you"),
        (
            lambda: run_bolt(SqlBolt(base.url, table), [make_tuple({"numbr": 1})]),
            "no column 'numbr'; did you mean 'number'",
        ),
        (lambda: SqlBolt("base", table), "url='base'"),
        (lambda: SqlBolt(base.url, table, mode="upsert"), "needs the columns of a key"),
        (
            lambda: SqlBolt(base.url, table, mode="upsert", key="a", guarantee="by_batch"),
            "replaces the rows of a batch",
        ),
        (lambda: run_bolt(SqlBolt(base.url, table, guarantee="by_batch")), "'topo_batch'"),
        (lambda: SqlSpout(base.url, table, by=(), fields="x"), "names no column"),
        (
            lambda: run_bolt(SqlLookupBolt(base.url, table, key="k", columns="n", fields="k")),
            "no column 'k'",
        ),
    ]
    for call, message in wrong:
        with pytest.raises(ComponentError, match=message):
            call()


# -- looking up ---------------------------------------------------------------------------------


def test_columns_are_looked_up_by_many_keys_at_once(base: Any) -> None:
    table = base.table("id integer primary key, name text")
    base.run(f"insert into {table} values (1, 'one'), (2, 'two')")
    ids = [make_tuple({"user": user, "url": f"/{user}"}) for user in (1, 2, 3, 1)]

    def looked_up(**more: Any) -> Any:
        bolt = SqlLookupBolt(
            base.url, table, key="id", on="user", columns="name", fields=("url",), **more
        )
        return run_bolt(bolt, batches=[ids[:3], ids[3:]])

    run = looked_up()
    assert run.emitted == [["/1", "one"], ["/2", "two"], ["/3", None], ["/1", "one"]]
    assert run.acked == ids
    assert run.emitted[0].anchors == [ids[0]]
    assert looked_up(on_missing="drop").emitted == [["/1", "one"], ["/2", "two"], ["/1", "one"]]
    (missing,) = [one for one in looked_up(on_missing="stream").emitted if one.stream == "missing"]
    assert missing == ["/3"]


# -- a server that dies -------------------------------------------------------------------------


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_a_server_that_is_killed_and_started_again_loses_and_doubles_nothing() -> None:
    server = postgres.start()
    try:
        source, target = server.table("id integer primary key"), server.table("id integer")
        server.run(f"insert into {source} select * from generate_series(1, 50)")
        spout = SqlSpout(server.url, source, by="id", fields="id", page=10)
        sink = SqlBolt(server.url, target, guarantee="exactly_once")
        with TestCluster() as cluster:
            run = cluster.submit_topology("t", line(spout, sink))
            run.step()
            server.process.kill()
            cluster.advance(5)
            assert run.status == "STALLED"
            assert "postgresql+psycopg://lab@127.0.0.1" in run.reason
            server.start()
            server.run(f"insert into {source} select * from generate_series(51, 100)")
            cluster.advance(60)
        rows = server.rows(f"select id from {target} order by id")
        assert rows == [(number,) for number in range(1, 101)]
    finally:
        server.stop()
