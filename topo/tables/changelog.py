"""Tables with the same key in one bolt: kept up to date, joined with each other, passed on.

However many tables a join takes, they share one bolt, one exchange and one commit. At the end of a
batch each changed key is computed once, from the rows before and after, and leaves as one change;
the rows themselves are all that is saved.

If a table forgets rows (`ttl`, `max_keys`), their results are not taken back: what was reported
stays until the key changes again. The old result can then not be computed, so it is kept, with the
tables that have forgotten their part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.event_time import EventTime
from topo.storage.saving import SavedMapping
from topo.tables.expression import NO_TIME, Expression, compiled, same
from topo.tables.leaving import TIME, Change, Leaving
from topo.tables.sources import SourcePlan, TableSource
from topo.timed import Clock, Operator, OperatorTask, Rows, TimedBolt


class ChangelogBolt(TimedBolt):
    """The base of bolts that emit changes of tables, in event time or without times."""

    def __init__(self, time: EventTime | None) -> None:
        self.event_time = time
        self.leaving: dict[str, Leaving] = {}
        """The ways in which changes leave, by stream."""

    def leave(self, way: Leaving) -> str:
        """Return the stream on which changes leave in this way."""
        for stream, known in self.leaving.items():
            if known == way:
                return stream
        stream = "default" if not self.leaving else f"out_{len(self.leaving) + 1}"
        self.leaving[stream] = way
        return stream

    def fields_of(self, stream: str) -> tuple[str, ...]:
        """Return the fields of one of the streams."""
        fields = self.leaving[stream].fields
        return fields if self.event_time is None else (*fields, TIME)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        for stream in self.leaving:
            declarer.declare_stream(stream, *self.fields_of(stream))

    def result_time(self, stream: str) -> tuple[str, int] | None:
        return None if self.event_time is None else (TIME, 0)

    def describe_time(self) -> str:
        return "a table, by arrival" if self.event_time is None else super().describe_time()


class ChangelogOperator(Operator):
    """The base of operators that emit changes of tables."""

    def __init__(self, bolt: ChangelogBolt, task: OperatorTask) -> None:
        self.bolt = bolt
        self.task = task
        time = bolt.event_time
        self.timed = time is not None
        self._shown = None if time is None or time.unit in ("ms", "us") else time.shown

    def good(self, rows: Rows) -> tuple[Sequence[Sequence[Any]], Sequence[Any]]:
        """Return the columns and times of some tuples without those that have no time."""
        if not self.timed:
            return rows.columns, [NO_TIME] * rows.count
        times: Sequence[Any] = rows.times or [NO_TIME] * rows.count
        if None not in times:
            return rows.columns, times
        good = [ts is not None for ts in times]
        self.task.set_aside(rows, [place for place, ok in enumerate(good) if not ok])
        columns = [list(compress(column, good)) for column in rows.columns]
        return columns, list(compress(times, good))

    def emit(self, changes: list[Change]) -> int:
        """Emit changes in all the ways that they leave; return their number."""
        for stream, way in self.bolt.leaving.items():
            rows = way.rows(changes, self.timed)
            if self._shown is not None:
                for row in rows:
                    row[-1] = self._shown(row[-1])
            self.task.emit(rows, stream)
        return len(changes)


class KeyedTablesBolt(ChangelogBolt):
    """Some tables with the same key, and one result of them."""

    def __init__(
        self,
        sources: Sequence[SourcePlan],
        tree: Expression,
        time: EventTime | None,
        *,
        unchanged: bool,
    ) -> None:
        super().__init__(time)
        self.sources = tuple(sources)
        self.tree = tree
        self.unchanged = unchanged

    def operator(self, task: OperatorTask) -> Operator:
        forgets = any(source.forgets for source in self.sources)
        return (ForgettingTables if forgets else KeyedTables)(self, task)


class KeyedTables(ChangelogOperator):
    """The tables of one task."""

    def __init__(self, bolt: KeyedTablesBolt, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        self.plain = not self.timed and not any(plan.forgets for plan in bolt.sources)
        self._tables = [
            TableSource(plan, f"table_{number}", task.owner, plain=self.plain)
            for number, plan in enumerate(bolt.sources)
        ]
        self._by_input = {
            (table.plan.component, table.plan.stream): table for table in self._tables
        }
        self._compiled = compiled(
            bolt.tree, len(self._tables), plain=self.plain, unchanged=bolt.unchanged
        )
        self._unchanged = bolt.unchanged

    def rows(self, rows: Rows) -> None:
        columns, times = self.good(rows)
        self._by_input[rows.component, rows.stream].put(columns, times)

    def advance(self, clock: Clock) -> int:
        changes: list[Change] = []
        try:
            self._find_changes(changes, clock.now)
        except Exception as error:
            self._compiled.name_operator(error)
            raise
        for table in self._tables:
            table.commit(clock.now)
            table.forget_deletions(clock.watermark)
        self._forget(clock.now)
        self.state_rows = sum(len(table.rows) for table in self._tables)
        return self.emit(changes)

    def _changed_keys(self) -> Iterable[Any]:
        if len(self._tables) == 1:
            return self._tables[0].fresh
        keys: dict[Any, Any] = {}
        for table in self._tables:
            keys.update(table.fresh)
        return keys

    def _find_changes(self, changes: list[Change], now: float) -> None:
        arguments = [get for t in self._tables for get in (t.rows.get, t.fresh.get)]
        self._compiled.changed(self._changed_keys(), changes, *arguments)

    def _forget(self, now: float) -> None:
        """Forget rows; only tables that do."""

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        for table in self._tables:
            table.load(saved)
        self.state_rows = sum(len(table.rows) for table in self._tables)

    def save(self, changes: Any) -> None:
        for table in self._tables:
            table.save(changes)


class ForgettingTables(KeyedTables):
    """Tables of which some forget rows, and the results that were reported."""

    def __init__(self, bolt: KeyedTablesBolt, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        self._reported: dict[Any, tuple[Any, int]] = {}
        """By key: the result, and a bit for each table that has forgotten its row since."""
        self._log = SavedMapping("reported", task.owner, "the result of {key!r}")
        self._touched: dict[Any, None] = {}

    def begin(self, clock: Clock) -> None:
        self._forget(clock.now)

    def _find_changes(self, changes: list[Change], now: float) -> None:
        tables, value = self._tables, self._compiled.value
        for key in self._changed_keys():
            before, forgotten = self._reported.get(key, (None, 0))
            rows, times = [], []
            for number, table in enumerate(tables):
                fresh = table.fresh.get(key)
                row = fresh or table.rows.get(key)
                rows.append(None if row is None else row[0])
                there = fresh is not None or rows[-1] is not None
                times.append(row[1] if row is not None and there else NO_TIME)
                if fresh is not None:
                    forgotten &= ~(1 << number)
            after = value(key, *rows)
            if after is None and forgotten:
                nothing_left = all(row is None for row in rows)
                self._report(key, None if nothing_left else before, forgotten)
                continue
            self._report(key, after, forgotten)
            if before is None and after is None:
                continue
            if self._unchanged or not (before is after or same(before, after)):
                changes.append([key, before, after, max(times)])

    def _report(self, key: Any, result: Any, forgotten: int) -> None:
        if result is not None:
            self._reported[key] = (result, forgotten)
            self._touched[key] = None
        elif self._reported.pop(key, None) is not None:
            self._touched[key] = None

    def _forget(self, now: float) -> None:
        for number, table in enumerate(self._tables):
            for key in table.to_forget(now):
                row = table.rows[key]
                table.forget([key])
                if row[0] is None:
                    continue
                result, forgotten = self._reported.get(key, (None, 0))
                if all(key not in other.rows for other in self._tables):
                    result = None
                self._report(key, result, forgotten | 1 << number)

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        super().load(saved, watermark)
        self._reported = self._log.load(saved)

    def save(self, changes: Any) -> None:
        super().save(changes)
        touched, self._touched = self._touched, {}
        self._log.save(self._reported, touched, changes)
