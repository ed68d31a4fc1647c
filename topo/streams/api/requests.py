"""Streams of requests: functions that clients call, as programs of streams.

Inside, the elements are pairs of a request's id and a value, so that operators without state are
those of every stream with keys. What aggregates is a `RequestBolt`: it has an accumulator for each
request, which ends with the request and not with the batch, where there may be many requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NoReturn, TypeVar, overload

from topo.components import OutputFieldsDeclarer
from topo.context import TopologyContext
from topo.drpc.request import RequestBolt
from topo.drpc.results import LinearResults
from topo.errors import StreamError
from topo.operators.aggregates.combiners import Collect, Combiner, Count
from topo.storage.saving import with_one_nan
from topo.streams.api.elements import KeyedStream, Stream
from topo.streams.api.endings import check_grouping
from topo.streams.api.results import State
from topo.streams.combiners import Fold, Least, Reduce, adding, top
from topo.streams.graph import KEY, VALUE, Node, check_function, getter, users_place
from topo.streams.records import lasting
from topo.tuples import Tuple

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")

_REFUSED = {
    "window": "a request ends by itself, with its batch",
    "to_table": "a request's elements are gone with it",
    "process": "a request's elements are gone with it",
    "join": "other streams have elements of no request",
    "persistent_aggregate": "write what changes state as a stream of its own, and ask it with "
    "state_query",
}


class RequestStream(Generic[T]):
    """A stream of the elements of requests; `answer` ends it.

    Every aggregate is of one request, and comes at its end: a count of nothing is 0.
    """

    def __init__(self, elements: KeyedStream[str, T], requests: Node) -> None:
        self._elements = elements
        self._requests = requests

    def __getattr__(self, name: str) -> NoReturn:
        if name in _REFUSED:
            raise StreamError(
                f"{name} is not to be had behind requests: {_REFUSED[name]}", at=users_place()
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def named(self, name: str) -> RequestStream[T]:
        """Name the component of the last operator, so that a checkpoint knows it again."""
        self._elements.named(name)
        return self

    def map(self, function: Callable[[T], U]) -> RequestStream[U]:
        """Return the function's result for each element."""
        return self._plain(self._elements.map_values(function))

    def filter(self, predicate: Callable[[T], Any]) -> RequestStream[T]:
        """Return the elements for which the predicate holds."""
        function = _OfValue(check_function("filter", predicate))
        return self._plain(self._elements.filter(function))

    def filter_map(self, function: Callable[[T], U | None]) -> RequestStream[U]:
        """Return the function's results that are not None."""
        results = self._elements.map_values(function).filter(_has_value)
        return self._plain(results)  # type: ignore[arg-type]  # None is left out

    def flat_map(self, function: Callable[[T], Iterable[U] | None]) -> RequestStream[U]:
        """Return each of the values that the function returns or yields for an element."""
        return self._plain(self._elements.flat_map_values(function))

    def peek(self, function: Callable[[T], Any]) -> RequestStream[T]:
        """Call the function with each element, and pass the element on."""
        peeked: Any = self._elements.peek(_OfValue(check_function("peek", function)))
        return self._plain(peeked)

    @overload
    def key_by(self) -> KeyedRequestStream[T, T]: ...
    @overload
    def key_by(self, key: Callable[[T], K]) -> KeyedRequestStream[K, T]: ...
    @overload
    def key_by(self, key: str) -> KeyedRequestStream[Any, T]: ...
    def key_by(self, key: Any = None) -> KeyedRequestStream[Any, T]:
        """Give each element a key: the function's result, a named part, or the element itself."""
        pairs = self._elements.map_values(_Keying(getter(key, "key_by")))
        return KeyedRequestStream(pairs, self._requests)

    def merge(self, *others: RequestStream[T]) -> RequestStream[T]:
        """Return the elements of this stream and the others, all of the same function."""
        for other in others:
            if not isinstance(other, RequestStream) or other._requests is not self._requests:
                raise StreamError(
                    "merge: the other stream is of other requests, or of none",
                    hint="merge what begins with the same requests(...)",
                    at=users_place(),
                )
        return self._plain(self._elements.merge(*[other._elements for other in others]))

    def branch(
        self, *, default: str | None = None, **predicates: Callable[[T], Any]
    ) -> dict[str, RequestStream[T]]:
        """Return a stream for each predicate; an element goes to the first that holds."""
        for predicate in predicates.values():
            check_function("branch", predicate)
        cases: Any = {name: _OfValue(predicate) for name, predicate in predicates.items()}
        streams: Any = self._elements.branch(default=default, **cases)
        return {name: self._plain(stream) for name, stream in streams.items()}

    def repartition(self, parallelism: int, by: str = "shuffle") -> RequestStream[T]:
        """Deal the elements over another number of tasks: "shuffle", "broadcast" or "global"."""
        check_grouping("repartition", by)
        dealt: Any = self._elements.repartition(parallelism, by)
        return self._plain(dealt)

    # -- of one request -----------------------------------------------------------------------

    def aggregate(self, combiner: Combiner, *, parallelism: int = 1) -> RequestStream[Any]:
        """Return one result for each request, also for one without elements."""
        return self._whole(adding(combiner), parallelism)

    def count(self, *, parallelism: int = 1) -> RequestStream[int]:
        """Return the number of elements of each request."""
        return self.aggregate(Count(), parallelism=parallelism)

    def reduce(self, function: Callable[[T, T], T], *, parallelism: int = 1) -> RequestStream[T]:
        """Combine the elements of each request two at a time; None without any."""
        return self._whole(Reduce(check_function("reduce", function)), parallelism)

    def fold(
        self, first: Any, function: Callable[[Any, T], U], *, parallelism: int = 1
    ) -> RequestStream[U]:
        """Combine the elements of each request with an accumulator."""
        return self._whole(Fold(first, check_function("fold", function)), parallelism)

    def _whole(self, combiner: Combiner, parallelism: int) -> RequestStream[Any]:
        return self._plain(self._gathered(OfRequest(combiner, by_key=False), parallelism))

    def answer(self, *, parallelism: int = 1) -> None:
        """Answer each request with the JSON list of all elements, each as a list."""
        lists = self._gathered(OfRequest(Collect(), by_key=False, as_lists=True), parallelism)
        options = {"bolt": LinearResults(self._requests.options["answer"])}
        self._add("to", lists, options, 1)

    def _gathered(self, bolt: OfRequest, parallelism: int) -> KeyedStream[str, Any]:
        """Return the results of a bolt that gathers the elements of each request."""
        options = {"bolt": bolt, "requests": self._requests}
        node = self._add("through", self._elements, options, parallelism)
        return Stream(self._elements._builder, node).pairs()

    def _add(
        self, kind: str, elements: KeyedStream[str, Any], options: dict[str, Any], parallelism: int
    ) -> Node:
        more = {"grouping": None, "parallelism": parallelism}
        node = Node(kind, (elements._node,), False, options={**options, **more})
        return elements._builder.add(node)

    def _plain(self, elements: KeyedStream[str, U]) -> RequestStream[U]:
        return RequestStream(elements, self._requests)


