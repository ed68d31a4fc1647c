"""The time that a task spends on each stream that it reads.

A bolt that reads two streams may be quick with one and slow with the other, and only the figures of
each stream show which. The time is taken once for each run of tuples of one stream in a frame; in a
frame that mixes streams, for each tuple. The rest, such as unpacking and the last flush, belongs to
no stream alone and is shared by the number of tuples, so that the seconds of all streams together
are those of the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np

from topo.context import figure_key
from topo.metrics.counters import TaskMetrics
from topo.metrics.keys import INPUT
from topo.topology.layout import TaskLayout
from topo.tuples import Tuple
from topo.wire.frame import Frame


class InputSeconds:
    """A stopwatch with a sum for each stream; only the thread that executes may call it."""

    def __init__(self, layout: TaskLayout) -> None:
        self._layout = layout
        self._keys: dict[tuple[int, str], str] = {}
        self._seconds: dict[tuple[int, str], float] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._began = self._last = 0.0
        self._starts: list[float] = []
        """When each tuple of the mixed frame in work was asked for."""

    def begin(self) -> None:
        """Start to measure what `end` notes."""
        self._seconds.clear()
        self._counts.clear()
        self._began = self._last = perf_counter()

    def restart(self) -> None:
        """Leave the time since the last lap to all streams."""
        self._last = perf_counter()

    def lap(self, source_task: int, stream: str, count: int) -> None:
        """Note that the time since the last lap was spent on so many tuples of a stream."""
        now = perf_counter()
        self._add(source_task, stream, count, now - self._last)
        self._last = now

    def note_unread(self, frame: Frame) -> None:
        """Note tuples on which no time was spent, since they could not be read."""
        for section in frame.sections:
            self._add(frame.source_task, section.stream, section.count, 0.0)

    def one_by_one(
        self, tuples: Sequence[Iterator[Tuple]], order: Sequence[int]
    ) -> Iterator[Tuple]:
        """Yield the tuples of a mixed frame in their order, and note when each is asked for."""
        self._starts = starts = []
        now = perf_counter
        for number in order:
            starts.append(now())
            yield next(tuples[number])

    def lap_mixed(self, frame: Frame) -> None:
        """Note the times of a mixed frame, whose tuples have gone through `one_by_one`."""
        now = perf_counter()
        times = np.diff([*self._starts, now])
        numbers = frame.order[: len(times)] if frame.order is not None else ()
        seconds = np.bincount(numbers, times, len(frame.sections)).tolist()
        for section, spent in zip(frame.sections, seconds, strict=True):
            self._add(frame.source_task, section.stream, section.count, spent)
        self._last, self._starts = now, []

    def end(self, metrics: TaskMetrics) -> None:
        """Count what was measured since `begin`."""
        total = perf_counter() - self._began
        each = (total - sum(self._seconds.values())) / max(1, sum(self._counts.values()))
        for (task, stream), count in self._counts.items():
            key = self._key_of(task, stream)
            seconds = self._seconds[task, stream] + each * count
            metrics.executed_by_input[key] += count
            metrics.settled_by_input[key] += count
            metrics.execute_seconds_by_input[key] += seconds
            metrics.process_seconds_by_input[key] += seconds
        metrics.execute_seconds += total
        metrics.process_seconds += total

    def _key_of(self, source_task: int, stream: str) -> str:
        key = self._keys.get((source_task, stream))
        if key is None:
            key = key_of_stream(self._layout.component_of(source_task), stream)
            self._keys[source_task, stream] = key
        return key

    def _add(self, source_task: int, stream: str, count: int, seconds: float) -> None:
        key = source_task, stream
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds
        self._counts[key] = self._counts.get(key, 0) + count


def key_of_stream(component: str, stream: str) -> str:
    """Return the key under which figures of a component's stream are counted by who reads it."""
    return figure_key(INPUT, {"component": component, "stream": stream})
