"""The values of a window, or of a group of a table, combined. An aggregate is one class here.

A window of an hour that slides every second holds 3600 partial results, not its tuples; that works
for whatever can be merged. Rows of a table come and go, so that there an aggregate has to take
values away again. What a combiner adds up in windows would not do for it: a maximum does not know
the second one, a sum of floats drifts. So `in_tables` gives what does.

The rules for an own `Combiner`: `add` may change the accumulator and returns it; `merge` returns a
new one and leaves both arguments as they are, because they stay in use; `result` gives out nothing
that a later `add` changes; with `remove`, it may be used over tables.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from copy import copy, deepcopy
from math import nan
from operator import itemgetter
from typing import Any, ClassVar, TypeAlias

from topo.errors import StreamError, WindowError
from topo.operators.aggregates import bags
from topo.operators.aggregates.exact import Exact, ExactMean, ExactVar
from topo.operators.aggregates.retractable import Counting, RetractableAggregate, WithRows
from topo.storage.saving import NEVER_NAN, with_one_nan

FieldOrFunction: TypeAlias = "str | Callable[[Any], Any] | None"


class _Whole:
    """An input of a combiner that is no field; it stays the same object when it is pickled."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> str:
        return self.name


TIME = _Whole("TIME")
"""Stands for the tuple's time among the inputs of a combiner."""
ROW = _Whole("ROW")
"""Stands for all values of the tuple."""


def first_value(first: Any) -> Any:
    """Return a first accumulator that is nobody else's: a function makes it, a value is copied."""
    return first() if callable(first) else deepcopy(first)


class Combiner:
    """An aggregate of your own: subclass it and override the methods.

    Without an own `merge`, every window is added up by itself: no panes are shared between
    sliding windows, and sessions cannot be joined.
    """

    inline: ClassVar[tuple[str, str] | None] = None
    """Source of the first accumulator and of the next ({a}, {v}), for the generated loop."""
    inline_merge: ClassVar[tuple[str, str] | None] = None
    """The same, where {v} is an accumulator that is merged."""
    exact: ClassVar[bool] = False
    """True: over ints, a part can be taken away again with `subtract`."""
    skips_none: ClassVar[bool] = False
    """True: `add` ignores None, which the inlined source does not."""
    grows: ClassVar[bool] = False
    """True: an accumulator holds every value, so that many merges of it are not kept."""

    field: FieldOrFunction = None

    def __init__(self, field: FieldOrFunction = None) -> None:
        self.field = field

    def init(self) -> Any:
        """Return the accumulator of nothing."""
        return None

    def add(self, acc: Any, value: Any) -> Any:
        """Return the accumulator with one value more."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        """Return the accumulator of both, `a` being the earlier one."""
        raise NotImplementedError

    def result(self, acc: Any) -> Any:
        """Return what the window reports."""
        return acc

    def subtract(self, whole: Any, part: Any) -> Any:
        """Return the accumulator without a part of it; only asked if `exact`."""
        raise NotImplementedError

    def can_subtract(self, acc: Any) -> bool:
        """Return True if taking this accumulator away leaves no trace: floats drift."""
        return False

    def remove(self, acc: Any, value: Any) -> Any:
        """Return the accumulator with one value less; only asked over tables."""
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The fields that make the value: names, functions of the row, TIME or ROW."""
        return (ROW,) if self.field is None else (self.field,)

    @property
    def mergeable(self) -> bool:
        return type(self).merge is not Combiner.merge

    def in_windows(self) -> Combiner:
        """Return the combiner to use in windows, where tuples have times: by default this one."""
        return self

    def in_tables(self) -> RetractableAggregate:
        """Return the aggregate to use over tables: by default this one, if it has `remove`."""
        if type(self).remove is not Combiner.remove:
            return WithRows(self)
        raise StreamError(
            f"{type(self).__name__} cannot take a value away again, as rows of a table come and go",
            hint="give it remove(acc, value), or write aggregate(init=, adder=, subtractor=)",
        )


_HOW_IT_ADDS = {"init", "add", "remove", "result", "inputs"}


def in_tables(combiner: Combiner) -> RetractableAggregate:
    """Return the aggregate that takes away what a combiner adds; raise a StreamError if none can.

    What a built-in one has for tables is not for a subclass that adds in a way of its own.
    """
    for cls in type(combiner).__mro__:
        if cls.__module__ == __name__ or "in_tables" in vars(cls):
            break
        if vars(cls).keys() & _HOW_IT_ADDS:
            return Combiner.in_tables(combiner)
    return combiner.in_tables()


class _OfField(Combiner):
    """The base of aggregates of a field, which they need."""

    def __init__(self, field: FieldOrFunction) -> None:
        super().__init__(field)


class _Best(_OfField):
    """The base of aggregates that keep one of their values; None for none."""

    def merge(self, a: Any, b: Any) -> Any:
        return a if b is None else self.add(a, b)


