"""Tables in a program of streams: the latest value of each key, joined, grouped, aggregated.

`KeyedStream.to_table` makes one of a stream, in which a value replaces the one with the same key
and None deletes it. What follows from a table is kept up to date; `to_stream` gives each change.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from topo.errors import StreamError
from topo.event_time import Duration
from topo.operators.aggregates.combiners import Combiner, Count, in_tables
from topo.operators.aggregates.retractable import RetractableAggregate
from topo.streams.api.elements import KeyedStream
from topo.streams.combiners import ValueOf, check_combiner
from topo.streams.graph import Node, check_function, getter, users_place
from topo.tables.by_hand import ByHand
from topo.tables.expression import INNER, LEFT, OUTER, RIGHT
from topo.tables.leaving import RowChange
from topo.tables.table import check_limits

if TYPE_CHECKING:
    from topo.streams.api.builder import StreamBuilder

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
R = TypeVar("R")
G = TypeVar("G")
F = TypeVar("F")

Foreign = str | Callable[[Any], Any]


class StreamTable(Generic[K, V]):
    """A table: the latest value of each key."""

    def __init__(self, builder: StreamBuilder, node: Node) -> None:
        self._builder = builder
        self._node = node

    def named(self, name: str) -> StreamTable[K, V]:
        """Name the component that keeps the table, so that a checkpoint knows it again."""
        self._node.name = name
        return self

    def _next(self, kind: str, function: Any, *others: Any, **options: Any) -> Node:
        inputs = (self._node, *(other._node for other in others))
        return self._builder.add(Node(kind, inputs, True, function, options))

    # -- one table ----------------------------------------------------------------------------

    def map_values(self, function: Callable[[V], R]) -> StreamTable[K, R]:
        """Replace each value by the function's result; None is no value."""
        node = self._next("table_map", check_function("map_values", function))
        return StreamTable(self._builder, node)

    def filter(self, predicate: Callable[[K, V], Any]) -> StreamTable[K, V]:
        """Return the table of the rows for which the predicate of key and value holds."""
        node = self._next("table_filter", check_function("filter", predicate))
        return StreamTable(self._builder, node)

    def to_stream(self) -> KeyedStream[K, V | None]:
        """Return the new value at each change; None for a deletion."""
        return KeyedStream(self._builder, self._next("table_stream", None, both=False))

    def changes(self) -> KeyedStream[K, RowChange]:
        """Return the values before and after each change."""
        return KeyedStream(self._builder, self._next("table_stream", None, both=True))

    def group_by(self, group: Callable[[K, V], G]) -> GroupedTable[G, V]:
        """Put each row into the group that the function of key and value gives; None is none."""
        check_function("group_by", group)
        return GroupedTable(self, group)

    # -- two tables ---------------------------------------------------------------------------

    @overload
    def join(self, other: StreamTable[K, W]) -> StreamTable[K, tuple[V, W]]: ...
    @overload
    def join(
        self,
        other: StreamTable[K, W],
        merge: Callable[[V, W], R],
        *,
        emit_unchanged: bool = ...,
        parallelism: int = ...,
    ) -> StreamTable[K, R]: ...
    @overload
    def join(
        self,
        other: StreamTable[F, W],
        merge: Callable[[V, W], R],
        *,
        on: str | Callable[[V], F | None],
        emit_unchanged: bool = ...,
        parallelism: int = ...,
    ) -> StreamTable[K, R]: ...
    def join(
        self,
        other: StreamTable[Any, W],
        merge: Callable[..., Any] | None = None,
        *,
        on: Foreign | None = None,
        emit_unchanged: bool = False,
        parallelism: int = 0,
    ) -> StreamTable[K, Any]:
        """Return `merge(value, other value)` for each key that both tables have.

        With `on`, a part of the value or a function of it, the other table is looked up by what
        it gives, not by the key.
        """
        return self._join(INNER, other, merge, on, emit_unchanged, parallelism)

    def left_join(
        self,
        other: StreamTable[Any, W],
        merge: Callable[[V, W | None], R],
        *,
        on: Foreign | None = None,
        emit_unchanged: bool = False,
        parallelism: int = 0,
    ) -> StreamTable[K, R]:
        """Return the function's result for each row; the other value is None without a match."""
        return self._join(LEFT, other, merge, on, emit_unchanged, parallelism)

    def right_join(
        self,
        other: StreamTable[K, W],
        merge: Callable[[V | None, W], R],
        *,
        emit_unchanged: bool = False,
        parallelism: int = 0,
    ) -> StreamTable[K, R]:
        """Return the function's result for each row of the other table."""
        return self._join(RIGHT, other, merge, None, emit_unchanged, parallelism)

    def outer_join(
        self,
        other: StreamTable[K, W],
        merge: Callable[[V | None, W | None], R],
        *,
        emit_unchanged: bool = False,
        parallelism: int = 0,
    ) -> StreamTable[K, R]:
        """Return the function's result for each key that either table has."""
        return self._join(OUTER, other, merge, None, emit_unchanged, parallelism)

    def _join(
        self, how: str, other: Any, function: Any, on: Any, unchanged: bool, parallelism: int
    ) -> StreamTable[K, Any]:
        if not isinstance(other, StreamTable):
            raise StreamError(
                f"a table joins a table; got {type(other).__name__}",
                hint="write .to_table() behind the stream, or stream.join(table)",
                at=users_place(),
            )
        if function is not None:
            check_function("join", function)
        options: dict[str, Any] = {"how": how, "unchanged": unchanged, "parallelism": parallelism}
        if on is None:
            node = self._next("table_join", function, other, **options)
        else:
            options["on"] = getter(on, "join")
            node = self._next("foreign_join", function or _pair, other, **options)
        return StreamTable(self._builder, node)


