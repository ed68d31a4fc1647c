"""FileBolt takes columns: its files are those that it writes tuple by tuple.

The other way is that of a class with an `execute` of its own.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.wiring import line
from topo import FromList, RunError, Spout, TopologyBuilder, Tuple
from topo.connectors.files import FileBolt, FileSpout, writers
from topo.testing import TestCluster, complete_topology, make_tuple, run_bolt
from topo.wire.arrow import ArrowColumn
from topo.wire.plain_arrays import column_of_values

FORMATS = ("lines", "json", "csv", "parquet", "arrow")


class Odd:
    """A value that is none of any format."""

    def __repr__(self) -> str:
        return "odd"


class Unnamed:
    def __str__(self) -> str:
        raise LookupError("it has no name")


POOLS: dict[str, Sequence[Any]] = {
    "whole": [0, 1, -5, 2**53 + 1, 2**62],
    "large": [1, 2**63, 2**70, -(2**63)],
    "broken": [0.5, -0.0, 1e300, math.nan, math.inf],
    "numbers": [1, 2.5, True],
    "text": ["", "a", "é\U0001f40d", 'quote " , \r\n and line', "zero \0", "%s %"],
    "half": ["a", "half \ud800"],
    "bool": [True, False],
    "none": [None],
    "raw": [b"", b"abc", b"\xff\xfe"],
    "times": [datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 5)],
    "zoned": [datetime(2026, 1, 1, tzinfo=UTC)],
    "money": [Decimal("1.50"), Decimal("123.4")],
    "nested": [[], [1, None], [[]], {"a": 1}, {}],
    "lists": [[1, 2], [], [None]],
    "dicts": [{"a": 1, "b": "x"}, {"b": "y"}, {}],
    "mixed": [1, "one", None, 1.5, [1]],
    "odd": [1, Odd(), {1, 2}, {(1, 2): 3}],
}


ARRAYS: list[Any] = [
    lambda count: pa.array([n % 100 for n in range(count)], pa.int8()),
    lambda count: pa.array(range(count), pa.uint64()),
    lambda count: pa.array([None] * count, pa.int64()),
    lambda count: pa.nulls(count),
    lambda count: pa.array(["x", None, "y"] * count).dictionary_encode()[:count],
    lambda count: pa.array(["é"] * count, pa.large_string()),
    lambda count: pa.array([Decimal(1)] * count, pa.decimal128(9, 3)),
    lambda count: pa.array([datetime(2026, 1, 1)] * count, pa.timestamp("ns")),
    lambda count: pa.array([datetime(2026, 1, 1)] * count, pa.timestamp("s", "Europe/Berlin")),
    lambda count: pa.array([[1]] * count, pa.list_(pa.int16())),
    lambda count: pa.array([[]] * count, pa.list_(pa.int64())),
    lambda count: pa.array([{"a": None}] * count, pa.struct([("a", pa.string())])),
    lambda count: pa.array([0.5] * (count + 3), pa.float32())[3:],
    lambda count: pa.array([b"\xff"] * count),
]

Section = tuple[tuple[str, ...], list[Any], int]


class ByColumns(FileBolt):
    """Notes what it rejects."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        super().prepare(conf, context, collector)
        self.rejected: list[str] = []

    def reject(self, values: list[Any], error: Exception) -> None:
        self.rejected.append(f"{values} {type(error).__name__} {error}")
        super().reject(values, error)


class ByTuple(ByColumns):
    def execute(self, tup: Tuple) -> None:
        super().execute(tup)


def a_section(random: Random, fields: tuple[str, ...], pools: dict[str, str]) -> Section:
    """Return some rows by the column: of a pool of values each, as a list or Arrow's."""
    count = random.choice([1, 2, 5, 130])
    columns: list[Any] = []
    for name in fields:
        if random.random() < 0.15:  # from now on it has another type
            pools[name] = random.choice([*POOLS])
        if pools[name] == "array":
            columns.append(ArrowColumn(random.choice(ARRAYS)(count)))
            continue
        choice = POOLS[pools[name]]
        values = [
            None if random.random() < 0.1 else random.choice(choice)
            for _ in range(count)
        ]  # fmt: skip
        columns.append(column_of_values(values) if random.random() < 0.5 else values)
    return fields, columns, count


