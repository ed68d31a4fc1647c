"""Rules compiled for the fields of an input, in their order; an event is a row of values.

The row has the fields of the input, those that rules add, the event's time and source; behind them
is room for what a rule works out while it is asked: its aggregates and the names of `let`. A rule
that sets a field writes it into the row, where the rules after it find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import itemgetter
from typing import Any, Protocol, TypeAlias, cast

from topo.conditions import (
    Aggregate,
    Condition,
    Read,
    masks_by_value,
    row_function,
    terms,
    value_function,
)
from topo.errors import RuleError, did_you_mean
from topo.event_time import EventTime
from topo.rules.index import ConditionIndex
from topo.rules.lifetime import Lifetime, State
from topo.rules.recent import Recent, RecentShape
from topo.rules.rule import CHANGE, EACH, Firing, Rule, bound_of
from topo.timed import Rows
from topo.tuples import Source

Lookup = Callable[[Any, str, str], Any]
Arrival: TypeAlias = "tuple[int, Source, Sequence[Any], int | None]"
"""An event that has come: its time, its source, its values, the rules that hold."""


class Counts(Protocol):
    """The counts of a task's rules, by key."""

    def slot(self, rule: CompiledRule, key: Any) -> Any:
        """Return where a rule counts the events of a key."""

    def add(self, rule: CompiledRule, slot: Any, ts: int, values: tuple[Any, ...]) -> Sequence[Any]:
        """Count an event; return the values of the rule's aggregates."""

    def may_fire(self, rule: CompiledRule, slot: Any, ts: int, *, holds: bool) -> bool:
        """Return True if a rule fires, given whether its condition holds."""

    def count_all(
        self,
        rule: CompiledRule,
        times: Sequence[int],
        keys: Sequence[Any],
        values: Sequence[tuple[Any, ...]] | None,
    ) -> list[tuple[int, list[Any]]]:
        """Count events; return the places of those that fire, with the rule's aggregates."""


@dataclass(slots=True)
class Outcome:
    """What rules say about one event."""

    fired: list[str] = field(default_factory=list)
    alerts: list[list[Any]] = field(default_factory=list)
    calls: list[tuple[Callable[[Any, Firing], Any], Firing]] = field(default_factory=list)


class CompiledRule:
    """One rule as functions of the row."""

    def __init__(
        self, rule: Rule, number: int, names: Sequence[str], time: EventTime, lookup: Lookup
    ) -> None:
        self.rule = rule
        self.number = number
        self.name = rule.name
        self.alerts = rule.alerts
        self.within, self.pause = rule.ticks(time.unit)
        self.fires_each = rule.again == EACH or rule.having is None
        self.rearms = rule.again == CHANGE
        """It fires again once its condition has been false."""
        base = len(names)
        own = [*map(str, rule.aggregates), *(n for w, n in rule.expressions if w == "let")]
        self.room = len(own)
        everything = [*names, *own]
        self.when = row_function(rule.condition, names, lookup)
        self.having = None
        if rule.having is not None:
            self.having = row_function(rule.having_condition, everything, lookup)
        self.aggregates = rule.aggregates
        self.first_aggregate = base
        self.counted = tuple(dict.fromkeys(a.field for a in rule.aggregates if a.field is not None))
        """The fields that its aggregates read."""
        self.shape = RecentShape(rule.aggregates, self.counted)
        self.counted_places = [names.index(name) for name in self.counted]
        self.counts = rule.within is not None
        self.needs_key_state = self.counts or self.pause is not None
        places = [names.index(name) for name in rule.key]
        self.key_of: Callable[[Sequence[Any]], Any] = itemgetter(*places) if places else _no_key
        """The key of an event: a value, or a tuple of several."""
        functions = {
            at: row_function(condition, everything, lookup)
            for at, condition in rule.expressions.items()
        }
        self.lets = [
            (everything.index(n, base), f) for (w, n), f in functions.items() if w == "let"
        ]
        self.sets = [(names.index(n), f) for (w, n), f in functions.items() if w == "set"]
        self.emits = {n: f for (w, n), f in functions.items() if w == "emit"}
        self.lifetime: Lifetime | None = None
        if rule.has_lifetime:
            bounds = [
                _bound(rule.what, word, value, names, time, lookup)
                for word, value in (("start", rule.start), ("stop", rule.stop))
            ]
            self.lifetime = Lifetime(bounds[0], bounds[1], rule.times)
        self.holds = self._holds()

    def _holds(self) -> Callable[[Recent], Any] | None:
        """Return `having` as a function of what was counted; None if the rule needs the row."""
        condition, aggregates = self.rule.having_condition, self.rule.aggregates
        only_counts = all(isinstance(read, Aggregate) for read in condition.reads)
        does_more = self.lets or self.sets or self.lifetime is not None
        if not self.counts or does_more or not only_counts or condition.tables:
            return None

        def read(what: Read) -> str:
            if what == Aggregate("count"):
                return "len(recent.times)"
            return f"recent.results()[{aggregates.index(cast(Aggregate, what))}]"

        return value_function(condition, read, "recent")


