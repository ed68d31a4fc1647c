"""Tasks that keep tuples of a pending root beyond a batch, so that a timeout can name them.

The first task to hold a root stands in the columns beside it, further ones in a dictionary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from topo.tracking.ids import U32, U64
from topo.tracking.pages import I64, Pages

_NAMED = 3


class Holders:
    """The holders of the roots in some pages."""

    def __init__(self, pages: Pages, component_of: Callable[[int], str] | None) -> None:
        self._pages = pages
        self._component_of = component_of
        self._more: dict[int, Counter[int]] = {}

    def __len__(self) -> int:
        """Return the number of roots with more than one holder."""
        return len(self._more)

    def hold(self, places: I64, roots: U64, tasks: U32) -> None:
        """Note that each of these tasks keeps one more tuple of its root."""
        pages = self._pages
        free = pages.holder[places] == 0
        pages.holder[places[free]] = tasks[free]
        first = pages.holder[places] == tasks
        np.add.at(pages.holds, places[first], 1)
        for root, task in zip(roots[~first].tolist(), tasks[~first].tolist(), strict=True):
            self._more.setdefault(root, Counter())[task] += 1

    def release(self, places: I64, roots: U64, tasks: U32) -> None:
        """Note that each of these tasks has acked or failed one kept tuple of its root."""
        pages = self._pages
        first = pages.holder[places] == tasks
        np.subtract.at(pages.holds, places[first], 1)
        gone = places[first][pages.holds[places[first]] <= 0]
        pages.holder[gone] = 0
        pages.holds[gone] = 0
        for root, task in zip(roots[~first].tolist(), tasks[~first].tolist(), strict=True):
            holders = self._more.get(root, Counter())
            holders[task] -= 1
            if holders[task] <= 0:
                del holders[task]

    def forget(self, roots: U64) -> None:
        """Drop the holders of roots that are settled."""
        if self._more:
            for root in roots.tolist():
                self._more.pop(root, None)

    def as_data(self) -> dict[int, dict[int, int]]:
        """Return, by root, the tasks that hold more of it than the columns say, and how often."""
        return {root: dict(tasks) for root, tasks in self._more.items()}

    def take_data(self, more: Mapping[int, Mapping[int, int]]) -> None:
        """Take over what `as_data` gave; the columns are taken over by `Pages`."""
        self._more = {root: Counter(tasks) for root, tasks in more.items()}

    def named(self, place: int) -> str:
        """Return "held by 'count' task 5", or "" if no task holds the root at this place."""
        pages = self._pages
        tasks = {int(pages.holder[place])} if pages.holds[place] > 0 else set()
        if self._more:
            root = int(pages.root_at(np.array([place]))[0])
            tasks |= set(self._more.get(root, ()))
        if not tasks:
            return ""
        names = [self._name(task) for task in sorted(tasks)]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"held by {', '.join(names[:_NAMED])}{more}"

    def _name(self, task: int) -> str:
        if self._component_of is None:
            return f"task {task}"
        return f"'{self._component_of(task)}' task {task}"
