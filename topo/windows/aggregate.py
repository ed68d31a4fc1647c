"""`WindowAggregate`: aggregates by key in windows, with no user code per tuple."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, repeat
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import Problem, TopoError, WindowError, did_you_mean
from topo.event_time import AFTER_ALL, BEFORE_ALL, Duration, EventTime
from topo.storage.namespaces import SavedNamespaces
from topo.timed import Clock, InputFields, Operator, OperatorTask, Rows, TimedBolt
from topo.tuples import Fields
from topo.windows.accumulators import Accumulators
from topo.windows.assigners import Aligned, Session, Sessions, WindowSpec, check_spec
from topo.windows.blame import blamed, unmerged
from topo.windows.combiners import Combiner, Inputs, check_aggregates
from topo.windows.keyed import KeyedWindows, Pane, Rules
from topo.windows.panes import PaneWindows
from topo.windows.sessions import SessionWindows
from topo.windows.triggers import AtWatermark, Trigger, When, check_trigger, prepared

ARRIVAL = EventTime(None, idle=None)
"""Stands for the time of bolts by arrival: the batch's clock, in milliseconds."""

UNBOUNDED = "unbounded"

_ARRIVED = "arrived"
"""The record of the clock up to which windows by arrival have reported."""


class WindowAggregate(TimedBolt):
    """A bolt that reports aggregates of its tuples by key and window.

    It emits the key's fields, `start` and `end` of the window and the aggregates by their names.
    If a window may report several times (`trigger`, `allowed_lateness`), also `timing` ("early",
    "on_time", "late") and `pane`, its number; in mode "retract", before them, `change`: "-" takes
    a pane back that "+" has reported. Without `time`, windows are by arrival, by the batch's clock.

    `allowed_lateness` keeps windows for tuples that come after their end ("unbounded": for ever).
    `on_time="if_new"` sends no pane at the end that says nothing new; `final="always"` sends a
    last one though it says nothing new. With `result_ts` "earliest" or "latest", the output has
    the field `ts`, the time of the pane's earliest or latest tuple.
    """

    def __init__(
        self,
        *,
        window: WindowSpec,
        aggregates: Mapping[str, Combiner],
        key: str | Iterable[str] | None = None,
        time: EventTime | None = None,
        trigger: Trigger | None = None,
        mode: str = "accumulate",
        allowed_lateness: Duration | str = 0,
        on_time: str = "always",
        final: str = "if_new",
        result_ts: str = "end",
        late_stream: str | None = None,
    ) -> None:
        check_spec(window)
        if trigger is not None:
            check_trigger(trigger)
        if time is not None and not isinstance(time, EventTime):
            raise WindowError(
                f"time is {time!r}; it takes an EventTime", hint='write time=EventTime("ts")'
            )
        if late_stream is not None and time is None:
            raise WindowError(
                "a late stream needs event time: by arrival, nothing is late",
                hint='give time=EventTime("ts")',
            )
        self.window = window
        self.aggregates = check_aggregates(aggregates)
        self.key = key_fields(key)
        self.event_time = time
        self.trigger = trigger
        self.late_stream = late_stream
        clock = time or ARRIVAL
        unbounded = allowed_lateness == UNBOUNDED
        self.rules = Rules(
            mode,
            None if unbounded else clock.ticks(allowed_lateness, "allowed_lateness", 0),  # type: ignore[arg-type]
            on_time,
            final,
            result_ts,
        )
        self.reports_often = trigger is not None or self.rules.lateness != 0
        window.in_ticks(clock)
        whole = [n for n, made in self.aggregates.items() if not made.mergeable]
        if whole and isinstance(window, Session):
            raise WindowError(
                f"sessions join, and the aggregate {whole[0]!r} cannot: its combiner has no merge",
                hint=f"override {type(self.aggregates[whole[0]]).__name__}.merge",
            )
        prepared(trigger or AtWatermark(), clock)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        names = [*self.key, "start", "end", *self.aggregates]
        if self.rules.mode == "retract":
            names.append("change")
        if self.reports_often:
            names += ["timing", "pane"]
        if self.rules.result_ts != "end":
            names.append("ts")
        declarer.declare(Fields(*names))
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    def result_time(self, stream: str) -> tuple[str, int] | None:
        if stream != "default" or self.event_time is None:
            return None
        return ("end", -1) if self.rules.result_ts == "end" else ("ts", 0)

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        for read in inputs:
            for name in self.key:
                if name not in read.fields:
                    text = f"{where}: the key {name!r} is no field of {read.component!r}"
                    known = ", ".join(map(repr, read.fields))
                    hint = did_you_mean(name, read.fields) or f"its fields are {known}"
                    yield Problem("window-key", where, text, hint)
            for combiner in self.aggregates.values():
                try:
                    Inputs.of(combiner, read.fields, f"{read.component!r}")
                except WindowError as error:
                    yield Problem("window-field", where, f"{where}: {error.message}", error.hint)
            yield from key_problems(self.key, where, read, tasks)
            if self.event_time is not None and read.component in self.event_time.untimed:
                text = f"{where} aggregates {read.component!r} in event time, which is untimed"
                yield Problem("time-field", where, text, "read it in another bolt")

    def operator(self, task: OperatorTask) -> Operator:
        return AggregateOperator(self, task)


