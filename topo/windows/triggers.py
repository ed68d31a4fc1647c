"""The algebra of triggers: rules for when a window reports.

A trigger is a rule over facts of one window's current pane: how many tuples are new, since when by
the clock, where the watermark is. Counts and conditions are looked at after each tuple, so results
do not depend on how batches are cut; times at the end of a batch, in order.

A trigger repeats: when it has fired, it is looked at anew for the next pane. `Then` is the
exception: each of its parts fires once, then the window is finished and takes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from math import floor
from typing import Any

from topo.errors import WindowError
from topo.event_time import BEFORE_ALL, Duration, EventTime, duration_ticks

EARLY, ON_TIME, LATE = "early", "on_time", "late"

# What is going on when a trigger is looked at.
ELEMENT, MOMENT, BATCH, END = "element", "moment", "batch", "end"


class Facts:
    """The facts of a window that a trigger may know."""

    __slots__ = ("end", "event_base", "first_now", "incoming", "new", "now", "results", "steps",
                 "watermark", "what")  # fmt: skip

    def __init__(self) -> None:
        self.what = ELEMENT
        self.new = 0
        """The tuples since the last pane."""
        self.first_now: float | None = None
        """The clock when the first of them came."""
        self.event_base = BEFORE_ALL
        """The event time from which `EveryEventTime` counts."""
        self.now = 0.0
        self.watermark = BEFORE_ALL
        self.end = 0
        self.results: Callable[[], dict[str, Any]] = dict
        self.incoming: dict[str, Any] | None = None
        """The values about to be added, while a condition is asked before."""
        self.steps: dict[int, int] = {}
        """How far each `Then` has come, by its number in the trigger."""


class Trigger:
    """A rule for when a window reports."""

    def fires(self, facts: Facts) -> bool:
        """Return True if a pane is due."""
        raise NotImplementedError

    def holds(self, facts: Facts) -> bool:
        """Return True if a pane is due, or was when this trigger was looked at before."""
        return self.fires(facts)

    def fired(self, facts: Facts) -> None:
        """Note that a pane was sent."""

    def finished(self, facts: Facts) -> bool:
        """Return True if nothing more will be sent."""
        return False

    def parts(self) -> Iterator[Trigger]:
        """Yield the triggers this one is made of."""
        return iter(())

    def clock_due(self, facts: Facts) -> float | None:
        """Return when, by the clock, the trigger will fire if nothing comes."""
        times = [part.clock_due(facts) for part in self.parts()]
        return min((time for time in times if time is not None), default=None)

    def event_due(self, facts: Facts) -> int | None:
        """Return the watermark at which the trigger will fire, apart from the window's end."""
        times = [part.event_due(facts) for part in self.parts()]
        return min((time for time in times if time is not None), default=None)

    def in_ticks(self, time: EventTime) -> Trigger:
        """Return the trigger with event-time durations in ticks."""
        return self

    def walk(self) -> Iterator[Trigger]:
        """Yield this trigger and all its parts."""
        yield self
        for part in self.parts():
            yield from part.walk()


@dataclass(frozen=True)
class AfterCount(Trigger):
    """Fires as soon as a pane has n tuples."""

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise WindowError(f"AfterCount({self.n!r}): a whole number of 1 or more")

    def fires(self, facts: Facts) -> bool:
        return facts.new >= self.n


class _ByClock(Trigger):
    """The base of the triggers that are due by the clock, some time after a pane's first tuple."""

    def due_after(self, first_now: float) -> float:
        """Return when a pane is due whose first tuple came then."""
        raise NotImplementedError

    def fires(self, facts: Facts) -> bool:
        due = self.clock_due(facts)
        return due is not None and facts.now >= due

    def clock_due(self, facts: Facts) -> float | None:
        if not facts.new or facts.first_now is None:
            return None
        return self.due_after(facts.first_now)


@dataclass(frozen=True)
class AfterDelay(_ByClock):
    """Fires when so much time has passed, by the clock, since the first tuple of a pane."""

    delay: timedelta

    def __post_init__(self) -> None:
        _check_clock(self.delay, "AfterDelay")

    def due_after(self, first_now: float) -> float:
        return first_now + self.delay.total_seconds()


