"""The registry: what is on disk, who is alive, and what that makes of a run."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from topo.cli.kill import end_run
from topo.errors import RunError
from topo.manage.client import ControlClient, DriverUnreachable
from topo.manage.control import BOUND
from topo.manage.driver import Driver
from topo.manage.ending import ElsewhereError, begin_kill, force_end
from topo.manage.files import (
    lock_holder,
    read_json,
    write_atomically,
    write_json,
    write_json_if_possible,
)
from topo.manage.records import START_SECS, RegistryError, RunRecord, State, Submission, Supervision
from topo.manage.registry import KEPT_SECS, NameTaken, Registry
from topo.manage.service import DriverServer

HOLD = """
import sys
from pathlib import Path
from topo.manage.client import ControlClient, DriverUnreachable
from topo.manage.files import ProcessLock
locks = [ProcessLock(Path(name)) for name in sys.argv[1:]]
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(*paths: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds these locks."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, *map(str, paths)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def make(
    registry: Registry, name: str = "words", topology: bytes = b"topology", **changes: Any
) -> RunRecord:
    submission = Submission(
        id=(run_id := registry.new_id(name)),
        directory=str(registry.directory_of(run_id)),
        name=name,
        engine="x:y",
        master="local[*]",
        conf={},
        checkpoint="/nowhere",
        resumed=False,
        active=True,
        workers=2,
        tasks=3,
        code_directory="/code",
        submitted_at=time.time(),
    )
    with registry.exclusive():
        return registry.create(replace(submission, **changes), topology)


def say(run: RunRecord, **state: Any) -> None:
    write_json(run.directory / "state.json", asdict(State(**state)))


def supervise(run: RunRecord, **said: Any) -> None:
    write_json(run.directory / "supervisor.json", asdict(Supervision(**said)))


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "home")


