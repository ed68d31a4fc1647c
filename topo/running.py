"""What a running topology looks like from outside: its status, its figures, its errors.

The shapes here are what `Run.stats()` and `Run.errors()` return on every engine, and what the
command line prints as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

STARTING = "STARTING"
ACTIVE = "ACTIVE"
INACTIVE = "INACTIVE"
STALLED = "STALLED"
KILLED = "KILLED"
COMPLETED = "COMPLETED"
FAILED = "FAILED"

ENDED = frozenset({KILLED, COMPLETED, FAILED})


@dataclass(frozen=True)
class BatchStats:
    """The last micro-batch, and how the recent ones went."""

    id: int = 0
    ms: float = 0.0
    rows: int = 0
    """What the spouts emitted in it."""
    waited_ms: float = 0.0
    """Of `ms`, how long it waited for the spouts to have something."""
    p50_ms: float | None = None
    """Of the recent batches, without what they waited; of the latest hundred, that is."""
    p99_ms: float | None = None
    rows_per_sec: float = 0.0
    """Over the recent batches, of the last minute at most."""
    count: int = 0
    """Of batches since the start; so are the two sums and the histogram of what they worked."""
    worked_secs: float = 0.0
    wait_secs: float = 0.0
    by_seconds: tuple[int, ...] = ()
    """How many batches worked for no longer than each limit of BATCH_SECONDS."""


@dataclass(frozen=True)
class BatchRecord:
    """One micro-batch that has ended."""

    id: int
    ended_at: float
    """In seconds since 1970."""
    ms: float
    waited_ms: float
    rows: int
    phases: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of it by what the engine did, if the engine tells."""


@dataclass(frozen=True)
class AckerStats:
    """The ackers of a run, all together."""

    executors: int
    pending: int
    lag_secs: float
    """The age of the oldest message that is neither acked nor failed; 0 if there is none."""
    quiet_secs: float
    """How long ago they last heard of a committed batch."""
    unheard: int
    """Acks and failures that no committed batch has delivered to their spouts yet."""
    updates: int
    updates_per_sec: float | None
    held_bytes: int


@dataclass(frozen=True)
class ComponentStats:
    """The figures of one component, or of one of its tasks."""

    kind: str
    tasks: int
    executors: int = 1
    emitted: int = 0
    emitted_by: Mapping[str, int] = field(default_factory=dict)
    """By stream."""
    transferred: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    failed_by: Mapping[str, int] = field(default_factory=dict)
    unanchored: int = 0
    pending: int = 0
    held: int = 0
    oldest_held_secs: float = 0.0
    execute_ms: float | None = None
    process_ms: float | None = None
    complete_ms: float | None = None
    capacity: float | None = None
    saved_bytes: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    """What the component counts itself, by name and labels."""
    gauges: Mapping[str, float] = field(default_factory=dict)
    """The levels it notes, such as a lag; the tasks' of one name and labels are added up."""
    by_task: Mapping[int, ComponentStats] = field(default_factory=dict)


@dataclass(frozen=True)
class RunStats:
    """The figures of a run."""

    name: str
    status: str
    reason: str
    uptime_secs: float
    window: str
    batch: BatchStats
    components: Mapping[str, ComponentStats]
    acker: AckerStats | None = None
    """None: tracking is off, or nothing runs yet."""


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


class Listener(Protocol):
    """A listener to emits and verdicts, for tests and captures."""

    def emitted(self, component: str, stream: str, task: int, rows: Sequence[Any]) -> None:
        """Take rows that were emitted; the lists are the emitted ones and must not be changed."""

    def concluded(self, component: str, msg_id: Any, reason: str | None) -> None:
        """Take the verdict on a message: acked (reason None), or failed for this reason."""
