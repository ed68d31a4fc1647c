"""The operator of a `SubscriptionBolt`: many conditions, of which each message fulfils some.

A message asks the index (`topo.rules.index`), and then only the conditions that it may fulfil. A
condition is compiled when it is asked for the first time: most never are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Protocol

from topo.conditions import Condition, parse, row_function, terms
from topo.errors import ConditionError, RuleError, TopoError, shown
from topo.event_time import BEFORE_ALL, EventTime
from topo.operators.time import OperatorTime
from topo.rules.index import ConditionIndex
from topo.rules.lifetime import Lifetime, State
from topo.rules.operator import REJECTED
from topo.rules.rule import bound_of, check_times
from topo.rules.ruleset import columns_of, names_of
from topo.storage.saving import SavedMapping, with_one_nan
from topo.timed import Clock, InputFields, Operator, OperatorTask, Rows

_OPTIONS = ("start", "stop", "times")
_MOST_TOLD = 100
"""So many subscriptions that raise errors are told of, by their ids; all are counted."""


class SubscriptionDeclaration(Protocol):
    """What a `SubscriptionBolt` declares, as far as its operator has to know it."""

    event_time: EventTime | None
    emits_lists: bool
    limit: int
    messages: tuple[InputFields, ...]
    source: InputFields | None

    def is_subscription(self, read: InputFields | Rows) -> bool:
        """Return True if subscriptions come on this stream."""


class _Subscription:
    """One subscription."""

    __slots__ = ("_ask", "id", "lifetime", "number", "where")

    def __init__(self, id: Any, number: int, where: str, lifetime: Lifetime | None) -> None:
        self.id = id
        self.number = number
        self.where = where
        self.lifetime = lifetime
        self._ask: Callable[[Sequence[Any]], Any] | None = None

    def holds(self, row: Sequence[Any], names: Sequence[str]) -> bool:
        """Return True if a message fulfils the condition, which is compiled now if need be."""
        if self._ask is None:
            self._ask = row_function(parse(self.where, _what(self.id)), names)
        return bool(self._ask(row))


class SubscriptionOperator(Operator):
    """The subscriptions of one task."""

    def __init__(self, bolt: SubscriptionDeclaration, task: OperatorTask) -> None:
        self._bolt = bolt
        self._task = task
        self._context = task.component.context
        self._clock = OperatorTime(bolt.event_time)
        self._time = self._clock.unit
        source = bolt.source
        assert source is not None
        self._fields = source.fields
        self._rejects = source.grouping != "all" or not self._context.this_task_index
        """With all grouping, one task tells what is refused."""
        self._names = names_of(bolt.messages[0].fields, ())
        self._index = ConditionIndex()
        self._by_id: dict[Any, _Subscription] = {}
        self._by_number: dict[int, _Subscription] = {}
        self._watching: dict[int, _Subscription] = {}
        self._ends: list[tuple[int, int]] = []  # times and numbers
        self._next = 0
        self._log = SavedMapping("subscriptions", task.owner, "the subscription {key!r}")
        self._saved: dict[Any, Any] = {}
        self._touched: dict[Any, None] = {}
        self._fresh: list[tuple[Sequence[Any], Rows]] = []
        self._out: list[list[Any]] = []
        self._refused: list[list[Any]] = []
        self._told: set[Any] = set()

    # -- subscriptions ------------------------------------------------------------------------

    def _subscribe(self, values: Mapping[str, Any]) -> None:
        """Take in a subscription, or tell why not."""
        id, where = with_one_nan(values.get("id")), values.get("where")
        try:
            try:
                hash(id)
            except TypeError:
                raise RuleError(f"the id is a {type(id).__name__}, which cannot be a key") from None
            if where is None:
                self._end(id)
                return
            options = tuple(values.get(name) for name in _OPTIONS)
            if id not in self._by_id and len(self._by_id) >= self._bolt.limit:
                raise RuleError(
                    f"there are {self._bolt.limit:,} subscriptions, the limit of a task"
                )
            condition = parse(where, _what(id))
            condition.check_fields(self._names, "the messages")
            record = (self._next, where, options, None)
            entry = self._made(id, record)
            self._end(id)
            self._begin(entry, record, condition)
        except TopoError as error:
            self._context.counter("rejected")
            if self._rejects:
                reason = f"{error.message}; {error.hint}" if error.hint else error.message
                self._refused.append([id, where, reason])

    def _made(self, id: Any, record: Any) -> _Subscription:
        """Return a subscription as it was saved; raise an error if it cannot be."""
        number, where, (start, stop, times), state = record
        what = _what(id)
        check_times(what, times)
        lifetime = None
        if (start, stop, times) != (None, None, None):
            bounds = [self._bound(what, "start", start), self._bound(what, "stop", stop)]
            lifetime = Lifetime(bounds[0], bounds[1], times)
            if state is not None:
                lifetime.restore(state)
        return _Subscription(id, number, where, lifetime)

    def _bound(self, what: str, word: str, value: Any) -> Any:
        condition = bound_of(what, word, value)
        if condition is None:
            return None if value is None else self._time.read(value)
        condition.check_fields(self._names, "the messages")
        return row_function(condition, self._names)

    def _begin(self, entry: _Subscription, record: Any, condition: Condition) -> None:
        self._index.add(entry.number, terms(condition))
        self._by_id[entry.id] = self._by_number[entry.number] = entry
        self._saved[entry.id] = record
        self._touched[entry.id] = None
        self._next = entry.number + 1
        if entry.lifetime is not None:
            if entry.lifetime.watches:
                self._watching[entry.number] = entry
            if entry.lifetime.stop_time is not None:
                heapq.heappush(self._ends, (entry.lifetime.stop_time, entry.number))

    def _end(self, id: Any) -> None:
        entry = self._by_id.pop(id, None)
        if entry is None:
            return
        self._index.remove(entry.number)
        del self._by_number[entry.number]
        self._watching.pop(entry.number, None)
        del self._saved[id]
        self._touched[id] = None

    # -- a batch ------------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        if self._bolt.is_subscription(rows):
            for values in zip(*rows.columns, strict=True):
                self._subscribe(dict(zip(self._fields, values, strict=True)))
            return
        times = self._clock.times(rows, self._task.now())
        if None in times:
            self._task.set_aside(rows, [n for n, ts in enumerate(times) if ts is None])
        self._fresh.append((times, rows))

    def advance(self, clock: Clock) -> int:
        fresh, self._fresh = self._fresh, []
        shown_time = (lambda ts: ts) if self._time.shows_ticks else self._time.shown
        count = 0
        for times, rows in fresh:
            count += rows.count - times.count(None)
            component = rows.source.component
            for ts, message in self._to_ask(times, rows):
                if ts is not None:
                    self._match(message, ts, (*message, shown_time(ts), component))
        self._task.emit(self._out)
        self._task.emit(self._refused, REJECTED)
        self._out, self._refused = [], []
        self._drop_ended(self._clock.reached(clock))
        self.state_rows = len(self._by_id)
        return count

    def _to_ask(
        self, times: Sequence[Any], rows: Rows
    ) -> Iterable[tuple[int | None, Sequence[Any]]]:
        """Return the messages that may fulfil a subscription, with their times.

        All of them if one begins or ends by a condition, which each message may fulfil. What ends
        within the batch has only been looked for in vain.
        """
        messages = zip(times, zip(*rows.columns, strict=True), strict=True)
        if self._watching:
            return messages
        selected = self._index.may_hold(columns_of(rows))
        return messages if selected is None else compress(messages, selected)

    def _match(self, message: Sequence[Any], ts: int, row: Sequence[Any]) -> None:
        """Emit the subscriptions that a message fulfils, in their order."""
        names = self._names
        for entry in list(self._watching.values()):
            self._watch(entry, row)
        numbers, open_ones = self._index.find(dict(zip(names, row, strict=True)))
        by_number = self._by_number
        for number in open_ones:
            try:
                if by_number[number].holds(row, names):
                    numbers[number] = None
            except ConditionError as error:
                self._note_error(by_number[number], error)
        ids = []
        for number in sorted(numbers):
            entry = by_number[number]
            if entry.lifetime is None or self._fires(entry, ts):
                ids.append(entry.id)
        if not ids:
            return
        if self._bolt.emits_lists:
            self._out.append([ids, *message])
        else:
            self._out += [[id, *message] for id in ids]

    def _watch(self, entry: _Subscription, row: Sequence[Any]) -> None:
        """Let a message begin or end a subscription."""
        lifetime = entry.lifetime
        assert lifetime is not None
        try:
            lifetime.watch(row)
        except ConditionError as error:
            self._note_error(entry, error)
        if lifetime.is_changed:
            self._save_state(entry)

    def _fires(self, entry: _Subscription, ts: int) -> bool:
        lifetime = entry.lifetime
        assert lifetime is not None
        if not lifetime.admits(ts):
            return False
        lifetime.note_firing()
        if lifetime.is_changed:
            self._save_state(entry)
        return True

    def _save_state(self, entry: _Subscription) -> None:
        """Save what changed of a subscription, or forget it if it is over."""
        lifetime = entry.lifetime
        assert lifetime is not None
        if lifetime.is_over(BEFORE_ALL):
            self._end(entry.id)
            return
        number, where, options, _ = self._saved[entry.id]
        state: State = lifetime.state()
        self._saved[entry.id] = (number, where, options, state)
        self._touched[entry.id] = None

    def _note_error(self, entry: _Subscription, error: ConditionError) -> None:
        """Count a subscription that raised on a message: it is no match there."""
        self._context.counter("subscription_errors")
        if entry.id not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(entry.id)
            self._task.warn_once(f"{self._task.owner}: {error.message}; it is no match there")

    def _drop_ended(self, watermark: int) -> None:
        while self._ends and self._ends[0][0] <= watermark:
            _, number = heapq.heappop(self._ends)
            if number in self._by_number:
                self._end(self._by_number[number].id)

    def next_event(self) -> int | None:
        return self._ends[0][0] if self._ends else None

    # -- state --------------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        loaded = self._log.load(saved)
        for id, record in sorted(loaded.items(), key=lambda item: item[1][0]):
            self._begin(self._made(id, record), record, parse(record[1], _what(id)))
        self._touched = {}
        self.state_rows = len(self._by_id)

    def save(self, changes: Any) -> None:
        touched, self._touched = self._touched, {}
        self._log.save(self._saved, touched, changes)


def _what(id: Any) -> str:
    return f"subscription {shown(id)}"
