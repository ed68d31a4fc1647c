"""The streams behind aggregates: running results, windows and their results, and states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from topo.streams.elements import KeyedStream, Stream
from topo.streams.graph import Node, check_function, getter
from topo.streams.windowed import Fold, Least, OnValue, Reduce, top
from topo.windows.assigners import Global
from topo.windows.combiners import ROW, Collect, Combiner, Count, Distinct

if TYPE_CHECKING:
    from topo.streams.builder import StreamBuilder

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


class Aggregated(KeyedStream[K, V]):
    """A running aggregate: a stream of each new result, or of the last one at the end."""

    def at_end(self) -> KeyedStream[K, V]:
        """Return one result for each key, when the input has ended; for finite spouts."""
        node = self._node
        self._builder.nodes.remove(node)
        windowed: WindowedStream[K, Any] = WindowedStream(
            self._builder, node.inputs[0], {"window": Global(), "parallelism": 0}
        )
        made = windowed._aggregate(node.function)
        return made.map_window_away()


class WindowedStream(Generic[K, V]):
    """The values of each key in windows; an aggregate makes a stream of results of it.

    The key of a result is (key, window), where the window has `start` and `end`.
    """

    def __init__(self, builder: StreamBuilder, node: Node, options: Mapping[str, Any]) -> None:
        self._builder = builder
        self._node = node
        self._options = options

    def aggregate(self, combiner: Combiner) -> WindowResults[K, Any]:
        """Return the aggregate of each window."""
        return self._aggregate(combiner)

    def count(self) -> WindowResults[K, int]:
        """Return the number of values in each window."""
        return self._aggregate(Count())

    def reduce(self, function: Callable[[V, V], V]) -> WindowResults[K, V]:
        """Combine the values of a window two at a time."""
        return self._aggregate(Reduce(check_function("reduce", function)))

    def fold(self, first: Any, function: Callable[[Any, V], W]) -> WindowResults[K, W]:
        """Combine the values of a window with an accumulator; panes are not shared."""
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

    def collect(self) -> WindowResults[K, list[V]]:
        """Return all values of each window."""
        return self._aggregate(Collect())

    def distinct(self) -> WindowResults[K, int]:
        """Return the number of different values in each window."""
        return self._aggregate(Distinct(ROW))  # type: ignore[arg-type]

    def _aggregate(self, combiner: Combiner) -> WindowResults[K, Any]:
        options = {**self._options}
        node = Node("window", (self._node,), True, OnValue(combiner), options)
        return WindowResults(self._builder, self._builder.add(node))


class WindowResults(KeyedStream[tuple[K, Any], V]):
    """The results of windows, by (key, window)."""

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
