"""The record of what a run in this process emits and concludes, which tests look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo.topology.model import Topology


class Recorder:
    """A record of emits and verdicts, in order."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], list[Any]] = {}
        self.acked: dict[str, list[Any]] = {}
        self.failed: dict[str, list[Any]] = {}

    def emitted(self, component: str, stream: str, task: int, rows: Sequence[Any]) -> None:
        self.rows.setdefault((component, stream), []).extend(map(list, rows))

    def concluded(self, component: str, msg_id: Any, reason: str | None) -> None:
        kept = self.acked if reason is None else self.failed
        kept.setdefault(component, []).append(msg_id)


class RecordedRun:
    """A run that shows its record."""

    topology: Topology
    recorder: Recorder

    def tuples(self, component: str, stream: str = "default") -> list[list[Any]]:
        """Return the value lists that the component has emitted on the stream, in order."""
        self.topology.component(component).declared(stream)
        return list(self.recorder.rows.get((component, stream), []))

    @property
    def rows(self) -> dict[tuple[str, str], list[Any]]:
        return self.recorder.rows

    @property
    def acked(self) -> dict[str, list[Any]]:
        return self.recorder.acked

    @property
    def failed(self) -> dict[str, list[Any]]:
        return self.recorder.failed
