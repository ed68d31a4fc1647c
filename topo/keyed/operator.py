"""The operator of a keyed bolt: which instance gets a tuple, what is due, what is saved.

A key's record is saved whole when the key was touched in a batch: its attributes, its timers and
when it last had a tuple. So the cost of a batch follows the keys in it. The time to live costs one
heap entry for each key, which is armed again when it comes up too early, and not with each tuple.

The record is filed under the key that the input is grouped by. So whoever deals the state over
another number of tasks needs nothing but the hash of that key.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, repeat
from typing import Any

from topo.components import Bolt
from topo.errors import ComponentError, UnsavableAttributeError, shown
from topo.event_time import AFTER_ALL, Duration, EventTime
from topo.keyed.instances import Instances
from topo.keyed.timers import Timers
from topo.storage.namespaces import SavedNamespaces
from topo.storage.saving import with_one_nan
from topo.timed import Clock, Operator, OperatorTask, Rows
from topo.tuples import DEFAULT_STREAM

TTL, EVICTED, FORGOTTEN = "ttl", "evicted", "forgotten"
_RECORDS = 0
RECORDS = "keyed"
"""The name of what is saved, by key."""


@dataclass(frozen=True)
class KeyRules:
    """The declaration of a keyed bolt: by which fields it gets its key, and how long one lives.

    `ttl` is in seconds by the clock, or in ticks of the event time.
    """

    keys: Mapping[tuple[str, str], Sequence[str]]
    time: EventTime | None
    ttl: float | int | None
    max_keys: int | None


class _Life:
    """An instance and what the operator knows of it."""

    __slots__ = ("armed", "instance", "last", "turn")

    def __init__(self, instance: Any, last: Any, turn: int) -> None:
        self.instance = instance
        self.last = last
        """When it last had a tuple."""
        self.turn = turn
        """How many tuples the task had had then, if that is of interest."""
        self.armed = -1
        """The number of its entry in the heap of those that live too long."""


class KeyedOperator(Operator):
    """The instances of one task."""

    def __init__(self, component: Bolt, rules: KeyRules, task: OperatorTask) -> None:
        self._component = component
        self._rules = rules
        self._task = task
        self._by_clock = rules.time is None
        self._saved = SavedNamespaces(RECORDS, task.owner, "the instance of key {key!r}")
        self._lives: dict[Any, _Life] = {}
        """By key; the longest silent first if `max_keys` is set."""
        self._timers = Timers()
        self._expiring: list[tuple[Any, int, Any]] = []
        self._numbers = count()
        self._touched: dict[Any, None] = {}
        self._turn = 0
        self._now: Any = 0
        """The time of what is being called, on the line that timers and `ttl` are on."""
        self._key: Any = None
        self._anchors: Any = ()
        self._is_forgotten = False
        self._is_leaving = False
        self._fired = 0
        collector: Any = component.collector
        self._emit, self._emit_direct = collector.emit, collector.emit_direct
        calls: dict[str, Any] = {
            "emit": self.emit,
            "emit_direct": self.emit_direct,
            "set_timer": self.set_timer,
            "delete_timer": self.delete_timer,
            "forget": self.forget,
        }
        self._instances = Instances(component, task.owner, calls)

    # -- tuples -------------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        now = self._task.now()
        times: Iterable[Any] = rows.times or repeat(now)
        lives, touched = self._lives, self._touched
        is_bounded = self._rules.max_keys is not None
        done: list[Any] = []
        finish = done.append
        try:
            for key, now, tup in zip(self._keys(rows), times, rows.tuples(), strict=False):
                try:
                    life = None if is_bounded else lives.get(key)
                except TypeError:  # told where a life is asked for
                    life = None
                self._now = now
                if life is None:
                    if self._execute(key, tup):
                        finish(tup)
                    continue
                # What follows is `_execute` for a key that is there: it is called for each tuple.
                touched[key] = None
                if now is not None and (life.last is None or now > life.last):
                    life.last = now
                self._key, self._anchors = key, tup
                try:
                    life.instance.execute(tup)
                except (Exception, SystemExit) as error:
                    self._task.fails([tup], self._task.reason_to_fail(error, tup))
                else:
                    finish(tup)
                if self._is_forgotten:
                    self._anchors = ()
                    self._leave(key, FORGOTTEN)
        finally:
            self._anchors = ()
            self._task.acks(done)

    def _keys(self, rows: Rows) -> Iterable[Any]:
        names = self._rules.keys[rows.component, rows.stream]
        columns = [rows.columns[rows.fields.index(name)] for name in names]
        return columns[0] if len(columns) == 1 else zip(*columns, strict=True)

    def _execute(self, key: Any, tup: Any) -> bool:
        """Give a tuple to the instance of its key; return False if it was failed."""
        self._anchors = tup
        is_done = True
        try:
            self._life_of(key).instance.execute(tup)
        except (Exception, SystemExit) as error:
            is_done = False
            self._task.fails([tup], self._task.reason_to_fail(error, tup))
        self._anchors = ()
        if self._is_forgotten:
            self._leave(self._key, FORGOTTEN)
        most = self._rules.max_keys
        while most is not None and len(self._lives) > most:  # several if it was dealt keys
            self._leave(next(iter(self._lives)), EVICTED)
        return is_done

    def _life_of(self, key: Any) -> _Life:
        """Return the life of a key that has got a tuple, a new one perhaps."""
        key = with_one_nan(key)
        self._key, self._turn = key, self._turn + 1
        try:
            life = self._lives.get(key)
        except TypeError:
            raise ComponentError(
                f"the key of a tuple is {shown(key)}, a {type(key).__name__}, which cannot be one",
                hint="group by fields that hold a str, a number or a tuple of them",
            ) from None
        self._touched[key] = None
        if life is None:
            return self._create(key)
        last = self._now
        if last is not None and (life.last is None or last > life.last):
            life.last = last
        if self._rules.max_keys is not None:
            life.turn = self._turn
            self._lives[key] = self._lives.pop(key)
        return life

    def _create(self, key: Any) -> _Life:
        life = _Life(self._instances.create(key), self._now, self._turn)
        try:
            life.instance.created()
        except BaseException:
            self._timers.forget(key)
            self._is_forgotten = False
            raise
        self._lives[key] = life
        self._arm(key, life)
        return life

    # -- what instances call ------------------------------------------------------------------

    def emit(
        self, values: Any, stream: str = DEFAULT_STREAM, task_ids: bool = False
    ) -> list[int] | None:
        """Emit a tuple, anchored to the input if there is one."""
        if not task_ids:
            self._emit(values, stream=stream, anchors=self._anchors)
            return None
        tasks: list[int] | None = self._emit(
            values, stream=stream, anchors=self._anchors, task_ids=task_ids
        )
        return tasks

    def emit_direct(self, task: int, values: Any, *, stream: str = "default") -> None:
        """Emit to one task, on a direct stream."""
        self._emit_direct(task, values, stream=stream, anchors=self._anchors)

    def set_timer(
        self, name: str, at: Any = None, *, after: timedelta | float | None = None
    ) -> None:
        """Call `on_timer` for this key then; a timer of the same name is replaced."""
        if self._is_leaving:
            raise ComponentError(
                f"{self._task.owner}: set_timer({name!r}) in removed, when the key {self._key!r} "
                "and its timers go",
                hint="set it in execute",
            )
        if (at is None) == (after is None):
            raise ComponentError(
                f"{self._task.owner}: set_timer({name!r}) takes a time or after=...",
                hint=f"write set_timer({name!r}, after=timedelta(seconds=...))",
            )
        due = self._time_of(name, at) if after is None else self._time_after(after)
        self._timers.set(self._key, name, self._by_clock, due)
        self._touched[self._key] = None

    def _time_of(self, name: str, at: Any) -> Any:
        time = self._rules.time
        if time is not None:
            return time.read(at)
        if isinstance(at, bool) or not isinstance(at, int | float) or at != at:
            raise ComponentError(
                f"{self._task.owner}: the timer {name!r} is set for {shown(at)}; a time of the "
                "clock is a number of seconds",
                hint="write self.context.now() + ..., or after=timedelta(...)",
            )
        return at

    def _time_after(self, after: Any) -> Any:
        if self._now is None:
            raise ComponentError(
                f"{self._task.owner}: after={shown(after)} counts from the tuple's time, and this "
                "tuple's cannot be read",
                hint="set a timer at=..., or look whether the tuple has a time",
            )
        time = self._rules.time
        if time is not None:
            return self._now + time.ticks(after, "after", at_least=0)
        return self._now + seconds_of(after, "after")

    def delete_timer(self, name: str) -> None:
        """Delete a timer of this key; without one nothing happens."""
        if self._timers.delete(self._key, name):
            self._touched[self._key] = None

    def forget(self) -> None:
        """Remove this key when the call at hand returns."""
        self._is_forgotten = not self._is_leaving

    # -- what is due --------------------------------------------------------------------------

    def begin(self, clock: Clock) -> None:
        if self._by_clock:
            self._fire(clock.now)

    def advance(self, clock: Clock) -> int:
        if not self._by_clock:
            self._fire(clock.watermark, ended=clock.ended)
        elif clock.ended:
            self._fire(AFTER_ALL, ended=True)
        self.state_rows = len(self._lives)
        fired, self._fired = self._fired, 0
        return fired

    def _fire(self, until: Any, *, ended: bool = False) -> None:
        """Call the timers that are due, and remove the keys that were silent too long, in order.

        At the end of the input no key is removed: that it is silent then means nothing.
        """
        if not ended:
            while self._expiring and self._expiring[0][0] <= until:
                self._fire_timers(self._expiring[0][0])
                self._expire(heapq.heappop(self._expiring))
        self._fire_timers(until, ended=ended)

    def _fire_timers(self, until: Any, *, ended: bool = False) -> None:
        for timer in self._timers.due(self._by_clock, until, set_before_now=ended):
            life = self._lives[timer.key]
            self._touched[timer.key] = None
            time = self._rules.time
            at = timer.at if time is None else time.shown(timer.at)
            now = self._task.now() if time is None else timer.at
            self._call(timer.key, now, life.instance.on_timer, timer.name, at)
            if self._is_forgotten:
                self._leave(timer.key, FORGOTTEN)

    def _expire(self, entry: tuple[Any, int, Any]) -> None:
        """Remove a key whose time is over, or look again when it can be."""
        due, number, key = entry
        life = self._lives.get(key)
        if life is None or life.armed != number:
            return  # gone; perhaps there is a new one since
        if life.last is not None and life.last + self._rules.ttl > due:
            self._arm(key, life)
            return
        self._now = due
        self._leave(key, TTL)

    def _arm(self, key: Any, life: _Life) -> None:
        if self._rules.ttl is None or life.last is None:
            return
        life.armed = next(self._numbers)
        heapq.heappush(self._expiring, (life.last + self._rules.ttl, life.armed, key))

    def _leave(self, key: Any, why: str) -> None:
        """Remove a key, and tell its instance."""
        life = self._lives.pop(key)
        self._timers.forget(key)
        self._instances.forget(key)
        self._touched[key] = None
        self._is_forgotten, self._is_leaving = False, True
        self._component.context.counter("keys_removed", why=why)
        try:
            self._call(key, self._now, life.instance.removed, why)
        finally:
            self._is_leaving = False

    def _call(self, key: Any, now: Any, hook: Any, *arguments: Any) -> None:
        """Call a hook that no tuple is the cause of."""
        self._key, self._now = key, now
        self._fired += 1
        try:
            hook(*arguments)
        except (Exception, SystemExit) as error:
            self._task.failed(error)

    def wakes_at(self) -> float | None:
        return self._next_due() if self._by_clock else None

    def next_event(self) -> int | None:
        return None if self._by_clock else self._next_due()

    def _next_due(self) -> Any:
        times = [self._timers.first(self._by_clock)]
        times += [self._expiring[0][0]] if self._expiring else []
        return min((time for time in times if time is not None), default=None)

    # -- what is saved ------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        records = self._saved.load(saved).get(_RECORDS, {})
        ordered = sorted(records.items(), key=self._silence)
        timers = {}
        for key, (attributes, last, own, turn) in ordered:
            life = self._lives[key] = _Life(self._instances.create(key, attributes), last, turn)
            self._arm(key, life)
            self._turn = max(self._turn, turn)
            if own:
                timers[key] = own
        self._timers.load(timers)
        self.state_rows = len(self._lives)

    def _silence(self, record: tuple[Any, Any]) -> tuple[Any, int]:
        """Return what to order keys by, the longest silent first.

        Turns are of a task, and keys may have been dealt from several. The clock is of all of them;
        the time of an event says nothing of when it came.
        """
        _, (_, last, _, turn) = record
        return (last if self._by_clock and last is not None else 0, turn)

    def save(self, changes: Any) -> None:
        names = self._task.changed_attributes()
        if names:
            raise UnsavableAttributeError(
                f"{self._task.owner}: attribute {names[0]!r} is shared by all keys and has changed",
                hint=f"what belongs to a key is made in created: self.{names[0]} = ...; what is "
                f"not to be saved is named in transient = ({names[0]!r},)",
            )
        touched, self._touched = self._touched, {}
        lives = self._lives
        self._instances.check_apart((key, lives[key].instance) for key in touched if key in lives)
        self._saved.touch_all(_RECORDS, touched)
        self._saved.save({_RECORDS: _Records(self)}, changes)

    def record(self, key: Any) -> tuple[Any, ...]:
        """Return what is saved of a key: attributes, last tuple, timers, turn."""
        life = self._lives[key]
        turn = life.turn if self._rules.max_keys is not None else 0
        timers = self._timers.by_key.get(key)
        return self._instances.attributes(life.instance), life.last, timers, turn

    @property
    def keys(self) -> Mapping[Any, Any]:
        """The keys that have an instance."""
        return self._lives


class _Records(Mapping[Any, Any]):
    """The records of all keys, each made when it is asked for: few are."""

    def __init__(self, operator: KeyedOperator) -> None:
        self._keys = operator.keys
        self._record = operator.record

    def __getitem__(self, key: Any) -> tuple[Any, ...]:
        return self._record(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys


def seconds_of(duration: Any, what: str) -> float:
    """Return a duration by the clock in seconds; raise an error if it is none."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    is_number = isinstance(duration, int | float) and not isinstance(duration, bool)
    if not is_number or not 0 <= duration < AFTER_ALL:
        raise ComponentError(
            f"{what} is {shown(duration)}; it takes a timedelta of zero or more",
            hint=f"write {what}=timedelta(seconds=...)",
        )
    return float(duration)


def ttl_of(ttl: Duration, time: EventTime | None) -> float | int:
    """Return a time to live in seconds, or in ticks of the event time."""
    return seconds_of(ttl, "ttl") if time is None else time.ticks(ttl, "ttl")
