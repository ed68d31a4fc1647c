"""Spark's Python processes as forks of the nursery: what they get, and how each end ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from topo.engine.spark.worker import handover

SERVE = (
    "import sys; from topo.engine.spark.worker.nursery import Nursery; Nursery(sys.argv[1]).serve()"
)
ENVIRONMENT = {**os.environ, "PYTHONHASHSEED": "0"}
SAYS = """
import os, sys
print(os.getppid(), os.environ.get("MARK"), sys.argv[1:], os.getcwd(), sys.stdin.readline().strip())
sys.exit(3)
"""
WAITS = """
import sys, time
print("here", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "says.py").write_text(SAYS)
    (tmp_path / "waits.py").write_text(WAITS)
    return tmp_path


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", SERVE, str(tmp_path / "nursery")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=ENVIRONMENT) as process:
        watch = tmp_path / "nursery"
        while not watch.exists():
            assert process.poll() is None
            select.select([], [], [], 0.01)
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def command(directory: Path, *arguments: str) -> list[str]:
    return [
        sys.executable,
        "-IS",
        str(handover.__file__),
        str(directory / "nursery"),
        *arguments,
    ]


def run(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(directory, "-m", "says", "a", "b"),
        input="typed\n",
        capture_output=True,
        text=True,
        cwd=directory,
        env={**ENVIRONMENT, "MARK": "seen", **environment},
        timeout=60,
    )


def test_a_fork_is_what_was_asked_for(nursery: subprocess.Popen[bytes], modules: Path) -> None:
    done = run(modules)
    assert done.stdout.split(" ", 1) == [
        str(nursery.pid),
        f"seen ['a', 'b'] {modules} typed\n",
    ]
    assert (done.returncode, done.stderr) == (3, "")


def test_without_a_nursery_it_is_an_ordinary_python(modules: Path) -> None:
    done = run(modules)
    assert done.stdout.split(" ", 1)[1] == f"seen ['a', 'b'] {modules} typed\n"
    assert done.returncode == 3


def test_another_hash_seed_is_given_by_an_ordinary_python(
    nursery: subprocess.Popen[bytes], modules: Path
) -> None:
    done = run(modules, PYTHONHASHSEED="7")
    assert done.returncode == 3
    assert done.stdout.split(" ", 1)[0] == str(os.getpid())


def test_a_fork_ends_with_its_command(nursery: subprocess.Popen[bytes], modules: Path) -> None:
    waits = subprocess.Popen(
        command(modules, "-m", "waits"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=modules,
        env=ENVIRONMENT,
    )
    with waits:
        assert waits.stdout is not None
        assert waits.stdout.readline() == b"here\n"
        waits.send_signal(signal.SIGTERM)
        assert waits.wait(60) == -signal.SIGTERM
        assert waits.stdout.read() == b""  # its other end has ended too


def test_a_command_outlives_the_nursery_with_its_fork(
    nursery: subprocess.Popen[bytes], modules: Path
) -> None:
    waits = subprocess.Popen(
        command(modules, "-m", "waits"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=modules,
        env=ENVIRONMENT,
    )
    with waits:
        assert waits.stdin is not None
        assert waits.stdout is not None
        assert nursery.stdin is not None
        assert waits.stdout.readline() == b"here\n"
        nursery.stdin.close()
        assert nursery.wait(60) == 0
        assert waits.poll() is None
        waits.stdin.close()
        assert waits.wait(60) == 1
