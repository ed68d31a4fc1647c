"""The operator of an interval join: rows wait for what may still match them.

They wait until the watermark has passed it; a row that nothing matched is then a result of a left,
right or outer join, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, Protocol

from topo.event_time import AFTER_ALL, BEFORE_ALL, EventTime
from topo.joins.declaration import PairDeclaration
from topo.joins.rows import Entry, SeveralEntries, SideRows, in_order, stretch
from topo.operators.inputs import LEFT, OUTER, RIGHT, key_columns, unhashable
from topo.operators.results import GatheringOperator
from topo.timed import Clock, OperatorTask, Rows

_BUCKETS = 8
"""A side's rows are let go in so many parts."""


class IntervalDeclaration(PairDeclaration, Protocol):
    """What a bolt declares of a join by interval: `IntervalJoin`."""

    before: int
    after: int
    lateness: int


class IntervalOperator(GatheringOperator):
    """The rows of one task of an interval join."""

    def __init__(self, bolt: IntervalDeclaration, task: OperatorTask) -> None:
        super().__init__(task)
        self._bolt = bolt
        self._time = bolt.event_time or EventTime()
        self._watermark = BEFORE_ALL
        before, after = bolt.before, bolt.after
        plain = self._time.unit in ("ms", "us")
        own = {} if bolt.result_ts is None else {bolt.result_ts: "t" if plain else "shown(t)"}
        self._shape = bolt.shape(task.owner, own, {"shown": self._time.shown})
        self._reports = (bolt.how in (LEFT, OUTER), bolt.how in (RIGHT, OUTER))
        lag = max(self._time.lag_of(one.component) for one in bolt.sides)
        span = max(0, after) + max(0, before) + bolt.lateness + lag
        size = max(1, span // _BUCKETS, self._time.per_second // 10)
        ends = (after, before)
        self._rows = tuple(
            SideRows(name, until, bolt.lateness, size, reports=reports)
            for name, until, reports in zip(("left", "right"), ends, self._reports, strict=True)
        )
        # Of a left row: right ones from - before to + after; of a right row, the other way.
        self._stretch = ((-before, after), (-after, before))

    # -- tuples -------------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        if not rows.count:
            return
        times = rows.times or []
        found: list[tuple[int, Sequence[Any], Sequence[Sequence[Any]]]] = []
        for side, one in enumerate(self._bolt.sides):
            if one.is_of(rows.component, rows.stream):
                keys = key_columns(rows.columns, rows.fields, one.key)
                found.append((side, keys, self._shape.keep[side](rows)))
        late: list[int] = []
        limit = self._watermark - self._bolt.lateness
        if None in times or min(times) < limit:
            good = [ts is not None and ts >= limit for ts in times]
            late = [place for place, ok in enumerate(good) if not ok]
            times = list(compress(times, good))
            found = [(side, *_chosen(good, keys, kept)) for side, keys, kept in found]
        try:
            if len(found) == 1:
                self._take(*found[0], times)
            else:
                self._take_both(found, times)
        except TypeError as error:
            for _, keys, _ in found:
                raise unhashable(self._task.owner, keys) or error from None
        self._flush()
        if late:
            self._task.set_aside(rows, late)

    def _take_both(self, found: Sequence[tuple[int, Any, Any]], times: Sequence[int]) -> None:
        """Take rows of a stream that is joined with itself, each as a left and as a right one."""
        for place, ts in enumerate(times):
            for side, keys, kept in found:
                own = [column[place : place + 1] for column in kept]
                self._take(side, keys[place : place + 1], own, [ts])

    def _take(
        self,
        side: int,
        keys: Sequence[Any],
        kept: Sequence[Sequence[Any]],
        times: Sequence[int],
    ) -> None:
        """Match rows of one side with the other's, and keep them."""
        if None in keys:
            good = [key is not None for key in keys]
            self._alone(side, [not one for one in good], keys, kept, times)
            times = list(compress(times, good))
            keys, kept = _chosen(good, keys, kept)
        if not times:
            return
        mine, other = self._rows[side], self._rows[1 - side]
        entries = mine.entries(times, keys, kept)
        find, keep, add_behind = other.by_key.get, mine.by_key.setdefault, mine.add_behind
        reports, reported = mine.reports, mine.reported
        reports_other, reported_other = other.reports, other.reported
        low, high = self._stretch[side]
        both, out, is_left = self._shape.both, self._out.append, side == 0
        several: Sequence[Entry]
        for entry in entries:
            ts, row, key, number = entry
            met = find(key)
            if met is not None:
                first, last = ts + low, ts + high
                several = stretch(met, first, last) if type(met) is SeveralEntries else (met,)
                for one in several:
                    at = one[0]
                    if first <= at <= last:
                        if reports_other and one[3] not in reported_other:
                            other.note_reported(one)
                        if reports:
                            reported.add(number)
                        later = ts if ts > at else at
                        out(both(row, one[1], later) if is_left else both(one[1], row, later))
            known = keep(key, entry)
            if known is not entry:
                add_behind(known, entry)

    def _alone(
        self,
        side: int,
        chosen: Sequence[bool],
        keys: Sequence[Any],
        kept: Sequence[Sequence[Any]],
        times: Sequence[int],
    ) -> None:
        """Report the rows whose key equals no other."""
        if not self._rows[side].reports:
            return
        alone = self._shape.left_only if side == 0 else self._shape.right_only
        rows = zip(*kept, strict=True) if kept else [()] * len(keys)
        for ts, row in compress(zip(times, rows, strict=True), chosen):
            self._out.append(alone(row, ts))

    # -- time ---------------------------------------------------------------------------------

    def advance(self, clock: Clock) -> int:
        left, right = self._rows
        watermark = self._watermark = max(self._watermark, clock.watermark)
        due = [side.unmatched(watermark) + side.let_go(watermark) for side in (left, right)]
        for is_left, entry in in_order(right=due[1], left=due[0]):
            alone = self._shape.left_only if is_left else self._shape.right_only
            self._out.append(alone(entry[1], entry[0]))
        self.state_rows = left.count + right.count
        return self._flush()

    def next_event(self) -> int | None:
        due = [side.first_due() for side in self._rows]
        return min((at for at in due if at is not None and at <= AFTER_ALL), default=None)

    def oldest(self) -> int | None:
        return min((ts for side in self._rows if (ts := side.oldest()) is not None), default=None)

    # -- what is saved ------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._watermark = watermark
        for side in self._rows:
            side.load(saved, watermark)
        self.state_rows = sum(side.count for side in self._rows)

    def save(self, changes: Any) -> None:
        for side in self._rows:
            side.save(changes)


def _chosen(
    good: Sequence[bool], keys: Sequence[Any], kept: Sequence[Sequence[Any]]
) -> tuple[list[Any], list[list[Any]]]:
    return list(compress(keys, good)), [list(compress(column, good)) for column in kept]
