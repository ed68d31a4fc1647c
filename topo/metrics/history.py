"""Figures of the last ten minutes, three hours or day, from counts since the start.

Samples are frequent for the last ten minutes and rarer before: a few hundred in all. They hold
only counts and averages, since there is one for each task.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from topo.metrics.figure import difference
from topo.metrics.figures import COMPONENT

_KEPT = ((2.5, 620.0), (120.0, 11_000.0), (900.0, 88_000.0))
"""(least seconds between samples, seconds they are kept) of each series."""

_COUNTERS = tuple(figure.name for figure in COMPONENT if figure.kind == "counter")
_OF_A_SAMPLE = tuple(f.name for f in COMPONENT if f.kind not in ("gauge", "gauges"))


class Windows:
    """Samples of one run's figures; all times must come from the same clock.

    Any thread may call it: one adds, those of a server ask.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_continued = False
        self._series: list[deque[tuple[float, Mapping[str, Any]]]] = [deque() for _ in _KEPT]

    def begin(self, now: float, figures: Mapping[str, Any]) -> None:
        """Take in what was counted before there were samples: no window reaches back beyond it."""
        self._is_continued = True
        self.add(now, figures)

    def add(self, now: float, figures: Mapping[str, Any]) -> None:
        sample = {name: _sample_of(of) for name, of in figures["components"].items()}
        with self._lock:
            for series, (apart, kept) in zip(self._series, _KEPT, strict=True):
                if not series or now - series[-1][0] >= apart:
                    series.append((now, sample))
                while series and now - series[0][0] > kept:
                    series.popleft()

    def last(self, secs: float, now: float, figures: Mapping[str, Any]) -> dict[str, Any]:
        """Return `figures` counted over the last `secs` only, or over the whole run if shorter."""
        before = self._sample(now - secs)
        if before is None:
            return dict(figures)
        then, old = before
        components = {
            name: _difference(of, old.get(name), now - then)
            for name, of in figures["components"].items()
        }
        return {**figures, "components": components}

    def _sample(self, at: float) -> tuple[float, Mapping[str, Any]] | None:
        """Return the latest sample that is not after `at`; if there is none, what to count from."""
        with self._lock:
            samples = [sample for series in self._series for sample in series]
        before = [sample for sample in samples if sample[0] <= at]
        if before:
            return max(before, key=lambda sample: sample[0])
        return min(samples, key=lambda sample: sample[0]) if self._is_continued else None


def _sample_of(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample of a component's figures and of each of its tasks' figures."""
    by_task = {task: _sample_of(of) for task, of in figures.get("by_task", {}).items()}
    return {**{key: figures[key] for key in _OF_A_SAMPLE if key in figures}, "by_task": by_task}


def _difference(
    now: Mapping[str, Any], before: Mapping[str, Any] | None, secs: float
) -> dict[str, Any]:
    if before is None or any(now.get(key, 0) < before.get(key, 0) for key in _COUNTERS):
        return dict(now)  # counted anew in between
    found = difference(COMPONENT, now, before, secs)
    found["by_task"] = {
        task: _difference(of, before["by_task"].get(task), secs)
        for task, of in now.get("by_task", {}).items()
    }
    return found
