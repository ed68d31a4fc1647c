"""The directories of runs: those of drivers that were killed do not stay."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from topo.engine.spark.scratch import make_log_directory, make_run_directory

MAKE = "from topo.engine.spark.scratch import make_run_directory as make; print(make(), flush=True)"


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
    make = MAKE.replace("run", "log")
    made = subprocess.run([sys.executable, "-c", make], stdout=subprocess.PIPE, text=True)
    left = Path(made.stdout.strip())
    first = make_log_directory()
    assert {*temporary.iterdir()} == {left, first}
    for old in (left, first):
        os.utime(old, (0, 0))
    second = make_log_directory()
    assert {*temporary.iterdir()} == {first, second}
