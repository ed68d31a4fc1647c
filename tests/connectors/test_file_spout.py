"""FileSpout: every record once, from wherever it was when everything died."""

from __future__ import annotations

import gzip
import json
import os
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connectors.moving import Keeps
from topo import (
    BasicBolt,
    Bolt,
    ComponentError,
    Count,
    EventTime,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
)
from topo.connectors.files import FileBolt, FileSpout
from topo.connectors.files.listing import ListedFile, look_at
from topo.connectors.files.logs import dealt_name, family, is_same_log, log_key
from topo.connectors.files.readers import open_reader
from topo.connectors.retries import Backoff
from topo.errors import Unavailable
from topo.testing import SpoutRun, TestCluster, run_spout

ROWS = [{"user": f"u{number}", "count": number} for number in range(50)]


class Nothing(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        pass


class FailsFirst(Bolt):
    """Fails every tuple when it first sees it."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.seen: set[Any] = set()

    def execute(self, tup: Tuple) -> None:
        if tup[0] in self.seen:
            self.ack(tup)
        else:
            self.seen.add(tup[0])
            self.fail(tup, "first time")


def started(cluster: TestCluster, spout: FileSpout, bolt: Any = None, *, tasks: int = 1) -> Any:
    builder = TopologyBuilder()
    builder.set_spout("s", spout, parallelism=tasks)
    builder.set_bolt("b", bolt or Nothing()).shuffle_grouping("s")
    run: Any = cluster.submit_topology("t", builder.create_topology())
    return run


def emitted(spout: FileSpout, *, tasks: int = 1, restarts: bool = False) -> list[list[Any]]:
    """Run to the end; with `restarts`, rebuild every instance after each batch."""
    with TestCluster() as cluster:
        run = started(cluster, spout, tasks=tasks)
        while run.status == "ACTIVE":
            if not restarts:
                run.settle()
            elif run.step() == 0 or run.status != "ACTIVE":
                break
            else:
                run.restart()
        rows: list[list[Any]] = run.tuples("s")
        return rows


def write_avro(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows in blocks of a few."""
    fields = [{"name": "user", "type": "string"}, {"name": "count", "type": "long"}]
    schema = {"type": "record", "name": "Row", "fields": fields}
    with path.open("wb") as file:
        fastavro = pytest.importorskip("fastavro")
        fastavro.writer(file, schema, rows, codec="deflate", sync_interval=20)


def write(path: Path, form: str) -> Path:
    """Write ROWS in a format."""
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=7)
    elif form == "arrow":
        table = pa.Table.from_pylist(ROWS)
        with pa.ipc.new_file(str(path), table.schema) as sink:
            sink.write_table(table, max_chunksize=7)
    elif form == "avro":
        write_avro(path, ROWS)
    elif form == "csv":
        path.write_text("user,count\n" + "".join(f"{r['user']},{r['count']}\n" for r in ROWS))
    else:
        path.write_text("\n".join(json.dumps(row) for row in ROWS))  # the last line has no end
    return path


@pytest.mark.parametrize("form", ["json", "csv", "avro", "parquet", "arrow"])
@pytest.mark.parametrize("restarts", [False, True])
def test_every_record_once_though_every_instance_is_rebuilt(
    tmp_path: Path, form: Any, restarts: bool
) -> None:
    path = write(tmp_path / f"rows.{form}", form)
    spout = FileSpout(path, form, fields=("user", "count"), page=4)
    rows = emitted(spout, restarts=restarts)
    assert [[user, int(count)] for user, count in rows] == [list(row.values()) for row in ROWS]


def test_lines_of_plain_and_packed_files_in_the_order_of_their_age(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("one\r\ntwo\n\nthree")
    with gzip.open(tmp_path / "a.gz", "wt") as packed:
        packed.write("four\nfive\n")
    for age, name in enumerate(["a.gz", "b.txt"]):
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "_unfinished").write_text("nobody's")
    assert emitted(FileSpout(tmp_path)) == [["one"], ["two"], ["three"], ["four"], ["five"]]


def test_a_line_longer_than_a_piece_is_one_line(tmp_path: Path) -> None:
    long = "x" * (3 << 20)
    (tmp_path / "a").write_text(f"first\n{long}\nlast\n")
    spout = FileSpout(tmp_path / "a", max_record=4 << 20)
    assert [row[0] for row in emitted(spout)] == ["first", long, "last"]


@pytest.mark.parametrize("form", ["lines", "csv"])
@pytest.mark.parametrize("size", [5_000, 3 << 20])
@pytest.mark.parametrize("end", ["\nlast\n", "\n", ""])
@pytest.mark.parametrize("packed", [False, True])
def test_a_record_that_is_too_long_is_bad_alone(
    tmp_path: Path, form: Any, size: int, end: str, packed: bool
) -> None:
    path = tmp_path / ("a.gz" if packed else "a")
    with gzip.open(path, "wt") if packed else path.open("w") as file:
        file.write(f"{'x' * 1000}\nfirst\n{'y' * size}{end}")
    with TestCluster() as cluster:
        spout = FileSpout(path, form, fields="x", header=False, max_record=1000, on_bad="stream")
        run = started(cluster, spout)
        run.settle()
        expected = ["x" * 1000, "first"] + (["last"] if "last" in end else [])
        assert [row[0] for row in run.tuples("s")] == expected
        (bad,) = run.tuples("s", "bad")
        assert bad[0] == b"y" * 1000
        assert f"{size + bool(end):,} bytes; max_record=1,000" in bad[1]
        assert bad[2].endswith("at byte 1007")


