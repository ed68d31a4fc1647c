"""The rules by which a topology gets more slots or fewer, over figures alone.

A step costs a stop of some seconds, and what waits meanwhile is lag, which is what the rules scale
for: whoever steps at once on what was just measured goes up and down for ever. So figures are those
of a window, several looks in a row have to agree, a rest follows each step, the way down is slower
than the way up, and a step up that brought nothing is undone and not tried again for a while. The
knobs and their defaults are those of Flink's autoscaler, as far as it has them.

What a slot can do is measured and not declared: tuples by the second in which it was busy. The rule
divides the demand by it, which is what comes in and what of the lag has to be caught up. More slots
do not help a slot that has more to do than the others, since whole tasks move: no step is made
then, and the reason names the task.

Nothing here reads a clock or a topology: the times are those of the samples, so that the tests run
hours in milliseconds. One thread calls a `Scaler`.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

UP, DOWN, UNDO = "up", "down", "undo"
STAY, WAIT, REST, SKEW, BARRED, LIMIT, FAILED = (
    "stay",
    "wait",
    "rest",
    "skew",
    "barred",
    "limit",
    "failed",
)
MOST_DECISIONS = 20
_BAND = 0.3
"""What differs by less is left alone."""
_MOST_DOWN = 0.4
_LEAST_RISE = 0.1
"""The part of the expected rise that a step up has to bring."""
_FULL = 0.95
"""Slots that are less busy do all that comes in: no more of them do more of it."""
_SKEW = 1.5
_FULL_PART = 0.1
"""Lag that would take more than this part of `catch_up_secs` and does not shrink: slots are full,
whatever they have measured."""


@dataclass(frozen=True)
class ScalingRules:
    """The limits of a topology's slots, and how patient its steps are."""

    least: int
    most: int
    utilization: float = 0.7
    catch_up_secs: float = 600.0
    window_secs: float = 300.0
    up_secs: float = 60.0
    down_secs: float = 1800.0
    rest_secs: float = 300.0
    retry_secs: float = 3600.0
    is_dry: bool = False
    """True: steps are decided and not made."""


@dataclass(frozen=True)
class Load:
    """What a task has done: the seconds it was busy since the start, and the slot it is in."""

    slot: int
    secs: float


@dataclass(frozen=True)
class Sample:
    """The figures of a running topology at a moment; counts are those since its start."""

    at: float
    slots: int
    tuples: float
    """What its spouts have emitted."""
    busy_secs: float
    """How long its slots were busy, on average."""
    lag: float | None = None
    """What waits in its sources; None: they do not tell."""
    loads: Mapping[str, Load] = field(default_factory=dict)
    """By the name of a task."""
    places: int | None = None
    """How many slots there are cores for, if that is known."""


@dataclass(frozen=True)
class Figures:
    """What a window of samples comes to."""

    rate: float | None = None
    """Tuples a second."""
    demand: float | None = None
    """Tuples a second that should be done: what comes in, and lag to be caught up."""
    busy: float | None = None
    """The part of the time in which a slot was busy, on average."""
    slot_rate: float | None = None
    """Tuples that a slot does in a second in which it is busy."""
    lag: float | None = None


@dataclass(frozen=True)
class Decision:
    """What was decided, with the figures behind it; equal ones in a row are one."""

    at: float
    until: float
    """When it was decided for the last time in a row."""
    verdict: str
    reason: str
    slots: int
    to: int
    """The slots to have: others than `slots` if it is a step."""
    needed: int | None
    """The slots that the demand takes, whatever the limits say."""
    figures: Figures
    is_dry: bool = False

    @property
    def is_step(self) -> bool:
        return self.to != self.slots and not self.is_dry


@dataclass(frozen=True)
class _Trial:
    """A step up that has to show what it brings."""

    before: int
    to: int
    rate: float
    slot_rate: float


