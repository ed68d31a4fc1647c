"""The operators of a WindowedBolt: they hold its tuples and execute its windows.

`StormExecutor` has Storm's windows, `PaneExecutor` those with sessions, triggers and lateness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any

from topo.errors import FailTuple, WindowError
from topo.event_time import AFTER_ALL
from topo.storage.namespaces import SavedNamespaces
from topo.timed import Clock, Operator, OperatorTask, Rows
from topo.tuples import Tuple
from topo.windows.accumulators import Accumulators
from topo.windows.bolt import ARRIVAL, WindowedBolt
from topo.windows.combiners import Collect
from topo.windows.keyed import KeyedWindows
from topo.windows.records import Pane, Rules
from topo.windows.triggers import AtWatermark, prepared
from topo.windows.window import Window, lateness_ticks


class Executor(Operator):
    """The base of both operators: keys, times, and calls of the user's `execute`."""

    def __init__(self, bolt: WindowedBolt, task: OperatorTask) -> None:
        self._bolt = bolt
        self._task = task
        time = bolt.timing()
        self._by_arrival = time is None
        self._time = time or ARRIVAL
        self._key = bolt.key_fields()
        self._expiry = bolt.ack_mode == "expiry"

    def _keys(self, rows: Rows) -> Iterable[Any]:
        """Return the key of each tuple."""
        columns = [rows.columns[rows.fields.index(name)] for name in self._key]
        if not columns:
            return repeat(None, rows.count)
        return columns[0] if len(columns) == 1 else zip(*columns, strict=True)

    def _shown(self, ticks: int) -> Any:
        """Return a time in the unit of the field; by arrival, in milliseconds."""
        shown = self._time.shown(ticks)
        return shown // 1000 if self._by_arrival and shown is not None else shown

    def _times(self, rows: Rows) -> list[Any]:
        if rows.times is not None:
            return rows.times
        # Windows end at the clock, their end included: what comes at it belongs to the next.
        return [self._time.clock_ticks(self._task.now()) + 1] * rows.count

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


class PaneExecutor(Executor):
    """Windows with sessions, triggers and lateness: each pane is an execution."""

    def __init__(self, bolt: WindowedBolt, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        rules = bolt.rules
        trigger = rules["trigger"] or AtWatermark()
        lateness = lateness_ticks(rules["lateness"], self._time)
        self._saved = SavedNamespaces("panes", task.owner)
        self._windows = KeyedWindows(
            bolt.assigner(self._time),
            Accumulators({"tuples": Collect()}),
            prepared(trigger, self._time),
            Rules(rules["mode"], lateness, rules["on_time"], rules["final"]),
            self._report,
            self._saved.touch,
            self._saved.drop,
        )
        self._panes = 0

    def rows(self, rows: Rows) -> None:
        late = []
        add, now = self._windows.add, self._task.now()
        for place, (key, ts) in enumerate(zip(self._keys(rows), self._times(rows), strict=True)):
            tup = rows.tuple(place)
            if ts is None or not add(key, ts, [tup], now, tup):
                late.append(place)
        if late:
            self._task.set_aside(rows, late)
        self.state_rows = self._windows.rows

    def _report(self, pane: Pane) -> None:
        self._panes += 1
        tuples: list[Tuple] = pane.results[0]
        new = tuples[len(tuples) - pane.new :]
        shown = self._shown
        self._execute(Window(tuples, new, [], shown(pane.start), shown(pane.end), pane.key, pane))

    def begin(self, clock: Clock) -> None:
        if self._by_arrival:
            self._windows.advance(self._time.clock_ticks(clock.now), clock.now)

    def advance(self, clock: Clock) -> int:
        before, self._panes = self._panes, 0
        self._windows.end_batch(clock.now)
        if not self._by_arrival:
            self._windows.advance(clock.watermark, clock.now)
        elif clock.ended:
            self._windows.advance(AFTER_ALL, clock.now)
        self.state_rows = self._windows.rows
        fired, self._panes = self._panes + before, 0
        return fired

    def next_event(self) -> int | None:
        return self._windows.next_event()

    def wakes_at(self) -> float | None:
        event = self.next_event() if self._by_arrival else None
        times = (self._windows.next_clock(), self._time.wakes_at(event))
        return min((time for time in times if time is not None), default=None)

    def oldest(self) -> int | None:
        return self._windows.oldest

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._windows.restore(self._saved.load(saved), watermark)
        self.state_rows = self._windows.rows

    def save(self, changes: Any) -> None:
        self._saved.save(self._windows.tables, changes)
