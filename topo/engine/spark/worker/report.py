"""What an execution tells the driver: by way of the acker, once its batch is committed."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topo.logs.capture import Line
from topo.metrics.counters import TaskMetrics
from topo.tracking.plan import Mode
from topo.wire.column import dump

_LARGE_BYTES = 1 << 20  # the acker takes no more than four times that
_ERRORS_THEN = 3  # of a task, where a report is large and there is no other way for it
_IN_FILE = b"file:"  # a pickle begins otherwise


@dataclass
class Report:
    """One execution: what its tasks counted, and where its spouts stand."""

    metrics: Mapping[int, TaskMetrics]
    tuples: int = 0
    """Emitted by the slot's spouts in this batch."""
    waited_secs: float = 0.0
    """How long they had nothing to emit, and the batch waited."""
    exhausted: bool | None = None
    """Of a slot with spouts: none of them will ever emit again, and nothing of them is pending."""
    at_limit: tuple[int, ...] = ()
    """Spout tasks at their pending limit."""
    mode: Mode = Mode.ACTIVE
    """That of the batch."""
    rows: list[tuple[str, str, int, list[Any]]] = field(default_factory=list)
    """Component, stream, task and value lists of what was captured."""
    concluded: list[tuple[str, Any, str | None]] = field(default_factory=list)
    """Spout, message id, and why it failed or None, where that was asked for."""
    lines: list[Line] = field(default_factory=list)
    """What was logged and printed, where the driver keeps that."""

    def pack(self, directory: str = "") -> bytes:
        """As bytes; those of a large one are put into a file of `directory`, if one is given.

        Where there is none, a large one leaves out errors, but not how many there were.
        """
        data = dump(self)
        if len(data) <= _LARGE_BYTES:
            return data
        if not directory:
            for counted in self.metrics.values():
                counted.errors.keep(_ERRORS_THEN)
            return dump(self)
        file = Path(directory, uuid.uuid4().hex)
        file.write_bytes(data)
        return _IN_FILE + bytes(file)

    @staticmethod
    def unpack(data: bytes) -> Report:
        """What was packed; a file it was put into is gone after that."""
        if data.startswith(_IN_FILE):
            file = Path(os.fsdecode(data.removeprefix(_IN_FILE)))
            data = file.read_bytes()
            file.unlink()
        report: Report = pickle.loads(data)
        return report


class Capture:
    """Collects what tests and `topo local --show` want to see; a listener of tasks."""

    def __init__(self, components: Collection[str], conclusions: bool) -> None:
        self._components = frozenset(components)
        self._conclusions = conclusions
        self._rows: list[tuple[str, str, int, list[Any]]] = []
        self._concluded: list[tuple[str, Any, str | None]] = []

    def emitted(self, component: str, stream: str, task: int, rows: Sequence[Any]) -> None:
        if component in self._components:
            self._rows.append((component, stream, task, [list(values) for values in rows]))

    def concluded(self, component: str, msg_id: Any, reason: str | None) -> None:
        if self._conclusions:
            self._concluded.append((component, msg_id, reason))

    def clear(self) -> None:
        self._rows, self._concluded = [], []

    def move_to(self, report: Report) -> None:
        report.rows, report.concluded = self._rows, self._concluded
        self.clear()
