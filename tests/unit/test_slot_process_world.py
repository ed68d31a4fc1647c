"""User code in its slot process: it forks, reads standard input, shadows modules, ends it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from tests.fault.spark_processes import wait_until
from topo.engine.spark.driver.hangs import Hangs
from topo.engine.spark.driver.restarts import Restarts
from topo.engine.spark.driver.slots import SlotProcesses
from topo.engine.spark.process import doing
from topo.engine.spark.process.doing import doing_now, last_words, note_end, open_note
from topo.engine.spark.worker.messages import Abandoned, Outcome, Restore, Work
from topo.engine.spark.worker.relay import RelayLost, SlotDied
from topo.engine.spark.worker.remote import RemoteRunner
from topo.runtime import slot
from topo.runtime.task import note_of

WORK = Work(None, 7, 1, 0, b"")  # type: ignore[arg-type]


def pool() -> None:
    with multiprocessing.get_context("fork").Pool(1) as made:
        assert made.map(abs, [-3]) == [3]


def executor() -> None:
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as made:
        assert list(made.map(abs, [-3])) == [3]


def cat() -> None:
    assert subprocess.run(["cat"], capture_output=True, check=True).stdout == b""


def asks() -> None:
    with contextlib.suppress(EOFError):
        input()


def sleeping_child() -> multiprocessing.process.BaseProcess:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
    child.start()
    return child


def forks_and_is_killed() -> None:
    sleeping_child()
    os.kill(os.getpid(), signal.SIGKILL)


def forks_and_goes_on() -> int:
    return sleeping_child().pid or 0


def exits() -> None:
    noted("bolt 'b' task 3")
    os._exit(5)


def crashes() -> None:
    noted("bolt 'b' task 3")
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs() -> None:
    noted("bolt 'b' task 3")
    while True:
        signal.pause()


def noted(text: str) -> None:
    assert slot._note is not None
    slot._note[:] = note_of(text)


class Does:
    """A runner that calls a function."""

    def __init__(self, what: Callable[[], Any]) -> None:
        self.what = what

    def __call__(self) -> Does:
        return self

    def execute(self, work: Work, restore: Restore, abandoned: Abandoned) -> Outcome:
        return Outcome(writes=[((0, "answer"), pickle.dumps(self.what()))])


def asked_of(processes: SlotProcesses) -> Any:
    """Return the answer of slot 0, or its error; fail if there is none."""
    answers: list[Any] = []

    def ask() -> None:
        try:
            outcome = RemoteRunner(processes.path(0)).execute(WORK, dict, lambda: False)
            answers.append(pickle.loads(outcome.writes[0][1]))
        except RelayLost as lost:
            answers.append(lost)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(30)
    assert answers, "still waiting"
    return answers[0]


@contextlib.contextmanager
def slots(what: Callable[[], Any]) -> Any:
    with contextlib.closing(SlotProcesses({0: pickle.dumps(Does(what))})) as processes:
        yield processes


@pytest.mark.parametrize("what", [pool, executor, cat, asks])
def test_code_that_forks_or_reads_standard_input_goes_on(what: Callable[[], None]) -> None:
    with slots(what) as processes:
        assert asked_of(processes) is None


def test_a_process_that_has_forked_and_is_killed_is_missed() -> None:
    with slots(forks_and_is_killed) as processes:
        assert isinstance(asked_of(processes), RelayLost)


def test_children_end_with_their_slot() -> None:
    with slots(forks_and_goes_on) as processes:
        child = psutil.Process(asked_of(processes))
        assert child.is_running()
    with contextlib.suppress(psutil.NoSuchProcess):
        child.wait(20)
    assert not child.is_running()


def test_a_slot_that_died_before_has_another_process_in_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("topo.engine.spark.driver.slots._QUICK_SECS", 0.0)
    with slots(os.getpid) as processes:

        def following(pid: int) -> int:
            """Kill the slot's process, and return the one that follows it."""
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: processes.pids()[0] != pid, "the next process")
            return int(processes.pids()[0])

        def waiting() -> int:
            wait_until(lambda: processes.waiting is not None, "a process that waits")
            return int(processes.waiting)

        first = asked_of(processes)
        assert processes.waiting is None, "none has died"
        second = following(first)
        third = waiting()
        assert following(second) == third == asked_of(processes)
        lost = psutil.Process(waiting())
        lost.kill()  # it is no use to anybody
        wait_until(lambda: lost.status() == psutil.STATUS_ZOMBIE, "its end")
        assert following(third) != lost.pid
        assert asked_of(processes) == processes.pids()[0]
        left = psutil.Process(waiting())
    assert not left.is_running()


@pytest.mark.parametrize(
    ("what", "end"), [(exits, "ended with exit code 5"), (crashes, "was ended by SIGSEGV")]
)
def test_the_end_of_a_process_says_what_was_executed_and_how_it_ended(
    what: Callable[[], None], end: str
) -> None:
    with slots(what) as processes:
        lost = asked_of(processes)
    assert isinstance(lost, SlotDied)
    text = f"the slot's process {end} while bolt 'b' task 3 was executed, in batch 7"
    assert lost.message == text


