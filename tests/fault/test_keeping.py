"""`topo up` after a reboot: what ran runs again, what was ended stays ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fault.homes import Home, end, until

pytestmark = pytest.mark.fault


@contextmanager
def up() -> Iterator[subprocess.Popen[bytes]]:
    """The keeper, as systemd starts it."""
    command = [sys.executable, "-m", "topo.cli", "up"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"keeping the topologies of ")
        try:
            yield process
        finally:
            process.terminate()
            assert process.wait(90) == 0


def reboot(home: Home) -> None:
    """Nobody is told of it, and nothing is left but the files."""
    for run in home.registry.runs():
        end(run.supervisor_pid)
        end(run.driver_pid)
    until(lambda: not any(run.driver_alive or run.supervisor_alive for run in home.registry.runs()))


def due(home: Home) -> list[str]:
    return [str(each) for each in json.loads(home.topo("up", "--once", "--json"))]


def test_what_ran_runs_again_after_a_reboot(home: Home) -> None:
    home.submit()
    first = home.run
    assert due(home) == [], "it has a supervisor"
    reboot(home)
    assert home.run.status == "FAILED"
    assert due(home) == [first.id]
    assert home.topo("up", "--once") == f"{first.id}\n"
    with up():
        until(lambda: home.run.status == "ACTIVE" and home.run.driver_alive)
        assert home.run.id == first.id
        assert home.run.submission.checkpoint == first.submission.checkpoint
        pid = home.run.driver_pid
        end(pid)
        until(lambda: home.run.status == "ACTIVE" and home.run.driver_pid not in (None, pid))
    until(lambda: not home.run.driver_alive)
    assert due(home) == [first.id], "it was stopped with the machine, and not killed"
    with up():
        until(lambda: home.run.status == "ACTIVE" and home.run.driver_alive)
        home.topo("kill", "words", "-w", "0")
        until(lambda: not home.run.supervisor_alive)
        assert due(home) == []
    assert home.topo("up", "--once") == "Nothing to start.\n"


def test_what_was_ended_or_gave_up_stays_so(home: Home) -> None:
    home.submit()
    home.say(complete=True)
    until(lambda: home.run.status == "COMPLETED")
    assert due(home) == []
    home.say()
    home.submit("--fresh")
    home.say(**{"raise": "user"})
    until(lambda: home.run.status == "FAILED")
    assert due(home) == []


def test_the_end_of_one_by_force_ends_no_other(home: Home) -> None:
    home.submit()
    home.submit("-n", "others")
    reboot(home)
    with up() as keeper:
        until(lambda: all(run.status == "ACTIVE" for run in home.registry.runs()))
        home.topo("kill", "--force", "words")
        others = home.registry.latest("others")
        assert others is not None
        assert (others.status, keeper.poll()) == ("ACTIVE", None)


def test_health_and_readiness_are_asked_of_the_driver(home: Home) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def asked(page: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    home.submit("-c", f"topology.metrics.bind=127.0.0.1:{port}")
    assert asked("healthz") == asked("readyz") == (200, "ACTIVE\n")
    home.say(status="STALLED", reason="no broker answers")
    assert asked("healthz") == (200, "STALLED: no broker answers\n"), "a new start helps nobody"
    assert asked("readyz") == (503, "STALLED: no broker answers\n")


@pytest.mark.parametrize("kind", [[], ["--user"], ["--standby"]])
def test_the_unit_for_systemd_is_one(home: Home, tmp_path: Path, kind: list[str]) -> None:
    text = home.topo("export", "systemd", *kind)
    assert f"Environment=TOPO_HOME={home.registry.home}" in text
    assert text == json.loads(home.topo("export", "systemd", *kind, "--json"))["text"]
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "topo.service"
    unit.write_text(text)
    checked = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    rated = [analyze, "security", "--offline=true", "--threshold=50", str(unit)]
    assert subprocess.run(rated, capture_output=True, check=False).returncode == 0


def test_systemd_is_told_when_it_is_ready(home: Home, tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(path)
        notified.settimeout(60)
        command = [sys.executable, "-m", "topo.cli", "up"]
        process = subprocess.Popen(
            command, env={**os.environ, "NOTIFY_SOCKET": path}, stderr=subprocess.DEVNULL
        )
        assert notified.recv(100) == b"READY=1"
        process.send_signal(signal.SIGTERM)
        assert notified.recv(100) == b"STOPPING=1"
        assert process.wait(60) == 0
