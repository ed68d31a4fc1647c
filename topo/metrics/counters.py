"""The counts and the errors of a task in one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from topo.metrics.figure import fresh_counts
from topo.metrics.figures import COMPONENT

MOST_ERRORS = 100
MORE_ERRORS = f"more errors: a task's first {MOST_ERRORS} different ones of a batch are kept"

_MOST_CHARS = 200_000
_MESSAGE_CHARS = 2_000
_TRACEBACK_CHARS = 8_000


@dataclass(frozen=True)
class ErrorReport:
    """An error for `topo errors`: uncaught, reported by the user's code, or a failed message."""

    component: str
    task: int
    kind: str  # "uncaught", "reported" or "failed"
    type: str
    message: str
    at: str = ""
    traceback: str = ""
    count: int = 1


@dataclass
class ErrorReports:
    """The errors of a task since its last report: equal ones are one, with their count.

    A batch may fail a message for each of its tuples, each in different words, and all errors
    travel with the batch's report. So the first different errors are stored, long texts are cut,
    and the remaining errors are only counted, by kind.
    """

    _reports: dict[tuple[str, ...], ErrorReport] = field(default_factory=dict)
    _counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    _chars: int = 0

    def append(self, report: ErrorReport) -> None:
        key: tuple[str, ...] = (
            report.component,
            report.kind,
            report.type,
            report.message[:_MESSAGE_CHARS],
        )
        if key not in self._reports:
            if len(self._reports) >= MOST_ERRORS or self._chars >= _MOST_CHARS:
                key, report = _more(report)
            else:
                report = _cut(report)
            self._chars += len(report.message) + len(report.traceback)
            self._reports.setdefault(key, report)
        self._counts[key] += report.count

    def keep(self, most: int) -> None:
        """Keep at most `most` different errors, and count the others."""
        for key in list(self._reports)[most:]:
            rest, report = _more(self._reports.pop(key))
            count = self._counts.pop(key)
            self._reports.setdefault(rest, report)
            self._counts[rest] += count

    def __iter__(self) -> Iterator[ErrorReport]:
        for key, report in self._reports.items():
            yield replace(report, count=self._counts[key])

    def __len__(self) -> int:
        return len(self._reports)


def _more(report: ErrorReport) -> tuple[tuple[str, ...], ErrorReport]:
    """Return the report that counts errors whose own report is not stored."""
    more = ErrorReport(report.component, report.task, report.kind, "", MORE_ERRORS)
    return (more.component, more.kind, more.type, more.message), replace(more, count=report.count)


def _cut(report: ErrorReport) -> ErrorReport:
    """Return the report with long texts cut; of a traceback both ends remain."""
    message, traceback = report.message, report.traceback
    if len(message) > _MESSAGE_CHARS:
        message = message[: _MESSAGE_CHARS - 3] + "..."
    if len(traceback) > _TRACEBACK_CHARS:
        half = _TRACEBACK_CHARS // 2
        traceback = f"{traceback[:half]}\n...\n{traceback[-half:]}"
    return replace(report, message=message, traceback=traceback)


@dataclass(frozen=True)
class ErrorEntry:
    """An error and how often it came."""

    component: str
    task: int
    host: str
    kind: str  # "uncaught", "reported" or "failed"
    type: str
    message: str
    at: str
    traceback: str
    count: int
    first: float
    last: float


_COUNTS = fresh_counts(COMPONENT)


class TaskMetrics:
    """The counts of one task since its last report: an attribute for each count of the table."""

    errors: ErrorReports

    def __init__(self) -> None:
        for name, fresh in _COUNTS.items():
            setattr(self, name, fresh())
        self.errors = ErrorReports()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    @property
    def has_counts(self) -> bool:
        """True iff something was counted, noted or went wrong; how levels stand does not matter."""
        return bool(self.errors) or any(getattr(self, name) for name in _REPORTED_ON_CHANGE)

    def note_saved(self, nbytes: int) -> None:
        """Note how large the saved state of the task is now."""
        self.saved_bytes = nbytes

    def levels(self) -> tuple[float, ...]:
        """Return the levels that every report has, to be compared with those of another one."""
        return tuple(getattr(self, name) for name in _REPORTED_ALWAYS)

    def add(self, counted: TaskMetrics) -> None:
        """Add a later report of the same task: counts are added up, levels replaced."""
        for figure in COMPONENT:
            if figure.kind == "gauge":
                before, now = getattr(self, figure.count), getattr(counted, figure.count)
                sticks = figure.merge == "sticky" and not now
                setattr(self, figure.count, before if sticks else now)
            elif figure.kind == "gauges":
                getattr(self, figure.count).update(getattr(counted, figure.count))
        self.add_counts(counted)

    def merge(self, other: TaskMetrics) -> None:
        """Add another task of the same component: levels are added up as well, or the maximum."""
        for figure in COMPONENT:
            ours, theirs = getattr(self, figure.count), getattr(other, figure.count)
            if figure.kind == "gauge":
                level = max(ours, theirs) if figure.merge == "max" else ours + theirs
                setattr(self, figure.count, level)
            elif figure.kind == "gauges":
                for name, level in theirs.items():
                    if level is not None:
                        ours[name] = (ours.get(name) or 0.0) + level
        self.add_counts(other)

    def settle(self) -> None:
        """Note that nothing is pending any more."""
        self.pending, self.oldest_pending_secs = 0, 0.0

    def add_counts(self, other: TaskMetrics) -> None:
        """Add what another task has counted, and leave its levels out."""
        for name in _SUMMED:
            ours, theirs = getattr(self, name), getattr(other, name)
            if isinstance(ours, Counter):
                ours.update(theirs)
            else:
                setattr(self, name, ours + theirs)


_LEVELS = {figure.count for figure in COMPONENT if figure.kind in ("gauge", "gauges")}
_SUMMED = [name for name in _COUNTS if name not in _LEVELS]
_REPORTED_ALWAYS = [
    figure.count for figure in COMPONENT if figure.kind == "gauge" and figure.merge != "sticky"
]
_REPORTED_ON_CHANGE = [name for name in _COUNTS if name not in _REPORTED_ALWAYS]
