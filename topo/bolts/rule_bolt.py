"""`RuleBolt`: rules that events are asked of, and the streams of what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import Problem, RuleError, TopoError, did_you_mean, shown
from topo.event_time import EventTime
from topo.operators.inputs import key_fields, key_problems
from topo.operators.time import ARRIVAL
from topo.rules.files import read_rules
from topo.rules.operator import ALERTS, REJECTED, RuleOperator
from topo.rules.rule import Rule
from topo.rules.ruleset import Ruleset, check_rule, conditions_of
from topo.rules.tables import check_tables, lookup_problems
from topo.tables.table import Table
from topo.timed import InputFields, Operator, OperatorTask, TimedBolt
from topo.tuples import Fields

LATE = "late"
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
        return RuleOperator(self, task)


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
