"""The report of an execution to the driver, through the acker, once its batch is committed."""

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
from topo.runtime.slot import SlotTasks
from topo.tracking.plan import Mode
from topo.wire.column import dump

_LARGE_BYTES = 1 << 20  # the acker takes no more than four times that
_ERRORS_THEN = 3  # of a task, where a report is large and there is no other way for it
_IN_FILE = b"file:"  # a pickle begins otherwise


@dataclass
class Report:
    """The counts of one execution's tasks, and the state of its spouts."""

    metrics: Mapping[int, TaskMetrics]
    tuples: int = 0
    """The number of tuples emitted by the slot's spouts in this batch."""
    waited_secs: float = 0.0
    """The time for which the batch waited because no spout had data."""
    exhausted: bool | None = None
    """True iff the slot has spouts, all are exhausted, and none has pending messages."""
    at_limit: tuple[int, ...] = ()
    """Spout tasks at their pending limit."""
    stalls: tuple[str, ...] = ()
    """Why spouts of the slot cannot emit, of those that cannot."""
    mode: Mode = Mode.ACTIVE
    """The clock of the batch."""
    rows: list[tuple[str, str, int, list[Any]]] = field(default_factory=list)
    """Captured tuples: component, stream, task and value lists."""
    concluded: list[tuple[str, Any, str | None]] = field(default_factory=list)
    """Conclusions, if requested: spout, message id, and the reason of a failure or None."""
    lines: list[Line] = field(default_factory=list)
    """Log lines and prints, if the driver stores them."""

    def note_spouts(self, host: SlotTasks) -> None:
        """Take in the state of a slot's spouts, if it has any."""
        if host.spouts:
            self.exhausted = host.is_done
            self.at_limit = tuple(spout.id for spout in host.spouts if spout.at_limit)
            self.stalls = host.stalls

    def pack(self, directory: str = "") -> bytes:
        """Encode the report; put a large one into a file of `directory`, if given.

        Without a directory, a large report leaves out errors, but not their number.
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
        """Decode a report, and remove its file if it has one."""
        if data.startswith(_IN_FILE):
            file = Path(os.fsdecode(data.removeprefix(_IN_FILE)))
            data = file.read_bytes()
            file.unlink()
        report: Report = pickle.loads(data)
        return report


class Capture:
    """A listener of tasks that collects tuples for tests and `topo local --show`."""

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
