"""Log records and prints of tasks: stored with their task, read in order, followed, filtered."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import click
import pytest

from topo import BasicBolt, Spout, Topology, TopologyBuilder, Tuple, UncaughtError
from topo.engine.inline.run import InlineRun
from topo.engine.spark.worker.stage_errors import StageError
from topo.engine.spark.worker.stages import with_lines
from topo.logs import capture as logs
from topo.logs.capture import LOG_DIR, ReceivedLines, collect_logs, collected_lines, keep_logs
from topo.logs.reader import LogReader, Wanted
from topo.logs.search import InvalidPattern, Search, SearchTooSlow

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


@contextmanager
def no_others() -> Iterator[None]:
    """Without pytest's own handlers, which raise what they cannot format."""
    root = logging.getLogger()
    others, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers += others


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


def test_what_is_printed_leaves_a_process_that_is_killed() -> None:
    """Without PYTHONUNBUFFERED, as users are, and into a pipe, as scripts read it."""
    code = (
        "import os, signal; from topo.logs.capture import keep_logs; keep_logs('slot-0'); "
        "print('a', 'line'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    without = ("PYTHONUNBUFFERED", LOG_DIR)
    environ = {key: value for key, value in os.environ.items() if key not in without}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True)
    assert done.stdout == b"a line\n"


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
    found = StageError.find_in(str(StageError.of(with_lines(raised), "token")), "token")
    assert found is not None
    assert [line["message"] for line in found.__dict__["lines"]] == ["about to fail"]
    again = StageError.find_in(
        str(StageError.of(with_lines(raised), "token")), "token"
    )  # Spark's next try
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


def messages(*texts: str) -> list[dict[str, Any]]:
    return [{"message": text} for text in texts]


def test_a_search_that_would_take_years_is_ended() -> None:
    with closing(Search("(a+)+$", secs=0.2)) as search:
        assert list(search.matching(messages("aaa", "b"))) == messages("aaa")
        with pytest.raises(SearchTooSlow, match=r"'\(a\+\)\+\$' took more than 0.2 s"):
            list(search.matching(messages("aaa", "a" * 40 + "!")))
        assert list(search.matching(messages("aa", "b"))) == messages("aa")


def test_a_search_may_take_its_time_in_all_of_a_reading() -> None:
    lines = messages(*["a" * 18 + "!"] * 20_000)
    with closing(Search("(a+)+$", secs=0.5)) as search, pytest.raises(SearchTooSlow):
        list(search.matching(lines))


def test_only_so_many_search_at_once() -> None:
    searches = [Search("a") for _ in range(9)]
    try:
        for search in searches[:8]:
            assert len(list(search.matching(messages("a", "b")))) == 1
        with pytest.raises(SearchTooSlow, match="8 searches are going on"):
            list(searches[8].matching(messages("a")))
        searches[0].close()
        assert len(list(searches[8].matching(messages("a")))) == 1
    finally:
        for search in searches:
            search.close()


