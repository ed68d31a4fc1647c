"""The inputs of an operator: which streams, by which key, and how they must be read.

Rows of equal keys have to come to one task. An operator that did not check it would lose matches,
or report a key twice, in silence as soon as it has two tasks. What keeps tuples of one kind may be
dealt by a part of its key (`key_problems`). What joins streams must be dealt by the whole key, in
the order of its fields, since that is what makes equal keys of two streams meet (`input_problems`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from topo.errors import (
    KEY_HINT,
    JoinError,
    Problem,
    TopoError,
    WindowError,
    did_you_mean,
    unhashable_key,
)
from topo.event_time import EventTime
from topo.storage.saving import keys_of
from topo.timed import InputFields
from topo.tuples import DEFAULT_STREAM, Fields

StreamName: TypeAlias = "str | tuple[str, str]"
"""A component, or a component and one of its streams."""

INNER, LEFT, RIGHT, OUTER = "inner", "left", "right", "outer"
HOWS = {INNER: INNER, LEFT: LEFT, RIGHT: RIGHT, OUTER: OUTER, "full": OUTER}


@dataclass(frozen=True)
class KeyedInput:
    """A stream that is read by a key."""

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

    @classmethod
    def of(cls, read: InputFields, key: Sequence[str]) -> KeyedInput:
        """Return what the bolt reads as an input by a key."""
        return cls(read.component, read.stream, tuple(key))

    def found_in(self, inputs: Iterable[InputFields]) -> InputFields | None:
        """Return what the bolt reads of it."""
        return next((read for read in inputs if self.is_of(read.component, read.stream)), None)

    def grouping_line(self) -> str:
        """Return the line that reads this input as it must be read."""
        stream = "" if self.stream == DEFAULT_STREAM else f", stream={self.stream!r}"
        return f".fields_grouping({self.component!r}, {list(self.key)!r}{stream})"


def parse_inputs(named: Mapping[str, Any], on: Any) -> list[KeyedInput]:
    """Return the inputs of a join, given by parameter, and what they are joined on."""
    streams = {word: stream_named(word, given, word) for word, given in named.items()}
    return [KeyedInput(*stream, key_of(word, stream, on)) for word, stream in streams.items()]


def stream_named(what: str, given: Any, word: str = "name") -> tuple[str, str]:
    """Return component and stream of what names a stream; raise a JoinError if it does not."""
    if isinstance(given, str) and given:
        return given, DEFAULT_STREAM
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(x, str) for x in given):
        return given
    raise JoinError(
        f"{what} is {given!r}; it takes a component, or a component and a stream",
        hint=f'write {word}="views", or {word}=("views", "stream")',
    )


def key_of(word: str, stream: tuple[str, str], on: Any) -> tuple[str, ...]:
    """Return the fields of a stream that hold the key, of what a join is `on`."""
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


def key_fields(key: Any) -> tuple[str, ...]:
    """Return the fields of a key; raise a WindowError if it is none."""
    names = (key,) if isinstance(key, str) else () if key is None else key
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise WindowError(
            f"key is {key!r}; it takes the name of a field, or several",
            hint='write key="user", or key=("user", "page")',
        )
    return tuple(Fields(names))


def check_widths(inputs: Sequence[KeyedInput]) -> None:
    """Raise a JoinError if the keys have different numbers of fields."""
    first = inputs[0]
    for one in inputs[1:]:
        if len(one.key) != len(first.key):
            raise JoinError(
                f"{first.shown} is joined on {list(first.key)}, {one.shown} on {list(one.key)}",
                hint="give both keys the same number of fields",
            )


def check_how(how: Any, hows: Sequence[str] = (INNER, LEFT, RIGHT, OUTER)) -> str:
    """Return how to join, in topo's word; raise a JoinError if it is none of these."""
    if isinstance(how, str) and HOWS.get(how) in hows:
        return HOWS[how]
    *others, last = map(repr, hows)
    raise JoinError(
        f"how is {how!r}; it must be {', '.join(others)} or {last}",
        hint=did_you_mean(how, hows) if isinstance(how, str) else "",
    )


