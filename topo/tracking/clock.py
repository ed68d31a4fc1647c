"""The clock of batches: the wall clock, but steady.

Ticks and timeouts go by it, so it may neither stand still when the wall clock is set back nor leap
when that is set ahead, or when a machine wakes up: all that is pending would time out at once. It
runs by the monotonic clock, and at most a tenth faster or slower than that while the wall clock
differs: small corrections are followed at once, an hour within ten.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_MOST_DRIFT = 0.1


class SteadyClock:
    """A clock that is called for the time. Any thread may call it."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
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
