"""From when to when a rule or subscription is asked, and how often it fires.

A bound is a time, or a condition that some event fulfils: the event that fulfils `start` is the
first one asked, the one that fulfils `stop` is not asked any more. Times are compared with the time
of the event, so that events out of order have the same result in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Asked: TypeAlias = Callable[[Sequence[Any]], Any]
State: TypeAlias = tuple[bool, bool, int]


class Lifetime:
    """The bounds of one rule; times are in ticks."""

    __slots__ = ("_is_over", "_is_started", "_start", "_stop", "count", "is_changed", "times")

    def __init__(
        self, start: int | Asked | None, stop: int | Asked | None, times: int | None
    ) -> None:
        self._start = start
        self._stop = stop
        self.times = times
        self._is_started = not callable(start)
        self._is_over = False
        self.count = 0
        """How often it has fired."""
        self.is_changed = False

    @property
    def watches(self) -> bool:
        """True iff it has to see every event, since one may begin or end it."""
        return not self._is_over and (callable(self._start) or callable(self._stop))

    @property
    def stop_time(self) -> int | None:
        """The time of its end, if it has one."""
        return self._stop if isinstance(self._stop, int) else None

    def watch(self, row: Sequence[Any]) -> None:
        """Look at an event that may begin or end it; this comes before `admits`."""
        if callable(self._start) and not self._is_started and self._start(row):
            self._is_started = self.is_changed = True
        if self._is_started and callable(self._stop) and not self._is_over and self._stop(row):
            self._is_over = self.is_changed = True

    def admits(self, ts: int) -> bool:
        """Return True if an event of this time is asked."""
        if self._is_over or not self._is_started:
            return False
        if isinstance(self._start, int) and ts < self._start:
            return False
        return not isinstance(self._stop, int) or ts < self._stop

    def note_firing(self) -> None:
        """Count a firing; the last one that is allowed ends it."""
        self.count += 1
        self.is_changed = self.is_changed or self.times is not None
        if self.times is not None and self.count >= self.times:
            self._is_over = True

    def is_over(self, watermark: int) -> bool:
        """Return True if no event that may come is asked."""
        return self._is_over or (self.stop_time is not None and watermark >= self.stop_time)

    def state(self) -> State:
        """Return what changes, and is saved."""
        self.is_changed = False
        return self._is_started, self._is_over, self.count

    def restore(self, state: State) -> None:
        """Take over what was saved."""
        self._is_started, self._is_over, self.count = state
