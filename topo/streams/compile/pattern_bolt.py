"""Patterns over keyed streams: the bolt behind `detect`.

It reads keys and elements, whose parts conditions name as they name fields of tuples: a key of a
mapping, a field of a record or an attribute. Its elements are matches, or what is selected of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from topo.bolts.pattern_bolt import PatternBolt
from topo.components import OutputFieldsDeclarer
from topo.conditions import Condition
from topo.errors import ConditionError, PatternError, Problem, did_you_mean
from topo.event_time import EventTime
from topo.operators.inputs import key_problems
from topo.patterns import Match
from topo.patterns.inputs import TupleInput
from topo.patterns.machine import Result
from topo.patterns.operator import RowOf, Views
from topo.patterns.pattern import Pattern
from topo.patterns.questions import Questions
from topo.streams.graph import KEY, TIME, VALUE
from topo.streams.records import record_type
from topo.timed import InputFields, Rows

TIMED_OUT = "timed_out"


class ElementInput(TupleInput):
    """The elements of a keyed stream: the key is the first column, the element the second."""

    def __init__(self) -> None:
        super().__init__((KEY,))

    def payload(self, rows: Rows) -> Callable[[int], Any]:
        return rows.columns[1].__getitem__

    def names(self, rows: Rows, read: Sequence[str]) -> Sequence[str]:
        return read

    def columns(self, rows: Rows, names: Sequence[str]) -> list[Sequence[Any]]:
        return [[_part_of(value, name) for value in rows.columns[1]] for name in names]


def _part_of(value: Any, name: str) -> Any:
    """Return a named part of an element; None if it is a mapping without it."""
    if isinstance(value, Mapping):
        return value.get(name)
    try:
        return getattr(value, name)
    except AttributeError:
        parts = [word for word in dir(value) if not word.startswith("_")]
        raise ConditionError(
            f"a condition reads {name!r}, which an element of the stream lacks: {value!r:.80}",
            hint=did_you_mean(name, [*getattr(value, "_fields", ()), *parts]),
        ) from None


class StreamPatternBolt(PatternBolt):
    """A pattern over the elements of each key."""

    def __init__(
        self,
        pattern: Pattern,
        time: EventTime | None,
        select: Mapping[str, str] | Callable[[Match], Any] | None,
        *,
        limit: int | None,
        late_stream: str | None,
        with_timed_out: bool,
    ) -> None:
        outputs = (VALUE,) if callable(select) else None
        super().__init__(
            pattern, key=KEY, time=time, select=select, outputs=outputs, limit=limit,
            late_stream=late_stream, timed_out_stream=TIMED_OUT if with_timed_out else None,
        )  # fmt: skip
        bound = next((part for part in pattern.every() if part.of is not None), None)
        if bound is not None:
            raise PatternError(
                f"{bound.shown} has of={bound.of!r}, and a stream has no components",
                hint="tell them apart by a condition", code="pattern-input",
            )  # fmt: skip

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        fields = (VALUE,) if self.event_time is None else (VALUE, TIME)
        declarer.declare(fields)
        if self.timed_out_stream is not None:
            declarer.declare_stream(self.timed_out_stream, fields)
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    def result_time(self, stream: str) -> tuple[str, int] | None:
        return None if self.event_time is None or stream == self.late_stream else (TIME, 0)

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterator[Problem]:
        for read in inputs:
            yield from key_problems(self.key, where, read, tasks, has="matches", code="pattern-key")

    def reads(self) -> TupleInput:
        return ElementInput()

    def row_of(
        self,
        questions: Questions,
        views: Views,
        select: dict[str, Condition] | Callable[[Match], Any] | None,
    ) -> RowOf:
        is_timed, in_unit = self.event_time is not None, self.clock.shown
        element: Callable[[Result], Any]
        if isinstance(select, dict):
            cells, made_of = self.row_of_texts(questions, select), record_type(tuple(select))

            def element(result: Result) -> Any:
                return made_of(cells(result))

        else:

            def element(result: Result) -> Any:
                match = views.view(result.node, result.key, result.end)
                return match if select is None else select(match)

        def row(result: Result) -> Sequence[Any]:
            value = element(result)
            return [value, in_unit(result.end)] if is_timed else [value]

        return row
