"""Several aggregates over the same tuples, as one: a cell holds an accumulator for each.

With one aggregate, a cell is its accumulator; with several, a list. The loop that adds a column of
tuples to cells is generated, with the arithmetic of the built-in aggregates inlined: a call per
tuple costs as much as everything else together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from topo.windows.combiners import Combiner, Count

Cells = dict[Any, Any]

_LOOP = """
def loop({parameters}):
    get = cells.get
    for {items} in {zipped}:
        cell = get(key)
        if cell is None:
            cells[key] = {first}
        else:
            {more}
"""


class Accumulators:
    """The aggregates of one bolt."""

    def __init__(self, combiners: Mapping[str, Combiner]) -> None:
        self.names = tuple(combiners)
        self.combiners = tuple(combiners.values())
        self.alone = len(self.combiners) == 1
        self.mergeable = all(combiner.mergeable for combiner in self.combiners)
        self.counts_only = self.alone and type(self.combiners[0]) is Count
        self.counts_only = self.counts_only and self.combiners[0].field is None
        self._loops: dict[tuple[bool, ...], Callable[..., None]] = {}

    def new(self) -> Any:
        """Return the cell of nothing."""
        made = [combiner.init() for combiner in self.combiners]
        return made[0] if self.alone else made

    def add(self, cell: Any, values: Sequence[Any]) -> Any:
        """Return the cell with one tuple more; `values` has one for each aggregate."""
        if self.alone:
            return self.combiners[0].add(cell, values[0])
        for index, combiner in enumerate(self.combiners):
            cell[index] = combiner.add(cell[index], values[index])
        return cell

    def merge(self, a: Any, b: Any) -> Any:
        """Return a new cell of both."""
        if self.alone:
            return self.combiners[0].merge(a, b)
        return [c.merge(x, y) for c, x, y in zip(self.combiners, a, b, strict=True)]

    def subtract(self, whole: Any, part: Any) -> Any:
        """Return a new cell without a part; allowed where `can_subtract`."""
        if self.alone:
            return self.combiners[0].subtract(whole, part)
        return [c.subtract(x, y) for c, x, y in zip(self.combiners, whole, part, strict=True)]

    @property
    def exact(self) -> bool:
        """True if taking a part away may be exact: it depends on the values."""
        return all(combiner.exact for combiner in self.combiners)

    def can_subtract(self, cell: Any) -> bool:
        """Return True if this cell can be taken away again without a trace."""
        if self.alone:
            return self.combiners[0].can_subtract(cell)
        return all(c.can_subtract(x) for c, x in zip(self.combiners, cell, strict=True))

    def results(self, cell: Any) -> list[Any]:
        """Return what is reported of a cell, one for each aggregate."""
        if self.alone:
            return [self.combiners[0].result(cell)]
        return [c.result(x) for c, x in zip(self.combiners, cell, strict=True)]

    def named(self, cell: Any) -> dict[str, Any]:
        """Return the results by name."""
        return dict(zip(self.names, self.results(cell), strict=True))

    def add_columns(
        self, keys: Iterable[Any], columns: Sequence[Iterable[Any] | None], cells: Cells
    ) -> None:
        """Add tuples to the cells of their keys; a column of values, or None, per aggregate."""
        if self.counts_only:
            counted = Counter(keys)
            if not cells:
                cells.update(counted)
            else:
                get = cells.get
                for key, count in counted.items():
                    cells[key] = get(key, 0) + count
            return
        given = tuple(column is not None for column in columns)
        loop = self._loops.get(given)
        if loop is None:
            loop = self._loops[given] = self._compiled(given)
        combiners = [(c.init, c.add) for c in self.combiners]
        calls = [call for pair in combiners for call in pair]
        loop(keys, *(c for c in columns if c is not None), cells, *calls)

    def _compiled(self, given: Sequence[bool]) -> Callable[..., None]:
        first, more = [], []
        values = []
        for index, (combiner, has_value) in enumerate(zip(self.combiners, given, strict=True)):
            value = f"value{index}" if has_value else "None"
            if has_value:
                values.append(value)
            place = "cell" if self.alone else f"cell[{index}]"
            is_plain_count = type(combiner) is Count and has_value
            if combiner.inline is not None and not is_plain_count:
                begin, step = combiner.inline
                first.append(begin.format(v=value))
                step = step.format(a=place, v=value)
            else:
                first.append(f"add{index}(init{index}(), {value})")
                step = f"add{index}({place}, {value})"
            more.append(f"cells[key] = {step}" if self.alone else f"{place} = {step}")
        names = [f"{call}{index}" for index in range(len(given)) for call in ("init", "add")]
        columns = [f"column{index}" for index, has_value in enumerate(given) if has_value]
        code = _LOOP.format(
            parameters=", ".join(["keys", *columns, "cells", *names]),
            items=", ".join(["key", *values]),
            zipped=f"zip(keys, {', '.join(columns)})" if columns else "keys",
            first=first[0] if self.alone else f"[{', '.join(first)}]",
            more="\n            ".join(more),
        )
        made: dict[str, Any] = {}
        exec(compile(code, "<topo window>", "exec"), made)
        loop: Callable[..., None] = made["loop"]
        return loop
