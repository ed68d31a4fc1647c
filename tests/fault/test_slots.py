"""Slots of real-time mode die, stand still or find the disk full, and nothing is lost or doubled.

TOPO_KILLS=300 kills 300 times instead of a few times. Two tests are about these tests: slots that
do not align, and starts that use what was not committed, have to be found out by them.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.disks import small_disk
from tests.fault import exactly_once, spark_processes
from tests.fault.exactly_once import END, check_result, topology
from tests.fault.spark_processes import KEYS, ROOT, pause, wait_until
from tests.fault.without_spark import Slots
from topo.engine.spark.process.spawn import SlotProcess
from topo.engine.spark.realtime.coordinator import SlotLost
from topo.engine.spark.realtime.epochs import EpochRecord, Epochs, Staged
from topo.engine.spark.realtime.records import Place, Places
from topo.engine.spark.realtime.store import EpochStore, LogFailed

pytestmark = pytest.mark.fault
KILLS = int(os.environ.get("TOPO_KILLS", "0")) or 3
CONF: dict[str, Any] = {"topology.message.timeout.secs": 600}


def append(directory: Path, lines: list[str]) -> None:
    with (directory / "log").open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


class FoundOut(Exception):
    """Slots failed, and not because one of them was killed."""


Kill: TypeAlias = Callable[[Path, Slots, SlotProcess], None]


def send(victim: SlotProcess, number: signal.Signals) -> None:
    """Send a signal to a slot's process alone."""
    os.kill(victim.pid, number)


def kill_at_random(directory: Path, slots: Slots, victim: SlotProcess) -> None:
    pause(random.random() / 4)
    send(victim, signal.SIGKILL)


def stop(directory: Path, slots: Slots, victim: SlotProcess) -> None:
    """Stop a slot's process while the other one begins the next epoch, which so stays in work."""
    send(victim, signal.SIGSTOP)
    append(directory, random.choices(KEYS, k=60))
    wait_until(slots.is_staging, "an epoch that some levels have staged")


def kill_before_it_is_committed(directory: Path, slots: Slots, victim: SlotProcess) -> None:
    stop(directory, slots, victim)
    send(victim, signal.SIGKILL)


@pytest.fixture
def kill_once_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> Kill:
    victims: list[SlotProcess] = []
    commit = Epochs.commit

    def killing(epochs: Epochs, record: EpochRecord) -> list[tuple[int, int, bytes]]:
        told = commit(epochs, record)
        while victims:
            send(victims.pop(), signal.SIGKILL)
        return told

    def kill(directory: Path, slots: Slots, victim: SlotProcess) -> None:
        stop(directory, slots, victim)
        append(directory, random.choices(KEYS, k=60))  # of the epoch after it
        pause(0.1)
        victims.append(victim)
        send(victim, signal.SIGCONT)

    monkeypatch.setattr(Epochs, "commit", killing)
    return kill


def count_over_deaths(
    directory: Path, deaths: int, kill: Kill = kill_at_random, job: Any = exactly_once
) -> dict[str, int]:
    """Kill and stop slots while they work; raise if the results are wrong.

    `job` is the module of a topology over the log, and of the check of its results.
    """
    append(directory, [])
    with closing(Slots(job.topology(str(directory)), directory / "epochs", **CONF)) as slots:
        slots.start()
        for number in range(deaths):
            append(directory, random.choices(KEYS, k=60))
            slots.await_epochs()
            victim = random.choice(slots.processes)
            if number % 3 == 2:  # it stands still for a while, and the epoch with it
                send(victim, signal.SIGSTOP)
                append(directory, random.choices(KEYS, k=60))
                pause(5.0 if number % 30 == 29 else 0.5)
                send(victim, signal.SIGCONT)
                slots.await_epochs()
            else:
                kill(directory, slots, victim)
                assert slots.failed.wait(30)
                failure = slots.coordinator.failure
                if getattr(failure, "code", "") != SlotLost.code:
                    raise FoundOut from failure
                slots.stop()
                slots.start()
            if slots.failed.is_set():
                raise FoundOut from slots.coordinator.failure
        append(directory, [END])
        slots.finish()
    result: dict[str, int] = job.check_result(directory)
    return result


