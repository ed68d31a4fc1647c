"""Sessions that report once, at the watermark: the ordinary case, a column of tuples at a time.

A session is a list [start, end, cell, earlier]: of each key, the latest live one is in a dict, and
has the others, if any, in order. Most tuples continue the latest one of their key, so the loop
over a column does just that, with the arithmetic of the aggregates inlined, and leaves everything
else (a new session, a join of several, a late tuple) to a call. `general` does the same for
sessions with triggers, modes and allowed lateness.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from operator import itemgetter
from typing import Any, TypeAlias

from topo.event_time import BEFORE_ALL
from topo.operators.aggregates.accumulators import Accumulators, Column

Live: TypeAlias = list[Any]
"""[start, end, cell, earlier sessions of the key or None]."""

Ended: TypeAlias = tuple[Any, int, int, Any]
"""(key, start, end, cell) of a session that is over."""

TABLE = 0
"""The namespace of what is saved: {key: the latest session}."""

_start, _end = itemgetter(0), itemgetter(1)


class SessionWindows:
    """The sessions of all keys of one task."""

    def __init__(
        self,
        gap: int,
        accumulators: Accumulators,
        ended: Callable[[list[Ended]], None],
        touch_all: Callable[[int, Iterable[Any]], None] = lambda table, keys: None,
    ) -> None:
        self._gap = gap
        self._accumulators = accumulators
        self._ended = ended
        self._touch_all = touch_all
        self.latest: dict[Any, Live] = {}
        self.watermark = BEFORE_ALL
        self.rows = 0
        """How many sessions there are."""
        self._due: list[tuple[int, int, Any, Live]] = []
        self._number = count()
        self._late: list[int] = []

    # -- tuples -------------------------------------------------------------------------------

    def add(
        self,
        keys: Sequence[Any],
        times: Sequence[int],
        columns: Sequence[Column],
        span: tuple[int, int] | None = None,
    ) -> list[int]:
        """Take tuples in; return the places of those that are late."""
        self._accumulators.add_to_sessions(
            keys, times, columns, self.latest, self._gap, self._add_one
        )
        self._touch_all(TABLE, keys)
        late, self._late = self._late, []
        return late

    def _add_one(self, place: int, key: Any, ts: int, values: Sequence[Any]) -> None:
        """Take in a tuple that does not just continue the latest session of its key."""
        end = ts + self._gap
        latest = self.latest.get(key)
        met: list[Live] = []
        if latest is not None and ts <= latest[1]:
            live = [*(latest[3] or ()), latest]
            # They do not touch each other, so that their ends are in order, too.
            first = bisect_left(live, ts, key=_end)
            stop = bisect_right(live, end, key=_start)
            met = live[first:stop]
        if not met:
            if end < self.watermark:
                self._late.append(place)
                return
            new = [ts, end, self._accumulators.added(values), None]
            self._schedule(new, key)
            self.rows += 1
            if latest is None:
                self.latest[key] = new
            elif ts > latest[1]:
                earlier = latest[3] or []
                latest[3] = None
                earlier.append(latest)
                new[3] = earlier
                self.latest[key] = new
            else:
                live.insert(first, new)
                self._line_up(key, live)
            return
        into, *gone = met
        for one in gone:
            into[2] = self._accumulators.merge(into[2], one[2])
            into[1] = one[1]
            one[1] = BEFORE_ALL  # so that it is not due any more
        into[0] = min(into[0], ts)
        into[1] = max(into[1], end)
        into[2] = self._accumulators.add(into[2], values)
        if gone:
            self.rows -= len(gone)
            live[first:stop] = [into]
            self._line_up(key, live)

    def _line_up(self, key: Any, live: list[Live]) -> None:
        """Make these the sessions of a key, the last one being the latest."""
        for one in live:
            one[3] = None
        *earlier, latest = live
        latest[3] = earlier or None
        self.latest[key] = latest

    def _schedule(self, session: Live, key: Any) -> None:
        heapq.heappush(self._due, (session[1], next(self._number), key, session))

    # -- time ---------------------------------------------------------------------------------

    def end_batch(self) -> None:
        """Do nothing: all is in its place."""

    def advance(self, watermark: int) -> int:
        """Fire every session that ends before a new watermark, in order; return how many."""
        ended: list[Ended] = []
        due, latest = self._due, self.latest
        while due and due[0][0] < watermark:  # at its very end a tuple may still join it
            at, _, key, session = heapq.heappop(due)
            end = session[1]
            if end > at:  # it has grown since
                self._schedule(session, key)
            elif end == at:
                if session[3] is None and latest[key] is session:
                    del latest[key]
                else:
                    self._remove(key, session)
                ended.append((key, session[0], end, session[2]))
        if ended:
            self.rows -= len(ended)
            self._touch_all(TABLE, [one[0] for one in ended])
            self._ended(ended)
        self.watermark = max(self.watermark, watermark)
        return len(ended)

    def _remove(self, key: Any, session: Live) -> None:
        latest = self.latest[key]
        earlier = latest[3]
        if latest is not session:
            del earlier[bisect_left(earlier, session[0], key=_start)]
            if not earlier:
                latest[3] = None
        elif earlier:
            self._line_up(key, earlier)
        else:
            del self.latest[key]

    # -- what is saved ------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[int, Mapping[Any, Any]]:
        return {TABLE: self.latest}

    def restore(self, tables: Mapping[int, dict[Any, Live]], watermark: int) -> None:
        """Take over the sessions that were saved, at the committed watermark."""
        self.latest = dict(tables.get(TABLE, {}))
        self.watermark = watermark
        for key, latest in self.latest.items():
            for session in (*(latest[3] or ()), latest):
                self._schedule(session, key)
                self.rows += 1

    def next_event(self) -> int | None:
        """Return a watermark below which no session is complete."""
        return self._due[0][0] + 1 if self._due else None

    @property
    def oldest(self) -> int | None:
        """The start of the session that was to end first."""
        return self._due[0][3][0] if self._due else None
