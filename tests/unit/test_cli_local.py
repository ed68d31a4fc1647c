"""`topo local` on the inline engine, and `topo quickstart`, whose project it runs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal import read_all
from topo.cli.foreground import TupleOutput
from topo.cli.quickstart import FILES
from topo.cli.root import run

CODE = """
from topo import BasicBolt, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = ("n",)
    def __init__(self): self.n = 0
    def next_tuple(self):
        self.n += 1
        self.emit([self.n], msg_id=self.n)

class Sink(BasicBolt):
    outputs = {"default": ("n",), "odd": ("n",)}
    def execute(self, tup):
        self.emit([tup.n])
        if tup.n % 2:
            self.emit([{tup.n}], stream="odd")

class Broken(BasicBolt):
    def execute(self, tup):
        return {}[tup.n]

def wired(sink):
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("sink", sink).shuffle_grouping("numbers")
    return builder, {"topology.max.spout.pending": 100}

def topology(): return wired(Sink())
def broken(): return wired(Broken())
"""

Captured = pytest.CaptureFixture[str]
TOPO = [sys.executable, "-m", "topo.cli"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "endless.py").write_text(CODE)
    yield tmp_path
    for name in ("endless", "wordcount"):
        sys.modules.pop(name, None)


def test_a_local_run_says_that_it_does_not_scale(capsys: Captured) -> None:
    argv = ["local", "endless.py", "--engine", "inline", "--show", "sink", "--limit", "3"]
    assert run([*argv, "--workers", "2..4"]) == 0
    warning = "warning: topo local keeps its 2 slots: what topo submit runs scales by itself\n"
    assert warning in capsys.readouterr().err


def test_quickstart_writes_a_project_that_passes_its_test_and_runs(
    capsys: Captured, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "wordcount", raising=False)  # another test's
    assert run(["quickstart", "words"]) == 0
    assert capsys.readouterr().out == (
        f"wrote ./words/{{{','.join(FILES)}}}\n"
        "  cd words; pytest; topo local --engine inline wordcount.py --show count --limit 10\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command += ["-p", "topo._pytest"]  # the import of others' takes longer than the tests
    tested = subprocess.run(command, cwd=place / "words", capture_output=True, text=True, env=alone)
    assert tested.returncode == 0, tested.stdout
    assert run(["local", "--engine", "inline", "words/wordcount.py", "--", "2"]) == 0
    assert "word-count: completed; 8 acked, 0 failed, 0 pending" in capsys.readouterr().err


def test_quickstart_overwrites_only_by_force(capsys: Captured, place: Path) -> None:
    assert run(["quickstart", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"dir": ".", "files": list(FILES)}
    (place / "topo.toml").write_text("mine")
    assert run(["quickstart"]) == 2
    assert (place / "topo.toml").read_text() == "mine"
    assert run(["quickstart", "--force"]) == 0
    assert (place / "topo.toml").read_text() != "mine"


def test_shown_tuples_are_json_lines_and_the_limit_stops(capsys: Captured) -> None:
    argv = ["local", "endless.py", "--engine", "inline", "--show", "sink", "--limit", "3", "-q"]
    assert run([*argv, "--json"]) == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert lines[:3] == [
        {"component": "sink", "stream": "default", "task": 2, "values": [n]} for n in (1, 2, 3)
    ]
    assert len(lines) == 4
    assert {key: lines[3][key] for key in ("name", "status", "reason", "failed")} == {
        "name": "endless",
        "status": "KILLED",
        "reason": "limit",
        "failed": 0,
    }
    assert set(lines[3]) >= {"acked", "pending", "elapsed_secs"}
    assert said.err == ""


def test_another_stream_with_values_that_json_lacks(capsys: Captured) -> None:
    argv = ["local", "endless.py", "--engine", "inline", "--show", "sink:odd", "--limit", "2"]
    assert run(argv) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["values"] for line in lines] == [["{1}"], ["{3}"]]


def test_it_stops_after_the_time(capsys: Captured) -> None:
    assert run(["local", "endless.py", "--engine", "inline", "-t", "0.2", "-n", "other"]) == 0
    assert "other: stopped (time); " in capsys.readouterr().err


def test_inactive_it_does_nothing(capsys: Captured) -> None:
    argv = ["local", "endless.py", "--engine", "inline", "-t", "0.1", "--inactive", "--json"]
    assert run(argv) == 0
    assert json.loads(capsys.readouterr().out)["acked"] == 0


def test_an_error_in_the_users_code_comes_first_and_without_topos_frames(
    capsys: Captured,
) -> None:
    assert run(["local", "endless.py:broken", "--engine", "inline"]) == 1
    said = capsys.readouterr().err
    at = said.index("Traceback (most recent call last)")
    assert "return {}[tup.n]" in said[at:]
    assert "error: bolt 'sink' task 2, tuple [1] of 'numbers': KeyError: 1\n" in said
    assert "/topo/" not in said[at:].replace(str(Path.cwd()), "")


def test_a_checkpoint_that_the_inline_engine_does_not_use_is_told(capsys: Captured) -> None:
    conf = ["-c", "topology.checkpoint.dir=state"]
    assert run(["local", "endless.py", "--engine", "inline", "-t", "0", *conf]) == 0
    assert "warning: the inline engine keeps no state: topology." in capsys.readouterr().err
    assert not Path("state").exists()


def test_mistakes(capsys: Captured) -> None:
    base = ["local", "endless.py", "--engine", "inline"]
    for argv, message in [
        (["--limit", "3"], "--limit counts shown tuples"),
        (["--show", "sink:even"], "'sink' declares no stream 'even'"),
        (["--checkpoint", "x"], "the inline engine keeps no state"),
    ]:
        assert run([*base, *argv]) == 2
        assert message in capsys.readouterr().err


def start(*argv: str, stderr: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*TOPO, *argv], stdout=subprocess.PIPE, stderr=stderr)


def test_ctrl_c_finishes_what_is_in_flight(place: Path) -> None:
    argv = ("local", "endless.py", "--engine", "inline", "--json", "--show", "sink")
    with start(*argv, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()  # it runs
        process.send_signal(2)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130
    assert b"stopping: what is in flight is finished first" in err
    last = json.loads(out.splitlines()[-1])
    assert (last["reason"], last["pending"]) == ("interrupted", 0)


def test_streams_that_the_caller_has_closed_end_nothing(place: Path) -> None:
    command = shlex.join([*TOPO, "local", "endless.py", "--engine", "inline", "--show", "sink"])
    for closed, lines in ((">&-", 0), ("2>&-", 2), ("<&- >&- 2>&-", 0)):
        shell = f"exec {command} --limit 2 {closed}"
        ended = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=60, check=False)
        assert (ended.returncode, b"error" in ended.stderr) == (0, False)
        assert len(ended.stdout.splitlines()) == lines


CLOSES = """
class Closes(Sink):
    def cleanup(self):
        open("closed", "w").close()

