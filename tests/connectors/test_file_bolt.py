"""FileBolt: what a reader of the directory sees is what was committed."""

from __future__ import annotations

import csv
import errno
import json
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.wiring import line
from topo import ComponentError, Spout, Tuple, Unavailable
from topo.connectors.files import FileBolt
from topo.testing import FeederSpout, TestCluster, make_tuple, run_bolt


class Once(Spout):
    """Counts up, and never emits a number again, not even when its batch is rolled back."""

    outputs = ("city", "number")
    given: ClassVar[list[int]] = []

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def next_tuple(self) -> None:
        if len(self.given) < self.limit:
            self.given.append(len(self.given))
            self.emit(["Rome" if self.given[-1] % 3 else "Oslo", self.given[-1]])

    def is_exhausted(self) -> bool:
        return len(self.given) >= self.limit


class Rollback(FileBolt):
    """Writes, and then fails the batch at random."""

    random: ClassVar[Random] = Random(0)
    committed_rows: ClassVar[list[int]] = []

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        super().prepare(conf, context, collector)
        self.batch_rows: list[int] = []

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.batch_rows.append(tup[1])

    def pre_commit(self, batch_id: int) -> None:
        super().pre_commit(batch_id)
        if self.random.random() < 0.3:
            raise Unavailable("now", after_secs=0)
        rows, self.batch_rows = self.batch_rows, []
        self.state["oracle"] = [*self.state.get("oracle", []), *rows]

    def committed(self, batch_id: int) -> None:
        super().committed(batch_id)
        self.committed_rows[:] = self.state.get("oracle", [])


def visible(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not any(part.startswith("_") for part in path.parts):
            yield path


def numbers(directory: Path, form: str, field: str = "number") -> list[int]:
    found: list[int] = []
    for path in visible(directory):
        if form == "parquet":
            found += pq.ParquetFile(path).read().column("number").to_pylist()
        elif form == "csv":
            with path.open(newline="") as file:
                found += [int(row["number"]) for row in csv.DictReader(file)]
        else:
            found += [json.loads(text)[field] for text in path.read_text().splitlines()]
    return sorted(found)


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
@pytest.mark.parametrize("guarantee", ["exactly_once", "by_batch"])
def test_readers_see_what_was_committed_and_nothing_else(
    tmp_path: Path, form: Any, guarantee: Any
) -> None:
    Once.given.clear()
    Rollback.random.seed(form)
    Rollback.committed_rows.clear()
    sink = Rollback(
        tmp_path,
        form,
        guarantee=guarantee,
        partition_by="city",
        roll_bytes=150,
        map=lambda tup: {"city": tup.city, "number": tup.number},
    )
    with TestCluster() as cluster:
        run: Any = cluster.submit_topology("t", line(Once(120), sink))
        while run.status in ("ACTIVE", "STALLED"):
            run.step()
            if len(Once.given) % 4 == 0 and run.status == "ACTIVE":
                run.restart()
    oracle = sorted(Rollback.committed_rows)
    assert len(oracle) < 120  # some were lost with their batches, which are no sink's to repeat
    assert numbers(tmp_path, form) == oracle
    assert {path.parent.name for path in visible(tmp_path)} == {"city=Rome", "city=Oslo"}


def batch(*values: Any) -> list[Tuple]:
    return [make_tuple({"number": value}) for value in values]


def test_a_file_gets_its_name_when_it_is_large_enough_and_its_batch_has_committed(
    tmp_path: Path,
) -> None:
    rolled: list[str] = []
    sink = FileBolt(tmp_path, guarantee="exactly_once", roll_bytes=30, after_roll=rolled.append)
    run = run_bolt(sink, batches=[batch(1)])
    assert list(visible(tmp_path)) == []
    run.batch(batch(2, 3), commit=False)
    assert list(visible(tmp_path)) == []
    run.commit()
    (path,) = visible(tmp_path)
    assert numbers(tmp_path, "json") == [1, 2, 3]
    assert rolled == [str(path)]
    run.batch(batch(4))
    sink.cleanup()
    assert numbers(tmp_path, "json") == [1, 2, 3, 4]
    assert len(list(visible(tmp_path))) == 2


def test_a_file_gets_its_name_when_it_is_old_enough(tmp_path: Path) -> None:
    Once.given.clear()
    with TestCluster() as cluster:
        sink = FileBolt(tmp_path, guarantee="exactly_once", roll_secs=10)

        class Endless(Once):
            def is_exhausted(self) -> bool:
                return False

        run = cluster.submit_topology("t", line(Endless(2), sink))
        run.settle()
        cluster.advance(5)
        assert list(visible(tmp_path)) == []
        cluster.advance(10)
        assert numbers(tmp_path, "json") == [0, 1]


def test_another_run_adds_to_the_directory(tmp_path: Path) -> None:
    for _ in range(2):
        Once.given.clear()
        with TestCluster() as cluster:
            cluster.submit_topology("t", line(Once(3), FileBolt(tmp_path))).settle()
    assert numbers(tmp_path, "json") == [0, 0, 1, 1, 2, 2]


def test_a_full_disk_stalls_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counts(Spout):
        outputs = ("number",)

        def open(self, conf: Any, context: Any, collector: Any) -> None:
            self.next = 0

        def next_tuple(self) -> None:
            if self.next < 5:
                self.emit([self.next])
                self.next += 1

        def is_exhausted(self) -> bool:
            return self.next >= 5

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with TestCluster() as cluster, monkeypatch.context() as patched:
        sink = FileBolt(tmp_path, guarantee="exactly_once")
        run = cluster.submit_topology("t", line(Counts(), sink))
        patched.setattr(os, "fsync", full)
        run.settle()
        assert run.status == "STALLED"
        assert f"writing in {tmp_path}: no space left on device" in run.reason
        patched.undo()
        cluster.advance(60)
        assert run.status == "COMPLETED"
    assert numbers(tmp_path, "json") == [0, 1, 2, 3, 4]


def test_rows_that_do_not_fit_are_rejected_by_themselves(tmp_path: Path) -> None:
    class Alien:
        pass

    def values(*listed: Any) -> list[Tuple]:
        return [make_tuple({"a": value}) for value in listed]

    run = run_bolt(FileBolt(tmp_path, on_bad="stream"), batches=[values(1, Alien(), 2)])
    (rejected,) = run.emitted
    assert rejected.stream == "rejected"
    assert rejected[1] == "TypeError: a Alien is no JSON"
    (path,) = visible(tmp_path)
    assert path.read_text() == '{"a":1}\n{"a":2}\n'
    with pytest.raises(ValueError, match="a Alien is no JSON, of a tuple with the values"):
        run_bolt(FileBolt(tmp_path), batches=[values(Alien())])
    run = run_bolt(FileBolt(tmp_path / "l", "lines", on_bad="skip"), batches=[values("x", "y\nz")])
    (path,) = visible(tmp_path / "l")
    assert path.read_text() == "x\n"


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_partition_that_can_be_no_directory_is_rejected_alone(
    tmp_path: Path, guarantee: Any
) -> None:
    (tmp_path / "user=file").write_text("")
    feeder = FeederSpout(["user", "n"])
    sink = FileBolt(tmp_path, partition_by="user", guarantee=guarantee, on_bad="stream")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(feeder, sink))
        for number, user in enumerate(["ann", "x" * 300, "file", "\0", "bob"]):
            feeder.feed([user, number], msg_id=number)
        run.settle()
        assert sorted(row[0][1] for row in run.tuples("b1", "rejected")) == [1, 2]
        run.kill()
    assert numbers(tmp_path, "json", "n") == [0, 3, 4]
    with pytest.raises(ValueError, match="file name too long"):
        run_bolt(
            FileBolt(tmp_path, partition_by="user", guarantee=guarantee),
            batches=[[make_tuple({"user": "x" * 300, "n": 1})]],
        )