def key_fields(key: Any) -> tuple[str, ...]:
    """Return the fields of a key; raise a WindowError if it is none."""
    names = (key,) if isinstance(key, str) else () if key is None else key
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise WindowError(
            f"key is {key!r}; it takes the name of a field, or several",
            hint='write key="user", or key=("user", "page")',
        )
    return tuple(Fields(names))


def key_problems(
    key: Sequence[str], where: str, read: InputFields, tasks: int
) -> Iterable[Problem]:
    """Yield a problem if tuples of one key may come to several tasks."""
    if not key or tasks == 1 or read.grouping in ("global", "all", "direct", "custom"):
        return
    by_key = read.grouping == "fields" and set(read.grouping_fields) <= set(key)
    if by_key and read.grouping_fields:
        return
    names = ", ".join(map(repr, key))
    text = (
        f"{where} has windows by {names} in {tasks} tasks, but reads {read.component!r} by "
        f"{read.grouping} grouping: tuples of one key come to several tasks"
    )
    hint = f"write .fields_grouping({read.component!r}, [{names}])"
    yield Problem("window-grouping", where, text, hint)


class AggregateOperator(Operator):
    """The windows of one task of a WindowAggregate."""

    def __init__(self, bolt: WindowAggregate, task: OperatorTask) -> None:
        self._bolt = bolt
        self._task = task
        self._time = bolt.event_time or ARRIVAL
        self._by_arrival = bolt.event_time is None
        self._cells = Accumulators(bolt.aggregates)
        self._saved = SavedNamespaces("cells", task.owner)
        self._out: list[list[Any]] = []
        self._inputs: dict[tuple[str, str], tuple[list[int], list[Inputs]]] = {}
        assigner = bolt.window.in_ticks(self._time)
        plain = bolt.trigger is None and bolt.rules == Rules(mode=bolt.rules.mode)
        plain = plain and bolt.rules.mode != "retract"
        self._plain: PaneWindows | SessionWindows | None = None
        self._keyed: KeyedWindows | None = None
        touch_all, drop = self._saved.touch_all, self._saved.drop
        plain = plain and self._cells.mergeable
        if plain and isinstance(assigner, Aligned):
            self._plain = PaneWindows(assigner, self._cells, self._fired, touch_all, drop)
        elif plain and isinstance(assigner, Sessions) and assigner.dynamic is None:
            self._plain = SessionWindows(assigner.gap, self._cells, self._fired, touch_all)
        else:
            self._keyed = KeyedWindows(
                assigner,
                self._cells,
                prepared(bolt.trigger or AtWatermark(), self._time),
                bolt.rules,
                self._report,
                self._saved.touch,
                drop,
            )
        self._saved_watermark = BEFORE_ALL
        parts = () if bolt.trigger is None else bolt.trigger.walk()
        self._asks = any(isinstance(part, When) for part in parts)  # the user's code

    @property
    def _windows(self) -> PaneWindows | SessionWindows | KeyedWindows:
        windows = self._plain or self._keyed
        assert windows is not None, "it is made with one of them"
        return windows

    # -- tuples -------------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        key_places, inputs = self._places(rows)
        columns = rows.columns
        keys: Sequence[Any]
        if not key_places:
            keys = [None] * rows.count
        elif len(key_places) == 1:
            keys = columns[key_places[0]]
        else:
            keys = list(zip(*[columns[place] for place in key_places], strict=True))
        if self._by_arrival:
            times: list[Any] = [self._time.clock_ticks(self._task.now())] * rows.count
        else:
            times = rows.times or []
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

    def _places(self, rows: Rows) -> tuple[list[int], list[Inputs]]:
        stream = (rows.component, rows.stream)
        found = self._inputs.get(stream)
        if found is None:
            fields = rows.fields
            keys = [fields.index(name) for name in self._bolt.key]
            inputs = [Inputs.of(c, fields, repr(rows.component)) for c in self._cells.combiners]
            found = self._inputs[stream] = keys, inputs
        return found

    # -- time ---------------------------------------------------------------------------------

    def begin(self, clock: Clock) -> None:
        if self._by_arrival:
            self._move(self._time.clock_ticks(clock.now), clock.now)
            self._flush()

    def advance(self, clock: Clock) -> int:
        fired = 0
        try:
            if self._plain is not None:
                self._plain.end_batch()
            elif self._keyed is not None:
                self._keyed.end_batch(clock.now)
            if not self._by_arrival:
                fired = self._move(clock.watermark, clock.now)
            elif clock.ended:
                fired = self._move(AFTER_ALL, clock.now)
        except (TypeError, ArithmeticError, ValueError) as error:
            raise unmerged(error, self._cells, self._asks) from error
        self.state_rows = self._windows.rows
        return self._flush() or fired

    def _move(self, watermark: int, now: float) -> int:
        if self._plain is not None:
            return self._plain.advance(watermark)
        assert self._keyed is not None
        return self._keyed.advance(watermark, now)

    def next_event(self) -> int | None:
        return self._windows.next_event()

    def wakes_at(self) -> float | None:
        times = []
        if self._keyed is not None:
            times.append(self._keyed.next_clock())
        event = self.next_event() if self._by_arrival else None
        if event is not None and event < AFTER_ALL:
            times.append(self._time.clock_at(event))
        return min((time for time in times if time is not None), default=None)

    def oldest(self) -> int | None:
        return self._windows.oldest

    # -- results ------------------------------------------------------------------------------

    def _flush(self) -> int:
        out, self._out = self._out, []
        self._task.emit(out)
        return len(out)

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

    def _report(self, pane: Pane) -> None:
        key = pane.key if len(self._bolt.key) > 1 else [pane.key] if self._bolt.key else ()
        shown = self._time.shown
        row = [*key, shown(pane.start), shown(pane.end), *pane.results]
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
        if self._by_arrival:
            watermark = int(saved.get(_ARRIVED, b"%d" % BEFORE_ALL))
        if self._plain is not None:
            self._plain.restore(tables, watermark)
        elif self._keyed is not None:
            self._keyed.restore(tables, watermark)
        self.state_rows = self._windows.rows

    def save(self, changes: Any) -> None:
        self._saved.save(self._windows.tables, changes)
        if self._by_arrival and self._windows.watermark != self._saved_watermark:
            self._saved_watermark = self._windows.watermark
            changes.puts[_ARRIVED] = b"%d" % self._saved_watermark
