"""`PatternBolt`: a pattern as a component, and the checks of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.conditions import (
    PATTERN,
    Aggregate,
    Condition,
    Field,
    PartField,
    Read,
    parse,
    raised_by,
    value_function,
)
from topo.errors import ConditionError, PatternError, Problem, WindowError, did_you_mean
from topo.event_time import Duration, EventTime
from topo.operators.inputs import key_fields, key_problems
from topo.operators.time import ARRIVAL, OperatorTime, check_time
from topo.patterns.chains import SUMS, Match
from topo.patterns.inputs import TupleInput
from topo.patterns.machine import MatchRules, Result
from topo.patterns.operator import PatternOperator, RowOf, Views
from topo.patterns.pattern import NONE, RESERVED, Part, Pattern
from topo.patterns.positions import Positions, expand
from topo.patterns.questions import Questions, split
from topo.timed import InputFields, Operator, OperatorTask, TimedBolt
from topo.tuples import Fields

LIMIT = 10_000
"""The most partial matches of a key, if nobody says another number."""

BOUNDS = ("start", "end")
"""Names that `select` has for the times of a match."""


class PatternBolt(TimedBolt):
    """A bolt that reports what matches a pattern.

    It emits the key's fields, `start`, `end` and `match`, a `Match`; with `select` what that says:
    texts by field ("small.amount", "count(bad)", "start"), or a function of the match that returns
    the values of `outputs`. What times out goes to `timed_out_stream`, in the same fields if
    `select` has texts, in those of a match otherwise. `key=None` takes all of a task together.
    Without `time` it is by arrival, by the batch's clock. `limit` is the most open matches of a
    key, 10,000 if it is not given: the oldest go then, and are counted.
    """

    _topo_role = "pattern"

    def __init__(
        self,
        pattern: Pattern,
        *,
        key: str | Iterable[str] | None = None,
        time: EventTime | None = None,
        select: Mapping[str, str] | Callable[[Match], Sequence[Any]] | None = None,
        outputs: str | Iterable[str] | None = None,
        timed_out_stream: str | None = None,
        late_stream: str | None = None,
        limit: int | None = None,
    ) -> None:
        if not isinstance(pattern, Pattern):
            raise PatternError(
                f"a PatternBolt takes a Pattern; got {pattern!r:.80}",
                hint='write PatternBolt(Pattern("a", ...).followed_by("b", ...), ...)',
            )
        check_time(time, PatternError)
        if late_stream is not None and time is None:
            raise PatternError(
                "a late stream needs event time: by arrival, nothing is late",
                hint='give time=EventTime("ts")', code="pattern-input",
            )  # fmt: skip
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
            raise PatternError(f"limit is {limit!r}; it takes a whole number")
        if limit is not None and limit < 1:
            raise PatternError(f"limit is {limit!r}; it must be above zero")
        pattern.check()
        self.pattern = pattern
        self.key = key_fields(key)
        self.event_time = time
        self.timed_out_stream = timed_out_stream
        self.late_stream = late_stream
        self.limit = limit
        self.select: dict[str, Condition] | Callable[[Match], Sequence[Any]] | None = None
        self._fields = self._select(select, outputs)
        self.check_bounds()

    # -- the declaration ----------------------------------------------------------------------

    def _select(self, select: Any, outputs: Any) -> tuple[str, ...]:
        """Look at what is selected; return the fields of a match."""
        if isinstance(select, Mapping):
            self.select = {name: self._selected(name, text) for name, text in select.items()}
            return tuple(Fields(*select))
        if select is None:
            return (*self.key, *BOUNDS, "match")
        if not callable(select):
            raise PatternError(
                f"select is {select!r:.80}; it takes texts by field, or a function of the match",
                hint='write select={"card": "large.card"}',
            )
        self.select = select
        if outputs is None:
            raise PatternError(
                "select is a function, whose fields nobody knows", hint='give outputs=("a", "b")'
            )
        return tuple(Fields(outputs))

    def _selected(self, name: str, text: Any) -> Condition:
        condition = parse(text, f"select {name!r}", PATTERN)
        names = self.pattern.names
        known_fields = [*BOUNDS, *self.key]
        for read in condition.reads:
            if isinstance(read, Field) and read.name not in known_fields:
                hint = did_you_mean(read.name, [*known_fields, *names])
                if read.name in names:
                    hint = f"name a field of it: {read.name}.price, or count({read.name})"
                listed = ", ".join(known_fields)
                raise condition.refusal(
                    read, f"{read.name!r} is of no part", hint or f"without a part are: {listed}"
                )
            if not isinstance(read, Field) and read.part not in names:
                hint = did_you_mean(read.part, names)
                listed = ", ".join(map(repr, names))
                raise condition.refusal(
                    read, f"{read.part!r} is no part that takes events",
                    hint or f"the parts are {listed}",
                )  # fmt: skip
        return condition

    @property
    def clock(self) -> EventTime:
        """The time that durations are measured in."""
        return self.event_time or ARRIVAL

    def ticks(self, duration: Duration) -> int:
        """Return a duration of the pattern in ticks."""
        try:
            return self.clock.ticks(duration, "a duration of the pattern")
        except WindowError as error:
            raise PatternError(error.message, hint=error.hint, code="pattern-within") from None

    def positions(self) -> Positions:
        """Return the pattern's positions."""
        return expand(self.pattern, self.ticks)

    @property
    def within(self) -> int | None:
        """The pattern's time, in ticks."""
        return None if self.pattern.duration is None else self.ticks(self.pattern.duration)

    def check_bounds(self) -> None:
        """Raise a PatternError if partial matches would never end."""
        within = self.within
        for part in self.pattern.every():
            for name, gap in (("gap", part.gap), ("inner_gap", part.inner_gap)):
                if gap is not None and within is not None and self.ticks(gap) > within:
                    raise PatternError(
                        f"{part.shown}: {name} is longer than within, which ends the match before",
                        hint="make within longer, or leave the gap out", code="pattern-within",
                    )  # fmt: skip
        positions = self.positions()
        if within is None and self.limit is None and not positions.ends_by_itself:
            raise PatternError(
                "partial matches of the pattern would never end: events may be skipped for ever",
                hint="write .within(timedelta(...)), give each part a gap, or give the bolt limit=",
                code="pattern-unbounded",
            )

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        declarer.declare(Fields(*self._fields))
        if self.timed_out_stream is not None:
            declarer.declare_stream(self.timed_out_stream, Fields(*self._timed_out_fields))
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    @property
    def _timed_out_fields(self) -> tuple[str, ...]:
        return (*self.key, *BOUNDS, "match") if callable(self.select) else self._fields

    def result_time(self, stream: str) -> tuple[str, int] | None:
        if self.event_time is None or stream == self.late_stream:
            return None
        if isinstance(self.select, dict):
            ends = [name for name, text in self.select.items() if text.text == "end"]
            return (ends[0], 0) if ends else None
        if callable(self.select) and stream == "default":
            return None
        return "end", 0

    def result_delay(self) -> int:
        # A whole match waits for what began earlier, at most as long as that may last.
        return 0 if self.pattern.strategy == (NONE,) else self.within or 0

    # -- checks -------------------------------------------------------------------------------

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterator[Problem]:
        for read in inputs:
            for name in self.key:
                if name not in read.fields:
                    text = f"{where}: the key {name!r} is no field of {read.component!r}"
                    known_fields = ", ".join(map(repr, read.fields))
                    hint = did_you_mean(name, read.fields) or f"its fields are {known_fields}"
                    yield Problem("pattern-key", where, text, hint)
            yield from key_problems(self.key, where, read, tasks, has="matches", code="pattern-key")
            if self.event_time is not None and read.component in self.event_time.untimed:
                text = f"{where} matches {read.component!r} in event time, which is untimed"
                yield Problem("pattern-input", where, text, "read it in another bolt")
        components = [read.component for read in inputs]
        fields = list(dict.fromkeys(name for read in inputs for name in read.fields))
        for part in self.pattern.every():
            yield from self._part_problems(where, part, inputs, components, fields)
        for condition in self.select.values() if isinstance(self.select, dict) else ():
            yield from self._read_problems(where, condition, inputs, fields, None)

    def _part_problems(
        self,
        where: str,
        part: Part,
        inputs: Sequence[InputFields],
        components: Sequence[str],
        fields: Sequence[str],
    ) -> Iterator[Problem]:
        if part.of is not None and part.of not in components:
            text = f"{where}: {part.shown} is of {part.of!r}, which it does not read"
            hint = did_you_mean(part.of, components)
            listed = ", ".join(map(repr, components))
            yield Problem("pattern-input", where, text, hint or f"it reads {listed}")
            return
        if part.name in fields and not part.is_negation:
            text = f"{where}: {part.shown} has the name of a field"
            yield Problem("pattern-name", where, text, "give the part another name")
        for condition in (part.where, part.until):
            if isinstance(condition, Condition):
                yield from self._read_problems(where, condition, inputs, fields, part.of)

    def _read_problems(
        self,
        where: str,
        condition: Condition,
        inputs: Sequence[InputFields],
        fields: Sequence[str],
        of: str | None,
    ) -> Iterator[Problem]:
        bound = {part.name: part.of for part in self.pattern.every()}
        for read in condition.reads:
            source = of if isinstance(read, Field) else bound.get(read.part or "")
            name = read.name if isinstance(read, Field) else read.field
            own = [f for i in inputs if i.component == source for f in i.fields]
            names = list(fields) if source is None else own
            free = (*RESERVED, *BOUNDS) if isinstance(read, Field) else ()
            if name is None or name in names or name in free:
                continue
            error = _no_field(condition, read, name, names, source)
            yield Problem("condition", where, f"{where}: {error.message}", error.hint)

    def describe_work(self) -> Sequence[str]:
        """Return the edges of the pattern, each from one position to the next."""
        return self.positions().shown()

    def warnings(self, where: str, is_finite: bool) -> Iterator[str]:
        for text in self.pattern.warnings():
            yield f"{where}: {text}"

    # -- the work -----------------------------------------------------------------------------

    def reads(self) -> TupleInput:
        """Return how it reads what comes."""
        return TupleInput(self.key)

    def operator(self, task: OperatorTask) -> Operator:
        positions = self.positions()
        time = self.clock
        views = Views(positions, time)
        questions = Questions(positions, self._kept_fields(positions), time, views.view)
        row_of = {"default": self.row_of(questions, views, self.select)}
        streams = {}
        if self.timed_out_stream is not None:
            select = None if callable(self.select) else self.select
            row_of["timed_out"] = self.row_of(questions, views, select)
            streams["timed_out"] = self.timed_out_stream
        inputs = {time.field} if not isinstance(time.lag, Mapping) else set(time.lag)
        lag = max((time.lag_of(str(component)) for component in inputs), default=0)
        operator = PatternOperator(
            task,
            repr(self.pattern),
            positions,
            questions,
            self.reads(),
            OperatorTime(self.event_time),
            MatchRules(self.within, self.pattern.strategy, self.limit or LIMIT),
            row_of,
            keeps_events=not isinstance(self.select, dict) or questions.calls_functions,
            lag=lag,
        )
        operator.name_streams(streams)
        return operator

    def _kept_fields(self, positions: Positions) -> list[str]:
        """Return the fields of events that something reads once they were taken."""
        conditions: list[Condition] = []
        for question in positions.questions:
            if isinstance(question.where, Condition):
                rest = split(question.where)[1]
                conditions += [] if rest is None else [rest]
        own = [r.name for c in conditions for r in c.reads if isinstance(r, Field)]
        if isinstance(self.select, dict):
            conditions += self.select.values()
        reads = [read for condition in conditions for read in condition.reads]
        taken_fields = [r.field for r in reads if isinstance(r, PartField | Aggregate)]
        names = [*(name for name in own if name not in RESERVED), *taken_fields]
        return [name for name in dict.fromkeys(names) if name is not None]

    def row_of(
        self,
        questions: Questions,
        views: Views,
        select: dict[str, Condition] | Callable[[Match], Sequence[Any]] | None,
    ) -> RowOf:
        """Return the function that makes a row of a result."""
        if isinstance(select, dict):
            return self.row_of_texts(questions, select)
        width, names = len(self._fields), self.key

        def whole(result: Result) -> Sequence[Any]:
            match = views.view(result.node, result.key, result.end)
            if select is None:
                key = result.key if len(names) > 1 else (result.key,) if names else ()
                return [*key, match.start, match.end, match]
            row = select(match)
            if not isinstance(row, list | tuple) or len(row) != width:
                raise PatternError(
                    f"select returned {row!r:.80}, and the bolt has {width} outputs",
                    hint="return a list with a value for each output",
                )
            return row

        return whole

    def row_of_texts(self, questions: Questions, select: dict[str, Condition]) -> RowOf:
        """Return the function that computes the selected texts of a result."""
        key, in_unit = self.key, self.clock.shown

        def read_text(read: Read) -> str:
            if not isinstance(read, Field):
                return questions.read(read)
            if read.name in BOUNDS:
                return read.name
            return "key" if len(key) == 1 else f"key[{key.index(read.name)}]"

        values = [
            (condition, value_function(condition, read_text, "k, key, start, end"))
            for condition in select.values()
        ]

        def row(result: Result) -> Sequence[Any]:
            start, end = in_unit(result.start), in_unit(result.end)
            cells = []
            for condition, value in values:
                try:
                    cells.append(value(result.node[SUMS], result.key, start, end))
                except Exception as error:
                    raise raised_by(condition, error, {"start": start, "end": end}) from error
            return cells

        return row


def _no_field(
    condition: Condition, read: Read, name: str, names: Sequence[str], source: str | None
) -> ConditionError:
    of = "" if source is None else f" of {source!r}"
    listed = ", ".join(map(repr, names)) or "none"
    hint = did_you_mean(name, names) or f"the fields are {listed}"
    return condition.refusal(read, f"{name!r} is no field{of}", hint)
