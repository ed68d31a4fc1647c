"""Streams of elements, with and without keys, and the operators on them.

Each method adds an operator to the builder's graph and returns the stream behind it. The types
follow the functions, so that a type checker knows what a lambda gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload

from topo.errors import StreamError, WindowError
from topo.event_time import Duration, EventTime
from topo.operators.aggregates.combiners import Collect, Combiner, Count
from topo.patterns import Match
from topo.patterns.pattern import Pattern
from topo.streams.api.endings import Endings, check_grouping
from topo.streams.api.joinable import Joinable
from topo.streams.api.missing import missing_operator
from topo.streams.combiners import Fold, Least, Reduce, adding, top
from topo.streams.graph import TIME, Node, Part, PartOfValue, check_function, getter, users_place
from topo.streams.process import Process
from topo.streams.state import MapState
from topo.windows.assigners import WindowSpec
from topo.windows.triggers import Trigger

if TYPE_CHECKING:
    from topo.streams.api.results import Aggregated, State, WindowedStream
    from topo.streams.api.tables import StreamTable

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")

IDLE = EventTime.idle


_GO_BY_WATERMARK = {
    "window", "join", "cogroup", "table_lookup", "process", "dedupe", "detect",
}  # fmt: skip


class Stream(Endings[T]):
    """A stream of elements."""

    if not TYPE_CHECKING:  # for which any name would be an attribute

        def __getattr__(self, name: str) -> Any:
            raise missing_operator(type(self), name, KeyedStream)

    def named(self, name: str) -> Self:
        """Name the component of the last operator, so that a checkpoint knows it again."""
        self._node.name = name
        return self

    def map(self, function: Callable[[T], U]) -> Stream[U]:
        """Return the function's result for each element."""
        mapped: Stream[U] = self._then("map", function)
        return mapped

    def filter(self, predicate: Callable[[T], Any]) -> Stream[T]:
        """Return the elements for which the predicate holds."""
        kept: Stream[T] = self._then("filter", predicate)
        return kept

    def filter_map(self, function: Callable[[T], U | None]) -> Stream[U]:
        """Return the function's results that are not None."""
        mapped: Stream[U] = self._then("filter_map", function)
        return mapped

    def flat_map(self, function: Callable[[T], Iterable[U] | None]) -> Stream[U]:
        """Return each of the values that the function returns or yields for an element."""
        mapped: Stream[U] = self._then("flat_map", function)
        return mapped

    def map_batches(
        self,
        function: Callable[[Any], Any],
        fields: str | Iterable[str] = "value",
        *,
        parallelism: int = 1,
        name: str = "",
    ) -> Stream[Any]:
        """Return what the function makes of many elements at once: pyarrow.RecordBatches.

        Their column is `value`, or they have the fields of the source right behind it. The function
        returns an array, or columns with these fields: as many rows as there are elements, or a
        pair of columns and, for each row, the position of its element.
        """
        from topo.streams.batches import BatchFunction

        check_function("map_batches", function)
        bolt = BatchFunction(function, fields)
        grouping = "shuffle" if self._node.keyed else None
        return self.through(bolt, parallelism=parallelism, grouping=grouping, name=name)

    def peek(self, function: Callable[[T], Any]) -> Stream[T]:
        """Call the function with each element, and pass the element on."""
        seen: Stream[T] = self._then("peek", function)
        return seen

    @overload
    def key_by(self) -> KeyedStream[T, T]: ...
    @overload
    def key_by(self, key: Callable[[T], K]) -> KeyedStream[K, T]: ...
    @overload
    def key_by(self, key: str) -> KeyedStream[Any, T]: ...
    def key_by(self, key: Any = None) -> KeyedStream[Any, T]:
        """Give each element a key: the function's result, a named part, or the element itself."""
        node = self._next("key_by", getter(key, "key_by"), keyed=True)
        return KeyedStream(self._builder, node)

    def group_by(self, key: str | Callable[[T], K]) -> KeyedStream[K, T]:
        """Do what `key_by` does; the exchange comes with the first operator that needs it."""
        return self.key_by(key)

    def pairs(self) -> KeyedStream[Any, Any]:
        """Take elements that are pairs for keys and values."""
        return KeyedStream(self._builder, self._next("pairs", keyed=True))

    def branch(
        self, *, default: str | None = None, **predicates: Callable[[T], Any]
    ) -> dict[str, Stream[T]]:
        """Return a stream for each predicate; an element goes to the first that holds.

        The rest goes to the stream named by `default`; without it, nowhere.
        """
        for predicate in predicates.values():
            check_function("branch", predicate)
        cases: list[tuple[str, Any]] = list(predicates.items())
        if default is not None:
            if default in predicates:
                raise StreamError(
                    f"branch: {default!r} is both a predicate and the default", at=users_place()
                )
            cases.append((default, None))
        if not cases:
            raise StreamError(
                "branch needs a predicate",
                at=users_place(),
                hint="write .branch(large=lambda x: x > 100, default='small')",
            )
        first: Node | None = None
        streams = {}
        for name, _ in cases:
            node = self._next("branch", cases, keyed=self._node.keyed, taken=name)
            first = first or node
            node.options = {"taken": name, "branch": first}
            streams[name] = self._like(node)
        return streams

    def merge(self, *others: Stream[T]) -> Stream[T]:
        """Return the elements of this stream and the others; the order within each stays."""
        nodes = [self._node, *[other._node for other in others]]
        if len({node.keyed for node in nodes}) > 1:
            raise StreamError(
                "merge takes streams that all have keys, or none",
                at=users_place(),
                hint="write .key_by(...) or .values() first",
            )
        node = Node("merge", tuple(nodes), self._node.keyed)
        merged: Stream[T] = self._like(self._builder.add(node))
        return merged

    def late(self) -> KeyedStream[Any, Any]:
        """Return what came too late for this operator: pairs of a key and a value, without a time.

        It goes right behind what goes by a watermark: a window's aggregate, a join, a cogroup in
        windows, `process`, which does not get them then, `dedupe` and `detect`.
        """
        node = self._node
        if node.kind not in _GO_BY_WATERMARK:
            raise StreamError(
                f"late() goes right behind a window's aggregate, a join, process, dedupe or "
                f"detect; this is {node.kind}",
                hint="write counts = keyed.window(...).count(), then counts.late()",
                at=users_place(),
            )
        return KeyedStream(self._builder, self._next("late", keyed=True))

    def repartition(self, parallelism: int, by: str = "shuffle") -> Stream[T]:
        """Deal the elements over another number of tasks: "shuffle", "broadcast" or "global"."""
        check_grouping("repartition", by)
        node = self._next("repartition", keyed=self._node.keyed, parallelism=parallelism, by=by)
        dealt: Stream[T] = self._like(node)
        return dealt

    def times(
        self,
        of: str | Callable[[T], Any],
        *,
        lag: Duration = 0,
        unit: str = "ms",
        idle: timedelta | None = IDLE,
        when_idle: str = "leave",
        max_ahead: timedelta | None = None,
        on_bad: str = "error",
    ) -> Self:
        """Give each element its event time: a part of it, or the function's result.

        Operators behind go by that time. The options are those of `EventTime`: `lag` is how much
        later than the highest time an element may come. In a stream with keys a part is one of the
        value. What was dropped before has no time, so write it in front of filters.
        """
        reads = getter(of, "times")
        if self._node.keyed and isinstance(reads, Part):
            reads = PartOfValue(reads.name)
        try:
            time = EventTime(
                TIME,
                lag=lag,
                unit=unit,
                idle=idle,
                when_idle=when_idle,
                max_ahead=max_ahead,
                on_bad=on_bad,
            )
        except WindowError as error:
            raise StreamError(error.message, hint=error.hint, at=users_place()) from None
        return cast(Self, self._like(self._next("times", reads, keyed=self._node.keyed, time=time)))

    def aggregate(self, combiner: Combiner) -> Stream[Any]:
        """Return one result a batch over all elements; an empty batch gives that of nothing."""
        node = self._next("aggregate", adding(combiner), keyed=False)
        return Stream(self._builder, node)

    def count(self) -> Stream[int]:
        """Return the number of elements of each batch."""
        return self.aggregate(Count())

    @overload
    def to_table(
        self, key: Callable[[T], K], *, versioned: Duration | None = ...,
        ttl: timedelta | None = ..., max_keys: int | None = ...,
        deleted: Callable[[T], Any] | None = ..., emit_unchanged: bool = ...,
        parallelism: int = ...,
    ) -> StreamTable[K, T]: ...  # fmt: skip
    @overload
    def to_table(
        self, key: str, *, versioned: Duration | None = ..., ttl: timedelta | None = ...,
        max_keys: int | None = ..., deleted: Callable[[T], Any] | None = ...,
        emit_unchanged: bool = ..., parallelism: int = ...,
    ) -> StreamTable[Any, T]: ...  # fmt: skip
    def to_table(
        self,
        key: Any,
        *,
        versioned: Duration | None = None,
        ttl: timedelta | None = None,
        max_keys: int | None = None,
        deleted: Callable[[T], Any] | None = None,
        emit_unchanged: bool = False,
        parallelism: int = 0,
    ) -> StreamTable[Any, T]:
        """Return the table of the latest element of each key; see `KeyedStream.to_table`."""
        return self.key_by(key).to_table(
            versioned=versioned,
            ttl=ttl,
            max_keys=max_keys,
            deleted=deleted,
            emit_unchanged=emit_unchanged,
            parallelism=parallelism,
        )

    def window(
        self,
        window: WindowSpec,
        *,
        trigger: Trigger | None = None,
        mode: str = "accumulate",
        allowed_lateness: Duration | str = 0,
        parallelism: int = 0,
    ) -> WindowedStream[None, T]:
        """Gather the elements in windows, all keys together."""
        keyed = self.key_by(_no_key)
        return keyed.window(
            window,
            trigger=trigger,
            mode=mode,
            allowed_lateness=allowed_lateness,
            parallelism=parallelism,
        )

    def dedupe(
        self,
        by: str | Callable[[T], Any] | None = None,
        within: timedelta | None = None,
        *,
        parallelism: int = 0,
    ) -> Stream[T]:
        """Return the first of the elements with an equal `by`; with `within`, for that long."""
        keyed = self.key_by(getter(by, "dedupe")) if by is not None else self.key_by()
        return keyed._dedupe(within, parallelism)

    def _then(self, kind: str, function: Any) -> Any:
        node = self._next(kind, check_function(kind, function), keyed=False)
        return self._like(node)

    def _like(self, node: Node) -> Any:
        return (KeyedStream if node.keyed else Stream)(self._builder, node)


