"""The hosts that keep one registry: who counts as gone, and who takes over what it had."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.test_control_registry import held, make
from topo.manage.beats import BEAT_SECS, GONE_SECS, LOOK_SECS, UNSEEN_SECS, Beats, Stillness
from topo.manage.files import lock_holder, read_json, write_json
from topo.manage.keeping import Keeper, should_run
from topo.manage.records import State, read_submission
from topo.manage.registry import Registry
from topo.manage.supervisor import Supervisor


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def beats(home: Path, host: str, clock: Clock) -> Beats:
    return Beats(home, host, clock)


def watched(seeing: Beats, clock: Clock, secs: float = GONE_SECS) -> set[str]:
    """Look for so long, and return who is silent then."""
    for _ in range(round(secs)):
        seeing.silent()
        clock.now += 1
    return seeing.silent()


def test_a_host_is_gone_once_its_beat_has_stood_still(tmp_path: Path) -> None:
    clock = Clock()
    first, second = beats(tmp_path, "a", clock), beats(tmp_path, "b", clock)
    for _ in range(10):
        first.beat()
        second.beat()
        assert second.silent() == set()
        clock.now += BEAT_SECS
    assert watched(second, clock, GONE_SECS - BEAT_SECS - 1) == set()
    assert watched(second, clock, 1) == {"a"}, "and not itself, which has not beaten either"
    first.beat()
    assert second.silent() == set(), "it is back"


def test_who_looks_for_the_first_time_waits_as_well(tmp_path: Path) -> None:
    clock = Clock()
    beats(tmp_path, "a", clock).beat()
    clock.now += 1000
    second = beats(tmp_path, "b", clock)
    assert second.silent() == set()
    assert watched(second, clock) == {"a"}


@pytest.mark.parametrize("raises", [False, True])
def test_an_outage_of_the_storage_is_nobodys_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    """Over it a look stands still, or finds nothing it can read; then all beat again, in turn."""
    clock = Clock()
    first, second = beats(tmp_path, "a", clock), beats(tmp_path, "b", clock)
    first.beat()
    assert watched(second, clock, GONE_SECS - 2) == set()
    if raises:
        with monkeypatch.context() as away:
            away.setattr("topo.manage.beats.read_json", refused)
            watched(second, clock, UNSEEN_SECS + 1)
    else:
        clock.now += UNSEEN_SECS + 1
    assert second.silent() == set(), "it has been watched for less than its time"
    assert watched(second, clock, GONE_SECS - 1) == set()
    assert watched(second, clock, 1) == {"a"}, "it was silent all the time"


def test_a_look_that_comes_late_now_and_then_is_one(tmp_path: Path) -> None:
    clock = Clock()
    first, second = beats(tmp_path, "a", clock), beats(tmp_path, "b", clock)
    first.beat()
    second.silent()
    for _ in range(round(GONE_SECS / LOOK_SECS / 3) + 1):
        clock.now += UNSEEN_SECS
        silent = second.silent()
    assert silent == {"a"}


def refused(path: Path) -> None:
    raise OSError("stale file handle")


def test_a_host_that_was_stopped_in_order_is_not_gone(tmp_path: Path) -> None:
    clock = Clock()
    first, second = beats(tmp_path, "a", clock), beats(tmp_path, "b", clock)
    first.stop()
    assert watched(second, clock, 3 * GONE_SECS) == set()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 7}', '{"beat": 1}'])
def test_a_damaged_beat_is_none(tmp_path: Path, text: str) -> None:
    clock = Clock()
    seeing = beats(tmp_path, "b", clock)
    seeing.beat()
    (tmp_path / "hosts" / "a.json").write_text(text)
    assert watched(seeing, clock) == set()


@pytest.mark.parametrize("name", ["../up", "a/b", ".", "w1.example"])
def test_the_name_of_a_host_is_no_path(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    clock = Clock()
    beats(home, name, clock).beat()
    seeing = beats(home, "b", clock)
    assert watched(seeing, clock) == {name}
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_run_that_moves_leaves_its_locks_behind(tmp_path: Path) -> None:
    """A file system's server may keep the locks of a silent host for minutes."""
    registry = Registry(tmp_path)
    run = make(registry)
    run = replace(run, submission=replace(run.submission, host="a", submitted_at=1.0))
    write_json(run.directory / "submission.json", {**vars(run.submission)})
    write_json(run.directory / "state.json", {**vars(State("ACTIVE"))})
    with held(run.directory / "driver.lock", run.directory / "supervisor.lock"):
        assert not should_run(registry.reload(run), "b")
        assert registry.move(run, "b")
        assert lock_holder(run.directory / "driver.lock") is None
        assert should_run(registry.reload(run), "b")
        assert not registry.move(run, "c"), "somebody else was faster"
    assert read_submission(run.directory).host == "b"


