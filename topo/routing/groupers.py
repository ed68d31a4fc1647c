"""Dealing the rows of a stream over the tasks of a bolt that reads it, a flush at a time.

A grouper gets all rows that were emitted since the last flush, column by column, and answers with
deals. A deal covers rows (all of them, or those it lists) and splits them into one part per task;
one row in two deals, or twice in one, is a tuple that goes to two tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

import numpy as np

from topo.errors import EmitError
from topo.routing.bulk_hashing import FEW_VALUES, ColumnHasher, mix_arrays
from topo.routing.hashing import mix, stable_hash
from topo.wire.frame import I64, Column

Selector: TypeAlias = slice | I64 | None


@dataclass
class Deal:
    """A split of `rows` (numbers; None: all) into one part per task, each a selection from them."""

    rows: I64 | None
    parts: list[tuple[int, Selector]]


class RowsOf(Sequence[list[Any]]):
    """The rows of columns, each made when it is asked for."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, number: Any) -> Any:
        return [column[number] for column in self._columns]

    def __iter__(self) -> Iterator[list[Any]]:
        return map(list, zip(*self._columns, strict=True))


@dataclass
class Rows:
    """The rows that a stream has collected since the last flush."""

    values: Sequence[Any]
    columns: list[Column]
    targets: list[int]  # of direct emits

    @property
    def count(self) -> int:
        return len(self.values)


class Grouper:
    """A rule that deals rows over `tasks`; its memory between flushes is `state`."""

    def __init__(self, tasks: Sequence[int]) -> None:
        self.tasks = list(tasks)

    def deal(self, rows: Rows) -> list[Deal]:
        raise NotImplementedError

    def start_batch(self, batch_id: int) -> None:
        """Begin a batch of a stateless component alike in every execution of the batch."""

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        """Take over a saved `state`."""


class OneTask(Grouper):
    """The global grouping, and any grouping over a single task."""

    def deal(self, rows: Rows) -> list[Deal]:
        return [Deal(None, [(self.tasks[0], None)])]


class EveryTask(Grouper):
    def deal(self, rows: Rows) -> list[Deal]:
        return [Deal(None, [(task, None)]) for task in self.tasks]


class Shuffle(Grouper):
    """Round robin. Producers begin at different tasks, so that few tuples spread over several."""

    def __init__(self, tasks: Sequence[int], start: int) -> None:
        super().__init__(tasks)
        self._next = self._start = start % len(self.tasks)

    def deal(self, rows: Rows) -> list[Deal]:
        count = len(self.tasks)
        parts: list[tuple[int, Selector]] = []
        for offset in range(min(count, rows.count)):
            parts.append((self.tasks[(self._next + offset) % count], slice(offset, None, count)))
        self._next = (self._next + rows.count) % count
        return [Deal(None, parts)]

    def start_batch(self, batch_id: int) -> None:
        self._next = (self._start + batch_id) % len(self.tasks)

    def state(self) -> int:
        return self._next

    def restore(self, state: int) -> None:
        self._next = state % len(self.tasks)


class ByFields(Grouper):
    """The same task for equal values, by a hash on which every process agrees."""

    def __init__(self, tasks: Sequence[int], positions: Sequence[int]) -> None:
        super().__init__(tasks)
        self._hashers = [(position, ColumnHasher()) for position in positions]

    def deal(self, rows: Rows) -> list[Deal]:
        if rows.count <= FEW_VALUES:
            return self._deal_few(rows)
        combined = None
        for position, hasher in self._hashers:
            column = rows.columns[position]
            try:
                hashes = hasher.hashes(column)
            except Exception:
                _name_unhashed(rows, position)
                raise
            combined = hashes if combined is None else mix_arrays(combined, hashes)
        assert combined is not None, "grouping by no field is by one task"
        chosen = (combined % np.uint64(len(self.tasks))).astype(np.uint16)
        return [Deal(None, _by_target(chosen, self.tasks))]

    def _deal_few(self, rows: Rows) -> list[Deal]:
        combined: list[int] = []
        for position, hasher in self._hashers:
            try:
                hashes = hasher.few_hashes(rows.columns[position])
            except Exception:
                _name_unhashed(rows, position)
                raise
            combined = list(map(mix, combined, hashes)) if combined else hashes
        count = len(self.tasks)
        parts: dict[int, list[int]] = {}
        for row, digest in enumerate(combined):
            parts.setdefault(digest % count, []).append(row)
        if len(parts) == 1:
            return [Deal(None, [(self.tasks[place], None) for place in parts])]
        arrays = ((place, np.array(parts[place], np.int64)) for place in sorted(parts))
        return [Deal(None, [(self.tasks[place], chosen) for place, chosen in arrays])]


