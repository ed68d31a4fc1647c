"""The clock of batches: the wall clock, but steady.

Ticks and timeouts go by it, so it may neither stand still when the wall clock is set back nor leap
when that is set ahead, or when a machine wakes up: all that is pending would time out at once. It
runs by the monotonic clock, and at most a tenth faster or slower than that while the wall clock
differs: small corrections are followed at once, an hour within ten.

One process has the clock of a run: the coordinator of its batches or epochs. The others are told.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

_MOST_DRIFT = 0.1


def monotonic() -> float:
    """Return the seconds since some moment, for durations: nobody can set this clock."""
    return time.monotonic()


class SteadyClock:
    """A clock that is called for the time. Any thread may call it."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._now = wall()
        self._read_at = monotonic()

    def __call__(self) -> float:
        with self._lock:
            read_at = self._monotonic()
            passed = read_at - self._read_at
            ahead = self._wall() - self._now - passed
            most = _MOST_DRIFT * passed
            self._now += passed + min(max(ahead, -most), most)
            self._read_at = read_at
            return self._now

    def reach(self, least: float) -> None:
        """Set the clock ahead to a time that is known to have been; it never goes back."""
        with self._lock:
            self._now = max(self._now, least)


class FollowingClock:
    """The steady clock of another process, which now and then tells what it shows.

    In between it runs by the monotonic clock of this process. What it is told is approached as
    `SteadyClock` approaches the wall clock, so it does not leap after a long silence either. One
    thread tells it; any thread may call it, once it has been told something. A slot's loop does
    so several times a turn, so it goes by a line that is computed when it is told.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._told = -math.inf
        self._line = (0.0, 0.0, 0.0, 0.0)
        """A time, when it was, how fast the clock drifts from then on, and for how long."""

    def follow(self, shows: float) -> None:
        """Take in what the other clock shows; an earlier time has been long on its way."""
        if shows <= self._told:
            return
        is_first, self._told = self._told == -math.inf, shows
        at = self._monotonic()
        now = shows if is_first else self._at(at)
        apart = shows - now
        self._line = (now, at, math.copysign(_MOST_DRIFT, apart), abs(apart) / _MOST_DRIFT)

    def __call__(self) -> float:
        return self._at(self._monotonic())

    def _at(self, at: float) -> float:
        begin, since, drift, secs = self._line
        passed = at - since
        return begin + passed + drift * min(passed, secs)
