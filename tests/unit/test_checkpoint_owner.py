"""One checkpoint has one owner: who is refused, who takes over, who finds itself fenced."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_control_registry import held
from topo.errors import CheckpointError
from topo.storage import ownership
from topo.storage.checkpoints import LOCK_FILE, OWNER_FILE, PLAN_FILE
from topo.storage.ownership import (
    BEAT_SECS,
    LEASE_SECS,
    SAME_RUN_SECS,
    LocalOwnerFile,
    OwnerRecord,
    Ownership,
    Sighting,
    StillHeld,
    owner_of,
)
from topo.storage.trust import ON_A_CLUSTER, UnwritablePlace


class SharedFile:
    """A file on storage that no lock reaches."""

    def __init__(self) -> None:
        self.text: str | None = None

    def read(self) -> str | None:
        return self.text

    def write(self, text: str) -> None:
        self.text = text


class Time:
    """Time that passes by sleeping; what else happens meanwhile is `each`."""

    def __init__(self, each: Callable[[], Any] = lambda: None) -> None:
        self.slept = 0.0
        self.each = each

    def __call__(self, secs: float) -> None:
        self.slept += secs
        self.each()


def shared(file: SharedFile, run: str, time: Time, machine: str = "") -> Ownership:
    """A driver on a machine of its own, by default."""
    owned = Ownership("s3a://b/state", f"topology of {run}", run, file=file, sleep=time)
    owned._record = replace(owned._record, machine=machine or f"machine of {run}", host=run)
    return owned


def local(directory: Path, run: str, time: Time | None = None) -> Ownership:
    return Ownership(str(directory), "orders", run, directory=directory, sleep=time or Time())


def test_a_second_driver_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    first = local(tmp_path / "state", "orders-1").claim()
    with pytest.raises(CheckpointError, match=r"'orders' \(run orders-1, process \d+ on .*runs"):
        local(tmp_path / "state", "orders-2").claim()
    first.confirm()
    first.close()
    second = local(tmp_path / "state", "orders-2").claim()
    found = owner_of(tmp_path / "state")
    assert found is not None
    assert (found.run, found.generation) == ("orders-2", 2)
    second.close()


def test_a_place_that_cannot_be_made_or_written_to_is_told_of(tmp_path: Path) -> None:
    """As an error that another start may not meet."""
    (tmp_path / "file").touch()
    (tmp_path / "odd" / OWNER_FILE).mkdir(parents=True)
    for place in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "odd"):
        with pytest.raises(UnwritablePlace, match="the checkpoint cannot be written: ") as refused:
            local(place, "a").claim()
        assert refused.value.at == str(place)


def test_another_process_that_has_it_is_asked_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_bytes(b"")
    time = Time()
    with held(tmp_path / LOCK_FILE) as process:
        with pytest.raises(CheckpointError, match="of a topology that runs"):
            local(tmp_path, "b", time).claim()
        process.kill()
        process.wait()
        local(tmp_path, "b", time).claim().close()
    assert time.slept == 0, "the kernel knows at once"


def test_a_dead_owner_of_this_machine_is_followed_at_once(tmp_path: Path) -> None:
    dead = local(tmp_path, "a").claim()
    dead._unlock()  # as the kernel does
    time = Time()
    local(tmp_path, "b", time).claim().close()
    assert time.slept == 0
    dead.close()


def test_an_owner_on_another_machine_is_watched_for_its_lease() -> None:
    file = SharedFile()
    first = shared(file, "a", Time()).claim()
    time = Time()
    second = shared(file, "b", time).claim()
    assert LEASE_SECS <= time.slept < LEASE_SECS + 5
    with pytest.raises(CheckpointError, match=r"was taken over by 'topology of b' \(run b"):
        first.confirm()
    with pytest.raises(CheckpointError, match="taken over"):
        first.check()
    second.confirm()
    first.close()
    second.confirm()
    second.close()


def test_an_owner_that_beats_is_not_taken_over() -> None:
    file = SharedFile()
    first = shared(file, "a", Time()).claim()
    with pytest.raises(CheckpointError, match=r"is the checkpoint of 'topology of a'"):
        shared(file, "b", Time(first.beat)).claim()
    first.confirm()
    first.close()
    time = Time()
    shared(file, "b", time).claim().close()
    assert time.slept < LEASE_SECS, "it was given free in order"


def test_the_next_driver_of_the_same_run_does_not_wait() -> None:
    file = SharedFile()
    shared(file, "a", Time()).claim()  # and it is killed
    time = Time()
    again = shared(file, "a", time, machine="another").claim()
    assert time.slept < LEASE_SECS
    again.close()


def test_another_host_that_starts_the_same_run_waits_for_the_lease() -> None:
    """Two that supervise one run see each other by its checkpoint alone."""
    file = SharedFile()
    first = shared(file, "a", Time()).claim()
    time = Time(first.beat)
    second = shared(file, "a", time)
    second._record = replace(second._record, host="another")
    with pytest.raises(StillHeld, match=r"is still held by process \d+ on a, which had this run"):
        second.claim()
    assert time.slept < 2 * LEASE_SECS + SAME_RUN_SECS, "nobody waits for ever"
    first.confirm()
    first.close()


@pytest.mark.parametrize("is_local", [False, True])
def test_a_former_host_that_comes_back_has_time_to_see_it_and_end(
    tmp_path: Path, is_local: bool
) -> None:
    """It beats in the middle of the watch, and again, before it looks at the registry."""
    file = LocalOwnerFile(tmp_path) if is_local else SharedFile()
    first = Ownership("x", "orders", "a", file=file, sleep=Time())
    first._record = replace(first._record, host="former", machine="another")
    first.claim()

    def come_back() -> None:
        if time.slept in (10.0, 15.0):
            first.beat()
        if time.slept == 18:
            first.close()

    time = Time(come_back)
    (tmp_path / LOCK_FILE).write_bytes(b"")
    with held(tmp_path / LOCK_FILE):
        directory = tmp_path if is_local else None
        second = Ownership("x", "orders", "a", directory=directory, file=file, sleep=time)
        second._record = replace(second._record, host="next")
        second.claim()
    assert 18 <= time.slept < 20, "it need not run out, if it is given free"
    with pytest.raises(CheckpointError, match="taken over"):
        first.confirm()
    second.confirm()
    second.close()


def test_a_run_that_was_moved_here_waits_for_less() -> None:
    """Whoever moved it has waited for its former host."""
    file = SharedFile()
    first = shared(file, "a", Time()).claim()
    time = Time()
    second = shared(file, "a", time)
    second._record = replace(second._record, host="another")
    second.claim()
    assert 2 * BEAT_SECS < SAME_RUN_SECS <= time.slept < LEASE_SECS
    with pytest.raises(CheckpointError, match="taken over"):
        first.confirm()
    first.close()
    second.close()


@pytest.mark.parametrize("beats", [False, True])
def test_who_has_seen_the_owner_before_waits_for_the_rest_of_its_lease(
    tmp_path: Path, beats: bool
) -> None:
    """Spark starts between the first look and the claim."""
    elsewhere = OwnerRecord("a", "orders", "gone", 7, "its machine", "then", 3, "its claim")
    file = LocalOwnerFile(tmp_path)
    file.write(json.dumps(asdict(elsewhere)))
    clock = [100.0]
    sighting = Sighting.of(str(tmp_path), lambda: clock[0])
    clock[0] += 20
    if beats:
        file.write(json.dumps(asdict(replace(elsewhere, beat=1))))
    time = Time()
    second = Ownership(
        str(tmp_path), "orders", "b", directory=tmp_path, sleep=time, sighting=sighting
    )
    second.claim().close()
    assert time.slept == (LEASE_SECS if beats else LEASE_SECS - 20)


@pytest.mark.parametrize("path", ["", "s3a://b/state", "/nowhere"])
def test_what_cannot_be_seen_before_spark_starts_is_waited_for(path: str) -> None:
    sighting = Sighting.of(path, lambda: 100.0)
    assert sighting is None or sighting.record is None


@pytest.mark.parametrize("run", ["a", "b"])
def test_a_lock_of_another_host_counts_as_long_as_that_beats(tmp_path: Path, run: str) -> None:
    """A file system's server may keep the locks of a silent host for minutes."""
    elsewhere = OwnerRecord("a", "orders", "gone", 7, "its machine", "then", 3, "its claim")
    file = LocalOwnerFile(tmp_path)
    file.write(json.dumps(asdict(elsewhere)))
    (tmp_path / LOCK_FILE).write_bytes(b"")
    with held(tmp_path / LOCK_FILE):

        def beat() -> None:
            file.write(json.dumps(asdict(replace(elsewhere, beat=int(1000 * time.slept)))))

        time = Time(beat)
        refused = StillHeld if run == "a" else CheckpointError
        with pytest.raises(refused, match="process 7 on gone"):
            local(tmp_path, run, time).claim()
        time = Time()
        taken = local(tmp_path, run, time).claim()
        lease = SAME_RUN_SECS if run == "a" else LEASE_SECS
        assert lease <= time.slept < lease + 5
        found = owner_of(tmp_path)
        assert found is not None
        assert found.generation == 4
        with pytest.raises(CheckpointError, match="of 'orders'"):
            local(tmp_path, "c").claim()
        taken.close()


