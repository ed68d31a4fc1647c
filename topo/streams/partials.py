"""Partial aggregates in the producer's stage: one row a key and batch crosses the exchange.

Nothing is kept over batches. Where keys hardly repeat within a batch, partial aggregation costs
without saving anything, so it turns itself off: elements then pass through as aggregates of one
value, and every so many batches it tries again.
"""

from __future__ import annotations

from typing import Any

MOST_DISTINCT = 0.5
"""The share of distinct keys beyond which partial aggregation is off."""
FEWEST = 64
"""A batch with fewer elements says nothing about the share."""
OFF_FOR_BATCHES = 32


class Partials:
    """The partial aggregates of one exit of a chain, in one task."""

    def __init__(self, combiner: Any, *, keyed: bool) -> None:
        self._init, self._add = combiner.init, combiner.add
        self._keyed = keyed
        self._cells: dict[Any, Any] = {}
        self._passed: list[list[Any]] = []
        self._count = 0
        self._off = 0

    def add(self, key: Any, value: Any) -> None:
        """Take in one element; the key is None in a stream without keys."""
        self._count += 1
        if self._off and self._keyed:
            self._passed.append([key, self._add(self._init(), value)])
            return
        cells = self._cells
        cell = cells[key] if key in cells else self._init()
        cells[key] = self._add(cell, value)

    def take(self) -> list[list[Any]]:
        """Return the rows of the batch, and begin the next one."""
        if not self._keyed:
            self._count = 0
            return [[self._cells.pop(None, self._init())]]
        rows, self._passed = self._passed, []
        rows += [[key, cell] for key, cell in self._cells.items()]
        self._adapt()
        self._cells = {}
        self._count = 0
        return rows

    def _adapt(self) -> None:
        if self._off:
            self._off -= 1
        elif self._count >= FEWEST and len(self._cells) > MOST_DISTINCT * self._count:
            self._off = OFF_FOR_BATCHES