def some_batches(random: Random, form: str) -> list[list[Section]]:
    all_fields = ("a",) if form == "lines" else ("a", "b", "a b%")
    fields = all_fields[: random.randint(1, 3)]
    easy = ["whole", "broken", "text", "bool"]
    choices = [*POOLS, "array"] if random.random() < 0.5 else easy
    pools = {name: random.choice(choices) for name in all_fields}
    batches = []
    for _ in range(random.randint(1, 4)):
        sections = []
        for _ in range(random.choice([0, 1, 1, 2, 5])):
            if random.random() < 0.05:  # of another component
                fields = all_fields[: random.randint(1, 3)]
            sections.append(a_section(random, fields, pools))
        batches.append(sections)
    return batches


def outcome(sink: ByColumns, batches: list[list[Section]], directory: Path) -> list[Any]:
    """Return all that can be seen of what a sink has done."""
    run_bolt(sink)
    by_columns = not isinstance(sink, ByTuple)
    seen: list[Any] = []
    for number, sections in enumerate(batches):
        try:
            for fields, columns, count in sections:
                if by_columns:
                    sink.process_columns(fields, columns, count)
                    continue
                for row in zip(*map(list, columns), strict=True) if columns else [()] * count:
                    sink.execute(make_tuple(dict(zip(fields, row, strict=True))))
            sink.pre_commit(number)
            sink.committed(number)
        except Exception as error:
            seen.append((type(error).__name__, str(error)))
            break
        seen.append(repr(sink.state.raw()))
    sink.cleanup()
    for path in files(directory):
        seen.append((str(path.relative_to(directory)), content(path)))
    return [*seen, *sink.rejected]


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def content(path: Path) -> Any:
    if path.parent.name == "_open":  # what could not be finished
        return "open"
    if path.suffix == ".parquet":
        table = pq.ParquetFile(path).read()
        return str(table.schema), repr(table.to_pylist())
    if path.suffix == ".arrow":
        with pa.ipc.open_file(path) as file:
            return str(file.schema), repr(file.read_all().to_pylist())
    return path.read_bytes()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("form", FORMATS)
def test_files_are_those_of_tuples_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Any, seed: int
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    random = Random(f"{form} {seed}")
    batches = some_batches(random, form)
    settings: dict[str, Any] = {
        "guarantee": random.choice(["exactly_once", "at_least_once"]),
        "partition_by": random.choice([(), (), "a"]),
        "roll_bytes": random.choice([None, 500]),
        "on_bad": "skip",
    }
    results = []
    for name, kind in (("tuples", ByTuple), ("columns", ByColumns)):
        place = tmp_path / name
        results.append(outcome(kind(place, form, **settings), batches, place))
    assert results[0] == results[1]


def of_users(*users: Any) -> list[Tuple]:
    return [make_tuple({"user": user, "n": number}) for number, user in enumerate(users)]


@pytest.mark.parametrize("form", ["lines", "json", "parquet"])
def test_what_cannot_be_written_of_columns_stops_the_run(tmp_path: Path, form: Any) -> None:
    bad = "x" * 300 if form == "parquet" else Odd() if form == "json" else "two\nlines"
    words = {"parquet": "file name too long", "json": "Odd is no JSON", "lines": "line feed"}[form]
    settings: dict[str, Any] = {"partition_by": "user"} if form == "parquet" else {}
    tuples = of_users("ann", bad, "bob")
    if form == "lines":
        tuples = [make_tuple({"user": tup.user}) for tup in tuples]
    with pytest.raises(ValueError, match=rf"(?s){words}.*, of a tuple with the values \["):
        run_bolt(FileBolt(tmp_path / "stop", form, **settings), batches=[tuples])
    conf = {"topology.uncaught.error": "fail"}
    run = run_bolt(FileBolt(tmp_path / "fail", form, **settings), conf=conf, batches=[tuples])
    assert [values[0] for values in run.failed] == [bad]
    written = b"".join(map(str.encode, map(str, map(content, files(tmp_path / "fail")))))
    assert written.count(b"ann") == written.count(b"bob") == 1 or form == "parquet"
    assert len(files(tmp_path / "fail")) == (2 if form == "parquet" else 1)


def test_a_partition_by_no_field_is_told_of_with_the_one_that_is_meant(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="partition_by='usr' is no field; did you mean 'user'"):
        run_bolt(FileBolt(tmp_path, partition_by="usr"), batches=[of_users("ann")])


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "arrow"])
def test_text_of_arrow_that_is_no_utf_8_is_not_written(tmp_path: Path, form: Any) -> None:
    raw = pa.array([b"\xff\xfe"] * 3)
    column = ArrowColumn(pa.Array.from_buffers(pa.string(), 3, raw.buffers()))
    seen = outcome(ByColumns(tmp_path, form), [[(("a",), [column], 3)]], tmp_path)
    (error,) = seen  # and no file
    assert error[0] in ("UnicodeDecodeError", "ArrowException")


