"""A table joined with the table that its values point to.

The rows of the left table come to the tasks of the keys they point to, and stay there beside the
right table's rows, by the key pointed to. So a change on either side finds what it matches in one
task. When a left row points elsewhere, one task takes its result back and another one gives the
new one; `ChangesByKey` puts the two together by the left key, as one change. Both exchanges are
levels of the same batch, so neither is ever seen alone, and no version numbers are needed to tell
an old answer from a new one: there is no answer that is late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from topo.errors import StreamError
from topo.event_time import EventTime
from topo.operators.inputs import unhashable
from topo.storage.saving import SavedMapping, column_with_one_nan, keys_of
from topo.tables.changelog import ChangelogBolt, ChangelogOperator
from topo.tables.expression import INNER, NO_TIME, same
from topo.tables.leaving import Change
from topo.tables.sources import SourcePlan, TableSource
from topo.timed import Clock, Operator, OperatorTask, Rows

_GONE = (None, NO_TIME)


class ForeignJoinBolt(ChangelogBolt):
    """The rows that point to a table, and the table."""

    def __init__(
        self,
        right: SourcePlan,
        how: str,
        function: Callable[[Any, Any], Any],
        time: EventTime | None,
        *,
        unchanged: bool,
        label: str = "",
    ) -> None:
        super().__init__(time)
        self.right = right
        self.how = how
        self.function = function
        self.unchanged = unchanged
        self.label = label

    def operator(self, task: OperatorTask) -> Operator:
        return ForeignJoin(self, task)


class ForeignJoin(ChangelogOperator):
    """The right table of one task, and the rows that point to it."""

    def __init__(self, bolt: ForeignJoinBolt, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        self._inner = bolt.how == INNER
        self._function = bolt.function
        self._unchanged = bolt.unchanged
        self._label = bolt.label
        self._right = TableSource(bolt.right, "right", task.owner)
        self._left: dict[Any, dict[Any, tuple[Any, Any]]] = {}
        """By foreign key and key: the row and its time."""
        self._fresh: dict[tuple[Any, Any], tuple[Any, Any]] = {}
        self._touched: dict[tuple[Any, Any], None] = {}
        self._rows = _Pairs(self._left)
        self._log = SavedMapping("left", task.owner, "the table's row of {key!r}")

    def rows(self, rows: Rows) -> None:
        columns, times = self.good(rows)
        plan = self._right.plan
        if (rows.component, rows.stream) == (plan.component, plan.stream):
            self._right.put(columns, times)
            return
        try:
            pairs = keys_of(columns[:2], rows.count)
            self._fresh.update(zip(pairs, zip(columns[2], times, strict=True), strict=True))
        except TypeError as error:
            raise (
                unhashable(self.task.owner, [*columns[0], *columns[1]], StreamError) or error
            ) from None

    def advance(self, clock: Clock) -> int:
        changes: dict[Any, Change] = {}
        try:
            for change in self._changes():
                put_together(changes, change)
        except Exception as error:
            error.add_note(f"in {self._label}")
            raise
        self._commit()
        self._right.commit(clock.now)
        self._right.forget_deletions(clock.watermark)
        self._right.forget(self._right.to_forget(clock.now))
        self.state_rows = len(self._rows) + len(self._right.rows)
        return self.emit(settled(changes, unchanged=self._unchanged))

    def _changes(self) -> Iterator[Change]:
        """Yield a change for each row that points to a row that changed, or that itself has."""
        known, fresh = self._right.rows, self._right.fresh
        for (foreign, key), (left, ts) in self._fresh.items():
            before = self._left.get(foreign, {}).get(key, _GONE)[0]
            right = known.get(foreign, _GONE)
            new = fresh.get(foreign, right)
            there = new[1] if new[0] is not None or foreign in fresh else NO_TIME
            yield [
                key,
                self._result(before, right[0]),
                self._result(left, new[0]),
                max(ts, there),
            ]
        for foreign, (new_right, ts) in fresh.items():
            old_right = known.get(foreign, _GONE)[0]
            for key, (left, left_ts) in self._left.get(foreign, {}).items():
                if (foreign, key) not in self._fresh:
                    before = self._result(left, old_right)
                    yield [key, before, self._result(left, new_right), max(ts, left_ts)]

    def _result(self, left: Any, right: Any) -> Any:
        if left is None or (right is None and self._inner):
            return None
        return self._function(left, right)

    def _commit(self) -> None:
        for (foreign, key), row in self._fresh.items():
            own = self._left.get(foreign)
            if row[0] is not None:
                if own is None:
                    own = self._left[foreign] = {}
                self._rows.total += key not in own
                own[key] = row
            elif own is not None and own.pop(key, None) is not None:
                self._rows.total -= 1
                if not own:
                    del self._left[foreign]
        self._touched.update(dict.fromkeys(self._fresh))
        self._fresh = {}

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._right.load(saved)
        pairs = self._log.load(saved)
        for (foreign, key), row in pairs.items():
            self._left.setdefault(foreign, {})[key] = row
        self._rows.total = len(pairs)
        self.state_rows = len(pairs) + len(self._right.rows)

    def save(self, changes: Any) -> None:
        self._right.save(changes)
        touched, self._touched = self._touched, {}
        self._log.save(self._rows, touched, changes)


class _Pairs(Mapping[tuple[Any, Any], tuple[Any, Any]]):
    """The left rows as what is saved: {(foreign key, key): row}."""

    def __init__(self, rows: dict[Any, dict[Any, tuple[Any, Any]]]) -> None:
        self._rows = rows
        self.total = 0

    def __getitem__(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        return self._rows[pair[0]][pair[1]]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((foreign, key) for foreign, own in self._rows.items() for key in own)

    def __reversed__(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(self)[::-1])

    def __len__(self) -> int:
        return self.total


def put_together(changes: dict[Any, Change], change: Change) -> None:
    """Add a change of a key to those of the batch.

    Of two changes of one key, one takes a result back and the other one gives one.
    """
    known = changes.get(change[0])
    if known is None:
        changes[change[0]] = change
        return
    if known[1] is None:
        known[1] = change[1]
    if change[2] is not None:
        known[2] = change[2]
    known[3] = max(known[3], change[3])


def settled(changes: dict[Any, Change], *, unchanged: bool) -> list[Change]:
    """Return the changes that are ones."""
    return [
        change
        for change in changes.values()
        if (change[1] is not None or change[2] is not None)
        and (unchanged or not same(change[1], change[2]))
    ]


class ChangesByKeyBolt(ChangelogBolt):
    """The changes of a join by foreign key, put together by key."""

    def __init__(self, time: EventTime | None, *, unchanged: bool) -> None:
        super().__init__(time)
        self.unchanged = unchanged

    def operator(self, task: OperatorTask) -> Operator:
        return ChangesByKey(self, task)


class ChangesByKey(ChangelogOperator):
    """The changes of one batch; nothing is kept."""

    def __init__(self, bolt: ChangesByKeyBolt, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        self._unchanged = bolt.unchanged
        self._changes: dict[Any, Change] = {}

    def rows(self, rows: Rows) -> None:
        columns, times = self.good(rows)
        keys = column_with_one_nan(columns[0])
        for key, old, new, ts in zip(keys, *columns[1:3], times, strict=True):
            put_together(self._changes, [key, old, new, ts])

    def advance(self, clock: Clock) -> int:
        changes, self._changes = self._changes, {}
        return self.emit(settled(changes, unchanged=self._unchanged))
