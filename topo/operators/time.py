"""The time that an operator goes by: its tuples' own, or by arrival the clock of batches.

By arrival a tuple's time is the clock's. What is due then is done before the tuples of a batch, and
everything at the end of the input. The clock up to which things have ended is saved, so that none
ends a second time if the clock is behind it after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from topo.errors import TopoError, shown
from topo.event_time import AFTER_ALL, BEFORE_ALL, EventTime
from topo.timed import Clock, Rows

ARRIVAL = EventTime(None, idle=None)
"""Stands for the time of bolts by arrival: the batch's clock, in milliseconds."""

_ARRIVED = "arrived"
"""The record of the clock up to which things by arrival have ended."""


def check_time(time: Any, error: type[TopoError]) -> None:
    """Raise an error of this kind unless the time of a bolt is an EventTime, or none."""
    if time is not None and not isinstance(time, EventTime):
        raise error(
            f"time is {shown(time)}; it takes an EventTime", hint='write time=EventTime("ts")'
        )


class OperatorTime:
    """The time of one operator: without event time the clock, in ticks of `arrival`."""

    def __init__(self, time: EventTime | None, arrival: EventTime = ARRIVAL) -> None:
        self.by_arrival = time is None
        self.unit = time or arrival
        self._saved = BEFORE_ALL

    def times(self, rows: Rows, now: float, *, later: int = 0) -> list[Any]:
        """Return the tuples' times in ticks, None for one that cannot be read.

        Without times, they are `later` than the clock by so many ticks.
        """
        if rows.times is None:
            return [self.unit.clock_ticks(now) + later] * rows.count
        return rows.times

    def before_tuples(self, clock: Clock) -> int | None:
        """Return up to where things end before the tuples of a batch; None in event time."""
        return self.unit.clock_ticks(clock.now) if self.by_arrival else None

    def after_tuples(self, clock: Clock) -> int | None:
        """Return up to where things end after them; by arrival None before the last batch."""
        if not self.by_arrival:
            return clock.watermark
        return AFTER_ALL if clock.ended else None

    def reached(self, clock: Clock) -> int:
        """Return the time at the end of a batch."""
        return self.unit.clock_ticks(clock.now) if self.by_arrival else clock.watermark

    def wakes_at(self, next_event: Callable[[], int | None]) -> float | None:
        """Return when, by the clock, the next event by arrival is due."""
        return self.unit.wakes_at(next_event()) if self.by_arrival else None

    def load(self, saved: Mapping[str, bytes], watermark: int) -> int:
        """Return up to where things had ended at the last commit."""
        if not self.by_arrival:
            return watermark
        self._saved = int(saved.get(_ARRIVED, b"%d" % BEFORE_ALL))
        return self._saved

    def save(self, reached: int, changes: Any) -> None:
        """Save up to where things have ended by arrival, if that has changed."""
        if self.by_arrival and reached != self._saved:
            self._saved = reached
            changes.puts[_ARRIVED] = b"%d" % reached
