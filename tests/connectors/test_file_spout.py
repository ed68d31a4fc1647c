"""FileSpout: every record once, from wherever it was when everything died."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from topo import BasicBolt, Bolt, ComponentError, TopologyBuilder, Tuple
from topo.connectors.files import FileSpout
from topo.testing import TestCluster

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


def write(path: Path, form: str) -> Path:
    """Write ROWS in a format."""
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=7)
    elif form == "arrow":
        table = pa.Table.from_pylist(ROWS)
        with pa.ipc.new_file(str(path), table.schema) as sink:
            sink.write_table(table, max_chunksize=7)
    elif form == "csv":
        path.write_text("user,count\n" + "".join(f"{r['user']},{r['count']}\n" for r in ROWS))
    else:
        path.write_text("\n".join(json.dumps(row) for row in ROWS))  # the last line has no end
    return path


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "arrow"])
@pytest.mark.parametrize("restarts", [False, True])
def test_every_record_once_though_every_instance_is_rebuilt(
    tmp_path: Path, form: Any, restarts: bool
) -> None:
    path = write(tmp_path / f"rows.{form}", form)
    spout = FileSpout(path, form, fields=("user", "count"), rows_per_call=4)
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
    assert [row[0] for row in emitted(FileSpout(tmp_path / "a"))] == ["first", long, "last"]


def test_quoted_csv_values_run_over_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('name,note\n"A, B","two\nlines ""quoted"""\nC,\n')
    spout = FileSpout(tmp_path / "a.csv", "csv", fields=("note", "name"), rows_per_call=1)
    assert emitted(spout) == [['two\nlines "quoted"', "A, B"], ["", "C"]]


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


class Log:
    """A log file under a spout that follows it."""

    def __init__(self, directory: Path, cluster: TestCluster, pattern: str = "app.log") -> None:
        self.path = directory / "app.log"
        self.path.touch()
        self.cluster = cluster
        self.run = started(cluster, FileSpout(directory / pattern, mode="tail"), tasks=3)

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


def test_a_log_that_is_copied_and_truncated_begins_anew(
    tmp_path: Path, cluster: TestCluster
) -> None:
    log = Log(tmp_path, cluster)
    log.write("one\ntwo\n")
    assert log.read() == ["one", "two"]
    log.path.write_text("")
    log.write("three\n")
    assert log.read() == ["one", "two", "three"]