class KeyedStream(Joinable[K, V], Stream[tuple[K, V]], Generic[K, V]):
    """A stream of pairs of a key and a value; operators with state work by key."""

    def _then(self, kind: str, function: Any) -> Any:
        keeps = kind in ("filter", "peek")
        node = self._next(kind, check_function(kind, function), keyed=keeps)
        return self._like(node)

    def filter(self, predicate: Callable[[tuple[K, V]], Any]) -> KeyedStream[K, V]:
        """Return the pairs for which the predicate holds; keys stay where they are."""
        kept: KeyedStream[K, V] = self._then("filter", predicate)
        return kept

    if TYPE_CHECKING:  # of pairs, they give pairs

        def peek(self, function: Callable[[tuple[K, V]], Any]) -> KeyedStream[K, V]: ...
        def merge(self, *others: Stream[tuple[K, V]]) -> KeyedStream[K, V]: ...
        def repartition(self, parallelism: int, by: str = "shuffle") -> KeyedStream[K, V]: ...
        def branch(  # type: ignore[override]  # a dict has one type of values
            self, *, default: str | None = None, **predicates: Callable[[tuple[K, V]], Any]
        ) -> dict[str, KeyedStream[K, V]]: ...

    def map_values(self, function: Callable[[V], W]) -> KeyedStream[K, W]:
        """Replace each value by the function's result; keys stay where they are."""
        node = self._next("map_values", check_function("map_values", function), keyed=True)
        return KeyedStream(self._builder, node)

    def flat_map_values(self, function: Callable[[V], Iterable[W] | None]) -> KeyedStream[K, W]:
        """Return a pair for each of the values that the function returns or yields."""
        node = self._next("flat_map_values", check_function("flat_map", function), keyed=True)
        return KeyedStream(self._builder, node)

    def keys(self) -> Stream[K]:
        """Return the keys alone."""
        return Stream(self._builder, self._next("keys", keyed=False))

    def values(self) -> Stream[V]:
        """Return the values alone."""
        return Stream(self._builder, self._next("values", keyed=False))

    # -- running aggregates -------------------------------------------------------------------

    def aggregate(self, combiner: Combiner, *, parallelism: int = 0) -> Aggregated[K, Any]:
        """Return the aggregate by key over everything so far, at each value."""
        return self._running("aggregate", adding(combiner), parallelism)

    def count(self, *, parallelism: int = 0) -> Aggregated[K, int]:  # type: ignore[override]  # by key
        """Return the number of values of a key so far, at each value."""
        return self._running("count", adding(Count()), parallelism)

    def reduce(self, function: Callable[[V, V], V], *, parallelism: int = 0) -> Aggregated[K, V]:
        """Combine the values of a key two at a time."""
        return self._running("reduce", Reduce(check_function("reduce", function)), parallelism)

    def fold(
        self, first: Any, function: Callable[[Any, V], W], *, parallelism: int = 0
    ) -> Aggregated[K, W]:
        """Combine the values of a key with an accumulator, `function(accumulator, value)`.

        `first` is the accumulator before the first value, of which each key has a copy, or a
        function that makes it.
        """
        fold = Fold(first, check_function("fold", function))
        return self._running("fold", fold, parallelism)

    def min(
        self, by: str | Callable[[V], Any] | None = None, *, parallelism: int = 0
    ) -> Aggregated[K, V]:
        """Return the value with the lowest `by` so far; of equal ones, the first."""
        return self._running("min", Least(getter(by, "min"), -1), parallelism)

    def max(
        self, by: str | Callable[[V], Any] | None = None, *, parallelism: int = 0
    ) -> Aggregated[K, V]:
        """Return the value with the highest `by` so far; of equal ones, the first."""
        return self._running("max", Least(getter(by, "max"), 1), parallelism)

    def top(
        self, n: int, by: str | Callable[[V], Any] | None = None, *, parallelism: int = 0
    ) -> Aggregated[K, list[Any]]:
        """Return the n values with the highest `by` so far, highest first, each with its `by`."""
        return self._running("top", adding(top(n, by)), parallelism)

    def collect(self, *, parallelism: int = 0) -> Aggregated[K, list[V]]:
        """Return all values of a key so far, as they came."""
        return self._running("collect", adding(Collect()), parallelism)

    def distinct(self, *, parallelism: int = 0) -> KeyedStream[K, V]:
        """Return each pair of key and value once."""
        return self.dedupe(parallelism=parallelism).pairs()

    def update_state_by_key(
        self, first: Any, function: Callable[[Any, V], Any], *, parallelism: int = 0
    ) -> KeyedStream[K, Any]:
        """Replace the state of a key by `function(state, value)`, return it; None forgets it.

        `first` is the state before the first value, as in `fold`.
        """
        check_function("update_state_by_key", function)
        fold = Fold(first, function)
        return self._running("update_state_by_key", fold, parallelism, drops=True)

    def _running(
        self, kind: str, combiner: Combiner, parallelism: int = 0, *, drops: bool = False
    ) -> Aggregated[K, Any]:
        from topo.streams.api.results import Aggregated

        node = self._next(kind, combiner, keyed=True, parallelism=parallelism, drops=drops)
        return Aggregated(self._builder, node)

    # -- tables -------------------------------------------------------------------------------

    def to_table(  # type: ignore[override]  # the stream has keys
        self,
        key: Any = None,
        *,
        versioned: Duration | None = None,
        ttl: timedelta | None = None,
        max_keys: int | None = None,
        deleted: Callable[[V], Any] | None = None,
        emit_unchanged: bool = False,
        parallelism: int = 0,
    ) -> StreamTable[K, V]:
        """Return the table of the latest value of each key; None deletes the key.

        `deleted` says of other values that they delete. `versioned` keeps the history for so long:
        streams look up what was valid at their own time, and older values do not replace newer
        ones. A value is forgotten `ttl` after it was written, by the clock; with `max_keys`, each
        task keeps those written last.
        """
        from topo.streams.api.tables import table_of

        stream: Any = self if key is None else self.key_by(key)
        table: StreamTable[K, V] = table_of(
            stream,
            versioned=versioned,
            ttl=ttl,
            max_keys=max_keys,
            deleted=deleted,
            emit_unchanged=emit_unchanged,
            parallelism=parallelism,
        )
        return table

    # -- own logic, state, windows ------------------------------------------------------------

    def process(
        self, process: Process[K, V, Any], *, keyed: bool = True, parallelism: int = 0
    ) -> KeyedStream[Any, Any]:
        """Run own logic by key, with state and timers; with `keyed=False` it emits plain values."""
        if isinstance(process, type) or not isinstance(process, Process):
            raise StreamError(
                f"process() takes an instance of a Process; got {process!r}",
                at=users_place(),
                hint="subclass topo.streams.Process and give an instance",
            )
        node = self._next("process", process, keyed=keyed, parallelism=parallelism)
        streamed: KeyedStream[Any, Any] = self._like(node)
        return streamed

    def detect(
        self,
        pattern: Pattern,
        select: Mapping[str, str] | Callable[[Match], Any] | None = None,
        *,
        limit: int | None = None,
        parallelism: int = 0,
    ) -> Detected[Any]:
        """Return what matches a pattern, by key: a `Match`, or what `select` makes of it.

        Conditions read parts of the elements. `select` takes texts by name, for records of them, or
        a function of the match. `limit` is the most open matches of a key.
        """
        if not isinstance(pattern, Pattern):
            raise StreamError(
                f"detect takes a Pattern; got {pattern!r:.80}",
                hint='write .detect(Pattern("a", ...).followed_by("b", ...))',
                at=users_place(),
            )
        pattern.check()
        if select is not None and not isinstance(select, Mapping):
            check_function("detect", select)
        node = self._next(
            "detect", pattern, keyed=False, select=select, limit=limit, parallelism=parallelism
        )
        return Detected(self._builder, node)

    def _dedupe(self, within: timedelta | None, parallelism: int) -> Stream[Any]:
        node = self._next("dedupe", within, keyed=False, parallelism=parallelism)
        return Stream(self._builder, node)

    def persistent_aggregate(
        self, combiner: Combiner, state: MapState | None = None, *, parallelism: int = 0
    ) -> State[K]:
        """Keep the aggregate by key over everything so far, in a state that can be asked.

        Values are added up within each batch before they are exchanged. `state` is a store outside;
        without it the state is topo's own.
        """
        from topo.streams.api.results import State

        added = adding(combiner)
        if not added.mergeable:
            raise StreamError(
                f"persistent_aggregate adds up partial results, and {type(combiner).__name__} has "
                "no merge",
                at=users_place(),
                hint="give the combiner a merge method",
            )
        node = self._next(
            "persistent_aggregate", added, keyed=True, outside=state, parallelism=parallelism
        )
        return State(self._builder, node)

    def state_query(
        self, state: State[K], function: Callable[[K, Any], Any] | None = None
    ) -> KeyedStream[K, Any]:
        """Ask a state for each key; a key that it does not have gives None.

        The answer is the value, or `function(key, value)`, as of the end of the batch.
        """
        node = Node("state_query", (self._node, state._node), True, function)
        return KeyedStream(self._builder, self._builder.add(node))

    def window(  # type: ignore[override]  # by key
        self,
        window: WindowSpec,
        *,
        trigger: Trigger | None = None,
        mode: str = "accumulate",
        allowed_lateness: Duration | str = 0,
        parallelism: int = 0,
    ) -> WindowedStream[K, V]:
        """Gather the values of each key in windows, by event time if the stream has one."""
        from topo.streams.api.results import WindowedStream

        options = {
            "window": window,
            "trigger": trigger,
            "mode": mode,
            "allowed_lateness": allowed_lateness,
            "parallelism": parallelism,
        }
        return WindowedStream(self._builder, self._node, options)


def _no_key(value: Any) -> None:
    return None


class Detected(Stream[T]):
    """The matches of a pattern."""

    @property
    def timed_out(self) -> Stream[Match]:
        """The partial matches that timed out."""
        node = self._next("timed_out", keyed=False)
        node.make_only_if_read()
        return Stream(self._builder, node)
