"""The slot process and its other end: work, answers, and either side going away."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from topo import EngineError, UncaughtError
from topo.engine.spark.driver.slots import SlotProcesses
from topo.engine.spark.process.framing import pack_block
from topo.engine.spark.worker.messages import Abandoned, Outcome, Restore, Runner, Work
from topo.engine.spark.worker.relay import Part, Relay, RelayLost
from topo.engine.spark.worker.remote import RemoteRunner
from topo.engine.spark.worker.slot_process import make_runner, pack_setup, serve
from topo.tracking.client import Lease
from topo.tracking.plan import TrackingPlan
from topo.tracking.transport import AckerTarget

LEASE = Lease(AckerTarget("t", "token", ()), TrackingPlan(1, 1, (1,)), 1, (), 0.0)


class Scripted:
    """A runner that does as it is told by the work's payload."""

    def execute(self, work: Work, restore: Restore, abandoned: Abandoned) -> Outcome:
        told = bytes(work.payloads[0])
        if told == b"echo":
            parts = [bytes(part) for part in work.payloads]
            return Outcome([(1, 2, parts[-1])], [((3, "name"), parts[-1])], [(3, "old")])
        if told == b"restore":
            return Outcome(writes=[(key, bytes(blob)[::-1]) for key, blob in restore().items()])
        if told == b"raise":
            raise UncaughtError("the user's own", component="b", task=3)
        if told == b"lock":
            raise LookupError(threading.Lock())  # cannot travel
        while not abandoned():
            pass
        raise RelayLost("nobody waits for this")


def work(*payloads: bytes) -> Work:
    return Work(LEASE, 4, 2, 0, b"nonce", payloads)