@pytest.mark.parametrize("on_bad", ["stop", "skip"])
def test_a_place_where_nothing_can_be_written_is_an_error(tmp_path: Path, on_bad: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ComponentError, match=r"writing in .*file"):
        run_bolt(FileBolt(tmp_path / "file", on_bad=on_bad), batches=[[make_tuple({"n": 1})]])


def test_a_file_that_cannot_be_finished_hinders_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feeder = FeederSpout(["user", "n"])
    sink = FileBolt(tmp_path, partition_by="user", guarantee="exactly_once")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(feeder, sink))
        for number, user in enumerate(["ann", "bob", "eve"]):
            feeder.feed([user, number], msg_id=number)
        run.settle()
        (tmp_path / "user=bob").rmdir()
        (tmp_path / "user=bob").write_text("")
        run.kill()
    assert "user=bob" in caplog.text
    assert "stays open, and gets its name at the next start" in caplog.text
    assert numbers(tmp_path, "json", "n") == [0, 2]


def test_a_committed_file_that_was_taken_away_is_an_error_that_names_it(tmp_path: Path) -> None:
    Once.given.clear()
    with TestCluster() as cluster:
        run = cluster.submit_topology(
            "t", line(Once(10), FileBolt(tmp_path, guarantee="exactly_once"))
        )
        run.step()
        (path,) = (tmp_path / "_open").iterdir()
        path.unlink()
        run.restart()
        with pytest.raises(ComponentError, match=f"{path} is gone, with"):
            run.step()


@pytest.mark.parametrize(
    "wrong", [{"format": "xml"}, {"guarantee": "twice"}, {"roll_bytes": 0}, {"prefix": "_x"}]
)
def test_arguments_that_cannot_be_meant(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ComponentError):
        FileBolt(tmp_path, **wrong)


