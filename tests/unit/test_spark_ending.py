"""The end of a run: step by step, each only after the commit of the one before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance.doubles import Numbers, Total
from tests.spark.doubles import Endless
from tests.wiring import line
from topo.engine.spark.driver.lifecycle import Lifecycle
from topo.engine.spark.worker.report import Report
from topo.tracking.figures import AckerStatus
from topo.tracking.plan import Mode

FINITE = line(Numbers(3), Total())
ENDLESS = line(Endless(), Total())

BUSY = AckerStatus(
    epoch=1,
    incarnations=(1,),
    next_batch=5,
    staged=(),
    poisoned=False,
    mode=Mode.ACTIVE,
    mode_version=0,
    mode_version_begun=0,
    waiting=0,
    clock=1.0,
    pending=2,
    acked=0,
    failed_by={},
    oldest_secs=0.0,
    updates=0,
    updates_per_sec=0.0,
    held_bytes=0,
    unheard=0,
    dropped=0,
    payloads=(),
    payloads_lost=0,
)
IDLE = replace(BUSY, pending=0)
OPEN = {0: Report({}, exhausted=False), 1: Report({}, exhausted=None)}
DONE = {0: Report({}, exhausted=True), 1: Report({}, exhausted=None)}
TICKED = {slot: replace(report, mode=Mode.LAST_TICK) for slot, report in DONE.items()}
DRAINED = {slot: replace(report, mode=Mode.DRAIN) for slot, report in OPEN.items()}
CLOSED = {slot: replace(report, mode=Mode.CLOSE) for slot, report in DONE.items()}


class Driver:
    """Tells the ackers what the ending wants told, and lets batches commit."""

    def __init__(self, ending: Lifecycle) -> None:
        self.ending = ending
        self.version = 0
        ending.registered(ending.mode)

    def ask(
        self,
        status: AckerStatus,
        reports: dict[int, Report],
        now: float = 0.0,
        *,
        begun: bool = True,
    ) -> Mode | None:
        """Return the next command after this status; `begun`: the batch has the last one."""
        status = replace(status, mode_version_begun=self.version - (not begun))
        command = self.ending.next_command(status, reports, now)
        if command is not None:
            self.version += 1
            self.ending.commanded(self.version, command)
        return command


def test_a_finite_topology_completes_with_a_last_tick_and_a_close() -> None:
    driver = Driver(Lifecycle(FINITE, active=True))
    assert driver.ask(IDLE, OPEN) is None
    assert driver.ask(BUSY, DONE) is None  # messages are in flight
    assert driver.ask(replace(IDLE, unheard=1), DONE) is None  # or their acks
    assert driver.ask(IDLE, DONE) == Mode.LAST_TICK
    assert driver.ask(IDLE, DONE, begun=False) is None  # a batch that does not know it
    assert driver.ask(IDLE, DONE) is None  # the first that does is in work
    assert driver.ask(BUSY, TICKED) is None  # committed, but the tick made messages
    assert driver.ask(IDLE, TICKED) == Mode.CLOSE
    assert driver.ask(IDLE, TICKED) is None
    assert not driver.ending.is_over
    assert not driver.ending.is_completed
    assert driver.ask(IDLE, CLOSED) is None
    assert driver.ending.is_over
    assert driver.ending.is_completed


def closing() -> Driver:
    driver = Driver(Lifecycle(FINITE, active=True))
    assert driver.ask(IDLE, DONE) == Mode.LAST_TICK
    assert driver.ask(IDLE, TICKED) == Mode.CLOSE
    return driver


def test_what_was_committed_is_published_however_long_its_target_is_away() -> None:
    driver = closing()
    assert driver.ask(IDLE, TICKED, 3_600) is None
    assert not driver.ending.is_over
    assert driver.ask(IDLE, CLOSED, 3_601) is None
    assert driver.ending.is_over
    assert driver.ending.is_completed


def test_a_kill_ends_what_waits_for_its_target_and_it_is_not_complete() -> None:
    driver = closing()
    driver.ending.kill(100, wait_secs=10)
    assert driver.ask(IDLE, TICKED, 139) is None
    assert not driver.ending.is_over
    assert driver.ask(IDLE, TICKED, 141) is None
    assert driver.ending.is_over
    assert not driver.ending.is_completed
    driver = closing()
    driver.ending.stop(5)
    assert driver.ask(IDLE, TICKED, 5) is None
    assert driver.ending.is_over
    assert not driver.ending.is_completed


@pytest.mark.parametrize("topology", [ENDLESS, FINITE], ids=["endless", "inactive"])
def test_what_does_not_complete(topology: object) -> None:
    ending = Lifecycle(topology, active=topology is ENDLESS)  # type: ignore[arg-type]
    assert Driver(ending).ask(IDLE, DONE) is None
    assert not ending.is_over


def test_an_epoch_that_fails_in_its_last_tick_has_it_again() -> None:
    driver = Driver(Lifecycle(FINITE, active=True))
    assert driver.ask(IDLE, DONE) == Mode.LAST_TICK
    assert driver.ask(IDLE, DONE) is None
    driver.ending.registered(driver.ending.mode)  # the query starts again, in this mode
    assert driver.ask(IDLE, {}) is None
    assert driver.ask(IDLE, TICKED) == Mode.CLOSE


def test_activation_goes_to_the_ackers() -> None:
    driver = Driver(Lifecycle(ENDLESS, active=False))
    assert driver.ending.mode == Mode.INACTIVE
    driver.ending.set_active(True)
    assert driver.ask(IDLE, OPEN) == Mode.ACTIVE
    assert driver.ask(IDLE, OPEN) is None
    driver.ending.set_active(False)
    assert driver.ask(IDLE, OPEN) == Mode.INACTIVE


def test_what_is_asked_while_a_query_starts_is_told_when_it_has() -> None:
    ending = Lifecycle(ENDLESS, active=False)
    mode = ending.mode
    ending.set_active(True)
    ending.registered(mode)
    assert ending.next_command(IDLE, OPEN, 0) == Mode.ACTIVE


def test_a_kill_drains_closes_and_is_over() -> None:
    driver = Driver(Lifecycle(ENDLESS, active=True))
    driver.ending.kill(0, wait_secs=10)
    assert driver.ask(BUSY, OPEN, 1) == Mode.DRAIN
    driver.ending.set_active(True)  # has no effect any more
    assert driver.ask(BUSY, OPEN, 2) is None
    assert driver.ask(BUSY, DRAINED, 3) is None
    assert driver.ask(IDLE, DRAINED, 4) == Mode.CLOSE
    assert driver.ask(IDLE, DRAINED, 5) is None
    assert not driver.ending.is_over
    assert driver.ask(IDLE, CLOSED, 5) is None
    assert driver.ending.is_over
    assert not driver.ending.is_completed


def test_a_kill_with_nothing_in_flight_waits_for_no_batch_that_has_nothing_to_do() -> None:
    driver = Driver(Lifecycle(ENDLESS, active=False))
    waiting = replace(IDLE, waiting=1)
    assert driver.ask(waiting, OPEN) is None
    driver.ending.kill(0, wait_secs=10)
    assert driver.ask(waiting, OPEN, 1) == Mode.DRAIN
    assert driver.ask(waiting, OPEN, 1, begun=False) is None
    assert driver.ask(IDLE, OPEN, 1) is None  # begun, but perhaps not at every acker
    assert driver.ask(waiting, OPEN, 1) is None  # of which one has spoken before it was
    assert driver.ask(replace(waiting, unheard=1), OPEN, 1) is None
    assert driver.ask(waiting, OPEN, 1) == Mode.CLOSE


def test_a_kill_before_anything_has_started() -> None:
    ending = Lifecycle(ENDLESS, active=True)
    assert not ending.is_pointless(0)
    ending.kill(0, wait_secs=10)
    assert ending.is_pointless(0)


def test_a_kill_when_the_query_is_to_start_again() -> None:
    ending = Lifecycle(ENDLESS, active=True)
    ending.registered(Mode.ACTIVE)
    ending.kill(0, wait_secs=10)
    assert [ending.is_pointless(now) for now in (9, 10)] == [False, True]


def test_a_kill_waits_no_longer_than_it_was_told() -> None:
    driver = Driver(Lifecycle(ENDLESS, active=True))
    driver.ending.kill(0, wait_secs=10)
    assert driver.ask(BUSY, OPEN, 1) == Mode.DRAIN
    assert driver.ask(BUSY, OPEN, 11) == Mode.CLOSE
    assert driver.ask(BUSY, OPEN, 12) is None
    assert not driver.ending.is_over
    assert driver.ask(BUSY, OPEN, 11 + 31) is None  # the close does not come through either
    assert driver.ending.is_over


def test_a_stop_waits_for_nothing() -> None:
    driver = Driver(Lifecycle(ENDLESS, active=True))
    driver.ending.kill(0, wait_secs=10)
    assert driver.ask(BUSY, OPEN, 1) == Mode.DRAIN
    driver.ending.stop(2)
    assert driver.ask(BUSY, OPEN, 2) == Mode.CLOSE
    assert driver.ask(BUSY, OPEN, 2) is None
    assert driver.ending.is_over


def test_a_second_kill_makes_it_shorter() -> None:
    driver = Driver(Lifecycle(ENDLESS, active=True))
    driver.ending.kill(0, wait_secs=1000)
    assert driver.ask(BUSY, OPEN, 1) == Mode.DRAIN
    driver.ending.kill(2, wait_secs=0)
    assert driver.ask(BUSY, OPEN, 2) == Mode.CLOSE
    driver.ending.kill(3, wait_secs=1000)
    assert driver.ask(BUSY, OPEN, 4) is None
    assert driver.ask(BUSY, CLOSED, 4) is None
    assert driver.ending.is_over


def test_what_goes_round_is_waited_for_before_the_end_and_in_a_drain() -> None:
    ending = Lifecycle(FINITE, active=True)
    ending.registered(ending.mode)
    assert ending.next_command(IDLE, DONE, 0, looping=1) is None
    assert ending.next_command(IDLE, DONE, 0) == Mode.LAST_TICK
    ending.commanded(1, Mode.LAST_TICK)
    assert ending.next_command(IDLE, TICKED, 0, looping=2) is None
    assert ending.next_command(IDLE, TICKED, 0) == Mode.CLOSE

    draining = Lifecycle(ENDLESS, active=True)
    draining.registered(draining.mode)
    draining.kill(0, wait_secs=10)
    assert draining.next_command(IDLE, OPEN, 1, looping=1) == Mode.DRAIN
    draining.commanded(1, Mode.DRAIN)
    assert draining.next_command(IDLE, DRAINED, 2, looping=1) is None
    assert draining.next_command(IDLE, DRAINED, 3) == Mode.CLOSE