@pytest.mark.parametrize("run", ["a", "b"])
def test_a_lock_of_another_container_counts_though_its_driver_stands_still(
    tmp_path: Path, run: str
) -> None:
    """It has another name of its host, and another namespace of processes, under one kernel."""
    boot = ownership._machine().split()[0]
    beside = OwnerRecord("a", "orders", "container", 7, f"{boot} pid:[1]", "then", 3, "its claim")
    LocalOwnerFile(tmp_path).write(json.dumps(asdict(beside)))
    (tmp_path / LOCK_FILE).write_bytes(b"")
    time = Time()
    refused = StillHeld if run == "a" else CheckpointError
    with held(tmp_path / LOCK_FILE), pytest.raises(refused, match="7 on container"):
        local(tmp_path, run, time).claim()
    assert (time.slept, owner_of(tmp_path)) == (0, beside)


def test_a_dead_process_of_this_machine_is_known_without_a_lock() -> None:
    file = SharedFile()
    machine = ownership._machine()
    first = shared(file, "a", Time(), machine)
    first._record = replace(first._record, started="of a process that is gone")
    first.claim()
    time = Time()
    shared(file, "b", time, machine).claim().close()
    assert time.slept < LEASE_SECS
    first.close()


def test_a_driver_that_wakes_up_stops_though_it_wrote_once_more() -> None:
    """It looked before the other one claimed, and wrote after that."""
    file = SharedFile()
    first = shared(file, "a", Time()).claim()
    old = file.text
    second = shared(file, "b", Time()).claim()
    file.text = old  # what it wrote last goes over the other's
    second.beat()
    first.beat()
    with pytest.raises(CheckpointError, match="taken over"):
        first.check()
    second.confirm()
    first.close()
    second.close()


