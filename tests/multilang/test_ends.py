"""No process outlives its slot, however the slot and the process end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

CHILDREN = Path(__file__).parent / "children"
ROOT = Path(__file__).parents[2]
PARENT = """
import sys, time
from topo.multilang.process import ShellProcess
from topo.multilang.wire import JsonWire
process = ShellProcess(sys.argv[1:], JsonWire(), None, {}, ("bolt", 1))
process.send({"pidDir": "/", "conf": {}, "context": {}})
while not process.exchange(1.0):
    pass
print("started", flush=True)
sys.stdin.readline()
process.close()
"""


def start(pid_file: Path) -> tuple[subprocess.Popen[str], int]:
    child = [sys.executable, str(CHILDREN / "stubborn.py"), str(pid_file)]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *child],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    return parent, int(pid_file.read_text())


def await_end(pid: int) -> None:
    until = time.monotonic() + 60
    while psutil.pid_exists(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not psutil.pid_exists(pid)


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="the system of others has no such signal")
def test_a_killed_slot_takes_its_processes_with_it(tmp_path: Path) -> None:
    parent, pid = start(tmp_path / "pid")
    with parent:
        os.kill(parent.pid, signal.SIGKILL)
    await_end(pid)


@pytest.mark.fault
def test_a_process_that_ignores_its_end_is_killed(tmp_path: Path) -> None:
    parent, pid = start(tmp_path / "pid")
    with parent:
        parent.communicate("end\n")
    assert parent.returncode == 0
    assert not psutil.pid_exists(pid)