@pytest.mark.parametrize("pattern", ["(", "a" + "{1,99999999999999}", "(" * 5000])
def test_what_is_no_pattern_is_refused_at_once(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Search(pattern)


@pytest.mark.parametrize(
    ("wanted", "times"),
    [
        (Wanted(), ["2", "3", "4"]),
        (Wanted(level="DEBUG"), ["1", "2", "3", "4"]),
        (Wanted(level="WARNING"), ["4"]),
        (Wanted(component="b"), ["3"]),
        (Wanted(task=1), ["2", "4"]),
        (Wanted(since="3"), ["3", "4"]),
        (Wanted(search=Search("[24]")), ["2", "4"]),
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
    with closing(LogReader(tmp_path, wanted)) as reader:
        assert [line["time"] for line in reader.read()] == times


class Unruly:
    def __repr__(self) -> str:
        raise LookupError("no repr")


class Unbound:
    """As what stands in for another object that is not there yet."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise LookupError("no class")

    def logs(self) -> None:
        log.info("from within")


def test_what_cannot_be_formatted_is_kept_with_its_place(directory: Path) -> None:
    with no_others():
        keep_logs("slot-0")
        log.info("%d rows", "three")
        log.warning("%s", Unruly())
        log.info("one", "two")
        Unbound().logs()
    seen = list(LogReader(directory, Wanted()).read())
    assert [line["level"] for line in seen] == ["INFO", "WARNING", "INFO", "INFO"]
    first, second, third, last = (line["message"] for line in seen)
    assert re.fullmatch(
        r".*test_control_logs\.py:\d+ logged '%d rows' with \('three',\), which is no message: "
        r"TypeError\('%d format: .*'\)",
        first,
    )
    assert "logged '%s' with (<Unruly instance at 0x" in second
    assert "LookupError('no repr')" in second
    assert "'one' with ('two',)" in third
    assert last == "from within"


def test_bytes_that_are_no_text_are_printed(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A report with such a record cannot travel between the processes of a run with -n.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    name = os.fsdecode(b"caf\xe9")
    keep_logs("slot-0")
    print(name)
    logging.getLogger(name).info("%s", name)
    seen = list(LogReader(directory, Wanted()).read())
    assert [line["message"] for line in seen] == [r"caf\udce9"] * 2
    assert capsys.readouterr().out == ""


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        self.write("")


@pytest.mark.usefixtures("directory")
def test_streams_that_are_broken_do_not_stop_what_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = io.StringIO()
    gone.close()
    monkeypatch.setattr(sys, "stdout", gone)
    monkeypatch.setattr(sys, "stderr", Full())
    with no_others():
        collect_logs(2000)
        print("counted", flush=True)
        print("badly", file=sys.stderr, flush=True)
        log.warning("%d rows", "three")
    assert [line["level"] for line in collected_lines()] == ["INFO", "WARNING", "WARNING"]


@pytest.mark.usefixtures("directory")
def test_what_a_stream_cannot_spell_is_spelt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(sink, encoding="ascii"))
    collect_logs(2000)
    print("café", flush=True)
    assert sink.getvalue() == b"caf\\xe9\n"
    assert [line["message"] for line in collected_lines()] == ["café"]


def test_a_line_that_cannot_be_kept_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], directory: Path
) -> None:
    def fails(line: object) -> None:
        raise LookupError("a mistake of topo's")

    keep_logs("slot-0")
    monkeypatch.setattr(sys, "__stderr__", before := io.StringIO())
    monkeypatch.setattr(logs.JsonLines, "keep", lambda handler, line: fails(line))
    for number in range(3):
        log.info("%d", number)
    assert before.getvalue().count("LookupError: a mistake of topo's") == 1
    assert capsys.readouterr().err == ""
    assert not list(directory.iterdir())


def test_a_handler_that_prints_what_is_logged_comes_to_an_end(directory: Path) -> None:
    keep_logs("slot-0")
    printing = logging.StreamHandler()
    logging.getLogger().addHandler(printing)
    log.info("counted")
    print("a line")
    seen = [line["message"] for line in LogReader(directory, Wanted()).read()]
    assert set(seen) == {"counted", "a line"}
    assert len(seen) <= 4


def test_of_a_progress_bar_the_last_state_is_kept(directory: Path) -> None:
    keep_logs("slot-0")
    for number in range(20_000):
        sys.stdout.write(f"\r{number} rows of many" + " and more" * 20)
    sys.stdout.write("\rdone")
    sys.stdout.write("\n")
    for text in ("10 %\r", "100 %", "\r", "\n", "of Windows\r\n", "a\rb\rc\nd", "\n\n"):
        sys.stdout.write(text)
    seen = [line["message"] for line in LogReader(directory, Wanted()).read()]
    assert seen == ["done", "100 %", "of Windows", "c", "d", ""]


def test_of_a_line_without_an_end_its_beginning_is_kept(directory: Path) -> None:
    keep_logs("slot-0")
    for _ in range(1000):
        sys.stdout.write("x" * 1000)
    print()
    print("short")
    seen = [line["message"] for line in LogReader(directory, Wanted()).read()]
    assert seen == ["x" * 8000 + "... (992,000 characters more)", "short"]


def test_logging_goes_on_when_a_full_disk_has_room_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    keep_logs("slot-0")
    monkeypatch.setattr(logs, "_MOST_BYTES", 400)
    for number in range(12):
        with monkeypatch.context() as disk:
            if number in (0, 3, 4, 5, 6):
                disk.setattr(logs, "open", full, raising=False)
            log.info("%d", number)
    seen = [line["message"] for line in LogReader(directory, Wanted()).read()]
    assert {"10", "11"} <= set(seen)
    assert {path.name for path in directory.iterdir()} == {"slot-0.jsonl", "slot-0.jsonl.1"}


def test_half_a_line_of_a_full_disk_hides_no_other(tmp_path: Path) -> None:
    write(tmp_path / "slot-0.jsonl", ("1", "INFO", "a", 1))
    whole = (tmp_path / "slot-0.jsonl").read_bytes()
    with (tmp_path / "slot-0.jsonl").open("ab") as file:
        file.write(whole[: len(whole) // 2] + b"\n" + b"[]\n{}\n")
        file.write(whole.replace(b'"1"', b'"2"'))
    reader = LogReader(tmp_path, Wanted())
    assert [line["time"] for line in reader.read()] == ["1", "2"]


def test_after_a_short_write_a_line_begins_anew(tmp_path: Path) -> None:
    lines = logs.LineFile(tmp_path / "slot-0.jsonl")
    line = logs.line_of(logging.makeLogRecord({"msg": "hello", "levelname": "INFO"}))
    lines.write(line)
    real: Any = lines._file

    class Full(io.RawIOBase):
        def write(self, data: Any) -> int:
            return int(real.write(data[: len(data) // 2]))

    lines._file = cast(Any, Full())
    lines.write(line)
    lines._file = real
    lines.write(line)
    lines.close()
    assert len(list(LogReader(tmp_path, Wanted()).read())) == 2


@pytest.mark.usefixtures("directory")
def test_printing_has_all_that_a_standard_stream_has() -> None:
    keep_logs("slot-0")
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    assert (sys.stdout.encoding.lower(), sys.stdout.errors) == ("utf-8", "backslashreplace")
    assert (sys.stdout.fileno(), sys.stderr.fileno()) == (1, 2)
    sys.stdout.close()
    print("goes on")
    with io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", write_through=True) as wrapped:
        wrapped.write("wrapped\n")


def test_bytes_are_lines_as_well(directory: Path) -> None:
    keep_logs("slot-0")
    for part in (b"caf\xc3", b"\xa9 \xff", bytearray(b"!\nha"), memoryview(b"lf\n")):
        assert sys.stdout.buffer.write(part) == len(part)
    click.echo(b"clicked")
    click.echo("café")
    seen = [line["message"] for line in LogReader(directory, Wanted()).read()]
    assert seen == ["café \ufffd!", "half", "clicked", "café"]
    subprocess.run(["true"], stdout=sys.stdout, stderr=sys.stderr, check=True)
