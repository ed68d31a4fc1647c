"""The outside view of a running topology: its status, its figures, its errors.

The shapes here are what `Run.stats()` and `Run.errors()` return on every engine, and what the
command line prints as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from topo.metrics.counters import ErrorEntry
from topo.metrics.figures import AckerStats, BatchRecord, BatchStats, ComponentStats, RunStats

__all__ = [
    "ACTIVE",
    "COMPLETED",
    "ENDED",
    "FAILED",
    "INACTIVE",
    "KILLED",
    "REBALANCING",
    "STALLED",
    "STARTING",
    "AckerStats",
    "BatchRecord",
    "BatchStats",
    "ComponentStats",
    "ErrorEntry",
    "Listener",
    "RunStats",
]

STARTING = "STARTING"
ACTIVE = "ACTIVE"
INACTIVE = "INACTIVE"
STALLED = "STALLED"
REBALANCING = "REBALANCING"
KILLED = "KILLED"
COMPLETED = "COMPLETED"
FAILED = "FAILED"

ENDED = frozenset({KILLED, COMPLETED, FAILED})


class Listener(Protocol):
    """A listener to emits and verdicts, for tests and captures."""

    def emitted(self, component: str, stream: str, task: int, rows: Sequence[Any]) -> None:
        """Take rows that were emitted; the lists are the emitted ones and must not be changed."""

    def concluded(self, component: str, msg_id: Any, reason: str | None) -> None:
        """Take the verdict on a message: acked (reason None), or failed for this reason."""