class GroupedTable(Generic[G, V]):
    """The rows of a table in groups; an aggregate makes a table of them."""

    def __init__(self, table: StreamTable[Any, V], group: Callable[[Any, V], Any]) -> None:
        self._table = table
        self._group = group

    def count(self, *, emit_unchanged: bool = False, parallelism: int = 0) -> StreamTable[G, int]:
        """Return the number of rows in each group."""
        return self.aggregate(Count(), emit_unchanged=emit_unchanged, parallelism=parallelism)

    def reduce(
        self,
        adder: Callable[[Any, V], Any],
        subtractor: Callable[[Any, V], Any],
        *,
        emit_unchanged: bool = False,
        parallelism: int = 0,
    ) -> StreamTable[G, Any]:
        """Combine the values of a group, `adder(result, value)`, beginning with the first."""
        first = _Reducing(check_function("reduce", adder))
        return self.aggregate(
            adder=first,
            subtractor=check_function("reduce", subtractor),
            emit_unchanged=emit_unchanged,
            parallelism=parallelism,
        )

    def aggregate(
        self,
        combiner: Combiner | None = None,
        *,
        init: Any = None,
        adder: Callable[[Any, V], Any] | None = None,
        subtractor: Callable[[Any, V], Any] | None = None,
        emit_unchanged: bool = False,
        parallelism: int = 0,
    ) -> StreamTable[G, Any]:
        """Return the aggregate of each group, kept up to date as rows come, change, move and go.

        Instead of a combiner: `init`, a value or a function that makes it, `adder(result, value)`
        and `subtractor(result, value)`. The old value of a row is taken away before the new one is
        added. A group ends if they return None, and if it is what it began with and has no rows.
        """
        made: RetractableAggregate
        part: Any = None
        if combiner is None:
            if adder is None or subtractor is None:
                raise StreamError(
                    "rows of a table come and go: an aggregate needs an adder and a subtractor",
                    hint="give both, or a combiner such as Count()",
                    at=users_place(),
                )
            made = ByHand(
                init, check_function("aggregate", adder), check_function("aggregate", subtractor)
            )
        else:
            check_combiner(combiner)
            try:
                made = in_tables(combiner)
            except StreamError as error:
                raise StreamError(error.message, hint=error.hint, at=users_place()) from None
            part = ValueOf(combiner) if combiner.inputs else _nothing
        node = self._table._next(
            "table_aggregate",
            made,
            group=self._group,
            part=part,
            unchanged=emit_unchanged,
            parallelism=parallelism,
        )
        return StreamTable(self._table._builder, node)


class _Reducing:
    """An adder whose first value is the result itself."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def __call__(self, acc: Any, value: Any) -> Any:
        return value if acc is None else self.function(acc, value)


class Deleting:
    """The value of an element, or None if it deletes its key."""

    def __init__(self, deleted: Callable[[Any], Any]) -> None:
        self.deleted = deleted

    def __call__(self, value: Any) -> Any:
        return None if self.deleted(value) else value


def _pair(left: Any, right: Any) -> tuple[Any, Any]:
    return left, right


def _nothing(value: Any) -> None:
    return None


def table_of(
    stream: KeyedStream[K, V],
    *,
    versioned: Duration | None,
    ttl: timedelta | None,
    max_keys: int | None,
    deleted: Any,
    emit_unchanged: bool,
    parallelism: int,
) -> StreamTable[K, V]:
    """Return the table of a stream."""
    try:
        check_limits("to_table", ttl, max_keys)
    except ValueError as error:
        raise StreamError(str(error), at=users_place()) from None
    if versioned is not None and max_keys is not None:
        raise StreamError("to_table: max_keys goes without versioned", at=users_place())
    if deleted is not None:
        stream = stream.map_values(Deleting(check_function("to_table", deleted)))
    node = stream._next(
        "to_table",
        keyed=True,
        versioned=versioned,
        ttl=ttl,
        max_keys=max_keys,
        unchanged=emit_unchanged,
        parallelism=parallelism,
    )
    return StreamTable(stream._builder, node)


def lookup(
    how: str,
    stream: KeyedStream[Any, Any],
    table: StreamTable[Any, Any],
    merge: Any = None,
    *,
    wait: bool = True,
    grace: Duration | None = None,
    parallelism: int = 0,
) -> KeyedStream[Any, Any]:
    """Return the stream of values with what the table has for their keys."""
    if merge is not None:
        check_function("join", merge)
    options = {"how": how, "wait": wait, "grace": grace, "parallelism": parallelism}
    # An element without a value is none. So unlike one that a filter drops, it has no time either.
    valued = stream._next("with_value", keyed=True)
    node = Node("table_lookup", (valued, table._node), True, merge or _pair, options)
    return KeyedStream(stream._builder, stream._builder.add(node))
