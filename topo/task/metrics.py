"""What a task counted in one batch, and the errors it met."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


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
    errors: list[ErrorReport] = field(default_factory=list)