@pytest.fixture
def run() -> Iterator[Callable[[Work, dict[tuple[int, str], bytes]], Outcome]]:
    """Executes work in a thread of this process, over a socket."""
    with (
        tempfile.TemporaryDirectory(prefix="topo-") as directory,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = f"{directory}/slot"
        listener.bind(path)
        listener.listen()
        listener.settimeout(None)  # a slot's has its own; at the default the thread would end

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    serve(Relay(listener.accept()[0]), Scripted())

        thread = threading.Thread(target=accept)
        thread.start()
        yield lambda given, records: RemoteRunner(path).execute(
            given, lambda: records, lambda: False
        )
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


Run = Callable[[Work, dict[tuple[int, str], bytes]], Outcome]


def test_work_goes_over_and_its_outcome_comes_back(run: Run) -> None:
    big = bytes(3_000_000)
    outcome = run(work(b"echo", *[b"x"] * 2000, big), {})
    ((slot, level, data),) = outcome.sends
    assert (slot, level, bytes(data)) == (1, 2, big)
    ((key, record),) = outcome.writes
    assert (key, bytes(record)) == ((3, "name"), big)
    assert outcome.removes == [(3, "old")]


def test_state_is_fetched_when_it_is_needed(run: Run) -> None:
    outcome = run(work(b"restore"), {(1, "a"): b"ab", (2, "b"): b""})
    assert {key: bytes(data) for key, data in outcome.writes} == {(1, "a"): b"ba", (2, "b"): b""}


def test_an_error_comes_back_as_itself(run: Run) -> None:
    with pytest.raises(UncaughtError, match="the user's own") as raised:
        run(work(b"raise"), {})
    assert (raised.value.component, raised.value.task) == ("b", 3)
    with pytest.raises(RuntimeError, match=r"LookupError: <unlocked _thread\.lock"):
        run(work(b"lock"), {})
    assert run(work(b"echo"), {}).removes  # and the slot goes on


def test_work_ends_when_its_worker_goes_away() -> None:
    here, there = socket.socketpair()
    relay = Relay(there)
    serving = threading.Thread(target=serve, args=(Relay(here), Scripted()))
    serving.start()
    relay.send(1, (LEASE, 4, 2, 0, b"nonce"), [b"wait"])
    relay.close()
    serving.join()


@pytest.mark.parametrize("most", [1, 5, 7, 100])
def test_parts_that_no_frame_can_hold_go_over_in_several(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.engine.spark.worker.relay.MOST_BYTES", most)
    here, there = map(Relay, socket.socketpair())
    parts: list[Part] = [b"", b"abc", bytearray(b"defgh"), memoryview(b"ijklmnopqr"), b"", b"0"]
    there.send(3, "head", parts)
    there.send(4, None)
    kind, head, received = here.receive()
    assert (kind, head) == (3, "head")
    assert [bytes(part) for part in received] == [bytes(part) for part in parts]
    assert here.receive() == (4, None, [])
    here.close()
    there.close()


@pytest.fixture
def short_default_timeout() -> Iterator[None]:
    """The timeout that libraries and scripts set for all sockets of their process."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.001)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@pytest.mark.usefixtures("short_default_timeout")
def test_a_default_timeout_of_user_code_is_no_loss_of_the_worker() -> None:
    here, there = map(Relay, socket.socketpair())
    assert not here.is_lost()
    heard: list[Any] = []
    thread = threading.Thread(target=lambda: heard.append(here.receive()))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive(), "it waits as long as it takes"
    there.send(1, "late")
    thread.join()
    assert heard[0][:2] == (1, "late")
    there.close()
    assert here.is_lost()
    here.close()


@pytest.mark.usefixtures("short_default_timeout")
def test_work_goes_over_in_spite_of_a_default_timeout(run: Run) -> None:
    assert run(work(b"echo", bytes(3_000_000)), {}).removes


def test_a_worker_hears_that_the_slot_process_has_died() -> None:
    here, there = socket.socketpair()
    here.close()
    relay = Relay(there)
    assert relay.is_lost()
    with pytest.raises(RelayLost):
        relay.receive()
    relay.close()


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(RelayLost, match=r"no slot process answered at .* for 0\.05 s"):
        Relay.connect(str(tmp_path / "slot"), 0.05)


def broken() -> Runner:
    raise ModuleNotFoundError("No module named 'of_the_user'")


def test_a_slot_that_cannot_be_made_says_why() -> None:
    for factory in (pickle.dumps(broken), b"no pickle"):
        runner = make_runner(factory)
        with pytest.raises(EngineError, match="slot 0 could not make the topology") as refused:
            runner.execute(work(b"echo"), dict, lambda: False)
        assert refused.value.code == "slot-start"
        assert "Traceback" in refused.value.hint


def test_a_slot_process_that_is_killed_is_there_again() -> None:
    processes = SlotProcesses({0: pickle.dumps(Scripted)})
    try:
        runner = RemoteRunner(processes.path(0))
        seen: set[int] = set()
        while len(seen) < 3:
            with contextlib.suppress(RelayLost):  # the one that dies may still take work
                assert runner.execute(work(b"echo"), dict, lambda: False).removes
                process = processes.pids()[0]
                seen.add(process)
                os.kill(process, signal.SIGKILL)
    finally:
        processes.close()
    assert not Path(processes.directory).exists()


def test_a_slot_process_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries, real = 0, subprocess.Popen

    def short_of_memory(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return real(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", short_of_memory)
    with contextlib.closing(SlotProcesses({0: pickle.dumps(Scripted)})) as processes:
        runner = RemoteRunner(processes.path(0))
        assert runner.execute(work(b"echo"), dict, lambda: False).removes
    assert tries == 3
    assert caplog.messages[0].startswith("the process of slot 0 could not be started: [Errno 12]")


def test_a_long_temporary_directory_does_not_keep_slots_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("a" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with contextlib.closing(SlotProcesses({0: pickle.dumps(Scripted)})) as processes:
        runner = RemoteRunner(processes.path(0))
        assert runner.execute(work(b"echo"), dict, lambda: False).removes
    assert not Path(processes.directory).exists()


def test_a_slot_process_ends_with_its_driver(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "topo.engine.spark.worker.slot_process"], stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    (tmp_path / "sockets").mkdir()
    path = str(tmp_path / "sockets" / "slot")
    process.stdin.write(pack_block(pack_setup(path, list(sys.path), pickle.dumps(Scripted))))
    process.stdin.flush()
    assert RemoteRunner(path).execute(work(b"echo"), dict, lambda: False).removes
    process.stdin.close()
    assert process.wait(30) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_slot_whose_socket_was_cleaned_away_listens_again() -> None:
    processes = SlotProcesses({0: pickle.dumps(Scripted)})
    try:
        runner = RemoteRunner(processes.path(0))
        assert runner.execute(work(b"echo"), dict, lambda: False).removes
        process = processes.pids()[0]
        shutil.rmtree(processes.directory)
        assert runner.execute(work(b"echo"), dict, lambda: False).removes
        assert processes.pids()[0] == process, "its instances are still there"
        assert stat.S_IMODE(os.stat(processes.directory).st_mode) == 0o700
    finally:
        processes.close()
    assert not os.path.exists(processes.directory)
