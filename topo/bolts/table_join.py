"""`TableJoin`: rows of a stream, each with the row of a table that it points to.

The table is the latest row of each key, or, if it is `versioned`, the history: a row then gets what
was valid at its own time, and waits until the watermark says that nothing older will come. In a
batch the table's changes are applied before the rows of the stream, so a row finds what came with
it; which of the two a batch brings is chance otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import JoinError, Problem
from topo.event_time import Duration, EventTime
from topo.operators.inputs import (
    KeyedInput,
    StreamName,
    check_widths,
    input_problems,
    key_of,
    missing_fields,
    stream_named,
)
from topo.operators.selection import (
    ResultFields,
    Selection,
    SidePair,
    check_output,
    merged,
    parse_select,
    selected,
)
from topo.operators.time import check_time
from topo.tables.lookup import Merge, TupleLookup
from topo.tables.table import Table, lookup_rules
from topo.timed import InputFields, Operator, OperatorTask, TimedBolt
from topo.tuples import Fields


class TableJoin(TimedBolt):
    """A bolt that joins the rows of a stream with a table.

    `on` names the fields of the stream that hold the table's key; by default they have the same
    names. With a versioned table a row gets the version of its own time: after the watermark has
    passed it (`wait`), at once (`wait=False`), or when the stream's own time is `grace` later.

    The output has what `select` names; by default all fields of both, the table's key once, and
    `left_` or `right_` before names that both have. Other values of `merge` are "keep-left",
    "keep-right", "raise", or a function of both rows as dicts, the table's being None without a
    match; its result is the field `value`, or the values of `outputs`.
    """

    def __init__(
        self,
        *,
        stream: StreamName,
        table: Table,
        on: str | Sequence[str] | Mapping[str, Any] | None = None,
        how: str = "inner",
        time: EventTime | None = None,
        wait: bool = True,
        grace: Duration | None = None,
        select: Selection | str | None = None,
        merge: str | Merge = "prefix",
        outputs: Sequence[str] = (),
        late_stream: str | None = "late",
    ) -> None:
        if not isinstance(table, Table):
            raise JoinError(
                f"TableJoin: table is {table!r}; it takes a Table",
                hint='write table=Table("rates", key="currency")',
            )
        check_time(time, JoinError)
        named = stream_named("TableJoin: stream", stream, "stream")
        if named == table.stream:
            raise JoinError(f"TableJoin: {stream!r} is both the stream and the table")
        self.table = table
        key = key_of("left", named, table.keys if on is None else on)
        self.sides = KeyedInput(*named, key), KeyedInput(*table.stream, table.keys)
        self.rules = lookup_rules(
            how=how,
            time=time,
            versioned=table.versioned,
            wait=wait,
            grace=grace,
            ttl=table.ttl,
            max_keys=table.max_keys,
        )
        self.event_time = time
        check_output(merge, select, outputs)
        self.select = None if select is None else parse_select(select)
        if self.select is not None:
            self._pair.check(self.select)
        self.merge = merge
        self.own_outputs = tuple(Fields(outputs))
        waits = self.rules.waits and self.rules.grace is None  # no other row is late
        self.late_stream = late_stream if waits else None
        self.fields: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None)
        """The fields of both inputs, once the topology is built."""
        check_widths(self.sides)

    @property
    def on(self) -> tuple[str, ...]:
        """The fields of the stream that hold the table's key."""
        return self.sides[0].key

    # -- what it declares ---------------------------------------------------------------------

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        stream, table = (side.found_in(inputs) for side in self.sides)
        self.fields = (
            None if stream is None else stream.fields,
            None if table is None else table.fields,
        )

    def output(self) -> ResultFields:
        """Return the fields of the output and their places."""
        if callable(self.merge):
            names = self.own_outputs or ("value",)
            return ResultFields(names, ((),) * len(names))
        fields = [names or () for names in self.fields]
        if self.select is not None:
            return selected(self.select, self._pair, fields)
        own = self.time_names()
        left_out = self.table.keys
        if self.merge != "prefix" and own[0] == own[1] and own[0] is not None:
            left_out = (*left_out, own[0])
        return merged(self.merge, self._pair, fields, left_out)

    @property
    def _pair(self) -> SidePair:
        # Without their keys: a field of a table without a match is None, its key for one.
        return SidePair([replace(side, key=()) for side in self.sides])

    def time_names(self) -> tuple[str | None, str | None]:
        """Return the time fields of the stream and of the table."""
        time = self.event_time
        if time is None:
            return None, None
        return time.field_of(self.sides[0].component), time.field_of(self.sides[1].component)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        if None not in self.fields:  # else it reads something else, which `problems` says
            declarer.declare(Fields(*self.output().names))
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    def result_time(self, stream: str) -> tuple[str, int] | None:
        name = self.time_names()[0]
        own = self.fields[0] or ()
        if stream != "default" or name not in own or callable(self.merge):
            return None
        output_name = self.output().name_of((0, own.index(name)))
        return None if output_name is None else (output_name, 0)

    def result_delay(self) -> int:
        return self.rules.grace or 0

    def timing(self) -> EventTime | None:
        time = self.event_time
        if time is None or self.rules.grace is None:
            return time
        return replace(time, untimed=(*time.untimed, self.sides[1].component))

    def describe_time(self) -> str:
        how = "left" if self.rules.left else "inner"
        if self.rules.history is None:
            return f"{how} join with the latest rows of {self.table.name!r}"
        return (
            f"{how} join with {self.table.name!r} as of the row's time, {super().describe_time()}"
        )

    # -- checks -------------------------------------------------------------------------------

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        stream, table = (side.found_in(inputs) for side in self.sides)
        is_dealt = stream is not None and stream.grouping != "all"
        is_copied = is_dealt and table is not None and table.grouping == "all"
        yield from input_problems(self.sides, where, inputs, 1 if is_copied else tasks)
        if stream is None or table is None:
            return
        if isinstance(self.table.deleted, str):
            names = [self.table.deleted]
            yield from missing_fields(where, table, names, "join-key", "deleted=")
        if self.select is not None:
            fields = [stream.fields, table.fields]
            yield from self._pair.problems(self.select, where, fields)

    def operator(self, task: OperatorTask) -> Operator:
        return TupleLookup(self, task)
