"""The streams behind aggregates: running results, windows and their results, and states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from topo.errors import StreamError
from topo.operators.aggregates.combiners import ROW, Collect, Combiner, Count, Distinct
from topo.operators.aggregates.inputs import Bound
from topo.streams.api.elements import KeyedStream, Stream
from topo.streams.combiners import (
    Fold,
    Least,
    Reduce,
    check_combiner,
    on_value,
    reads_nothing,
    top,
)
from topo.streams.graph import VALUE, Node, check_function, getter, users_place
from topo.streams.window_results import Window, WindowResult, check_names
from topo.windows.assigners import Global, Session

if TYPE_CHECKING:
    from topo.streams.api.builder import StreamBuilder

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
U = TypeVar("U")
J = TypeVar("J")


class Aggregated(KeyedStream[K, V]):
    """A running aggregate: a stream of each new result, or of the last one at the end."""

    def at_end(self) -> KeyedStream[K, V]:
        """Return one result for each key, when the input has ended; for finite spouts.

        The running results are computed as well if something else reads them.
        """
        node = self._node
        node.make_only_if_read()
        windowed: WindowedStream[K, Any] = WindowedStream(
            self._builder, node.inputs[0], {"window": Global(), "parallelism": 0}
        )
        made = windowed._aggregate(node.function)
        return made.map_window_away()


class WindowedStream(Generic[K, V]):
    """The values of each key in windows; an aggregate makes a stream of results of it.

    A result has `key`, `start`, `end` and `value`, or the aggregates by their names; of windows
    that may report several times also `timing`, `pane` and `change`.
    """

    def __init__(self, builder: StreamBuilder, node: Node, options: Mapping[str, Any]) -> None:
        self._builder = builder
        self._node = node
        self._options = options
        self._place = users_place()
        builder.windows[self._place] = None

    @overload
    def aggregate(self, combiner: Combiner, /) -> WindowResults[K, Any]: ...
    @overload
    def aggregate(self, /, **aggregates: Combiner) -> Stream[Any]: ...
    def aggregate(self, combiner: Any = None, /, **aggregates: Combiner) -> Any:
        """Return the aggregate of each window, or several by their names.

        Of `aggregate(n=Count(), mean=Mean("v"))` the elements are records with the fields `key`,
        `start`, `end`, `n` and `mean`.
        """
        check_names(aggregates)
        if combiner is not None and aggregates:
            raise StreamError(
                "aggregate() takes one combiner, or several by name",
                hint="write .aggregate(n=Count(), mean=Mean('v'))",
                at=users_place(),
            )
        if not aggregates:
            check_combiner(combiner)
            return self._aggregate(combiner)
        for several in aggregates.values():
            check_combiner(several)
        return Stream(self._builder, self._window_of(*self._several(aggregates), keyed=False))

    def count(self) -> WindowResults[K, int]:
        """Return the number of values in each window."""
        return self._aggregate(Count())

    def reduce(self, function: Callable[[V, V], V]) -> WindowResults[K, V]:
        """Combine the values of a window two at a time."""
        return self._aggregate(Reduce(check_function("reduce", function)))

    def fold(self, first: Any, function: Callable[[Any, V], W]) -> WindowResults[K, W]:
        """Combine the values of a window with an accumulator; panes are not shared."""
        if isinstance(self._options["window"], Session):
            raise StreamError(
                "sessions join, and accumulators of fold() cannot",
                hint="write .reduce(f), or .aggregate(...) with a Combiner that has merge",
                at=users_place(),
            )
        return self._aggregate(Fold(first, check_function("fold", function)))

    def min(self, by: str | Callable[[V], Any] | None = None) -> WindowResults[K, V]:
        """Return the value with the lowest `by`."""
        return self._aggregate(Least(getter(by, "min"), -1))

    def max(self, by: str | Callable[[V], Any] | None = None) -> WindowResults[K, V]:
        """Return the value with the highest `by`."""
        return self._aggregate(Least(getter(by, "max"), 1))

    def top(
        self, n: int, by: str | Callable[[V], Any] | None = None
    ) -> WindowResults[K, list[Any]]:
        """Return the n values with the highest `by`, highest first, each with its `by`."""
        return self._aggregate(top(n, by))

    def collect(self, *, by_time: bool = True) -> WindowResults[K, list[V]]:
        """Return all values of each window, in the order of their times, or else as they came."""
        return self._aggregate(Collect(by_time=by_time))

    def distinct(self) -> WindowResults[K, int]:
        """Return the number of different values in each window."""
        return self._aggregate(Distinct(ROW))  # type: ignore[arg-type]

    def _aggregate(self, combiner: Combiner) -> WindowResults[K, Any]:
        reads_values = bool(combiner.inputs) and not reads_nothing(combiner)
        node = self._window_of({VALUE: on_value(combiner)}, reads_values, keyed=True)
        return WindowResults(self._builder, node)

    def _several(self, aggregates: Mapping[str, Combiner]) -> tuple[dict[str, Bound], bool]:
        """Return the aggregates over values, and whether all of them look at values."""
        all_read = all(combiner.inputs for combiner in aggregates.values())
        several = {
            name: on_value(combiner, if_any=bool(combiner.inputs) and not all_read)
            for name, combiner in aggregates.items()
        }
        return several, all_read

    def _window_of(self, aggregates: dict[str, Bound], reads_values: bool, *, keyed: bool) -> Node:
        values = self._node
        self._builder.windows.pop(self._place, None)
        if reads_values:  # None is no value, to whatever looks at values
            values = self._builder.add(Node("with_value", (values,), True))
        node = Node("window", (values,), keyed, aggregates, {**self._options})
        return self._builder.add(node)


class WindowResults(KeyedStream[tuple[K, Window], V]):
    """The results of windows, by (key, window)."""

    if TYPE_CHECKING:  # its elements are pairs whose parts have names

        def map(self, function: Callable[[WindowResult[K, V]], U]) -> Stream[U]: ...
        def filter(self, predicate: Callable[[WindowResult[K, V]], Any]) -> WindowResults[K, V]: ...
        def filter_map(self, function: Callable[[WindowResult[K, V]], U | None]) -> Stream[U]: ...
        def flat_map(
            self, function: Callable[[WindowResult[K, V]], Iterable[U] | None]
        ) -> Stream[U]: ...
        def peek(self, function: Callable[[WindowResult[K, V]], Any]) -> WindowResults[K, V]: ...
        def for_each(self, function: Callable[[WindowResult[K, V]], Any]) -> None: ...
        @overload  # type: ignore[override]  # pairs whose parts have names
        def key_by(self) -> KeyedStream[WindowResult[K, V], WindowResult[K, V]]: ...
        @overload
        def key_by(
            self, key: Callable[[WindowResult[K, V]], J]
        ) -> KeyedStream[J, WindowResult[K, V]]: ...
        @overload
        def key_by(self, key: str) -> KeyedStream[Any, WindowResult[K, V]]: ...
        def key_by(self, key: Any = None) -> KeyedStream[Any, Any]: ...

    def map_window_away(self) -> KeyedStream[K, V]:
        """Return the results by key alone."""
        node = self._next("map", _without_window, keyed=False)
        return Stream(self._builder, node).pairs()


class State(Generic[K]):
    """The state of a persistent aggregate; `KeyedStream.state_query` asks it."""

    def __init__(self, builder: StreamBuilder, node: Node) -> None:
        self._builder = builder
        self._node = node

    def named(self, name: str) -> State[K]:
        """Name the component that holds the state, so that a checkpoint knows it again."""
        self._node.name = name
        return self

    def updates(self) -> KeyedStream[K, Any]:
        """Return the new result of each key that a batch has changed."""
        node = Node("state_updates", (self._node,), True)
        return KeyedStream(self._builder, self._builder.add(node))


def _without_window(element: Any) -> Any:
    (key, _), value = element
    return key, value
