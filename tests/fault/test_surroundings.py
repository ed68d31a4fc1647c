"""Failures of the environment of submitted topologies: ports, disks, other users of the machine."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.disks import small_disk
from tests.fault.homes import Home, end, until
from topo.cli.root import run as topo
from topo.manage.registry import Registry
from topo.manage.submit import SPARK

pytestmark = pytest.mark.fault

NOBODY = 65534


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_taken_port_for_the_ackers(
    home: Home, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = f"topology.acker.bind={taken}"
    said = home.topo("local", "numbers_topology.py", "-c", bind, code=5)
    error = said[said.index("error:") :]
    assert error == (
        f"error: cannot listen on {taken}: address already in use\n"
        "  at: topology.acker.bind\n"
        "  hint: is the port taken? port 0 takes any free one\n"
    )
    monkeypatch.setattr("topo.cli.submit.ENGINE", SPARK)
    said = home.submit("-c", bind, code=5)
    assert f"error: words FAILED: cannot listen on {taken}: address already in use\n" in said
    assert "hint: is the port taken? " in said
    until(lambda: not home.run.supervisor_alive)
    assert (home.run.status, home.run.driver_alive) == ("FAILED", False)


class Disk:
    """A small file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filling = path / "filling"

    def fill(self) -> None:
        with self._filling.open("wb", buffering=0) as file:
            for size in (4096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def free(self) -> None:
        self._filling.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", 1) as path:
        yield Disk(path)


@pytest.fixture
def home_on_disk(home: Home, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("TOPO_HOME", str(disk.path / "home"))
    home.registry = Registry(disk.path / "home")
    yield home
    home.clear()


def test_a_submit_onto_a_full_disk(home_on_disk: Home, disk: Disk) -> None:
    home = home_on_disk
    home.submit()
    home.topo("kill", "words")
    disk.fill()
    said = home.submit("-n", "more", code=5)
    assert f"error: cannot write to registry {disk.path / 'home'}: no space left on dev" in said
    assert "hint: set TOPO_HOME to a directory of yours, or free some space; topo doctor" in said
    assert [row["name"] for row in json.loads(home.topo("list", "--all", "--json"))] == ["words"]
    disk.free()
    assert ": ACTIVE after" in home.submit("-n", "more")


def test_a_disk_that_fills_while_a_topology_runs(home_on_disk: Home, disk: Disk) -> None:
    home = home_on_disk
    home.submit()
    disk.fill()
    home.say(batch=3)
    until(lambda: b"cannot write" in home.run.log.read_bytes() or _batch(home) == 3)
    assert home.topo("deactivate", "words") == "words: INACTIVE (was ACTIVE); spouts stopped\n"
    first = home.run
    end(first.driver_pid)  # which comes back all the same
    until(lambda: home.run.driver_pid not in (None, first.driver_pid))
    disk.free()
    until(lambda: home.run.status == "ACTIVE" and _batch(home) == 3)
    disk.fill()
    supervisor = home.run.supervisor_pid
    assert home.topo("kill", "words").startswith("killed words; ")
    until(lambda: home.run.supervisor_pid != supervisor)
    assert home.run.driver_pid is None
    disk.free()
    json.loads((first.directory / "state.json").read_bytes())  # whole, as it was written last


def _batch(home: Home) -> int:
    return int(json.loads(home.topo("stats", "words", "--json"))["batch"]["id"])


@pytest.fixture
def place_for_all(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that every user of the machine reaches."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        monkeypatch.setenv("TOPO_HOME", str(Path(name) / "home"))
        home.registry = Registry(Path(name) / "home")
        yield Path(name)
        home.clear()


def as_nobody(function: Callable[[], object]) -> str:
    """Run the function as another user; return its answer, or the error's type."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # a fork alone, since Python itself may be out of that user's reach
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said = str(function())
        except BaseException as error:
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        return answer.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_can_neither_read_the_token_nor_command(
    home: Home, place_for_all: Path
) -> None:
    home.submit()
    run, pid = home.run, home.run.driver_pid
    assert as_nobody(lambda: os.listdir(place_for_all)) == "['home']"
    for path in (run.directory / "token", run.directory / "submission.json", run.log):
        assert as_nobody(path.read_bytes) == "PermissionError"
    commands = (["list"], ["stats", "words"], ["deactivate", "words"], ["kill", "words"])
    for argv in commands:  # commands are imported when they are called, and that user may not
        command(place_for_all, [*argv[:1], *("another" for _ in argv[1:])])
    for argv in commands:
        said = as_nobody(partial(command, place_for_all, argv))
        assert said.startswith("5 error: cannot read registry ")
        assert ": permission denied\n" in said
    assert as_nobody(lambda: os.kill(pid or 0, signal.SIGKILL)) == "PermissionError"
    assert home.run.status == "ACTIVE"


def command(directory: Path, argv: Sequence[str]) -> str:
    """Its exit code, and what it says on stderr."""
    os.chdir(directory)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = topo(argv)
    return f"{code} {said.getvalue()}"