def test_a_line_without_an_end_takes_little_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "bomb.gz", "wb", 1) as file:
        for _ in range(64):
            file.write(b"0" * (1 << 20))
        file.write(b"\nlast\n")
    reader = open_reader(str(tmp_path / "bomb.gz"), "lines", (), True, 1_000_000)
    tracemalloc.start()
    try:
        piece = reader.read(0, 10, whole=True)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert len(piece.bad) == 1
    assert reader.read(piece.end, 10, whole=True).records == ["last"]
    reader.close()


@pytest.mark.parametrize("form", ["lines", "csv"])
def test_a_file_is_read_once_however_short_its_pages_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Going back in a packed file means to unpack it from its beginning."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d\n" % number for number in range(300_000)), 1))

    class NeverGoesBack(gzip.GzipFile):
        def seek(self, offset: int, whence: int = 0) -> int:
            raise AssertionError(f"seek({offset})")

    monkeypatch.setattr(gzip, "open", NeverGoesBack)
    reader = open_reader(str(path), form, ("n",), header=False)
    numbers: list[str] = []
    at, finished = 0, False
    while not finished:
        piece = reader.read(at, 20_000, whole=True)
        numbers += [row["n"] if form == "csv" else row for row in piece.rows()]
        at, finished = piece.end, piece.finished
    reader.close()
    assert numbers == [str(number) for number in range(300_000)]


@pytest.mark.parametrize(
    ("form", "text", "header", "expected"),
    [
        ("lines", "ann\n", True, [["ann"]]),
        ("json", '{"user": "ann"}\n', True, [["ann"]]),
        ("csv", "user\nann\n", True, [["ann"]]),
        ("csv", '"user"\nann\n', True, [["ann"]]),
        ("csv", "ann\n", False, [["ann"]]),
    ],
)
def test_the_mark_of_utf_8_belongs_to_no_record(
    tmp_path: Path, form: Any, text: str, header: bool, expected: Any
) -> None:
    (tmp_path / "a").write_text(text, encoding="utf-8-sig")
    assert emitted(FileSpout(tmp_path / "a", form, fields="user", header=header)) == expected


