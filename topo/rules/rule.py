"""A rule as data: which events, counted how, and what is done about them.

Rules are written by people who do not deploy: in files and on streams as well as in programs. So a
rule is checked as a whole when it is made, can be shown, and is counted one by one; only `then` is
a function, and only a program can give it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from topo.conditions import EVENT, HAVING, Aggregate, Condition, parse
from topo.durations import duration_of, duration_text
from topo.errors import RuleError, TopoError, did_you_mean, shown
from topo.event_time import duration_ticks
from topo.tuples import Fields

CHANGE, EACH = "change", "each"
OPTIONS = (
    "when",
    "by",
    "having",
    "within",
    "again",
    "let",
    "set",
    "emit",
    "start",
    "stop",
    "times",
)
"""What a rule in a file or on a stream may have beside its name."""


@dataclass(frozen=True)
class Firing:
    """What `then` gets beside the event: which rule fired, for which key, and when."""

    rule: str
    key: Any
    ts: Any
    values: Mapping[str, Any]
    """What `emit` says."""


@dataclass(frozen=True)
class Rule:
    """A condition of events, and what is done about those that fulfil it.

    `when` is the condition of an event. With `by`, `within` and `having`, the events that fulfil
    it are counted for each value of the fields `by`, and the rule fires when `having` is true of
    those in the last `within`: `having="count() >= 20"`. `again="change"` fires when that becomes
    true, `"each"` at each event that finds it true, a timedelta no more often than that.

    `let` gives names to values, for this rule; `set` changes fields of the record, which later
    rules see; `emit` has the fields of an alert; all are texts of the language of conditions.
    `then` is a function of the event and the `Firing`. From `start` to `stop`, times or
    conditions, the rule is asked at all, and it fires `times` times at most; each task counts.
    """

    name: str
    when: str
    by: str | Iterable[str] | None = None
    having: str | None = None
    within: timedelta | int | None = None
    again: str | timedelta | int = CHANGE
    let: Mapping[str, str] | None = None
    set: Mapping[str, str] | None = None
    emit: Mapping[str, str] | None = None
    then: Callable[[Any, Firing], Any] | None = None
    start: Any = None
    stop: Any = None
    times: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise RuleError(
                f"a rule has a name; got {shown(self.name)}", hint='Rule("scan", "...")'
            )
        if not isinstance(self.when, str):
            raise RuleError(
                f"{self.what}: its condition is {shown(self.when)}", hint='write when="size > 100"'
            )
        object.__setattr__(self, "by", _fields_of(self.what, self.by))
        for name in ("let", "set", "emit"):
            object.__setattr__(self, name, _texts_of(self.what, name, getattr(self, name)))
        if self.then is not None and not callable(self.then):
            raise RuleError(f"{self.what}: then is {shown(self.then)}, which is no function")
        check_times(self.what, self.times)
        self._check_counting()
        for condition in (self.condition, *self.expressions.values()):
            _check_names(condition)
        if self.having is not None:
            _check_names(self.having_condition)
        for bound in ("start", "stop"):
            bound_of(self.what, bound, getattr(self, bound))
        changed = next((name for name in self.set_texts if name in self.key), None)
        if changed is not None:
            raise RuleError(f"{self.what} sets {changed!r}, a field of its key")

    @property
    def what(self) -> str:
        """The rule as messages name it."""
        return f"rule {self.name!r}"

    @property
    def key(self) -> tuple[str, ...]:
        """The fields that it counts by."""
        return tuple(self.by or ())

    @cached_property
    def condition(self) -> Condition:
        """The condition of an event."""
        return parse(self.when, f"{self.what}, when")

    @cached_property
    def having_condition(self) -> Condition:
        """The condition of what was counted."""
        return parse("True" if self.having is None else self.having, f"{self.what}, having", HAVING)

    @property
    def set_texts(self) -> Mapping[str, str]:
        return self.set or {}

    @property
    def emit_texts(self) -> Mapping[str, str]:
        return self.emit or {}

    @cached_property
    def expressions(self) -> Mapping[tuple[str, str], Condition]:
        """What `let`, `set` and `emit` say, by word and name, in order."""
        kind = EVENT if self.within is None else HAVING
        return {
            (word, name): parse(text, f"{self.what}, {word} {name!r}", kind)
            for word in ("let", "set", "emit")
            for name, text in (getattr(self, word) or {}).items()
        }

    @cached_property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The aggregates that it reads."""
        conditions = (self.having_condition, *self.expressions.values())
        reads = (read for condition in conditions for read in condition.reads)
        return tuple(dict.fromkeys(read for read in reads if isinstance(read, Aggregate)))

    @property
    def alerts(self) -> bool:
        """True iff its firings are alerts."""
        return self.emit is not None or (self.set is None and self.then is None)

    @property
    def has_lifetime(self) -> bool:
        """True iff it is not asked always."""
        return (self.start, self.stop, self.times) != (None, None, None)

    def ticks(self, unit: str) -> tuple[int, int | None]:
        """Return, in ticks, what it counts over, and how often it fires at most; None: as told."""
        within = (
            0 if self.within is None else duration_ticks(self.within, unit, f"{self.what}: within")
        )
        if isinstance(self.again, str):
            return within, None
        return within, duration_ticks(self.again, unit, f"{self.what}: again")

    def _check_counting(self) -> None:
        if self.having is not None and (not self.key or self.within is None):
            lacking = "by" if not self.key else "within"
            raise RuleError(
                f"{self.what} has having and no {lacking}",
                hint="events are counted for each value of a field, in a stretch of time: "
                'by="dst", within=timedelta(minutes=2)',
            )
        if self.within is not None and not self.key:
            raise RuleError(f"{self.what} has within and no by", hint='write by="dst"')
        if isinstance(self.again, str) and self.again not in (CHANGE, EACH):
            raise RuleError(
                f"{self.what}: again is {self.again!r}; it is 'change', 'each' or a timedelta",
                hint=did_you_mean(self.again, (CHANGE, EACH)),
            )
        if not isinstance(self.again, str) and not self.key:
            raise RuleError(
                f"{self.what}: how often it fires is counted for each value of a field",
                hint='write by="dst"',
            )
        self.ticks("us")

    @classmethod
    def from_dict(cls, name: Any, data: Any, then: Any = None) -> Rule:
        """Return the rule of a file or a stream; raise a RuleError, also for a wrong key."""
        if not isinstance(data, Mapping):
            raise RuleError(f"rule {shown(name)}: {shown(data)} is no table of a rule's keys")
        for key in data:
            if key not in OPTIONS:
                listed = f"a rule has {', '.join(OPTIONS)}"
                raise RuleError(
                    f"rule {shown(name)}: {shown(key)} is no key of a rule",
                    hint=did_you_mean(key, OPTIONS) or listed,
                    code="rule-key-name",
                )
        if "when" not in data:
            raise RuleError(
                f"rule {shown(name)} has no condition", hint='write when = "size > 100"'
            )
        values = dict(data)
        for key in ("within", "again"):
            value = values.get(key)
            if isinstance(value, str) and not (key == "again" and value in (CHANGE, EACH)):
                what = f"rule {shown(name)}: {key}"
                values[key] = duration_of(value, what, RuleError, RuleError.code)
        try:
            return cls(name, then=then, **values)
        except TopoError:
            raise
        except (TypeError, ValueError) as error:  # a value of a type that nothing above expects
            raise RuleError(f"rule {shown(name)}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as `from_dict` takes it, without its name and `then`."""
        data: dict[str, Any] = {"when": self.when}
        for name in OPTIONS[1:]:
            value = getattr(self, name)
            if name == "by":
                value = list(self.key) or None
            if isinstance(value, timedelta):
                value = duration_text(value)
            if value is not None and (name, value) != ("again", CHANGE):
                data[name] = value
        return data


def check_times(what: str, times: Any) -> None:
    """Raise a RuleError unless this can bound how often something fires."""
    whole = isinstance(times, int) and not isinstance(times, bool)
    if times is not None and (not whole or times < 1):
        raise RuleError(f"{what}: times is {shown(times)}; it is a number from 1, or None")


def bound_of(what: str, name: str, value: Any) -> Condition | None:
    """Return the condition of a start or stop; None for a time, or if there is none."""
    return parse(value, f"{what}, {name}") if isinstance(value, str) else None


def _check_names(condition: Condition) -> None:
    for read in condition.reads:
        if isinstance(read, Aggregate) and condition.kind != HAVING:
            raise condition.refusal(read, "it counts nothing", "write by=, within= and having=")


def _fields_of(what: str, by: Any) -> tuple[str, ...] | None:
    if by is None:
        return None
    if isinstance(by, str) or (isinstance(by, Iterable) and all(isinstance(n, str) for n in by)):
        fields = tuple(Fields(by))
        if fields:
            return fields
    raise RuleError(f"{what}: by is {shown(by)}; it takes a field, or several", hint='by="dst"')


def _texts_of(what: str, word: str, texts: Any) -> Mapping[str, str] | None:
    if texts is None:
        return None
    if not isinstance(texts, Mapping):
        raise RuleError(f"{what}: {word} is {shown(texts)}", hint=f'{word}={{"field": "text"}}')
    for name, text in texts.items():
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            raise RuleError(f"{what}: {word} names {shown(name)}, which is no name of a field")
        if not isinstance(text, str):
            raise RuleError(
                f"{what}: {word} {name!r} is {shown(text)}, and not a text",
                hint=f"a constant is written as {word}={{{name!r}: {str(text)!r}}}",
            )
    return dict(texts)
