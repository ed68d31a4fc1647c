"""Aggregates of the values of a table's group that need all of them, since any may go.

They keep how often each value is there, and a heap whose top is looked at; what is saved is the
counts that changed, not the group.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from topo.errors import StreamError, shown
from topo.operators.aggregates.retractable import RetractableAggregate


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


def _first_part(bag: Bag) -> Any:
    """Return the first part of the value at the top."""
    top = _first(bag)
    return None if top is None else top[0]


def _number(bag: Bag) -> int:
    return len(bag.counts) - (None in bag.counts)


def lowest() -> OfBag:
    """Return the aggregate of the lowest value."""
    return OfBag(_first, _lowest_first)


def highest() -> OfBag:
    """Return the aggregate of the highest value."""
    return OfBag(_first, _highest_first)


def highest_few(n: int, *, by_part: bool) -> OfBag:
    """Return the aggregate of the n highest values, or of those whose second part is highest."""
    return OfBag(_Highest(n), _highest_by if by_part else _highest_first)


def value_of_highest() -> OfBag:
    """Return the aggregate of the first part of the value whose second part is highest."""
    return OfBag(_first_part, _highest_by)


def number_of_values() -> OfBag:
    """Return the aggregate of how many different values there are."""
    return OfBag(_number, None)


def all_values() -> OfBag:
    """Return the aggregate of all values."""
    return OfBag(_collected, None)
