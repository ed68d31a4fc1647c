"""A host that comes back while another takes its run over: one driver goes on, and the run does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_checkpoint_owner import Time
from tests.unit.test_control_registry import held, make
from topo.manage.driver import Driver
from topo.manage.driver import main as driver_process
from topo.manage.files import read_json, write_json
from topo.manage.keeping import is_wanted
from topo.manage.records import RegistryError, RunRecord, Submission, read_state
from topo.manage.registry import Registry
from topo.manage.supervisor import Supervisor
from topo.manage.supervisor import main as supervisor_process
from topo.metrics.figures import BatchStats, RunStats
from topo.running import ACTIVE, COMPLETED
from topo.storage.ownership import Ownership


class Running:
    """A run that holds a checkpoint, and has these statuses, one at each look."""

    name, reason, ui = "words", "", ""
    drpc = error = None

    def __init__(self, owned: Ownership, *statuses: str) -> None:
        self.owned = owned
        self._statuses = iter(statuses)
        self.is_stopped = False

    @property
    def status(self) -> str:
        return next(self._statuses, COMPLETED)

    def stats(self) -> RunStats:
        return RunStats(self.name, ACTIVE, "", 1.0, "all", BatchStats(), {})

    def batches(self) -> list[Any]:
        return []

    errors = batches

    def stop(self) -> None:
        self.is_stopped = True
        self.owned.close()


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "home")


@pytest.fixture
def run(registry: Registry) -> RunRecord:
    """A run of host a."""
    return registry.reload(make(registry, host="a"))


def owned_on(host: str, directory: Path, run: RunRecord, time: Time) -> Ownership:
    """What a driver on that host claims the checkpoint by, where no lock reaches both."""
    directory.mkdir(exist_ok=True)
    owned = Ownership("x", run.name, run.id, directory=directory, sleep=time)
    owned._record = replace(owned._record, host=host, machine=f"boot-of-{host} 1")
    return owned


def taken_over(
    registry: Registry,
    run: RunRecord,
    tmp_path: Path,
    come_back: Callable[[Driver, Running, float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[int, Running, Running]:
    """Have host b take the run over; return how its driver ended, and both runs."""
    held = owned_on("a", tmp_path / "state", run, Time()).claim()
    held._unlock()  # another machine's
    former, was = Driver(run.directory), Running(held, *[ACTIVE] * 5)
    assert registry.move(run, "b")
    time = Time(lambda: come_back(former, was, time.slept))
    owned = owned_on("b", tmp_path / "state", run, time)
    next_one, now = Driver(run.directory), Running(owned, ACTIVE)

    def start() -> Running:
        owned.claim()
        return now

    monkeypatch.setattr(next_one, "_start", start)
    code = next_one.main()
    held.close()
    owned.close()
    return code, was, now


def test_a_driver_that_comes_back_in_the_middle_of_the_watch_ends(
    registry: Registry, run: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def come_back(former: Driver, was: Running, slept: float) -> None:
        if slept == 10:
            was.owned.beat()  # which is faster than the driver's look
        if slept == 12:
            former._follow(was)  # type: ignore[arg-type]

    token = (run.directory / "token").read_text()
    code, was, now = taken_over(registry, run, tmp_path, come_back, monkeypatch)
    assert (run.directory / "token").read_text() != token, "each driver draws its own"
    assert (was.is_stopped, now.is_stopped) == (True, False)
    assert (code, registry.reload(run).status) == (0, COMPLETED)


def test_a_driver_that_does_not_see_the_registry_leaves_the_run_to_be_started_again(
    registry: Registry, run: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def come_back(former: Driver, was: Running, slept: float) -> None:
        if slept % 5 == 0:
            was.owned.beat()

    code, was, _ = taken_over(registry, run, tmp_path, come_back, monkeypatch)
    ended = registry.reload(run)
    assert (code, was.is_stopped, ended.state.status) == (1, False, "FAILED")
    assert "still held by process" in ended.state.reason
    assert ended.state.may_restart, "though it has never committed"
    assert is_wanted(ended)


def test_a_driver_begins_nothing_once_its_run_is_anothers(
    registry: Registry, run: RunRecord
) -> None:
    former = Driver(run.directory)
    assert registry.move(run, "b")
    before = read_json(run.directory / "state.json"), (run.directory / "token").read_text()
    assert former.main() == 1  # it would have failed otherwise: there is no such engine
    after = read_json(run.directory / "state.json"), (run.directory / "token").read_text()
    assert after == before


def test_a_driver_that_starts_in_the_moment_of_a_takeover_knows_whose_it_is(
    registry: Registry, run: RunRecord
) -> None:
    class Late:
        """A driver that comes up once the other host has its run."""

        def __init__(self, directory: Path, host: str) -> None:
            assert registry.move(run, "b")
            write_json(directory / "state.json", {"status": ACTIVE, "batch": 9})
            self._driver = Driver(directory, host)

        def wait(self) -> int:
            return self._driver.main()

        def stop(self) -> None: ...

    starts: list[str] = []

    def start(directory: Path, host: str) -> Late:
        starts.append(host)
        return Late(directory, host)

    Supervisor(run.directory, "a", start=start, pause=lambda secs: None).run()
    assert starts == ["a"]
    assert read_json(run.directory / "state.json") == {"status": ACTIVE, "batch": 9}
    assert registry.reload(run).submission.host == "b"


def test_a_process_of_the_former_host_waits_for_no_lock_of_the_other_ones(
    registry: Registry, run: RunRecord
) -> None:
    assert registry.move(run, "b")
    with held(run.directory / "driver.lock", run.directory / "supervisor.lock"):
        assert driver_process(run.directory, "a") == 1
        supervisor_process(run.directory, "a")


BOTH = """
import runpy
for module in ("supervisor", "driver"):
    runpy.run_module(f"topo.manage.{module}", run_name="__main__")