@pytest.mark.parametrize("text", ["user,n\rann,1\r", 'user,"n\nm"\nann,1\n'])
def test_a_first_line_that_names_no_columns_makes_the_file_bad(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").write_bytes(text.encode())
    assert emitted(FileSpout(tmp_path / "a", "csv", fields="user", on_bad="skip")) == []
    with pytest.raises(ComponentError, match="its first line names no columns"):
        emitted(FileSpout(tmp_path / "a", "csv", fields="user"))


def test_a_file_is_read_without_a_look_at_all_those_that_were_read(tmp_path: Path) -> None:
    files = 400
    for number in range(files):
        (tmp_path / f"f{number}").write_text("a\n")
    calls = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        assert len(emitted(FileSpout(tmp_path))) == files
    finally:
        sys.setprofile(before)
    assert calls < 1_000 * files  # some 500; with such looks they were 3,800


def test_deeply_nested_json_is_a_bad_record(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"v": 1}\n' + "[" * 100_000 + '\n{"v": 2}\n')
    rows = emitted(FileSpout(tmp_path / "a", "json", fields="v", on_bad="skip"))
    assert rows == [[1], [2]]


def test_quoted_csv_values_run_over_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('name,note\n"A, B","two\nlines ""quoted"""\nC,\n')
    spout = FileSpout(tmp_path / "a.csv", "csv", fields=("note", "name"), page=1)
    assert emitted(spout) == [['two\nlines "quoted"', "A, B"], ["", "C"]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rows", [5, 300])
def test_a_stray_quote_costs_its_own_line(tmp_path: Path, packed: bool, rows: int) -> None:
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    good = [f"{number},value" for number in range(rows)]
    text = "\n".join(["a,b", '1,"oops', *good, '2,"two\nlines"', '3,"oops', *good, '4,"end'])
    with gzip.open(path, "wt") if packed else path.open("w") as file:
        file.write(text)
    with TestCluster() as cluster:
        spout = FileSpout(path, "csv", fields=("a", "b"), max_record=200, on_bad="stream")
        run = started(cluster, spout)
        run.settle()
        values = [row[1] for row in run.tuples("s")]
        bad = [row[0] for row in run.tuples("s", "bad")]
    if rows == 300:
        assert values == ["value"] * rows + ["two\nlines"] + ["value"] * rows
        assert bad == [b'1,"oops\n', b'3,"oops\n', b'4,"end']
    else:  # the quotes close one another within 200 bytes
        assert len(values) + len(bad) < 2 * rows + 4


def test_quotes_in_a_value_that_has_none_around_it_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,5" pipe\n2,x\n\n3,"a\r\nb"\r\n')
    rows = emitted(FileSpout(tmp_path / "a.csv", "csv", fields=("a", "b")))
    assert rows == [["1", '5" pipe'], ["2", "x"], ["3", "a\r\nb"]]


def test_files_are_dealt_over_tasks_and_translated(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text(f"{number}\nskip\n")
    spout = FileSpout(
        f"{tmp_path}/*.txt",
        fields="number",
        translate=lambda line: None if line == "skip" else [int(line)],
    )
    assert sorted(emitted(spout, tasks=3)) == [[number] for number in range(20)]


def test_what_cannot_be_read_goes_its_own_way(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"user": 1}\n{broken\n{"user": 2}\n[3]\n')
    with TestCluster() as cluster:
        run = started(cluster, FileSpout(path, "json", fields="user", on_bad="stream"))
        run.settle()
        assert run.tuples("s") == [[1], [2]]
        (broken, listed) = run.tuples("s", "bad")
        assert (broken[0], broken[2]) == (b"{broken", f"{path} at byte 12")
        assert (listed[0], listed[2]) == ([3], f"{path} at 32")
        assert run.stats().components["s"].counters["bad_records"] == 2
    assert emitted(FileSpout(path, "json", fields="user", on_bad="skip")) == [[1], [2]]
    with pytest.raises(ComponentError, match=rf"cannot be read: {path} at byte 12"):
        emitted(FileSpout(path, "json", fields="user"))


def test_a_file_of_another_format_is_bad_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("not parquet at all")
    pq.write_table(pa.table({"other": [1]}), tmp_path / "b.parquet")
    with TestCluster() as cluster:
        spout = FileSpout(tmp_path, "parquet", fields="user", on_bad="stream")
        run = started(cluster, spout)
        run.settle()
        errors = sorted(row[1] for row in run.tuples("s", "bad"))
        assert "no column 'user'; it has other" in errors[1]
        assert run.status == "COMPLETED"


def test_an_avro_file_that_is_damaged_and_records_that_fail(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    write_avro(tmp_path / "good.avro", ROWS)
    data = (tmp_path / "good.avro").read_bytes()
    (tmp_path / "none.avro").write_bytes(b"not avro at all")
    (tmp_path / "cut.avro").write_bytes(data[: len(data) - 25])
    for age, name in enumerate(["good.avro", "cut.avro", "none.avro"]):
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    with TestCluster() as cluster:
        spout = FileSpout(tmp_path, "avro", on_bad="stream", translate=lambda row: [row["count"]],
                          fields="n", guarantee="at_least_once", page=3)  # fmt: skip
        builder = TopologyBuilder()
        builder.set_spout("s", spout)
        builder.set_bolt("b", FailsOnce()).shuffle_grouping("s")
        FailsOnce.failed.clear()
        run = cluster.submit_topology("t", builder.create_topology())
        cluster.advance(20)
        assert run.status == "COMPLETED"
        bad = sorted((where, error) for _, error, where in run.tuples("s", "bad"))
        assert [Path(where).name for where, _ in bad] == ["cut.avro from 46", "none.avro from 0"]
        assert all("it is no Avro file, or damaged" in error for _, error in bad)
        counts = Counter(row[0] for row in run.tuples("s"))
        assert set(counts) == {row["count"] for row in ROWS}
        assert len(FailsOnce.failed) == len(ROWS)


def test_records_of_other_streams_and_those_that_are_given_up(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("".join(json.dumps({"count": n}) + "\n" for n in range(6)))

    def by_kind(row: dict[str, Any]) -> Any:
        return ("odd", [row["count"]]) if row["count"] % 2 else [row["count"]]

    spout = FileSpout(path, "json", fields="n", streams={"odd": "n"}, translate=by_kind,
                      guarantee="at_least_once", retry=Backoff(first=1, retries=1))  # fmt: skip
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    builder.set_bolt("b", FailsAlways()).shuffle_grouping("s").shuffle_grouping("s", "odd")
    builder.set_bolt("dead", Keeps()).shuffle_grouping("s", "dead")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        cluster.advance(0.5)
        run.restart()
        for _ in range(10):
            cluster.advance(1)
        assert run.status == "COMPLETED"
        assert Counter(row[0] for row in run.tuples("s")) == {0: 1, 2: 2, 4: 1}
        assert Counter(row[0] for row in run.tuples("s", "odd")) == {1: 1, 3: 2, 5: 1}
        dead = sorted(run.tuples("s", "dead"), key=lambda row: row[1])
        assert [(row[0], row[3]) for row in dead] == [({"count": 2}, 2), ({"count": 3}, 2)]
        assert all(f"{path} at " in row[1] and "failed by" in row[2] for row in dead)
        assert run.pending == 0


class FailsAlways(Bolt):
    """Fails 2 and 3."""

    def execute(self, tup: Tuple) -> None:
        if tup[0] in (2, 3):
            self.fail(tup)
        else:
            self.ack(tup)


class FailsOnce(Bolt):
    """Fails every number the first time."""

    failed: ClassVar[set[int]] = set()

    def execute(self, tup: Tuple) -> None:
        if tup[0] in self.failed:
            self.ack(tup)
        else:
            self.failed.add(tup[0])
            self.fail(tup)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"format": "xml"}, "format='xml'; it is one of"),
        ({"mode": "follow"}, "mode='follow'; it is one of"),
        ({"format": "csv"}, "the fields of what it emits are not known"),
        ({"format": "parquet", "mode": "tail", "fields": "a"}, "follows lines and JSON, not"),
        ({"mode": "tail", "after": "delete"}, "whose files never end"),
        ({"after": "move:"}, "names no directory"),
    ],
)
def test_arguments_that_cannot_be_meant(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        FileSpout("x", **wrong)


@pytest.mark.parametrize("connector", [FileSpout, FileBolt])
@pytest.mark.parametrize("scheme", ["gs", "hdfs", "abfs", "file", "http", "S3"])
def test_places_that_are_not_supported_are_refused(connector: Any, scheme: str) -> None:
    with pytest.raises(ComponentError, match=f"files of {scheme}:// are not") as caught:
        connector(f"{scheme}://bucket/in/")
    assert "s3://BUCKET/KEY" in caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match="there is no file"):
        emitted(FileSpout(tmp_path / "none"))


def test_files_that_appear_are_read_and_done_with(tmp_path: Path) -> None:
    inbox, done = tmp_path / "in", tmp_path / "done"
    inbox.mkdir()
    with TestCluster() as cluster:
        run = started(cluster, FileSpout(inbox, mode="watch", after=f"move:{done}"))
        run.settle()
        (inbox / "a").write_text("one\n")
        cluster.advance(2)
        run.restart()
        (inbox / "b").write_text("two\n")
        cluster.advance(2)
        assert run.tuples("s") == [["one"], ["two"]]
        cluster.advance(2)
        assert sorted(path.name for path in done.iterdir()) == ["a", "b"]
        assert list(inbox.iterdir()) == []


def test_files_of_one_name_are_all_kept(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / "in" / place).mkdir(parents=True)
        (tmp_path / "in" / place / "x.log").write_text(f"from {place}\n")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "x.log").write_text("of yesterday")
    rows = emitted(FileSpout(f"{tmp_path}/in/**/*.log", after=f"move:{tmp_path}/done"))
    assert sorted(rows) == [["from a"], ["from b"]]
    moved = {path.name: path.read_text() for path in (tmp_path / "done").iterdir()}
    assert set(moved) == {"x.log", "x-2.log", "x-3.log"}
    assert moved.pop("x.log") == "of yesterday"
    assert sorted(moved.values()) == ["from a\n", "from b\n"]


@pytest.mark.parametrize("after", ["keep", "delete", "move:done"])
def test_a_name_that_comes_again_is_another_file(
    tmp_path: Path, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inbox = tmp_path / "in"
    inbox.mkdir()
    with TestCluster() as cluster:
        run = started(cluster, FileSpout("in", mode="watch", after=after))
        for day in range(1, 4):
            (inbox / "orders.csv").write_text(f"day {day}\n")
            os.utime(inbox / "orders.csv", (day, day))
            cluster.advance(2)
            cluster.advance(2)
            if day == 2:
                run.restart()
        assert run.tuples("s") == [["day 1"], ["day 2"], ["day 3"]]
    if after == "move:done":
        assert sorted(path.read_text() for path in (tmp_path / "done").iterdir()) == [
            f"day {day}\n" for day in range(1, 4)
        ]


def test_a_file_is_not_tidied_if_it_is_another_one_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\n")
    with TestCluster() as cluster:
        spout = FileSpout(path, mode="watch", guarantee="at_least_once", after="delete")
        run = started(cluster, spout, FailsFirst())
        run.step()
        path.write_text("another\n")
        with pytest.raises(ComponentError, match="a record of it failed, and it is gone"):
            run.settle()
        assert path.read_text() == "another\n"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_goes_half_read_is_told_of(tmp_path: Path, replaced: bool) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a"
    path.write_text("".join(f"{number}\n" for number in range(100)))
    with TestCluster() as cluster:
        run = started(cluster, FileSpout(path, page=10, on_bad="stream"))
        run.step()
        read = len(run.tuples("s"))
        assert 0 < read < 100
        path.rename(tmp_path / "elsewhere")
        if replaced:
            path.write_text("new\n")
        run.restart()
        run.settle()
        (bad,) = run.tuples("s", "bad")
        assert bad[2] == f"{path} at {sum(len(row[0]) + 1 for row in run.tuples('s')[:read])}"
        assert ("another file" if replaced else "is gone") in bad[1]
        assert run.tuples("s")[read:] == ([["new"]] if replaced else [])
        assert run.status == "COMPLETED"


def test_a_file_is_waited_for_while_its_directory_is_gone(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    path = tmp_path / "share" / "a"
    path.write_text("".join(f"{number}\n" for number in range(100)))
    with TestCluster() as cluster:
        run = started(cluster, FileSpout(path, page=10))
        run.step()
        (tmp_path / "share").rename(tmp_path / "unmounted")
        run.restart()
        cluster.advance(1)
        assert run.status == "STALLED"
        assert "its directory is not there" in run.reason
        (tmp_path / "unmounted").rename(tmp_path / "share")
        cluster.advance(60)
        assert run.status == "COMPLETED"
        assert [row[0] for row in run.tuples("s")] == [str(number) for number in range(100)]


def test_a_failed_record_comes_again_and_its_file_stays_until_it_is_acked(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\ntwo\nthree\n")
    with TestCluster() as cluster:
        spout = FileSpout(path, guarantee="at_least_once", after="delete")
        run = started(cluster, spout, FailsFirst())
        run.step()
        assert path.exists()
        run.restart()
        run.settle()
        assert Counter(row[0] for row in run.tuples("s")) == {"one": 2, "two": 2, "three": 2}
        assert run.status == "COMPLETED"
        assert len(run.acked["s"]) == 3
        assert not path.exists()


@pytest.mark.parametrize("mode", ["once", "watch", "tail"])
def test_a_failed_record_comes_alone_though_the_line_behind_it_has_no_end(
    tmp_path: Path, cluster: TestCluster, mode: Any
) -> None:
    path = tmp_path / "a.log"
    path.write_text("one\ntwo\nthr")
    after = "keep" if mode == "tail" else "delete"
    spout = FileSpout(path, mode=mode, guarantee="at_least_once", after=after)
    run = started(cluster, spout, FailsFirst())
    cluster.advance(5)
    if mode == "tail":
        with path.open("a") as file:
            file.write("ee\n")
        cluster.advance(5)
    last = "three" if mode == "tail" else "thr"
    assert Counter(row[0] for row in run.tuples("s")) == {"one": 2, "two": 2, last: 2}
    assert sorted(msg_id[1] for msg_id in run.acked["s"]) == [0, 4, 8]
    assert run.pending == 0
    assert path.exists() == (mode == "tail")


def test_a_page_has_no_more_records_than_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree")
    reader = open_reader(str(tmp_path / "a"), "lines", (), True)
    pages = [reader.read(0, 2, whole=True), reader.read(8, 2, whole=True)]
    assert [piece.records for piece in pages] == [["one", "two"], ["three"]]
    assert [piece.finished for piece in pages] == [False, True]


class Log:
    """A log file under a spout that follows it."""

    def __init__(
        self,
        directory: Path,
        cluster: TestCluster,
        pattern: str = "app.log",
        bolt: Any = None,
        tasks: int = 3,
        **more: Any,
    ) -> None:
        self.path = directory / "app.log"
        self.path.touch()
        self.cluster = cluster
        spout = FileSpout(directory / pattern, mode="tail", **more)
        self.run = started(cluster, spout, bolt, tasks=tasks)

    def write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def read(self) -> list[str]:
        self.cluster.advance(2)
        return [row[0] for row in self.run.tuples("s")]


@pytest.fixture
def cluster() -> Any:
    with TestCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("max_record", [10, 1_000, 300_000, 4 << 20])
@pytest.mark.parametrize("last", ["\nlast\n", "\r\nlast\n", "", "end"])
def test_a_line_that_is_written_for_ever_takes_little_memory(
    tmp_path: Path, max_record: int, last: str
) -> None:
    path = tmp_path / "app.log"
    path.write_text("first\n")
    reader = open_reader(str(path), "lines", (), True, max_record)
    assert reader.read(0, 9, whole=False).records == ["first"]
    tracemalloc.start()
    try:
        with path.open("ab", buffering=0) as file:
            for _ in range(20):
                file.write(b"x" * 200_000)
                piece = reader.read(6, 9, whole=False)
                assert (piece.end, piece.count, piece.bad, piece.finished) == (6, 0, [], True)
            _, most = tracemalloc.get_traced_memory()
            file.write(last.encode())
    finally:
        tracemalloc.stop()
    assert most < 3 * min(max_record, 4_000_000) + (2 << 20)
    pieces = [reader.read(6, 9, whole=True)]
    pieces.append(reader.read(pieces[0].end, 9, whole=True))
    records = [record for piece in pieces for record in piece.records]
    bad = [each for piece in pieces for each in piece.bad]
    size = 4_000_000 + len(last.removesuffix("last\n"))
    if max_record > size:
        long = "x" * 4_000_000 + last.partition("\r")[0].partition("\n")[0]
        assert (records.pop(0), bad) == (long, [])
    else:
        assert [each.error for each in bad] == [f"a record of {size:,} bytes; {max_record=:,}"]
    assert records == (["last"] if "last" in last else [])
    assert pieces[-1].end == path.stat().st_size
    assert pieces[-1].finished


def test_half_a_line_waits_for_its_other_half(tmp_path: Path, cluster: TestCluster) -> None:
    log = Log(tmp_path, cluster)
    log.write("one\ntw")
    assert log.read() == ["one"]
    log.write("o\n")
    assert log.read() == ["one", "two"]


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_renamed_log_is_read_to_its_end_before_the_new_one(
    tmp_path: Path, cluster: TestCluster, pattern: str, restarts: bool
) -> None:
    log = Log(tmp_path, cluster, pattern)
    for turn in range(4):
        log.write(f"a{turn}\n")
        assert log.read()[-1] == f"a{turn}"
        log.write(f"b{turn}\n")  # not read before the rotation
        if turn:
            (tmp_path / "app.log.1").replace(tmp_path / "app.log.2")
        log.path.rename(tmp_path / "app.log.1")
        log.path.touch()
        if restarts:
            log.run.restart()
        log.write(f"c{turn}\n")
        assert sorted(log.read()[-2:]) == [f"b{turn}", f"c{turn}"]
    lines = log.read()
    assert sorted(lines) == sorted(f"{letter}{turn}" for turn in range(4) for letter in "abc")


@pytest.mark.parametrize("pattern", ["app.log", "*.log", "app*"])
@pytest.mark.parametrize("name", ["app-20240131.log", "app-2024-01-31.log", "app.1.log", "old.log"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_that_is_renamed_before_its_suffix_is_read_once(
    tmp_path: Path, cluster: TestCluster, pattern: str, name: str, restarts: bool
) -> None:
    # Nothing tells another task whose log it was that has this name.
    tasks = 3 if pattern == "app.log" else 1
    log = Log(tmp_path, cluster, pattern, tasks=tasks)
    log.write("a\nb\n")
    assert log.read() == ["a", "b"]
    log.write("c\n")
    log.path.rename(tmp_path / name)
    log.path.write_text("d\n")
    if restarts:
        log.run.restart()
    assert log.read() == ["a", "b", "c", "d"]
    assert log.read() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("name", ["b.log", "app-2026-11-21.log", "app.log"])
def test_a_log_that_gets_the_inode_of_a_removed_one_is_read_from_its_beginning(
    tmp_path: Path, cluster: TestCluster, name: str, restarts: bool
) -> None:
    log = Log(tmp_path, cluster, "*.log", tasks=1)
    log.write("of a 1\n")
    assert log.read() == ["of a 1"]
    log.path.rename(tmp_path / "app.1.log")
    assert log.read() == ["of a 1"]
    # What follows is what a file system does that gives the inode of a removed file to the next.
    (tmp_path / "app.1.log").rename(tmp_path / name)
    (tmp_path / name).write_text("of b, the first\nof b 2\n")
    if restarts:
        log.run.restart()
    assert log.read() == ["of a 1", "of b, the first", "of b 2"]
    assert log.read() == ["of a 1", "of b, the first", "of b 2"]
    with (tmp_path / name).open("a") as file:
        file.write("of b 3\n")
    assert log.read()[3:] == ["of b 3"]


def test_a_log_outside_the_pattern_is_not_taken_for_one_whose_inode_it_has(
    tmp_path: Path, cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailsA, "fails", True)
    log = Log(tmp_path, cluster, bolt=FailsA(), guarantee="at_least_once", on_bad="stream")
    log.write("b\na\n")
    assert set(log.read()) == {"a", "b"}
    log.path.rename(tmp_path / "secrets.txt")
    (tmp_path / "secrets.txt").write_text("nothing of this\nwas ever a log\n")
    assert set(log.read()) == {"a", "b"}
    ((_, error, place),) = log.run.tuples("s", "bad")
    assert place == f"{log.path} at 2"
    assert "a record of it failed, and it is gone" in error
    assert log.run.pending == 0


def test_a_position_of_an_earlier_version_is_of_the_log_that_has_the_name(
    tmp_path: Path,
) -> None:
    path = tmp_path / "app.1.log"
    path.write_text("one\ntwo\n")
    found = look_at(str(path))
    assert found is not None
    entry = {"at": 4, "inode": found.inode, "path": str(tmp_path / "app.log")}
    assert is_same_log(entry, found)
    assert not is_same_log({**entry, "path": str(tmp_path / "b.log")}, found)
    assert is_same_log({**entry, "head": (4, crc32(b"one\n"))}, found)
    assert not is_same_log({**entry, "head": (4, crc32(b"two\n"))}, found)
    assert not is_same_log({**entry, "head": (9, crc32(b"one\ntwo\n"))}, found)
    path.unlink()
    assert not is_same_log({**entry, "head": (4, crc32(b"one\n"))}, found)


def test_a_log_that_was_empty_when_it_was_last_seen_is_read_though_it_is_renamed(
    tmp_path: Path, cluster: TestCluster
) -> None:
    log = Log(tmp_path, cluster)
    assert log.read() == []
    log.write("a\n")
    log.path.rename(tmp_path / "app.log.1")
    log.path.write_text("b\n")
    log.run.restart()
    assert sorted(log.read()) == ["a", "b"]


def test_a_log_that_was_seen_empty_begins_anew_however_fast_it_grows(
    tmp_path: Path, cluster: TestCluster
) -> None:
    log = Log(tmp_path, cluster)
    log.write("a\n")
    assert log.read() == ["a"]
    os.truncate(log.path, 0)
    assert log.read() == ["a"]
    log.write("b1\nc1\n")  # more than there was before
    assert log.read() == ["a", "b1", "c1"]


class FailsA(Bolt):
    """Fails the line "a", as long as it is told to."""

    fails: ClassVar[bool] = True

    def execute(self, tup: Tuple) -> None:
        if tup[0] == "a" and FailsA.fails:
            self.fail(tup, "not yet")
        else:
            self.ack(tup)


@pytest.mark.parametrize("name", ["app.log.1", "app.1.log"])
def test_a_record_that_failed_comes_again_from_a_log_that_is_renamed(
    tmp_path: Path, cluster: TestCluster, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(FailsA, "fails", True)
    log = Log(tmp_path, cluster, bolt=FailsA(), guarantee="at_least_once")
    log.write("a\nb\n")
    assert set(log.read()) == {"a", "b"}
    log.path.rename(tmp_path / name)
    log.path.write_text("c of another file\n")
    lines = set(log.read())
    FailsA.fails = False
    lines |= set(log.read())
    assert lines == {"a", "b", "c of another file"}
    assert sorted(msg_id[1] for msg_id in log.run.acked["s"]) == [0, 0, 2]


def test_a_record_that_failed_is_told_of_if_its_log_is_truncated(
    tmp_path: Path, cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailsA, "fails", True)
    log = Log(tmp_path, cluster, bolt=FailsA(), guarantee="at_least_once", on_bad="stream")
    log.write("b\na\n")
    assert set(log.read()) == {"a", "b"}
    os.truncate(log.path, 0)
    log.read()
    log.write("another line\n")
    assert {"a", "b", "another line"} == set(log.read())
    ((_, error, place),) = log.run.tuples("s", "bad")
    assert place == f"{log.path} at 2"
    assert "a record of it failed, and it was truncated" in error
    assert log.run.pending == 0


def followed(path: Path, **options: Any) -> SpoutRun:
    """Follow a log whose records are acked and failed by hand."""
    spout = FileSpout(path, mode="tail", guarantee="at_least_once", list_secs=0.0, **options)
    return run_spout(spout)


def ids_of(run: SpoutRun) -> list[Any]:
    return [emitted.msg_id for emitted in run.emitted if emitted.stream == "default"]


def test_failures_of_what_was_truncated_do_not_count_for_what_is_there_now(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("a\nb\n")
    run = followed(path, retry=Backoff(period=0, retries=1), on_bad="skip")
    for msg_id in ids_of(run):
        run.fail(msg_id)
    path.write_text("c\n")
    run.next(2)
    assert [list(emitted) for emitted in run.emitted] == [["a"], ["b"], ["c"]]
    for _ in range(2):
        run.fail(ids_of(run)[-1]).next()
    assert [list(emitted) for emitted in run.emitted] == [["a"], ["b"], ["c"], ["c"]]
    (error,) = run.errors
    assert "a record failed 2 times, and is given up" in str(error)
    (entry,) = run.state.values()
    assert entry["open"] == 0
    assert not any(entry.get(name) for name in ("failures", "failed", "gone"))


def test_a_failed_record_that_is_gone_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("a\n")
    run = followed(path, on_bad="skip")
    run.ack(*ids_of(run))
    path.write_text("")
    run.next()
    path.write_text("b\n")
    run.next().fail(ids_of(run)[-1])
    (entry,) = run.state.values()
    assert (entry["open"], set(entry["failures"])) == (1, {0})
    path.unlink()
    run.next()
    assert entry["open"] == 0
    assert not any(entry.get(name) for name in ("failures", "failed", "gone"))
    assert run.next().state == {}


def test_all_records_that_are_gone_are_told_of_though_the_disk_goes_meanwhile(
    tmp_path: Path,
) -> None:
    path = tmp_path / "logs" / "app.log"
    path.parent.mkdir()
    path.write_text("a\nb\n")
    run = followed(path, on_bad="stream")
    path.write_text("c\n")
    run.next()
    for msg_id in ids_of(run)[:2]:
        run.fail(msg_id)
    path.parent.rename(tmp_path / "unmounted")
    with pytest.raises(Unavailable, match="its directory is not there"):
        run.next()
    (tmp_path / "unmounted").rename(path.parent)
    run.next()
    places = [emitted[2] for emitted in run.emitted if emitted.stream == "bad"]
    assert places == [f"{path} at 0", f"{path} at 2"]
    (entry,) = run.state.values()
    assert entry["open"] == 1


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("app.log", "app.log"),
        ("app.log.1", "app.log"),
        ("app.log.12.gz", "app.log"),
        ("app.log-20240131", "app.log"),
        ("app.log-20240131-1200.gz", "app.log"),
        ("app.log.20240131T120000", "app.log"),
        ("app-20240131.log", "app.log"),
        ("app-2024-01-31.log", "app.log"),
        ("app.2024-01-31.3.log", "app.log"),
        ("app.1.log.gz", "app.log"),
        ("app.log.2024-01-31", "app.log"),
        ("app.log.1.20240131.bz2", "app.log"),
        ("app-2024", "app-2024"),
        (".1", ".1"),
        ("app-" + "1" * 240 + ".csv", "app.csv"),
        ("app-" + "1" * 240 + "x.csv", "app-" + "1" * 240 + "x.csv"),
    ],
)
def test_a_rotated_log_is_of_the_name_it_was_written_under(name: str, written: str) -> None:
    assert family(f"/logs/{name}") == f"/logs/{written}"


@pytest.mark.parametrize(
    ("name", "dealt"),
    [
        ("app.log.1", "app.log"),
        ("app.log-20240131-1200.gz", "app.log"),
        ("app-20240131.log", "app-20240131.log"),
        ("app-2024-01-31.log", "app-2024-01-31.log"),
        ("app.log.2024-01-31", "app.log.2024-01-31"),
        ("app.log_20240131", "app.log_20240131"),
        ("node.17.log", "node.17.log"),
        (".1", ".1"),
    ],
)
def test_logs_are_dealt_by_the_names_that_positions_were_saved_under(name: str, dealt: str) -> None:
    found = ListedFile(f"/logs/{name}", 1, 0.0, 7, "")
    assert log_key(found) == f"/logs/{dealt}#7"
    assert dealt_name(log_key(found)) == f"/logs/{dealt}"


class FromTasks(Bolt):
    """Notes the tasks that emit."""

    tasks: ClassVar[Counter[int]] = Counter()

    def execute(self, tup: Tuple) -> None:
        FromTasks.tasks[tup.source_task] += 1
        self.ack(tup)


def test_logs_of_many_nodes_are_dealt_over_the_tasks(
    tmp_path: Path, cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FromTasks, "tasks", Counter())
    for number in range(32):
        (tmp_path / f"node.{number}.log").write_text(f"{number}\n")
    log = Log(tmp_path, cluster, "node.*.log", FromTasks(), tasks=4)
    assert sorted(map(int, log.read())) == list(range(32))
    assert len(FromTasks.tasks) == 4
    assert max(FromTasks.tasks.values()) < 20
    log.run.restart()
    assert len(log.read()) == 32


def test_a_log_that_is_copied_and_truncated_begins_anew(
    tmp_path: Path, cluster: TestCluster
) -> None:
    log = Log(tmp_path, cluster)
    log.write("one\ntwo\n")
    assert log.read() == ["one", "two"]
    log.path.write_text("")
    log.write("three\n")
    assert log.read() == ["one", "two", "three"]


# -- event time -----------------------------------------------------------------------------------


def counted_by_time(directory: Path, tasks: int = 1, **options: Any) -> tuple[int, int]:
    """Return how many lines were counted in windows while files are watched; how many were late."""
    spout = FileSpout(str(directory / "*.jsonl"), format="json", fields="ts", **options)
    window = WindowAggregate(
        window=Tumbling(100), time=EventTime("ts", lag=10), aggregates={"n": Count()}
    )
    builder = TopologyBuilder()
    builder.set_spout("logs", spout, tasks)
    builder.set_bolt("w", window).global_grouping("logs")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        run.settle()
        cluster.advance(20)  # files that are read to their end are idle, and tasks without any
        return sum(row[-1] for row in run.tuples("w")), run.stats().components["w"].late


def write_times(path: Path, times: Iterable[int]) -> None:
    path.write_text("".join(f'{{"ts": {ts}}}\n' for ts in times))


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("mode", ["once", "watch", "tail"])
def test_files_of_the_same_hours_are_not_late_for_each_other(
    tmp_path: Path, mode: Any, guarantee: Any, tasks: int
) -> None:
    for name in "abc":
        write_times(tmp_path / f"{name}.jsonl", range(5_000))
    write_times(tmp_path / "empty.jsonl", ())
    write_times(tmp_path / "short.jsonl", range(100))
    counted, late = counted_by_time(tmp_path, tasks, mode=mode, guarantee=guarantee)
    assert late == 0
    assert counted >= 3 * 4_900  # the last window of a watched directory is still open


def test_files_in_order_hold_nothing_back(tmp_path: Path) -> None:
    for day, name in enumerate("abc"):
        write_times(tmp_path / f"{name}.jsonl", range(day * 1_000, (day + 1) * 1_000))
    assert counted_by_time(tmp_path, mode="watch", in_order=True) == (2_900, 0)
    for name in "abc":
        write_times(tmp_path / f"{name}.jsonl", range(5_000))
    _, late = counted_by_time(tmp_path, mode="watch", in_order=True)
    assert late > 1_000


def test_a_value_of_csv_may_be_as_long_as_a_record(tmp_path: Path) -> None:
    text = "x" * 200_000
    (tmp_path / "a.csv").write_text(f"a\n{text}\n")
    run = run_spout(FileSpout(tmp_path / "a.csv", "csv", fields="a"))
    assert run.next(3).emitted == [[text]]
