"""Sliding windows out of panes: the combined cells of the panes in reach, without adding all.

Both ways work on whole panes, {key: cell}, and cost a few operations per key of a pane, however
many panes a window has. `RunningTotals` adds the newest pane and takes the oldest away, which is
exact for ints only: floats would drift (1e16 + 1 - 1e16). `TwoStacks` never takes away: the older
panes are merged from the newest to the oldest, once, keeping for each what remains without it;
newer ones are merged into a second heap. An hour by a second (3600 panes) costs the same as ten
seconds by one.

Of aggregates that grow with each value, lists and sets, each note is as large as what is behind it.
So theirs are kept by pane for one block of panes at a time, and otherwise by block: 900 panes of
five values took 95 MB, and take 12. Of other aggregates all panes are one block, merged once less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from math import isqrt
from typing import Any, Protocol

from topo.operators.aggregates.accumulators import Accumulators, Cells

_NOTHING: Any = object()


class PaneWindow(Protocol):
    """The combined cells of a run of panes, a queue: new ones come in, the oldest go out."""

    def push(self, cells: Cells) -> None: ...
    def pop(self) -> None: ...
    def items(self) -> Iterable[tuple[Any, Any]]: ...

    def of(self, keys: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
        """Yield those of these keys that are there, and their cells."""


class CannotSubtract(Exception):
    """A cell that leaves a trace when it is taken away again: a float."""


class RunningTotals:
    """The sum of the panes, kept by adding and taking away."""

    def __init__(self, accumulators: Accumulators) -> None:
        self._accumulators = accumulators
        self._panes: deque[Cells] = deque()
        self._totals: Cells = {}
        self._alive: dict[Any, int] = {}  # in how many panes a key is

    def push(self, cells: Cells) -> None:
        self._panes.append(cells)
        totals, alive, made = self._totals, self._alive, self._accumulators
        for key, cell in cells.items():
            if not made.can_subtract(cell):
                raise CannotSubtract
            whole = totals.get(key, _NOTHING)
            totals[key] = cell if whole is _NOTHING else made.merge(whole, cell)
            alive[key] = alive.get(key, 0) + 1

    def pop(self) -> None:
        totals, alive, subtract = self._totals, self._alive, self._accumulators.subtract
        for key, cell in self._panes.popleft().items():
            left = alive[key] - 1
            if left:
                alive[key] = left
                totals[key] = subtract(totals[key], cell)
            else:
                del alive[key], totals[key]

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._totals.items()

    def of(self, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        totals = self._totals
        return ((key, totals[key]) for key in keys if key in totals)


class TwoStacks:
    """The merge of the panes, kept without taking away."""

    def __init__(self, accumulators: Accumulators) -> None:
        self._merge = accumulators.merge
        self._grows = accumulators.grows
        self._front: Cells = {}  # of the older panes, merged
        # Of the oldest block, by pane, the oldest last: what remains without it.
        self._undo: list[Mapping[Any, Any]] = []
        # The other blocks, the oldest last: their panes, and what remains without them.
        self._blocks: list[tuple[list[Cells], Mapping[Any, Any]]] = []
        self._back: Cells = {}  # of the newer panes, merged
        self._newer: list[Cells] = []

    def push(self, cells: Cells) -> None:
        self._newer.append(cells)
        back, merge = self._back, self._merge
        for key, cell in cells.items():
            known = back.get(key, _NOTHING)
            back[key] = cell if known is _NOTHING else merge(known, cell)

    def pop(self) -> None:
        if not self._undo:
            if not self._blocks:
                self._turn()
            panes, remains = self._blocks.pop()
            self._uncover(remains)
            self._undo = [self._covered(cells) for cells in reversed(panes)]
        self._uncover(self._undo.pop())

    def _turn(self) -> None:
        """Merge the newer panes from the newest block to the oldest, noting what each covers."""
        panes, stop = self._newer, len(self._newer)
        size = isqrt(stop) + 1 if self._grows else stop
        while stop > size:
            block = panes[stop - size : stop]
            self._blocks.append((block, self._covered(self._merged(block))))
            stop -= size
        self._blocks.append((panes[:stop], {}))  # which is asked for at once
        self._newer = []
        self._back = {}

    def _merged(self, panes: Iterable[Cells]) -> Cells:
        whole: Cells = {}
        for cells in panes:
            for key, cell in cells.items():
                known = whole.get(key, _NOTHING)
                whole[key] = cell if known is _NOTHING else self._merge(known, cell)
        return whole

    def _covered(self, cells: Cells) -> Mapping[Any, Any]:
        """Merge cells before the front; return what was there of their keys."""
        front, merge = self._front, self._merge
        undo = {}
        for key, cell in cells.items():
            remains = undo[key] = front.get(key, _NOTHING)
            front[key] = cell if remains is _NOTHING else merge(cell, remains)
        return undo

    def _uncover(self, remains: Mapping[Any, Any]) -> None:
        front = self._front
        for key, cell in remains.items():
            if cell is _NOTHING:
                del front[key]
            else:
                front[key] = cell

    def items(self) -> Iterator[tuple[Any, Any]]:
        front, back, merge = self._front, self._back, self._merge
        for key, cell in front.items():
            newer = back.get(key, _NOTHING)
            yield key, cell if newer is _NOTHING else merge(cell, newer)
        for key, cell in back.items():
            if key not in front:
                yield key, cell

    def of(self, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        front, back, merge = self._front, self._back, self._merge
        for key in keys:
            older, newer = front.get(key, _NOTHING), back.get(key, _NOTHING)
            if older is _NOTHING or newer is _NOTHING:
                if older is not newer:
                    yield key, newer if older is _NOTHING else older
            else:
                yield key, merge(older, newer)