def closes(): return wired(Closes())
"""


def test_a_terminal_that_is_closed_ends_a_run_in_order(place: Path) -> None:
    (place / "endless.py").write_text(CODE + CLOSES)
    argv = ("local", "endless.py:closes", "--engine", "inline", "--show", "sink")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what ignores it has its children do so
    try:
        process = start(*argv, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGHUP, before)
    with process:
        assert process.stdout is not None
        process.stdout.readline()  # it runs
        for _ in range(2):  # the kernel and the shell tell of it
            process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert (place / "closed").exists()


def test_ctrl_c_while_a_command_is_loaded_has_no_traceback(place: Path) -> None:
    (place / "click.py").write_text("import os; os.kill(os.getpid(), 2)")
    with start("list", stderr=subprocess.PIPE) as process:
        assert process.communicate(timeout=60) == (b"", b"")
        assert process.returncode == 130


def test_a_reader_that_goes_away(place: Path) -> None:
    argv = ("local", "endless.py", "--engine", "inline", "--show", "sink", "-q")
    with start(*argv, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_on_a_terminal_there_is_a_live_table(place: Path) -> None:
    ours, theirs = pty.openpty()
    with start("local", "endless.py", "--engine", "inline", "-t", "0.5", stderr=theirs) as process:
        os.close(theirs)
        seen = read_all(ours)
        assert process.wait(60) == 0
    assert "endless ACTIVE" in seen
    for column in ("COMPONENT", "EMITTED", "CAPACITY", "numbers", "sink"):
        assert column in seen


LOGGING = """
import logging
from topo import BasicBolt, Spout, TopologyBuilder