@settings(max_examples=40)
@given(st.integers(2, 4), st.randoms(use_true_random=False))
def test_of_drivers_that_claim_at_once_one_is_left(count: int, random: Any) -> None:
    """Whatever the order of their reads and writes, beats included."""
    file = SharedFile()
    claimed = []
    for number in range(count):
        owned = shared(file, str(number), Time())
        owned._record = replace(owned._record, generation=1)
        owned._write()
        claimed.append(owned)
    for _ in range(4 * count):
        owned = random.choice(claimed)
        owned.beat()
    for owned in claimed * 2:  # the strongest writes at the latest in the first round
        owned.beat()
    alive = [owned for owned in claimed if owned._fenced is None]
    assert len(alive) == 1


def test_a_checkpoint_that_is_deleted_fences_its_owner(tmp_path: Path) -> None:
    owned = local(tmp_path / "state", "a").claim()
    (tmp_path / "state" / OWNER_FILE).unlink()
    with pytest.raises(CheckpointError, match="has been deleted, or replaced"):
        owned.confirm()
    owned.close()
    assert not (tmp_path / "state" / OWNER_FILE).exists()


@pytest.mark.parametrize("torn", ["", "{", '{"run": "a"}', "[]", "\0\0\0"])
def test_a_torn_record_is_that_of_nobody(tmp_path: Path, torn: str) -> None:
    (tmp_path / OWNER_FILE).write_text(torn)
    owned = local(tmp_path, "a").claim()
    (tmp_path / OWNER_FILE).write_text(torn)
    with pytest.raises(CheckpointError, match="is damaged, so nobody knows whose it is"):
        owned.confirm()
    owned.beat()
    owned.confirm()
    owned.close()


