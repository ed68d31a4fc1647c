"""The tables of .ci: what the change of a room has tested, and the lowest versions."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import mutation

ROOT = Path(__file__).parents[2]
MARKS = ("mark.spark", "mark.server", "mark.fault")


@pytest.fixture(scope="module")
def touched() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci" / "touched.py"))


@pytest.fixture(scope="module")
def lowest() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci" / "lowest.py"))


def slow_files() -> list[str]:
    files = [*(ROOT / "tests").rglob("test_*.py")]
    own = Path(__file__)
    slow = [f for f in files if f != own and any(mark in f.read_text() for mark in MARKS)]
    return sorted(str(file.relative_to(ROOT)) for file in slow)


def test_every_row_names_what_there_is(touched: dict[str, Any]) -> None:
    rows: dict[str, tuple[str, ...]] = touched["ROWS"]
    for path in [
        *rows,
        *touched["EVERYWHERE"],
        *(test for tests in rows.values() for test in tests),
    ]:
        assert (ROOT / path).exists(), f".ci/touched.py names {path}, which is not there"


def test_every_room_and_every_slow_test_of_one_is_reached(touched: dict[str, Any]) -> None:
    slow = slow_files()
    rooms = [
        f"{path.relative_to(ROOT)}/x.py" for path in (ROOT / "topo").iterdir() if path.is_dir()
    ]
    reached = {file for room in rooms for file in touched["touched_by"](room, slow)}
    assert all(touched["touched_by"](room, slow) for room in rooms)
    assert [file for file in slow if "/unit/" not in file and file not in reached] == [
        file for file in slow if file.startswith("tests/docs/")
    ]


def test_the_change_comes_first_and_three_commits_run_everything(touched: dict[str, Any]) -> None:
    slow = [
        "tests/fault/test_a.py",
        "tests/ui/test_b.py",
        "tests/ui/test_c.py",
        "tests/x/test_d.py",
    ]
    chosen = [touched["choose"](["topo/ui/pages.py", "README.md"], slow, turn) for turn in range(6)]
    assert {tuple(sorted(near)) for near, _ in chosen} == {
        ("tests/ui/test_b.py", "tests/ui/test_c.py")
    }
    assert {near[0] for near, _ in chosen} == {"tests/ui/test_b.py", "tests/ui/test_c.py"}
    rest = [file for _, third in chosen[:3] for file in third]
    assert sorted(rest) == ["tests/fault/test_a.py", "tests/x/test_d.py"]
    assert chosen[:3] != chosen[1:4]
    near, _ = touched["choose"](["tests/x/test_d.py"], slow, 0)
    assert near == ["tests/x/test_d.py"]


def test_the_lowest_versions_are_those_of_the_project(lowest: dict[str, Any]) -> None:
    project = {
        "name": "own-name",
        "dependencies": ["click>=8.1.7", "protobuf>=4.25,<9"],
        "optional-dependencies": {
            "a": ["own-name[b]", "redis[hiredis]>=5.0"],
            "b": ["numpy>=2.0"],
        },
    }
    lines = [lowest["lowest"](line) for line in lowest["required"](project, ["a"])]
    assert lines == ["click==8.1.7", "protobuf==4.25", "redis[hiredis]==5.0", "numpy==2.0"]
    with pytest.raises(SystemExit, match="'rich' names no lowest version"):
        lowest["lowest"]("rich")
    printed = subprocess.run(
        [sys.executable, ".ci/lowest.py", "test"], cwd=ROOT, capture_output=True, text=True
    )
    assert (printed.returncode, "click==" in printed.stdout) == (0, True), printed.stderr


def test_every_planted_fault_has_its_place_in_the_code() -> None:
    """Or `python -m tests.mutation`, which nobody runs every day, would plant less and less."""
    assert [mutant.name for mutant in mutation.MUTANTS if not mutation.is_there(mutant)] == []
