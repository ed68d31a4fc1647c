"""Timers by key and name, on two lines of time: the clock, and event time.

A timer that is set again or deleted leaves its entry in the heap, where it is recognised when it
comes up: a heap has no cheap way to lose an entry in its middle.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple


class Timer(NamedTuple):
    """A timer that is due."""

    key: Any
    name: str
    at: Any
    note: Any
    """What was noted when it was set."""


class Timers:
    """The timers of one task. `by_key` is what its owner saves, a key at a time."""

    def __init__(self) -> None:
        self.by_key: dict[Any, dict[str, tuple[bool, Any, Any]]] = {}
        """By key and name: whether it goes by the clock, when it is due, and a note."""
        self._heaps: dict[bool, list[tuple[Any, int, Any, str]]] = {False: [], True: []}
        self._numbers = count()

    def load(self, by_key: Mapping[Any, Mapping[str, tuple[bool, Any, Any]]]) -> None:
        """Take over the timers of the last commit."""
        self.by_key = {key: dict(timers) for key, timers in by_key.items()}
        for key, timers in self.by_key.items():
            for name, (by_clock, at, _) in timers.items():
                heapq.heappush(self._heaps[by_clock], (at, next(self._numbers), key, name))

    def set(self, key: Any, name: str, by_clock: bool, at: Any, note: Any = None) -> None:
        """Set a timer; one of the same key and name is replaced."""
        self.by_key.setdefault(key, {})[name] = (by_clock, at, note)
        heapq.heappush(self._heaps[by_clock], (at, next(self._numbers), key, name))

    def delete(self, key: Any, name: str) -> bool:
        """Delete a timer; return True if there was one."""
        timers = self.by_key.get(key, {})
        had = timers.pop(name, None) is not None
        if not timers:
            self.by_key.pop(key, None)
        return had

    def forget(self, key: Any) -> None:
        """Delete all timers of a key."""
        self.by_key.pop(key, None)

    def first(self, by_clock: bool) -> Any:
        """Return when the next entry comes up, which may be a deleted one's; None if none does."""
        heap = self._heaps[by_clock]
        return heap[0][0] if heap else None

    def due(self, by_clock: bool, until: Any, *, set_before_now: bool = False) -> Iterator[Timer]:
        """Yield the timers that are due, each deleted before; what is set meanwhile comes too.

        With `set_before_now` it does not: at the end of the input nothing would end otherwise.
        """
        heap, last = self._heaps[by_clock], next(self._numbers)
        while heap and heap[0][0] <= until:
            at, number, key, name = heapq.heappop(heap)
            if set_before_now and number > last:
                continue
            timer = self.by_key.get(key, {}).get(name)
            if timer is None or timer[:2] != (by_clock, at):
                continue  # replaced or deleted
            self.delete(key, name)
            yield Timer(key, name, at, timer[2])