def _no_key(row: Sequence[Any]) -> None:
    """Return the key of all events, by a rule that counts nothing."""


_MOST_MASKS = 10_000
_OWN = ("ts", "source")
"""The event's time and component, in conditions; also where a field has one of these names."""


class Ruleset:
    """The rules that a task asks, compiled for one input."""

    def __init__(
        self,
        rules: Sequence[Rule],
        fields: Sequence[str],
        added: Sequence[str],
        alert_fields: Sequence[str],
        time: EventTime,
        lookup: Lookup,
        *,
        only_first: bool,
    ) -> None:
        self.fields = tuple(fields)
        self._names = names_of(fields, added)
        self._alert_fields = tuple(alert_fields)
        self._only_first = only_first
        self.rules = [
            CompiledRule(rule, number, self._names, time, lookup)
            for number, rule in enumerate(rules)
        ]
        self._room = [None] * max((rule.room for rule in self.rules), default=0)
        self._added = [None] * (len(self._names) - len(fields) - 2)
        set_names = {name for rule in rules for name in rule.set_texts}
        self._index = index_of(rules, set_names)
        self._first_index = index_of(rules) if set_names else self._index
        """Of events as they come: the first rule that fires has seen no field that another set."""
        self._by_mask: dict[int, Sequence[CompiledRule]] = {}
        places = {name: place for place, name in enumerate(fields) if name not in _OWN}
        conditions = [rule.condition for rule in rules]
        self._by_value = None if set_names or not rules else masks_by_value(conditions, places)
        self._watching = [rule for rule in self.rules if rule.lifetime and rule.lifetime.watches]
        self.watches = bool(self._watching)
        """True iff it has to see every event."""
        width = len(self.fields)
        self.only_counts = all(
            rule.holds is not None and all(place < width for place in rule.counted_places)
            for rule in self.rules
        ) and not (only_first and len(rules) > 1)
        """True iff each rule counts by itself, whatever the others say: `count_all` takes them."""
        self.width = len(self._names) - 2
        """How many values a record has."""

    def row(self, values: Iterable[Any], ts: Any, source: str) -> list[Any]:
        """Return the row of an event."""
        return [*values, *self._added, ts, source, *self._room]

    def masks(self, rows: Rows) -> list[int] | None:
        """Return which rules hold for each row, one bit each; None if each event has to be asked.

        All rules must compare one field for equality, which cannot fail. No rule may set it.
        """
        if self._by_value is None:
            return None
        place, table = self._by_value
        try:
            return list(map(table.get, rows.columns[place], repeat(0)))
        except TypeError:  # a value that has no hash
            return None

    def asked(self, rows: Rows, *, every: bool) -> tuple[Sequence[int], Iterable[int | None]]:
        """Return the places of the rows to ask, and for each which rules hold, if that is known.

        Rows that no rule can hold for are left out, unless `every` one is wanted.
        """
        places: Sequence[int] = range(rows.count)
        masks = self.masks(rows)
        selected: Sequence[Any] | None = masks
        if masks is None and not self.watches and not every:
            selected = self._first_index.may_hold(columns_of(rows))
        if every or self.watches or selected is None or all(selected):
            return places, repeat(None) if masks is None else masks
        places = list(compress(places, selected))
        return places, repeat(None) if masks is None else list(filter(None, masks))

    def _rules_of(self, mask: int) -> Sequence[CompiledRule]:
        rules = self._by_mask.get(mask)
        if rules is None:
            rules = [rule for rule in self.rules if mask >> rule.number & 1]
            if len(self._by_mask) < _MOST_MASKS:
                self._by_mask[mask] = rules
        return rules

    def _holding(self, row: list[Any]) -> Iterator[CompiledRule]:
        """Yield the rules that hold for an event, each asked after those before it have set."""
        sure, open_ones = self._index.find(dict(zip(self._names, row, strict=False)))
        for number in sorted((*sure, *open_ones)):
            rule = self.rules[number]
            if number in sure or rule.when(row):
                yield rule

    def ask(
        self, row: list[Any], ts: int, counts: Counts | None, mask: int | None = None
    ) -> Outcome | None:
        """Return what the rules say about an event; None if none fires. `mask` is of `masks`."""
        for rule in self._watching:
            assert rule.lifetime is not None
            rule.lifetime.watch(row)
        outcome = None
        for rule in self._holding(row) if mask is None else self._rules_of(mask):
            lifetime = rule.lifetime
            if lifetime is not None and not lifetime.admits(ts):
                continue
            if not self._fires(rule, row, ts, counts):
                continue
            if lifetime is not None:
                lifetime.note_firing()
            if outcome is None:
                outcome = Outcome()
            self._fire(rule, row, outcome)
            if self._only_first:
                break
        return outcome

    def count_all(
        self, arrivals: Sequence[Arrival], counts: Counts, time: EventTime
    ) -> list[tuple[int, Outcome]]:
        """Count events in the order of time; return the places of those at which rules fire.

        This is `ask` for rules of which each counts by itself: one after the other they take in
        all events, and only those that fire something become rows.
        """
        firing: list[tuple[int, int, list[Any]]] = []
        for rule, places in self._places(arrivals, time):
            own = arrivals if len(places) == len(arrivals) else [arrivals[n] for n in places]
            rows = [arrival[2] for arrival in own]
            columns = [map(itemgetter(place), rows) for place in rule.counted_places]
            values = list(zip(*columns, strict=True)) if columns else None
            keys = list(map(rule.key_of, rows))
            times = [arrival[0] for arrival in own]
            fired = counts.count_all(rule, times, keys, values)
            firing += [(places[place], rule.number, results) for place, results in fired]
        firing.sort(key=itemgetter(0, 1))
        outcomes: list[tuple[int, Outcome]] = []
        for place, number, results in firing:
            ts, source, values_of_event, _ = arrivals[place]
            rule = self.rules[number]
            row = self.row(values_of_event, time.shown(ts), source.component)
            row[rule.first_aggregate : rule.first_aggregate + len(results)] = results
            if not outcomes or outcomes[-1][0] != place:
                outcomes.append((place, Outcome()))
            self._fire(rule, row, outcomes[-1][1])
        return outcomes

    def _places(
        self, arrivals: Sequence[Arrival], time: EventTime
    ) -> Iterable[tuple[CompiledRule, Sequence[int]]]:
        """Return the places of the events that each rule counts."""
        masks = {arrival[3] for arrival in arrivals}
        if len(masks) == 1 and None not in masks:
            every = range(len(arrivals))
            return [(rule, every) for rule in self._rules_of(masks.pop() or 0)]
        by_rule: dict[CompiledRule, list[int]] = {}
        for place, (ts, source, values, mask) in enumerate(arrivals):
            rules: Iterable[CompiledRule]
            if mask is None:
                rules = self._holding(self.row(values, time.shown(ts), source.component))
            else:
                rules = self._rules_of(mask)
            for rule in rules:
                by_rule.setdefault(rule, []).append(place)
        return by_rule.items()

    def _fires(self, rule: CompiledRule, row: list[Any], ts: int, counts: Counts | None) -> bool:
        """Count an event for a rule, work out what it names, and ask whether it fires."""
        slot: Any = None
        if rule.needs_key_state and counts is not None:
            slot = counts.slot(rule, rule.key_of(row))
            if rule.counts:
                self._count(rule, slot, row, ts, counts)
        for place, value in rule.lets:
            row[place] = value(row)
        holds = rule.having is None or bool(rule.having(row))
        if slot is None or counts is None:
            return holds
        return counts.may_fire(rule, slot, ts, holds=holds)

    def _count(
        self, rule: CompiledRule, slot: Any, row: list[Any], ts: int, counts: Counts
    ) -> None:
        values = tuple([row[place] for place in rule.counted_places])
        results = counts.add(rule, slot, ts, values)
        row[rule.first_aggregate : rule.first_aggregate + len(results)] = results

    def _fire(self, rule: CompiledRule, row: list[Any], outcome: Outcome) -> None:
        for place, value in rule.sets:
            row[place] = value(row)
        outcome.fired.append(rule.name)
        key, ts = rule.key_of(row), row[len(self._names) - 2]
        values = {name: value(row) for name, value in rule.emits.items()}
        if rule.alerts:
            outcome.alerts.append([rule.name, key, ts, *map(values.get, self._alert_fields)])
        if rule.rule.then is not None:
            outcome.calls.append((rule.rule.then, Firing(rule.name, key, ts, values)))

    # -- lifetimes ----------------------------------------------------------------------------

    def changed_lifetimes(self) -> dict[str, State]:
        """Return the states of the lifetimes that changed since the last call."""
        return {
            rule.name: rule.lifetime.state()
            for rule in self.rules
            if rule.lifetime is not None and rule.lifetime.is_changed
        }

    def restore_lifetimes(self, states: Mapping[str, State]) -> None:
        """Take over the states of lifetimes."""
        for rule in self.rules:
            if rule.lifetime is not None and rule.name in states:
                rule.lifetime.restore(states[rule.name])

    def words(self) -> str:
        """Return how the rules are found."""
        return self._index.words()


