"""The operators of a WindowedBolt: they hold its tuples and execute its windows."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, repeat
from typing import Any

from topo.errors import FailTuple, WindowError
from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.storage.namespaces import SavedNamespaces
from topo.timed import Clock, Operator, OperatorTask, Rows
from topo.tuples import UNTRACKED, Source, Tuple, tuple_class
from topo.windows.accumulators import Accumulators
from topo.windows.bolt import ARRIVAL, Window, WindowedBolt, lateness_ticks
from topo.windows.combiners import Collect
from topo.windows.keyed import KeyedWindows, Pane, Rules
from topo.windows.storm import Activation, Entry, StormWindows
from topo.windows.triggers import AtWatermark, prepared

_TUPLES, _POSITIONS, _CLOCK, _ORIGINS = 0, 1, 2, 3
"""Namespaces of what is saved."""

_MANY = 1_000_000


class _Executor(Operator):
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


class StormExecutor(_Executor):
    """Storm's windows, one for each key.

    What waits in a window is (time, key, values, number of its origin), which is cheap to save; the
    tuple is made when a window is executed. Those that are acked by hand wait as tuples.
    """

    def __init__(self, bolt: WindowedBolt, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        self._length, self._slide = bolt.extents(self._time)
        if self._expiry:
            self._check_limits(task.conf)
        self._windows: dict[Any, StormWindows] = {}
        self._tuples: dict[int, tuple[Any, ...]] = {}
        self._origins: dict[int, Source] = {}
        self._makers: dict[int, Callable[..., Tuple]] = {}
        self._origin_of: dict[Source, int] = {}
        self._positions: dict[Any, Any] = {}
        self._moved: dict[Any, None] = {}  # keys whose position may have changed
        self._fresh: dict[Any, None] = {}  # keys with tuples since the last move
        self._heap: list[tuple[int, int, Any]] = []  # when keys are due; may be outdated
        self._noted: dict[Any, int] = {}  # the latest entry of each key there
        self._number = count()
        self._saved = SavedNamespaces("window", task.owner)
        self._next = 0
        self._watermark = BEFORE_ALL
        self._due: list[tuple[int, Any, Activation]] | None = None
        self._warned = False
        self._saved_clock = BEFORE_ALL

    def _check_limits(self, conf: Mapping[str, Any]) -> None:
        """Refuse windows whose tuples would time out, or fill the pending limit, in them."""
        per_second = self._time.per_second
        span = sum(e.size for e in (self._length, self._slide) if e.by_time) / per_second
        timeout = conf.get("topology.message.timeout.secs")
        if conf.get("topology.enable.message.timeouts") and timeout and span > timeout:
            raise WindowError(
                f"a window's length and slide, {span:g} s, are more than "
                f"topology.message.timeout.secs, {timeout:g} s: its tuples would time out in it",
                hint='raise the timeout, or write with_ack("state")',
            )
        pending = conf.get("topology.max.spout.pending")
        held = sum(e.size for e in (self._length, self._slide) if not e.by_time)
        if pending and held > pending:
            raise WindowError(
                f"a window's length and slide, {held} tuples, are more than "
                f"topology.max.spout.pending, {pending}: it would never be full",
                hint='raise the limit, or write with_ack("state")',
            )

    def rows(self, rows: Rows) -> None:
        late = []
        watermark, expiry, by_arrival = self._watermark, self._expiry, self._by_arrival
        origin = -1 if expiry else self._origin(rows.source)
        values = zip(*rows.columns, strict=True) if rows.columns else repeat((), rows.count)
        first = self._next
        tuples, moved, fresh = self._tuples, self._moved, self._fresh
        everything = zip(self._keys(rows), self._times(rows), values, strict=True)
        for place, (key, ts, own) in enumerate(everything):
            if ts is None:
                late.append(place)
                continue
            windows = self._windows.get(key)
            if windows is None:
                if ts < watermark and not by_arrival:
                    late.append(place)
                    continue
                windows = self._windows[key] = self._made(key)
            if not by_arrival and windows.is_late(ts, watermark):
                late.append(place)
                continue
            number = self._next
            self._next = number + 1
            waiting: tuple[Any, ...] = (ts, key, own, origin)
            if expiry:
                waiting = (ts, key, rows.tuple(place))
            tuples[number] = waiting
            moved[key] = None
            fresh[key] = None
            windows.add(ts, number, waiting)
        self._saved.touch_all(_TUPLES, range(first, self._next))
        if late:
            self._task.set_aside(rows, late)
            if self._expiry:
                self._task.acks(rows.tuple(place) for place in late)
        self.state_rows = len(self._tuples)
        if self.state_rows > _MANY and not self._warned:
            self._warned = True
            self._task.warn_once(
                f"{self._task.owner} holds over {_MANY:,} tuples in its windows; "
                "a WindowAggregate holds one row for each key and pane"
            )

    def _origin(self, source: Source) -> int:
        """Return the number of where tuples come from."""
        number = self._origin_of.get(source)
        if number is None:
            number = self._origin_of[source] = len(self._origins)
            self._origins[number] = source
            self._makers[number] = tuple_class(source)
            self._saved.touch(_ORIGINS, number)
        return number

    def _tuples_of(self, entries: Iterable[Entry]) -> list[Tuple]:
        """Return the tuples that wait, the same ones for each window that they are in."""
        made = []
        for entry in entries:
            waiting = entry.item
            if type(waiting) is tuple:
                if len(waiting) == 3:
                    waiting = waiting[2]
                else:
                    waiting = self._makers[waiting[3]](*waiting[2], UNTRACKED)
                entry.item = waiting
            made.append(waiting)
        return made

    def _made(self, key: Any) -> StormWindows:
        def activate(activation: Activation) -> None:
            if self._due is not None:
                self._due.append((activation.end, key, activation))
            else:
                self._run(key, activation)

        return StormWindows(
            self._length,
            self._slide,
            activate,
            self._expired,
            by_arrival=self._by_arrival,
            only_full=self._bolt.only_full,
        )

    def _run(self, key: Any, activation: Activation) -> None:
        shown = self._shown
        start = None if activation.start is None else shown(activation.start)
        self._execute(
            Window(
                self._tuples_of(activation.tuples),
                self._tuples_of(activation.new),
                self._tuples_of(activation.expired),
                start,
                shown(activation.end),
                key,
            )
        )

    def _expired(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            del self._tuples[entry.number]
        self._saved.touch_all(_TUPLES, [entry.number for entry in entries])
        if self._expiry:
            self._task.acks(self._tuples_of(entries))

    def begin(self, clock: Clock) -> None:
        if self._by_arrival:
            self._move(self._time.clock_ticks(clock.now))

    def advance(self, clock: Clock) -> int:
        if self._by_arrival:
            return self._move(AFTER_ALL) if clock.ended else 0
        moved = clock.watermark > clock.watermark_before
        return self._move(clock.watermark) if moved else 0

    def _move(self, watermark: int) -> int:
        """Fire what is complete, in the order of the ends over all keys."""
        self._watermark = max(self._watermark, watermark)
        self._due = []
        at = self._watermark
        for key in self._keys_due(at):
            windows = self._windows.get(key)
            if windows is None:
                continue
            if windows.advance(at):
                self._moved[key] = None
            if windows.is_spent(at):
                self._moved[key] = None
                del self._windows[key]
            else:
                self._note_due(key, windows)
        due, self._due = self._due, None
        due.sort(key=_end)
        for _, key, activation in due:
            self._run(key, activation)
        self.state_rows = len(self._tuples)
        return len(due)

    def _keys_due(self, watermark: int) -> list[Any]:
        """Return the keys with something to do at a watermark; at the end, all of them."""
        for key in self._fresh:
            if (windows := self._windows.get(key)) is not None:
                self._note_due(key, windows)
        self._fresh.clear()
        if watermark >= AFTER_ALL:
            self._heap.clear()
            self._noted.clear()
            return list(self._windows)
        heap = self._heap
        keys: dict[Any, None] = {}
        while heap and heap[0][0] <= watermark:
            due, _, key = heapq.heappop(heap)
            if self._noted.get(key) == due:
                del self._noted[key]
            keys[key] = None
        return list(keys)

    def _note_due(self, key: Any, windows: StormWindows) -> None:
        due = windows.next_due
        if due is not None and self._noted.get(key) != due:
            self._noted[key] = due
            heapq.heappush(self._heap, (due, next(self._number), key))

    def next_event(self) -> int | None:
        first = self._first()
        return None if first is None else first.next_due

    def _first(self) -> StormWindows | None:
        """Return the windows that are due first."""
        heap = self._heap
        while heap:
            due, _, key = heap[0]
            windows = self._windows.get(key)
            if windows is not None and windows.next_due == due:
                return windows
            heapq.heappop(heap)
            if self._noted.get(key) == due:
                del self._noted[key]
                if windows is not None:
                    self._note_due(key, windows)
        return None

    def wakes_at(self) -> float | None:
        end = self.next_event() if self._by_arrival else None
        return None if end is None else self._time.clock_at(end)

    def oldest(self) -> int | None:
        first = self._first()
        return None if first is None else first.oldest

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        tables = self._saved.load(saved)
        self._tuples = tables.get(_TUPLES, {})
        self._positions = tables.get(_POSITIONS, {})
        self._origins = tables.get(_ORIGINS, {})
        self._makers = {number: tuple_class(source) for number, source in self._origins.items()}
        self._origin_of = {source: number for number, source in self._origins.items()}
        self._next = 1 + max(self._tuples, default=-1)
        kept: dict[Any, list[Entry]] = {key: [] for key in self._positions}
        for number, waiting in self._tuples.items():
            kept[waiting[1]].append(Entry(waiting[0], number, waiting))
        for key, entries in kept.items():
            windows = self._windows[key] = self._made(key)
            windows.restore(entries, self._positions[key])
            self._note_due(key, windows)
        self._watermark = tables.get(_CLOCK, {}).get("clock", BEFORE_ALL)
        self._watermark = max(self._watermark, watermark)
        self.state_rows = len(self._tuples)

    def save(self, changes: Any) -> None:
        for key in self._moved:
            windows = self._windows.get(key)
            if windows is None:
                self._positions.pop(key, None)
                self._saved.touch(_POSITIONS, key)
                continue
            position = windows.position()
            if self._positions.get(key) != position:
                self._positions[key] = position
                self._saved.touch(_POSITIONS, key)
        self._moved.clear()
        tables: dict[int, Mapping[Any, Any]] = {
            _TUPLES: self._tuples,
            _POSITIONS: self._positions,
            _CLOCK: {"clock": self._watermark},
            _ORIGINS: self._origins,
        }
        if self._by_arrival and self._slide.by_time and self._saved_clock != self._watermark:
            self._saved_clock = self._watermark
            self._saved.touch(_CLOCK, "clock")
        self._saved.save(tables, changes)


def _end(due: tuple[int, Any, Activation]) -> int:
    return due[0]


class PaneExecutor(_Executor):
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
        times = [self._windows.next_clock()]
        event = self.next_event() if self._by_arrival else None
        if event is not None and event < AFTER_ALL:
            times.append(self._time.clock_at(event))
        return min((time for time in times if time is not None), default=None)

    def oldest(self) -> int | None:
        return self._windows.oldest

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._windows.restore(self._saved.load(saved), watermark)
        self.state_rows = self._windows.rows

    def save(self, changes: Any) -> None:
        self._saved.save(self._windows.tables, changes)
