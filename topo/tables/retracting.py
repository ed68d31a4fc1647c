"""Aggregates that values can be taken away from again, exactly.

- Sums, means and variances are exact (`exact`), of floats too.
- Min, Max, Distinct, TopK, Collect and ArgMax keep how often each value is there, and a heap whose
  top is looked at; what is saved is the counts that changed, not the group.
- A combiner of your own has `remove(acc, value)`, or the aggregate is given an adder and a
  subtractor.

A group without rows has no result, and None is no value, as in windows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from topo.errors import StreamError, shown
from topo.operators.aggregates.combiners import (
    ArgMax,
    Collect,
    Combiner,
    Count,
    Distinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Sum,
    TopK,
    Var,
    first_value,
)
from topo.operators.aggregates.exact import Exact, ExactMean, ExactVar
from topo.operators.aggregates.retractable import RetractableAggregate
from topo.tables.expression import same


class Counting(RetractableAggregate):
    """An aggregate of how many values there are; of a field, how many are not None."""

    def __init__(self, everything: bool) -> None:
        self._everything = everything

    def init(self) -> Any:
        return (0, 0)

    def add(self, acc: Any, value: Any) -> Any:
        return acc[0] + 1, acc[1] + (self._everything or value is not None)

    def remove(self, acc: Any, value: Any) -> Any:
        if acc[0] <= 1:
            return self.init()
        return acc[0] - 1, acc[1] - (self._everything or value is not None)

    def result(self, acc: Any) -> Any:
        return acc[1] if acc[0] else None


class ByHand(RetractableAggregate):
    """An aggregate of the user's functions.

    A group ends if they return None, or if it has no rows and is again what a new one begins with.
    Else it stays: what it has become without rows is the user's to say, as in Kafka Streams.
    """

    users = True

    def __init__(
        self, first: Any, adder: Callable[[Any, Any], Any], subtractor: Callable[[Any, Any], Any]
    ) -> None:
        self._first = first
        self._adder = adder
        self._subtractor = subtractor

    def init(self) -> Any:
        return None

    def is_over(self, acc: Any, rows: int) -> bool:
        return acc is None or (not rows and same(acc, first_value(self._first)))

    def _begun(self, acc: Any) -> Any:
        return first_value(self._first) if acc is None else acc

    def add(self, acc: Any, value: Any) -> Any:
        return self._adder(self._begun(acc), value)

    def remove(self, acc: Any, value: Any) -> Any:
        return self._subtractor(self._begun(acc), value)

    def result(self, acc: Any) -> Any:
        return acc


class OwnCombiner(RetractableAggregate):
    """A combiner of the user's that has `remove`, with the number of rows."""

    users = True

    def __init__(self, combiner: Any) -> None:
        self._combiner = combiner

    def init(self) -> Any:
        return (0, None)

    def add(self, acc: Any, value: Any) -> Any:
        inner = acc[1] if acc[0] else self._combiner.init()
        return acc[0] + 1, self._combiner.add(inner, value)

    def remove(self, acc: Any, value: Any) -> Any:
        if acc[0] <= 1:
            return self.init()
        return acc[0] - 1, self._combiner.remove(acc[1], value)

    def result(self, acc: Any) -> Any:
        return self._combiner.result(acc[1]) if acc[0] else None


class Bag:
    """The values of one group, each with how often it is there; the accumulator of `OfBag`."""

    __slots__ = ("counts", "heap")

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}
        self.heap: list[Any] | None = None


class OfBag(RetractableAggregate):
    """An aggregate of a bag of values: what `look` finds in it."""

    counted = True

    def __init__(
        self, look: Callable[[Bag], Any], order: Callable[[Any], _Ascending] | None
    ) -> None:
        self._look = look
        self._order = order

    def init(self) -> Bag:
        return Bag()

    def add(self, bag: Bag, value: Any) -> Bag:
        try:
            count = bag.counts.get(value, 0)
        except TypeError:
            raise StreamError(
                f"an aggregate of a table counts its values, and {shown(value)} is a "
                f"{type(value).__name__}, which cannot be a key",
                hint="make it a tuple, or another value that does not change",
            ) from None
        bag.counts[value] = count + 1
        if not count and bag.heap is not None and self._order is not None:
            entry = self._order(value)
            if entry.by is not None:
                heapq.heappush(bag.heap, entry)
        return bag

    def remove(self, bag: Bag, value: Any) -> Bag:
        count = bag.counts.get(value, 0)
        if count > 1:
            bag.counts[value] = count - 1
        elif count:  # else it was never added
            del bag.counts[value]
        return bag

    def result(self, bag: Bag) -> Any:
        if not bag.counts:
            return None
        if self._order is not None and (
            bag.heap is None or len(bag.heap) > 2 * len(bag.counts) + 16
        ):
            entries = map(self._order, bag.counts)
            bag.heap = [entry for entry in entries if entry.by is not None]
            heapq.heapify(bag.heap)
        return self._look(bag)


