"""Windows by key with every trigger, mode and lateness: the general operator, without I/O.

It is told of each tuple (`add`), of the end of a batch's tuples (`end_batch`) and of the new
watermark (`advance`), and hands out panes. Each window of a key is a record; what is due when lies
in heaps of (time, record), whose outdated entries are skipped. `panes` does the ordinary case,
aligned windows that report once, several times faster.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from operator import attrgetter
from typing import Any, TypeAlias

from topo.errors import WindowError
from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.operators.aggregates.accumulators import Accumulators
from topo.windows.assigners import Aligned, EventSpans, Sessions, Whole, intersects
from topo.windows.records import OpenWindow, Pane, ReportRules
from topo.windows.triggers import (
    BATCH,
    EARLY,
    ELEMENT,
    END,
    LATE,
    MOMENT,
    ON_TIME,
    AfterCount,
    AfterDelay,
    AtWatermark,
    EachBatch,
    Every,
    EveryEventTime,
    Facts,
    Trigger,
    When,
)

Assigner: TypeAlias = "Aligned | EventSpans | Sessions | Whole"
_SESSIONS = 0
"""The namespace of all sessions."""

_start = attrgetter("start")


class KeyedWindows:
    """The windows of all keys of one task."""

    def __init__(
        self,
        assigner: Assigner,
        cells: Accumulators,
        trigger: Trigger,
        rules: ReportRules,
        emit: Callable[[Pane], None],
        touch: Callable[[int, Any], None] = lambda namespace, key: None,
        drop: Callable[[int], None] = lambda namespace: None,
    ) -> None:
        self._assigner = assigner
        self._complete_at = assigner.complete_at
        self._cells = cells
        self._trigger = trigger
        self._rules = rules
        self._emit = emit
        self._touch = touch
        self._drop = drop
        self._facts = Facts()
        self.tables: dict[int, dict[Any, Any]] = {}
        """{window start: {key: record}}; sessions: {0: {key: [records]}}."""
        self.watermark = BEFORE_ALL
        self._changed: dict[OpenWindow, None] = {}  # in this batch
        self._heap: list[tuple[int, int, OpenWindow, bool]] = []
        self._clock: list[tuple[float, int, OpenWindow]] = []
        self._number = count()
        kinds = [type(part) for part in trigger.walk()]
        asks = [part for part in trigger.walk() if isinstance(part, When)]
        self._asks_before = any(part.before for part in asks)
        self._by_element = AfterCount in kinds or bool(asks)
        silent = type(trigger) is AtWatermark and trigger.early is None and rules.lateness == 0
        self._by_batch = EachBatch in kinds and not silent
        self._by_clock = AfterDelay in kinds or Every in kinds
        self._by_event = EveryEventTime in kinds
        if isinstance(assigner, Sessions) and not cells.mergeable:
            raise WindowError(
                "sessions join, and one of the aggregates has no merge",
                hint="override Combiner.merge",
            )

    # -- tuples -------------------------------------------------------------------------------

    def add(self, key: Any, ts: int, values: Sequence[Any], now: float, row: Any = None) -> bool:
        """Take one tuple in; return False if it is late for all its windows."""
        assigner = self._assigner
        if isinstance(assigner, Sessions):
            return self._add_to_session(assigner.session(ts, row), key, ts, values, now)
        assert not isinstance(assigner, EventSpans), "those have a class of their own"
        intervals = assigner.assign(ts)
        accepted = not intervals  # between two windows that leave a gap: nothing is late
        for start, end in intervals:
            if self._is_over(end):
                continue
            accepted = True
            table = self.tables.get(start)
            if table is None:
                table = self.tables[start] = {}
            record = table.get(key)
            if record is None:
                record = table[key] = OpenWindow(key, start, end, self._cells.new())
                self._schedule_end(record)
            self._take(record, ts, values, now)
        return accepted

    def _add_to_session(
        self, interval: tuple[int, int], key: Any, ts: int, values: Sequence[Any], now: float
    ) -> bool:
        table = self.tables.get(_SESSIONS)
        if table is None:
            table = self.tables[_SESSIONS] = {}
        live: list[OpenWindow] | None = table.get(key)
        start, end = interval
        # Sessions do not touch each other and are in order: one that begins no earlier than the
        # last can meet no other.
        if live and start >= live[-1].start and start <= live[-1].end:
            record = live[-1]
            if end > record.end:
                record.end = end
                if record.on_time and self._complete_at(end) > self.watermark:
                    record.on_time = False
                    self._schedule_end(record)
        else:
            met = [one for one in live or () if intersects((one.start, one.end), interval)]
            if met:
                record = self._merged(met, interval)
                table[key] = [one for one in live or () if one is record or one not in met]
            elif self._is_over(end):
                return False
            else:
                record = OpenWindow(key, start, end, self._cells.new())
                self._schedule_end(record)
                if live is None:
                    table[key] = [record]
                else:
                    live.append(record)
                    if len(live) > 1 and live[-2].start > start:
                        live.sort(key=_start)
        self._take(record, ts, values, now)
        return True

    def _merged(self, absorbed: list[OpenWindow], interval: tuple[int, int]) -> OpenWindow:
        """Return the session that these become with the interval: the earliest takes the rest."""
        into, *rest = sorted(absorbed, key=_start)
        for gone in rest:
            gone.alive = False
            self._changed.pop(gone, None)
            into.cell = self._cells.merge(into.cell, gone.cell)
            into.take_over(gone)
        end = max(into.end, interval[1])
        into.start = min(into.start, interval[0])
        if end != into.end or rest:
            into.end = end
            if self._complete_at(end) > self.watermark:
                into.on_time = False
            self._schedule_end(into)  # the heap may only have a later moment of it
        return into

    def _take(self, record: OpenWindow, ts: int, values: Sequence[Any], now: float) -> None:
        if record.finished:
            self._note(record)  # a session may have become longer
            return
        if self._asks_before and record.new:
            named = dict(zip(self._cells.names, values, strict=True))
            self._look(record, ELEMENT, now, named)
        record.cell = self._cells.add(record.cell, values)
        record.new += 1
        if ts >= self.watermark and ts < record.early_ts:
            record.early_ts = ts
        if ts > record.late_ts:
            record.late_ts = ts
        if record.new == 1:
            self._begin_pane(record, ts, now)
        if record not in self._changed:
            self._changed[record] = None
            self._note(record)
        if self._by_element:
            self._look(record, ELEMENT, now)

    def _begin_pane(self, record: OpenWindow, ts: int, now: float) -> None:
        record.first_now = now
        base = max(self.watermark, record.start)
        record.event_base = base if base > BEFORE_ALL else ts
        self._schedule_pane(record)

    def _is_over(self, end: int) -> bool:
        return self._gone_at(end) <= self.watermark

    def _gone_at(self, end: int) -> int:
        """Return the watermark at which a window with this end is forgotten."""
        lateness = self._rules.lateness
        if lateness is None:
            return AFTER_ALL
        return min(self._complete_at(end) + lateness, AFTER_ALL)

    # -- time ---------------------------------------------------------------------------------

    def end_batch(self, now: float) -> None:
        """Fire what fires once a batch, and what is due by the clock; after a batch's tuples."""
        changed, self._changed = self._changed, {}
        while self._clock and self._clock[0][0] <= now:
            due, _, record = heapq.heappop(self._clock)
            facts = self._known(record, MOMENT, due)
            if record.alive and self._trigger.clock_due(facts) == due:
                self._look(record, MOMENT, now)
        if self._by_batch:
            for record in changed:
                if record.alive and record.new:
                    self._look(record, BATCH, now)

    def advance(self, watermark: int, now: float) -> int:
        """Fire everything that is due up to a new watermark, in order; return how many windows."""
        fired = 0
        while self._heap and self._heap[0][0] <= watermark:
            due, _, record, is_end = heapq.heappop(self._heap)
            if not record.alive:
                continue
            if not is_end:
                self.watermark = max(self.watermark, due)
                self._look(record, MOMENT, now)
                continue
            complete = min(self._complete_at(record.end), AFTER_ALL)
            if complete > due:  # it has grown since
                self._schedule(record, complete)
                continue
            if not record.on_time:
                record.on_time = True
                self.watermark = max(self.watermark, complete)
                self._end_window(record, watermark, now)
                fired += 1
            clean = self._gone_at(record.end)
            if clean <= watermark:
                self._remove(record, now)
            else:
                self._schedule(record, clean)
        self.watermark = max(self.watermark, watermark)
        return fired

    def next_event(self) -> int | None:
        """Return the watermark at which something may be due."""
        return self._heap[0][0] if self._heap else None

    def next_clock(self) -> float | None:
        """Return when something is due by the clock."""
        return self._clock[0][0] if self._clock else None

    def _end_window(self, record: OpenWindow, watermark: int, now: float) -> None:
        last = self._gone_at(record.end) <= watermark
        facts = self._known(record, END, now)
        self._note(record)
        if not record.finished and self._trigger.fires(facts):
            if record.new or self._rules.on_time == "always":
                self._send(record, ON_TIME, last=last)
            self._after(record, facts)
        elif last and record.new and not record.finished:
            self._send(record, ON_TIME, last=True)
        if last:
            record.finished = True

    def _remove(self, record: OpenWindow, now: float) -> None:
        """Send the last pane, if it has something to say, and forget the window."""
        if not record.finished and (record.new or self._rules.final == "always"):
            self._send(record, LATE, last=True)
        record.alive = False
        self._forget(record)

    def _forget(self, record: OpenWindow) -> None:
        namespace, place = self._place(record)
        table = self.tables[namespace]
        sessions = table[place] if isinstance(self._assigner, Sessions) else []
        if len(sessions) > 1:
            sessions.remove(record)
        else:
            del table[place]
        if table or sessions:
            self._touch(namespace, place)
        else:
            del self.tables[namespace]
            self._drop(namespace)

    # -- panes --------------------------------------------------------------------------------

    def _known(self, record: OpenWindow, what: str, now: float) -> Facts:
        facts = self._facts
        facts.what = what
        facts.new = record.new
        facts.first_now = record.first_now
        facts.event_base = record.event_base
        facts.now = now
        facts.watermark = self.watermark
        facts.end = self._complete_at(record.end)
        facts.steps = record.steps
        facts.incoming = None
        facts.results = lambda: self._cells.named(record.cell)
        return facts

    def _look(
        self, record: OpenWindow, what: str, now: float, incoming: dict[str, Any] | None = None
    ) -> None:
        """Send a pane if the trigger says so."""
        facts = self._known(record, what, now)
        facts.incoming = incoming
        if record.finished or not self._trigger.fires(facts):
            return
        late = self.watermark >= self._complete_at(record.end)
        self._send(record, LATE if late else EARLY, last=False)
        self._after(record, facts)

    def _after(self, record: OpenWindow, facts: Facts) -> None:
        self._trigger.fired(facts)
        self._note(record)
        if self._trigger.finished(facts):
            record.finished = True

    def _place(self, record: OpenWindow) -> tuple[int, Any]:
        """Return the namespace of a window and its key there."""
        if isinstance(self._assigner, Sessions):
            return _SESSIONS, record.key
        return record.start, record.key

    def _note(self, record: OpenWindow) -> None:
        self._touch(*self._place(record))

    def _send(self, record: OpenWindow, timing: str, *, last: bool) -> None:
        results = self._cells.results(record.cell)
        ts = record.result_time(self._rules.result_ts)
        non_speculative = -1 if timing == EARLY else record.non_speculative
        rest = (timing, record.index, non_speculative, record.index == 0, last, ts, record.new)
        if self._rules.mode == "retract":
            for start, end, old in record.sent:
                self._emit(Pane(record.key, start, end, old, "-", *rest))
            record.sent = [(record.start, record.end, results)]
        self._emit(Pane(record.key, record.start, record.end, results, "+", *rest))
        record.index += 1
        if timing != EARLY:
            record.non_speculative += 1
        record.new = 0
        record.first_now = None
        record.early_ts, record.late_ts = AFTER_ALL, BEFORE_ALL
        if self._rules.mode == "discard":
            record.cell = self._cells.new()

    # -- what is due --------------------------------------------------------------------------

    def _schedule_end(self, record: OpenWindow) -> None:
        complete = min(self._complete_at(record.end), AFTER_ALL)
        if complete <= self.watermark:  # a late window has no pane on time
            record.on_time = True
        self._schedule(record, complete)
        if record.new:  # a session that grew may be early again, or is of several
            self._schedule_pane(record)

    def _schedule(self, record: OpenWindow, at: int) -> None:
        heapq.heappush(self._heap, (at, next(self._number), record, True))

    def _schedule_pane(self, record: OpenWindow) -> None:
        if not (self._by_clock or self._by_event):
            return
        facts = self._known(record, MOMENT, 0.0)
        if self._by_clock and (due := self._trigger.clock_due(facts)) is not None:
            heapq.heappush(self._clock, (due, next(self._number), record))
        if self._by_event and (moment := self._trigger.event_due(facts)) is not None:
            heapq.heappush(self._heap, (moment, next(self._number), record, False))

    # -- what is saved ------------------------------------------------------------------------

    def restore(self, tables: Mapping[int, dict[Any, Any]], watermark: int) -> None:
        """Take over the windows that were saved, at the committed watermark."""
        self.tables = {namespace: table for namespace, table in tables.items() if table}
        self.watermark = watermark
        for record in self.records():
            self._schedule_end(record)

    def records(self) -> Iterable[OpenWindow]:
        """Yield every window."""
        for table in self.tables.values():
            for entry in table.values():
                if isinstance(entry, list):
                    yield from entry
                else:
                    yield entry

    @property
    def rows(self) -> int:
        """The number of windows held; of sessions, of keys that have some."""
        return sum(map(len, self.tables.values()))

    @property
    def oldest(self) -> int | None:
        """The start of the window that ends, or goes, first."""
        heap = self._heap
        while heap and not heap[0][2].alive:
            heapq.heappop(heap)
        return heap[0][2].start if heap else None
