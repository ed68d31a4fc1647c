"""The inputs of a join: which streams, by which key, and how they must be read.

Rows of equal keys have to come to one task. A join that did not check it would lose matches in
silence as soon as it has two tasks, so every input must come by fields grouping on the join key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from topo.errors import KEY_HINT, JoinError, Problem, did_you_mean, unhashable_key
from topo.storage.saving import keys_of
from topo.timed import InputFields
from topo.tuples import DEFAULT_STREAM, Fields

StreamName: TypeAlias = "str | tuple[str, str]"
"""A component, or a component and one of its streams."""

INNER, LEFT, RIGHT, OUTER = "inner", "left", "right", "outer"
HOWS = {INNER: INNER, LEFT: LEFT, RIGHT: RIGHT, OUTER: OUTER, "full": OUTER}


@dataclass(frozen=True)
class JoinInput:
    """One input of a join."""

    component: str
    stream: str
    key: tuple[str, ...]

    def is_of(self, component: str, stream: str) -> bool:
        """Return True if tuples of this stream are rows of this input."""
        return component == self.component and stream == self.stream

    @property
    def shown(self) -> str:
        """The input as a message names it."""
        if self.stream == DEFAULT_STREAM:
            return repr(self.component)
        return f"{self.component!r} stream {self.stream!r}"

    def found_in(self, inputs: Iterable[InputFields]) -> InputFields | None:
        """Return what the bolt reads of it."""
        return next((read for read in inputs if self.is_of(read.component, read.stream)), None)

    def grouping_line(self) -> str:
        """Return the line that reads this input as it must be read."""
        stream = "" if self.stream == DEFAULT_STREAM else f", stream={self.stream!r}"
        return f".fields_grouping({self.component!r}, {list(self.key)!r}{stream})"


def parse_inputs(named: Mapping[str, Any], on: Any) -> list[JoinInput]:
    """Return the inputs of a join, given by parameter, and what they are joined on."""
    streams = {word: _stream(word, given) for word, given in named.items()}
    return [JoinInput(*stream, _key_of(word, stream, on)) for word, stream in streams.items()]


def _stream(word: str, given: Any) -> tuple[str, str]:
    if isinstance(given, str) and given:
        return given, DEFAULT_STREAM
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(x, str) for x in given):
        return given
    raise JoinError(
        f"{word} is {given!r}; it takes a component, or a component and a stream",
        hint=f'write {word}="views", or {word}=("views", "stream")',
    )


def _key_of(word: str, stream: tuple[str, str], on: Any) -> tuple[str, ...]:
    if isinstance(on, Mapping):
        for name in (stream, stream[0], word):
            if name in on:
                return _fields(on[name])
        raise JoinError(
            f"on has no key for {stream[0]!r}; it has {', '.join(map(repr, on))}",
            hint=f'write on={{{stream[0]!r}: "field", ...}}',
        )
    return _fields(on)


def _fields(on: Any) -> tuple[str, ...]:
    if isinstance(on, str) or (isinstance(on, Iterable) and not isinstance(on, bytes)):
        fields = tuple(Fields(on))
        if fields:
            return fields
    raise JoinError(
        f"on is {on!r}; it takes a field, several, or a mapping from inputs to theirs",
        hint='write on="id", or on={"views": "ad", "clicks": "ad_id"}',
    )


def check_widths(inputs: Sequence[JoinInput]) -> None:
    """Raise a JoinError if the keys have different numbers of fields."""
    first = inputs[0]
    for one in inputs[1:]:
        if len(one.key) != len(first.key):
            raise JoinError(
                f"{first.shown} is joined on {list(first.key)}, {one.shown} on {list(one.key)}",
                hint="give both keys the same number of fields",
            )


def check_how(how: Any) -> str:
    """Return how to join, in topo's word; raise a JoinError if it is none."""
    if isinstance(how, str) and how in HOWS:
        return HOWS[how]
    raise JoinError(
        f"how is {how!r}; it must be 'inner', 'left', 'right' or 'outer'",
        hint=did_you_mean(how, HOWS) if isinstance(how, str) else "",
    )


def input_problems(
    inputs: Sequence[JoinInput], where: str, reads: Sequence[InputFields], tasks: int
) -> Iterator[Problem]:
    """Yield the problems of what a join reads: missing inputs, strange ones, keys, groupings."""
    found = [(one, one.found_in(reads)) for one in inputs]
    for one, read in found:
        if read is None:
            text = f"{where} joins {one.shown}, which it does not read"
            yield Problem("join-input", where, text, f"write {one.grouping_line()}")
            continue
        for name in one.key:
            if name not in read.fields:
                text = f"{where}: the key {name!r} is no field of {one.shown}"
                known = ", ".join(map(repr, read.fields))
                hint = did_you_mean(name, read.fields) or f"its fields are {known}"
                yield Problem("join-key", where, text, hint)
    for read in reads:
        if not any(one.is_of(read.component, read.stream) for one in inputs):
            text = f"{where} reads {_shown(read)}, which it does not join"
            yield Problem("join-input", where, text, "take the grouping away, or join it too")
    if tasks > 1:
        yield from _grouping_problems(found, where, tasks)


def _grouping_problems(
    found: Sequence[tuple[JoinInput, InputFields | None]], where: str, tasks: int
) -> Iterator[Problem]:
    present = [(one, read) for one, read in found if read is not None]
    if all(read.grouping == "global" for _, read in present):
        return
    for one, read in present:
        if read.grouping == "fields" and tuple(read.grouping_fields) == one.key:
            continue
        by = f"{read.grouping} grouping"
        if read.grouping_fields:
            by += f" on {', '.join(map(repr, read.grouping_fields))}"
        text = (
            f"{where} joins on {', '.join(map(repr, one.key))} in {tasks} tasks, but reads "
            f"{one.shown} by {by}: rows of one key would come to several tasks"
        )
        yield Problem("join-grouping", where, text, f"write {one.grouping_line()}")


def _shown(read: InputFields) -> str:
    return JoinInput(read.component, read.stream, ()).shown


def key_columns(
    columns: Sequence[Sequence[Any]], fields: Sequence[str], key: Sequence[str]
) -> Sequence[Any]:
    """Return the column of keys; a key that lacks a part is None, which equals no other."""
    keys = keys_of([columns[fields.index(name)] for name in key], 0)
    return keys if len(key) == 1 else [None if None in part else part for part in keys]


def unhashable(where: str, keys: Iterable[Any]) -> JoinError | None:
    """Return the error for the first key that cannot be one; None if all can."""
    odd = unhashable_key(keys)
    if odd is None:
        return None
    return JoinError(f"{where}: the key {odd[0]} is {odd[1]}, which is not hashable", hint=KEY_HINT)
