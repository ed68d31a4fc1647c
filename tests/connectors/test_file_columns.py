"""Columns of files reach bolts as they are, and nobody can tell: tuples, ids, acks, restarts.

The other way is the one that goes over the lists of the values.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connectors.moving import ticking
from topo import (
    BasicBolt,
    Bolt,
    Count,
    EventTime,
    FailTuple,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
)
from topo.connectors.files import FileSpout, readers
from topo.connectors.retries import Backoff
from topo.engine.inline.run import InlineRun
from topo.errors import TopoError
from topo.testing import run_spout
from topo.wire import arrow
from topo.wire.arrow import ArrowColumn, values_of
from topo.wire.plain_arrays import column_of

ROWS = 400
PAGE = 300  # what is left over at the end of a file is few rows
START = datetime(2026, 1, 1, tzinfo=UTC)
NOTES: list[Any] = []
"""What the components of the run have seen: they are unpickled in this process."""


def table(first: int, number: Any = None) -> pa.Table:
    """Return columns of many types, of which the first is each row's number."""
    places = range(first, first + ROWS)
    number = number or pa.int16()
    nested = [None if n % 5 == 0 else [[n], None, []] for n in places]
    return pa.table(
        {
            "id": pa.array(places, pa.int32()),
            "number": pa.array([None if n % 7 == 0 else n for n in places]).cast(number),
            "share": pa.array([float("nan") if n % 3 == 0 else n / 2 for n in places]).cast(
                "float"
            ),
            "text": [None if n % 11 == 0 else f"text {n % 40}" for n in places],
            "name": pa.array([f"name {n % 9}" for n in places]).dictionary_encode(),
            "at": pa.array([START + timedelta(hours=n) for n in places]).cast(
                pa.timestamp("ms", "Europe/Berlin")
            ),
            "price": pa.array([Decimal(n) / 4 for n in places], pa.decimal128(12, 2)),
            "nested": pa.array(nested, pa.list_(pa.list_(pa.int16()))),
            "empty": pa.nulls(ROWS, pa.string()),
            "other": pa.array([b"not read"] * ROWS),
        }
    )


FIELDS = ("id", "number", "share", "text", "name", "at", "price", "nested", "empty")


def write(path: Path, content: pa.Table) -> None:
    """Write a file, in groups of rows that are no pages."""
    if path.suffix == ".parquet":
        pq.write_table(content, path, row_group_size=350)
    else:
        with pa.ipc.new_file(str(path), content.schema) as sink:
            sink.write_table(content, max_chunksize=350)
    place = len(list(path.parent.iterdir()))
    os.utime(path, (place, place))


class Noted(FileSpout):
    """Notes the verdicts that it hears."""

    def ack(self, msg_id: Any) -> None:
        NOTES.append(("ack", os.path.basename(msg_id[0]), msg_id[1]))
        super().ack(msg_id)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        NOTES.append(("fail", os.path.basename(msg_id[0]), msg_id[1], reason))
        super().fail(msg_id, reason)

    def pre_commit(self, batch_id: int) -> None:
        super().pre_commit(batch_id)
        NOTES.append(("state", repr(self.state.raw())))