log = logging.getLogger("mine")

class Numbers(Spout):
    outputs = ("n",)
    def __init__(self): self.left = 2
    def next_tuple(self):
        if self.left:
            self.left -= 1
            log.debug("asked")
            self.emit([self.left], msg_id=self.left)
    def is_exhausted(self): return not self.left

class Sink(BasicBolt):
    def execute(self, tup): log.info("got %s", tup.n)

builder = TopologyBuilder()
builder.set_spout("numbers", Numbers())
builder.set_bolt("sink", Sink()).shuffle_grouping("numbers")
topology = builder.create_topology()
"""


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], ["INFO sink[2] mine: got 0", "INFO sink[2] mine: got 1"]),
        (["-q"], []),
        (
            ["-c", "topology.log.level=DEBUG"],
            ["DEBUG numbers[1] mine: asked"] * 2
            + ["INFO sink[2] mine: got 0", "INFO sink[2] mine: got 1"],
        ),
    ],
)
def test_log_records_of_user_code_are_shown(
    options: list[str], shown: list[str], capsys: Captured, place: Path
) -> None:
    (place / "chatty.py").write_text(LOGGING)
    before = logging.getLogger().handlers[:]
    assert run(["local", "--engine", "inline", *options, "chatty.py"]) == 0
    sys.modules.pop("chatty", None)
    lines = capsys.readouterr().err.splitlines()
    assert sorted(line for line in lines if " mine: " in line) == shown
    assert logging.getLogger().handlers == before


def shown(limit: int | None = None) -> TupleOutput:
    from tests.conformance.doubles import Total
    from tests.wiring import line
    from topo.testing import FeederSpout

    return TupleOutput(["s"], line(FeederSpout(["x"]), Total()), limit)


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no")


def test_every_row_is_shown_whatever_is_in_it(capsys: Captured) -> None:
    printing = shown()
    circle: list[object] = []
    circle.append(circle)
    odd = [{(1, 2): 3}, circle, "caf\udce9", Unshowable(), b"\xff", float("nan"), 7]
    printing.emitted("s", "default", 1, [[value] for value in odd])
    printing.finish()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["values"] for line in lines] == [
        ["{(1, 2): 3}"],
        ["[[...]]"],
        ["caf\udce9"],
        ["<Unshowable, whose repr raised ValueError>"],
        ["b'\\xff'"],
        [pytest.approx(float("nan"), nan_ok=True)],
        [7],
    ]


def test_a_reader_that_stops_reading_holds_nobody_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = threading.Event(), threading.Event()

    def write(line: str) -> None:
        writing.set()
        reading.wait()

    monkeypatch.setattr("topo.cli.foreground.click.echo", write)
    monkeypatch.setattr("topo.cli.foreground._ROWS_KEPT", 2)
    monkeypatch.setattr("topo.cli.foreground._LAST_WRITE_SECS", 0.01)
    printing = shown()
    emitting = threading.Thread(
        target=printing.emitted, args=("s", "default", 1, [[n] for n in range(100)])
    )
    emitting.start()
    finishing = threading.Thread(target=printing.finish)
    finishing.start()
    assert writing.wait(60)
    assert emitting.is_alive()
    printing.give_up()
    emitting.join(60)
    finishing.join(60)
    assert not emitting.is_alive()
    assert not finishing.is_alive()
    assert printing.is_stuck
    reading.set()


BLOCKS = """
import time
from topo import BasicBolt, Spout, TopologyBuilder