def test_a_run_is_written_for_its_owner_only(registry: Registry) -> None:
    run = make(registry)
    assert run.submission == registry.reload(run).submission
    assert stat.S_IMODE(run.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((run.directory / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE((registry.home / "runs").stat().st_mode) == 0o700
    assert len((run.directory / "token").read_text()) == len(BOUND) + 64
    assert (run.directory / "topology.pb").read_bytes() == b"topology"


def test_an_empty_or_absent_registry_has_no_runs(registry: Registry) -> None:
    assert registry.runs() == []
    assert registry.latest("words") is None


def test_what_a_crashed_submit_left_is_no_run(registry: Registry) -> None:
    run = make(registry)
    run.directory.rename(run.directory.parent / f".{run.id}")
    (run.directory.parent / "words-half").mkdir()
    assert registry.runs() == []


def test_a_name_is_taken_until_its_run_is_over(registry: Registry) -> None:
    first = make(registry)
    with pytest.raises(NameTaken):
        make(registry)
    make(registry, "others")
    say(first, status="KILLED")
    second = make(registry)
    found = registry.latest("words")
    assert found is not None
    assert found.id == second.id
    by_id = registry.latest(first.id)
    assert by_id is not None
    assert by_id.id == first.id
    assert {run.name for run in registry.runs(all_of_them=False)} == {"words", "others"}


@pytest.mark.parametrize(
    ("state", "said", "driver", "supervisor", "status", "reason"),
    [
        ({"status": "STARTING"}, None, False, False, "STARTING", ""),
        ({"status": "ACTIVE"}, {}, True, True, "ACTIVE", ""),
        ({"status": "STALLED", "reason": "why"}, {}, True, True, "STALLED", "why"),
        (
            {"status": "ACTIVE"},
            {},
            True,
            False,
            "ACTIVE",
            "its supervisor is gone: it will not be started again if it dies",
        ),
        (
            {"status": "ACTIVE"},
            {"starts": 1, "last_failure": "its driver was ended by SIGKILL"},
            False,
            True,
            "STARTING",
            "its driver was ended by SIGKILL; start 2 follows",
        ),
        ({"status": "ACTIVE"}, {}, False, False, "FAILED", "its driver and its supervisor died"),
        ({"status": "KILLED"}, {}, False, False, "KILLED", ""),
        ({"status": "COMPLETED"}, {}, False, True, "COMPLETED", ""),
        (
            {"status": "FAILED", "reason": "user code", "may_restart": False},
            {},
            False,
            True,
            "FAILED",
            "user code",
        ),
        (
            {"status": "FAILED", "reason": "Spark"},
            {"starts": 2, "last_failure": "Spark"},
            False,
            True,
            "STARTING",
            "Spark; start 3 follows",
        ),
        (
            {"status": "FAILED", "reason": "Spark"},
            {"failures": 11, "last_failure": "Spark", "gave_up": True},
            False,
            False,
            "FAILED",
            "Spark; 11 failures in a row",
        ),
    ],
)
def test_what_is_known_of_a_run(
    registry: Registry,
    state: dict[str, Any],
    said: dict[str, Any] | None,
    driver: bool,
    supervisor: bool,
    status: str,
    reason: str,
) -> None:
    run = make(registry)
    say(run, **state)
    if said is not None:
        supervise(run, **said)
    alive = {"driver.lock": driver, "supervisor.lock": supervisor}
    with held(*(run.directory / name for name, is_alive in alive.items() if is_alive)):
        seen = registry.reload(run)
    assert (seen.status, seen.reason) == (status, reason)
    assert seen.over == (status in ("KILLED", "COMPLETED", "FAILED"))


def test_a_supervisor_that_never_came_up(registry: Registry) -> None:
    run = make(registry, submitted_at=time.time() - START_SECS - 1)
    assert registry.reload(run).status == "FAILED"


@pytest.mark.parametrize(("set_by", "status"), [(3600, "FAILED"), (1, "STARTING")])
def test_a_clock_that_was_set_back_since_a_submission(
    registry: Registry, set_by: float, status: str
) -> None:
    run = make(registry, submitted_at=time.time() + set_by)
    assert registry.reload(run).status == status


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert lock_holder(path) is None
    with held(path) as process:
        assert lock_holder(path) == process.pid
        assert lock_holder(path) == process.pid  # asking does not take it
        process.kill()
        process.wait()
        assert lock_holder(path) is None


def test_runs_that_ended_long_ago_are_forgotten(registry: Registry) -> None:
    old, recent = make(registry, "old"), make(registry, "recent")
    say(old, status="KILLED", since=time.time() - KEPT_SECS - 1)
    say(recent, status="KILLED", since=time.time() - KEPT_SECS + 60)
    make(registry, "new")
    assert [run.name for run in registry.runs()] == ["recent", "new"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})

    def crash(*args: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="full"):
        write_atomically(path, b"{")
    assert read_json(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["x.json"]
    assert read_json(tmp_path / "missing.json") is None


def test_a_registry_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistryError, match=r"cannot write to registry .*: not a directory"):
        make(Registry(tmp_path / "file" / "home"))


def test_a_registry_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(RegistryError, match=r"cannot read registry .*: not a directory"):
        Registry(tmp_path).runs()


def test_a_full_disk_while_submitting(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    make(registry, "before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RegistryError, match="no space left on device"):
        make(registry)
    monkeypatch.undo()
    assert [run.name for run in registry.runs()] == ["before"]


@pytest.mark.parametrize("garbage", [b"", b"{", b"[1]", b'{"unknown": 1}', b"\xff\x00"])
@pytest.mark.parametrize("name", ["state.json", "supervisor.json", "submission.json"])
def test_a_damaged_file_hides_no_other_run(registry: Registry, name: str, garbage: bytes) -> None:
    damaged, other = make(registry, "damaged"), make(registry, "other")
    (damaged.directory / name).write_bytes(garbage)
    found = {run.name: run.status for run in registry.runs()}
    # What its supervisor has written shows that there was one; now there is none.
    expected = "FAILED" if name == "supervisor.json" else "STARTING"
    assert found.pop("damaged", expected) == expected
    assert found == {other.name: "STARTING"}


def test_one_that_starts_again_says_after_what(registry: Registry) -> None:
    run = make(registry)
    said = asdict(Supervision(starts=2, failures=1, last_failure="no space left on device"))
    write_json(run.directory / "supervisor.json", said)
    with held(run.directory / "driver.lock", run.directory / "supervisor.lock"):
        assert registry.reload(run).reason == "starting, after: no space left on device"
        say(run, status="STARTING", reason="starting Spark")
        assert registry.reload(run).reason == "starting Spark, after: no space left on device"
        say(run, status="ACTIVE", reason="in its first batch")
        assert registry.reload(run).reason == "in its first batch"


def test_a_damaged_token(registry: Registry) -> None:
    run = make(registry)
    for garbage in (b"", b"\xff\x00", b"two\nlines"):
        (run.directory / "token").write_bytes(garbage)
        with pytest.raises(DriverUnreachable, match=r"the token of words is damaged.*--force"):
            ControlClient(run)


def test_what_utf_8_and_json_lack_stops_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(tmp_path / "errors.json", {"message": "cannot read caf\udce9.txt"})
    assert read_json(tmp_path / "errors.json") == {"message": "cannot read caf\udce9.txt"}
    circle: list[Any] = []
    circle.append(circle)
    for document in ({1j: 2}, {"x": object()}, circle):
        write_json_if_possible(tmp_path / "errors.json", document)
        assert "cannot write errors.json" in capsys.readouterr().err
    assert read_json(tmp_path / "errors.json") is not None


def test_what_was_killed_by_force_before_it_could_be_seen_does_not_begin(
    registry: Registry, tmp_path: Path
) -> None:
    place = tmp_path / "state"
    run = make(registry, checkpoint=str(place), engine="one that cannot be opened")
    assert not run.supervisor_alive
    killed = force_end(registry, run)
    assert (killed.status, killed.over) == ("KILLED", True)
    assert Driver(run.directory).main() == 0, "the driver comes up after that"
    assert (registry.reload(run).status, place.exists()) == ("KILLED", False)


def test_a_driver_that_fails_takes_its_address_back_before_its_port(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(registry)
    driver = Driver(run.directory)
    told: list[str] = []

    def fail() -> None:
        told.append(registry.reload(run).state.address)
        raise RunError("Spark died")

    def stop(self: DriverServer) -> None:
        told.append(registry.reload(run).state.address)
        stopped(self)

    stopped = DriverServer.stop
    monkeypatch.setattr(driver, "_start", fail)
    monkeypatch.setattr(DriverServer, "stop", stop)
    assert driver.main() == 1
    assert (told[0] != "", told[1]) == (True, "")


def test_a_driver_that_is_over_is_not_asked_any_more(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(registry)
    out: Any = SimpleNamespace(say=lambda text: None)
    runs: Any = SimpleNamespace(registry=registry)
    with socket.create_server(("127.0.0.1", 0)) as stranger, ExitStack() as driver:
        say(run, status="KILLED", address="{}:{}".format(*stranger.getsockname()))
        driver.enter_context(held(run.directory / "driver.lock"))
        naps = iter([lambda: None, driver.close])
        monkeypatch.setattr("topo.cli.kill.time.sleep", lambda secs: next(naps)())
        monkeypatch.setattr(ControlClient.__init__, "__kwdefaults__", {"timeout_secs": 0.1})
        end_run(out, runs, registry.reload(run))
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()


def test_a_supervisor_on_another_machine_is_not_signalled_here(registry: Registry) -> None:
    run = make(registry, host="elsewhere")
    supervise(run, starts=1, waiting_until=time.time() + 60)
    with held(run.directory / "supervisor.lock") as process:
        with pytest.raises(DriverUnreachable):
            begin_kill(registry, registry.reload(run), 0)
        with pytest.raises(ElsewhereError, match="runs on elsewhere"):
            force_end(registry, registry.reload(run))
        assert process.poll() is None
