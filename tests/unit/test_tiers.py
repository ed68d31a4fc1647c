"""The choice of a run of the tests, its words about what it left out, and no process after it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cases import read_cases
from tests.interrupts import heed_ctrl_c
from tests.turns import in_turns

ROOT = Path(__file__).parents[2]
CONFTEST = """
import pytest
from tests.conftest import pytest_addoption, pytest_collection_modifyitems
from tests.leftovers import Leftovers, OwnProcesses
from tests.tiers import Tiers

@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    config.pluginmanager.register(Tiers(config, last_secs=0.2))
    is_worker = hasattr(config, "workerinput")
    config.pluginmanager.register(OwnProcesses() if is_worker else Leftovers(ending_secs=0.2))
"""
PLUGINS = ("no:cacheprovider", "xdist", "rerunfailures", "hypothesispytest", "timeout")
INI = """
[pytest]
addopts = -raR --dist=loadgroup
markers =
    spark: -
    server: -
    fault: -
    smoke: -
"""
TESTS = """
import pytest
from hypothesis import given, strategies as st
from tests.property.scale import scaled

def test_quick():
    pass

@pytest.mark.spark
def test_spark():
    pass

@pytest.mark.spark
@pytest.mark.smoke
def test_smoke():
    pass

@pytest.mark.spark
@pytest.mark.fault
def test_fault():
    pass

@given(st.integers())
def test_examples(n):
    print("example", n, scaled(30))
"""
TRIES = """
import pytest

tries = []

@pytest.mark.{mark}
def test_fails_once():
    tries.append(1)
    assert len(tries) > 1
"""
HANGS = """
import threading
import pytest

@pytest.mark.fault
def test_hangs():
    threading.Event().wait(600)

@pytest.mark.fault
def test_is_next():
    pass
"""
LEAVES = """
import subprocess, sys, time

def test_leaves_a_process():
    program = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen(program, start_new_session=True)
    print("left", process.pid, flush=True)
    open("pid", "w").write(str(process.pid))
    {then}
