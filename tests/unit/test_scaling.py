"""Decisions on slots, over hours of generated load that a model of a topology meets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from itertools import pairwise

import pytest

from topo.manage.scaling import (
    BARRED,
    DOWN,
    FAILED,
    REST,
    SKEW,
    STAY,
    UNDO,
    UP,
    WAIT,
    Decision,
    Load,
    Sample,
    Scaler,
    ScalingRules,
)

EVERY = 10.0
HOUR = 3600.0
RULES = ScalingRules(1, 16)


@dataclass
class Plant:
    """A topology of which each slot does `slot_rate` tuples a second, and what waits in front."""

    load: Callable[[float], float]
    slots: int = 1
    slot_rate: float = 100.0
    rules: ScalingRules = RULES
    stop_secs: float = 10.0
    useful: int = 10**6
    """More slots than these do no more."""
    shows_lag: bool = True
    at: float = 0.0
    lag: float = 0.0
    tuples: float = 0.0
    busy: float = 0.0
    hot: float = 1.0
    """How much more a task in slot 0 does than the others."""
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scaler = Scaler(self.rules, self.at)

    def sample(self) -> Sample:
        loads = {f"count task {3 + n}": Load(n, self.busy) for n in range(1, self.slots)}
        loads["count task 3"] = Load(0, self.hot * self.busy)
        loads["split task 2"] = Load(0, 0.1 * self.busy)
        lag = self.lag if self.shows_lag else None
        return Sample(self.at, self.slots, self.tuples, self.busy, lag, loads)

    def pass_secs(self, secs: float, slots: int) -> None:
        waiting = self.lag + self.load(self.at) * secs
        room = self.slot_rate * min(slots, self.useful) * secs
        done = min(waiting, room)
        self.lag = waiting - done
        self.tuples += done
        self.busy += secs * (1.0 if slots > self.useful else done / room) if room else 0.0
        self.at += secs

    def run(self, secs: float) -> list[Decision]:
        """Look every ten seconds for so long; return the steps."""
        ends, before = self.at + secs, len(self.decisions)
        while self.at < ends:
            self.pass_secs(EVERY, self.slots)
            decision = self.scaler.look(self.sample())
            if decision.is_step:
                self.decisions.append(decision)
                self.pass_secs(self.stop_secs, 0)
                self.slots = decision.to
                self.scaler.settle(self.at, self.slots)
        return self.decisions[before:]

    @property
    def last(self) -> Decision:
        return self.scaler.decisions[-1]


def turns(steps: list[Decision]) -> int:
    """Return how often the way changes."""
    ways = [step.to > step.slots for step in steps]
    return sum(a != b for a, b in pairwise(ways))


@pytest.mark.parametrize("shows_lag", [True, False])
@pytest.mark.parametrize("load", [300.0, 700.0, 1100.0])
def test_a_step_of_the_load_is_met_within_three_steps(load: float, shows_lag: bool) -> None:
    plant = Plant(lambda at: 60.0 if at < HOUR else load, shows_lag=shows_lag)
    assert plant.run(HOUR) == []
    steps = plant.run(2 * HOUR)
    rounds = 3 if shows_lag else math.ceil(math.log(load / 60) / math.log(1.43)) + 1
    ups = [step for step in steps if step.verdict == UP]
    assert 1 <= len(ups) <= rounds
    assert turns(steps) <= 1, "up for what waits, and once down when it is done"
    assert plant.slots * plant.slot_rate >= load
    assert plant.lag <= EVERY * load
    before = plant.slots
    assert all(step.to < step.slots for step in plant.run(6 * HOUR))
    assert plant.slots <= before
    assert plant.run(4 * HOUR) == [], "and there it stays"
    assert plant.last.verdict in (STAY, "limit")


@pytest.mark.parametrize("shows_lag", [True, False])
def test_slots_that_have_room_for_what_comes_in_are_not_taken_back(shows_lag: bool) -> None:
    """They are busier than they should be, as they may have no more; what comes in is no more."""
    rules = ScalingRules(1, 8)
    plant = Plant(lambda at: 650.0, slots=7, rules=rules, shows_lag=shows_lag, stop_secs=2)
    assert [step.to for step in plant.run(6 * HOUR)] == [8]
    assert plant.last.verdict == STAY


def test_the_way_down_is_slow_and_by_parts() -> None:
    plant = Plant(lambda at: 1000.0 if at < HOUR else 50.0, slots=15)
    assert plant.run(HOUR) == []
    steps = plant.run(6 * HOUR)
    assert [step.slots for step in steps] == [15, 10, 6, 4, 3, 2]
    assert plant.slots == 1
    times = [step.at for step in steps]
    assert times[0] >= HOUR + 1800
    assert all(b - a >= 1800 for a, b in pairwise(times))


def test_a_load_that_swings_does_not_make_it_swing() -> None:
    for secs in (300.0, 1200.0, 2400.0):
        sine = Plant(lambda at, secs=secs: 500 + 400 * math.sin(2 * math.pi * at / secs), slots=5)  # type: ignore[misc]
        tooth = Plant(lambda at, secs=secs: 900 * (at % secs) / secs, slots=5)  # type: ignore[misc]
        for plant in (sine, tooth):
            steps = plant.run(3 * HOUR)
            assert len(steps) <= 3, (secs, steps)
            assert turns(steps) <= 1
            assert plant.run(3 * HOUR) == []


def test_a_day_and_a_night_are_followed() -> None:
    day = 24 * HOUR
    plant = Plant(lambda at: 600 - 500 * math.cos(2 * math.pi * at / day), slots=2)
    plant.run(day)
    steps = plant.run(day)
    assert turns(steps) <= 2
    assert max(step.to for step in steps) in range(14, 17)
    assert min(step.to for step in steps) <= 4


def test_more_slots_do_not_help_where_one_task_has_the_most_to_do() -> None:
    plant = Plant(lambda at: 1000.0, slots=4, hot=9.0)
    assert plant.run(2 * HOUR) == []
    assert plant.last.verdict == SKEW
    assert plant.last.reason == (
        "slot 0 is 3.0 times as busy as the others, by count task 3: more slots do not help"
    )
    idle = Plant(lambda at: 10.0, slots=4, hot=9.0)
    assert idle.run(2 * HOUR)[0].verdict == DOWN, "it has room all the same"


def test_a_step_that_brought_nothing_is_undone_and_not_tried_for_an_hour() -> None:
    plant = Plant(lambda at: 500.0, slots=2, useful=2)
    first, undo, *others = plant.run(3 * HOUR)
    assert (first.verdict, undo.verdict) == (UP, UNDO)
    assert undo.to == 2
    assert undo.reason.endswith("more were expected")
    assert others[0].at - undo.at >= HOUR
    plant = Plant(lambda at: 500.0, slots=2, useful=2)
    plant.run(0.9 * HOUR)
    assert plant.last.verdict == BARRED


def test_a_step_is_not_undone_where_the_load_has_gone() -> None:
    plant = Plant(lambda at: 500.0 if at < 400 else 50.0, slots=2)
    steps = plant.run(0.6 * HOUR)
    assert [step.verdict for step in steps] == [UP]


def test_lag_that_does_not_shrink_means_that_slots_are_full() -> None:
    """What keeps spouts or the network busy is not in the seconds of bolts."""
    scaler = Scaler(RULES, 0.0)
    decisions = [
        scaler.look(Sample(at, 2, 100 * at, 0.1 * at, lag=10_000 + 10 * at))
        for at in range(0, 600, 10)
    ]
    assert decisions[-1].verdict == REST or any(one.verdict == UP for one in decisions)
    assert any(one.verdict == UP and one.figures.busy == 1.0 for one in decisions)


def test_the_limits_hold_at_once_but_for_the_rest_and_cores_are_limits() -> None:
    scaler = Scaler(ScalingRules(2, 4), 0.0)
    assert scaler.look(Sample(10, 7, 0, 0)).verdict == REST
    decision = scaler.look(Sample(300, 7, 0, 0))
    assert (decision.verdict, decision.to) == (DOWN, 4)
    scaler = Scaler(ScalingRules(2, 4), 0.0)
    assert scaler.look(Sample(300, 1, 0, 0)).to == 2
    scaler = Scaler(ScalingRules(2, 4), 0.0)
    assert scaler.look(Sample(300, 1, 0, 0, places=1)).verdict == WAIT
    scaler = Scaler(ScalingRules(2, 4), 0.0)
    assert scaler.look(Sample(300, 4, 0, 0, places=3)).to == 3


def test_nothing_is_decided_where_what_waits_is_not_read() -> None:
    scaler = Scaler(RULES, 0.0)
    decisions = [scaler.look(Sample(at, 4, 5, 0, lag=1000)) for at in range(0, 4000, 10)]
    assert {decision.verdict for decision in decisions} == {REST, WAIT}
    assert decisions[-1].reason == "what waits is not read"


def test_equal_decisions_are_one_with_the_latest_figures() -> None:
    plant = Plant(lambda at: 60.0)
    plant.run(HOUR)
    assert [decision.verdict for decision in plant.scaler.decisions] == [REST, STAY]
    last = plant.last
    assert (last.at, last.until) == (300, HOUR)
    assert astuple(last.figures) == pytest.approx((60.0, 60.0, 0.6, 100.0, 0.0))
    plant.load = lambda at: 1000.0
    plant.run(20 * HOUR)
    assert len(plant.scaler.decisions) <= 20


def test_dry_runs_decide_and_do_nothing() -> None:
    plant = Plant(lambda at: 1000.0, rules=ScalingRules(1, 16, is_dry=True))
    assert plant.run(HOUR) == []
    assert (plant.last.verdict, plant.last.is_dry, plant.last.to > 1) == (UP, True, True)
    real = Plant(lambda at: 1000.0)
    real.run(290)
    before = json.dumps(real.scaler.state())
    ahead = Sample(600, 1, 100 * 600, 600, 900 * 600)
    assert real.scaler.peek(ahead).verdict == UP
    assert json.dumps(real.scaler.state()) == before
    assert real.scaler.look(ahead).verdict == UP


def test_a_step_that_fails_is_not_tried_again_for_a_while() -> None:
    plant = Plant(lambda at: 1000.0, stop_secs=0)
    step = plant.run(300)[0]
    plant.slots = 1
    plant.scaler.settle(plant.at, 1, "there are cores for 1 slots")
    assert plant.last.verdict == FAILED
    assert plant.last.reason == f"{step.to} slots cannot be had: there are cores for 1 slots"
    assert plant.run(3300) == []
    assert plant.last.verdict == BARRED
    assert plant.run(600)[0].verdict == UP


def test_the_next_driver_goes_on() -> None:
    plant = Plant(lambda at: 500.0, slots=2, useful=2)
    first = plant.run(310)[0]
    state = json.loads(json.dumps(plant.scaler.state()))
    plant.scaler = Scaler(RULES, plant.at, state)
    assert plant.scaler.decisions[-1] == first
    steps = plant.run(HOUR)
    assert [step.verdict for step in steps] == [UNDO], "it knows what the step was to bring"
    assert steps[0].at >= first.at + RULES.rest_secs


@pytest.mark.parametrize(
    "state",
    [{}, {"rest_until": "x"}, {"rest_until": 0, "barred": [], "trial": 3, "decisions": [7]}],
)
def test_a_state_that_is_damaged_is_as_none(state: dict[str, object]) -> None:
    scaler = Scaler(RULES, 1000.0, state)
    assert scaler.look(Sample(1290, 99, 0, 0)).verdict == REST
    assert scaler.look(Sample(1300, 99, 0, 0)).to == 16


def test_a_clock_that_is_set_back_makes_nothing_wait_for_ever() -> None:
    plant = Plant(lambda at: 1000.0, at=1e9)
    assert plant.run(HOUR)
    plant.at = 0.0
    plant.scaler = Scaler(RULES, 0.0, plant.scaler.state())
    plant.slots = 99
    assert plant.run(HOUR)[0].to == 16