class KeyedRequestStream(RequestStream[tuple[K, V]], Generic[K, V]):
    """A stream of pairs of a key and a value, of requests; aggregates are by request and key."""

    def map_values(self, function: Callable[[V], U]) -> KeyedRequestStream[K, U]:
        """Replace each value by the function's result."""
        changed = _InPair(check_function("map_values", function))
        return self._keyed(self._elements.map_values(changed))

    def filter(self, predicate: Callable[[tuple[K, V]], Any]) -> KeyedRequestStream[K, V]:
        """Return the pairs for which the predicate holds."""
        return self._keyed(super().filter(predicate)._elements)

    def keys(self) -> RequestStream[K]:
        """Return the keys alone."""
        return self._plain(self._elements.map_values(_first))

    def values(self) -> RequestStream[V]:
        """Return the values alone."""
        return self._plain(self._elements.map_values(_second))

    def aggregate(self, combiner: Combiner, *, parallelism: int = 1) -> KeyedRequestStream[K, Any]:
        """Return one result for each request and key."""
        return self._by_key(adding(combiner), parallelism)

    def count(self, *, parallelism: int = 1) -> KeyedRequestStream[K, int]:  # type: ignore[override]
        """Return the number of values of each request and key."""
        return self._by_key(adding(Count()), parallelism)

    def reduce(  # type: ignore[override]  # by key
        self, function: Callable[[V, V], V], *, parallelism: int = 1
    ) -> KeyedRequestStream[K, V]:
        """Combine the values of a request and key two at a time."""
        return self._by_key(Reduce(check_function("reduce", function)), parallelism)

    def fold(  # type: ignore[override]  # by key
        self, first: Any, function: Callable[[Any, V], U], *, parallelism: int = 1
    ) -> KeyedRequestStream[K, U]:
        """Combine the values of a request and key with an accumulator."""
        return self._by_key(Fold(first, check_function("fold", function)), parallelism)

    def min(
        self, by: str | Callable[[V], Any] | None = None, *, parallelism: int = 1
    ) -> KeyedRequestStream[K, V]:
        """Return the value with the lowest `by` of each request and key."""
        return self._by_key(Least(getter(by, "min"), -1), parallelism)

    def max(
        self, by: str | Callable[[V], Any] | None = None, *, parallelism: int = 1
    ) -> KeyedRequestStream[K, V]:
        """Return the value with the highest `by` of each request and key."""
        return self._by_key(Least(getter(by, "max"), 1), parallelism)

    def top(
        self, n: int, by: str | Callable[[V], Any] | None = None, *, parallelism: int = 1
    ) -> KeyedRequestStream[K, list[Any]]:
        """Return the n values with the highest `by` of each request and key."""
        return self._by_key(adding(top(n, by)), parallelism)

    def collect(self, *, parallelism: int = 1) -> KeyedRequestStream[K, list[V]]:
        """Return all values of each request and key, as they came."""
        return self._by_key(adding(Collect()), parallelism)

    def state_query(
        self, state: State[K], function: Callable[[K, Any], Any] | None = None
    ) -> KeyedRequestStream[K, Any]:
        """Ask a state for each key; a key that it does not have gives None.

        The answer is the value, or `function(key, value)`, as of the end of the request's batch.
        """
        questions = self._elements.map(_question).pairs()
        node = Node(
            "state_query",
            (questions._node, state._node),
            True,
            function,
            options={"for_requests": True},
        )
        answers: KeyedStream[K, Any] = KeyedStream(questions._builder, questions._builder.add(node))
        return self._keyed(answers.map(_of_request).pairs())

    def _by_key(self, combiner: Combiner, parallelism: int) -> KeyedRequestStream[K, Any]:
        return self._keyed(self._gathered(OfRequest(combiner, by_key=True), parallelism))

    def _keyed(self, elements: KeyedStream[str, Any]) -> KeyedRequestStream[Any, Any]:
        return KeyedRequestStream(elements, self._requests)