class Source(Spout):
    outputs = ("n",)
    def next_tuple(self):
        print("in", flush=True)
        time.sleep(10_000)

class Sink(BasicBolt):
    def execute(self, tup): ...

def topology():
    builder = TopologyBuilder()
    builder.set_spout("s", Source())
    builder.set_bolt("b", Sink()).shuffle_grouping("s")
    return builder
"""


def test_ctrl_c_ends_a_topology_whose_code_blocks(place: Path) -> None:
    (place / "blocks.py").write_text(BLOCKS)
    command = [*TOPO, "local", "--engine", "inline", "blocks.py"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "in\n"
        process.send_signal(signal.SIGINT)
        assert any("stopping: " in line for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


ODD = """
import os, re, sys, threading, time
from topo import BasicBolt, Spout, TopologyBuilder

class Source(Spout):
    outputs = ("n",)
    def __init__(self):
        self.left = 3
    def next_tuple(self):
        if self.left:
            self.left -= 1
            self.emit([self.left], msg_id=self.left)
    def is_exhausted(self):
        return not self.left

class Sink(BasicBolt):
    def execute(self, tup):
        print("in", flush=True)
        {code}

def topology():
    builder = TopologyBuilder()
    builder.set_spout("s", Source())
    builder.set_bolt("b", Sink()).shuffle_grouping("s")
    return builder
"""
KEEPS = {
    "the interpreter": ("re.match('(a+)+$', 'a' * 80 + 'b')", 3, -signal.SIGKILL),
    "a lock of standard input": ("sys.stdin.read()", 2, 130),
    "all threads": ("threading.Thread(target=time.sleep, args=(10_000,)).start(); time.sleep(9999)",
                    2, 130),
}  # fmt: skip


@pytest.mark.parametrize(("code", "times", "exit_code"), KEEPS.values(), ids=KEEPS)
def test_ctrl_c_ends_code_that_keeps_what_others_need(
    place: Path, code: str, times: int, exit_code: int
) -> None:
    (place / "keeps.py").write_text(ODD.format(code=code))
    command = [*TOPO, "local", "--engine", "inline", "keeps.py"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        for _ in range(times):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.send_signal(signal.SIGINT)
                process.wait(0.2)
        assert process.wait(60) == exit_code
        assert process.stderr is not None
        said = process.stderr.read()
    assert "Fatal Python error" not in said
    assert ("does not let go of the interpreter" in said) == (exit_code < 0)


LEAVES = {
    "an exit": ("raise SystemExit(3)", 1, "tuple [2] of 's': SystemExit: 3"),
    "an interrupt": ("raise KeyboardInterrupt", 1, "tuple [2] of 's': KeyboardInterrupt"),
    "an iterator's end": ("next(iter(()))", 1, "tuple [2] of 's': StopIteration"),
    "an empty environment": ("os.environ.clear()", 0, "completed; 3 acked"),
    "no import path": ("sys.path.clear()", 0, "completed; 3 acked"),
    "another directory": ("os.chdir('/')", 0, "completed; 3 acked"),
    "no rights for new files": ("os.umask(0o777)", 0, "completed; 3 acked"),
    "no standard input": ("os.close(0) if tup[0] == 0 else None", 0, "completed; 3 acked"),
    "a child": ("os._exit(0) if os.fork() == 0 else None", 0, "completed; 3 acked"),
    "a clock that stands": ("time.time = time.monotonic = lambda: 0.0", 0, "completed; 3 acked"),
    "a command for a terminal": ("raise ValueError('\\x1b]0;x\\x07')", 1, r"\x1b]0;x\x07"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "exit_code", "said"), LEAVES.values(), ids=LEAVES)
def test_whatever_code_does_to_its_process_the_run_ends_with_a_status(
    place: Path, code: str, exit_code: int, said: str
) -> None:
    (place / "odd.py").write_text(ODD.format(code=code))
    command = [*TOPO, "local", "--engine", "inline", "odd.py"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert said in ran.stderr
    assert ran.returncode == exit_code
    assert "\x1b" not in ran.stderr