@dataclass(frozen=True)
class Every(_ByClock):
    """Fires at the multiples of a period, by the clock, if there is something new."""

    period: timedelta

    def __post_init__(self) -> None:
        _check_clock(self.period, "Every")

    def due_after(self, first_now: float) -> float:
        secs = self.period.total_seconds()
        return (floor(first_now / secs) + 1) * secs


@dataclass(frozen=True)
class EveryEventTime(Trigger):
    """Fires when the watermark passes a multiple of a period, if there is something new."""

    period: Duration
    ticks: int = field(default=0, repr=False)
    """The period in the unit of the time field, once that is known."""

    def __post_init__(self) -> None:
        duration_ticks(self.period, "us", "EveryEventTime: period")

    def in_ticks(self, time: EventTime) -> Trigger:
        return EveryEventTime(self.period, time.ticks(self.period, "EveryEventTime: period"))

    def event_due(self, facts: Facts) -> int | None:
        if not facts.new:
            return None
        return facts.event_base - facts.event_base % self.ticks + self.ticks

    def fires(self, facts: Facts) -> bool:
        due = self.event_due(facts)
        return due is not None and facts.watermark >= due


@dataclass(frozen=True)
class EachBatch(Trigger):
    """Fires at the end of each batch that brought something new."""

    def fires(self, facts: Facts) -> bool:
        return facts.what == BATCH and facts.new > 0

    def holds(self, facts: Facts) -> bool:
        return facts.what != ELEMENT and facts.new > 0


@dataclass(frozen=True)
class When(Trigger):
    """Fires when a condition holds of the results so far, a dict by aggregate.

    With `before=True` the condition is asked before a tuple is added, with the results and the
    values that are about to be added: the tuple begins the next pane.
    """

    condition: Callable[..., bool]
    before: bool = False

    def __post_init__(self) -> None:
        if not callable(self.condition):
            raise WindowError(f"When({self.condition!r}): it takes a function of the results")

    def fires(self, facts: Facts) -> bool:
        if not facts.new or facts.what not in (ELEMENT, BATCH):
            return False
        if self.before:
            incoming = facts.incoming
            return incoming is not None and bool(self.condition(facts.results(), incoming))
        return facts.incoming is None and bool(self.condition(facts.results()))


class Any_(Trigger):
    """Fires when one of its parts does."""

    def __init__(self, *parts: Trigger) -> None:
        self._parts = _checked(parts, "Any")

    def parts(self) -> Iterator[Trigger]:
        return iter(self._parts)

    def fires(self, facts: Facts) -> bool:
        return any(part.fires(facts) for part in self._parts)

    def fired(self, facts: Facts) -> None:
        for part in self._parts:
            if part.fires(facts):
                part.fired(facts)

    def finished(self, facts: Facts) -> bool:
        return any(part.finished(facts) for part in self._parts)

    def in_ticks(self, time: EventTime) -> Trigger:
        return Any_(*(part.in_ticks(time) for part in self._parts))

    def __repr__(self) -> str:
        return f"Any({', '.join(map(repr, self._parts))})"


class AllOf(Trigger):
    """Fires when all its parts do; a part that was due stays so within a pane.

    A window's end stays so for good: `AllOf(AfterCount(5), AtWatermark())` fires at the end, or
    with the fifth tuple if that is later. `AllOf(AfterCount(5), EachBatch())` counts by the batch.
    """

    def __init__(self, *parts: Trigger) -> None:
        self._parts = _checked(parts, "AllOf")

    def parts(self) -> Iterator[Trigger]:
        return iter(self._parts)

    def fires(self, facts: Facts) -> bool:
        return all(part.holds(facts) for part in self._parts)

    def fired(self, facts: Facts) -> None:
        for part in self._parts:
            part.fired(facts)

    def clock_due(self, facts: Facts) -> float | None:
        times = [part.clock_due(facts) for part in self._parts]
        return max((time for time in times if time is not None), default=None)

    def event_due(self, facts: Facts) -> int | None:
        times = [part.event_due(facts) for part in self._parts]
        return max((time for time in times if time is not None), default=None)

    def in_ticks(self, time: EventTime) -> Trigger:
        return AllOf(*(part.in_ticks(time) for part in self._parts))

    def __repr__(self) -> str:
        return f"AllOf({', '.join(map(repr, self._parts))})"


