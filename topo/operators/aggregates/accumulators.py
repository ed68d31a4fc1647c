"""Several aggregates over the same tuples, as one: a cell holds an accumulator for each.

With one aggregate, a cell is its accumulator; with several, a list. The loops that add a column of
tuples to cells are generated, with the arithmetic of the built-in aggregates inlined: a call per
tuple costs as much as everything else together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from topo.operators.aggregates.combiners import Combiner, Count
from topo.operators.aggregates.inputs import Bound
from topo.operators.codegen import functions

Cells: TypeAlias = dict[Any, Any]
Column: TypeAlias = "Sequence[Any] | None"

_NO_VALUES, _INLINE, _CALLS = 0, 1, 2
"""The ways in which a loop adds to an aggregate."""

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

_SESSIONS = """
def loop({parameters}):
    get = cells.get
    for {items} in {zipped}:
        live = get(key)
        if live is not None and live[0] <= ts <= live[1]:
            end = ts + gap
            if end > live[1]:
                live[1] = end
            {more}
        else:
            other(place, key, ts, ({values}))
"""


class Accumulators:
    """The aggregates of one bolt."""

    def __init__(self, aggregates: Mapping[str, Combiner | Bound]) -> None:
        self.names = tuple(aggregates)
        self.aggregates = tuple(map(Bound.of, aggregates.values()))
        self.combiners = tuple(bound.combiner for bound in self.aggregates)
        self._adds = tuple(bound.add for bound in self.aggregates)
        self.alone = len(self.combiners) == 1
        self.mergeable = all(combiner.mergeable for combiner in self.combiners)
        self.grows = any(combiner.grows for combiner in self.combiners)
        self.counts_only = self.alone and type(self.combiners[0]) is Count
        self.counts_only = self.counts_only and not self.aggregates[0].inputs
        self._loops: dict[tuple[str, tuple[int, ...]], Callable[..., None]] = {}

    def new(self) -> Any:
        """Return the cell of nothing."""
        if self.alone:
            return self.combiners[0].init()
        return [combiner.init() for combiner in self.combiners]

    def add(self, cell: Any, values: Sequence[Any]) -> Any:
        """Return the cell with one tuple more; `values` has one for each aggregate."""
        if self.alone:
            return self._adds[0](cell, values[0])
        for index, add in enumerate(self._adds):
            cell[index] = add(cell[index], values[index])
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
        loop, made, calls = self._loop(_LOOP, columns)
        loop(keys, *made, cells, *calls)

    def add_to_sessions(
        self,
        keys: Iterable[Any],
        times: Sequence[int],
        columns: Sequence[Column],
        latest: Mapping[Any, Any],
        gap: int,
        other: Callable[[int, Any, int, Sequence[Any]], None],
    ) -> None:
        """Add tuples to the latest sessions of their keys; call `other` where that does not do."""
        loop, made, calls = self._loop(_SESSIONS, columns)
        loop(keys, *made, latest, *calls, range(len(times)), times, gap, other)

    def added(self, values: Sequence[Any]) -> Any:
        """Return the cell of one tuple."""
        return self.add(self.new(), values)

    def _loop(
        self, template: str, columns: Sequence[Any]
    ) -> tuple[Callable[..., None], list[Any], list[Any]]:
        """Return the loop for these columns, those that there are, and the calls it takes."""
        given = tuple(map(self._kind, self.aggregates, columns))
        loop = self._loops.get((template, given))
        if loop is None:
            loop = self._loops[template, given] = self._compiled(template, given)
        inits = (combiner.init for combiner in self.combiners)
        calls = [call for both in zip(inits, self._adds, strict=True) for call in both]
        return loop, [column for column in columns if column is not None], calls

    @staticmethod
    def _kind(bound: Bound, column: Any) -> int:
        """Return whether there is a column, and whether it takes calls of `add` all the same."""
        if column is None:
            return _NO_VALUES
        if not bound.skips_none:
            return _INLINE
        try:
            return _CALLS if None in column else _INLINE
        except Exception:  # what values answer to == is theirs
            return _CALLS

    def _compiled(self, template: str, given: Sequence[int]) -> Callable[..., None]:
        sessions = template is _SESSIONS
        whole = "live[2]" if sessions else "cells[key]"
        held = "live[2]" if sessions else "cell"
        first, more, values = [], [], []
        for index, (bound, kind) in enumerate(zip(self.aggregates, given, strict=True)):
            value = f"value{index}" if kind else "None"
            values.append(value)
            place = held if self.alone else f"{held}[{index}]"
            if bound.inline is not None and kind != _CALLS:
                begin, step = bound.inline
                first.append(begin.format(v=value))
                step = step.format(a=place, v=value)
            else:
                first.append(f"add{index}(init{index}(), {value})")
                step = f"add{index}({place}, {value})"
            more.append(f"{whole} = {step}" if self.alone else f"{place} = {step}")
        names = [f"{call}{index}" for index in range(len(given)) for call in ("init", "add")]
        columns = [f"column{index}" for index, kind in enumerate(given) if kind]
        read = ["places", "keys", "times", *columns] if sessions else ["keys", *columns]
        items = ["place", "key", "ts"] if sessions else ["key"]
        items += [value for value in values if value != "None"]
        last = ["places", "times", "gap", "other"] if sessions else []
        code = template.format(
            parameters=", ".join(["keys", *columns, "cells", *names, *last]),
            items=", ".join(items),
            zipped=f"zip({', '.join(read)})" if len(read) > 1 else read[0],
            first=first[0] if self.alone else f"[{', '.join(first)}]",
            more="\n            ".join(more),
            values=", ".join([*values, ""]),
        )
        loop: Callable[..., None] = functions(code, {})["loop"]
        return loop
