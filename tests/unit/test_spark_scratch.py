"""The directories of runs and JVMs: those of drivers that were killed do not stay."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from topo import EngineError
from topo.engine.spark.driver import scratch
from topo.engine.spark.driver.scratch import (
    make_jvm_directory,
    make_run_directory,
)
from topo.engine.spark.jvm.launch import with_jvm_options
from topo.logs.directories import make_log_directory

MAKE = (
    "from topo.engine.spark.driver.scratch import make_run_directory as make; "
    "print(make(), flush=True)"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_what_a_dead_driver_left_is_removed_by_the_next_run(temporary: Path) -> None:
    made = subprocess.run([sys.executable, "-c", MAKE], stdout=subprocess.PIPE, text=True)
    left = Path(made.stdout.strip())
    (left / "frames-0-7-x").write_bytes(b"frames")
    assert left.parent == temporary
    own = Path(make_run_directory())
    assert [*temporary.iterdir()] == [own]


def test_what_a_living_driver_uses_stays(temporary: Path) -> None:
    wait = [sys.executable, "-c", f"{MAKE}; input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(wait, text=True, stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        theirs = other.stdout.readline().strip()
        first, second = make_run_directory(), make_run_directory()
        assert {str(path) for path in temporary.iterdir()} == {theirs, first, second}
        other.communicate("\n")


def test_where_process_ids_mean_something_else_nothing_is_removed(temporary: Path) -> None:
    other = temporary / f"topo-run-0123abcd-{2**22 + 1}-x"
    mine = Path(make_run_directory())
    foreign = temporary / f"{mine.name.rsplit('-', 2)[0]}-notes"
    for directory in (other, foreign):
        directory.mkdir()
    make_run_directory()
    assert other.is_dir()
    assert foreign.is_dir()
    assert str(os.getpid()) in mine.name


def test_logs_of_the_dead_stay_for_a_day(temporary: Path) -> None:
    make = "from topo.logs.directories import make_log_directory as make; print(make())"
    made = subprocess.run([sys.executable, "-c", make], stdout=subprocess.PIPE, text=True)
    left = Path(made.stdout.strip())
    first = make_log_directory()
    assert {*temporary.iterdir()} == {left, first}
    for old in (left, first):
        os.utime(old, (0, 0))
    second = make_log_directory()
    assert {*temporary.iterdir()} == {first, second}


def test_what_the_jvm_of_a_dead_driver_left_is_removed_by_the_next_run(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_SHORT", str(temporary))  # which is long, for a socket
    left = temporary / Path(make_jvm_directory()).name.replace(f"-{os.getpid()}-", f"-{2**22 + 1}-")
    (left / "blockmgr-1").mkdir(parents=True)
    (left / "librocksdbjni1.so").write_bytes(b"library")
    make_jvm_directory()
    assert not left.exists()
    assert len([*temporary.iterdir()]) == 2


def test_sockets_go_where_their_paths_are_short_enough(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = temporary / ("a" * 90)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert scratch.socket_parent(40) == "/tmp"
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")
    assert scratch.socket_parent(40) == "/var/tmp"
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    monkeypatch.setattr(scratch, "_SHORT", str(temporary / "not there"))
    with pytest.raises(EngineError, match="too long a path for unix sockets") as refused:
        scratch.socket_parent(40)
    assert refused.value.hint == "set TMPDIR to a short path on a local disk"


def test_the_paths_of_sockets_are_no_longer_than_was_reckoned() -> None:
    name = f"/topo-{{}}-01234567-{2**22}-01234567"
    spark = f"{name.format('jvm')}/.123e4567-e89b-12d3-a456-426614174000.sock"
    slot = f"{name.format('slots')}/slot-100.{2**22}"
    assert len(spark) <= scratch._JVM_SOCKET_BYTES
    assert len(slot) <= scratch.SLOT_SOCKET_BYTES


def test_the_jvm_is_told_of_its_directory_before_what_the_user_says() -> None:
    key = "spark.driver.defaultJavaOptions"
    there = "-Djava.io.tmpdir=/tmp/x y"
    assert with_jvm_options({"a": "b"}, [there]) == {"a": "b", key: f'"{there}"'}
    theirs = "-Djava.io.tmpdir=/mine"
    assert with_jvm_options({key: theirs}, [there])[key] == f'"{there}" {theirs}'