"""


class Runner:
    """Runs of pytest in a project of their own, by the rules of these tests."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "conftest.py").write_text(CONFTEST)
        (directory / "pytest.ini").write_text(INI)

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # schemathesis' takes half a second
        plugins = [word for plugin in PLUGINS for word in ("-p", plugin)]
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *plugins, *words],
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=heed_ctrl_c,
        )

    def run(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == code, output
        return output

    def left(self) -> int:
        """Wait for the process that the tests left, and return its id."""
        deadline = time.monotonic() + 60
        while not (text := self._pid()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return int(text)

    def _pid(self) -> str:
        path = self.directory / "pid"
        return path.read_text() if path.exists() else ""


def is_running(pid: int) -> bool:
    """Return True if there is a process of this id, and not only its exit code."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_a_run_without_options_leaves_out_what_is_slow_and_says_so(runner: Runner) -> None:
    runner.write("test_it.py", TESTS)
    shown = runner.run()
    assert "3 passed, 2 deselected" in shown
    assert "not run: 2 tests (2 spark, 1 fault; some have several marks)." in shown
    assert "-m spark, -m fault or the name of a file runs them, --all runs everything." in shown
    spread = runner.run("-n", "1")
    assert "3 passed" in spread
    assert "not run: 2 tests (2 spark, 1 fault; some have several marks)." in spread


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        (["-m", "spark"], 3),
        (["test_it.py"], 5),
        (["test_it.py::test_spark"], 1),
        (["."], 3),
    ],
    ids=str,
)
def test_marks_and_names_choose(runner: Runner, words: list[str], passed: int) -> None:
    runner.write("test_it.py", TESTS)
    assert f" {passed} passed" in runner.run(*words)


def test_examples_are_the_same_third_or_new_ones_that_can_be_repeated(runner: Runner) -> None:
    def examples(*words: str) -> tuple[list[str], str]:
        shown = runner.run("-s", "-k", "examples", *words)
        return re.findall(r"example -?\d+ \d+", shown), shown

    runner.write("test_it.py", TESTS)
    first, _ = examples()
    assert first == examples()[0]
    assert len(first) == 33
    assert first[0].endswith(" 10")
    fresh, shown = examples("--all")
    assert fresh != examples("--all")[0]
    seed = re.findall(r"--hypothesis-seed=\d+", shown)
    assert len(seed) == 2  # at the beginning, and at the end
    assert fresh == examples("--all", seed[0])[0]


@pytest.mark.parametrize(("mark", "code"), [("fault", 0), ("spark", 1), ("server", 1)])
def test_only_tests_that_kill_are_tried_again_and_are_named(
    runner: Runner, mark: str, code: int
) -> None:
    runner.write("test_it.py", TRIES.format(mark=mark))
    shown = runner.run("test_it.py", code=code)
    assert ("RERUN test_it.py::test_fails_once" in shown) is (code == 0)


class Item:
    """Stands for a test: its file, its place in it, and whether it kills."""

    def __init__(self, file: str, place: int, kills: bool = False) -> None:
        self.path, self.name, self._mark = Path(file), f"{file}{place}", "fault" if kills else ""

    def get_closest_marker(self, name: str) -> str | None:
        return self._mark if name == self._mark else None


def test_every_file_has_a_turn_before_any_has_its_last() -> None:
    killing = [Item("kills", place, kills=True) for place in range(5)]
    long = [Item("long", place) for place in range(45)]
    mixed = [Item("mixed", 0, kills=True), Item("mixed", 1)]
    ordered: Any = in_turns([*killing, *long, *mixed])  # type: ignore[list-item]
    turns = [list(group) for _, group in groupby(ordered, key=lambda item: item.path.name)]
    assert [(turn[0].path.name, len(turn)) for turn in turns] == [
        ("long", 20), ("mixed", 1), ("kills", 2), ("mixed", 1),
        ("long", 20), ("kills", 2),
        ("long", 5), ("kills", 1),
    ]  # fmt: skip
    for file in (killing, long):
        names = [item.name for item in ordered if item.path == file[0].path]
        assert names == [item.name for item in file]


def test_files_take_turns_where_time_is_limited(runner: Runner) -> None:
    kills = "import pytest\n\n@pytest.mark.fault\ndef test_{name}(): pass\n"
    runner.write("test_a.py", "\n".join(kills.format(name=name) for name in "abc"))
    runner.write("test_b.py", "def test_d(): pass\n")
    words = ("--co", "-q", "--seconds=60", "test_a.py", "test_b.py")
    for limit, order in [(words, "dabc"), (words[:2] + words[3:], "abcd")]:
        assert re.findall(r"::test_(.)", runner.run(*limit)) == list(order)


def test_no_test_begins_after_its_time(runner: Runner) -> None:
    runner.write("test_it.py", TESTS)
    shown = runner.run("--seconds=0")
    assert "3 skipped" in shown
    assert "the time of --seconds=0.0 was over" in shown


def test_a_test_that_runs_when_the_time_is_over_is_cut_off_and_has_no_other_try(
    runner: Runner,
) -> None:
    runner.write("test_it.py", HANGS)
    shown = runner.run("test_it.py", "--seconds=0.5", code=1)
    assert "1 skipped, 1 error, 2 rerun" in shown
    assert "Timeout" in shown
    assert "no other try: the time of --seconds=0.5 was over" in shown


@pytest.mark.parametrize("words", [[], ["-n", "1"]], ids=["alone", "spread"])
def test_a_process_that_is_left_behind_fails_the_run_and_is_named(
    runner: Runner, words: list[str]
) -> None:
    runner.write("test_it.py", LEAVES.format(then="pass"))
    shown = runner.run(*words, code=1)
    assert "1 passed, 1 error" in shown
    assert f"process {runner.left()}: {sys.executable} -c import time" in shown
    assert not is_running(runner.left())


@pytest.mark.parametrize("words", [[], ["-n", "1"]], ids=["alone", "spread"])
def test_ctrl_c_leaves_no_process_behind(runner: Runner, words: list[str]) -> None:
    runner.write("test_it.py", LEAVES.format(then="time.sleep(600)"))
    process = runner.start(*words)
    left = runner.left()
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert f"process {left}: {sys.executable} -c import time" in output
    assert not is_running(left)


def test_cases_are_lines_and_a_bad_one_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"about": "x"}\n{"name": "a\u2028b"}\n', encoding="utf-8")
    assert read_cases(path) == [{"name": "a\u2028b"}]
    path.write_text('{"about": "x"}\n{"name": \n')
    with pytest.raises(ValueError, match=r"cases\.jsonl:2 is not valid JSON"):
        read_cases(path)
    path.write_text('{"about": "x"}\n[]\n')
    with pytest.raises(ValueError, match=r"cases\.jsonl:2 is not a case"):
        read_cases(path)
    path.write_text('{"name": "x"}\n')
    with pytest.raises(ValueError, match="does not say what the cases are about"):
        read_cases(path)
