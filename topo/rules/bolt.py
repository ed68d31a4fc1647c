"""`RuleBolt`: rules that events are asked of, and the streams of what they say.

Rules without `by` ask each event alone: its results come at once and are anchored to it. Rules with
`by` count, so their inputs are acked when they are counted, which is committed state, and their
results belong to no tuple tree. The same holds where a batch's tables or rules have to be known
before its events are asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import repeat
from pathlib import Path
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import Problem, RuleError, TopoError, did_you_mean, shown
from topo.event_time import BEFORE_ALL, EventTime
from topo.operators.inputs import key_fields, key_problems
from topo.operators.queue import RowQueue
from topo.operators.time import ARRIVAL, OperatorTime
from topo.rules.counting import KeyCounts
from topo.rules.files import read_rules
from topo.rules.rule import Rule
from topo.rules.ruleset import Arrival, Outcome, Ruleset, check_rule, conditions_of
from topo.rules.tables import ReferenceTables, check_tables, lookup_problems
from topo.storage.saving import SavedMapping
from topo.tables.table import Table
from topo.timed import Clock, InputFields, Operator, OperatorTask, Rows, TimedBolt, is_in_time
from topo.tuples import DEFAULT_STREAM, Fields, Source, new_tuple

ALERTS, REJECTED, LATE = "alerts", "rejected", "late"
_ALERT_FIELDS = ("rule", "key", "ts")
MATCHES = ("all", "first")


class RuleBolt(TimedBolt):
    """A bolt that asks rules of each event.

    `rules` is a list, or the path of a rules file, which is read here. With `key`, the bolt runs
    the rules with that `by`, and without it those that have none; so one file serves several bolts.
    With `match="first"` the rules after one that fires are not asked. `tables` are reference
    tables for `lookup`, a `Table` or a mapping of key to row by name. `fields` are fields that
    rules may set that come later, on the stream of the component `changes`: tuples of a name and a
    rule, a dict with the keys of a rules file, or None to take the rule away.

    Streams: if a rule has `set`, the default stream has each record that a rule fired on, with the
    fields that rules set. `alerts` has `rule`, `key`, `ts` and the fields of `emit`, for each
    firing of a rule with `emit` or with neither `set` nor `then`. The stream named by `unmatched`
    has the other events, `rejected` the changes that were refused, and `late`, in event time and
    with a key, what came too late to be counted.
    """

    _topo_role = "rules"

    def __init__(
        self,
        rules: Sequence[Rule] | str | Path,
        *,
        key: str | Iterable[str] | None = None,
        time: EventTime | None = None,
        match: str = "all",
        tables: Mapping[str, Any] | None = None,
        fields: Sequence[str] = (),
        unmatched: str | None = None,
        changes: str | None = None,
    ) -> None:
        if match not in MATCHES:
            hint = did_you_mean(match, MATCHES)
            raise RuleError(f"RuleBolt: match is {shown(match)}; it is 'all' or 'first'", hint=hint)
        if time is not None and not isinstance(time, EventTime):
            raise RuleError(f"RuleBolt: time is {shown(time)}", hint='write time=EventTime("ts")')
        self.key = key_fields(key)
        self.rules = self._own(_checked(rules))
        self.only_first = match == "first"
        self.tables = check_tables(tables)
        self.fields = tuple(Fields(fields))
        self.unmatched = unmatched
        self.changes = changes
        self.event_time = time
        self.late_stream = LATE if time is not None and self.key else None
        self.events: tuple[InputFields, ...] = ()
        self.reads: tuple[InputFields, ...] = ()
        if not self.rules and changes is None:
            by = f"by={', '.join(map(repr, self.key))}" if self.key else "no by"
            raise RuleError(f"RuleBolt: there is no rule with {by}", hint="name the key with key=")

    def _own(self, rules: Sequence[Rule]) -> list[Rule]:
        return [rule for rule in rules if self.runs(rule)]

    def runs(self, rule: Rule) -> bool:
        """Return True if this bolt is the one that runs a rule: they have the same key."""
        return sorted(rule.key) == sorted(self.key)

    # -- what it declares ---------------------------------------------------------------------

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        self.reads = tuple(inputs)
        tables = self._table_streams()
        self.events = tuple(
            read
            for read in inputs
            if (read.component, read.stream) not in tables and read.component != self.changes
        )

    def _table_streams(self) -> set[tuple[str, str]]:
        return {table.stream for table in self.tables.values() if isinstance(table, Table)}

    @property
    def added(self) -> tuple[str, ...]:
        """The fields of the output that the input does not have."""
        own = self.events[0].fields if self.events else ()
        names = [*(name for rule in self.rules for name in rule.set_texts), *self.fields]
        return tuple(dict.fromkeys(name for name in names if name not in own))

    @property
    def has_records(self) -> bool:
        """True iff records come out."""
        return bool(self.fields) or any(rule.set is not None for rule in self.rules)

    @property
    def alert_fields(self) -> tuple[str, ...]:
        """The fields of an alert that rules say."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in rule.emit_texts))

    @property
    def has_alerts(self) -> bool:
        """True iff alerts come out."""
        return self.changes is not None or any(rule.alerts for rule in self.rules)

    @property
    def waits_for_batch(self) -> bool:
        """True iff events are asked when all of a batch is there."""
        return bool(self.key) or self.changes is not None or bool(self._table_streams())

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        own = self.events[0].fields if self.events else ()
        if self.has_records:
            declarer.declare(*own, *self.added)
        if self.has_alerts:
            names = (name for name in self.alert_fields if name not in _ALERT_FIELDS)
            declarer.declare_stream(ALERTS, *_ALERT_FIELDS, *names)
        if self.unmatched is not None:
            declarer.declare_stream(self.unmatched, *own)
        if self.changes is not None:
            declarer.declare_stream(REJECTED, "name", "rule", "reason")
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    def timing(self) -> EventTime | None:
        time = self.event_time
        if time is None:
            return None
        others = {component for component, _ in self._table_streams()} - set(time.untimed)
        others |= {self.changes} - {None, *time.untimed}  # type: ignore[arg-type]
        read = {read.component for read in self.reads}
        return replace(time, untimed=(*time.untimed, *sorted(others & read)))

    def result_time(self, stream: str) -> tuple[str, int] | None:
        if self.event_time is None:
            return None
        if stream == ALERTS:
            return "ts", 0
        name = self.event_time.field_of(self.events[0].component) if self.events else None
        return None if name is None or stream in (REJECTED, LATE) else (name, 0)

    def describe_time(self) -> str:
        key = f" by {', '.join(self.key)}" if self.key else ""
        text = f"{len(self.rules)} rules{key}"
        if self.events:
            text += f" ({self.ruleset(self.events[0].fields, _no_table).words()})"
        return f"{text}; {super().describe_time()}" if self.key else text

    def ruleset(self, fields: Sequence[str], lookup: Any, rules: Any = None) -> Ruleset:
        """Return the rules compiled for an input with these fields."""
        return Ruleset(
            self.rules if rules is None else rules,
            fields,
            self.added,
            [name for name in self.alert_fields if name not in _ALERT_FIELDS],
            self.event_time or ARRIVAL,
            lookup,
            only_first=self.only_first,
        )

    def check_new(self, rule: Rule) -> None:
        """Raise an error if a rule that comes later does not fit."""
        for name in rule.emit_texts:
            if name not in self.alert_fields:
                raise RuleError(
                    f"{rule.what} emits {name!r}, which alerts do not have",
                    hint=did_you_mean(name, self.alert_fields),
                )
        for condition in conditions_of(rule):
            for name, _ in condition.tables:
                if name not in self.tables:
                    raise RuleError(f"{rule.what}: there is no table {name!r}")
        for read in self.events:
            check_rule(rule, read.fields, self.added, repr(read.component))

    # -- checks -------------------------------------------------------------------------------

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        if not self.events:
            text = f"{where} reads no events"
            yield Problem("rule-input", where, text, 'write .shuffle_grouping("events")')
            return
        first = self.events[0]
        for read in self.events:
            if (self.has_records or self.unmatched) and read.fields != first.fields:
                text = f"{where} emits the fields of its input, and those of {first.component!r} "
                text += f"and {read.component!r} differ"
                yield Problem("rule-input", where, text, "emit the same fields in both")
            for rule in self.rules:
                try:
                    check_rule(rule, read.fields, self.added, repr(read.component))
                    self.ruleset(read.fields, _no_table, [rule])
                except TopoError as error:
                    text = f"{where}: {error.message}"
                    yield Problem(error.code, where, text, error.hint)
            yield from key_problems(self.key, where, read, tasks, has="rules", code="rule-key")
        for name in self.alert_fields:
            if name in _ALERT_FIELDS:
                text = f"{where}: emit names {name!r}, which each alert has"
                yield Problem("rule", where, text, "name it otherwise")
        yield from self._change_problems(where, inputs)
        conditions = [text for rule in self.rules for text in conditions_of(rule)]
        yield from lookup_problems(where, self.tables, conditions, inputs)

    def _change_problems(self, where: str, inputs: Sequence[InputFields]) -> Iterable[Problem]:
        if self.changes is None:
            return
        line = f"write .all_grouping({self.changes!r})"
        reads = [read for read in inputs if read.component == self.changes]
        if not reads:
            text = f"{where} does not read its changes, {self.changes!r}"
            yield Problem("rule-changes", where, text, line)
        for read in reads:
            if len(read.fields) != 2:
                text = f"{where}: changes are tuples of a name and a rule; those of "
                text += f"{self.changes!r} have {', '.join(map(repr, read.fields))}"
                yield Problem("rule-changes", where, text, 'outputs = ("name", "rule")')
            elif read.grouping not in ("all", "global"):
                text = f"{where} reads changes by {read.grouping} grouping: each task has a part"
                yield Problem("rule-changes", where, text, line)

    def operator(self, task: OperatorTask) -> Operator:
        return _RuleOperator(self, task)