"""


def test_a_supervisor_from_before_an_upgrade_names_no_host(run: RunRecord) -> None:
    """It starts the drivers of the new code, as a `topo up` does its supervisors."""
    write_json(run.directory / "wanted.json", {"status": "KILLED"})
    done = subprocess.run(
        [sys.executable, "-c", BOTH, str(run.directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert read_state(run.directory).status == "KILLED"


def test_what_is_damaged_is_no_other_hosts(run: RunRecord) -> None:
    former = Driver(run.directory)
    (run.directory / "submission.json").write_text("[]")
    former._remember("ACTIVE")
    assert read_json(run.directory / "wanted.json") == {"status": "ACTIVE"}
    write_json(run.directory / "submission.json", {"host": "b"})
    former._remember("KILLED")
    assert read_json(run.directory / "wanted.json") == {"status": "ACTIVE"}


def test_settings_that_a_driver_stores_do_not_undo_a_takeover(
    registry: Registry, run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other host takes the run over between the driver's look and its write."""
    former = Driver(run.directory)
    assert former._write_conf({"topology.workers": 3})
    exclusive = Registry.exclusive

    def late(self: Registry) -> AbstractContextManager[None]:
        monkeypatch.undo()
        assert registry.move(run, "b")
        return exclusive(self)

    monkeypatch.setattr(Registry, "exclusive", late)
    assert not former._write_conf({"topology.workers": 4})
    found = registry.reload(run).submission
    assert (found.host, found.workers, found.conf) == ("b", 3, {"topology.workers": 3})
    running = Running(Ownership("x", "words", run.id, directory=run.directory), ACTIVE)
    former._follow(running)  # type: ignore[arg-type]
    assert running.is_stopped


def test_settings_that_cannot_be_stored_end_nothing(
    registry: Registry, run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Registry, submission: Submission) -> bool:
        raise RegistryError("no space left on device")

    former = Driver(run.directory)
    monkeypatch.setattr(Registry, "amend", fail)
    assert former._write_conf({"topology.workers": 3})
    assert former.submission.workers == 3
