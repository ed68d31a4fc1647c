"""The latest events of one key that a rule counts, and aggregates over them.

An event costs what it changes: it is appended, those that are too old are taken from the front,
and every aggregate follows. The results depend on the events alone, not on the order of additions
that a restart would change: so sums of floats are exact, as `math.fsum` of the list is. They are
kept as a whole number of 2**-1074, in which every finite float is one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Protocol

from topo.conditions import Aggregate
from topo.storage.saving import with_one_nan

_SHIFT = 1074
_ONE = 1 << _SHIFT


class _Running(Protocol):
    """One aggregate."""

    def add(self, value: Any) -> None: ...

    def drop(self, value: Any) -> None:
        """Take back the value that was added longest ago."""

    def result(self) -> Any: ...


class _Total:
    """The sum and the mean of what is a number; None is left out."""

    def __init__(self) -> None:
        self._whole = 0
        self._fraction = 0  # of the floats, in units of 2**-1074
        self._floats = 0
        self._count = 0
        self._odd: dict[str, int] = {}  # how many NaNs and infinities there are
        self._others: deque[Any] = deque()  # Decimals and the like

    def add(self, value: Any) -> None:
        self._change(value, 1)

    def drop(self, value: Any) -> None:
        self._change(value, -1)

    def _change(self, value: Any, sign: int) -> None:
        if value is None:
            return
        self._count += sign
        if isinstance(value, int):
            self._whole += sign * int(value)
        elif isinstance(value, float):
            self._floats += sign
            if value - value != 0:
                self._odd[str(value)] = self._odd.get(str(value), 0) + sign
                return
            top, bottom = value.as_integer_ratio()
            self._fraction += sign * top * (_ONE // bottom)
        elif sign > 0:
            if not isinstance(value, Decimal) and not hasattr(value, "__add__"):
                raise TypeError(f"a {type(value).__name__} is no number")
            if isinstance(value, str | bytes | list | tuple):
                raise TypeError("sum and avg take numbers, not text or lists")
            self._others.append(value)
        else:
            self._others.popleft()

    def sum(self) -> Any:
        """Return the sum; 0 of nothing."""
        total: Any = self._whole
        if self._floats:
            odd = [float(text) for text, count in self._odd.items() if count]
            if odd:
                return sum(odd)
            try:
                total = (self._fraction + (self._whole << _SHIFT)) / _ONE
            except OverflowError:
                total = float("inf") if self._fraction > 0 else float("-inf")
        for value in self._others:
            total = total + value if total != 0 or self._floats else value
        return total

    def mean(self) -> Any:
        """Return the mean; None of nothing."""
        return self.sum() / self._count if self._count else None


class _Sum(_Total):
    def result(self) -> Any:
        return self.sum()


class _Mean(_Total):
    def result(self) -> Any:
        return self.mean()


class _Extreme:
    """The lowest or the highest value; None and NaN are left out."""

    def __init__(self, *, lowest: bool) -> None:
        self._lowest = lowest
        self._values: deque[tuple[int, Any]] = deque()  # each beats all after it
        self._first = self._next = 0

    def add(self, value: Any) -> None:
        number, self._next = self._next, self._next + 1
        if value is None or value != value:
            return
        values = self._values
        while values and (value <= values[-1][1] if self._lowest else value >= values[-1][1]):
            values.pop()
        values.append((number, value))

    def drop(self, value: Any) -> None:
        if self._values and self._values[0][0] == self._first:
            self._values.popleft()
        self._first += 1

    def result(self) -> Any:
        return self._values[0][1] if self._values else None


class _Distinct:
    """How many different values there are; None is left out."""

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}

    def add(self, value: Any) -> None:
        if value is not None:
            value = with_one_nan(value)
            self._counts[value] = self._counts.get(value, 0) + 1

    def drop(self, value: Any) -> None:
        if value is None:
            return
        value = with_one_nan(value)
        count = self._counts[value] - 1
        if count:
            self._counts[value] = count
        else:
            del self._counts[value]

    def result(self) -> Any:
        return len(self._counts)


class _Ends:
    """The first or the last value, also if it is None."""

    def __init__(self, *, first: bool) -> None:
        self._place = 0 if first else -1
        self._values: deque[Any] = deque()

    def add(self, value: Any) -> None:
        self._values.append(value)

    def drop(self, value: Any) -> None:
        self._values.popleft()

    def result(self) -> Any:
        return self._values[self._place]


def _aggregate(function: str) -> _Running | None:
    """Return what follows the values; None for a count, which needs none."""
    if function == "count":
        return None
    if function in ("min", "max"):
        return _Extreme(lowest=function == "min")
    if function in ("first", "last"):
        return _Ends(first=function == "first")
    classes: dict[str, type[_Sum | _Mean | _Distinct]] = {
        "sum": _Sum, "avg": _Mean, "distinct": _Distinct,
    }  # fmt: skip
    return classes[function]()


class RecentShape:
    """What is kept of each key of a rule, given its aggregates and the fields that are kept."""

    def __init__(self, aggregates: Sequence[Aggregate], fields: Sequence[str]) -> None:
        self.functions = [aggregate.function for aggregate in aggregates]
        self.places = [0 if a.field is None else fields.index(a.field) for a in aggregates]
        self.only_counts = all(function == "count" for function in self.functions)


class Recent:
    """The events of one rule and key that are not older than `within`, with their aggregates.

    An event is its time and the values of the fields that the aggregates read. Of rules that only
    count, the time is all that is kept: the most rules are such.
    """

    __slots__ = ("_active", "_running", "_values", "_width", "times")

    def __init__(self, shape: RecentShape) -> None:
        self.times: deque[int] = deque()
        self._width = len(shape.functions)
        self._values: deque[tuple[Any, ...]] | None = None
        self._running: Sequence[_Running | None] = ()
        self._active: Sequence[tuple[_Running, int]] = ()
        if not shape.only_counts:
            self._values = deque()
            self._running = list(map(_aggregate, shape.functions))
            self._active = [
                (running, place)
                for running, place in zip(self._running, shape.places, strict=True)
                if running is not None
            ]

    def add(self, ts: int, values: tuple[Any, ...]) -> None:
        """Count an event, once those that are too old are forgotten."""
        self.times.append(ts)
        if self._values is not None:
            self._values.append(values)
            for running, place in self._active:
                running.add(values[place])

    def forget_until(self, last: int) -> None:
        """Forget the events until a time."""
        times, kept_values = self.times, self._values
        while times and times[0] <= last:
            times.popleft()
            if kept_values is not None:
                values = kept_values.popleft()
                for running, place in self._active:
                    running.drop(values[place])

    def results(self) -> list[Any]:
        """Return the values of the aggregates."""
        count = len(self.times)
        if not self._running:
            return [count] * self._width
        return [count if running is None else running.result() for running in self._running]