@pytest.mark.parametrize(
    ("standby", "wanted", "lives", "host"),
    [
        (True, "", False, "b"),
        (False, "", False, "a"),
        (True, "KILLED", False, "a"),
        (True, "", True, "a"),  # its keeper was killed, and its driver writes on
    ],
)
def test_a_keeper_on_standby_takes_over_what_should_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    standby: bool,
    wanted: str,
    lives: bool,
    host: str,
) -> None:
    registry, clock = Registry(tmp_path), Clock()
    run = make(registry)
    write_json(run.directory / "submission.json", {**vars(run.submission), "host": "a"})
    write_json(run.directory / "state.json", {**vars(State("ACTIVE"))})
    write_json(run.directory / "wanted.json", {"status": wanted})
    told: list[str] = []
    keeper = Keeper(registry, told.append, "b", standby)
    keeper._beats, keeper._stillness = beats(tmp_path, "b", clock), Stillness(clock)
    monkeypatch.setattr(keeper, "due", list)
    beats(tmp_path, "a", clock).beat()
    keeper.look()
    for _ in range(4):
        clock.now += GONE_SECS / 4
        if lives:
            os.utime(run.directory / "state.json", (clock.now + 1e10, clock.now + 1e10))
        keeper.look()
    assert read_submission(run.directory).host == host
    assert told == ([f"{run.id}: a is silent; taking it over"] if host == "b" else [])


def test_only_a_keeper_that_was_told_to_end_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Defect(Exception):
        """The error of a keeper."""

    def fail() -> list[str]:
        raise Defect

    def stopped() -> object:
        return (read_json(tmp_path / "hosts" / "b.json") or {})["stopped"]

    keeper = Keeper(Registry(tmp_path), host="b")
    keeper.look()
    with monkeypatch.context() as broken:
        broken.setattr(keeper, "due", fail)
        with pytest.raises(Defect):
            keeper.keep()
    assert not stopped()
    keeper.stop()
    keeper.keep()
    assert stopped()


def test_a_keeper_outlives_its_storage_and_tells_of_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    keeper = Keeper(Registry(tmp_path), told.append, "b", True)
    is_away = iter([True, True, False, True])

    def runs() -> list[str]:
        match next(is_away, None):
            case True:
                refused(tmp_path)
            case None:
                keeper.stop()
        return []

    monkeypatch.setattr("topo.manage.keeping.LOOK_SECS", 0)
    monkeypatch.setattr(keeper, "due", runs)
    keeper.keep()
    assert told == ["looking at the registry: stale file handle; it is tried again"] * 2


def test_what_cannot_be_taken_over_keeps_nothing_else_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, clock = Registry(tmp_path), Clock()
    damaged = make(registry, host="a")
    (damaged.directory / "wanted.json").write_text("[")
    own = make(registry, "own", host="b", submitted_at=1.0)
    write_json(own.directory / "state.json", {**vars(State("ACTIVE"))})
    told: list[str] = []
    keeper = Keeper(registry, told.append, "b", True)
    keeper._beats, keeper._stillness = beats(tmp_path, "b", clock), Stillness(clock)
    starts: list[tuple[Path, str]] = []
    monkeypatch.setattr("topo.manage.keeping._start", lambda *what: starts.append(what))
    monkeypatch.setattr(registry, "move", lambda run, host: refused(run.directory))
    beats(tmp_path, "a", clock).beat()
    for _ in range(round(GONE_SECS) + 2):
        keeper._supervisors.clear()
        keeper.look()
        clock.now += 1
    assert set(starts) == {(own.directory, "b")}
    failed = f"{damaged.id}: taking it over: stale file handle; it is tried again"
    assert told.count(failed) == 1
    assert set(told) == {failed, f"{own.id}: starting it again"}


def test_the_former_hosts_supervisor_ends_and_writes_no_more(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    run = make(registry)

    class Fenced:
        """A driver that ends since another host has its checkpoint by now."""

        def wait(self) -> int:
            here = read_submission(run.directory)
            write_json(run.directory / "state.json", {**vars(State("ACTIVE", batch=9))})
            assert registry.move(replace(run, submission=here), "elsewhere")
            return 1

        def stop(self) -> None: ...

    starts: list[Path] = []

    def start(directory: Path, host: str) -> Fenced:
        starts.append(directory)
        return Fenced()

    Supervisor(run.directory, start=start, pause=lambda secs: None).run()
    assert len(starts) == 1
    state = read_json(run.directory / "state.json")
    assert state is not None
    assert (state["status"], state["batch"]) == ("ACTIVE", 9), "of the new host's driver"
