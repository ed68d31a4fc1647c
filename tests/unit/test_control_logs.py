"""What tasks log and print: kept with their task, read back in order, followed, filtered."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from topo import BasicBolt, Spout, Topology, TopologyBuilder, Tuple, UncaughtError
from topo.control.logs import LogReader, Wanted
from topo.engine.inline import InlineRun
from topo.engine.spark.stages import StageError, with_lines
from topo.task import logs
from topo.task.logs import LOG_DIR, ReceivedLines, collect_logs, collected_lines, keep_logs

log = logging.getLogger("wordcount")


class Numbers(Spout):
    outputs = ("n",)

    def next_tuple(self) -> None:
        self.emit([7])


class Talks(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        log.info("counted [%s]", tup.n)
        print("half ", end="")
        print("a line")
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            log.exception("this failed")


def talking() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("talks", Talks()).shuffle_grouping("numbers")
    return builder.create_topology()


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(LOG_DIR, str(tmp_path))
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(logs, "_collecting", None)
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield tmp_path
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


def write(path: Path, *lines: tuple[str, str, str, int]) -> None:
    with path.open("a") as file:
        for time, level, component, task in lines:
            line = {"time": time, "level": level, "component": component, "task": task}
            file.write(json.dumps({**line, "host": "h", "logger": "l", "message": time}) + "\n")


def test_what_a_bolt_logs_and_prints_bears_its_task(directory: Path) -> None:
    keep_logs("slot-0")
    InlineRun("t", talking(), None, now=lambda: 0.0).step()
    seen = list(LogReader(directory, Wanted()).read())
    assert [(s["level"], s["component"], s["task"], s["logger"]) for s in seen] == [
        ("INFO", "talks", 2, "wordcount"),
        ("INFO", "talks", 2, "stdout"),
        ("ERROR", "talks", 2, "wordcount"),
    ]
    assert [s["message"].splitlines()[0] for s in seen] == [
        "counted [7]",
        "half a line",
        "this failed",
    ]
    assert seen[2]["message"].endswith("ZeroDivisionError: division by zero")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", seen[0]["time"])


def test_without_a_directory_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOG_DIR, raising=False)
    before = list(logging.getLogger().handlers), sys.stdout
    keep_logs("slot-0")
    assert (list(logging.getLogger().handlers), sys.stdout) == before


def test_a_file_does_not_grow_without_end(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_MOST_BYTES", 1000)
    keep_logs("slot-0")
    reader = LogReader(directory, Wanted())
    seen = []
    for number in range(30):
        log.info("%d", number)
        seen += [line["message"] for line in reader.read()]
    assert seen == [str(number) for number in range(30)]
    assert {path.name for path in directory.iterdir()} == {"slot-0.jsonl", "slot-0.jsonl.1"}
    assert all(path.stat().st_size <= 1000 for path in directory.iterdir())


def test_lines_of_a_cluster_travel_to_the_drivers_files(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collect_logs(2000)
    InlineRun("t", talking(), None, now=lambda: 0.0).step()
    taken = collected_lines()
    assert collected_lines() == []
    assert "half a line" in capsys.readouterr().out  # Spark's own log of the executor has it, too
    received = ReceivedLines()
    received.write("slot-1", taken[2:])
    received.write("slot-1", taken[:2])
    received.write("slot-0", [])
    received.close()
    assert [path.name for path in directory.iterdir()] == ["slot-1.jsonl"]
    seen = list(LogReader(directory, Wanted(component="talks")).read())
    assert sorted(line["logger"] for line in seen) == ["stdout", "wordcount", "wordcount"]


@pytest.mark.usefixtures("directory")
def test_a_flood_of_lines_is_cut_off_and_counted() -> None:
    collect_logs(2000)
    log.info("x" * 9000)
    assert collected_lines()[-1]["message"] == "1 line dropped: too much was logged in one batch"
    for number in range(100):
        log.info("%d", number)
    *kept, last = collected_lines()
    assert [line["message"] for line in kept] == [str(number) for number in range(len(kept))]
    assert last["message"].startswith(f"{100 - len(kept)} lines dropped")
    log.info("and on")
    assert [line["message"] for line in collected_lines()] == ["and on"]


@pytest.mark.usefixtures("directory")
def test_what_was_logged_before_an_error_travels_with_it() -> None:
    collect_logs(2000)
    log.info("about to fail")
    raised = UncaughtError("it broke", component="b", task=3, user_traceback="Traceback: ...")
    found = StageError.found_in(str(StageError.of(with_lines(raised))))
    assert found is not None
    assert [line["message"] for line in found.__dict__["lines"]] == ["about to fail"]
    again = StageError.found_in(str(StageError.of(with_lines(raised))))  # Spark's next try
    assert again is not None
    assert again.__dict__["lines"] == found.__dict__["lines"]


def test_lines_of_all_processes_come_in_the_order_of_time(tmp_path: Path) -> None:
    write(tmp_path / "slot-0.jsonl", ("1", "INFO", "a", 1), ("4", "INFO", "a", 1))
    write(tmp_path / "slot-1.jsonl", ("2", "INFO", "b", 2), ("3", "INFO", "b", 2))
    reader = LogReader(tmp_path, Wanted())
    assert [line["time"] for line in reader.last(3)] == ["2", "3", "4"]
    write(tmp_path / "slot-1.jsonl", ("5", "INFO", "b", 2))
    with (tmp_path / "slot-1.jsonl").open("a") as file:
        file.write('{"time": "6"')  # being written
    assert [line["time"] for line in reader.read()] == ["5"]


@pytest.mark.parametrize(
    ("wanted", "times"),
    [
        (Wanted(), ["2", "3", "4"]),
        (Wanted(level="DEBUG"), ["1", "2", "3", "4"]),
        (Wanted(level="WARNING"), ["4"]),
        (Wanted(component="b"), ["3"]),
        (Wanted(task=1), ["2", "4"]),
        (Wanted(since="3"), ["3", "4"]),
        (Wanted(pattern=re.compile("[24]")), ["2", "4"]),
    ],
)
def test_which_lines(tmp_path: Path, wanted: Wanted, times: list[str]) -> None:
    write(
        tmp_path / "slot-0.jsonl",
        ("1", "DEBUG", "a", 1),
        ("2", "INFO", "a", 1),
        ("3", "INFO", "b", 2),
        ("4", "ERROR", "a", 1),
    )
    assert [line["time"] for line in LogReader(tmp_path, wanted).read()] == times
