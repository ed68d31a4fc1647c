"""Starts of real-time mode without Spark: how one ends, and what it leaves to the next."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from topo.engine.spark.process.spawn import SlotProcess
from topo.engine.spark.realtime.coordinator import SlotLost
from topo.engine.spark.realtime.messages import Place
from topo.engine.spark.realtime.start import Streaming
from topo.engine.spark.worker.relay import SlotDied

PAUSE = threading.Event()


class Query:
    """A query of Spark's that has failed, with this text, or still runs."""

    def __init__(self, text: str, *, is_active: bool = False) -> None:
        self._text = text
        self.isActive = is_active

    def exception(self) -> Any:
        return Exception(self._text)

    def stop(self) -> None: ...


class Coordinator:
    """A coordinator that has ended so."""

    def __init__(self, failure: Exception | None) -> None:
        self.failure = failure

    def close(self) -> None: ...


def failed(
    failure: Exception | None, text: str = "a task failed", directory: str = ""
) -> Streaming:
    streaming = Streaming([], directory)
    ended: Any = Coordinator(failure)
    streaming.attend(ended)
    streaming.follow(Query(text))
    return streaming


def end(processes: list[SlotProcess]) -> None:
    """End processes that nobody has told anything."""
    for process in processes:
        process.let_go()
        assert process.poll() == 0


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[tuple[str, threading.Event]]:
    """Listens as the driver would, and says when a slot has connected."""
    connected = threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "c"))
        server.listen()

        def accept() -> None:
            connection, _ = server.accept()
            connected.set()
            while connection.recv(1000):
                pass
            connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        yield str(tmp_path / "c"), connected
        thread.join(60)


def test_the_processes_of_the_next_start_are_begun_when_a_slot_was_killed(
    driver: tuple[str, threading.Event], tmp_path: Path
) -> None:
    address, connected = driver
    first = failed(SlotLost("the process of slot 0 is gone"))
    first.start_slot(Place(str(tmp_path / "nobody"), "t", 0, str(tmp_path / "s0")))
    os.kill(first.processes[0].pid, signal.SIGKILL)
    first.stop()
    assert isinstance(first.error, SlotLost)
    (spare,) = first.spares
    second = Streaming(first.spares)
    second.start_slot(Place(address, "t", 0, str(tmp_path / "s1")))
    assert second.processes == [spare]
    assert connected.wait(60)
    second.stop()
    assert spare.poll() == -signal.SIGKILL
    end(second.spares)


def test_children_end_with_a_slot_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forking.py").write_text(
        "import os, time\n"
        "def main():\n"
        "    child = os.fork()\n"
        "    if child:\n"
        f"        open({str(tmp_path / 'child')!r}, 'x').write(f'{{child}}\\n')\n"
        "    time.sleep(1000)\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    streaming = Streaming([SlotProcess("forking")], str(tmp_path))
    streaming.attend(Coordinator(None))  # type: ignore[arg-type]
    streaming.follow(Query("", is_active=True))
    streaming.start_slot(Place(str(tmp_path / "nobody"), "t", 0, str(tmp_path / "slot-0")))
    child = psutil.Process(int(wait_for_text(tmp_path / "child")))
    os.kill(streaming.processes[0].pid, signal.SIGKILL)
    while streaming.isActive:
        PAUSE.wait(0.005)
    child.wait(30)
    streaming.stop()
    end(streaming.spares)


def wait_for_text(path: Path) -> str:
    """Return a file's first line once it is there."""
    while not path.exists() or not path.read_text().endswith("\n"):
        PAUSE.wait(0.005)
    return path.read_text()


def test_how_a_slot_ended_by_itself_is_told(tmp_path: Path) -> None:
    streaming = failed(SlotLost("the process of slot 0 is gone"), directory=str(tmp_path))
    streaming.start_slot(Place(str(tmp_path / "nobody"), "t", 0, str(tmp_path / "slot-0")))
    assert streaming.processes[0].wait() == 1
    assert not streaming.isActive
    streaming.stop()
    end(streaming.spares)
    assert isinstance(streaming.error, SlotDied)
    assert "ended with exit code 1" in streaming.error.message


def test_the_word_of_a_task_on_a_cluster_is_taken() -> None:
    said = "topo: the process of slot 1 ended with exit code 7 while bolt 'b' task 3 was executed"
    streaming = failed(SlotLost("the process of slot 1 is gone"), f"Job aborted: {said} [topo]\n")
    streaming.stop()
    assert isinstance(streaming.error, SlotDied)
    assert streaming.error.message.endswith("exit code 7 while bolt 'b' task 3 was executed")


def test_an_error_of_the_users_is_not_hidden_by_what_follows_from_it() -> None:
    streaming = failed(LookupError("the user's own"), "a task failed")
    streaming.stop()
    assert isinstance(streaming.error, LookupError)
    assert not streaming.spares
