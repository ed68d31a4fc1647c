"""The contract of an aggregate of a table's groups, whose rows come, change and go.

A group without rows has no result, and None is no value, as in windows. `Counting` and `WithRows`
are the two aggregates whose accumulators are no more than that and the number of rows; others are
in `exact` and `bags`.
"""

from __future__ import annotations

from typing import Any, ClassVar


class RetractableAggregate:
    """An aggregate of a group whose values may be taken away; the base of all of them."""

    counted: ClassVar[bool] = False
    """True iff it needs how often each value is there."""
    users: ClassVar[bool] = False
    """True iff its results are made by the user's code, which may change them in place."""

    def init(self) -> Any:
        """Return the accumulator of an empty group."""
        raise NotImplementedError

    def add(self, acc: Any, value: Any) -> Any:
        """Return the accumulator with a value more."""
        raise NotImplementedError

    def remove(self, acc: Any, value: Any) -> Any:
        """Return the accumulator with a value less."""
        raise NotImplementedError

    def result(self, acc: Any) -> Any:
        """Return the result of a group; None is a result too, as of values that are all None."""
        raise NotImplementedError

    def is_over(self, acc: Any, rows: int) -> bool:
        """Return True if nothing would be lost with the group, which has so many rows."""
        return not rows


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


class WithRows(RetractableAggregate):
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