class OfRequest(RequestBolt):
    """An aggregate of each request, or of each key of each request."""

    def __init__(self, combiner: Combiner, *, by_key: bool, as_lists: bool = False) -> None:
        self.combiner = combiner
        self.by_key = by_key
        self.as_lists = as_lists

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        declarer.declare((KEY, VALUE))

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Have nothing to set up."""

    def begin(self) -> None:
        self.cells: dict[Any, Any] = {} if self.by_key else {None: self.combiner.init()}

    def execute(self, tup: Tuple) -> None:
        value = lasting(tup[1])
        key = None
        if self.by_key:
            key, value = value
            key = with_one_nan(key)
        elif self.as_lists:
            value = list(value) if isinstance(value, list | tuple) else [value]
        cells, combiner = self.cells, self.combiner
        cells[key] = combiner.add(cells[key] if key in cells else combiner.init(), value)

    def finish(self) -> None:
        for key, cell in self.cells.items():
            result = self.combiner.result(cell)
            self.emit([self.request, (key, result) if self.by_key else result])


class _OfValue:
    """A function of the value of a pair of id and value."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, pair: Any) -> Any:
        return self.function(pair[1])


class _Keying:
    """Makes a pair of an element's key and the element."""

    def __init__(self, key: Callable[[Any], Any] | None) -> None:
        self.key = key

    def __call__(self, value: Any) -> Any:
        return (value if self.key is None else self.key(value), value)


class _InPair:
    """A function of the value of a pair of key and value, which keeps the key."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, pair: Any) -> Any:
        return pair[0], self.function(pair[1])


def request_of(record: Any) -> tuple[str, str]:
    """Return the id and the arguments of a request, as the spout emits it."""
    return record.return_info, record.args


def _has_value(pair: Any) -> bool:
    return pair[1] is not None


def _first(pair: Any) -> Any:
    return pair[0]


def _second(pair: Any) -> Any:
    return pair[1]


def _question(element: Any) -> Any:
    """Return a question by its key, with the request that asks."""
    id, (key, _) = element
    return key, id


def _of_request(answer: Any) -> Any:
    """Return an answer by its request."""
    key, (id, value) = answer
    return id, (key, value)