class _RuleOperator(Operator):
    """The rules of one task."""

    def __init__(self, bolt: RuleBolt, task: OperatorTask) -> None:
        self._bolt = bolt
        self._task = task
        self._context = task.component.context
        self._clock = OperatorTime(bolt.event_time)
        self._time = self._clock.unit
        self._has_records = bolt.has_records
        self._unmatched = bolt.unmatched
        self._tables = ReferenceTables(bolt.tables, bolt.reads, task)
        self._rules = {rule.name: rule for rule in bolt.rules}
        self._changed: dict[str, tuple[int, Any]] = {}  # name -> number of the change, the rule
        self._touched: dict[str, None] = {}
        self._change_log = SavedMapping("rules", task.owner)
        self._lifetimes: dict[str, Any] = {}
        self._lifetime_log = SavedMapping("lifetimes", task.owner)
        self._rulesets: dict[tuple[str, ...], Ruleset] = {}
        self._counts = KeyCounts(task.owner)
        self._fresh: list[Arrival] = []
        self._waiting: RowQueue[Arrival] = RowQueue(task.owner, _record_of, _arrival_of)
        self._watermark = BEFORE_ALL
        self._firings: Counter[str] = Counter()
        self._counting: Ruleset | None = None
        """The rules, if each of them counts by itself and nothing else is wanted of an event."""
        self._labels: dict[str, None] = {}
        self._out: dict[str, list[list[Any]]] = {}
        self._compile()

    def _compile(self) -> None:
        """Compile the rules as they are now, for each kind of input."""
        for ruleset in self._rulesets.values():
            self._lifetimes |= ruleset.changed_lifetimes()
        rules = list(self._rules.values())
        for read in self._bolt.events:
            ruleset = self._bolt.ruleset(read.fields, self._tables.lookup, rules)
            ruleset.restore_lifetimes(self._lifetimes)
            self._rulesets[read.fields] = ruleset
        own = list(self._rulesets.values())
        sees_others = self._has_records or self._unmatched is not None
        is_alone = len(own) == 1 and own[0].only_counts and not sees_others
        self._counting = own[0] if is_alone else None
        tokens = {rule.name: self._token(rule) for rule in rules}
        self._counts.begin(next(iter(self._rulesets.values())).rules, tokens)

    def _token(self, rule: Rule) -> str:
        """Return the name of a rule's counts, which a change gives another one."""
        number = self._changed.get(rule.name, (0, None))[0]
        text = repr((number, sorted(rule.to_dict().items(), key=str)))
        return f"{rule.name}/{blake2b(text.encode(), digest_size=8).hexdigest()}"

    # -- a batch ------------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        if not rows.count or self._tables.take(rows):
            return
        if rows.component == self._bolt.changes:
            for name, data in zip(*rows.columns, strict=True):
                self._change(name, data)
            return
        times = self._clock.times(rows, self._task.now())
        if rows.times is not None and self._bolt.late_stream is not None:
            times = self._set_late_aside(rows, times)
        if self._bolt.waits_for_batch:
            is_clean = self._bolt.late_stream is not None and times is rows.times
            self._keep(rows, times, has_late=not is_clean)
        else:
            self._ask_now(rows, times)

    def _keep(self, rows: Rows, times: Sequence[Any], *, has_late: bool) -> None:
        """Keep the events that are asked when all of the batch is there.

        Those that no rule can hold for are left out, unless somebody wants to see them.
        """
        ruleset = self._rulesets[rows.fields]
        places: Sequence[int] = range(rows.count)
        masks: Iterable[int | None] = repeat(None)
        if self._bolt.changes is None:
            places, masks = ruleset.asked(rows, every=self._unmatched is not None)
        times, *fields = _picked([times, *rows.columns], places)
        values = zip(*fields, strict=True)
        arrivals: Iterable[Arrival] = zip(times, repeat(rows.source), values, masks, strict=False)
        if has_late:
            arrivals = (each for each in arrivals if each[0] is not None)
        self._fresh += arrivals

    def _set_late_aside(self, rows: Rows, times: list[Any]) -> list[Any]:
        if is_in_time(times, self._watermark):
            return times
        late = [n for n, ts in enumerate(times) if ts is None or ts < self._watermark]
        if late:
            self._task.set_aside(rows, late)
            times = list(times)
            for place in late:
                times[place] = None
        return times

    def _ask_now(self, rows: Rows, times: Sequence[Any]) -> None:
        """Ask events that need nothing else of the batch; results are anchored to them."""
        ruleset = self._rulesets[rows.fields]
        places, masks = ruleset.asked(rows, every=self._unmatched is not None)
        times, *fields = _picked([times, *rows.columns], places)
        anchors: dict[str, list[int]] = {}
        values = zip(*fields, strict=True)
        for place, ts, row, mask in zip(places, times, values, masks, strict=False):
            if not self._ask(ruleset, ts, rows.source, row, mask):
                continue
            for stream, out in self._out.items():
                own = anchors.setdefault(stream, [])
                own += [place] * (len(out) - len(own))
        for stream, out in self._out.items():
            self._task.emit_anchored(rows, anchors[stream], out, stream)
        self._out = {}

    def _ask(
        self,
        ruleset: Ruleset,
        ts: int | None,
        source: Source,
        values: Sequence[Any],
        mask: int | None = None,
    ) -> bool:
        """Ask an event; return True if something may follow from it."""
        row: list[Any] = []
        outcome = None
        if mask != 0 or ruleset.watches:
            shown_ts = None if ts is None else self._time.shown(ts)
            row = ruleset.row(values, shown_ts, source.component)
            outcome = ruleset.ask(row, BEFORE_ALL if ts is None else ts, self._counts, mask)
        if outcome is None:
            if self._unmatched is not None:
                self._add(self._unmatched, list(values))
            return self._unmatched is not None
        if self._has_records:
            self._add(DEFAULT_STREAM, row[: ruleset.width])
        self._take(outcome, source, values)
        return True

    def _ask_all(self, events: Sequence[Arrival]) -> None:
        """Ask the events of a batch, in their order."""
        if self._counting is not None:
            for place, outcome in self._counting.count_all(events, self._counts, self._time):
                self._take(outcome, events[place][1], events[place][2])
            return
        for ts, source, values, mask in events:
            self._ask(self._rulesets[source.fields], ts, source, values, mask)

    def _take(self, outcome: Outcome, source: Source, values: Sequence[Any]) -> None:
        """Count, emit and call what follows from an event."""
        for name in outcome.fired:
            self._firings[name] += 1
        for alert in outcome.alerts:
            self._add(ALERTS, alert)
        if outcome.calls:
            self._call(outcome, source, values)

    def _call(self, outcome: Outcome, source: Source, values: Sequence[Any]) -> None:
        event = new_tuple(source, values)
        for then, firing in outcome.calls:
            then(event, firing)

    def _add(self, stream: str, row: list[Any]) -> None:
        self._out.setdefault(stream, []).append(row)

    def begin(self, clock: Clock) -> None:
        self._tables.forget_old(clock.now)

    def advance(self, clock: Clock) -> int:
        watermark = self._clock.reached(clock)
        self._watermark = clock.watermark
        events = self._due(watermark)
        self._ask_all(events)
        count = len(events)
        for stream, rows in self._out.items():
            self._task.emit(rows, stream)
        self._out = {}
        self._counts.expire(watermark)
        self._tables.end_batch(clock.now)
        self._count_firings()
        self.state_rows = len(self._counts) + len(self._waiting) + len(self._tables)
        return count

    def _due(self, watermark: int) -> list[Arrival]:
        """Return the events that are asked now, in order; keep the others."""
        fresh, self._fresh = self._fresh, []
        if self._clock.by_arrival or not self._bolt.key:
            return fresh
        return self._waiting.due(fresh, watermark + 1)

    def _count_firings(self) -> None:
        """Count the firings by rule; a task has only so many labels."""
        for name, count in self._firings.items():
            if len(self._labels) < _MOST_LABELS:
                self._labels[name] = None
            self._context.counter("firings", count, rule=name if name in self._labels else "others")
        self._firings.clear()

    def next_event(self) -> int | None:
        return self._waiting.first()

    def oldest(self) -> int | None:
        return self._waiting.first()

    # -- changes of rules ---------------------------------------------------------------------

    def _change(self, name: Any, data: Any) -> None:
        """Take in a rule that came, or take one away."""
        try:
            if data is None:
                if isinstance(name, str) and self._rules.pop(name, None) is not None:
                    self._note_change(name, None)
                    self._compile()
                return
            rule = Rule.from_dict(name, data)
            if not self._bolt.runs(rule):
                return
            self._bolt.check_new(rule)
            before = dict(self._rules), dict(self._changed)
            self._rules[name] = rule
            self._note_change(name, rule.to_dict())
            try:
                self._compile()
            except TopoError:
                self._rules, self._changed = before
                self._compile()
                raise
        except TopoError as error:
            if not self._context.this_task_index:
                reason = f"{error.message}; {error.hint}" if error.hint else error.message
                self._add(REJECTED, [name, data, reason])
            self._context.counter("rejected")

    def _note_change(self, name: str, data: Any) -> None:
        number = 1 + max((number for number, _ in self._changed.values()), default=0)
        self._changed[name] = (number, data)
        self._touched[name] = None
        self._lifetimes.pop(name, None)

    # -- state --------------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._watermark = watermark
        self._tables.load(saved)
        self._changed = self._change_log.load(saved)
        for name, (_, data) in sorted(self._changed.items(), key=lambda item: item[1][0]):
            if data is None:
                self._rules.pop(name, None)
            else:
                self._rules[name] = Rule.from_dict(name, data)
        self._lifetimes = self._lifetime_log.load(saved)
        if self._changed or self._lifetimes:
            self._compile()
        self._counts.load(saved)
        self._waiting.load(saved)
        self.state_rows = len(self._counts) + len(self._waiting) + len(self._tables)

    def save(self, changes: Any) -> None:
        self._tables.save(changes)
        self._counts.save(changes)
        self._waiting.save(changes)
        changed, self._touched = self._touched, {}
        self._change_log.save(self._changed, changed, changes)
        lifetimes: dict[str, Any] = {}
        for ruleset in self._rulesets.values():
            lifetimes |= ruleset.changed_lifetimes()
        if lifetimes or changed:
            self._lifetimes |= lifetimes
            self._lifetime_log.save(self._lifetimes, {**lifetimes, **changed}, changes)


