"""`topo run` on the inline engine: what a supervisor sees of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CODE = """
import time
from topo import BasicBolt, FromList, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = ("n",)
    def __init__(self): self.n = 0
    def next_tuple(self):
        self.n += 1
        self.emit([self.n], msg_id=self.n)

class Sleepy(Numbers):
    def next_tuple(self): time.sleep(0.1)

class Sink(BasicBolt):
    def execute(self, tup): pass

class Broken(BasicBolt):
    def execute(self, tup): return {}[tup.n]

def wired(spout, sink):
    builder = TopologyBuilder()
    builder.set_spout("numbers", spout)
    builder.set_bolt("sink", sink).shuffle_grouping("numbers")
    return builder, {"topology.max.spout.pending": 100}

def topology(): return wired(Numbers(), Sink())
def sleepy(): return wired(Sleepy(), Sink())
def few(): return wired(FromList([[1], [2]], fields=("n",)), Sink())
def broken(): return wired(Numbers(), Broken())
"""
INLINE = """
import sys
import topo.cli.run
topo.cli.run.ENGINE = "inline"
from topo.cli import main
main()
"""


@contextmanager
def started(place: Path, *argv: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    (place / "endless.py").write_text(CODE)
    command = [sys.executable, "-c", INLINE, "run", *argv]
    process = subprocess.Popen(
        command, cwd=place, stderr=subprocess.PIPE, text=True, env={**os.environ, **environ}
    )
    with process:
        try:
            yield process
        finally:
            process.kill()  # of one that has ended nothing is left to kill


def lines_until(process: subprocess.Popen[str], message: str) -> list[dict[str, Any]]:
    """Return the lines of the log up to the one that begins with this message."""
    lines = []
    assert process.stderr is not None
    for text in process.stderr:
        lines.append(json.loads(text))
        if lines[-1].get("message", "").startswith(message):
            return lines
    raise AssertionError(f"no {message!r} in {lines}")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: int, code: int) -> None:
    with started(tmp_path, "endless.py") as process:
        lines = lines_until(process, "ACTIVE")
        process.send_signal(number)
        last = lines_until(process, "endless: stopped by")[-1]
        assert process.wait(60) == code
    assert lines[0]["message"].startswith("no checkpoint: each start begins without")
    assert {line["logger"] for line in lines} == {"topo.run"}
    assert last["message"].startswith(f"endless: stopped by {signal.Signals(number).name}; ")
    assert last["message"].endswith(" acked, 0 failed, 0 pending")


def test_the_end_of_its_spouts_is_its_end(tmp_path: Path) -> None:
    with started(tmp_path, "endless.py:few", "-n", "few") as process:
        assert lines_until(process, "few: completed; 2 acked, 0 failed, 0 pending")
        assert process.wait(60) == 0


def test_a_failure_is_a_line_and_an_exit_code(tmp_path: Path) -> None:
    with started(tmp_path, "endless.py:broken") as process:
        assert process.stderr is not None
        *_, logged, error = [json.loads(line) for line in process.stderr]
        assert process.wait(60) == 1
    assert logged["level"] == "ERROR"
    assert "KeyError: 1" in logged["message"]
    assert error["error"]["code"] == "uncaught"


def test_text_is_for_people(tmp_path: Path) -> None:
    with started(tmp_path, "endless.py:few", "--log-format", "text") as process:
        assert process.stderr is not None
        text = process.stderr.read()
        assert process.wait(60) == 0
    assert "INFO topo.run: endless: completed; 2 acked" in text


def test_warnings_of_the_topology_are_lines_of_the_log(tmp_path: Path) -> None:
    with started(tmp_path, "endless.py:sleepy") as process:
        warnings = lines_until(process, "starting ")
    assert [line["level"] for line in warnings] == ["WARNING", "WARNING", "INFO"]
    assert "next_tuple sleeps" in warnings[0]["message"]


def test_probes_are_answered(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def asked(page: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    bind = f"topology.metrics.bind=127.0.0.1:{port}"
    with started(tmp_path, "endless.py", "-c", bind) as process:
        lines_until(process, "ACTIVE")
        assert asked("healthz") == asked("readyz") == (200, "ACTIVE\n")
        assert 'topo_up{status="ACTIVE",topology="endless"} 1.0' in asked("metrics")[1]
        process.terminate()
        lines_until(process, "endless: stopped by SIGTERM")
        assert process.wait(60) == 0


def test_systemd_is_told_of_beginning_and_end(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(path)
        notified.settimeout(60)
        with started(tmp_path, "endless.py", NOTIFY_SOCKET=path) as process:
            assert notified.recv(100) == b"READY=1"
            process.terminate()
            assert notified.recv(100) == b"STOPPING=1"
            lines_until(process, "endless: stopped by SIGTERM")
            assert process.wait(60) == 0


def test_what_slots_print_and_log_is_lines_of_the_log() -> None:
    code = (
        "import logging; from topo.logs.capture import keep_logs; keep_logs('slot-0');"
        "logging.getLogger('mine').info('logged'); print('printed')"
    )
    environ = {**os.environ, "TOPO_LOG_FORMAT": "json", "TOPO_LOG_LEVEL": "INFO"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert [(line["logger"], line["message"]) for line in lines] == [
        ("mine", "logged"),
        ("stdout", "printed"),
    ]
    assert ended.stdout == ""


def test_what_slots_of_other_hosts_log_is_lines_of_the_log() -> None:
    code = (
        "from topo.logs.capture import ReceivedLines, are_wanted; lines = ReceivedLines();"
        "assert lines and are_wanted(); lines.write('slot-1', [{'time': 2}, {'time': 1}])"
    )
    environ = {**os.environ, "TOPO_LOG_FORMAT": "json"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert ended.stderr == '{"time": 1}\n{"time": 2}\n'
