"""Calls that systems differ in, where they are missing; and systems that are refused."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from topo.systems import Bell, sync_data, usable_cores, wait_for_group


@pytest.fixture(params=[False, True], ids=["all", "without"])
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what not every system has, or leave it."""
    if request.param:
        for name in ("sched_getaffinity", "waitid", "fdatasync"):
            monkeypatch.delattr(os, name)


@pytest.mark.usefixtures("missing")
def test_there_is_a_core_at_least() -> None:
    assert usable_cores() >= 1


@pytest.mark.usefixtures("missing")
def test_what_was_written_is_synced(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(b"x")
        sync_data(file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync_data(file_of(tmp_path))


def file_of(path: Path) -> int:
    """Return the number of a file that is closed."""
    handle = os.open(path, os.O_RDONLY)
    os.close(handle)
    return handle


@pytest.mark.usefixtures("missing")
def test_a_group_ends_with_the_process_that_leads_it() -> None:
    leads = "import subprocess, sys; subprocess.Popen(['sleep', '600'], stdout=1); sys.exit(7)"
    process = subprocess.Popen(
        [sys.executable, "-c", leads], stdout=subprocess.PIPE, process_group=0
    )
    assert wait_for_group(process) == 7
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.read() == b""  # its end: the child, which has the pipe too, is gone


def ring_often(bell: Bell) -> None:
    """Ring more often than the bell's pipe has room for."""
    for _ in range(100_000):
        bell.ring()


def test_a_bell_is_heard_from_any_thread_and_then_silent() -> None:
    bell = Bell()
    with selectors.DefaultSelector() as selector:
        selector.register(bell, selectors.EVENT_READ)
        assert selector.select(0) == []
        rings = threading.Thread(target=ring_often, args=(bell,))
        rings.start()
        assert selector.select(10)
        rings.join()
        bell.silence()
        assert selector.select(0) == []
        before = signal.set_wakeup_fd(bell.ringing)
        signal.set_wakeup_fd(before)
    bell.close()


@pytest.mark.parametrize("module", ["topo.cli", "topo.engine.spark.engine"])
def test_a_system_without_processes_of_its_kind_is_refused_with_a_sentence(module: str) -> None:
    code = (  # shutil as it is for this system: what it imports on Windows is not here
        "import shutil, sys, sysconfig; sysconfig.get_config_vars(); sys.platform = 'win32'\n"
        f"import topo, topo.testing\nimport {module}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "topo.errors.EngineError: topo runs on Linux and macOS, not on 'win32'; "
        "on Windows, run it in WSL"
    )