def missing_fields(
    where: str, read: InputFields, names: Iterable[str], code: str, what: str = "the key "
) -> Iterator[Problem]:
    """Yield a problem for each name that is no field of an input."""
    for name in names:
        if name not in read.fields:
            text = f"{where}: {what}{name!r} is no field of {_shown(read)}"
            known = ", ".join(map(repr, read.fields))
            yield Problem(
                code, where, text, did_you_mean(name, read.fields) or f"its fields are {known}"
            )


def key_problems(
    key: Sequence[str],
    where: str,
    read: InputFields,
    tasks: int,
    *,
    has: str = "windows",
    code: str = "window-grouping",
) -> Iterable[Problem]:
    """Yield a problem if tuples of one key may come to several tasks."""
    if not key or tasks == 1 or read.grouping in ("global", "all", "direct", "custom"):
        return
    by_key = read.grouping == "fields" and set(read.grouping_fields) <= set(key)
    if by_key and read.grouping_fields:
        return
    names = ", ".join(map(repr, key))
    text = (
        f"{where} has {has} by {names} in {tasks} tasks, but reads {read.component!r} by "
        f"{read.grouping} grouping: tuples of one key come to several tasks"
    )
    yield Problem(code, where, text, f"write {KeyedInput.of(read, key).grouping_line()}")


def untimed_problems(
    time: EventTime | None, where: str, does: str, reads: Sequence[InputFields], hint: str
) -> Iterator[Problem]:
    """Yield a problem for each input that has no time, where `where` does something by time."""
    for read in reads:
        if time is not None and read.component in time.untimed:
            text = f"{where} {does} {read.component!r} in event time, which is untimed"
            yield Problem("time-field", where, text, hint)


def input_problems(
    inputs: Sequence[KeyedInput], where: str, reads: Sequence[InputFields], tasks: int
) -> Iterator[Problem]:
    """Yield the problems of what a join reads: missing inputs, strange ones, keys, groupings."""
    for one in inputs:
        read = one.found_in(reads)
        if read is None:
            text = f"{where} joins {one.shown}, which it does not read"
            yield Problem("join-input", where, text, f"write {one.grouping_line()}")
        else:
            yield from missing_fields(where, read, one.key, "join-key")
    for read in reads:
        if not any(one.is_of(read.component, read.stream) for one in inputs):
            text = f"{where} reads {_shown(read)}, which it does not join"
            yield Problem("join-input", where, text, "take the grouping away, or join it too")
    pairs = [(one, read) for one in inputs if (read := one.found_in(reads)) is not None]
    if not all(read.grouping == "global" for _, read in pairs):
        for one, read in pairs:
            yield from meeting_problems(one, where, read, tasks)


def meeting_problems(
    one: KeyedInput, where: str, read: InputFields, tasks: int
) -> Iterator[Problem]:
    """Yield a problem if rows of one key may not meet those of another stream in one task."""
    by_key = read.grouping == "fields" and tuple(read.grouping_fields) == one.key
    if tasks == 1 or by_key:
        return
    by = f"{read.grouping} grouping"
    if read.grouping_fields:
        by += f" on {', '.join(map(repr, read.grouping_fields))}"
    text = (
        f"{where} joins on {', '.join(map(repr, one.key))} in {tasks} tasks, but reads "
        f"{one.shown} by {by}: rows of one key would come to several tasks"
    )
    yield Problem("join-grouping", where, text, f"write {one.grouping_line()}")


def _shown(read: InputFields) -> str:
    return KeyedInput.of(read, ()).shown


def key_columns(
    columns: Sequence[Sequence[Any]], fields: Sequence[str], key: Sequence[str]
) -> Sequence[Any]:
    """Return the column of keys; a key that lacks a part is None, which equals no other."""
    keys = keys_of([columns[fields.index(name)] for name in key], 0)
    return keys if len(key) == 1 else [None if None in part else part for part in keys]


def unhashable(
    where: str, keys: Iterable[Any], kind: type[TopoError] = JoinError
) -> TopoError | None:
    """Return the error for the first key that cannot be one; None if all can."""
    odd = unhashable_key(keys)
    if odd is None:
        return None
    return kind(f"{where}: the key {odd[0]} is {odd[1]}, which cannot be a key", hint=KEY_HINT)
