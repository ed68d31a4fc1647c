"""The contract of an aggregate of a table's groups, whose rows come, change and go.

It stands apart from the aggregates because they stand in two modules, and both need it.
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
