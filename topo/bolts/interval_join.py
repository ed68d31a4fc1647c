"""`IntervalJoin`: rows of two streams whose times are close, matched as they arrive.

A right row matches a left one of the same key if its time is in [left - before, left + after], both
included. Nothing is ever taken back: with `allowed_lateness` a late row may still match one that
was reported without a match.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from topo.bolts.pair_join import PairJoin
from topo.errors import JoinError
from topo.event_time import BEFORE_ALL, Duration, EventTime
from topo.joins.interval import IntervalOperator
from topo.operators.inputs import INNER, StreamName
from topo.operators.selection import Merge
from topo.timed import Operator, OperatorTask


class IntervalJoin(PairJoin):
    """A join of two streams whose times are no further apart than `within` says.

    `within` is (before, after): a right row matches from `before` earlier than the left one to
    `after` later; one duration stands for both. `allowed_lateness` keeps rows for late ones.
    """

    def __init__(
        self,
        *,
        left: StreamName,
        right: StreamName,
        on: Any,
        within: Duration | tuple[Duration, Duration],
        how: str = INNER,
        time: EventTime | None = None,
        select: Any = None,
        merge: str | Merge | None = None,
        outputs: str | Iterable[str] | None = None,
        result_ts: str | None = None,
        allowed_lateness: Duration = 0,
        late_stream: str = "late",
    ) -> None:
        if time is None:
            raise JoinError("an interval join needs event time", hint='write time=EventTime("ts")')
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
        self.before, self.after = interval_ticks(within, time)
        self.lateness = time.ticks(allowed_lateness, "allowed_lateness", at_least=0)

    def result_delay(self) -> int:
        """Return how far behind the watermark a result's time may be, in ticks."""
        reach = max(0, self.before, self.after)
        if self.how == INNER and self.result_ts is not None:
            reach = 0  # it is the later one's, which has just come
        return reach + self.lateness

    def operator(self, task: OperatorTask) -> Operator:
        return IntervalOperator(self, task)


def interval_ticks(within: Any, time: EventTime) -> tuple[int, int]:
    """Return an interval in ticks; raise a JoinError if it is none, or empty."""
    ends = within if isinstance(within, tuple | list) else (within, within)
    if len(ends) != 2:
        raise JoinError(
            f"within is {within!r}; it takes (before, after)",
            hint="write within=(timedelta(0), timedelta(minutes=10))",
        )
    before, after = (time.ticks(end, "within", at_least=BEFORE_ALL) for end in ends)
    if before + after < 0:
        raise JoinError(
            f"within is {within!r}: it begins after its end, so that nothing can match",
            hint="right times are from left - before to left + after",
        )
    return before, after
