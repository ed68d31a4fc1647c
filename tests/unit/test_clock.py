"""The clock of batches goes on whatever happens to the wall clock."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.tracking.clock import FollowingClock, SteadyClock
from topo.tracking.epochs import Tracking
from topo.tracking.exchange import Registration, StagedExecution
from topo.tracking.ids import Updates, root_id
from topo.tracking.plan import TrackingPlan

START = 1_800_000_000.0


class Times:
    """A wall clock and a monotonic one, moved by hand."""

    def __init__(self) -> None:
        self.wall, self.monotonic = START, 50.0
        self.clock = SteadyClock(lambda: self.wall, lambda: self.monotonic)

    def pass_by(self, secs: float, set_by: float = 0.0) -> float:
        self.monotonic += secs
        self.wall += secs + set_by
        return self.clock()


@given(
    steps=st.lists(st.tuples(st.floats(0, 100), st.sampled_from([0.0, 0.0, -3600.0, 3600.0, 0.01])))
)
def test_the_clock_never_stands_still_goes_back_or_leaps(steps: Any) -> None:
    times = Times()
    before = times.clock()
    for secs, set_by in steps:
        now = times.pass_by(secs, set_by)
        assert 0.9 * secs - 1e-5 <= now - before <= 1.1 * secs + 1e-5
        before = now


@given(
    steps=st.lists(
        st.tuples(st.floats(0, 100), st.none() | st.sampled_from([0.0, -0.2, -3600.0, 3600.0]))
    )
)
def test_a_clock_that_follows_another_never_stands_still_goes_back_or_leaps(steps: Any) -> None:
    monotonic, leader = 50.0, START
    clock = FollowingClock(lambda: monotonic)
    clock.follow(leader)
    before = clock()
    assert before == START
    for secs, told in steps:
        monotonic += secs
        leader += secs
        if told is not None:
            clock.follow(leader + told)
        now = clock()
        assert 0.9 * secs - 1e-5 <= now - before <= 1.1 * secs + 1e-5
        before = now


def test_a_clock_that_follows_another_comes_to_it() -> None:
    monotonic = 50.0
    clock = FollowingClock(lambda: monotonic)
    clock.follow(START)
    monotonic += 600  # in silence, in which the other one went faster
    clock.follow(START + 660)
    clock.follow(START + 600)  # what comes late says nothing
    for _ in range(700):
        monotonic += 1
        clock()
    assert math.isclose(clock(), START + 660 + 700, abs_tol=1e-3)


@pytest.mark.parametrize("set_by", [-60.0, 60.0, 0.001])
def test_the_clock_comes_back_to_the_wall_clock(set_by: float) -> None:
    times = Times()
    times.pass_by(1.0, set_by)
    for _ in range(700):
        times.pass_by(1.0)
    assert math.isclose(times.clock(), times.wall, abs_tol=1e-4)


@pytest.mark.parametrize("set_by", [-3600.0, 3600.0])
def test_ticks_and_timeouts_come_when_the_wall_clock_is_set(set_by: float) -> None:
    plan = TrackingPlan(levels=1, slots=1, spout_tasks=(1,), timeout_secs=30.0, tick_secs=(10.0,))
    times = Times()
    tracking = Tracking(Registration(plan, 0, "r", 1), times.clock())
    root = np.array([root_id(1, 1)], np.uint64)
    emits = Updates(init_roots=root, init_values=np.array([5], np.uint64))
    ticks, failed_after = 0, 0.0
    for batch in range(200):  # of a second each; the clock is set in the fifth
        now = times.pass_by(1.0, set_by if batch == 5 else 0.0)
        begun = tracking.begin(tracking.epoch, batch, 0, 0.0, [], now)
        ticks += math.floor(begun.clock / 10) > math.floor(begun.previous_clock / 10)
        updates = emits if batch == 2 else Updates()
        staged = StagedExecution(batch + 10, updates, b"", 0)
        tracking.stage(tracking.epoch, batch, 0, 0, 0.0, staged, True, now)
        if batch > 4 and not failed_after and not tracking._ledger.pending():
            failed_after = batch - 2
    assert 17 <= ticks <= 23
    assert 27 <= failed_after <= 36