MIXED: dict[str, list[Any]] = {
    "text behind a number": [1, "a", 2],
    "a day behind a time": [datetime(2020, 1, 1, 5), date(2020, 1, 2)],
    "two zones": [
        datetime(2020, 1, 1, tzinfo=UTC),
        datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    ],
    "a number that no double is": [1.5, 2**53 + 1, 2.5],
    "truth and a number": [True, 5],
}


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("values", MIXED.values(), ids=[*MIXED])
def test_batches_of_other_types_get_names_of_their_own(
    tmp_path: Path, form: Any, values: list[Any]
) -> None:
    rolled: list[str] = []
    sink = FileBolt(tmp_path, form, guarantee="exactly_once", after_roll=rolled.append)
    run_bolt(sink, batches=[batch(value) for value in values])
    sink.cleanup()
    assert list((tmp_path / "_open").iterdir()) == []
    made = sorted(visible(tmp_path))
    assert len(made) == 2
    assert sorted(rolled) == [*map(str, made)]
    tables = [
        pq.read_table(path) if form == "parquet" else pa.ipc.open_file(path).read_all()
        for path in made
    ]
    written = [value for table in tables for value in table.column("number").to_pylist()]
    assert sorted(map(repr_of, written)) == sorted(map(repr_of, values))


def repr_of(value: Any) -> str:
    return repr(value.timestamp()) if isinstance(value, datetime) else repr(value)


def test_a_column_of_empty_mappings_alone_is_none_in_parquet(tmp_path: Path) -> None:
    sink = FileBolt(tmp_path, "parquet", guarantee="exactly_once")
    run_bolt(sink, batches=[[make_tuple({"n": 1, "of": {}})]])
    sink.cleanup()
    (path,) = visible(tmp_path)
    assert pq.read_table(path).to_pylist() == [{"n": 1, "of": None}]


def rows_of(*rows: dict[str, Any]) -> list[Tuple]:
    return [make_tuple({"row": row}) for row in rows]


def records(directory: Path, form: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in visible(directory):
        if form == "parquet":
            found += pq.read_table(path).to_pylist()
        else:
            with path.open(newline="") as file:
                found += csv.DictReader(file)
    return found


@pytest.mark.parametrize("guarantee", ["exactly_once", "by_batch"])
def test_a_value_stays_in_its_column_however_the_columns_come(
    tmp_path: Path, guarantee: Any
) -> None:
    sink = FileBolt(tmp_path, "csv", guarantee=guarantee, map=lambda tup: tup.row)
    batches = [rows_of({"a": 1, "b": 2}), rows_of({"b": 3, "a": 4}), rows_of({"b": 5})]
    batches += [rows_of({"c": 6, "a": 7}, {"d": 8})]
    run_bolt(sink, batches=batches)
    sink.cleanup()
    found = [{k: v for k, v in row.items() if v} for row in records(tmp_path, "csv")]
    expected = [{"a": "1", "b": "2"}, {"b": "3", "a": "4"}, {"b": "5"}, {"c": "6", "a": "7"}]
    assert sorted(map(sorted_items, found)) == sorted(map(sorted_items, [*expected, {"d": "8"}]))
    assert len(list(visible(tmp_path))) == (2 if guarantee == "exactly_once" else 4)


def sorted_items(row: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(row.items())


def test_a_column_that_only_later_rows_have_is_written(tmp_path: Path) -> None:
    sink = FileBolt(tmp_path, "parquet", map=lambda tup: tup.row)
    run_bolt(sink, batches=[rows_of({"a": 1}, {"a": 2, "b": 3})])
    assert records(tmp_path, "parquet") == [{"a": 1, "b": None}, {"a": 2, "b": 3}]


@pytest.mark.parametrize(("form", "bad"), [("parquet", 2**63), ("csv", "\ud800"), ("csv", None)])
@pytest.mark.parametrize("guarantee", ["exactly_once", "by_batch"])
def test_a_row_that_cannot_be_packed_is_rejected_alone(
    tmp_path: Path, form: Any, bad: Any, guarantee: Any
) -> None:
    sink = FileBolt(tmp_path, form, guarantee=guarantee, map=lambda tup: tup.row, on_bad="stream")
    wrong = {"a": bad} if bad is not None else {}
    run = run_bolt(sink, batches=[rows_of({"a": 1}, wrong, {"a": 3})])
    sink.cleanup()
    assert [each[0] for each in run.emitted if each.stream == "rejected"] == [[wrong]]
    assert [int(row["a"]) for row in records(tmp_path, form)] == [1, 3]


def test_an_error_of_a_row_that_cannot_be_packed_shows_it(tmp_path: Path) -> None:
    sink = FileBolt(tmp_path, "parquet")
    with pytest.raises(ValueError, match=r"too large.*of a tuple with the values \[9223372036854"):
        run_bolt(sink, batches=[batch(1, 2**63)])


def test_rows_of_other_types_in_a_batch_are_written(tmp_path: Path) -> None:
    run_bolt(FileBolt(tmp_path, "parquet"), batches=[batch(1, "a", 2)])
    values = [row["number"] for row in records(tmp_path, "parquet")]
    assert sorted(map(str, values)) == ["1", "2", "a"]
