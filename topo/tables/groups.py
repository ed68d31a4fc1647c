"""Aggregates of the groups of a table.

Each contribution takes the old value of a row away before it adds the new one. A batch's
contributions are all applied before a result leaves, one for each group that has changed, so a row
that moves between two groups is never seen in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from topo.event_time import EventTime
from topo.operators.aggregates.bags import Bag
from topo.operators.aggregates.retractable import RetractableAggregate
from topo.storage.saving import SavedMapping, with_one_nan
from topo.tables.changelog import ChangelogBolt, ChangelogOperator
from topo.tables.expression import same
from topo.tables.leaving import ADDED, REMOVED
from topo.timed import Clock, Operator, OperatorTask, Rows

_PLAIN = {int, float, str, bytes, bool, type(None)}


class GroupedTableBolt(ChangelogBolt):
    """The aggregates of the groups of a table."""

    def __init__(
        self,
        aggregate: RetractableAggregate,
        time: EventTime | None,
        *,
        unchanged: bool,
        label: str = "",
    ) -> None:
        super().__init__(time)
        self.aggregate = aggregate
        self.unchanged = unchanged
        self.label = label

    def operator(self, task: OperatorTask) -> Operator:
        return TableGroups(self, task)


class TableGroups(ChangelogOperator):
    """The groups of one task."""

    def __init__(self, bolt: GroupedTableBolt, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        self._aggregate = bolt.aggregate
        self._unchanged = bolt.unchanged
        self._label = bolt.label
        self._groups: dict[Any, tuple[Any, Any, int]] = {}
        """By group: the accumulator (of a counted one, None), the highest time, how many rows."""
        self._bags: dict[Any, Bag] = {}
        self._before: dict[Any, Any] = {}
        """The results before this batch, of the groups that it has changed."""
        self._ended: dict[Any, Any] = {}
        """The highest times of groups that have ended in this batch."""
        self._log = SavedMapping("groups", task.owner, "the aggregate of {key!r}")
        self._counts_log = SavedMapping("counts", task.owner, "a value of {key!r}")
        self._changed: dict[Any, None] = {}
        self._touched: dict[tuple[Any, Any], None] = {}
        self._counts = _Counts(self._bags)

    def rows(self, rows: Rows) -> None:
        columns, times = self.good(rows)
        groups, kinds, olds, news = columns[:4]
        try:
            for group, kind, old, new, ts in zip(groups, kinds, olds, news, times, strict=True):
                self._apply(group, kind, old, new, ts)
        except Exception as error:
            error.add_note(f"in {self._label}")
            raise
        self.state_rows = len(self._groups)

    def _apply(self, group: Any, kind: int, old: Any, new: Any, ts: Any) -> None:
        aggregate = self._aggregate
        group = with_one_nan(group)
        if aggregate.counted:
            old, new = with_one_nan(old), with_one_nan(new)
        known = self._groups.get(group)
        if known is None:
            if kind == REMOVED:
                return  # it was never added
            kind, highest, count = ADDED, ts, 0
            acc = aggregate.init()
        else:
            highest = ts if ts > known[1] else known[1]
            acc, count = self._bags[group] if aggregate.counted else known[0], known[2]
        if group not in self._before:
            self._before[group] = None if known is None else self._result(acc)
        values = len(acc.counts) if aggregate.counted else 0
        if kind != ADDED:
            acc = aggregate.remove(acc, old)
            count -= 1
        if kind != REMOVED:
            acc = aggregate.add(acc, new)
            count += 1
        if aggregate.counted:
            if kind != ADDED:
                self._touched[group, old] = None
            if kind != REMOVED:
                self._touched[group, new] = None
            self._counts.total += len(acc.counts) - values
            self._bags[group] = acc
        if aggregate.is_over(acc, count):  # at once: it may begin anew in this very batch
            self._ended[group] = highest
            self._groups.pop(group, None)
            self._bags.pop(group, None)
        else:
            self._groups[group] = (None if aggregate.counted else acc, highest, count)

    def _result(self, acc: Any) -> Any:
        result = self._aggregate.result(acc)
        is_plain = not self._aggregate.users or type(result) in _PLAIN
        return result if is_plain else deepcopy(result)

    def advance(self, clock: Clock) -> int:
        changes = []
        counted = self._aggregate.counted
        for group, before in self._before.items():
            entry = self._groups.get(group)
            if entry is None:
                after, ts = None, self._ended[group]
            else:
                acc, ts, _ = entry
                after = self._result(self._bags[group] if counted else acc)
            if before is None and after is None:
                continue
            if self._unchanged or not (before is after or same(before, after)):
                changes.append([group, before, after, ts])
        self._changed.update(dict.fromkeys(self._before))
        self._before, self._ended = {}, {}
        self.state_rows = len(self._groups)
        return self.emit(changes)

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._groups = self._log.load(saved)
        counts = self._counts_log.load(saved)
        for (group, value), count in counts.items():
            self._bags.setdefault(group, Bag()).counts[value] = count
        self._counts.total = len(counts)
        self.state_rows = len(self._groups)

    def save(self, changes: Any) -> None:
        touched, self._changed = self._changed, {}
        self._log.save(self._groups, touched, changes)
        values, self._touched = self._touched, {}
        self._counts_log.save(self._counts, values, changes)


class _Counts(Mapping[tuple[Any, Any], int]):
    """The counts of all bags, as what is saved: {(group, value): count}."""

    def __init__(self, bags: dict[Any, Bag]) -> None:
        self._bags = bags
        self.total = 0

    def __getitem__(self, key: tuple[Any, Any]) -> int:
        return self._bags[key[0]].counts[key[1]]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((group, value) for group, bag in self._bags.items() for value in bag.counts)

    def __reversed__(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(self)[::-1])

    def __len__(self) -> int:
        return self.total
