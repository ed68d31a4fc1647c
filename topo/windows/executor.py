"""The operators of a WindowedBolt: they hold its tuples and execute its windows.

`StormExecutor` has Storm's windows, `PaneExecutor` those with sessions, triggers and lateness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from topo.collectors import OutputCollector
from topo.errors import FailTuple, WindowError
from topo.event_time import EventTime
from topo.operators.time import OperatorTime
from topo.storage.namespaces import SavedNamespaces
from topo.storage.saving import keys_of
from topo.timed import Clock, Operator, OperatorTask, Rows
from topo.tuples import Source
from topo.windows.assigners import Sessions
from topo.windows.holding import Held, Holding, HoldingWindows
from topo.windows.records import Pane, ReportRules
from topo.windows.rows import WaitingRows
from topo.windows.storm import Extent
from topo.windows.triggers import AtWatermark, When, prepared
from topo.windows.window import Window, lateness_ticks

ARRIVAL_IN_US = EventTime(None, unit="us", idle=None)
"""Stands for the time of windows by arrival: the batch's clock, in microseconds inside."""


class WindowedDeclaration(Protocol):
    """What a bolt declares of its windows, and the code that gets them: a `WindowedBolt`."""

    collector: OutputCollector

    @property
    def ack_mode(self) -> str: ...
    @property
    def only_full(self) -> bool: ...
    @property
    def rules(self) -> dict[str, Any]: ...
    def timing(self) -> EventTime | None: ...
    def key_fields(self) -> Sequence[str]: ...
    def extents(self, time: EventTime) -> tuple[Extent, Extent]: ...
    def assigner(self, time: EventTime) -> Any: ...
    def execute(self, window: Window, /) -> None: ...


class WindowExecutor(Operator):
    """The base of both operators: keys, times, and calls of the user's `execute`."""

    def __init__(self, bolt: WindowedDeclaration, task: OperatorTask) -> None:
        self._bolt = bolt
        self._task = task
        self._clock = OperatorTime(bolt.timing(), ARRIVAL_IN_US)
        self._time = self._clock.unit
        self._key = bolt.key_fields()
        self._expiry = bolt.ack_mode == "expiry"

    def _keys(self, rows: Rows) -> Sequence[Any]:
        """Return the key of each tuple."""
        return self._keys_of(rows.source, rows.columns, rows.count)

    def _keys_of(
        self, source: Source, columns: Sequence[Sequence[Any]], count: int
    ) -> Sequence[Any]:
        """Return the key of each row."""
        return keys_of([columns[source.fields.index(name)] for name in self._key], count)

    def _shown(self, ticks: int) -> Any:
        """Return a time in the unit of the field; by arrival, in milliseconds."""
        shown = self._time.shown(ticks)
        return shown // 1000 if self._clock.by_arrival and shown is not None else shown

    def _times(self, rows: Rows) -> list[Any]:
        # Windows end at the clock, their end included: what comes at it belongs to the next.
        return self._clock.times(rows, self._task.now(), later=1)

    def _execute(self, window: Window) -> None:
        collector: Any = self._bolt.collector
        collector.window_anchors = window.tuples if self._expiry else ()
        try:
            self._bolt.execute(window)
        except FailTuple as error:
            self._failed(window, error)
        except (Exception, SystemExit) as error:
            self._task.failed(error)
        finally:
            collector.window_anchors = ()

    def _failed(self, window: Window, error: FailTuple) -> None:
        if self._expiry:
            self._task.fails(window.new, str(error) or None)
            return
        self._task.failed(
            WindowError(
                f"FailTuple was raised for a window, whose tuples are acked: {error}",
                hint='with_ack("expiry") fails the new tuples of a window',
            )
        )


class PaneExecutor(WindowExecutor):
    """Windows with sessions, triggers and lateness: each pane is an execution."""

    def __init__(self, bolt: WindowedDeclaration, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        rules = bolt.rules
        trigger = prepared(rules["trigger"] or AtWatermark(), self._time)
        lateness = lateness_ticks(rules["lateness"], self._time)
        assigner = bolt.assigner(self._time)
        self._by_name = isinstance(assigner, Sessions)
        asks = any(isinstance(part, When) for part in trigger.walk())
        self._looks_at_tuples = asks or (self._by_name and assigner.dynamic is not None)
        self._saved = SavedNamespaces("panes", task.owner)
        self._waiting = WaitingRows(self._keys_of)
        self._holding = Holding(self._waiting, by_name=self._by_name)
        self._windows = HoldingWindows(
            assigner,
            self._holding,
            trigger,
            ReportRules(rules["mode"], lateness, rules["on_time"], rules["final"]),
            self._report,
            self._saved,
        )
        self._panes = 0

    def rows(self, rows: Rows) -> None:
        times = self._times(rows)
        # A session is only known when a tuple has come to it.
        marks = [0] * rows.count if self._by_name else times
        numbers = self._waiting.add(rows.source, rows.columns, marks)
        late, untaken = [], []
        add, now, holding = self._windows.add, self._task.now(), self._holding
        for place, (key, ts) in enumerate(zip(self._keys(rows), times, strict=True)):
            holding.number = number = numbers[place]
            holding.taken = 0
            tup = rows.tuple(place) if self._looks_at_tuples else None
            if ts is None or not add(key, ts, (tup,), now, tup):
                late.append(place)
            if not holding.taken:
                untaken.append(number)
            elif self._by_name:
                marks[place] = holding.name
            elif holding.taken > 1:
                self._windows.note_several(number, holding.taken)
        holding.number = numbers.stop
        if untaken:
            self._waiting.leave_out(untaken)
        self._settle()
        if late:
            self._task.set_aside(rows, late)
        self.state_rows = self._windows.rows

    def _settle(self) -> None:
        """Let the tuples go that no window has any more."""
        gone = self._windows.let_go()
        if gone:
            self._waiting.remove(gone)
            self._waiting.settle()

    def _report(self, pane: Pane) -> None:
        self._panes += 1
        held: Held = pane.results[0]
        unread, shown = self._waiting.unread, self._shown
        tuples, new = unread(held.numbers + held.new), unread(list(held.new))
        self._execute(Window(tuples, new, [], shown(pane.start), shown(pane.end), pane.key, pane))

    def begin(self, clock: Clock) -> None:
        watermark = self._clock.before_tuples(clock)
        if watermark is not None:
            self._windows.advance(watermark, clock.now)
            self._settle()

    def advance(self, clock: Clock) -> int:
        before, self._panes = self._panes, 0
        self._windows.end_batch(clock.now)
        watermark = self._clock.after_tuples(clock)
        if watermark is not None:
            self._windows.advance(watermark, clock.now)
        self._settle()
        self.state_rows = self._windows.rows
        fired, self._panes = self._panes + before, 0
        return fired

    def next_event(self) -> int | None:
        return self._windows.next_event()

    def wakes_at(self) -> float | None:
        times = (self._windows.next_clock(), self._clock.wakes_at(self.next_event))
        return min((time for time in times if time is not None), default=None)

    def oldest(self) -> int | None:
        return self._windows.oldest

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        windows, holding, waiting = self._windows, self._holding, self._waiting
        windows.restore(self._saved.load(saved), watermark)
        for record in windows.records():
            holding.restore(record.cell)
            waiting.next_number = max(waiting.next_number, record.cell.highest)
        for _ in waiting.load(saved, windows.adopt):
            pass  # each was adopted by the windows that have it
        holding.number = waiting.next_number
        self.state_rows = windows.rows

    def save(self, changes: Any) -> None:
        self._saved.save(self._windows.tables, changes)
        self._waiting.save(changes, self._windows.has_still)
