"""Bolts with state by key: running aggregates, and processes with state and timers."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from topo.collectors import OutputCollector
from topo.components import OutputFieldsDeclarer
from topo.context import TopologyContext
from topo.errors import StreamError
from topo.event_time import AFTER_ALL, BEFORE_ALL, EventTime
from topo.keyed.timers import Timers
from topo.operators.results import GatheringOperator
from topo.storage.namespaces import SavedNamespaces
from topo.storage.saving import with_one_nan
from topo.streams.graph import KEY, TIME, VALUE, note_unhashable_key
from topo.timed import Clock, Operator, OperatorTask, Rows, TimedBolt

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class Process(Generic[K, V, R]):
    """Own logic by key, with state and timers: subclass it and override the hooks.

    `self.state` is the mapping of the present key: whatever is put there is saved with the batch,
    and a key whose mapping is empty is forgotten. `self.ts` is the time of the value, or the
    batch's clock in seconds if the stream has no event time.
    """

    state: dict[str, Any]
    ts: Any
    now: float
    watermark: Any
    _operator: ProcessOperator

    def on_value(self, key: K, value: V) -> None:
        """Take in a value."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to the call at hand; other attributes are saved."""
        return {name: value for name, value in vars(self).items() if name not in _OF_A_CALL}

    def on_timer(self, key: K, name: str, at: Any) -> None:
        """Act on a timer that is due.

        In event time, what a clock timer emits has the time at which it was set, or the watermark
        if that is later.
        """

    def emit(self, element: R) -> None:
        """Emit an element."""
        self._operator.emit(element)

    def set_timer(self, name: str, at: Any, *, clock: bool = False) -> None:
        """Call `on_timer` for this key at that event time, or, with `clock`, at that clock time.

        An event time is in the unit of its field, as `self.ts` is; a clock time is in seconds. A
        timer of the same name is replaced.
        """
        self._operator.set_timer(name, at, clock)

    def delete_timer(self, name: str) -> None:
        """Cancel a timer of this key."""
        self._operator.delete_timer(name)


_OF_A_CALL = {"state", "ts", "now", "watermark", "_operator"}