class ByTuple(Bolt):
    """Fails some tuples when it first sees them, and one for ever."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.seen: set[Any] = set()

    def execute(self, tup: Tuple) -> None:
        NOTES.append(repr(tup.values))
        if tup[0] % 97 == 5 and tup[0] not in self.seen:
            self.seen.add(tup[0])
            self.fail(tup, "first time")
        else:
            self.ack(tup)


class ByValues(BasicBolt):
    def process(self, id: int, text: str, nested: Any, at: datetime) -> None:
        NOTES.append(repr((id, text, nested, at)))
        if nested:
            nested.append("mine alone")  # what it gets is its own
        if id % 201 == 7:
            raise FailTuple("not this one")


class ByBatch(BasicBolt):
    def process_batch(self, batch: pa.RecordBatch) -> None:
        NOTES.extend(map(repr, batch.to_pylist()))
        for name in ("id", "number", "share", "text", "at"):
            NOTES.append(str(batch.schema.field(name).type))
        rows = [row for row, id in enumerate(batch["id"].to_pylist()) if id % 201 == 7]
        if rows:
            raise FailTuple("not these", rows=rows)


class Told(BasicBolt):
    """Notes what is told of on a stream."""

    def __init__(self, stream: str) -> None:
        self.stream = stream

    def execute(self, tup: Tuple) -> None:
        NOTES.append((self.stream, repr(tup.values)))


def run_of(spout: FileSpout, bolt: Any, **settings: Any) -> InlineRun:
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    builder.set_bolt("b", bolt, parallelism=2).fields_grouping("s", ["text"])
    if spout.translation.on_bad == "stream":
        builder.set_bolt("bad", Told("bad")).shuffle_grouping("s", "bad")
        builder.set_bolt("dead", Told("dead")).shuffle_grouping("s", "dead")
    conf = {"topology.max.spout.pending": 500, **settings}
    return ticking(builder.create_topology(), conf)


def noted(
    make: Callable[[], FileSpout], bolt: Any, cut: int, appear: Callable[[int], None] | None = None
) -> list[Any]:
    """Return what is seen by the end; every instance is rebuilt after each `cut` batches."""
    NOTES.clear()
    run = run_of(make(), bolt)
    for step in range(1, 40):
        if run.status == "COMPLETED":
            break
        if appear is not None:
            appear(step)
        run.step()
        if cut and step % cut == 0 and run.status == "ACTIVE":
            run.restart()
    if run.status == "ACTIVE":
        run.stop()
    return list(NOTES)


@pytest.fixture(scope="module")
def places(tmp_path_factory: Any) -> dict[str, Path]:
    """Return directories of the same files in each format, by format."""
    found = {}
    for form in ("parquet", "arrow"):
        found[form] = place = tmp_path_factory.mktemp(form)
        write(place / f"a.{form}", table(0))
        write(place / f"b.{form}", table(0)[:0])
        write(place / f"c.{form}", table(ROWS, pa.int64())[50:])
        write(place / f"d.{form}", table(0).drop_columns("text"))
    return found


@pytest.mark.parametrize("cut", [0, 1, 2])
@pytest.mark.parametrize("bolt", [ByTuple, ByValues, ByBatch])
@pytest.mark.parametrize(
    ("form", "guarantee"),
    [("parquet", "exactly_once"), ("parquet", "at_least_once"), ("arrow", "at_least_once")],
)
def test_columns_do_what_lists_of_their_values_do(
    places: dict[str, Path], monkeypatch: Any, form: Any, guarantee: Any, bolt: Any, cut: int
) -> None:
    def spout() -> FileSpout:
        return Noted(
            places[form],
            form,
            fields=FIELDS,
            page=PAGE,
            guarantee=guarantee,
            on_bad="stream",
            retry=Backoff(first=0, retries=1),
        )

    columns = noted(spout, bolt(), cut)
    monkeypatch.setattr(readers, "column_of", values_of)
    assert columns == noted(spout, bolt(), cut)
    assert sum(isinstance(one, str) for one in columns) >= 2 * ROWS - 50
    assert sum(one[0] == "bad" for one in columns) == 1
    if guarantee == "at_least_once":
        acks = {one[1:] for one in columns if one[0] == "ack"}
        dead = sum(one[0] == "dead" for one in columns)
        assert len(acks) == 2 * ROWS - 50
        assert dead == (0 if bolt is ByTuple else 3)


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_files_that_appear_are_read_alike(tmp_path: Path, monkeypatch: Any, cut: int) -> None:
    def read(place: Path) -> list[Any]:
        place.mkdir()

        def appear(step: int) -> None:
            if step in (2, 3, 9):
                write(place / f"{step}.parquet", table(step * ROWS))

        def spout() -> FileSpout:
            return Noted(
                place, "parquet", mode="watch", fields=FIELDS, page=PAGE, guarantee="at_least_once"
            )

        found = noted(spout, ByTuple(), cut, appear)
        return [one for one in found if one[0] != "state"]

    columns = read(tmp_path / "columns")
    monkeypatch.setattr(readers, "column_of", values_of)
    assert columns == read(tmp_path / "lists")
    assert sum(one[0] == "ack" for one in columns) == 3 * ROWS


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_files_of_the_same_hours_are_not_late_for_each_other(
    places: dict[str, Path], monkeypatch: Any, guarantee: Any
) -> None:
    def windows() -> list[Any]:
        NOTES.clear()
        builder = TopologyBuilder()
        path = str(places["parquet"] / "[abc].parquet")
        builder.set_spout(
            "s", FileSpout(path, "parquet", fields=("id", "at"), page=PAGE, guarantee=guarantee)
        )
        window = WindowAggregate(
            window=Tumbling(timedelta(hours=20)),
            time=EventTime("at", unit="datetime"),
            aggregates={"n": Count()},
        )
        builder.set_bolt("w", window).global_grouping("s")
        builder.set_bolt("told", Told("w")).global_grouping("w")
        run = ticking(builder.create_topology())
        run.settle()
        assert run.stats().components["w"].late == 0
        return list(NOTES)

    columns = windows()
    assert len(columns) > ROWS / 20
    monkeypatch.setattr(readers, "column_of", values_of)
    assert columns == windows()


def test_whole_and_broken_numbers_of_two_files_are_the_same_error(
    tmp_path: Path, monkeypatch: Any
) -> None:
    write(tmp_path / "a.parquet", table(0))
    write(tmp_path / "b.parquet", table(0, pa.float32()))
    errors = []
    for way in (column_of, values_of):
        monkeypatch.setattr(readers, "column_of", way)
        run = run_of(FileSpout(tmp_path, "parquet", fields=FIELDS), ByBatch())
        with pytest.raises(TopoError, match=r"'number' .* mixed numbers") as raised:
            run.settle()
        errors.append(str(raised.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_no_value_is_made_for_a_bolt_over_batches(
    tmp_path: Path, monkeypatch: Any, form: Any
) -> None:
    content = table(0).select(["id", "text", "name", "at"])[:350]
    write(tmp_path / f"a.{form}", content)
    NOTES.clear()

    def refuse(array: Any) -> list[Any]:
        raise AssertionError("the values are read")

    monkeypatch.setattr(arrow, "values_of", refuse)
    builder = TopologyBuilder()
    spout = FileSpout(tmp_path, form, fields=("id", "text", "name", "at"), page=ROWS)
    builder.set_spout("s", spout)
    builder.set_bolt("b", Sums()).shuffle_grouping("s")
    run = InlineRun("t", builder.create_topology(), {}, now=lambda: 0.0, strict=False, record=False)
    run.settle()
    assert [sum(range(350))] == NOTES


class Sums(BasicBolt):
    def process_batch(self, batch: pa.RecordBatch) -> None:
        NOTES.append(sum(batch["id"].to_pylist()))


def test_a_function_of_records_gets_lists(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", table(0))
    NOTES.clear()
    spout = FileSpout(tmp_path, "parquet", fields=("id", "text"), translate=halves)
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    builder.set_bolt("b", Nothing()).shuffle_grouping("s")
    InlineRun("t", builder.create_topology(), {}, now=lambda: 0.0, strict=False).settle()
    assert [list] * ROWS == NOTES


def halves(record: Any) -> Any:
    NOTES.append(type(record))
    return record if record[0] % 2 else None


class Nothing(BasicBolt):
    def process(self, id: int) -> None:
        pass


def test_values_in_place_of_which_others_are_written_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write(path, table(0))
    reader = readers.open_reader(str(path), "arrow", ("id",), True)
    columns = reader.read(0, PAGE, whole=True).columns
    assert columns is not None
    with path.open("r+b") as file:
        file.write(b"\0" * path.stat().st_size)
    reader.close()
    assert isinstance(columns["id"], ArrowColumn)
    assert list(columns["id"]) == list(range(PAGE))


ODD_ROWS = [
    b'"quoted, text",1,x\n',
    b'"two\nlines",1,x\n',
    b'open "quote,1,x\n',
    b'"never closed,1,x\n',
    b"two,values\n",
    b"\n",
    b"\r\n",
    b"return \r in it,1,x\n",
    b"ends with two,1,x\r\n",
    b"\xff\xfe,1,x\n",
    b"zero \0,1,\x0b \xe2\x80\xa8 x\n",
    b"x" * 150 + b",1,x\n",
    b"x" * 5_000 + b",1,x\n",
    b"\xef\xbb\xbfmark,1,x\n",
    b",,\n",
]


@pytest.mark.parametrize("seed", range(10))
def test_rows_of_csv_by_the_column_are_those_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    rows = [f"text {n},{n},{n / 4}\n".encode() for n in range(3_000)]
    for _ in range(seed * 3):
        rows.insert(random.randrange(len(rows)), random.choice(ODD_ROWS))
    header = seed % 2 == 0
    mark = b"\xef\xbb\xbf" if seed % 3 == 0 else b""
    data = mark + (b"a,b,a\n" if header else b"") + b"".join(rows) + b"last,1,2"
    path = tmp_path / "a.csv"
    path.write_bytes(data)

    def read(most: int) -> tuple[list[Any], list[str], int, int]:
        reader = readers.open_reader(str(path), "csv", ("a", "b", "c"), header, 120)
        records: list[Any] = []
        bad: list[str] = []
        piece = readers.Piece()
        by_columns = 0
        while not piece.finished:
            piece = reader.read(piece.end, most, whole=True)
            by_columns += piece.columns is not None
            records += zip(piece.starts, piece.rows(), strict=True)
            bad += map(repr, piece.bad)
        reader.close()
        return records, bad, piece.end, by_columns

    monkeypatch.setattr(readers, "_CHUNK_BYTES", random.choice([1 << 20, 9_000, 100]))
    *by_columns, pages = read(300)
    *others, none = read(255)
    assert by_columns == others
    assert by_columns[2] == len(data)
    assert pages
    assert none == 0


def test_columns_of_csv_are_those_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,n\n" + "".join(f"u{n},{n}\n" for n in range(700)))
    (tmp_path / "b.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(700)))
    spout = FileSpout(tmp_path / "*.csv", "csv", fields=("n", "user"), page=400)
    run = run_spout(spout, 10)
    written = [list(emitted) for emitted in run.emitted]
    assert written == [[str(n), f"u{n}"] for n in range(700)] + [[str(n), None] for n in range(700)]
    assert not run.errors  # of a name that no record had
    strict = FileSpout(tmp_path / "b.csv", "csv", fields="user", missing="bad", on_bad="skip")
    assert run_spout(strict, 10).emitted == []
