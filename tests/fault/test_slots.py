"""Slots of real-time mode die, stand still or find the disk full, and nothing is lost or doubled.

TOPO_KILLS=300 kills 300 times instead of a few times.
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.fault.exactly_once import END, check_result, topology
from tests.fault.spark_processes import KEYS, pause
from tests.fault.without_spark import Slots
from topo.engine.spark.realtime.store import LogFailed

pytestmark = pytest.mark.fault
KILLS = int(os.environ.get("TOPO_KILLS", "0")) or 6
CONF: dict[str, Any] = {"topology.message.timeout.secs": 600}


def append(directory: Path, lines: list[str]) -> None:
    with (directory / "log").open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


@pytest.mark.timeout(120 + 10 * KILLS)
def test_what_is_counted_is_what_was_emitted_whoever_dies(tmp_path: Path) -> None:
    append(tmp_path, [])
    with closing(Slots(topology(str(tmp_path)), tmp_path / "epochs", **CONF)) as slots:
        slots.start()
        for number in range(KILLS):
            append(tmp_path, random.choices(KEYS, k=60))
            slots.await_epochs()
            pause(random.random() / 4)
            victim = random.choice(slots.processes)
            if number % 3 == 2:  # it stands still for a while, and the epoch with it
                victim.send_signal(signal.SIGSTOP)
                append(tmp_path, random.choices(KEYS, k=60))
                pause(0.5)
                victim.send_signal(signal.SIGCONT)
                slots.await_epochs()
                assert not slots.failed.is_set()
                continue
            victim.kill()
            assert slots.failed.wait(30)
            slots.stop()
            slots.start()
        append(tmp_path, [END])
        slots.finish()
    figures = check_result(tmp_path)
    assert figures["failed"] == 0  # what was pending is still known after a death


def test_a_full_disk_ends_the_acks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, random.choices(KEYS, k=60))
    with closing(Slots(topology(str(tmp_path)), tmp_path / "epochs", **CONF)) as slots:
        slots.start()
        slots.await_epochs()
        with monkeypatch.context() as patched:
            patched.setattr(slots.store, "append", full)
            append(tmp_path, random.choices(KEYS, k=60))
            assert slots.failed.wait(30)
        assert isinstance(slots.coordinator.failure, LogFailed)
        slots.stop()
        slots.start()
        append(tmp_path, [END])
        slots.finish()
    check_result(tmp_path)


def full(*_: object) -> None:
    raise LogFailed("the log of epochs cannot be written, so nothing is acked: disk full")