def test_columns_of_a_source_keep_their_types_through_a_run(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array(range(700), pa.int16()), "x": [n / 4 for n in range(700)]})
    pq.write_table(table, tmp_path / "in.parquet")
    spout = FileSpout(tmp_path / "in.parquet", "parquet", fields=("n", "x"))
    with TestCluster() as cluster:
        sink = FileBolt(tmp_path / "out", "arrow", guarantee="exactly_once")
        cluster.submit_topology("t", line(spout, sink)).settle()
    (path,) = files(tmp_path / "out")
    with pa.ipc.open_file(path) as file:
        written = file.read_all()
    assert written.schema == pa.schema([("n", pa.int64()), ("x", pa.float64())])
    assert written.to_pylist() == table.to_pylist()


class Alternating(Spout):
    """Emits numbers on two streams in turn, each so often; one is none of JSON."""

    outputs: Any = {"a": ("n",), "b": ("n", "more")}

    def __init__(self, each: int) -> None:
        self.each = each

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        for n in range(self.next, 30):
            value = Odd() if n == 17 else n
            if n // self.each % 2:
                self.emit([value, "x"], stream="b", msg_id=n)
            else:
                self.emit([value], stream="a", msg_id=n)
        self.next = 30

    def is_exhausted(self) -> bool:
        return self.next > 0

    def fail(self, msg_id: Any, reason: str = "") -> None:
        pass


@pytest.mark.parametrize("each", [1, 10])
def test_tuples_of_streams_in_turn_are_no_columns_of_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, each: int
) -> None:
    taken = []
    by_columns = FileBolt.process_columns

    def noted(bolt: FileBolt, fields: Any, columns: Any, count: int) -> None:
        taken.append(count)
        by_columns(bolt, fields, columns, count)

    monkeypatch.setattr(FileBolt, "process_columns", noted)
    builder = TopologyBuilder()
    builder.set_spout("numbers", Alternating(each))
    bolt = builder.set_bolt("file", FileBolt(tmp_path))
    bolt.shuffle_grouping("numbers", "a").shuffle_grouping("numbers", "b")
    conf = {"topology.uncaught.error": "fail"}
    result = complete_topology(builder.create_topology(), conf=conf)
    assert taken == ([] if each == 1 else [10, 10, 10])
    assert result.failed == {"numbers": [17]}
    rows = [json.loads(text) for path in files(tmp_path) for text in content(path).splitlines()]
    assert [row["n"] for row in rows] == [n for n in range(30) if n != 17]
    assert all(("more" in row) == bool(row["n"] // each % 2) for row in rows)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_types_that_alternate_are_no_tables_of_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Any
) -> None:
    made = []
    table = writers._table

    def made_and_noted(*given: Any) -> Any:
        made.append(len(given))
        return table(*given)

    monkeypatch.setattr(writers, "_table", made_and_noted)
    values = [2**70 if n == 17 else n if n % 2 else str(n) for n in range(300)]
    tuples = [make_tuple({"v": value, "n": 1}) for value in values]
    run_bolt(FileBolt(tmp_path, form, on_bad="skip"), batches=[tuples])
    assert len(made) < 25
    texts, numbers = sorted(map(str, map(content, files(tmp_path))), key=len, reverse=True)
    assert texts.count("'v'") == 150
    assert numbers.count("'v'") == 149


def test_a_row_that_its_batch_cannot_be_written_with_is_told_of(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    values = [(1,), (2**70,)]
    builder.set_spout("numbers", FromList(values, fields=("n",)))
    builder.set_bolt("file", FileBolt(tmp_path, "parquet")).shuffle_grouping("numbers")
    conf = {"topology.uncaught.error": "fail"}
    with pytest.raises(RunError, match=rf"(?s)stands still.*values \[{2**70}\]"):
        complete_topology(builder.create_topology(), conf=conf)
    assert [pq.read_table(path).to_pylist() for path in files(tmp_path)] == [[{"n": 1}]]


def test_a_sink_that_emits_what_it_rejects_takes_tuples(tmp_path: Path) -> None:
    sink = FileBolt(tmp_path, on_bad="stream")
    run = run_bolt(sink, batches=[of_users("ann", Odd(), "bob")])
    (rejected,) = run.emitted
    assert rejected.stream == "rejected"
    assert rejected[0][1] == 1
    assert [json.loads(text)["n"] for text in content(*files(tmp_path)).splitlines()] == [0, 2]
