"""The declaration of load shedding at a spout: when tuples are dropped, and which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from topo.components import Component
from topo.errors import Problem, did_you_mean, shown
from topo.event_time import EventTime
from topo.topology.model import StreamDef

ATTRIBUTE = "_topo_shedding"
"""Of the component, in which the declaration travels: its function is pickled with the class."""

SHEDS = "spout.sheds"
"""The setting of a component that has it."""


@dataclass(frozen=True)
class Shedding:
    """The rules of one stream; see `SpoutDeclarer.shed`."""

    stream: str
    after: timedelta
    age: str | EventTime | None
    keep: Callable[[Sequence[Any]], float] | str | None
    sample_by: tuple[str, ...]
    least: float
    weight: str | None

    @property
    def time(self) -> EventTime | None:
        """Where the tuples' time is; None if the age is that of pending messages."""
        return EventTime(self.age) if isinstance(self.age, str) else self.age

    def describe(self) -> str:
        """Return the rules in words, for `topo explain`."""
        of = "the oldest pending message" if self.time is None else repr(self.time.field)
        which = "a sample"
        if self.keep is not None:
            name = repr(self.keep) if isinstance(self.keep, str) else "a function's value"
            which = f"the lowest by {name}"
        elif self.sample_by:
            which = f"whole keys of {', '.join(map(repr, self.sample_by))}"
        return f"sheds {which} when the age of {of} is above {self.after}"


def shedding_of(component: Component) -> Shedding | None:
    """Return what is declared for a component."""
    declared: Shedding | None = vars(component).get(ATTRIBUTE)
    return declared


def shedding_problems(
    component: Component, where: str, streams: Mapping[str, StreamDef]
) -> Iterator[Problem]:
    """Yield the problems of a declaration, given the streams that the spout declares."""
    rules = shedding_of(component)
    if rules is None:
        return
    stream = streams.get(rules.stream)
    if stream is None:
        text = f"{where} sheds stream {rules.stream!r}, which it does not declare"
        yield Problem("shed", where, text, did_you_mean(rules.stream, streams))
        return
    if stream.direct:
        text = f"{where} sheds stream {rules.stream!r}, which is a direct one"
        yield Problem("shed", where, text, "declare it without direct=True")
    for option, name in _fields_of(rules):
        if name not in stream.fields:
            text = f"{where}: shed({option}={name!r}) names a field that stream {stream.name!r} "
            text += f"does not have; it has {', '.join(map(repr, stream.fields)) or 'none'}"
            yield Problem("shed", where, text, did_you_mean(name, stream.fields))
    for text, hint in _wrong_values(rules):
        yield Problem("shed", where, f"{where}: shed({text}", hint)


def _fields_of(rules: Shedding) -> Iterator[tuple[str, str]]:
    if rules.time is not None and isinstance(rules.time.field, str):
        yield "age", rules.time.field
    if isinstance(rules.keep, str):
        yield "keep", rules.keep
    yield from (("sample_by", name) for name in rules.sample_by)
    if rules.weight is not None:
        yield "weight", rules.weight


def _wrong_values(rules: Shedding) -> Iterator[tuple[str, str]]:
    if not isinstance(rules.after, timedelta) or rules.after <= timedelta(0):
        yield f"after={shown(rules.after)}) is no time", "write after=timedelta(seconds=5)"
    if isinstance(rules.least, bool) or not isinstance(rules.least, int | float):
        yield f"least={shown(rules.least)}) is no share", "write a number from above 0 to 1"
    elif not 0 < rules.least <= 1:
        yield f"least={rules.least}) is no share", "write a number from above 0 to 1"
    if rules.keep is not None and not isinstance(rules.keep, str) and not callable(rules.keep):
        yield f"keep={shown(rules.keep)}) is no field and no function", "name a field of a number"
    if rules.keep is not None and rules.sample_by:
        yield "keep=..., sample_by=...): they exclude each other", "leave one out"