def index_of(rules: Sequence[Rule], unindexed: Iterable[str] = ()) -> ConditionIndex:
    """Return the index of some rules, by their numbers."""
    index = ConditionIndex(unindexed)
    for number, rule in enumerate(rules):
        index.add(number, terms(rule.condition))
    return index


def columns_of(rows: Rows) -> dict[str, Sequence[Any]]:
    """Return the columns of some events by the names that conditions have for them."""
    columns = zip(rows.fields, rows.columns, strict=True)
    return {name: column for name, column in columns if name not in _OWN}


def names_of(fields: Sequence[str], added: Sequence[str]) -> list[str]:
    """Return the names of the values of a row."""
    return [*fields, *(name for name in added if name not in fields), "ts", "source"]


def check_rule(rule: Rule, fields: Sequence[str], added: Sequence[str], of: str = "") -> None:
    """Raise an error if a rule names a field that an input does not have."""
    names = names_of(fields, added)
    for name in rule.key:
        if name not in fields:
            listed = f"its fields are {', '.join(map(repr, fields))}"
            raise RuleError(
                f"{rule.what}: by names {name!r}, no field{of and ' of ' + of}",
                hint=did_you_mean(name, fields) or listed,
            )
    rule.condition.check_fields(names, of)
    own = [name for word, name in rule.expressions if word == "let"]
    for name in own:
        if name in names:
            raise RuleError(f"{rule.what}: let names {name!r}, which is a field")
    for name in rule.set_texts:
        if name in ("ts", "source"):
            raise RuleError(f"{rule.what}: {name!r} cannot be set")
        if name not in names:
            raise RuleError(
                f"{rule.what} sets {name!r}, which the output does not have",
                hint=f"write RuleBolt(..., fields=[{name!r}])",
            )
    visible = list(names)
    for (word, name), condition in rule.expressions.items():
        _check_reads(condition, visible, names, of)
        if word == "let":
            visible.append(name)
    _check_reads(rule.having_condition, visible, names, of)
    for word, value in (("start", rule.start), ("stop", rule.stop)):
        bound = bound_of(rule.what, word, value)
        if bound is not None:
            bound.check_fields(names, of)


def conditions_of(rule: Rule) -> list[Condition]:
    """Return all conditions and expressions of a rule."""
    bounds = [bound_of(rule.what, w, v) for w, v in (("start", rule.start), ("stop", rule.stop))]
    own = [rule.condition, rule.having_condition, *rule.expressions.values()]
    return own + [bound for bound in bounds if bound is not None]


def _check_reads(
    condition: Condition, visible: Sequence[str], names: Sequence[str], of: str
) -> None:
    condition.check_fields(visible, of)
    for read in condition.reads:
        if isinstance(read, Aggregate) and read.field is not None and read.field not in names:
            hint = did_you_mean(read.field, names) or f"the fields are {', '.join(names)}"
            raise condition.refusal(read, f"{read.field!r} is no field{of and ' of ' + of}", hint)


def _bound(
    what: str, word: str, value: Any, names: Sequence[str], time: EventTime, lookup: Lookup
) -> Any:
    """Return a bound as ticks, or as a function of the row."""
    condition = bound_of(what, word, value)
    if condition is not None:
        return row_function(condition, names, lookup)
    return None if value is None else time.read(value)
