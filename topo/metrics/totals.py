"""The figures of a run: the sums of its tasks' counts, and their errors."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from topo.metrics.counters import ErrorEntry, ErrorReport, TaskMetrics
from topo.metrics.figure import value_of
from topo.metrics.figures import COMPONENT, BatchRecord, BatchStats, ComponentStats
from topo.metrics.keys import INPUT
from topo.topology.layout import TaskLayout
from topo.topology.model import Topology

_KEPT_ERRORS = 1000
_RECENT_BATCHES = 100
_RECENT_SECS = 60.0
BATCH_SECONDS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
"""The limits of the histogram of batches."""


_OF_NO_TASK: dict[str, Any] = {figure.name: {} for figure in COMPONENT if figure.by == INPUT}
"""Figures by input stream are the component's alone: of each task they would be too many."""


@dataclass(frozen=True)
class _Batch:
    id: int
    ended: float
    ms: float
    waited_ms: float
    rows: int
    phases: Mapping[str, float]
    ended_at: float

    @property
    def worked_ms(self) -> float:
        return max(0.0, self.ms - self.waited_ms)


class RunTotals:
    """The sums and errors of one run."""

    def __init__(self, topology: Topology, layout: TaskLayout, host: str = "localhost") -> None:
        self._topology = topology
        self._layout = layout
        self._host = host
        self._tasks: dict[int, TaskMetrics] = {}
        self._gone: dict[str, TaskMetrics] = {}
        """What tasks of a component have counted that are not there any more."""
        self._errors: dict[tuple[str, str, str], ErrorEntry] = {}
        self._recent: deque[_Batch] = deque(maxlen=_RECENT_BATCHES)
        self.busy_seconds = 0.0
        self._batches = 0
        self._wait_secs = 0.0
        self._by_seconds = [0] * len(BATCH_SECONDS)

    def take_layout(self, layout: TaskLayout) -> None:
        """Continue with other tasks; counts of those that are gone stay with their component."""
        for name in self._topology.components:
            before, now = self._layout.tasks_of(name), layout.tasks_of(name)
            if before != now:
                sums = self._gone.setdefault(name, TaskMetrics())
                for task in before:
                    if (counts := self._tasks.pop(task, None)) is not None:
                        sums.add_counts(counts)
        self._layout = layout

    def add(self, metrics: Mapping[int, TaskMetrics], now: float) -> None:
        """Add the counts of one batch."""
        for task, counted in metrics.items():
            self._tasks.setdefault(task, TaskMetrics()).add(counted)
            for report in counted.errors:
                self.add_error(report, now)

    def batch_done(
        self,
        number: int,
        now: float,
        *,
        ms: float,
        rows: int,
        waited_ms: float = 0.0,
        phases: Mapping[str, float] | None = None,
    ) -> None:
        """Record the end of a batch; `now` must always come from the same clock."""
        self._recent.append(
            _Batch(number, now, ms, min(ms, waited_ms), rows, phases or {}, time.time())
        )
        self.busy_seconds += ms / 1000
        self._batches += 1
        self._wait_secs += self._recent[-1].waited_ms / 1000
        first = bisect_left(BATCH_SECONDS, self._recent[-1].worked_ms / 1000)
        for index in range(first, len(BATCH_SECONDS)):
            self._by_seconds[index] += 1

    def batch(self, now: float) -> BatchStats:
        """Return the figures of the last batch and of the recent ones."""
        if not self._recent:
            return BatchStats()
        last = self._recent[-1]
        worked = sorted(batch.worked_ms for batch in self._recent)
        return BatchStats(
            last.id,
            last.ms,
            last.rows,
            last.waited_ms,
            _percentile(worked, 50),
            _percentile(worked, 99),
            self._rows_per_sec(now),
            self._batches,
            self.busy_seconds - self._wait_secs,
            self._wait_secs,
            tuple(self._by_seconds),
        )

    def batches(self) -> list[BatchRecord]:
        """Return the recent batches, the oldest first."""
        return [
            BatchRecord(
                batch.id, batch.ended_at, batch.ms, batch.waited_ms, batch.rows, batch.phases
            )
            for batch in list(self._recent)  # another thread may add one
        ]

    def _rows_per_sec(self, now: float) -> float:
        recent = [batch for batch in self._recent if batch.ended > now - _RECENT_SECS]
        if not recent:
            return 0.0
        secs = now - recent[0].ended + recent[0].ms / 1000
        return sum(batch.rows for batch in recent) / secs if secs > 0 else 0.0

    def add_error(self, report: ErrorReport, now: float) -> None:
        key = (report.component, report.kind, f"{report.type}: {report.message}")
        before = self._errors.pop(key, None)
        self._errors[key] = ErrorEntry(
            component=report.component,
            task=report.task,
            host=self._host,
            kind=report.kind,
            type=report.type,
            message=report.message,
            at=report.at,
            traceback=report.traceback,
            count=report.count + (before.count if before else 0),
            first=before.first if before else now,
            last=now,
        )
        if len(self._errors) > _KEPT_ERRORS:
            del self._errors[next(iter(self._errors))]

    def errors(self) -> list[ErrorEntry]:
        """Return the errors, the latest first."""
        return list(reversed(self._errors.values()))

    def components(self) -> dict[str, ComponentStats]:
        return {name: self._component(name) for name in self._topology.components}

    def total(self, attribute: str) -> int:
        return sum(getattr(counts, attribute) for counts in self._tasks.values())

    def oldest_pending_secs(self) -> float:
        """Return the age of the oldest pending message, as spouts have reported it last."""
        ages = (counts.oldest_pending_secs for counts in self._tasks.values())
        return float(max(ages, default=0.0))

    def settle(self) -> None:
        """Note that the spouts have heard of all their messages since they reported."""
        for counts in self._tasks.values():
            counts.settle()

    def _component(self, name: str) -> ComponentStats:
        kind = self._topology.component(name).kind
        whole = TaskMetrics()
        if name in self._gone:
            whole.merge(self._gone[name])
        by_task = {}
        for task in self._layout.tasks_of(name):
            counts = self._tasks.get(task) or TaskMetrics()
            by_task[task] = replace(self._stats(kind, 1, counts), **_OF_NO_TASK)
            whole.merge(counts)
        return replace(self._stats(kind, len(by_task), whole), by_task=by_task)

    def _stats(self, kind: str, tasks: int, counts: TaskMetrics) -> ComponentStats:
        busy = self.busy_seconds * tasks
        values = {figure.name: value_of(figure, counts, kind, busy) for figure in COMPONENT}
        return ComponentStats(kind=kind, tasks=tasks, **values)


def _percentile(ascending: list[float], percent: int) -> float:
    return ascending[max(0, ceil(percent / 100 * len(ascending)) - 1)]
