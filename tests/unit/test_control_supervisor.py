"""The supervisor: when it starts a driver again, how long it waits, when it gives up."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from topo.manage.files import read_json, write_json
from topo.manage.marks import marks_of
from topo.manage.records import State
from topo.manage.supervisor import AFTER_PROGRESS_SECS, LONGEST_PAUSE_SECS, Supervisor


class Life:
    """A directory, and drivers that live and die as told."""

    def __init__(self, directory: Path, *drivers: Callable[[Life], int], restart_max: int = 3):
        self.directory = directory
        self.drivers = list(drivers)
        self.pauses: list[float] = []
        self.stopped = 0
        write_json(directory / "submission.json", {"conf": {"topology.restart.max": restart_max}})
        self.supervisor = Supervisor(directory, start=self.start, pause=self.pauses.append)
        self.supervisor.run()

    def start(self, directory: Path, host: str) -> Life:
        return self

    def wait(self) -> int:
        return self.drivers.pop(0)(self)

    def stop(self) -> None:
        self.stopped += 1

    def say(self, **state: Any) -> None:
        write_json(self.directory / "state.json", asdict(State(**state)))

    @property
    def state(self) -> dict[str, Any]:
        return read_json(self.directory / "state.json") or {}

    @property
    def said(self) -> dict[str, Any]:
        return read_json(self.directory / "supervisor.json") or {}


def ends(code: int, **state: Any) -> Callable[[Life], int]:
    def driver(life: Life) -> int:
        if state:
            life.say(**state)
        return code

    return driver


KILLED = ends(0, status="KILLED")


@pytest.mark.parametrize(
    "last",
    [
        ends(0, status="COMPLETED"),
        KILLED,
        ends(1, status="FAILED", reason="user code", may_restart=False),
    ],
)
def test_what_is_over_is_not_started_again(tmp_path: Path, last: Callable[[Life], int]) -> None:
    life = Life(tmp_path, last)
    assert (life.drivers, life.pauses) == ([], [])


def test_a_driver_that_dies_is_started_again_after_growing_pauses(tmp_path: Path) -> None:
    life = Life(tmp_path, ends(-9), ends(1), ends(-9), KILLED)
    assert life.pauses == [1, 2, 4]
    assert life.said["starts"] == 4
    assert life.said["last_failure"] == "its driver was ended by SIGKILL"
    marks = [(mark.kind, mark.text) for mark in marks_of(tmp_path, [], 0.0)]
    assert marks == [
        ("restart", "start 2, after: its driver was ended by SIGKILL"),
        ("restart", "start 3, after: its driver ended with exit code 1"),
        ("restart", "start 4, after: its driver was ended by SIGKILL"),
    ]


def test_a_committed_batch_ends_the_row(tmp_path: Path) -> None:
    life = Life(
        tmp_path,
        ends(-9, status="ACTIVE", batch=3),
        ends(-9),
        ends(-9, status="ACTIVE", batch=4),
        ends(-9),
        KILLED,
        restart_max=2,
    )
    assert life.pauses == [AFTER_PROGRESS_SECS, 2] * 2


def test_pauses_do_not_grow_for_ever(tmp_path: Path) -> None:
    life = Life(tmp_path, *[ends(-9)] * 9, KILLED, restart_max=20)
    assert max(life.pauses) == LONGEST_PAUSE_SECS == life.pauses[-1]


def test_it_gives_up(tmp_path: Path) -> None:
    life = Life(tmp_path, *[ends(3)] * 4)
    assert life.pauses == [1, 2, 4]
    assert life.said["gave_up"]
    assert (life.state["status"], life.state["reason"]) == (
        "FAILED",
        "its driver ended with exit code 3",
    )


def test_a_failure_that_a_restart_may_mend(tmp_path: Path) -> None:
    life = Life(tmp_path, ends(1, status="FAILED", reason="the acker is gone"), KILLED)
    assert life.said["last_failure"] == "the acker is gone"


def test_a_kill_that_the_driver_did_not_live_to_see(tmp_path: Path) -> None:
    def dies_while_being_killed(life: Life) -> int:
        life.say(status="ACTIVE")
        write_json(life.directory / "wanted.json", {"status": "KILLED"})
        return -9

    life = Life(tmp_path, dies_while_being_killed)
    assert life.state["status"] == "KILLED"


def test_what_was_killed_by_force_is_not_started(tmp_path: Path) -> None:
    write_json(tmp_path / "wanted.json", {"status": "KILLED"})
    assert Life(tmp_path).state["status"] == "KILLED"


def test_a_driver_that_a_real_time_signal_ended_is_started_again(tmp_path: Path) -> None:
    life = Life(tmp_path, ends(-40), KILLED)
    assert life.said["last_failure"] == "its driver was ended by signal 40"


def test_a_supervisor_that_is_told_to_stop_ends_its_driver(tmp_path: Path) -> None:
    def told(life: Life) -> int:
        life.supervisor.stop()
        return 1

    supervisors: list[Life] = []

    class Late(Life):
        def wait(self) -> int:
            supervisors.append(self)
            return super().wait()

    life = Late(tmp_path, told)
    assert supervisors == [life]
    assert life.pauses == []
    assert life.stopped == 1


def test_a_driver_that_cannot_be_started_for_a_moment_is_started_later(tmp_path: Path) -> None:
    starts: list[int] = []

    def start(directory: Path, host: str) -> Any:
        starts.append(len(starts))
        if len(starts) < 3:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        write_json(directory / "state.json", asdict(State("KILLED")))
        return Ended()

    class Ended:
        def wait(self) -> int:
            return 0

        def stop(self) -> None:
            raise AssertionError

    write_json(tmp_path / "submission.json", {"conf": {"topology.restart.max": 3}})
    pauses: list[float] = []
    supervisor = Supervisor(tmp_path, start=start, pause=pauses.append)
    supervisor.run()
    assert pauses == [1.0, 2.0]
    said = read_json(tmp_path / "supervisor.json") or {}
    assert said["last_failure"] == "its driver could not be started: cannot allocate memory"


def test_the_first_batch_counts_as_progress(tmp_path: Path) -> None:
    first = ends(-9, status="ACTIVE", batch=0, has_committed=True)
    life = Life(tmp_path, ends(-9), ends(-9), first, KILLED)
    assert life.pauses == [1.0, 2.0, AFTER_PROGRESS_SECS]