def test_a_record_that_cannot_be_read_for_a_moment_fences_nobody(tmp_path: Path) -> None:
    time = Time()
    owned = local(tmp_path, "a", time).claim()
    whole = (tmp_path / OWNER_FILE).read_text()
    (tmp_path / OWNER_FILE).write_text("{")
    time.each = lambda: (tmp_path / OWNER_FILE).write_text(whole)
    owned.confirm()
    assert 0 < time.slept < 1
    owned.close()


def test_two_names_of_one_directory_are_one_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    owned = local(tmp_path / "state", "a").claim()
    with pytest.raises(CheckpointError, match="is the checkpoint of"):
        local(tmp_path / "link", "b").claim()
    owned.close()


def test_state_of_another_user_is_not_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / PLAN_FILE).write_text("{}")
    local(tmp_path, "a").claim().close()

    class Theirs(LocalOwnerFile):
        def write(self, text: str) -> None:
            super().write(text)
            real = Path.stat

            def stat(path: Path, **more: Any) -> Any:
                found = real(path, **more)
                other = path.name == PLAN_FILE
                return os.stat_result([*found[:4], 4711 if other else found[4], *found[5:]])

            monkeypatch.setattr(Path, "stat", stat)

    owned = Ownership(
        str(tmp_path), "orders", "b", directory=tmp_path, file=Theirs(tmp_path), sleep=Time()
    )
    with pytest.raises(CheckpointError, match="written by another user"):
        owned.claim()


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("open_umask")
def test_a_checkpoint_is_its_users_alone_under_any_umask(tmp_path: Path) -> None:
    place = tmp_path / "state"
    local(place, "a").claim().close()
    assert mode_of(place) == 0o700
    assert mode_of(place / OWNER_FILE) == 0o644
    os.umask(0o022)
    shared = tmp_path / "shared"
    claim = Ownership(str(shared), "orders", "a", directory=shared, forbidden=ON_A_CLUSTER)
    claim.claim().close()
    assert mode_of(shared) == 0o755


@pytest.mark.parametrize("name", ["", PLAN_FILE, "state", "topo-epochs"])
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o702])
def test_nothing_is_restored_that_others_may_write(tmp_path: Path, name: str, mode: int) -> None:
    place = tmp_path / "state"
    local(place, "a").claim().close()
    for directory in ("state", "topo-epochs"):
        (place / directory).mkdir()
    (place / PLAN_FILE).write_text("{}")
    local(place, "b").claim().close()
    (place / name).chmod(mode)
    with pytest.raises(CheckpointError, match=f"others may write .* mode is {mode:o}") as refused:
        local(place, "c").claim()
    assert f"chmod -R go-rwx {place}" in refused.value.hint
    (place / name).chmod(mode & 0o700)
    local(place, "d").claim().close()


def test_the_group_may_write_what_the_workers_of_a_cluster_write(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_text("{}")
    (tmp_path / "state").mkdir()
    for path in (tmp_path, tmp_path / "state", tmp_path / PLAN_FILE):
        path.chmod(0o770)

    def claim() -> None:
        place = Ownership(str(tmp_path), "t", "a", directory=tmp_path, forbidden=ON_A_CLUSTER)
        place.claim().close()

    claim()
    for path in (tmp_path, tmp_path / PLAN_FILE):
        path.chmod(0o777)
        with pytest.raises(CheckpointError, match=f"others may write {path} "):
            claim()
        path.chmod(0o770)


def test_a_batch_that_was_committed_is_remembered_by_the_next_owner(tmp_path: Path) -> None:
    first = local(tmp_path, "a").claim()
    assert first.committed == -1
    first.note_committed(12)
    first.beat()
    first._unlock()  # as the kernel does
    second = local(tmp_path, "b").claim()
    assert second.committed == 12
    second.note_committed(30)
    second.close()
    third = local(tmp_path, "c").claim()
    assert third.committed == 30
    third.close()
    first.close()


def test_the_beat_goes_on_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "BEAT_SECS", 0.001)
    beaten = threading.Event()

    class Noting(LocalOwnerFile):
        def write(self, text: str) -> None:
            super().write(text)
            if '"beat": 3' in text:
                beaten.set()
            if '"beat": 1,' in text:
                raise OSError("the storage was away for a moment")

    owned = Ownership("x", "orders", "a", directory=tmp_path, file=Noting(tmp_path)).claim()
    assert beaten.wait(60)
    owned.close()
    found = owner_of(tmp_path)
    assert found is not None
    assert found.released