class Then(Trigger):
    """Fires by its parts one after the other, each once; then the window is finished.

    `Then(AfterCount(2))` sends one pane of two tuples and nothing more. With `again=True` it
    begins anew with its first part instead.
    """

    def __init__(self, *parts: Trigger, again: bool = False) -> None:
        self._parts = _checked(parts, "Then")
        self._again = again
        self.number = 0

    def parts(self) -> Iterator[Trigger]:
        return iter(self._parts)

    def _part(self, facts: Facts) -> Trigger | None:
        step = facts.steps.get(self.number, 0)
        return self._parts[step] if step < len(self._parts) else None

    def fires(self, facts: Facts) -> bool:
        part = self._part(facts)
        return part is not None and part.fires(facts)

    def fired(self, facts: Facts) -> None:
        step = facts.steps.get(self.number, 0) + 1
        facts.steps[self.number] = step % len(self._parts) if self._again else step

    def finished(self, facts: Facts) -> bool:
        return self._part(facts) is None

    def clock_due(self, facts: Facts) -> float | None:
        part = self._part(facts)
        return part.clock_due(facts) if part else None

    def event_due(self, facts: Facts) -> int | None:
        part = self._part(facts)
        return part.event_due(facts) if part else None

    def in_ticks(self, time: EventTime) -> Trigger:
        return Then(*(part.in_ticks(time) for part in self._parts), again=self._again)

    def __repr__(self) -> str:
        again = ", again=True" if self._again else ""
        return f"Then({', '.join(map(repr, self._parts))}{again})"


class AtWatermark(Trigger):
    """Fires when the watermark passes the window's end, by `early` before and by `late` after.

    By default a late pane comes at the end of each batch that changed the window, as long as its
    lateness is allowed. `late=None` sends none.
    """

    def __init__(self, early: Trigger | None = None, late: Trigger | None = EachBatch()) -> None:
        for name, part in (("early", early), ("late", late)):
            if part is not None and not isinstance(part, Trigger):
                raise WindowError(f"AtWatermark: {name} is {part!r}; it takes a trigger")
        self.early = early
        self.late = late

    def parts(self) -> Iterator[Trigger]:
        return (part for part in (self.early, self.late) if part is not None)

    def _part(self, facts: Facts) -> Trigger | None:
        return self.late if facts.watermark >= facts.end else self.early

    def fires(self, facts: Facts) -> bool:
        if facts.what == END:
            return True
        part = self._part(facts)
        return part is not None and part.fires(facts)

    def holds(self, facts: Facts) -> bool:
        return facts.watermark >= facts.end or self.fires(facts)

    def fired(self, facts: Facts) -> None:
        part = self._part(facts)
        if facts.what != END and part is not None:
            part.fired(facts)

    def clock_due(self, facts: Facts) -> float | None:
        part = self._part(facts)
        return part.clock_due(facts) if part else None

    def event_due(self, facts: Facts) -> int | None:
        part = self._part(facts)
        return part.event_due(facts) if part else None

    def in_ticks(self, time: EventTime) -> Trigger:
        early = self.early.in_ticks(time) if self.early else None
        return AtWatermark(early, self.late.in_ticks(time) if self.late else None)

    def __repr__(self) -> str:
        return f"AtWatermark(early={self.early!r}, late={self.late!r})"


def prepared(trigger: Trigger, time: EventTime) -> Trigger:
    """Return a trigger ready for use: durations in ticks, each `Then` numbered."""
    made = trigger.in_ticks(time)
    for number, part in enumerate(made.walk()):
        if isinstance(part, Then):
            part.number = number
    return made


def check_trigger(trigger: object) -> None:
    """Raise a WindowError if this is no trigger."""
    if not isinstance(trigger, Trigger):
        raise WindowError(
            f"trigger is {trigger!r}; it takes a trigger",
            hint="such as AtWatermark(early=AfterCount(100))",
        )


def _checked(parts: tuple[Trigger, ...], name: str) -> tuple[Trigger, ...]:
    if not parts or not all(isinstance(part, Trigger) for part in parts):
        raise WindowError(f"{name}{parts!r}: it takes one trigger or more")
    return parts


def _check_clock(value: object, name: str) -> None:
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise WindowError(
            f"{name}({value!r}): it takes a timedelta above zero",
            hint=f"write {name}(timedelta(seconds=10))",
        )