class Count(Combiner):
    """The number of tuples; of a field, the number of its values that are not None."""

    inline = ("1", "{a} + 1")
    inline_merge = ("{v}", "{a} + {v}")
    exact = True
    skips_none = True

    def init(self) -> int:
        return 0

    def add(self, acc: int, value: Any) -> int:
        return acc + 1 if self.field is None or value is not None else acc

    def merge(self, a: int, b: int) -> int:
        return a + b

    def subtract(self, whole: int, part: int) -> int:
        return whole - part

    def can_subtract(self, acc: Any) -> bool:
        return True

    @property
    def inputs(self) -> tuple[Any, ...]:
        return () if self.field is None else (self.field,)

    def in_tables(self) -> RetractableAggregate:
        return Counting(self.field is None)


class Sum(_OfField):
    """The sum of a field; None is no value."""

    inline = ("0 + {v}", "{a} + {v}")
    inline_merge = ("{v}", "{a} + {v}")
    exact = True
    skips_none = True

    def init(self) -> Any:
        return 0

    def add(self, acc: Any, value: Any) -> Any:
        return acc if value is None else acc + value

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def subtract(self, whole: Any, part: Any) -> Any:
        return whole - part

    def can_subtract(self, acc: Any) -> bool:
        return type(acc) is int

    def in_tables(self) -> RetractableAggregate:
        return Exact()


class Min(_Best):
    """The lowest value of a field; None is no value, and the result over nothing.

    NaN gives way to any other value, so that the result does not depend on the order.
    """

    inline = ("{v}", "{v} if {a} is None or {v} < {a} or {a} != {a} else {a}")
    skips_none = True

    def add(self, acc: Any, value: Any) -> Any:
        if acc is None or value is None:
            return value if acc is None else acc
        return value if value < acc or acc != acc else acc

    def in_tables(self) -> RetractableAggregate:
        return bags.lowest()


class Max(_Best):
    """The highest value of a field; None is no value, and the result over nothing.

    NaN gives way to any other value, so that the result does not depend on the order.
    """

    inline = ("{v}", "{v} if {a} is None or {v} > {a} or {a} != {a} else {a}")
    skips_none = True

    def add(self, acc: Any, value: Any) -> Any:
        if acc is None or value is None:
            return value if acc is None else acc
        return value if value > acc or acc != acc else acc

    def in_tables(self) -> RetractableAggregate:
        return bags.highest()