@pytest.mark.timeout(120 + 10 * KILLS)
def test_what_is_counted_is_what_was_emitted_whoever_dies(tmp_path: Path) -> None:
    figures = count_over_deaths(tmp_path, KILLS)
    assert figures["failed"] == 0  # what was pending is still known after a death


def test_deaths_just_before_and_after_a_commit_change_nothing(
    tmp_path: Path, kill_once_it_is_committed: Kill
) -> None:
    for number, kill in enumerate((kill_before_it_is_committed, kill_once_it_is_committed)):
        each = tmp_path / str(number)
        each.mkdir()
        assert count_over_deaths(each, 4, kill)["failed"] == 0


UNALIGNED = """
from topo.engine.spark.realtime import align, level


class Unaligned(align.Alignment):
    def receive(self, source, item):
        if isinstance(item, align.Marker):
            self._ended[source] = item
        else:
            self._ready.append(item)


level.Alignment = Unaligned
"""


def test_slots_that_do_not_align_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_once_it_is_committed: Kill
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(UNALIGNED)  # of the slots' processes
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{ROOT}")
    assert is_found_out(tmp_path, kill_once_it_is_committed, monkeypatch)


def test_starts_that_use_what_was_not_committed_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncommitted: list[Staged] = []
    stage, commit, places_of = Epochs.stage, Epochs.commit, EpochStore.places

    def noting(epochs: Epochs, epoch: int, level: int, slot: int, staged: Staged) -> bool:
        uncommitted.append(staged)
        return stage(epochs, epoch, level, slot, staged)

    def forgetting(epochs: Epochs, record: EpochRecord) -> list[tuple[int, int, bytes]]:
        uncommitted.clear()
        return commit(epochs, record)

    def with_uncommitted(store: EpochStore, tasks: Collection[int]) -> Places:
        places = dict(places_of(store, tasks))
        file = store.directory / "uncommitted"
        with file.open("ab") as values:
            for staged in uncommitted:
                for key, blob in staged.puts.items():
                    if key[0] in tasks:
                        places[key] = Place(file.name, values.tell(), len(blob))
                        values.write(blob)
        return places

    monkeypatch.setattr(Epochs, "stage", noting)
    monkeypatch.setattr(Epochs, "commit", forgetting)
    monkeypatch.setattr(EpochStore, "places", with_uncommitted)
    assert is_found_out(tmp_path, kill_before_it_is_committed, monkeypatch)


def is_found_out(
    directory: Path, kill: Kill, monkeypatch: pytest.MonkeyPatch, job: Any = exactly_once
) -> bool:
    """Return True if what is wrong with the slots shows in at least one of some runs."""
    monkeypatch.setattr(spark_processes, "PATIENCE_SECS", 20.0)  # what is lost has no end
    for number in range(10):
        each = directory / str(number)
        each.mkdir()
        try:
            count_over_deaths(each, 6, kill, job)
        except (FoundOut, AssertionError):
            return True
    return False


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 2) as path:
        yield path


def test_a_full_disk_ends_the_acks(tmp_path: Path, disk: Path) -> None:
    append(tmp_path, random.choices(KEYS, k=60))
    for _ in range(3):
        with closing(Slots(topology(str(tmp_path)), disk / "epochs", **CONF)) as slots:
            slots.start()
            slots.await_epochs()
            filler = disk / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            while not slots.failed.wait(0.01):
                append(tmp_path, random.choices(KEYS, k=60))
            assert isinstance(slots.coordinator.failure, LogFailed)
        filler.unlink()
        append(tmp_path, random.choices(KEYS, k=60))
    with closing(Slots(topology(str(tmp_path)), disk / "epochs", **CONF)) as slots:
        slots.start()
        append(tmp_path, [END])
        slots.finish()
    check_result(tmp_path)
