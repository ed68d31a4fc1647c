"""ClickHouseBolt against a server that answers inserts over HTTP, as scripted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.connectors.moving import Once, RollsBack, committed_numbers
from tests.connectors.scripted_clickhouse import ClickHouse
from topo import ComponentError, Tuple, Unavailable
from topo.connectors import Secret
from topo.connectors.clickhouse import ClickHouseBolt
from topo.testing import make_tuple, run_bolt


@pytest.fixture
def server() -> Iterator[ClickHouse]:
    server = ClickHouse()
    yield server
    server.close()


def rows(*values: Any) -> list[Tuple]:
    return [make_tuple({"n": n}) for n in values]


def write(server: ClickHouse, *batches: list[Tuple], **more: Any) -> Any:
    more = {"retry_secs": 5.0, "table": "t", **more}
    return run_bolt(ClickHouseBolt(server.url, **more), batches=list(batches))


def numbers(server: ClickHouse, table: str = "t") -> list[Any]:
    return [row["n"] for row in server.tables.get(table, [])]


@pytest.mark.parametrize("guarantee", ["none", "at_least_once", "exactly_once"])
def test_rows_of_batches(server: ClickHouse, guarantee: str) -> None:
    write(server, rows(1, 2), rows(3), guarantee=guarantee)
    assert numbers(server) == [1, 2, 3]
    assert server.inserts == [2, 1]


def test_tables_by_tuple_and_values_of_python(server: ClickHouse) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    write(
        server,
        rows(0, 1, 2, 3),
        table=lambda tup: f"d.t{tup['n'] % 2}" if tup["n"] else None,
        map=lambda tup: {"n": tup["n"], "at": at},
        settings={"max_insert_threads": 2},
    )
    assert numbers(server, "d.t1") == [1, 3]
    assert server.tables["d.t0"] == [{"n": 2, "at": "2026-01-02T00:00:00+00:00"}]
    assert server.settings["max_insert_threads"] == "2"


def test_rows_that_do_not_fit_are_rejected_alone(server: ClickHouse) -> None:
    batch = rows(*range(10), "x", *range(10, 20))
    run = write(server, [*batch, make_tuple({"n": 1, "more": 2})], on_bad="stream")
    assert numbers(server) == list(range(20))
    errors = sorted(emitted[1] for emitted in run.emitted)
    assert errors == ["ValueError: Code: 117. DB::Exception: Unknown field found",
                      "ValueError: Code: 27. DB::Exception: Cannot parse input"]  # fmt: skip
    with pytest.raises(ValueError, match="Code: 27"):
        write(server, rows("x"))


@pytest.mark.parametrize("seed", range(2))
def test_exactly_once_though_batches_are_rolled_back_and_answers_are_lost(
    server: ClickHouse, seed: int
) -> None:
    class Sink(RollsBack, ClickHouseBolt):
        pass

    server.loses = 3
    sink = Sink(server.url, "t", guarantee="exactly_once", map=lambda tup: {"n": tup[0]})
    committed = committed_numbers(sink, seed)
    assert sorted(numbers(server)) == sorted(committed)
    assert len(committed) < len(Once.given)  # the control: there were batches not to be seen


def test_the_control_without_tokens_has_some_twice(server: ClickHouse) -> None:
    server.loses, server.window = 2, 0
    write(server, rows(1), rows(2), rows(3))
    assert sorted(numbers(server)) == [1, 2, 2, 3]


def test_a_table_that_does_not_remember_inserts_is_refused(server: ClickHouse) -> None:
    server.window = 0
    with pytest.raises(ComponentError, match=r"t \(MergeTree\) does not remember") as caught:
        write(server, rows(1), guarantee="exactly_once")
    assert "ALTER TABLE t MODIFY SETTING" in str(caught.value.hint)
    for engine in ("Memory", "Log"):
        server.engine, server.window = engine, 1_000
        with pytest.raises(ComponentError, match=f"{engine}.*does not remember"):
            write(server, rows(1), guarantee="exactly_once")
    for engine in ("ReplicatedMergeTree", "SharedMergeTree"):
        server.engine, server.window = engine, 0
        write(server, rows(1), guarantee="exactly_once")


def test_what_passes_and_what_does_not(server: ClickHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    server.fails_with = (252, 2)  # too many parts
    write(server, rows(1))
    assert numbers(server) == [1]
    server.fails_with = (242, 1_000)  # read only
    with pytest.raises(Unavailable, match="Code: 242"):
        write(server, rows(2), retry_secs=0.3)
    write(server, rows(2), guarantee="none")
    server.fails_with = (516, 1)
    with pytest.raises(ComponentError, match="Code: 516") as caught:
        write(server, rows(2))
    assert "password=" in str(caught.value.hint)
    with pytest.raises(ComponentError, match="nowhere does not exist"):
        write(server, rows(2), table="nowhere")
    with pytest.raises(Unavailable, match="refused"):
        run_bolt(ClickHouseBolt("http://127.0.0.1:1", "t", retry_secs=0.1), batches=[rows(1)])
    monkeypatch.setenv("CH_PASSWORD", "s3cret")
    write(server, rows(9), user="shop", password=Secret.env("CH_PASSWORD"))
    assert numbers(server) == [1, 9]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"table": "t; drop table t"}, "table='t; drop table t'"),
        ({"table": ""}, "table=''"),
        ({"settings": {"async_insert": 1}}, "sets 'async_insert' itself"),
        ({"guarantee": "by_batch"}, "is not to be had"),
        ({"password": "x"}, "user= and password= belong together"),
        ({"username": "x"}, "it is called user="),
        ({"url": "clickhouse://h"}, "url='clickhouse://h'"),
    ],
)
def test_what_cannot_be_meant(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ComponentError) as caught:
        ClickHouseBolt(**{"url": "http://h:8123", "table": "t", **more})
    assert words in caught.value.message
