"""The aggregate of a table's groups that a user gives as functions: an adder and a subtractor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo.operators.aggregates.combiners import first_value
from topo.operators.aggregates.retractable import RetractableAggregate
from topo.tables.expression import same


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
