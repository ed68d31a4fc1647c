"""The operator of a WindowAggregate: columns go to the windows, and reports become rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, repeat
from typing import Any, Protocol, TypeAlias

from topo.errors import TopoError
from topo.event_time import EventTime
from topo.operators.aggregates.accumulators import Accumulators
from topo.operators.aggregates.blame import blamed, unmerged
from topo.operators.aggregates.inputs import AggregateInputs, Bound
from topo.operators.results import WindowOperator
from topo.storage.namespaces import SavedNamespaces
from topo.storage.saving import keys_of
from topo.timed import Clock, OperatorTask, Rows
from topo.windows.assigners import Aligned, EventSpans, Sessions, WindowSpec
from topo.windows.event_reports import EventReports
from topo.windows.event_windows import EventWindows
from topo.windows.general import KeyedWindows
from topo.windows.panes import PaneWindows
from topo.windows.records import Pane, ReportRules
from topo.windows.sessions import Ended, SessionWindows
from topo.windows.triggers import AtWatermark, Trigger, When, prepared

PlainWindows: TypeAlias = "PaneWindows | SessionWindows | EventWindows"
"""The windows that report once."""


CELLS = "cells"
"""The name of what is saved, by window and key."""


class AggregateDeclaration(Protocol):
    """What a bolt declares of its windows; `WindowAggregate` says it in full."""

    window: WindowSpec
    aggregates: Mapping[str, Bound]
    key: tuple[str, ...]
    event_time: EventTime | None
    trigger: Trigger | None
    rules: ReportRules
    reports_often: bool
    emit_changed: bool


class AggregateOperator(WindowOperator):
    """The windows of one task of a WindowAggregate."""

    def __init__(self, bolt: AggregateDeclaration, task: OperatorTask) -> None:
        super().__init__(task, bolt.event_time)
        self._bolt = bolt
        self._cells = Accumulators(bolt.aggregates)
        self._saved = SavedNamespaces(CELLS, task.owner)
        self._inputs: dict[tuple[str, str], tuple[list[int], list[AggregateInputs]]] = {}
        assigner = bolt.window.in_ticks(self._time)
        plain = bolt.trigger is None and bolt.rules == ReportRules(mode=bolt.rules.mode)
        plain = plain and bolt.rules.mode != "retract"
        self._plain: PlainWindows | None = None
        self._keyed: KeyedWindows | None = None
        touch_all, drop = self._saved.touch_all, self._saved.drop
        plain = plain and self._cells.mergeable
        if plain and isinstance(assigner, Aligned):
            changed = bolt.emit_changed
            self._plain = PaneWindows(
                assigner, self._cells, self._fired, touch_all, drop, only_changed=changed
            )
        elif plain and isinstance(assigner, Sessions) and assigner.dynamic is None:
            self._plain = SessionWindows(assigner.gap, self._cells, self._ended, touch_all)
        elif plain and isinstance(assigner, EventSpans):
            self._plain = EventWindows(assigner, self._cells, self._fired, touch_all, drop)
        else:
            kind = EventReports if isinstance(assigner, EventSpans) else KeyedWindows
            self._keyed = kind(
                assigner,  # type: ignore[arg-type]
                self._cells,
                prepared(bolt.trigger or AtWatermark(), self._time),
                bolt.rules,
                self._report,
                self._saved.touch,
                drop,
            )
        self._end_counts = isinstance(assigner, EventSpans)
        parts = () if bolt.trigger is None else bolt.trigger.walk()
        self._asks = any(isinstance(part, When) for part in parts)  # the user's code

    @property
    def _windows(self) -> PlainWindows | KeyedWindows:
        windows = self._plain or self._keyed
        assert windows is not None, "it is made with one of them"
        return windows

    # -- tuples -------------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        key_places, inputs = self._places(rows)
        columns = rows.columns
        keys = keys_of([columns[place] for place in key_places], rows.count)
        times = self._clock.times(rows, self._task.now())
        made: list[Any] = []
        for one in inputs:
            column = one.column(columns, times, rows.tuples)
            is_ready = column is None or isinstance(column, list | tuple)
            made.append(column if is_ready else list(column or ()))
        places: Sequence[int] = range(rows.count)
        if rows.times is not None and None in times:
            good = [ts is not None for ts in times]
            self._task.set_aside(rows, [place for place, ok in enumerate(good) if not ok])
            places = list(compress(places, good))
            keys, times = list(compress(keys, good)), list(compress(times, good))
            made = [c if c is None else list(compress(c, good)) for c in made]
        try:
            late = self._add(rows, keys, times, made, places) if times else []
        except TopoError:
            raise
        except Exception as error:
            raise blamed(error, self._cells, keys, made, self._asks) from error
        if late:
            self._task.set_aside(rows, late)
        self.state_rows = self._windows.rows

    def _add(
        self,
        rows: Rows,
        keys: Sequence[Any],
        times: Sequence[int],
        columns: Sequence[Any],
        places: Sequence[int],
    ) -> list[int]:
        """Add tuples to the windows; return the places, among the rows, of those that are late."""
        if self._plain is not None:
            span = rows.span if len(times) == rows.count else None
            return [places[index] for index in self._plain.add(keys, times, columns, span)]
        assert self._keyed is not None
        add, now = self._keyed.add, self._task.now()
        needs_row = callable(getattr(self._bolt.window, "gap", None))
        values = zip(*[repeat(None) if c is None else c for c in columns], strict=False)
        late = []
        for place, key, ts, value in zip(places, keys, times, values, strict=False):
            row = rows.tuple(place) if needs_row else None
            if not add(key, ts, value, now, row):
                late.append(place)
        return late

    def _places(self, rows: Rows) -> tuple[list[int], list[AggregateInputs]]:
        stream = (rows.component, rows.stream)
        found = self._inputs.get(stream)
        if found is None:
            fields = rows.fields
            keys = [fields.index(name) for name in self._bolt.key]
            inputs = [
                AggregateInputs.of(b, fields, repr(rows.component)) for b in self._cells.aggregates
            ]
            found = self._inputs[stream] = keys, inputs
        return found

    # -- time ---------------------------------------------------------------------------------

    def advance(self, clock: Clock) -> int:
        try:
            if self._plain is not None:
                self._plain.end_batch()
            elif self._keyed is not None:
                self._keyed.end_batch(clock.now)
        except (TypeError, ArithmeticError, ValueError) as error:
            raise unmerged(error, self._cells, self._asks) from error
        fired = super().advance(clock)
        self.state_rows = self._windows.rows
        return self._flush() or fired

    def _move(self, watermark: int, now: float) -> int:
        try:
            if self._plain is not None:
                return self._plain.advance(watermark)
            assert self._keyed is not None
            return self._keyed.advance(watermark, now)
        except (TypeError, ArithmeticError, ValueError) as error:
            raise unmerged(error, self._cells, self._asks) from error

    def next_event(self) -> int | None:
        return self._windows.next_event()

    def wakes_at(self) -> float | None:
        times = [super().wakes_at()]
        if self._keyed is not None:
            times.append(self._keyed.next_clock())
        return min((time for time in times if time is not None), default=None)

    def oldest(self) -> int | None:
        return self._windows.oldest

    # -- results ------------------------------------------------------------------------------

    def _fired(self, start: int, end: int, items: Iterable[tuple[Any, Any]]) -> None:
        first, last = self._time.shown(start), self._time.shown(end)
        if self._cells.counts_only and len(self._bolt.key) == 1:
            self._out += [[key, first, last, count] for key, count in items]
            return
        results = self._cells.results
        if len(self._bolt.key) == 1:
            self._out += [[key, first, last, *results(cell)] for key, cell in items]
        elif self._bolt.key:
            self._out += [[*key, first, last, *results(cell)] for key, cell in items]
        else:
            self._out += [[first, last, *results(cell)] for _, cell in items]

    def _ended(self, sessions: list[Ended]) -> None:
        one_key, shown = len(self._bolt.key) == 1, self._time.shown
        if one_key and self._cells.counts_only and self._time.shows_ticks:
            self._out += map(list, sessions)
            return
        for key, start, end, cell in sessions:
            own = (key,) if one_key else key or ()
            self._out.append([*own, shown(start), shown(end), *self._cells.results(cell)])

    def _report(self, pane: Pane) -> None:
        key = pane.key if len(self._bolt.key) > 1 else [pane.key] if self._bolt.key else ()
        shown = self._time.shown
        end = pane.end - 1 if self._end_counts else pane.end
        row = [*key, shown(pane.start), shown(end), *pane.results]
        if self._bolt.rules.mode == "retract":
            row.append(pane.change)
        if self._bolt.reports_often:
            row += [pane.timing, pane.index]
        if self._bolt.rules.result_ts != "end":
            row.append(shown(pane.ts))
        self._out.append(row)

    # -- what is saved ------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        tables = self._saved.load(saved)
        self._watermark = self._clock.load(saved, watermark)
        if self._plain is not None:
            self._plain.restore(tables, self._watermark)
        elif self._keyed is not None:
            self._keyed.restore(tables, self._watermark)
        self.state_rows = self._windows.rows

    def save(self, changes: Any) -> None:
        self._saved.save(self._windows.tables, changes)
        self._clock.save(self._watermark, changes)