def test_a_process_that_the_driver_ends_says_why() -> None:
    why = "was ended after more than 2 s (topology.hang.secs)"
    with slots(hangs) as processes:
        ending = threading.Thread(target=end_once_it_hangs, args=(processes, why))
        ending.start()
        lost = asked_of(processes)
        ending.join()
        assert doing_now(processes.path(0)) == "", "the next one hangs in nothing"
    assert isinstance(lost, SlotDied), "twice in the same place is final"
    assert (
        lost.message == f"the slot's process {why} while bolt 'b' task 3 was executed, in batch 7"
    )
    assert lost.hint.endswith("or raise topology.hang.secs")


def end_once_it_hangs(processes: SlotProcesses, why: str) -> None:
    while doing_now(processes.path(0)) != "bolt 'b' task 3":
        pass
    processes.end(0, why)


def test_what_a_slot_is_at_is_seen_with_its_time(tmp_path: Path) -> None:
    clock = [0.0]
    paths = [str(tmp_path / f"slot-{slot}") for slot in range(3)]
    notes = [open_note(path) for path in paths[:2]]  # the third has not started
    seen = Hangs(paths, monotonic=lambda: clock[0])

    def look(secs: float, batch: int, *tasks: str) -> list[tuple[int, str, float]]:
        clock[0] += secs
        for note, task in zip(notes, tasks, strict=True):
            note[:] = note_of(task)
        seen.look(batch)
        return [(hang.slot, hang.task, hang.secs) for hang in seen.longer_than(15)]

    assert look(0, 4, "bolt 'a' task 1", "") == []
    assert look(20, 4, "bolt 'a' task 1", "") == [(0, "bolt 'a' task 1", 20)]
    assert seen.words == "bolt 'a' task 1 has been executed for 20 s"
    assert look(20, 4, "bolt 'a' task 1", "bolt 'b' task 2") == [(0, "bolt 'a' task 1", 40)]
    assert look(20, 4, "bolt 'c' task 3", "bolt 'b' task 2") == [(1, "bolt 'b' task 2", 20)]
    seen.forget(1)
    assert look(1, 4, "bolt 'c' task 3", "bolt 'b' task 2") == [], "that is another process"
    assert look(20, 5, "bolt 'c' task 3", "bolt 'b' task 2") == [], (
        "the batch before came to an end"
    )
    assert look(20, 5, "", "") == [], "slots that wait hang in nothing"
    assert seen.words == ""


def test_how_a_process_ended_is_known_when_the_next_one_works(tmp_path: Path) -> None:
    path, began = str(tmp_path / "slot-0"), time.time()
    first = open_note(path)
    first[:10] = b"bolt 'b1' "
    note_end(path, -signal.SIGSEGV)
    second = open_note(path)
    second[:10] = b"bolt 'b2' "
    assert last_words(path, began).startswith(
        "the slot's process was ended by SIGSEGV while bolt 'b1'"
    )
    with mock.patch.object(doing, "_PATIENCE_SECS", 0.0):
        later = last_words(path, began + 3600)
    assert later.startswith("the slot's process ended while bolt 'b2'"), "not of the one before"


def test_a_process_that_ends_twice_in_the_same_place_is_not_started_again() -> None:
    restarts = Restarts("/checkpoint", 10)
    restarts.begin(7)
    restarts.failed(SlotDied("in bolt 'b', in batch 7"), 7)
    restarts.failed(RelayLost("was killed, in batch 7"), 7)
    restarts.failed(SlotDied("in bolt 'b', in batch 7"), 7)
    with pytest.raises(SlotDied):
        restarts.failed(SlotDied("in bolt 'b', in batch 7"), 7)


def test_a_batch_between_two_ends_makes_them_two() -> None:
    restarts = Restarts("/checkpoint", 10)
    restarts.begin(7)
    for batch in range(8, 12):
        restarts.failed(SlotDied("in bolt 'b'"), batch)
        restarts.begin(batch)


def test_a_batch_that_every_start_commits_is_no_progress() -> None:
    restarts = Restarts("/checkpoint", 3, of_each_start=1)
    for batch in range(3):
        restarts.begin(batch)
        restarts.failed(RelayLost("was killed"), batch + 1)
    with pytest.raises(RelayLost):
        restarts.failed(RelayLost("was killed"), 3)


@pytest.mark.parametrize("name", ["types", "logging", "queue", "platform"])
def test_modules_of_the_users_may_be_named_like_pythons_own(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text("raise ImportError('this is not the one')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with slots(os.getpid) as processes:
        assert asked_of(processes) in processes.pids().values()


def test_a_slot_that_starts_as_its_run_ends_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        open_note(str(tmp_path / "gone" / "slot-1"))
    assert ended.value.code is None
