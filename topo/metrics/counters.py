"""The counts and the errors of a task in one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

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


@dataclass
class TaskMetrics:
    """The counts of one task since its last report; times in seconds.

    `acked` and `failed` are a bolt's calls, or a spout's verdicts; `failed_by` counts a spout's
    failures by reason. `complete_seconds` sums, over acked messages, emit to verdict.
    """

    emitted: Counter[str] = field(default_factory=Counter)
    transferred: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    failed_by: Counter[str] = field(default_factory=Counter)
    unanchored: int = 0
    execute_seconds: float = 0.0
    complete_seconds: float = 0.0
    pending: int = 0
    held: int = 0
    oldest_held_secs: float = 0.0
    saved_bytes: int = 0
    errors: ErrorReports = field(default_factory=ErrorReports)
    counters: Counter[str] = field(default_factory=Counter)
    """What the component counted itself, by name and labels."""
    gauges: dict[str, float | None] = field(default_factory=dict)
    """The levels that the component noted since the last report; None: there is none any more."""
    stalled: str = ""
    """Why a spout cannot emit, in its own words."""
