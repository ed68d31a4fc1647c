"""`JoinBolt`: Storm's join of what one window holds, over any number of streams.

Streams are joined in the order of the calls, each on its own key with the key of a stream before
it. Every window is joined as a whole, so that a sliding one gives a pair as often as it holds it;
`only_new` leaves out what an earlier window has given. A key that is None equals no other.

Beyond Storm's: right and outer joins, keys of several fields. Its mistakes are reported when the
topology is built, all at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, TypeVar

from topo.bolts.windowed_bolt import WindowedBolt
from topo.components import OutputFieldsDeclarer
from topo.errors import JoinError, Problem, did_you_mean
from topo.operators.inputs import (
    INNER,
    LEFT,
    OUTER,
    RIGHT,
    KeyedInput,
    meeting_problems,
    missing_fields,
    unhashable,
)
from topo.operators.selection import parse_select
from topo.storage.saving import with_one_nan
from topo.timed import InputFields
from topo.tuples import Tuple
from topo.windows.window import Window

J = TypeVar("J", bound="JoinBolt")


class StreamSelector(Enum):
    """The meaning of a stream's name in a JoinBolt: the id of a component, or of a stream."""

    SOURCE = "source"
    STREAM = "stream"


class _Step:
    """One stream of the join, and how it comes in."""

    def __init__(self, stream: Any, key: Any, prior: Any, how: str) -> None:
        self.stream = stream
        self.paths = _paths(key)
        self.prior = prior
        self.how = how

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that hold the key."""
        return tuple(path[0] for path in self.paths)

    @property
    def is_nested(self) -> bool:
        """True iff a part of the key is in a value."""
        return any(len(path) > 1 for path in self.paths)

    def key_of(self, tup: Tuple | None) -> Any:
        """Return the key of a row; None if a part of it is not there."""
        if tup is None:
            return None
        if len(self.paths) == 1:
            return with_one_nan(_value_at(tup, self.paths[0]))
        parts = tuple(with_one_nan(_value_at(tup, path)) for path in self.paths)
        return None if None in parts else parts


_Record = dict[Any, Tuple]
"""One row of the result so far: by stream, its tuple; a stream without a match is not there."""


class JoinBolt(WindowedBolt):
    """A windowed bolt that joins its inputs: `JoinBolt("users", "id").join("orders", "user", ...)`.

    `key` is a field, a path into a mapping ("user.id"), or several of them. It takes `with_window`
    and all else of a WindowedBolt. What a key's windows hold must come to one task: by fields
    grouping on the key, or the join has one task.
    """

    Selector: ClassVar[type[StreamSelector]] = StreamSelector

    def __init__(
        self,
        stream: str | StreamSelector,
        key: str | Sequence[str],
        field: str | Sequence[str] | None = None,
        *,
        selector: StreamSelector = StreamSelector.SOURCE,
        only_new: bool = False,
    ) -> None:
        """Begin with a stream; as in Storm, a selector may come before it."""
        if isinstance(stream, StreamSelector):
            if field is None or not isinstance(key, str):
                raise JoinError(
                    f"JoinBolt({stream}, {key!r}) needs a stream and a field",
                    hint='write JoinBolt(JoinBolt.Selector.STREAM, "stream", "field")',
                )
            selector, stream, key = stream, key, field
        elif field is not None:
            raise JoinError(
                f"JoinBolt({stream!r}, {key!r}, {field!r}): the first of three is a selector",
                hint='write JoinBolt("users", "id"), or JoinBolt(JoinBolt.Selector.STREAM, ...)',
            )
        self.selector = selector
        self.only_new = only_new
        self.steps = [_Step(stream, key, None, INNER)]
        self.selected: dict[str, str] | None = None
        self.mistakes: list[str] = []

    # -- what is joined -----------------------------------------------------------------------

    def join(self: J, stream: str, key: str | Sequence[str], prior: str) -> J:
        """Join a stream with one before it; rows without a match are dropped."""
        return self._step(stream, key, prior, INNER)

    def left_join(self: J, stream: str, key: str | Sequence[str], prior: str) -> J:
        """Join a stream; rows so far without a match stay, with None for its fields."""
        return self._step(stream, key, prior, LEFT)

    def right_join(self: J, stream: str, key: str | Sequence[str], prior: str) -> J:
        """Join a stream; its own rows without a match stay, with None for the others' fields."""
        return self._step(stream, key, prior, RIGHT)

    def outer_join(self: J, stream: str, key: str | Sequence[str], prior: str) -> J:
        """Join a stream; rows of both sides without a match stay."""
        return self._step(stream, key, prior, OUTER)

    def select(self: J, fields: str | Iterable[str] | Mapping[str, str]) -> J:
        """Say which fields go out: "name,orders:total"; a bare one is of the first that has it."""
        self.selected = parse_select(fields)
        return self

    def _step(self: J, stream: str, key: Any, prior: str, how: str) -> J:
        streams = [step.stream for step in self.steps]
        if stream in streams:
            self.mistakes.append(
                f"{stream!r} is already part of join. Cannot join with it more than once."
            )
        elif prior not in streams:
            hint = did_you_mean(prior, map(str, streams)) or f"there are {_names(streams)}"
            self.mistakes.append(f"Stream {prior!r} was not previously declared; {hint}")
        else:
            step = _Step(stream, key, prior, how)
            if len(step.paths) != len(self._named(prior).paths):
                self.mistakes.append(
                    f"{stream!r} is joined on {key!r}, {prior!r} on another number of fields"
                )
            self.steps.append(step)
        return self

    def _named(self, stream: str) -> _Step:
        return next(step for step in self.steps if step.stream == stream)

    # -- what it declares ---------------------------------------------------------------------

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        if self.selected is not None:
            declarer.declare(tuple(self.selected))
        super().declare_output_fields(declarer)

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterator[Problem]:
        for text in self.mistakes:
            yield Problem("join", where, f"{where}: {text}")
        if self.selected is None:
            text = f"{where}: Must specify output fields via .select() method."
            yield Problem("join-select", where, text, 'write .select("id,orders:total")')
        yield from self._input_problems(where, inputs, tasks)
        yield from super().problems(where, inputs, tasks, outputs)

    def _input_problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int
    ) -> Iterator[Problem]:
        by_step: dict[Any, list[InputFields]] = {step.stream: [] for step in self.steps}
        for read in inputs:
            name = self._name_of(read.component, read.stream)
            if name in by_step:
                by_step[name].append(read)
                continue
            text = f"{where} reads {read.component!r}, which is no part of the join"
            hint = f"the join has {_names(by_step)}; name a selector if those are streams"
            yield Problem("join-input", where, text, hint)
        is_global = all(read.grouping == "global" for read in inputs)
        for step in self.steps:
            reads = by_step[step.stream]
            if not reads:
                text = f"{where} joins {step.stream!r}, which it does not read"
                hint = f"write .fields_grouping({step.stream!r}, {list(step.fields)!r})"
                yield Problem("join-input", where, text, hint)
            for read in reads:
                yield from self._read_problems(where, step, read, tasks if not is_global else 1)

    def _read_problems(
        self, where: str, step: _Step, read: InputFields, tasks: int
    ) -> Iterator[Problem]:
        yield from missing_fields(where, read, step.fields, "join-key")
        keyed = KeyedInput.of(read, step.fields)
        if step.is_nested and tasks > 1:
            text = f"{where} joins on a part of {_names(step.fields)} in {tasks} tasks"
            hint = "a key in a value needs one task, or global grouping for all inputs"
            yield Problem("join-grouping", where, text, hint)
        else:
            yield from meeting_problems(keyed, where, read, tasks)

    # -- a window -----------------------------------------------------------------------------

    def execute(self, window: Window) -> None:
        """Join what the window holds, and emit the selected fields."""
        of_stream: dict[Any, list[Tuple]] = {step.stream: [] for step in self.steps}
        for tup in window.tuples:
            of_stream[self._name_of(tup.source_component, tup.source_stream)].append(tup)
        first = self.steps[0].stream
        records: list[_Record] = [{first: tup} for tup in of_stream[first]]
        for step in self.steps[1:]:
            records = self._joined(records, step, of_stream[step.stream])
        if self.only_new:
            new = set(map(id, window.new))
            records = [each for each in records if any(id(tup) in new for tup in each.values())]
        selected = [_Selected(of) for of in (self.selected or {}).values()]
        for record in records:
            self.emit([field.value_in(record) for field in selected])

    def _joined(self, records: list[_Record], step: _Step, rows: list[Tuple]) -> list[_Record]:
        """Return the records joined with the rows of one more stream."""
        prior = self._named(step.prior)
        table: dict[Any, list[Tuple]] = {}
        for tup in rows:
            key = self._checked(step.key_of(tup))
            if key is not None:
                table.setdefault(key, []).append(tup)
        met: set[Any] = set()
        joined: list[_Record] = []
        for record in records:
            key = self._checked(prior.key_of(record.get(prior.stream)))
            matches = table.get(key, ()) if key is not None else ()
            if matches:
                met.add(key)
                joined += [{**record, step.stream: tup} for tup in matches]
            elif step.how in (LEFT, OUTER):
                joined.append(record)
        if step.how in (RIGHT, OUTER):
            joined += [{step.stream: tup} for tup in rows if step.key_of(tup) not in met]
        return joined

    def _checked(self, key: Any) -> Any:
        error = unhashable("a JoinBolt", [key])
        if error is not None:
            raise error
        return key

    def _name_of(self, component: str, stream: str) -> str:
        return component if self.selector is StreamSelector.SOURCE else stream


class _Selected:
    """One selected field: of a stream, or of the first stream that has it."""

    def __init__(self, of: str) -> None:
        word, colon, name = of.partition(":")
        self.stream = word.strip() if colon else None
        self.path = (name if colon else of).strip().split(".")

    def value_in(self, record: _Record) -> Any:
        """Return the value in a record; None if there is none."""
        if self.stream is not None:
            tup = record.get(self.stream)
            return None if tup is None else _value_at(tup, self.path)
        values = (_value_at(tup, self.path) for tup in record.values())
        return next((value for value in values if value is not None), None)


def _paths(key: Any) -> list[list[str]]:
    names = [key] if isinstance(key, str) else list(key)
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise JoinError(
            f"a key is {key!r}; it takes a field, or several", hint='write "id", or ("a", "b")'
        )
    return [name.strip().split(".") for name in names]


def _value_at(tup: Tuple, path: Sequence[str]) -> Any:
    """Return the value at a path; None where the path ends before."""
    if path[0] not in tup.fields:
        return None
    value: Any = tup[path[0]]
    for name in path[1:]:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _names(names: Iterable[Any]) -> str:
    return ", ".join(map(repr, names))