class ProcessBolt(TimedBolt):
    """A `Process` as a bolt."""

    def __init__(
        self, process: Process[Any, Any, Any], time: EventTime | None, keyed: bool
    ) -> None:
        self.process = process
        self.event_time = time
        self.has_keys = keyed
        self.leaves_late_out = False
        """What is behind the watermark goes to the late stream, not to the process."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        fields = (KEY, VALUE) if self.has_keys else (VALUE,)
        declarer.declare((*fields, TIME) if self.event_time else fields)
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: OutputCollector
    ) -> None:
        opened = getattr(self.process, "open", None)
        if opened is not None:
            opened(conf, context)

    def operator(self, task: OperatorTask) -> Operator:
        return ProcessOperator(self, task)


_STATE, _TIMERS = 0, 1


class ProcessOperator(GatheringOperator):
    """The keys of one task of a process: their state, and a heap of their timers."""

    def __init__(self, bolt: ProcessBolt, task: OperatorTask) -> None:
        super().__init__(task)
        self._bolt = bolt
        self._saved = SavedNamespaces("process", task.owner)
        self._state: dict[Any, dict[str, Any]] = {}
        self._timers = Timers()  # each notes the time at which it was set
        self._key: Any = None
        self._place: tuple[Rows, int] | None = None
        """The tuple of the value that is being taken in."""
        self._watermark = BEFORE_ALL
        self._waiting: list[Rows] = []
        """The values of this batch, in event time."""
        time = bolt.event_time
        self._unit = None if time is None or time.unit in ("ms", "us") else time
        """The event time, if its ticks are not what people see."""

    @property
    def _process(self) -> Process[Any, Any, Any]:
        """The process, which a restore has replaced by the saved one."""
        process = self._bolt.process
        process._operator = self
        return process

    # -- values -------------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        if rows.times is not None:
            self._waiting.append(rows)  # for the watermark, which orders them among the timers
            return
        now = self._task.now()
        self._set_clock(self._process, now)
        with self._task.users_code():
            for place in range(rows.count):
                self._take(rows, place, now)

    def _take(self, rows: Rows, place: int, ts: Any) -> None:
        self._place = rows, place
        key = with_one_nan(rows.columns[0][place])
        self._call(key, ts, self._process.on_value, rows.columns[1][place])
        self._place = None

    def _progress(self, rows: Rows, number: int) -> Iterator[tuple[int, int, int]]:
        """Yield each tuple as (highest time so far, number of its rows, its place in them).

        Of several inputs no tuple says that those before it are complete.
        """
        highest = BEFORE_ALL
        follows_tuples = self._task.follows_tuples
        for place, ts in enumerate(rows.times or ()):
            if follows_tuples and ts is not None and ts > highest:
                highest = ts
            yield highest, number, place

    def _take_waiting(self, clock: Clock) -> int:
        """Take in the values of a batch and fire the timers that are due between them.

        A timer is due before a value if the values before it, less the lag, are past it: as if the
        watermark followed each value. So it does not matter which values are in one batch. Of
        several inputs, and behind an operator in event time, the watermark is that of batches.
        """
        waiting, self._waiting = self._waiting, []
        fired = 0
        time = self._bolt.event_time
        assert time is not None, "else no values wait"
        times = [self._shown(rows.times) for rows in waiting]
        lag = max((time.lag_of(rows.component) for rows in waiting), default=0)
        process = self._process
        at = clock.watermark_before
        progress = [self._progress(rows, number) for number, rows in enumerate(waiting)]
        for highest, number, place in heapq.merge(*progress):
            if at > self._watermark:
                self._watermark = at
                first = self._timers.first(False)
                if first is not None and first <= at:
                    fired += self._fire(False, at, replace(clock, watermark=at, ended=False))
            self._set_clock(process, clock.now)
            if not self._is_left_out(waiting[number], place):
                with self._task.users_code():
                    self._take(waiting[number], place, times[number][place])
            at = min(clock.watermark, highest - lag)
        return fired

    def _is_left_out(self, rows: Rows, place: int) -> bool:
        """Set a value aside that is behind the watermark, if the process is not to have such."""
        if not self._bolt.leaves_late_out or rows.times is None:
            return False
        ts = rows.times[place]
        if ts is not None and ts >= self._watermark:
            return False
        self._task.set_aside(rows, [place])
        return True

    def set_aside(self) -> None:
        """Count the value that is being taken in as late."""
        assert self._place is not None, "only a value is late"
        rows, place = self._place
        self._task.set_aside(rows, [place])

    def _set_clock(self, process: Process[Any, Any, Any], now: float) -> None:
        process.now, process.watermark = now, self._watermark
        if self._unit is not None:
            process.watermark = self._unit.shown(self._watermark)

    def _shown(self, times: Sequence[Any] | None) -> Sequence[Any]:
        """Return times in the unit of their field."""
        assert times is not None, "only values with times wait"
        if self._unit is None:
            return times
        shown = self._unit.shown
        return [None if ticks is None else shown(ticks) for ticks in times]

    def _call(self, key: Any, ts: Any, hook: Any, *arguments: Any) -> None:
        process = self._process
        try:
            had = key in self._state
        except TypeError as error:
            note_unhashable_key(error)
            raise
        state = process.state = self._state[key] if had else {}
        process.ts = ts
        self._key = key
        hook(key, *arguments)
        if state:
            self._state[key] = state
        elif had:
            del self._state[key]
        if state or had:
            self._saved.touch(_STATE, key)

    def emit(self, element: Any) -> None:
        if self._bolt.has_keys:
            try:
                key, value = element
            except (TypeError, ValueError):
                raise StreamError(
                    f"{type(self._process).__name__} emitted {element!r}, which is no pair",
                    hint="emit (key, value), or write .process(..., keyed=False)",
                ) from None
            row = [key, value]
        else:
            row = [element]
        self._out.append([*row, self._process.ts] if self._bolt.event_time else row)

    # -- timers -------------------------------------------------------------------------------

    def set_timer(self, name: str, at: Any, clock: bool) -> None:
        if not clock and self._bolt.event_time is None:
            raise StreamError(
                f"timer {name!r} is in event time, which the stream does not have",
                hint="set_timer(..., clock=True), or builder.stream(spout, time=EventTime(...))",
            )
        if self._unit is not None and not clock:
            at = self._unit.read(at)
        self._timers.set(self._key, name, clock, at, self._process.ts)
        self._saved.touch(_TIMERS, self._key)

    def delete_timer(self, name: str) -> None:
        if self._timers.delete(self._key, name):
            self._saved.touch(_TIMERS, self._key)

    def begin(self, clock: Clock) -> None:
        self._watermark = clock.watermark
        self._fire(True, clock.now, clock)
        self._flush()

    def advance(self, clock: Clock) -> int:
        fired = self._take_waiting(clock) if self._waiting else 0
        self._watermark = clock.watermark
        fired += self._fire(False, clock.watermark, clock)
        if clock.ended:
            fired += self._fire(True, AFTER_ALL, clock)
        self.state_rows = len(self._state)
        return self._flush() + fired

    def _fire(self, by_clock: bool, until: Any, clock: Clock) -> int:
        fired = 0
        process = self._process
        self._set_clock(process, clock.now)
        convert = None if by_clock or self._unit is None else self._unit.shown
        for key, name, at, noted in self._timers.due(by_clock, until, set_before_now=clock.ended):
            self._saved.touch(_TIMERS, key)
            if convert is not None:
                at = convert(at)
            ts = self._time_now(noted, clock) if by_clock else at
            with self._task.users_code():
                self._call(key, ts, process.on_timer, name, at)
            fired += 1
        return fired

    def _time_now(self, set_at: Any, clock: Clock) -> Any:
        """Return the event time of what a clock timer emits: that it was set at, but never late."""
        if self._bolt.event_time is None or clock.watermark in (BEFORE_ALL, AFTER_ALL):
            return clock.now if self._bolt.event_time is None else set_at
        return max(set_at, self._process.watermark)

    def wakes_at(self) -> float | None:
        first = self._timers.first(True)
        return None if first is None else float(first)

    def next_event(self) -> int | None:
        first = self._timers.first(False)
        return None if first is None else int(first)

    # -- what is saved ------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._watermark = watermark
        tables = self._saved.load(saved)
        self._state = tables.get(_STATE, {})
        self._timers.load(tables.get(_TIMERS, {}))
        self.state_rows = len(self._state)

    def save(self, changes: Any) -> None:
        self._saved.save({_STATE: self._state, _TIMERS: self._timers.by_key}, changes)


class Dedupe(Process[Any, Any, Any]):
    """Lets the first element of each key pass, and forgets the key after a while."""

    def __init__(self, within: Any, timed: bool) -> None:
        self.within = within
        self.timed = timed

    def on_value(self, key: Any, value: Any) -> None:
        if self.timed and self.within is not None and self._is_forgotten():
            self._operator.set_aside()
            return
        seen = self.state.get("seen")
        if seen is not None and (self.within is None or self.ts < seen + self.within):
            return
        self.state["seen"] = self.ts
        self.emit(value)
        if self.within is not None:
            at = self.ts + self.within
            self.set_timer("forget", at, clock=not self.timed)

    def _is_forgotten(self) -> bool:
        """Return True for an element so old that an equal one would be forgotten by now.

        It may be such a one, as in a replay, so it does not pass.
        """
        watermark = self.watermark
        return watermark is not None and self.ts + self.within <= watermark

    def on_timer(self, key: Any, name: str, at: Any) -> None:
        self.state.clear()
