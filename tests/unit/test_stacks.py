"""Stacks of a slot's process: a real process that is asked for them, and some that are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from topo.errors import RunError
from topo.logs.capture import LOG_DIR
from topo.logs.stacks import SIGNAL, listening
from topo.manage import stacks
from topo.manage.records import RunRecord
from topo.manage.stacks import slot_processes, stacks_of

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="no handles of processes")
_SLOT = """
import threading
from topo.logs.stacks import write_stacks_on_signal

def waits_for_ever(event):
    event.wait()

def works(ready):
    ready()
    while True:
        sum(range(100))

write_stacks_on_signal("slot-0")
threading.Thread(target=waits_for_ever, args=(threading.Event(),), daemon=True).start()
works(lambda: print("ready", flush=True))
"""


class Run:
    """As much of a run as is looked at; its driver is this process."""

    name = "words"
    driver_pid = os.getpid()

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.submission = type("Submission", (), {"master": "local[2]"})

    @property
    def record(self) -> RunRecord:
        return cast(RunRecord, self)


def child(directory: Path, code: str) -> subprocess.Popen[bytes]:
    (directory / "log").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, LOG_DIR: str(directory / "log")},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = child(tmp_path, _SLOT)
    yield process
    end(process)


def test_a_dump_has_every_thread_and_a_flame_graph_what_took_the_time(
    tmp_path: Path, slot: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "_EVERY_SECS", 0.001)
    monkeypatch.setenv("PATH", "")  # without py-spy
    run = Run(tmp_path).record
    assert slot_processes(run) == {0: slot.pid}
    view = stacks_of(run, 0, secs=0.0)
    assert (view.pid, view.by, view.samples) == (slot.pid, "faulthandler", 1)
    outermost = {thread.frames[0].partition(" ")[0]: thread for thread in view.threads}
    assert outermost["<module>"].is_current
    assert view.threads[0].is_current
    assert any(frame.startswith("waits_for_ever (") for t in view.threads for frame in t.frames)
    sampled = stacks_of(run, 0, secs=0.05)
    assert sampled.samples > 1
    (busy,) = (stack for stack in sampled.stacks if stack.frames[0].startswith("<module>"))
    assert busy.frames[1] == "works (<string>)"
    assert busy.count == sampled.samples
    assert slot.poll() is None


def test_a_process_that_does_not_listen_is_not_signalled(tmp_path: Path) -> None:
    quiet = child(tmp_path, "print('ready', flush=True); import time; time.sleep(600)")
    try:
        (tmp_path / "log" / f"slot-0.{quiet.pid}.stacks").touch()
        with pytest.raises(RunError, match="does not answer to signals"):
            stacks_of(Run(tmp_path).record, 0, 0.0)
        assert quiet.poll() is None
        quiet.send_signal(SIGNAL)  # which would have ended it
        assert quiet.wait() == -SIGNAL
    finally:
        end(quiet)


def test_a_process_of_somebody_else_is_not_signalled(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"slot-0.{os.getppid()}.stacks").touch()
    run = Run(tmp_path).record
    assert slot_processes(run) == {}
    with pytest.raises(RunError, match="no process of this machine answers for slot 0"):
        stacks_of(run, 0, 0.0)


def test_a_stopped_process_is_told_of(
    tmp_path: Path, slot: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "_WAIT_SECS", 0.02)
    slot.send_signal(signal.SIGSTOP)
    with pytest.raises(RunError, match="wrote no stacks") as raised:
        stacks_of(Run(tmp_path).record, 0, 0.0)
    assert "stopped" in raised.value.hint


def test_the_next_process_of_a_slot_takes_the_place_of_the_last(
    tmp_path: Path, slot: subprocess.Popen[bytes]
) -> None:
    second = child(tmp_path, _SLOT)
    try:
        assert list(listening(tmp_path / "log", "slot-0").values()) == [second.pid]
    finally:
        end(second)


def test_py_spy_is_used_where_it_is_and_not_where_it_may_not_look(
    tmp_path: Path, slot: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "py-spy"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    run = Run(tmp_path).record
    folded = "<module> (a.py:3);g (a.py:7) 30\n<module> (a.py:4);g (a.py:9) 12"
    for script, by in {
        f"echo '{folded}'": "py-spy",
        "echo 'Permission denied' >&2; exit 1": "faulthandler",
    }.items():
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        view = stacks_of(run, 0, secs=0.01)
        assert view.by == by
        if by == "py-spy":
            assert [(stack.frames, stack.count) for stack in view.stacks] == [
                (["<module> (a.py)", "g (a.py)"], 42)
            ]
            assert view.threads


def test_frames_of_other_pythons_and_damage_are_read() -> None:
    lines: list[Any] = [
        "Thread 0x00007f1 [worker-1] (most recent call first):",
        '  File "/x/site-packages/lib/a.py", line 3 in inner',
        '  File "/home/me/app/main.py", line ??? in <module>',
        "",
        "Thread 0x00007f2 (most recent call first):",
        "  <no Python frame>",
        "nonsense",
        "Current thread 0x00007f3 (most recent call first):",
        '  File "b.py", line 9 in f',
    ]
    threads = list(stacks._threads(lines))
    assert [(t.ident, t.is_current, [str(frame) for frame in t.frames]) for t in threads] == [
        ("worker-1", False, ["<module> (app/main.py:???)", "inner (lib/a.py:3)"]),
        ("0x00007f2", False, []),
        ("0x00007f3", True, ["f (b.py:9)"]),
    ]
