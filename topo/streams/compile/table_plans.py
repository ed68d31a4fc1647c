"""From operators on tables to bolts.

Nothing is made for a table by itself: what needs it keeps it. A join reads the streams of both its
tables and holds their rows; a join whose result only another join by the same key needs becomes
part of that one's bolt, so that joining five tables is one exchange. A table that several operators
need by its changelog is kept once, by a bolt of its own, and the others read its changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from topo.errors import JoinError, StreamError
from topo.event_time import EventTime
from topo.streams.compile.program import Outlet
from topo.streams.graph import Node
from topo.tables.changelog import ChangelogBolt, KeyedTablesBolt
from topo.tables.expression import Expression, Filter, Join, Projection, TableRows
from topo.tables.foreign import ChangesByKeyBolt, ForeignJoinBolt
from topo.tables.groups import GroupedTableBolt
from topo.tables.leaving import KEY, TIME, VALUE, AsStream, ByForeignKey, ByGroup, ByKey, Leaving
from topo.tables.lookup import ROWS, LookupBolt
from topo.tables.sources import CHANGES, UPSERTS, SourcePlan
from topo.tables.table import lookup_rules

LAZY = {
    "to_table", "table_map", "table_filter", "table_join", "foreign_join", "table_aggregate",
}  # fmt: skip
"""The kinds of operators that are made when something needs them."""
_INLINE = {"table_map", "table_filter", "table_join"}


@dataclass(frozen=True)
class PlannedInput:
    """One table as a bolt reads it."""

    plan: SourcePlan
    grouped_by: str
    time: EventTime | None
    parallelism: int


@dataclass(frozen=True)
class TableKeeper:
    """A bolt that keeps tables, and the component it is in."""

    component: str
    bolt: Any
    parallelism: int
    time: EventTime | None


Add = Callable[[Node, Any, int, list[tuple[str, str, str]], list[Node]], str]
"""Add a component: its operator, bolt, tasks, inputs (component, stream, field); its name."""


class TablePlans:
    """The bolts of the tables of one program."""

    def __init__(self, nodes: list[Node], add: Add, exit_of: Callable[[Node, int], Outlet]) -> None:
        self._add = add
        self._exit_of = exit_of
        self._uses = Counter(id(read) for node in nodes for read in node.inputs)
        self._kept: dict[int, TableKeeper] = {}

    # -- what streams need --------------------------------------------------------------------

    def stream(self, node: Node) -> tuple[TableKeeper, str]:
        """Return the bolt and the stream of the changes of a table."""
        kept = self._keep(node.inputs[0])
        return kept, kept.bolt.leave(AsStream(node.options["both"]))

    def lookup(self, node: Node, late: str | None) -> TableKeeper:
        """Make the bolt of a stream that looks a table up; `late` is its stream of late rows."""
        stream, table = self._exit_of(node, 0), self._input(node.inputs[1])
        versioned = node.inputs[1].options.get("versioned")
        time, grace = stream.time, node.options["grace"]
        if versioned is not None and table.time is None:
            raise StreamError("a versioned table needs event time", at=node.place,
                              hint='give its stream time=EventTime("ts")')  # fmt: skip
        if time is not None:
            times = {stream.component: time}
            if table.time is None:
                time = replace(time, untimed=(*time.untimed, table.plan.component))
            else:
                times.setdefault(table.plan.component, table.time)
            untimed = time.untimed
            time = replace(_common(times, node), untimed=untimed)
        if grace is not None and table.plan.component == stream.component:
            raise StreamError(
                "grace needs a table that comes from another stream than the rows do",
                at=node.place,
            )
        options = node.inputs[1].options
        try:
            rules = lookup_rules(
                how=node.options["how"],
                time=time,
                versioned=versioned,
                wait=node.options["wait"],
                grace=grace,
                ttl=options.get("ttl"),
                max_keys=options.get("max_keys"),
            )
        except JoinError as error:
            raise StreamError(error.message, hint=error.hint, at=node.place) from None
        fields = (KEY, VALUE) if time is None else (KEY, VALUE, TIME)
        bolt = LookupBolt(rules, node.function, time, fields)
        bolt.late_stream = late
        bolt.kinds[stream.component, stream.stream] = ROWS
        bolt.kinds[table.plan.component, table.plan.stream] = table.plan.kind
        tasks = node.options["parallelism"] or max(stream.parallelism, table.parallelism)
        reads = [(stream.component, stream.stream, KEY), _read(table)]
        name = self._add(node, bolt, tasks, reads, _lazy(node.inputs[1]))
        later = None if stream.time is None else replace(stream.time, lag=0)
        return TableKeeper(name, bolt, tasks, later)

    # -- tables -------------------------------------------------------------------------------

    def _input(self, node: Node) -> PlannedInput:
        """Return a table as an input: its stream if it is made of one, else its changelog."""
        if node.kind == "to_table":
            place = self._exit_of(node, 0)
            options = node.options
            history = None
            if options["versioned"] is not None:
                if place.time is None:
                    raise StreamError("a versioned table needs event time", at=node.place,
                                      hint='give its stream time=EventTime("ts")')  # fmt: skip
                history = place.time.ticks(options["versioned"], "versioned", at_least=0)
            ttl: timedelta | None = options["ttl"]
            plan = SourcePlan(
                place.component,
                place.stream,
                UPSERTS,
                history,
                None if ttl is None else ttl.total_seconds(),
                options["max_keys"],
            )
            return PlannedInput(plan, KEY, place.time, place.parallelism)
        kept = self._keep(node)
        return self._changelog(kept, ByKey())

    def _changelog(self, kept: TableKeeper, way: Leaving) -> PlannedInput:
        stream = kept.bolt.leave(way)
        plan = SourcePlan(kept.component, stream, CHANGES)
        return PlannedInput(plan, way.grouped_by, kept.time, kept.parallelism)

    def _keep(self, node: Node) -> TableKeeper:
        """Return the bolt that emits the changes of a table."""
        found = self._kept.get(id(node))
        if found is None:
            if node.kind == "table_aggregate":
                found = self._aggregate(node)
            elif node.kind == "foreign_join":
                found = self._foreign(node)
            else:
                found = self._keyed(node)
            self._kept[id(node)] = found
        return found

    def _keyed(self, node: Node) -> TableKeeper:
        inputs: dict[int, tuple[int, PlannedInput]] = {}
        operators: list[Node] = []
        tree = self._tree(node, inputs, operators, root=True)
        found = [table for _, table in inputs.values()]
        time = _time_of(found, node)
        bolt = KeyedTablesBolt(
            [table.plan for table in found],
            tree,
            time,
            unchanged=node.options.get("unchanged", False),
        )
        asked = [one.options.get("parallelism", 0) for one in operators]
        tasks = max(asked) or max(table.parallelism for table in found)
        return self._made(node, bolt, tasks, found, operators)

    def _tree(
        self,
        node: Node,
        inputs: dict[int, tuple[int, PlannedInput]],
        operators: list[Node],
        *,
        root: bool = False,
    ) -> Expression:
        """Return what is computed of a table, down to the tables that are read."""
        if node.kind in _INLINE and (root or self._uses[id(node)] == 1):
            parts = [self._tree(of, inputs, operators) for of in node.inputs]
            operators.append(node)
            label = str(node)
            if node.kind == "table_map":
                return Projection(parts[0], node.function, label)
            if node.kind == "table_filter":
                return Filter(parts[0], node.function, label)
            return Join(parts[0], parts[1], node.options["how"], node.function, label)
        if id(node) not in inputs:
            inputs[id(node)] = len(inputs), self._input(node)
            if node.kind == "to_table":
                operators.append(node)
        return TableRows(inputs[id(node)][0])

    def _aggregate(self, node: Node) -> TableKeeper:
        table = node.inputs[0]
        self._refuse_forgetting(table, node, "an aggregate of a table")
        way = ByGroup(node.options["group"], node.options["part"], f"group_by at {node.place}")
        read = self._changelog(self._keep(table), way)
        time = _time_of([read], node)
        bolt = GroupedTableBolt(
            node.function, time, unchanged=node.options["unchanged"], label=str(node)
        )
        return self._made(node, bolt, node.options["parallelism"], [read], [node])

    def _foreign(self, node: Node) -> TableKeeper:
        left, right = node.inputs
        self._refuse_forgetting(left, node, "a join by a part of the value")
        self._refuse_forgetting(right, node, "a join by a part of the value")
        way = ByForeignKey(node.options["on"], str(node))
        reads = [self._changelog(self._keep(left), way), self._input(right)]
        time = _time_of(reads, node)
        unchanged = node.options["unchanged"]
        bolt = ForeignJoinBolt(
            reads[1].plan,
            node.options["how"],
            node.function,
            time,
            unchanged=unchanged,
            label=str(node),
        )
        kept = self._made(node, bolt, node.options["parallelism"], reads, [node, *_lazy(right)])
        if kept.parallelism == 1:
            return kept
        # A row that comes to point elsewhere changes in two tasks: one bolt makes it one change.
        read = self._changelog(kept, ByKey())
        together = ChangesByKeyBolt(_time_of([read], node), unchanged=unchanged)
        return self._made(node, together, kept.parallelism, [read], [node])

    def _made(
        self,
        node: Node,
        bolt: ChangelogBolt,
        tasks: int,
        reads: list[PlannedInput],
        shown: list[Node],
    ) -> TableKeeper:
        tasks = tasks or max(read.parallelism for read in reads)
        name = self._add(node, bolt, tasks, [_read(read) for read in reads], shown)
        time = bolt.event_time
        return TableKeeper(name, bolt, tasks, None if time is None else replace(time, lag=0))

    def _refuse_forgetting(self, table: Node, node: Node, what: str) -> None:
        """Raise an error if rows of a table may go unseen."""
        if table.kind == "to_table":
            limits = [name for name in ("ttl", "max_keys") if table.options[name] is not None]
            if limits:
                raise StreamError(
                    f"{what} needs to hear of every row that goes, and a table with {limits[0]} "
                    "forgets rows in silence",
                    at=node.place,
                    hint="delete rows by None values instead",
                )
        elif table.kind in _INLINE:
            for of in table.inputs:
                self._refuse_forgetting(of, node, what)


def _lazy(node: Node) -> list[Node]:
    return [node] if node.kind == "to_table" else []


def _read(table: PlannedInput) -> tuple[str, str, str]:
    return table.plan.component, table.plan.stream, table.grouped_by


def _time_of(tables: list[PlannedInput], node: Node) -> EventTime | None:
    """Return the event time of what comes of tables; None if one of them has none."""
    times = {table.plan.component: table.time for table in tables}
    timed = {component: time for component, time in times.items() if time is not None}
    return _common(timed, node) if len(timed) == len(times) else None


def _common(times: dict[str, EventTime], node: Node) -> EventTime:
    """Return one event time for inputs that may differ in their lags."""
    first = next(iter(times.values()))
    if len({time.unit for time in times.values()}) > 1:
        raise StreamError(
            "the tables have event times in different units", at=node.place,
            hint="give all of them the same unit",
        )  # fmt: skip
    lags = {name: _lag(time, name) for name, time in times.items()}
    lag = lags if len(set(lags.values())) > 1 else next(iter(lags.values()))
    return replace(first, field=TIME, extractor=None, lag=lag)


def _lag(time: EventTime, component: str) -> timedelta:
    return timedelta(microseconds=time.lag_of(component) * 1_000_000 // time.per_second)
