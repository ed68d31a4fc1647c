"""Sums, means and variances that values can be taken away from, exactly.

Whole numbers are added and subtracted. Floats are not: 1e16 + 1 - 1e16 is 0. So a sum of floats is
kept as n / 2**k, exact whatever comes and goes, and is rounded once, in the result. (Parts that do
not overlap, after Shewchuk, would be smaller, but overflow.) A variance is that of such a sum and
one of squares, which loses nothing either. None is no value, as in windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from topo.errors import StreamError, shown
from topo.operators.aggregates.retractable import RetractableAggregate


class Exact(RetractableAggregate):
    """A sum that values can be taken away from: of anything with plus and minus, floats exactly.

    The accumulator is (rows, values among them, floats among those, sum of the others, (n, k) for
    the floats' sum of n / 2**k, counts of the infinite ones and NaNs).
    """

    def init(self) -> Any:
        return (0, 0, 0, None, (0, 0), ())

    def add(self, acc: Any, value: Any) -> Any:
        rows, values, floats, rest, parts, odd = acc
        if value is None:
            return rows + 1, values, floats, rest, parts, odd
        if isinstance(value, float):
            if math.isfinite(value):
                return rows + 1, values + 1, floats + 1, rest, _grown(parts, value, 1), odd
            odd = _counted(odd, repr(float(value)), 1)
            return rows + 1, values + 1, floats + 1, rest, parts, odd
        _refuse_sequence(value)
        return rows + 1, values + 1, floats, value if rest is None else rest + value, parts, odd

    def remove(self, acc: Any, value: Any) -> Any:
        rows, values, floats, rest, parts, odd = acc
        if rows <= 1:
            return self.init()
        if value is None:
            return rows - 1, values, floats, rest, parts, odd
        if isinstance(value, float):
            if math.isfinite(value):
                return rows - 1, values - 1, floats - 1, rest, _grown(parts, value, -1), odd
            odd = _counted(odd, repr(float(value)), -1)
            return rows - 1, values - 1, floats - 1, rest, parts, odd
        return rows - 1, values - 1, floats, -value if rest is None else rest - value, parts, odd

    def total(self, acc: Any) -> Any:
        """Return the sum."""
        _, _, floats, rest, parts, odd = acc
        if not (floats or parts[0] or odd):  # rows of an earlier topo had numpy's among the others
            return 0 if rest is None else rest
        if odd:
            return sum(float(name) for name, _ in odd)
        n, k = parts
        if type(rest) is int:
            n, rest = n + (rest << k), None
        try:
            total = n / (1 << k)
        except OverflowError:
            total = math.inf if n > 0 else -math.inf
        return total if rest is None else total + rest

    def result(self, acc: Any) -> Any:
        return self.total(acc) if acc[0] else None


class ExactMean(Exact):
    """A mean that values can be taken away from."""

    def result(self, acc: Any) -> Any:
        return self.total(acc) / acc[1] if acc[1] else None


class ExactVar(RetractableAggregate):
    """A variance that values can be taken away from: of the exact sums of values and squares.

    The accumulator is (rows, values among them, their sum, the sum of their squares, those that
    are no finite numbers), with both sums as (n, k) for n / 2**k. None is no value.
    """

    def __init__(self, sample: bool) -> None:
        self._sample = sample

    def init(self) -> Any:
        return (0, 0, (0, 0), (0, 0), 0)

    def add(self, acc: Any, value: Any) -> Any:
        return self._changed(acc, value, 1)

    def remove(self, acc: Any, value: Any) -> Any:
        return self.init() if acc[0] <= 1 else self._changed(acc, value, -1)

    def _changed(self, acc: Any, value: Any, sign: int) -> Any:
        rows, values, total, squares, odd = acc
        rows += sign
        if value is None:
            return rows, values, total, squares, odd
        if not isinstance(value, int):
            _refuse_sequence(value)
            value = float(value)
            if not math.isfinite(value):
                return rows, values + sign, total, squares, odd + sign
        n, whole = value.as_integer_ratio()
        k = whole.bit_length() - 1
        total, squares = _plus(total, n, k, sign), _plus(squares, n * n, 2 * k, sign)
        return rows, values + sign, total, squares, odd

    def result(self, acc: Any) -> Any:
        _, values, (n, k), (squares, of), odd = acc
        count = values - 1 if self._sample else values
        if count <= 0:
            return None
        if odd:
            return math.nan
        # (squares / 2**of - (n / 2**k)**2 / values) / count, in whole numbers to the end.
        distance = (squares * values << 2 * k) - (n * n << of)
        try:
            return distance / (count * values << (of + 2 * k))
        except OverflowError:
            return math.inf


def _refuse_sequence(value: Any) -> None:
    """Raise a StreamError for text and lists: plus joins them, and nothing takes them away."""
    if isinstance(value, Sequence):
        raise StreamError(
            f"an aggregate of a table adds and subtracts its values, and {shown(value)} is a "
            f"{type(value).__name__}",
            hint="aggregate a function that makes a number of it",
        )


def _grown(parts: tuple[int, int], value: float, sign: int) -> tuple[int, int]:
    """Return a sum n / 2**k with a value more or less."""
    more, whole = value.as_integer_ratio()
    return _plus(parts, more, whole.bit_length() - 1, sign)


def _plus(parts: tuple[int, int], more: int, own: int, sign: int) -> tuple[int, int]:
    """Return a sum n / 2**k with more / 2**own more or less."""
    n, k = parts
    if own > k:
        n, k = n << (own - k), own
    n += sign * (more << (k - own))
    return (n, k) if n else (0, 0)


def _counted(odd: tuple[tuple[str, int], ...], name: str, more: int) -> tuple[tuple[str, int], ...]:
    counts = dict(odd)
    counts[name] = counts.get(name, 0) + more
    return tuple(sorted((name, n) for name, n in counts.items() if n))
