"""Bolts with state by key: running aggregates, and processes with state and timers."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import count
from typing import Any, Generic, TypeVar

from topo.collectors import OutputCollector
from topo.components import OutputFieldsDeclarer
from topo.context import TopologyContext
from topo.errors import StreamError
from topo.event_time import AFTER_ALL, BEFORE_ALL, EventTime
from topo.storage.namespaces import SavedNamespaces
from topo.streams.chain_code import KEY, TIME, VALUE
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
        self.keyed = keyed

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        fields = (KEY, VALUE) if self.keyed else (VALUE,)
        declarer.declare((*fields, TIME) if self.event_time else fields)

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: OutputCollector
    ) -> None:
        opened = getattr(self.process, "open", None)
        if opened is not None:
            opened(conf, context)

    def operator(self, task: OperatorTask) -> Operator:
        return ProcessOperator(self, task)


_STATE, _TIMERS = 0, 1


class ProcessOperator(Operator):
    """The keys of one task of a process: their state, and a heap of their timers."""

    def __init__(self, bolt: ProcessBolt, task: OperatorTask) -> None:
        self._bolt = bolt
        self._task = task
        self._saved = SavedNamespaces("process", task.owner)
        self._state: dict[Any, dict[str, Any]] = {}
        self._timers: dict[Any, dict[str, tuple[bool, Any, Any]]] = {}
        """By key and name: whether it goes by the clock, when it is due, the time it was set at."""
        self._heaps: dict[bool, list[tuple[Any, int, Any, str]]] = {False: [], True: []}
        self._number = count()
        self._out: list[list[Any]] = []
        self._key: Any = None
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
        keys, values = rows.columns[0], rows.columns[1]
        times = self._shown(rows.times)
        process, now = self._process, self._task.now()
        process.now = now
        with self._task.users_code():
            for place, (key, value) in enumerate(zip(keys, values, strict=True)):
                ts = now if times is None else times[place]
                self._call(key, ts, process.on_value, value)
        self.state_rows = len(self._state)

    def _shown(self, times: list[Any] | None) -> list[Any] | None:
        """Return times in the unit of their field."""
        if times is None or self._unit is None:
            return times
        shown = self._unit.shown
        return [None if ticks is None else shown(ticks) for ticks in times]

    def _call(self, key: Any, ts: Any, hook: Any, *arguments: Any) -> None:
        process = self._process
        had = key in self._state
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
        if self._bolt.keyed:
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
        self._timers.setdefault(self._key, {})[name] = (clock, at, self._process.ts)
        self._saved.touch(_TIMERS, self._key)
        heapq.heappush(self._heaps[clock], (at, next(self._number), self._key, name))

    def delete_timer(self, name: str) -> None:
        timers = self._timers.get(self._key, {})
        if timers.pop(name, None) is not None:
            self._saved.touch(_TIMERS, self._key)
        if not timers:
            self._timers.pop(self._key, None)

    def begin(self, clock: Clock) -> None:
        self._fire(True, clock.now, clock)
        self._flush()

    def advance(self, clock: Clock) -> int:
        fired = self._fire(False, clock.watermark, clock)
        if clock.ended:
            fired += self._fire(True, AFTER_ALL, clock)
        self.state_rows = len(self._state)
        return self._flush() + fired

    def _fire(self, by_clock: bool, until: Any, clock: Clock) -> int:
        heap, fired = self._heaps[by_clock], 0
        last = next(self._number)  # at the end of the input, a timer set from now on has no use
        process = self._process
        process.now, process.watermark = clock.now, clock.watermark
        if self._unit is not None:
            process.watermark = self._unit.shown(clock.watermark)
        convert = None if by_clock or self._unit is None else self._unit.shown
        while heap and heap[0][0] <= until:
            at, number, key, name = heapq.heappop(heap)
            if clock.ended and number > last:
                continue
            timers = self._timers.get(key, {})
            timer = timers.get(name)
            if timer is None or timer[:2] != (by_clock, at):
                continue  # replaced or deleted
            del timers[name]
            if not timers:
                del self._timers[key]
            self._saved.touch(_TIMERS, key)
            if convert is not None:
                at = convert(at)
            ts = self._time_now(timer[2], clock) if by_clock else at
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
        heap = self._heaps[True]
        return float(heap[0][0]) if heap else None

    def next_event(self) -> int | None:
        heap = self._heaps[False]
        return int(heap[0][0]) if heap else None

    def _flush(self) -> int:
        out, self._out = self._out, []
        self._task.emit(out)
        return len(out)

    # -- what is saved ------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        tables = self._saved.load(saved)
        self._state = tables.get(_STATE, {})
        self._timers = tables.get(_TIMERS, {})
        for key, timers in self._timers.items():
            for name, (clock, at, _) in timers.items():
                heapq.heappush(self._heaps[clock], (at, next(self._number), key, name))
        self.state_rows = len(self._state)

    def save(self, changes: Any) -> None:
        self._saved.save({_STATE: self._state, _TIMERS: self._timers}, changes)


class Dedupe(Process[Any, Any, Any]):
    """Lets the first element of each key pass, and forgets the key after a while."""

    def __init__(self, within: Any, timed: bool) -> None:
        self.within = within
        self.timed = timed

    def on_value(self, key: Any, value: Any) -> None:
        seen = self.state.get("seen")
        if seen is not None and (self.within is None or self.ts < seen + self.within):
            return
        self.state["seen"] = self.ts
        self.emit(value)
        if self.within is not None:
            at = self.ts + self.within
            self.set_timer("forget", at, clock=not self.timed)

    def on_timer(self, key: Any, name: str, at: Any) -> None:
        self.state.clear()