class Mean(_OfField):
    """The mean of a field; None is no value, and the result over nothing."""

    exact = True

    def init(self) -> tuple[Any, int]:
        return 0, 0

    def add(self, acc: tuple[Any, int], value: Any) -> tuple[Any, int]:
        return acc if value is None else (acc[0] + value, acc[1] + 1)

    def merge(self, a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
        return a[0] + b[0], a[1] + b[1]

    def subtract(self, whole: tuple[Any, int], part: tuple[Any, int]) -> tuple[Any, int]:
        return whole[0] - part[0], whole[1] - part[1]

    def can_subtract(self, acc: Any) -> bool:
        return type(acc[0]) is int

    def result(self, acc: tuple[Any, int]) -> Any:
        return acc[0] / acc[1] if acc[1] else None

    def in_tables(self) -> RetractableAggregate:
        return ExactMean()


class Var(_OfField):
    """The variance of a field, of the whole population unless `sample=True`; None is no value.

    Kept as count, mean and squared distances (Welford, merged after Chan), which does not lose
    small variances of large values as a sum of squares does.
    """

    def __init__(self, field: FieldOrFunction, *, sample: bool = False) -> None:
        super().__init__(field)
        self.sample = sample

    def init(self) -> tuple[int, float, float]:
        return 0, 0.0, 0.0

    def add(self, acc: tuple[int, float, float], value: Any) -> tuple[int, float, float]:
        if value is None:
            return acc
        n, mean, squares = acc
        n += 1
        distance = value - mean
        mean += distance / n
        return n, mean, squares + distance * (value - mean)

    def merge(
        self, a: tuple[int, float, float], b: tuple[int, float, float]
    ) -> tuple[int, float, float]:
        if not a[0] or not b[0]:
            return a if a[0] else b
        n = a[0] + b[0]
        distance = b[1] - a[1]
        mean = a[1] + distance * b[0] / n
        return n, mean, a[2] + b[2] + distance * distance * a[0] * b[0] / n

    def result(self, acc: tuple[int, float, float]) -> float | None:
        count = acc[0] - 1 if self.sample else acc[0]
        return acc[2] / count if count > 0 else None

    def in_tables(self) -> RetractableAggregate:
        return ExactVar(self.sample)


class _Timed(_Best):
    """The base of First and Last: a value with its time."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        return (TIME, self.field)

    def result(self, acc: Any) -> Any:
        return None if acc is None else acc[1]

    def in_tables(self) -> RetractableAggregate:
        raise _has_no_past(self)


class First(_Timed):
    """The value with the lowest time; of equal times, the first to arrive."""

    def add(self, acc: Any, value: Any) -> Any:
        return value if acc is None or value[0] < acc[0] else acc


class Last(_Timed):
    """The value with the highest time; of equal times, the last to arrive."""

    def add(self, acc: Any, value: Any) -> Any:
        return value if acc is None or value[0] >= acc[0] else acc


class Distinct(_OfField):
    """The number of different values of a field, exactly; None is no value, NaN is one."""

    grows = True

    def init(self) -> set[Any]:
        return set()

    def add(self, acc: set[Any], value: Any) -> set[Any]:
        if value is not None:
            acc.add(value if type(value) in NEVER_NAN else _in_sets(value))
        return acc

    def merge(self, a: set[Any], b: set[Any]) -> set[Any]:
        return a | b

    def result(self, acc: set[Any]) -> int:
        return len(acc)

    def in_tables(self) -> RetractableAggregate:
        return bags.number_of_values()


def _in_sets(value: Any) -> Any:
    """Return what stands for a value in a set: of every NaN, in tuples too, an Ellipsis.

    A set finds a NaN by its identity, and pickling makes another object of it.
    """
    if isinstance(value, tuple):
        return tuple(map(_in_sets, value))
    return ... if with_one_nan(value) is nan else value


class TopK(Combiner):
    """The n tuples with the highest `by`, highest first: (value of `field`, by) each.

    Without `field`, just the values of `by`. Of equal ones, the first to arrive comes first. Tuples
    whose `by` is None or NaN do not count.
    """

    def __init__(self, n: int, by: FieldOrFunction, field: FieldOrFunction = None) -> None:
        super().__init__(field)
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise WindowError(f"TopK: n is {n!r}; it must be a whole number of 1 or more")
        self.n = n
        self.by = by

    @property
    def inputs(self) -> tuple[Any, ...]:
        return (self.by,) if self.field is None else (self.field, self.by)

    def init(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        by = value if self.field is None else value[1]
        if by is None or by != by:
            return acc
        if len(acc) == self.n and by <= acc[-1][0]:
            return acc
        at = len(acc)
        while at and by > acc[at - 1][0]:
            at -= 1
        acc.insert(at, (by, value))
        del acc[self.n :]
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        merged = heapq.merge(a, b, key=itemgetter(0), reverse=True)
        return [entry for entry, _ in zip(merged, range(self.n), strict=False)]

    def result(self, acc: list[Any]) -> list[Any]:
        return [value for _, value in acc]

    def in_tables(self) -> RetractableAggregate:
        return bags.highest_few(self.n, by_part=self.field is not None)


class Collect(Combiner):
    """All values of a field; without a field, the rows.

    In windows they are in the order of their times, of equal times as they came, whatever the kind
    of window and however batches are cut. `by_time=False` keeps no times, which takes less memory:
    the values are as they came, in sliding windows pane by pane. Where there are no windows, they
    are as they came, unless `by_time=True`.
    """

    grows = True

    def __init__(self, field: FieldOrFunction = None, *, by_time: bool | None = None) -> None:
        super().__init__(field)
        self.by_time = by_time

    def in_windows(self) -> Combiner:
        if self.by_time is not None:
            return self
        timed = copy(self)
        timed.by_time = True
        return timed

    @property
    def inputs(self) -> tuple[Any, ...]:
        return (TIME, *super().inputs) if self.by_time else super().inputs

    def init(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        acc.append(value)
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return a + b

    def result(self, acc: list[Any]) -> list[Any]:
        if not self.by_time:
            return list(acc)
        return [value for _, value in sorted(acc, key=itemgetter(0))]

    def in_tables(self) -> RetractableAggregate:
        if self.by_time:
            raise _has_no_past(self)
        return bags.all_values()


class ArgMax(_Best):
    """The value of `field` in the tuple with the highest `by`; of equal ones, the first.

    Tuples whose `by` is None or NaN do not count.
    """

    def __init__(self, field: FieldOrFunction, by: FieldOrFunction) -> None:
        super().__init__(field)
        self.by = by

    @property
    def inputs(self) -> tuple[Any, ...]:
        return (self.field, self.by)

    def add(self, acc: Any, value: Any) -> Any:
        if value[1] is None or value[1] != value[1]:
            return acc
        return value if acc is None or value[1] > acc[1] else acc

    def result(self, acc: Any) -> Any:
        return None if acc is None else acc[0]

    def in_tables(self) -> RetractableAggregate:
        return bags.value_of_highest()


def _has_no_past(combiner: Combiner) -> StreamError:
    return StreamError(
        f"{type(combiner).__name__} cannot take a value away again: a table has the latest value "
        "of each row, and not what came before or after it",
        hint="write ArgMax(value, by=time) over rows that have their time, or "
        "aggregate(init=, adder=, subtractor=)",
    )