class PartialKey(Grouper):
    """The less used of the two tasks that a key may go to."""

    def __init__(self, tasks: Sequence[int], positions: Sequence[int]) -> None:
        super().__init__(tasks)
        self._positions = list(positions)
        self._loads = [0] * len(self.tasks)

    def deal(self, rows: Rows) -> list[Deal]:
        keys = zip(*(rows.columns[p] for p in self._positions), strict=True)
        chosen = np.empty(rows.count, dtype=np.uint16)
        for row, key in enumerate(keys):
            try:
                candidates = self.candidates(key)
            except Exception as error:
                raise ChoiceFailed("partial key grouping", rows.values[row]) from error
            place = least_used(candidates, self._loads)
            self._loads[place] += 1
            chosen[row] = place
        return [Deal(None, _by_target(chosen, self.tasks))]

    def candidates(self, key: tuple[Any, ...]) -> tuple[int, ...]:
        """Return two places in `tasks`, which differ if there are two tasks."""
        count = len(self.tasks)
        digest = stable_hash(key)
        first = digest % count
        if count == 1:
            return (first,)
        return first, (first + 1 + mix(digest, 1) % (count - 1)) % count

    def state(self) -> list[int]:
        return self._loads

    def restore(self, state: list[int]) -> None:
        if len(state) == len(self._loads):
            self._loads = list(state)


def least_used(candidates: Sequence[int], loads: Sequence[int]) -> int:
    """Return the first candidate with the least load."""
    return min(candidates, key=loads.__getitem__)


def _name_unhashed(rows: Rows, position: int) -> None:
    """Raise a ChoiceFailed for the first row whose value at this position has no hash."""
    for values in rows.values:
        try:
            stable_hash(values[position])
        except Exception as error:
            raise ChoiceFailed("fields grouping", values) from error


class ChoiceFailed(Exception):
    """The failure of a custom grouping to choose tasks; `__cause__` says why."""

    def __init__(self, grouping: str, values: Any) -> None:
        super().__init__(grouping, values)
        self.grouping = grouping
        self.values = values


class Custom(Grouper):
    """The user's own choice, tuple by tuple."""

    def __init__(
        self, tasks: Sequence[int], choose: Callable[[list[Any]], Iterable[int]], name: str
    ) -> None:
        super().__init__(tasks)
        self._choose = choose
        self._name = name
        self._known = frozenset(self.tasks)

    def deal(self, rows: Rows) -> list[Deal]:
        numbers: list[int] = []
        targets: list[int] = []
        for number, values in enumerate(rows.values):
            try:
                chosen = self._chosen(self._choose(list(values)))
            except BaseException as error:
                raise ChoiceFailed(f"custom grouping {self._name}", values) from error
            numbers.extend([number] * len(chosen))
            targets.extend(chosen)
        return _listed(numbers, targets)

    def _chosen(self, returned: Any) -> list[int]:
        """Return the tasks that `choose_tasks` chose; it may have returned a generator."""
        listed = list(returned) if isinstance(returned, Iterable) else None
        try:
            chosen = list(map(index, listed or ()))
        except TypeError:
            chosen = None
        if listed is None or chosen is None or not self._known.issuperset(chosen):
            raise EmitError(
                f"{self._name}.choose_tasks returned {returned if listed is None else listed!r}",
                hint=f"return a list of task ids, out of {self.tasks}",
            )
        return chosen


class Direct(Grouper):
    """The tasks named by the producer, as far as they are this bolt's."""

    def deal(self, rows: Rows) -> list[Deal]:
        own = frozenset(self.tasks)
        numbers = [number for number, target in enumerate(rows.targets) if target in own]
        return _listed(numbers, [rows.targets[number] for number in numbers])


def _listed(numbers: list[int], targets: list[int]) -> list[Deal]:
    if not numbers:
        return []
    tasks, places = np.unique(np.array(targets), return_inverse=True)
    parts = _by_target(places.astype(np.uint16), tasks.tolist())
    return [Deal(np.array(numbers, dtype=np.int64), parts)]


def _by_target(chosen: Any, tasks: Sequence[int]) -> list[tuple[int, Selector]]:
    """Return one part for each chosen task, its rows in order."""
    # A stable sort of 16-bit integers is a radix sort.
    order = np.argsort(chosen, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=len(tasks))).tolist()
    parts: list[tuple[int, Selector]] = []
    start = 0
    for task, end in zip(tasks, ends, strict=True):
        if end > start:
            parts.append((task, order[start:end]))
        start = end
    return parts
