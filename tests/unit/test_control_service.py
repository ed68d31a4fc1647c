"""The control service of a driver: what goes wrong in it is told as what it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_control_registry import make
from tests.unit.test_control_windows import figures
from topo import RunError
from topo._pb import control_pb2 as pb
from topo.manage.answers import row_of
from topo.manage.client import ControlClient, DriverFault, DriverUnreachable
from topo.manage.records import RunRecord, State
from topo.manage.registry import Registry
from topo.manage.service import ControlServer
from topo.metrics.history import Windows


class Answers:
    """A driver whose `stats` are what a test says."""

    def __init__(self, stats: Callable[[], Any]) -> None:
        self._stats = stats

    def status(self) -> pb.StatusReply:
        return pb.StatusReply(status="ACTIVE")

    def stats(self, window_secs: float | None) -> dict[str, Any]:
        found: dict[str, Any] = self._stats()
        return found

    errors = history = batches = activate = deactivate = begin_kill = begin_rebalance = None
    save = scale = None


@contextmanager
def served(tmp_path: Path, stats: Callable[[], Any]) -> Iterator[RunRecord]:
    run = make(Registry(tmp_path))
    driver: Any = Answers(stats)
    server = ControlServer(driver, (run.directory / "token").read_text())
    try:
        yield replace(run, state=State("ACTIVE", address=server.address))
    finally:
        server.stop()


def broken() -> Any:
    raise KeyError("a mistake of topo's \udc80")


def refused() -> Any:
    raise RunError("words is STARTING \udc80")


@pytest.mark.parametrize(
    ("stats", "kind", "said"),
    [
        (broken, DriverFault, r"words' driver cannot answer: KeyError: .*a mistake of topo's"),
        (refused, RunError, r"words is STARTING \\udc80"),
    ],
)
def test_what_fails_in_a_driver_is_no_silence(
    tmp_path: Path, stats: Callable[[], Any], kind: type[Exception], said: str
) -> None:
    with served(tmp_path, stats) as run, ControlClient(run) as client:
        with pytest.raises(kind, match=said):
            client.stats()
        assert client.status().status == "ACTIVE"


def test_figures_of_many_tasks_are_no_message_too_large(tmp_path: Path) -> None:
    with served(tmp_path, lambda: {"x": "y" * 5_000_000}) as run, ControlClient(run) as client:
        assert len(client.stats()["x"]) == 5_000_000


def test_a_driver_on_another_machine_is_not_looked_for_on_this_one(tmp_path: Path) -> None:
    with served(tmp_path, dict) as run:
        elsewhere = replace(run, submission=replace(run.submission, host="elsewhere"))
        with pytest.raises(DriverUnreachable, match="words runs on elsewhere") as refused:
            ControlClient(elsewhere)
        assert refused.value.hint == "give the command on elsewhere"


def test_a_driver_that_does_not_answer_has_no_figures(tmp_path: Path) -> None:
    run = replace(make(Registry(tmp_path)), state=State("ACTIVE"), driver_pid=1)
    row = row_of(run)
    assert (row.acked, row.failed) == (None, None)


def test_figures_are_asked_for_while_others_are_added() -> None:
    windows = Windows()

    def add() -> None:
        for number in range(3000):
            windows.add(1000.0 * number, figures(number))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as threads:
            adding = threads.submit(add)
            while not adding.done():
                windows.last(60, 1e9, figures(3))
            adding.result()
    finally:
        sys.setswitchinterval(before)
