"""PostgresChanges against a server: what tables became, each change once, whatever is restarted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet
import pytest

from examples import changes_to_parquet
from tests.connectors.moving import moved_until
from tests.servers import postgres
from tests.servers.postgres import PostgresServer
from tests.unit.test_control_registry import make, say
from tests.unit.test_control_submit import begun
from tests.wiring import line
from topo import BasicBolt, ComponentError, Topology, Tuple
from topo.cli.root import run as topo
from topo.connectors import Secret
from topo.connectors.sql import PostgresChanges
from topo.connectors.sql.replication import Shown, is_shown
from topo.manage.records import RunRecord
from topo.manage.registry import Registry
from topo.testing import TestCluster


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = postgres.start()
    yield server
    server.stop()


@pytest.fixture
def base(server: PostgresServer) -> Iterator[PostgresServer]:
    yield server
    for (slot,) in server.rows("select slot_name from pg_replication_slots"):
        server.run(f"select pg_drop_replication_slot('{slot}')")


class Replica(BasicBolt):
    """Does what the changes say, and refuses what cannot be: a change twice, or one too few."""

    outputs = ("op",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.tables: dict[str, dict[Any, Any]] = {}

    def execute(self, tup: Tuple) -> None:
        table = self.tables.setdefault(tup.table, {})
        self.emit([tup.op])
        if tup.op == "truncate":
            table.clear()
            return
        if tup.op in ("read", "insert"):
            assert tup.key not in table, (tup.op, tup.key)
        else:
            old = tup.key
            if tup.before is not None:
                old = tup.before.get("id", old)
            del table[old]
        if tup.op != "delete":
            table[tup.key] = tup.after


def replica(run: Any) -> dict[str, dict[Any, Any]]:
    tasks = run._host.tasks.values()
    found: dict[str, dict[Any, Any]] = next(
        task.component.tables for task in tasks if isinstance(task.component, Replica)
    )
    return found


def copying(base: PostgresServer, *tables: str, **more: Any) -> Topology:
    return line(PostgresChanges(base.url, tables, poll_secs=0.01, **more), Replica())


@pytest.mark.parametrize(("snapshot", "seed"), [(True, 0), (True, 1), (False, 2)])
@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_a_replica_is_what_the_table_is(base: PostgresServer, snapshot: bool, seed: int) -> None:
    random = Random(seed)
    table = base.table("id text primary key, n bigint, big text")
    name = f"public.{table}"
    users = [base.connect() for _ in range(3)]
    with TestCluster(seed) as cluster:
        if snapshot:
            for number in range(40):
                base.run(f"insert into {table} values ('k{number}', {number})")
        run = cluster.submit_topology("t", copying(base, name, snapshot=snapshot, page=7))
        run.step()
        for _ in range(100):
            user = random.choice(users)
            key, other = (f"k{random.randrange(60)}" for _ in range(2))
            user.execute("set lock_timeout = '5ms'")
            action = random.random()
            try:
                if action < 0.35:
                    user.execute(f"insert into {table} values ('{key}', 0, repeat('x', 9000))")
                elif action < 0.6:
                    user.execute(f"update {table} set n = n + 1 where id = '{key}'")
                elif action < 0.75:
                    user.execute(f"delete from {table} where id = '{key}'")
                elif action < 0.8:
                    user.execute(f"update {table} set id = '{other}' where id = '{key}'")
                else:
                    user.commit()
            except Exception:  # the key is there, or another transaction has it
                user.rollback()
            run.step()
            cluster.advance(0.02)
            if random.random() < 0.15:
                run.restart()
        for user in users:
            user.commit()
            user.close()
        for _ in range(10):
            cluster.advance(1)
        rows = {key: (n, big) for key, n, big in base.rows(f"select * from {table}")}
        found = replica(run)[name]
        assert {key: row["n"] for key, row in found.items()} == {k: n for k, (n, _) in rows.items()}
        # What an update leaves in a place of its own is not sent again with every update.
        assert all(row.get("big", rows[key][1]) == rows[key][1] for key, row in found.items())
        behind = base.rows("select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) "
                           "from pg_replication_slots")[0][0]  # fmt: skip
        assert behind < 1 << 21


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_values_keys_and_schemas_are_those_of_the_table(base: PostgresServer) -> None:
    table = base.table("a integer, b text, c jsonb, d timestamptz, primary key (b, a)")
    base.run(f"alter table {table} replica identity full")
    base.run(f"insert into {table} values (1, 'x', '{{\"y\": [1]}}', '2026-01-02T03:04Z')")
    with TestCluster() as cluster:
        spout = PostgresChanges(base.url, table, poll_secs=0.01)
        run = cluster.submit_topology("t", line(spout))
        cluster.advance(1)
        base.run(
            f"update {table} set c = null, d = 'infinity'",
            f"alter table {table} add column e numeric",
            f"update {table} set e = 1.50",
            f"truncate {table}",
        )
        cluster.advance(1)
        read, first, second, emptied = run.tuples("s")
        assert [one[0] for one in (read, first, second, emptied)] == [
            "read",
            "update",
            "update",
            "truncate",
        ]
        assert read[1:4] == [f"public.{table}", ("x", 1), None]
        assert (read[4]["c"], str(read[4]["d"].astimezone().utctimetuple()[:5])) == (
            {"y": [1]},
            "(2026, 1, 2, 3, 4)",
        )
        assert first[3] == read[4]
        assert (first[4]["c"], first[4]["d"]) == (None, "infinity")
        assert str(second[4]["e"]) == "1.50"
        assert emptied[2:5] == [None, None, None]
        columns = [dict(map(tuple, one[1])) for one in run.tuples("s", "schema")]
        assert columns[0] == {
            "a": "integer", "b": "text", "c": "jsonb", "d": "timestamp with time zone"
        }  # fmt: skip
        assert columns[1] == {**columns[0], "e": "numeric"}


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_a_transaction_larger_than_a_batch_is_emitted_in_parts(base: PostgresServer) -> None:
    table = base.table("id integer primary key")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", copying(base, table, page=100))
        cluster.advance(1)
        base.run(f"insert into {table} select * from generate_series(1, 30000)")
        base.run(f"delete from {table} where id % 2 = 0")
        for _ in range(15):
            run.step()
            run.restart()
            cluster.advance(0.02, max_steps=1_000_000)
        found = replica(run)[f"public.{table}"]
        assert sorted(found) == list(range(1, 30000, 2))


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_a_server_that_is_killed_loses_and_doubles_nothing() -> None:
    server = postgres.start()
    try:
        table = server.table("id integer primary key")
        with TestCluster() as cluster:
            run = cluster.submit_topology("t", copying(server, table))
            for first in (0, 100, 200):
                server.run(f"insert into {table} select generate_series({first}, {first + 99})")
                run.step()
                server.process.kill()
                moved_until(cluster, lambda: run.status == "STALLED", 1)
                assert "slot topo_" in run.reason
                server.start()
                cluster.advance(30)
            assert sorted(replica(run)[f"public.{table}"]) == list(range(300))
    finally:
        server.stop()


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_what_cannot_be_read_is_said(base: PostgresServer) -> None:
    table = base.table("n integer")
    base.run("create publication of_others")
    wrong: list[tuple[Callable[[], PostgresChanges], str]] = [
        (lambda: PostgresChanges(base.url, f"{table}x"), f"no table 'public.{table}x'.*did you"),
        (lambda: PostgresChanges(base.url, table), "no primary key.*snapshot=False"),
        (
            lambda: PostgresChanges(base.url, table, snapshot=False, publication="of_others"),
            "'of_others' has no table.*alter publication",
        ),
        (lambda: PostgresChanges(base.url, ()), "names no table"),
        (lambda: PostgresChanges(base.url, "t", slot="A b"), "'A b' is no name of a slot"),
    ]
    for made, said in wrong:
        with pytest.raises(Exception, match=said), TestCluster() as cluster:
            cluster.submit_topology("t", line(made())).settle()
    base.run("drop publication of_others")


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_a_slot_that_is_gone_is_said(base: PostgresServer) -> None:
    table = base.table("id integer primary key")
    cluster = TestCluster()
    run = cluster.submit_topology("t", copying(base, table, slot="mine"))
    cluster.advance(1)
    base.run("select pg_drop_replication_slot('mine')")
    run.restart()
    with pytest.raises(ComponentError, match=r"lost the slot 'mine'.*fresh checkpoint"):
        cluster.advance(1)


def test_a_row_is_shown_by_the_page_that_it_was_in() -> None:
    """Of a snapshot that ended early, and of a later one with the rest of the table."""
    shown = [Shown("t", (5,), "90:100:95", 1), Shown("t", None, "190:200:", 2)]
    assert [is_shown(shown, "t", (5,), xid) for xid in (89, 95, 99, 100, 150)] == [
        True, False, True, False, False,
    ]  # fmt: skip
    assert [is_shown(shown, "t", (6,), xid) for xid in (95, 150, 199, 200)] == [True] * 3 + [False]
    assert not is_shown(shown, "u", (1,), 1)
    after_wrap = [Shown("t", None, f"{(1 << 32) + 5}:{(1 << 32) + 9}:", 1)]
    assert [is_shown(after_wrap, "t", (1,), xid) for xid in ((1 << 32) - 3, 4, 9)] == [
        True, True, False,
    ]  # fmt: skip


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_the_example_joins_orders_with_customers(base: PostgresServer, tmp_path: Path) -> None:
    base.run(
        "create table customers (id integer primary key, name text)",
        "create table orders (id integer primary key, customer integer, amount float8)",
        "alter table orders replica identity full",
        "insert into customers values (1, 'ann'), (2, 'bob')",
        "insert into orders values (1, 1, 9.5), (2, 2, 3)",
    )
    with TestCluster() as cluster:
        topology = changes_to_parquet.changes(base.url, str(tmp_path))
        run = cluster.submit_topology("t", topology)
        cluster.advance(1)
        run.restart()
        base.run(
            "update customers set name = 'anna' where id = 1",
            "insert into orders values (3, 1, 1)",
            "delete from orders where id = 2",
            "delete from customers where id = 2",
            "insert into orders values (4, 2, 7)",
        )
        cluster.advance(1)
        run.restart()
        cluster.advance(1)
        run.kill()
    files = list(tmp_path.glob("part-*.parquet"))
    rows = [row for path in files for row in pyarrow.parquet.read_table(path).to_pylist()]
    assert sorted(tuple(row.values())[:5] for row in rows) == [
        ("delete", 2, 2, "bob", 3.0),
        ("insert", 3, 1, "anna", 1.0),
        ("insert", 4, 2, None, 7.0),
        ("read", 1, 1, "ann", 9.5),
        ("read", 2, 2, "bob", 3.0),
    ]


# -- what is left behind ------------------------------------------------------------------------


def slots(base: PostgresServer) -> list[str]:
    return [name for (name,) in base.rows("select slot_name from pg_replication_slots")]


def killed_run(base: PostgresServer, registry: Registry, directory: Path, **more: Any) -> RunRecord:
    """Run a topology that reads changes; return it as one that was submitted and killed."""
    table = base.table("id integer primary key")
    topology = line(PostgresChanges(Secret.env("DATABASE"), table, **more), Replica())
    before = set(slots(base))
    with TestCluster() as cluster:
        run: Any = cluster.submit_topology("changes", topology)
        run.step()
        checkpoint_id = run._host.spouts[0].component.context.checkpoint_id
    assert len(set(slots(base)) - before) == 1
    plan = begun(directory) / "topo-plan.json"
    plan.write_text(json.dumps({"id": checkpoint_id}))
    made = make(registry, "changes", topology.to_bytes(), checkpoint=str(directory))
    say(made, status="KILLED")
    return made


@pytest.mark.server
@pytest.mark.xdist_group("servers")
def test_a_slot_that_was_left_is_named_by_doctor_and_dropped_by_purge(
    base: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATABASE", base.url)
    monkeypatch.chdir(tmp_path)
    base.run("drop publication if exists named", "create publication named for all tables")
    registry = Registry(tmp_path / "home")
    first = killed_run(base, registry, tmp_path / "first")
    killed_run(base, registry, tmp_path / "second", slot="given", publication="named")
    (own,) = set(slots(base)) - {"given"}
    topo(["doctor"])
    said = capsys.readouterr().out
    assert f"replication slot {own} of postgresql://lab@" in said
    assert "replication slot given of" in said
    assert f"topo kill --purge {first.id}" in said

    monkeypatch.delenv("DATABASE")
    topo(["doctor"])
    assert "the environment variable 'DATABASE' of a secret is not set" in capsys.readouterr().out

    monkeypatch.setenv("DATABASE", base.url)
    assert topo(["kill", "--purge", first.id]) == 0
    assert f"dropped replication slot {own}" in capsys.readouterr().err
    assert slots(base) == ["given"]
    assert topo(["checkpoints", "--remove", str(tmp_path / "second")]) == 0
    assert slots(base) == []
    assert base.rows(f"select 1 from pg_publication where pubname = '{own}'") == []
    assert len(base.rows("select 1 from pg_publication where pubname = 'named'")) == 1
    topo(["doctor"])
    assert "replication slot" not in capsys.readouterr().out
