"""`TableJoin`: rows of a stream, each with the row of a table that it points to.

The table is the latest row of each key, or, if it is `versioned`, the history: a row then gets what
was valid at its own time, and waits until the watermark says that nothing older will come. In a
batch the table's changes are applied before the rows of the stream, so a row finds what came with
it; which of the two a batch brings is chance otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias

from topo.components import OutputFieldsDeclarer
from topo.errors import JoinError, Problem, did_you_mean
from topo.event_time import Duration, EventTime
from topo.tables.fields import MERGES, Output, Selection, Side, merged, selected
from topo.timed import InputFields, Operator, OperatorTask, TimedBolt
from topo.tuples import DEFAULT_STREAM, Fields, Tuple

StreamName: TypeAlias = "str | tuple[str, str]"
"""A component, or a component and one of its streams."""

HOWS = ("inner", "left")
Merge: TypeAlias = Callable[[dict[str, Any], "dict[str, Any] | None"], Any]


@dataclass(frozen=True)
class Table:
    """A table: the tuples of a component, each the new row of its key.

    `name` is the component, or component and stream. A tuple deletes its key if all its fields but
    the key and the time are None, or as `deleted` says: a field, or a function of the tuple.
    `versioned` keeps the history for so long. A row is forgotten `ttl` after it was written, by the
    clock; with `max_keys`, each task keeps those that were written last.
    """

    name: StreamName
    key: str | Sequence[str]
    versioned: Duration | None = None
    ttl: timedelta | None = None
    max_keys: int | None = None
    deleted: str | Callable[[Tuple], Any] | None = None

    def __post_init__(self) -> None:
        stream_named("Table: name", self.name)
        object.__setattr__(self, "key", tuple(Fields(self.key)))
        if not self.key:
            raise JoinError(f"table {self.name!r} has no key", hint='write Table(..., key="id")')
        check_limits(f"table {self.name!r}", self.ttl, self.max_keys)
        if self.versioned is not None and self.max_keys is not None:
            raise JoinError(
                f"table {self.name!r}: max_keys goes without versioned",
                hint="bound a versioned table by ttl",
            )

    @property
    def stream(self) -> tuple[str, str]:
        """The component and its stream."""
        return stream_named("Table: name", self.name)

    @property
    def keys(self) -> tuple[str, ...]:
        """The fields of the key."""
        return tuple(self.key)


def stream_named(what: str, name: Any) -> tuple[str, str]:
    """Return component and stream of what names a stream; raise a JoinError if it does not."""
    if isinstance(name, str) and name:
        return name, DEFAULT_STREAM
    if isinstance(name, tuple) and len(name) == 2 and all(isinstance(x, str) for x in name):
        return name
    raise JoinError(
        f"{what} is {name!r}; it takes a component, or a component and a stream",
        hint='write "rates", or ("rates", "stream")',
    )


def check_limits(what: str, ttl: Any, max_keys: Any) -> None:
    """Raise a JoinError unless these can bound a table."""
    if ttl is not None and (not isinstance(ttl, timedelta) or ttl <= timedelta(0)):
        raise JoinError(
            f"{what}: ttl is {ttl!r}; it takes a timedelta above zero",
            hint="write ttl=timedelta(days=1)",
        )
    whole = isinstance(max_keys, int) and not isinstance(max_keys, bool)
    if max_keys is not None and (not whole or max_keys < 1):
        raise JoinError(f"{what}: max_keys is {max_keys!r}; it must be a whole number above zero")


@dataclass(frozen=True)
class Rules:
    """The rules of a lookup, with durations in ticks."""

    left: bool
    """Rows without a match come out too."""
    history: int | None = None
    waits: bool = False
    grace: int | None = None
    ttl: float | None = None
    max_keys: int | None = None


def lookup_rules(
    *,
    how: str,
    time: EventTime | None,
    versioned: Duration | None,
    wait: bool,
    grace: Duration | None,
    ttl: timedelta | None = None,
    max_keys: int | None = None,
) -> Rules:
    """Return the rules of a lookup; raise a JoinError if they cannot be."""
    if how not in HOWS:
        raise JoinError(
            f"how is {how!r}; a join with a table is 'inner' or 'left'",
            hint=did_you_mean(str(how), HOWS),
        )
    if versioned is None:
        if grace is not None:
            raise JoinError(
                "grace needs a versioned table: the latest row does not depend on time",
                hint="write Table(..., versioned=timedelta(hours=1))",
            )
        return Rules(how == "left", ttl=_seconds(ttl), max_keys=max_keys)
    if time is None:
        raise JoinError("a versioned table needs event time", hint='write time=EventTime("ts")')
    ticks = None if grace is None else time.ticks(grace, "grace", at_least=0)
    history = time.ticks(versioned, "versioned", at_least=0)
    return Rules(how == "left", history, wait or ticks is not None, ticks, _seconds(ttl))


def _seconds(ttl: timedelta | None) -> float | None:
    return None if ttl is None else ttl.total_seconds()


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
        if time is not None and not isinstance(time, EventTime):
            raise JoinError(
                f"time is {time!r}; it takes an EventTime", hint='write time=EventTime("ts")'
            )
        self.inputs = stream_named("TableJoin: stream", stream), table.stream
        """Component and stream of the stream and of the table."""
        if self.inputs[0] == self.inputs[1]:
            raise JoinError(f"TableJoin: {stream!r} is both the stream and the table")
        self.table = table
        self.on = self._key(on)
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
        self.select = select.replace(" ", "").split(",") if isinstance(select, str) else select
        self.merge = merge
        self.own_outputs = tuple(Fields(outputs))
        waits = self.rules.waits and self.rules.grace is None  # no other row is late
        self.late_stream = late_stream if waits else None
        self.fields: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None)
        """The fields of both inputs, once the topology is built."""
        self._check_output()

    def _check_output(self) -> None:
        if callable(self.merge):
            pass
        elif self.merge not in MERGES:
            known = ", ".join(map(repr, MERGES))
            raise JoinError(f"merge is {self.merge!r}; it is one of {known}, or a function")
        elif self.own_outputs:
            raise JoinError("outputs go with a merge function; select names fields")
        if self.select is not None and self.merge != "prefix":
            raise JoinError("select and merge are two ways to say what comes out; give one")
        if len(self.on) != len(self.table.keys):
            raise JoinError(
                f"on has {len(self.on)} fields, and the key of {self.table.name!r} has "
                f"{len(self.table.keys)}"
            )

    def _key(self, on: Any) -> tuple[str, ...]:
        """Return the fields of the stream that hold the table's key."""
        if isinstance(on, Mapping):
            names = (self.inputs[0], self.inputs[0][0], "left")
            if not any(name in on for name in names):
                raise JoinError(
                    f"on has no key for {self.inputs[0][0]!r}; it has {', '.join(map(repr, on))}",
                    hint=f'write on={{{self.inputs[0][0]!r}: "field"}}',
                )
            on = next(on[name] for name in names if name in on)
        return tuple(Fields(self.table.keys if on is None else on))

    # -- what it declares ---------------------------------------------------------------------

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        found = {(read.component, read.stream): read.fields for read in inputs}
        self.fields = found.get(self.inputs[0]), found.get(self.inputs[1])

    def output(self) -> Output:
        """Return the fields of the output and their places."""
        if callable(self.merge):
            return Output(self.own_outputs or ("value",), (), {})
        own = self.time_names()
        left_out = self.table.keys
        if self.merge != "prefix" and own[0] == own[1] and own[0] is not None:
            left_out = (*left_out, own[0])
        left = Side(self.inputs[0][0], self.fields[0] or ())
        right = Side(self.inputs[1][0], self.fields[1] or (), left_out)
        if self.select is not None:
            return selected(self.select, (left, right))
        return merged(self.merge, left, right)

    def time_names(self) -> tuple[str | None, str | None]:
        """Return the time fields of the stream and of the table."""
        time = self.event_time
        if time is None:
            return None, None
        return time.field_of(self.inputs[0][0]), time.field_of(self.inputs[1][0])

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
        made = self.output()
        place = (0, own.index(name))
        return (made.names[made.places.index(place)], 0) if place in made.places else None

    def result_delay(self) -> int:
        return self.rules.grace or 0

    def timing(self) -> EventTime | None:
        time = self.event_time
        if time is None or self.rules.grace is None:
            return time
        return replace(time, untimed=(*time.untimed, self.inputs[1][0]))

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
        found = {(read.component, read.stream): read for read in inputs}
        for read in inputs:
            if (read.component, read.stream) not in self.inputs:
                text = f"{where} reads {read.component!r} stream {read.stream!r}, which it does not"
                yield Problem("join-input", where, f"{text} join", "take the grouping away")
        for stream, key in zip(self.inputs, (self.on, self.table.keys), strict=True):
            if stream not in found:
                text = f"{where} joins {_shown(stream)}, which it does not read"
                yield Problem("join-input", where, text, f"write {_grouping(stream, key)}")
        if all(stream in found for stream in self.inputs):
            reads = found[self.inputs[0]], found[self.inputs[1]]
            yield from self._field_problems(where, reads)
            yield from self._grouping_problems(where, reads, tasks)

    def _field_problems(
        self, where: str, reads: tuple[InputFields, InputFields]
    ) -> Iterable[Problem]:
        wanted = [(reads[0], f"the key {name!r}", name) for name in self.on]
        wanted += [(reads[1], f"the key {name!r}", name) for name in self.table.keys]
        if isinstance(self.table.deleted, str):
            wanted.append((reads[1], f"deleted={self.table.deleted!r}", self.table.deleted))
        for read, what, name in wanted:
            if name not in read.fields:
                text = f"{where}: {what} is no field of {read.component!r}"
                known = f"its fields are {', '.join(map(repr, read.fields))}"
                hint = did_you_mean(name, read.fields) or known
                yield Problem("join-key", where, text, hint)

    def _grouping_problems(
        self, where: str, reads: tuple[InputFields, InputFields], tasks: int
    ) -> Iterable[Problem]:
        everywhere = reads[1].grouping == "all" and reads[0].grouping != "all"
        if tasks == 1 or everywhere or {read.grouping for read in reads} == {"global"}:
            return
        for read, key in zip(reads, (self.on, self.table.keys), strict=True):
            if read.grouping == "fields" and read.grouping_fields == key:
                continue
            by = f"{read.grouping}({', '.join(read.grouping_fields)})"
            by = by if read.grouping_fields else read.grouping
            stream = (read.component, read.stream)
            text = (
                f"{where} joins by {', '.join(map(repr, key))} in {tasks} tasks, but reads "
                f"{_shown(stream)} by {by} grouping: rows and what they match come to different "
                "tasks"
            )
            yield Problem("join-grouping", where, text, f"write {_grouping(stream, key)}")

    def operator(self, task: OperatorTask) -> Operator:
        from topo.tables.lookup import TupleLookup

        return TupleLookup(self, task)


def _shown(stream: tuple[str, str]) -> str:
    return repr(stream[0]) if stream[1] == DEFAULT_STREAM else f"{stream[0]!r} stream {stream[1]!r}"


def _grouping(stream: tuple[str, str], fields: Sequence[str]) -> str:
    named = "" if stream[1] == DEFAULT_STREAM else f", stream={stream[1]!r}"
    return f".fields_grouping({stream[0]!r}, [{', '.join(map(repr, fields))}]{named})"
