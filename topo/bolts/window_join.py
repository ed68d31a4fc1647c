"""`WindowJoin`: rows of two streams with the same key in the same window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from topo.bolts.pair_join import PairJoin
from topo.event_time import EventTime
from topo.joins.window_join import AlignedJoinOperator, SessionJoinOperator
from topo.operators.inputs import INNER, StreamName
from topo.operators.selection import Merge
from topo.operators.time import ARRIVAL
from topo.timed import Operator, OperatorTask
from topo.windows.assigners import Session, Sessions, WindowSpec, check_joinable


class WindowJoin(PairJoin):
    """A join of two streams by key and window.

    Results have `start` and `end` of the window behind the fields of both sides; `select` may name
    them. Without `time`, windows are by arrival, by the batch's clock.
    """

    def __init__(
        self,
        *,
        left: StreamName,
        right: StreamName,
        on: Any,
        window: WindowSpec,
        how: str = INNER,
        time: EventTime | None = None,
        select: Any = None,
        merge: str | Merge | None = None,
        outputs: str | Iterable[str] | None = None,
        result_ts: str | None = None,
        late_stream: str = "late",
    ) -> None:
        super().__init__(
            left=left,
            right=right,
            on=on,
            how=how,
            time=time,
            select=select,
            merge=merge,
            outputs=outputs,
            result_ts=result_ts,
            late_stream=late_stream,
        )
        check_joinable(window)
        window.in_ticks(time or ARRIVAL)
        self.window = window

    def bounds(self) -> tuple[str, ...]:
        return ("start", "end")

    def result_delay(self) -> int:
        # A session is complete a tick after its end, and its results have its last time.
        return 1 if isinstance(self.window, Session) else 0

    def operator(self, task: OperatorTask) -> Operator:
        assigner = self.window.in_ticks(self.event_time or ARRIVAL)
        if isinstance(assigner, Sessions):
            return SessionJoinOperator(self, task, assigner)
        return AlignedJoinOperator(self, task, assigner)
