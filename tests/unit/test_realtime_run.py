"""The inline engine by the wall clock: whatever user code does, it answers and can be stopped."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.doubles import Numbers, Total
from tests.wiring import line
from topo import BasicBolt, Spout, Tuple
from topo.engine.inline import realtime
from topo.engine.inline.realtime import RealTimeRun
from topo.running import ENDED


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtime, "_PATIENCE_SECS", 0.05)


class Gate:
    """The gate before which a call of user code waits."""

    entered = threading.Event()
    open = threading.Event()


@pytest.fixture
def gate() -> Iterator[None]:
    Gate.entered.clear()
    Gate.open.clear()
    yield
    Gate.open.set()


class Blocks(Spout):
    outputs = ("num",)

    def next_tuple(self) -> None:
        gate = sys.modules[__name__].Gate  # by name: it does not travel
        gate.entered.set()
        gate.open.wait()


@pytest.mark.usefixtures("gate")
def test_code_that_does_not_return_is_named_and_left_behind() -> None:
    run = RealTimeRun("t", line(Blocks(), Total()), {}).start()
    assert Gate.entered.wait(60)
    assert run.status == "ACTIVE"
    assert "the topology's code has not returned for" in run.reason
    assert "has not returned" in run.stats().reason
    assert run.errors() == []
    run.kill(wait_secs=0.1)
    assert run.wait(0)
    assert run.status == "KILLED"
    assert "has not returned" in run.reason
    run.kill()
    run.stop()


@pytest.mark.usefixtures("gate")
def test_code_that_does_not_return_keeps_nobody_waiting() -> None:
    run = RealTimeRun("t", line(Blocks(), Total()), {}, record=True).start()
    assert Gate.entered.wait(60)
    assert run.batches() == []
    assert run.tuples("s") == []
    run.deactivate()
    assert run.status == "ACTIVE"  # it is obeyed when the code returns
    Gate.open.set()
    while run.status != "INACTIVE":
        run.wait(0.01)
    run.activate()
    assert run.status == "ACTIVE"
    run.kill()


@pytest.mark.usefixtures("gate")
def test_a_second_thread_may_stop_what_another_waits_for() -> None:
    run = RealTimeRun("t", line(Blocks(), Total()), {}).start()
    assert Gate.entered.wait(60)
    killing = threading.Thread(target=run.kill, args=[3600.0])
    killing.start()
    run.stop()
    killing.join(60)
    assert not killing.is_alive()


class Raises(BasicBolt):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def execute(self, tup: Tuple) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError("boom"), KeyboardInterrupt("boom"), SystemExit(3)]
)
def test_what_is_no_exception_ends_it_with_its_name(error: BaseException) -> None:
    run = RealTimeRun("t", line(Numbers(3), Raises(error)), {}).start()
    assert run.wait(60)
    assert run.status == "FAILED"
    assert type(error).__name__ in str(run.error)
    assert run.stats().status == "FAILED"


def test_killing_does_not_race_with_the_end() -> None:
    for _ in range(40):
        run = RealTimeRun("t", line(Numbers(3), Total()), {}).start()
        run.kill(wait_secs=0)
        assert run.wait(60)
        assert run.status in ENDED
        assert run.error is None


def test_a_run_that_was_never_started_can_be_killed() -> None:
    run: Any = RealTimeRun("t", line(Numbers(3), Total()), {})
    run.kill()
    assert run.status == "KILLED"
