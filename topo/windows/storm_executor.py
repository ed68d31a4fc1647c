"""Storm's windows of one task, one queue for each key, over tuples that wait.

Tuples come and wait by the frame: a queue has times and numbers, `WaitingRows` has the values.
Those that are acked by hand, when they leave the window, wait as tuples: `WaitingTuples`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import compress, count
from typing import Any

from topo.errors import WindowError
from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.storage.namespaces import SavedNamespaces
from topo.timed import Clock, OperatorTask, Rows
from topo.windows.executor import WindowedDeclaration, WindowExecutor
from topo.windows.rows import WaitingRows
from topo.windows.storm import Activation, Position, StormWindows
from topo.windows.tuples import WaitingTuples
from topo.windows.window import Window

_POSITIONS, _CLOCK = 0, 1
"""Namespaces of what is saved."""

_MANY = 1_000_000


class StormExecutor(WindowExecutor):
    """Storm's windows, one for each key."""

    def __init__(self, bolt: WindowedDeclaration, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        self._length, self._slide = bolt.extents(self._time)
        if self._expiry:
            self._check_limits(task.conf)
        self._windows: dict[Any, StormWindows] = {}
        self._waiting: WaitingRows | WaitingTuples = (
            WaitingTuples(task) if self._expiry else WaitingRows(self._keys_of)
        )
        self._positions: dict[Any, Position] = {}
        self._moved: dict[Any, None] = {}  # keys whose position may have changed
        self._fresh: dict[Any, None] = {}  # keys with tuples since the last move
        self._heap: list[tuple[int, int, Any]] = []  # when keys are due; may be outdated
        self._noted: dict[Any, int] = {}  # the latest entry of each key there
        self._number = count()
        self._saved = SavedNamespaces("positions", task.owner)
        self._watermark = BEFORE_ALL
        self._due: list[tuple[int, Any, Activation]] = []
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

    # -- tuples -------------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        times = self._times(rows)
        late = [] if self._clock.by_arrival else self._late_places(rows, times)
        if len(late) < rows.count:
            self._add(rows, times, late)
        if late:
            self._task.set_aside(rows, late)
            if self._expiry:
                self._task.acks(rows.tuple(place) for place in late)
        self.state_rows = self._waiting.count
        if self.state_rows > _MANY and not self._warned:
            self._warned = True
            self._task.warn_once(
                f"{self._task.owner} holds over {_MANY:,} tuples in its windows; "
                "a WindowAggregate holds one row for each key and pane"
            )

    def _late_places(self, rows: Rows, times: Sequence[Any]) -> list[int]:
        watermark, span = self._watermark, rows.span
        late: list[int] = []
        if span is None and None not in times:
            span = min(times), max(times)
        # What comes at the watermark may be late, too, where a window has ended there.
        if span is not None and span[0] > watermark:
            return late
        for place, (key, ts) in enumerate(zip(self._keys(rows), times, strict=True)):
            if ts is None or ts < watermark:
                late.append(place)
            elif ts == watermark:
                windows = self._windows.get(key)
                if windows is not None and windows.is_late(ts, watermark):
                    late.append(place)
        return late

    def _add(self, rows: Rows, times: Sequence[int], late: Sequence[int]) -> None:
        """Let the tuples wait that are not late, and fire what ends at one of them."""
        columns = rows.columns
        places: Sequence[int] = range(rows.count)
        if late:
            gone = set(late)
            stays = [place not in gone for place in places]
            places = list(compress(places, stays))
            times = list(compress(times, stays))
            columns = [list(compress(column, stays)) for column in columns]
        keys = self._keys_of(rows.source, columns, len(times))
        if isinstance(self._waiting, WaitingTuples):
            numbers = self._waiting.add(map(rows.tuple, places), times, keys)
        else:
            numbers = self._waiting.add(rows.source, columns, times)
        if not self._key:
            self._queue(None, numbers.start).extend(times, numbers)
            self._moved[None] = self._fresh[None] = None
        else:
            of_key: dict[Any, list[int]] = defaultdict(list)
            for place, key in enumerate(keys):
                of_key[key].append(place)
            first = numbers.start
            for key, own in of_key.items():
                queue = self._queue(key, first)
                queue.extend([times[place] for place in own], [first + place for place in own])
            self._moved.update(dict.fromkeys(of_key))
            self._fresh.update(dict.fromkeys(of_key))
        if self._due:
            # Of all keys, in the order of the tuples at which they ended.
            self._run_due(lambda due: due[2].tuples[-1])

    def _queue(self, key: Any, born: int) -> StormWindows:
        """Return the windows of a key; new ones have no tuple before the number `born`."""
        windows = self._windows.get(key)
        if windows is None:

            def activate(activation: Activation) -> None:
                self._due.append((activation.end, key, activation))

            windows = self._windows[key] = StormWindows(
                self._length,
                self._slide,
                activate,
                self._waiting.remove,
                born=born,
                by_arrival=self._clock.by_arrival,
                only_full=self._bolt.only_full,
            )
        return windows

    # -- windows ------------------------------------------------------------------------------

    def _run_due(self, order: Any) -> int:
        """Execute the windows that are due."""
        due, self._due = self._due, []
        due.sort(key=order)
        shown, unread = self._shown, self._waiting.unread
        for _, key, one in due:
            start = None if one.start is None else shown(one.start)
            tuples, new, expired = unread(one.tuples), unread(one.new), unread(one.expired)
            self._execute(Window(tuples, new, expired, start, shown(one.end), key))
        self._waiting.settle()
        return len(due)

    def begin(self, clock: Clock) -> None:
        watermark = self._clock.before_tuples(clock)
        if watermark is not None:
            self._move(watermark)

    def advance(self, clock: Clock) -> int:
        watermark = self._clock.after_tuples(clock)
        if watermark is None:
            return 0
        moved = self._clock.by_arrival or watermark > clock.watermark_before
        return self._move(watermark) if moved else 0

    def _move(self, watermark: int) -> int:
        """Fire what is complete, in the order of the ends over all keys."""
        at = self._watermark = max(self._watermark, watermark)
        for key in self._keys_due(at):
            windows = self._windows.get(key)
            if windows is None:
                continue
            windows.advance(at)
            self._moved[key] = None
            if windows.is_spent(at):
                del self._windows[key]
            else:
                self._note_due(key, windows)
        fired = self._run_due(_end)
        self.state_rows = self._waiting.count
        return fired

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
        return self._clock.wakes_at(self.next_event)

    def oldest(self) -> int | None:
        first = self._first()
        return None if first is None else first.oldest

    # -- what is saved ------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        tables = self._saved.load(saved)
        self._positions = tables.get(_POSITIONS, {})
        waiting = self._waiting
        for key, position in self._positions.items():
            self._queue(key, 0).restore(position)
            highest = max(position.born, position.expired[1] + 1)
            waiting.next_number = max(waiting.next_number, highest)
        found: dict[Any, tuple[list[int], list[int]]] = {}
        for key, ts, number in waiting.load(saved, self._has_still):
            times, numbers = found.setdefault(key, ([], []))
            times.append(ts)
            numbers.append(number)
        for key, held in found.items():
            self._windows[key].hold(*held)
        for key, windows in self._windows.items():
            self._note_due(key, windows)
        self._watermark = tables.get(_CLOCK, {}).get("clock", BEFORE_ALL)
        self._watermark = max(self._watermark, watermark)
        self.state_rows = waiting.count

    def _has_still(self, key: Any, ts: int, number: int) -> bool:
        """Return True if a tuple that came waits."""
        windows = self._windows.get(key)
        return windows is not None and windows.has_still(ts, number)

    def save(self, changes: Any) -> None:
        for key in self._moved:
            windows = self._windows.get(key)
            if windows is None:
                if self._positions.pop(key, None) is not None:
                    self._saved.touch(_POSITIONS, key)
                continue
            position = windows.position()
            if self._positions.get(key) != position:
                self._positions[key] = position
                self._saved.touch(_POSITIONS, key)
        self._moved.clear()
        tables: dict[int, Mapping[Any, Any]] = {
            _POSITIONS: self._positions,
            _CLOCK: {"clock": self._watermark},
        }
        if self._clock.by_arrival and self._slide.by_time and self._saved_clock != self._watermark:
            self._saved_clock = self._watermark
            self._saved.touch(_CLOCK, "clock")
        self._saved.save(tables, changes)
        self._waiting.save(changes, self._has_still)


def _end(due: tuple[int, Any, Activation]) -> tuple[int, int]:
    return due[0], due[2].tuples[0]  # so that the order is the same after a restart