class Scaler:
    """The decisions for one topology, look by look."""

    def __init__(
        self, rules: ScalingRules, now: float, state: Mapping[str, Any] | None = None
    ) -> None:
        """Resume the `state` of an earlier one; without one, begin with a rest.

        Figures begin anew in any case: what other drivers have measured is not known.
        """
        self.rules = rules
        self.decisions: deque[Decision] = deque(maxlen=MOST_DECISIONS)
        self._samples: deque[Sample] = deque()
        self._rest_until = now + rules.rest_secs
        self._barred: dict[str, float] = {}
        self._trial: _Trial | None = None
        self._direction = STAY
        self._since = now
        """When looks began to agree on the direction."""
        self._peak = 0
        """The most slots that were needed since then."""
        if state is not None:
            self._resume(state, now)

    # -- what outlives a driver ---------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what the next driver resumes, as JSON has it."""
        return {
            "rest_until": self._rest_until,
            "barred": dict(self._barred),
            "trial": asdict(self._trial) if self._trial else None,
            "decisions": [asdict(decision) for decision in self.decisions],
        }

    def _resume(self, state: Mapping[str, Any], now: float) -> None:
        try:
            rest_until = float(state["rest_until"])
            barred = {str(way): float(until) for way, until in state["barred"].items()}
            trial = _Trial(**state["trial"]) if state["trial"] else None
            if trial is not None:
                math.fsum(asdict(trial).values())  # raises for what is no number
            decisions = [
                Decision(**{**each, "figures": Figures(**each["figures"])})
                for each in state["decisions"]
            ]
        except (AttributeError, KeyError, TypeError, ValueError):
            return  # damaged: it begins with a rest, as if there were none
        # A clock that was set back must not make it rest for longer than the rules say.
        self._rest_until = min(rest_until, now + self.rules.rest_secs)
        self._barred = {
            way: min(until, now + self.rules.retry_secs) for way, until in barred.items()
        }
        self._trial = trial
        self.decisions.extend(decisions)

    # -- looks --------------------------------------------------------------------------------

    def look(self, sample: Sample) -> Decision:
        """Take in a sample; decide."""
        self._take(sample)
        figures = self._figures()
        needed = self._needed(figures, sample.slots)
        self._agree(sample, needed)
        verdict, to, reason = self._verdict(sample, figures, needed)
        decision = Decision(
            sample.at, sample.at, verdict, reason, sample.slots, to, needed, figures,
            is_dry=self.rules.is_dry and to != sample.slots,
        )  # fmt: skip
        if decision.is_step:
            self._step(decision)
        self._note(decision)
        return decision

    def peek(self, sample: Sample) -> Decision:
        """Return what a look at this sample would decide, and leave everything as it is."""
        other = copy.copy(self)
        other.decisions = deque(self.decisions, MOST_DECISIONS)
        other._samples, other._barred = deque(self._samples), dict(self._barred)
        return other.look(sample)

    def pause(self, now: float) -> None:
        """Note that it does not run for a while: figures begin anew."""
        self._samples.clear()
        self._direction, self._since = STAY, now

    def settle(self, now: float, slots: int, failure: str = "") -> None:
        """Note the end of a step, which was made, or failed and left it with these slots."""
        self.pause(now)
        self._rest_until = now + self.rules.rest_secs
        if not failure:
            return
        last = self.decisions[-1] if self.decisions else None
        way = DOWN if last is not None and last.to < last.slots else UP
        self._trial = None
        self._barred[way] = now + self.rules.retry_secs
        to = _slots(last.to) if last is not None else "other slots"
        self.decisions.append(
            Decision(
                now, now, FAILED, f"{to} cannot be had: {failure}", slots, slots, None, Figures()
            )
        )

    # -- figures ------------------------------------------------------------------------------

    def _take(self, sample: Sample) -> None:
        last = self._samples[-1] if self._samples else None
        if last is not None and (sample.at < last.at or sample.slots != last.slots):
            # The clock was set back, or somebody else has made a step.
            self.pause(sample.at)
            self._rest_until = sample.at + self.rules.rest_secs
            self._trial = None
        elif last is not None and sample.tuples < last.tuples:
            self.pause(sample.at)  # counted anew
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].at <= sample.at - self.rules.window_secs:
            self._samples.popleft()

    @property
    def _is_measured(self) -> bool:
        """True if the samples say enough: they span the time in which looks have to agree."""
        if len(self._samples) < 2:
            return False
        span = self._samples[-1].at - self._samples[0].at
        return span >= min(self.rules.up_secs, self.rules.window_secs) and span > 0

    def _figures(self) -> Figures:
        if not self._is_measured:
            return Figures()
        first, last = self._samples[0], self._samples[-1]
        secs = last.at - first.at
        rate = (last.tuples - first.tuples) / secs
        busy = min(1.0, max(0.0, (last.busy_secs - first.busy_secs) / secs))
        demand = rate
        if last.lag is not None:
            before = first.lag if first.lag is not None else last.lag
            demand = max(0.0, rate + (last.lag - before) / secs)
            demand += last.lag / self.rules.catch_up_secs
            if rate > 0 and last.lag >= max(before, _FULL_PART * self.rules.catch_up_secs * rate):
                busy = 1.0
        slot_rate = rate / (busy * last.slots) if rate > 0 and busy > 0 else None
        return Figures(rate, demand, busy, slot_rate, last.lag)

    def _needed(self, figures: Figures, slots: int) -> int | None:
        """Return how many slots the demand takes; None if that is not known."""
        if figures.rate is None or figures.demand is None:
            return None
        if figures.slot_rate is None:
            # Nothing is done: nothing comes in, or what waits is not read for another reason.
            return None if figures.demand > 0 and figures.lag else 1
        needed = figures.demand / (figures.slot_rate * self.rules.utilization)
        return max(1, math.ceil(min(needed, 1e6) - 1e-9))

    def _agree(self, sample: Sample, needed: int | None) -> None:
        """Note which way this look wants, and since when all have needed it."""
        direction = STAY
        if needed is not None and abs(needed / sample.slots - 1) >= _BAND:
            direction = UP if needed > sample.slots else DOWN
        if direction != self._direction:
            self._direction, self._since, self._peak = direction, sample.at, 0
        self._peak = max(self._peak, needed or 0)

    def _skewed(self, figures: Figures) -> str:
        """Return the task that keeps one slot far busier than the others, or ""."""
        first, last = self._samples[0], self._samples[-1]
        if last.slots < 2 or figures.busy is None:
            return ""
        secs: dict[int, float] = dict.fromkeys(range(last.slots), 0.0)
        busiest: dict[int, tuple[float, str]] = {}
        for name, load in last.loads.items():
            before = first.loads.get(name)
            more = max(0.0, load.secs - (before.secs if before else 0.0))
            secs[load.slot] = secs.get(load.slot, 0.0) + more
            busiest[load.slot] = max(busiest.get(load.slot, (0.0, "")), (more, name))
        mean = sum(secs.values()) / len(secs)
        slot = max(secs, key=lambda number: secs[number])
        if mean <= 0 or secs[slot] < _SKEW * mean:
            return ""
        times = secs[slot] / mean
        if times * figures.busy < self.rules.utilization:  # it has room all the same
            return ""
        return f"slot {slot} is {times:.1f} times as busy as the others, by {busiest[slot][1]}"

    # -- rules --------------------------------------------------------------------------------

    def _verdict(
        self, sample: Sample, figures: Figures, needed: int | None
    ) -> tuple[str, int, str]:
        """Return the verdict, the slots to have, and the reason."""
        rules, slots, now = self.rules, sample.slots, sample.at
        ceiling = rules.most if sample.places is None else min(rules.most, max(1, sample.places))
        floor = min(rules.least, ceiling)
        if now < self._rest_until:
            return REST, slots, f"it rests after a step or a start, {rules.rest_secs:g} s"
        if not floor <= slots <= ceiling:
            to = min(max(slots, floor), ceiling)
            way = UP if to > slots else DOWN
            if now < self._barred.get(way, now):
                return BARRED, slots, f"{_slots(to)} could not be had; it waits before another try"
            return way, to, f"it is to have {floor} to {ceiling} slots"
        if needed is None:
            reason = "it is measured" if figures.rate is None else "what waits is not read"
            return WAIT, slots, reason
        if (trial := self._trial) is not None:
            self._trial = None
            if trial.to == slots and (words := _brought_nothing(trial, figures)):
                return UNDO, min(max(trial.before, floor), ceiling), words
        if self._direction == STAY:
            return STAY, slots, f"the load suits {_slots(slots)}"
        if skewed := self._skewed(figures):
            return SKEW, slots, f"{skewed}: more slots do not help"
        least = slots - max(1, math.floor(_MOST_DOWN * slots))
        to = needed if self._direction == UP else max(self._peak, least)
        return self._direct(sample, min(max(to, floor), ceiling))

    def _direct(self, sample: Sample, to: int) -> tuple[str, int, str]:
        """Return the verdict where the looks want another number."""
        rules, slots, way = self.rules, sample.slots, self._direction
        if to == slots:
            return LIMIT, slots, f"it has {'the most' if way == UP else 'the fewest'} it may have"
        if sample.at < self._barred.get(way, sample.at):
            return BARRED, slots, "such a step failed, or brought nothing; it waits before another"
        patience = rules.up_secs if way == UP else rules.down_secs
        if sample.at - self._since < patience:
            return WAIT, slots, f"{_slots(to)}, if that is so for {patience:g} s"
        words = "is more than {} can take" if way == UP else "is less than {} are for"
        return way, to, f"the load {words.format(_slots(slots))}"

    def _step(self, decision: Decision) -> None:
        figures, now = decision.figures, decision.at
        self._trial = None
        if decision.verdict == UNDO:
            self._barred[UP] = now + self.rules.retry_secs
        elif decision.verdict == UP and figures.rate is not None and figures.slot_rate is not None:
            self._trial = _Trial(decision.slots, decision.to, figures.rate, figures.slot_rate)
        self.pause(now)
        self._rest_until = now + self.rules.rest_secs

    def _note(self, decision: Decision) -> None:
        """Keep a decision; one that is like the last takes its place."""
        last = self.decisions[-1] if self.decisions else None
        if last is not None and not decision.is_step and _is_like(last, decision):
            self.decisions[-1] = replace(decision, at=last.at)
        else:
            self.decisions.append(decision)


def _slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"


def _is_like(last: Decision, decision: Decision) -> bool:
    names = ("verdict", "slots", "to", "is_dry")
    return all(getattr(last, name) == getattr(decision, name) for name in names)


def _brought_nothing(trial: _Trial, figures: Figures) -> str:
    """Return in words how little a step up has brought; "" if enough, or not needed."""
    if figures.rate is None or figures.busy is None or figures.demand is None:
        return ""
    offered = math.inf if figures.busy >= _FULL else figures.demand
    expected = min(trial.slot_rate * trial.to, offered) - trial.rate
    rise = figures.rate - trial.rate
    if expected <= _LEAST_RISE * trial.rate or rise >= _LEAST_RISE * expected:
        return ""
    return (
        f"{trial.to} slots do {figures.rate:,.0f} tuples/s, {trial.before} did {trial.rate:,.0f}: "
        f"{expected:,.0f} more were expected"
    )
