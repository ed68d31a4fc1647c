"""Operators that gather their results: a call works on columns, and emits once.

A batch's results are one list of rows, which the runtime routes as columns. Emitting one row at a
time would cost more than most operators do.
"""

from __future__ import annotations

from typing import Any

from topo.event_time import BEFORE_ALL, EventTime
from topo.operators.time import OperatorTime
from topo.timed import Clock, Operator, OperatorTask


class GatheringOperator(Operator):
    """The base of operators that gather their results in `_out`, and emit them together."""

    def __init__(self, task: OperatorTask) -> None:
        self._task = task
        self._out: list[list[Any]] = []

    def _flush(self) -> int:
        """Emit what was gathered; return how much that is."""
        if not self._out:
            return 0
        out, self._out = self._out, []
        self._task.emit(out)
        return len(out)


class WindowOperator(GatheringOperator):
    """The base of operators over windows, which end as their time goes by."""

    def __init__(self, task: OperatorTask, time: EventTime | None) -> None:
        super().__init__(task)
        self._clock = OperatorTime(time)
        self._time = self._clock.unit
        self._watermark = BEFORE_ALL

    def _move(self, watermark: int, now: float) -> int:
        """End what ends up to a watermark; return how much that was."""
        raise NotImplementedError

    def begin(self, clock: Clock) -> None:
        watermark = self._clock.before_tuples(clock)
        if watermark is not None:
            self._advance(watermark, clock.now)

    def advance(self, clock: Clock) -> int:
        watermark = self._clock.after_tuples(clock)
        return 0 if watermark is None else self._advance(watermark, clock.now)

    def _advance(self, watermark: int, now: float) -> int:
        self._watermark = max(self._watermark, watermark)
        ended = self._move(self._watermark, now)
        return self._flush() or ended

    def wakes_at(self) -> float | None:
        return self._clock.wakes_at(self.next_event)