class _Ascending:
    """A value in a heap whose top is the lowest, by `by`.

    Of equal ones the order is that of their texts, so that a restart changes no result.
    """

    __slots__ = ("by", "value")

    def __init__(self, by: Any, value: Any) -> None:
        self.by = by
        self.value = value

    def __lt__(self, other: _Ascending) -> bool:
        return bool(self.by < other.by) or (
            not other.by < self.by and repr(self.value) < repr(other.value)
        )


class _Descending(_Ascending):
    """A value in a heap whose top is the highest."""

    __slots__ = ()

    def __lt__(self, other: _Ascending) -> bool:
        return bool(other.by < self.by) or (
            not self.by < other.by and repr(self.value) < repr(other.value)
        )


def _first(bag: Bag) -> Any:
    """Return the value at the top of the heap, without those that are gone; None if it is empty."""
    heap = bag.heap
    assert heap is not None
    while heap and heap[0].value not in bag.counts:
        heapq.heappop(heap)
    return heap[0].value if heap else None


class _Highest:
    """Finds the n highest values of a bag, each as often as it is there."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, bag: Bag) -> list[Any]:
        heap = bag.heap
        assert heap is not None
        taken: dict[Any, Any] = {}
        found: list[Any] = []
        while heap and len(found) < self.n:
            top = heapq.heappop(heap)
            count = bag.counts.get(top.value, 0)
            if count and top.value not in taken:  # an entry that is gone, or there twice
                taken[top.value] = top
                found += [top.value] * min(count, self.n - len(found))
        for top in taken.values():
            heapq.heappush(heap, top)
        return found


def _collected(bag: Bag) -> list[Any]:
    """Return all values in an order that does not depend on how they came."""
    try:
        values = sorted(bag.counts)
    except TypeError:
        values = sorted(bag.counts, key=repr)
    return [value for value in values for _ in range(bag.counts[value])]


def _lowest_first(value: Any) -> _Ascending:
    return _Ascending(value, value)


def _highest_first(value: Any) -> _Ascending:
    return _Descending(value, value)


def _highest_by(value: Any) -> _Ascending:
    return _Descending(value[1], value)


class _FirstPart:
    """Finds the first part of the value at the top."""

    def __call__(self, bag: Bag) -> Any:
        top = _first(bag)
        return None if top is None else top[0]


def retracting(combiner: Combiner) -> RetractableAggregate:
    """Return the aggregate that takes away what a combiner adds; raise if it cannot."""
    kind = type(combiner)
    if kind is Count:
        return Counting(combiner.field is None)
    if kind is Sum:
        return Exact()
    if kind is Mean:
        return ExactMean()
    if isinstance(combiner, Var) and kind is Var:
        return ExactVar(combiner.sample)
    if kind is Min:
        return OfBag(_first, _lowest_first)
    if kind is Max:
        return OfBag(_first, _highest_first)
    if kind is Distinct:
        return OfBag(_number, None)
    if isinstance(combiner, Collect) and kind is Collect and not combiner.by_time:
        return OfBag(_collected, None)
    if isinstance(combiner, TopK) and kind is TopK:
        order = _highest_first if combiner.field is None else _highest_by
        return OfBag(_Highest(combiner.n), order)
    if kind is ArgMax:
        return OfBag(_FirstPart(), _highest_by)
    if callable(getattr(combiner, "remove", None)):
        return OwnCombiner(combiner)
    if kind in (Collect, First, Last):
        raise StreamError(
            f"{kind.__name__} cannot take a value away again: a table has the latest value of each "
            "row, and not what came before or after it",
            hint="write ArgMax(value, by=time) over rows that have their time, or "
            "aggregate(init=, adder=, subtractor=)",
        )
    raise StreamError(
        f"{kind.__name__} cannot take a value away again, as rows of a table come and go",
        hint="give it remove(acc, value), or write aggregate(init=, adder=, subtractor=)",
    )


def _number(bag: Bag) -> int:
    return len(bag.counts) - (None in bag.counts)
