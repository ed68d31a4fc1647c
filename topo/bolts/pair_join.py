"""The base of joins of two streams: what they read and declare, and what their results are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from topo.bolts.keyed_join import KeyedJoin
from topo.errors import Problem
from topo.event_time import EventTime
from topo.operators.inputs import StreamName, check_how, untimed_problems
from topo.operators.selection import (
    Merge,
    Own,
    ResultFields,
    Shape,
    SidePair,
    check_output,
    merged,
    merging,
    parse_select,
    selected,
    selecting,
)
from topo.timed import InputFields
from topo.tuples import Fields


class PairJoin(KeyedJoin):
    """The base of the joins of two inputs: what they read, and what their results are.

    Without `select`, a result has all fields of both sides: a key of one name once, other fields
    that both have as `left_...` and `right_...`, or as `merge` says: "keep-left", "keep-right",
    "raise". It may also be a function of the two tuples, None for one without a match, that returns
    the value of the field `value`, or a list for `outputs`. With `result_ts`, a field of that name
    is added that has the result's time. Late rows go to `late_stream`.
    """

    def __init__(
        self,
        *,
        left: StreamName,
        right: StreamName,
        on: Any,
        how: str,
        time: EventTime | None,
        select: Any,
        merge: str | Merge | None,
        outputs: str | Iterable[str] | None,
        result_ts: str | None,
        late_stream: str | None,
    ) -> None:
        super().__init__({"left": left, "right": right}, on, time, result_ts, late_stream)
        self.how = check_how(how)
        self.select = None if select is None else parse_select(select)
        check_output(merge, select, outputs)
        self.merge = merge if callable(merge) else None
        self.clashes = merge if isinstance(merge, str) else "prefix"
        self.merged = None if outputs is None else tuple(Fields(outputs))
        self.reads: tuple[InputFields, ...] = ()
        if self.select is not None:
            SidePair(self.sides).check(self.select)

    # -- what it declares ---------------------------------------------------------------------

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        """Learn the fields of the inputs, which all fields of a result come from."""
        reads = [side.found_in(inputs) for side in self.sides]
        self.reads = tuple(read for read in reads if read is not None)

    def bounds(self) -> tuple[str, ...]:
        """Return the fields of a result that are the window's, if the join has windows."""
        return ()

    def own_appended(self) -> tuple[str, ...]:
        """Return the fields that come from neither side and stand behind the others."""
        bounds = () if self.select is not None or self.merge is not None else self.bounds()
        return bounds if self.result_ts is None else (*bounds, self.result_ts)

    def result_fields(self) -> Sequence[str]:
        if self.merge is not None:
            names: list[str] = list(self.merged or ("value",))
        elif self.select is not None:
            names = list(self.select)
        elif len(self.reads) == 2:
            names = list(self.output().names)
        else:
            names = []  # what it does not read is reported as such
        return (*names, *self.own_appended())

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterator[Problem]:
        yield from super().problems(where, inputs, tasks, outputs)
        reads = [side.found_in(inputs) for side in self.sides]
        fields = [read.fields for read in reads if read is not None]
        if self.select is not None and len(fields) == 2:
            yield from SidePair(self.sides).problems(self.select, where, fields, self.bounds())
        hint = "look it up in a table"
        yield from untimed_problems(self.event_time, where, "joins", inputs, hint)

    def output(self) -> ResultFields:
        """Return the fields of a result that come from the two sides."""
        pair, fields = SidePair(self.sides), [read.fields for read in self.reads]
        if self.select is not None:
            return selected(self.select, pair, fields)
        keys = zip(*(side.key for side in self.sides), strict=True)
        return merged(self.clashes, pair, fields, [mine for mine, other in keys if mine == other])

    def shape(self, owner: str, own: Mapping[str, str], names: Mapping[str, Any]) -> Shape:
        """Return what makes results; `own` are expressions of the join's own fields."""
        appended = Own(own, names, self.own_appended())
        if self.merge is not None:
            width = None if self.merged is None else len(self.merged)
            return merging(self.merge, width, owner, appended)
        output = self.output()
        of = output.names if self.select is None else tuple(self.select.values())
        return selecting(output, of, appended)