def _record_of(arrival: Arrival, number: int) -> tuple[int, int, Source, Sequence[Any]]:
    """Return what is saved of an event that waits; which rules hold is asked again."""
    ts, source, values, _ = arrival
    return ts, number, source, values


def _arrival_of(record: tuple[int, int, Source, Sequence[Any]]) -> Arrival:
    ts, _, source, values = record
    return ts, source, values, None


def _picked(columns: Sequence[Sequence[Any]], places: Sequence[int]) -> Sequence[Sequence[Any]]:
    """Return what columns have at some places, which may be all."""
    if isinstance(places, range):
        return columns
    return [list(map(column.__getitem__, places)) for column in columns]


_MOST_LABELS = 900
"""A task shows a thousand figures at most."""


def _checked(rules: Any) -> Sequence[Rule]:
    if isinstance(rules, str | Path):
        return read_rules(rules)
    if not isinstance(rules, Iterable):
        raise RuleError(f"RuleBolt: rules is {shown(rules)}; it takes a list, or a path")
    listed = list(rules)
    for rule in listed:
        if not isinstance(rule, Rule):
            raise RuleError(f"RuleBolt: {shown(rule)} is no Rule", hint='write Rule("name", "...")')
    for name, count in Counter(rule.name for rule in listed).items():
        if count > 1:
            raise RuleError(f"RuleBolt: there are {count} rules {name!r}", hint="names differ")
    return listed


def _no_table(key: Any, table: str, field: str) -> Any:
    """Stand for the tables while a topology is built."""
    return None
