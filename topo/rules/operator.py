"""The operator of a `RuleBolt`: which rules hold of an event, and what follows from that.

Rules without `by` ask each event alone: its results come at once and are anchored to it. Rules with
`by` count, so their inputs are acked when they are counted, which is committed state, and their
results belong to no tuple tree. The same holds where a batch's tables or rules have to be known
before its events are asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Any, Protocol

from topo.errors import TopoError
from topo.event_time import BEFORE_ALL, EventTime
from topo.operators.queue import RowQueue
from topo.operators.time import OperatorTime
from topo.rules.counting import KeyCounts
from topo.rules.rule import Rule
from topo.rules.ruleset import Arrival, Outcome, Ruleset
from topo.rules.tables import ReferenceTables
from topo.storage.saving import SavedMapping
from topo.timed import Clock, InputFields, Operator, OperatorTask, Rows, is_in_time
from topo.tuples import DEFAULT_STREAM, Source, new_tuple

ALERTS, REJECTED = "alerts", "rejected"
_MOST_LABELS = 900
"""A task shows a thousand figures at most."""


class RuleDeclaration(Protocol):
    """What a `RuleBolt` declares, as far as its operator has to know it."""

    key: tuple[str, ...]
    rules: list[Rule]
    tables: Mapping[str, Any]
    unmatched: str | None
    changes: str | None
    event_time: EventTime | None
    late_stream: str | None
    events: tuple[InputFields, ...]
    reads: tuple[InputFields, ...]

    @property
    def has_records(self) -> bool:
        """True iff records come out."""

    @property
    def waits_for_batch(self) -> bool:
        """True iff events are asked when all of a batch is there."""

    def runs(self, rule: Rule) -> bool:
        """Return True if this bolt is the one that runs a rule."""

    def ruleset(self, fields: Sequence[str], lookup: Any, rules: Any = None) -> Ruleset:
        """Return the rules compiled for an input with these fields."""

    def check_new(self, rule: Rule) -> None:
        """Raise an error if a rule that comes later does not fit."""


class RuleOperator(Operator):
    """The rules of one task."""

    def __init__(self, bolt: RuleDeclaration, task: OperatorTask) -> None:
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
