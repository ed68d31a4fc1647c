"""Streams of elements, with and without keys, and the operators on them.

Each method adds an operator to the builder's graph and returns the stream behind it. The types
follow the functions, so that a type checker knows what a lambda gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from topo.errors import StreamError
from topo.event_time import Duration
from topo.streams.endings import Endings
from topo.streams.graph import Node, check_function, getter, users_place
from topo.streams.joinable import Joinable
from topo.streams.keyed import Process
from topo.streams.running import Forgetful
from topo.streams.state import MapState
from topo.streams.windowed import Fold, Least, Reduce, adding, top
from topo.windows.assigners import WindowSpec
from topo.windows.combiners import Collect, Combiner, Count
from topo.windows.triggers import Trigger

if TYPE_CHECKING:
    from topo.streams.results import Aggregated, State, WindowedStream
    from topo.streams.tables import StreamTable

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


class Stream(Endings[T]):
    """A stream of elements."""

    def named(self, name: str) -> Stream[T]:
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

    def repartition(self, parallelism: int, by: str = "shuffle") -> Stream[T]:
        """Deal the elements over another number of tasks: "shuffle", "broadcast" or "global"."""
        if by not in GROUPINGS:
            known = ", ".join(map(repr, GROUPINGS))
            raise StreamError(f"repartition by {by!r}; it is one of {known}", at=users_place())
        node = self._next("repartition", keyed=self._node.keyed, parallelism=parallelism, by=by)
        dealt: Stream[T] = self._like(node)
        return dealt

    def aggregate(self, combiner: Combiner, *, parallelism: int = 1) -> Stream[Any]:
        """Return one result a batch over all elements; an empty batch gives that of nothing."""
        node = self._next("aggregate", adding(combiner), keyed=False, parallelism=parallelism)
        return Stream(self._builder, node)

    def count(self) -> Stream[int]:
        """Return the number of elements of each batch."""
        return self.aggregate(Count())

    @overload
    def to_table(self, key: Callable[[T], K], **limits: Any) -> StreamTable[K, T]: ...
    @overload
    def to_table(self, key: str, **limits: Any) -> StreamTable[Any, T]: ...
    def to_table(self, key: Any, **limits: Any) -> StreamTable[Any, T]:
        """Return the table of the latest element of each key; see `KeyedStream.to_table`."""
        return self.key_by(key).to_table(**limits)

    def window(self, window: WindowSpec, **options: Any) -> WindowedStream[None, T]:
        """Gather the elements in windows, all keys together."""
        keyed = self.key_by(_no_key)
        return keyed.window(window, **options)

    def dedupe(
        self, by: str | Callable[[T], Any] | None = None, within: timedelta | None = None
    ) -> Stream[T]:
        """Return the first of the elements with an equal `by`; with `within`, for that long."""
        keyed = self.key_by(getter(by, "dedupe")) if by is not None else self.key_by()
        return keyed._dedupe(within)

    def _then(self, kind: str, function: Any) -> Any:
        node = self._next(kind, check_function(kind, function), keyed=False)
        return self._like(node)

    def _like(self, node: Node) -> Any:
        return (KeyedStream if node.keyed else Stream)(self._builder, node)


GROUPINGS = {"shuffle": "shuffle", "broadcast": "all", "global": "global"}


class KeyedStream(Joinable[K, V], Stream[tuple[K, V]], Generic[K, V]):
    """A stream of pairs of a key and a value; operators with state work by key."""

    def named(self, name: str) -> KeyedStream[K, V]:
        self._node.name = name
        return self

    def _then(self, kind: str, function: Any) -> Any:
        keeps = kind in ("filter", "peek")
        node = self._next(kind, check_function(kind, function), keyed=keeps)
        return self._like(node)

    def filter(self, predicate: Callable[[tuple[K, V]], Any]) -> KeyedStream[K, V]:
        """Return the pairs for which the predicate holds; keys stay where they are."""
        kept: KeyedStream[K, V] = self._then("filter", predicate)
        return kept

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

    def count(self) -> Aggregated[K, int]:  # type: ignore[override]  # by key
        """Return the number of values of a key so far, at each value."""
        return self._running("count", adding(Count()))

    def reduce(self, function: Callable[[V, V], V]) -> Aggregated[K, V]:
        """Combine the values of a key two at a time."""
        return self._running("reduce", Reduce(check_function("reduce", function)))

    def fold(self, first: Any, function: Callable[[Any, V], W]) -> Aggregated[K, W]:
        """Combine the values of a key with an accumulator, `function(accumulator, value)`.

        `first` is the accumulator before the first value, or a function that makes it.
        """
        return self._running("fold", Fold(first, check_function("fold", function)))

    def min(self, by: str | Callable[[V], Any] | None = None) -> Aggregated[K, V]:
        """Return the value with the lowest `by` so far; of equal ones, the first."""
        return self._running("min", Least(getter(by, "min"), -1))

    def max(self, by: str | Callable[[V], Any] | None = None) -> Aggregated[K, V]:
        """Return the value with the highest `by` so far; of equal ones, the first."""
        return self._running("max", Least(getter(by, "max"), 1))

    def top(self, n: int, by: str | Callable[[V], Any] | None = None) -> Aggregated[K, list[Any]]:
        """Return the n values with the highest `by` so far, highest first, each with its `by`."""
        return self._running("top", adding(top(n, by)))

    def collect(self) -> Aggregated[K, list[V]]:
        """Return all values of a key so far."""
        return self._running("collect", adding(Collect()))

    def distinct(self) -> KeyedStream[K, V]:
        """Return each pair of key and value once."""
        pairs: Stream[Any] = Stream(self._builder, self._next("map", _same, keyed=False))
        kept: KeyedStream[K, V] = pairs.dedupe().pairs()
        return kept

    def update_state_by_key(
        self, first: Any, function: Callable[[Any, V], Any]
    ) -> KeyedStream[K, Any]:
        """Replace the state of a key by `function(state, value)`, return it; None forgets it."""
        check_function("update_state_by_key", function)
        return self._running("update_state_by_key", Forgetful(first, function), drops=True)

    def _running(
        self, kind: str, combiner: Combiner, parallelism: int = 0, *, drops: bool = False
    ) -> Aggregated[K, Any]:
        from topo.streams.results import Aggregated

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
        from topo.streams.tables import table_of

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

    def process(self, process: Process[K, V, Any], *, keyed: bool = True) -> KeyedStream[Any, Any]:
        """Run own logic by key, with state and timers; with `keyed=False` it emits plain values."""
        if isinstance(process, type) or not isinstance(process, Process):
            raise StreamError(
                f"process() takes an instance of a Process; got {process!r}",
                at=users_place(),
                hint="subclass topo.streams.Process and give an instance",
            )
        node = self._next("process", process, keyed=keyed)
        streamed: KeyedStream[Any, Any] = self._like(node)
        return streamed

    def _dedupe(self, within: timedelta | None) -> Stream[Any]:
        return Stream(self._builder, self._next("dedupe", within, keyed=False))

    def persistent_aggregate(
        self, combiner: Combiner, state: MapState | None = None, *, parallelism: int = 0
    ) -> State[K]:
        """Keep the aggregate by key over everything so far, in a state that can be asked.

        Values are added up within each batch before they are exchanged. `state` is a store outside;
        without it the state is topo's own.
        """
        from topo.streams.results import State

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
        from topo.streams.results import WindowedStream

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


def _same(element: Any) -> Any:
    return element
