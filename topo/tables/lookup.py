"""Lookups of a stream's rows in a table, in one task.

The table's changes go into the store as they come, and the rows wait for the end of the batch, so
that the order in which a batch's frames are worked on does not matter. With a versioned table a row
may wait longer, for the watermark: it is saved then, once, and deleted when it has come out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Protocol, TypeAlias

from topo.components import OutputFieldsDeclarer
from topo.errors import StreamError
from topo.event_time import AFTER_ALL, BEFORE_ALL, EventTime, TimeReader
from topo.operators.inputs import KeyedInput, key_columns, unhashable
from topo.operators.queue import RowQueue
from topo.operators.selection import ResultFields, rows_of
from topo.storage.saving import column_with_one_nan, with_one_nan
from topo.tables.stores import LatestStore, TableStore
from topo.tables.table import LookupRules, Table
from topo.tables.versions import VersionStore
from topo.timed import Clock, Operator, OperatorTask, Rows, TimedBolt

Merge: TypeAlias = Callable[[dict[str, Any], "dict[str, Any] | None"], Any]
"""Makes a result of a row and of the table's, None if there is none, both as dictionaries."""
Row: TypeAlias = tuple[Any, Any, Any]
"""Time, key and content of a stream's row."""
Changes: TypeAlias = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]
"""Keys, rows (None: deleted) and times of a table's changes."""


class LookupOperator(Operator):
    """The table and the waiting rows of one task."""

    def __init__(self, rules: LookupRules, task: OperatorTask) -> None:
        self._rules = rules
        self._task = task
        self._store: TableStore
        if rules.history is None:
            self._store = LatestStore("table", task.owner, rules.ttl, rules.max_keys)
        else:
            self._store = VersionStore(
                "table", task.owner, rules.history, by_key=not rules.waits, ttl=rules.ttl
            )
        self._fresh: list[Row] = []
        self._waiting: RowQueue[Row] = RowQueue(task.owner, lambda row, _: row, _row_again)
        self._watermark = BEFORE_ALL

    # -- the two inputs -----------------------------------------------------------------------

    @abstractmethod
    def is_table(self, rows: Rows) -> bool:
        """Return True if these are changes of the table."""

    @abstractmethod
    def changes(self, rows: Rows) -> Changes:
        """Return the changes of a table in some tuples."""

    @abstractmethod
    def stream_rows(self, rows: Rows) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the keys of some tuples, and what is kept of each."""

    @abstractmethod
    def results(self, found: Iterable[tuple[Row, Any]]) -> list[list[Any]]:
        """Return what comes out for rows of the stream and of the table, or None."""

    def rows(self, rows: Rows) -> None:
        if self.is_table(rows):
            keys, values, times = self.changes(rows)
            if None in times:
                good = self._set_bad_aside(rows, times)
                keys, values = list(compress(keys, good)), list(compress(values, good))
                times = list(compress(times, good))
            if keys:
                self._store.put(keys, values, times, self._task.now())
        else:
            self._take(rows)
        self.state_rows = len(self._store) + len(self._waiting)

    def _take(self, rows: Rows) -> None:
        keys, contents = self.stream_rows(rows)
        times: Sequence[Any] = rows.times or [0] * rows.count
        places: Iterable[int] = range(rows.count)
        late: list[int] = []
        if None in times:
            good = self._set_bad_aside(rows, times)
            places = compress(places, good)
        if self._rules.waits and self._rules.grace is None and min(_known(times)) < self._watermark:
            on_time: list[int] = []
            for place in places:
                (late if times[place] < self._watermark else on_time).append(place)
            places = on_time
            self._task.set_aside(rows, late)
        if isinstance(places, range):
            self._fresh += zip(times, keys, contents, strict=True)
        else:
            self._fresh += [(times[place], keys[place], contents[place]) for place in places]

    def _set_bad_aside(self, rows: Rows, times: Sequence[Any]) -> list[bool]:
        good = [ts is not None for ts in times]
        self._task.set_aside(rows, [place for place, ok in enumerate(good) if not ok])
        return good

    # -- time ---------------------------------------------------------------------------------

    def begin(self, clock: Clock) -> None:
        self._store.forget_old(clock.now)

    def advance(self, clock: Clock) -> int:
        fresh, self._fresh = self._fresh, []
        self._watermark = clock.watermark
        due = fresh
        if self._rules.waits:
            due = self._waiting.due(fresh, self._until(clock.watermark))
        out = self._looked_up(due)
        watermark = clock.watermark
        if self._rules.grace is not None and watermark < AFTER_ALL:
            watermark -= self._rules.grace
        self._store.end_batch(clock.now, watermark)
        expired, self._store.expired = self._store.expired, 0
        if expired:
            self._task.note_expired(expired)
        self._task.emit(out)
        self.state_rows = len(self._store) + len(self._waiting)
        return len(out)

    def _looked_up(self, due: Sequence[Row]) -> list[list[Any]]:
        find, left = self._store.find, self._rules.left
        try:
            found = [(row, find(row[1], row[0])) for row in due]
        except TypeError as error:
            raise (
                unhashable(self._task.owner, [row[1] for row in due], StreamError) or error
            ) from None
        if not left:
            found = [pair for pair in found if pair[1] is not None]
        return self.results(found)

    def _until(self, watermark: int) -> int:
        """Return the time before which rows are due."""
        return watermark if self._rules.grace is None else watermark - self._rules.grace + 1

    def next_event(self) -> int | None:
        first = self._waiting.first()
        return None if first is None else first + (self._rules.grace or 0) + 1

    def oldest(self) -> int | None:
        return self._waiting.first()

    # -- what is saved ------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._store.load(saved)
        self._waiting.load(saved)
        self._watermark = watermark
        self.state_rows = len(self._store) + len(self._waiting)

    def save(self, changes: Any) -> None:
        self._store.save(changes)
        self._waiting.save(changes)


def _row_again(row: Row) -> Row:
    return row[0], with_one_nan(row[1]), row[2]


def _known(times: Sequence[Any]) -> Iterable[int]:
    return (ts for ts in times if ts is not None) if None in times else times or (AFTER_ALL,)


class Upserts:
    """The changes of a table that tuples with these fields say: the new row of a key, or None."""

    def __init__(self, table: Table, fields: Sequence[str], time_name: str | None = None) -> None:
        self._deleted_by = table.deleted
        self._fields = tuple(fields)
        self._key = table.keys
        self._contents = [
            place
            for place, name in enumerate(fields)
            if name not in table.keys and name != time_name
        ]

    def changes(self, rows: Rows) -> tuple[Sequence[Any], list[Any]]:
        """Return the keys and rows that some tuples say."""
        values: list[Any] = list(zip(*rows.columns, strict=True))
        for place in self._deleted(rows):
            values[place] = None
        return key_columns(rows.columns, self._fields, self._key), values

    def _deleted(self, rows: Rows) -> list[int]:
        deleted, columns = self._deleted_by, rows.columns
        if isinstance(deleted, str):
            column = columns[self._fields.index(deleted)]
            return [place for place, value in enumerate(column) if value]
        if deleted is not None:
            return [place for place in range(rows.count) if deleted(rows.tuple(place))]
        if not self._contents:
            return []
        first, *rest = (columns[place] for place in self._contents)
        empty = [place for place, value in enumerate(first) if value is None]
        return [place for place in empty if all(column[place] is None for column in rest)]


class LookupDeclaration(Protocol):
    """What a bolt declares of a lookup: a `TableJoin`."""

    rules: LookupRules
    table: Table
    sides: tuple[KeyedInput, KeyedInput]
    fields: tuple[tuple[str, ...] | None, tuple[str, ...] | None]
    """The fields of the stream and of the table."""
    event_time: EventTime | None
    merge: str | Merge
    own_outputs: tuple[str, ...]

    @property
    def on(self) -> tuple[str, ...]:
        """The fields of the stream that hold the table's key."""

    def output(self) -> ResultFields:
        """Return the fields of the output and their places."""

    def time_names(self) -> tuple[str | None, str | None]:
        """Return the time fields of the stream and of the table."""


class TupleLookup(LookupOperator):
    """The lookups of a `TableJoin`: rows are tuples of values."""

    def __init__(self, bolt: LookupDeclaration, task: OperatorTask) -> None:
        super().__init__(bolt.rules, task)
        self._bolt = bolt
        own, other = bolt.fields
        assert own is not None
        assert other is not None
        self._fields = own, other
        time_name = bolt.time_names()[1]
        self._upserts = Upserts(bolt.table, other, time_name)
        self._merge = bolt.merge if callable(bolt.merge) else None
        self._make = rows_of(bolt.output()) if self._merge is None else None
        self._reader: TimeReader | None = None
        if bolt.rules.grace is not None and bolt.event_time is not None:
            where = f"{task.owner}, tuple of {bolt.sides[1].component!r}"
            self._reader = TimeReader(bolt.event_time, where, other, name=time_name)

    def is_table(self, rows: Rows) -> bool:
        return self._bolt.sides[1].is_of(rows.component, rows.stream)

    def changes(self, rows: Rows) -> Changes:
        keys, values = self._upserts.changes(rows)
        times: Sequence[Any] = rows.times or [0] * rows.count
        if self._reader is not None:
            times = self._reader.times(rows.columns, rows.count)
        return keys, values, times

    def stream_rows(self, rows: Rows) -> tuple[Sequence[Any], Sequence[Any]]:
        contents = list(zip(*rows.columns, strict=True))
        return key_columns(rows.columns, rows.fields, self._bolt.on), contents

    def results(self, found: Iterable[tuple[Row, Any]]) -> list[list[Any]]:
        if self._make is not None:
            make = self._make
            return [make(row[2], other) for row, other in found]
        assert self._merge is not None
        own, other_fields = self._fields
        out = []
        for row, other in found:
            right = None if other is None else dict(zip(other_fields, other, strict=True))
            merged = self._merge(dict(zip(own, row[2], strict=True)), right)
            out.append(list(merged) if self._bolt.own_outputs else [merged])
        return out


ROWS, UPSERTS, CHANGES = "rows", "upserts", "changes"
"""The kinds of input of bolts with tables: a stream, its rows as a table, a changelog."""


def table_changes(kind: str, rows: Rows, timed: bool) -> Changes:
    """Return what an input of a table of values says: upserts, or a changelog."""
    columns = rows.columns
    values = columns[1] if kind == UPSERTS else columns[2]
    keys = column_with_one_nan(columns[0])
    return keys, values, (rows.times or [0] * rows.count) if timed else [0] * rows.count


class LookupBolt(TimedBolt):
    """Values of a stream, by key, each with the value that a table has for the key."""

    def __init__(
        self,
        rules: LookupRules,
        function: Callable[[Any, Any], Any],
        time: EventTime | None,
        fields: tuple[str, ...],
    ) -> None:
        self.rules = rules
        self.function = function
        self.event_time = time
        self.fields = fields
        self.kinds: dict[tuple[str, str], str] = {}
        """The kind of each input, by component and stream."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        declarer.declare(*self.fields)
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    def timing(self) -> EventTime | None:
        from dataclasses import replace

        time = self.event_time
        if time is None or self.rules.grace is None:
            return time
        tables = [component for (component, _), kind in self.kinds.items() if kind != ROWS]
        return replace(time, untimed=(*time.untimed, *tables))

    def result_time(self, stream: str) -> tuple[str, int] | None:
        return None if self.event_time is None else (self.fields[-1], 0)

    def result_delay(self) -> int:
        return self.rules.grace or 0

    def operator(self, task: OperatorTask) -> Operator:
        return ValueLookup(self, task)


class ValueLookup(LookupOperator):
    """The lookups of a `LookupBolt`."""

    def __init__(self, bolt: LookupBolt, task: OperatorTask) -> None:
        super().__init__(bolt.rules, task)
        self._bolt = bolt
        self._timed = bolt.event_time is not None

    def _kind(self, rows: Rows) -> str:
        return self._bolt.kinds[rows.component, rows.stream]

    def is_table(self, rows: Rows) -> bool:
        return self._kind(rows) != ROWS

    def changes(self, rows: Rows) -> Changes:
        kind = self._kind(rows)
        if self._bolt.rules.grace is not None:  # the table does not count for the watermark
            assert self._bolt.event_time is not None
            read = self._bolt.event_time.read
            columns = rows.columns
            keys, values = column_with_one_nan(columns[0]), columns[1 if kind == UPSERTS else 2]
            return keys, values, list(map(read, columns[-1]))
        return table_changes(kind, rows, self._timed)

    def stream_rows(self, rows: Rows) -> tuple[Sequence[Any], Sequence[Any]]:
        return column_with_one_nan(rows.columns[0]), rows.columns[1]

    def results(self, found: Iterable[tuple[Row, Any]]) -> list[list[Any]]:
        function = self._bolt.function
        if self._bolt.event_time is None:
            return [[row[1], function(row[2], other)] for row, other in found]
        shown = self._bolt.event_time.shown
        return [[row[1], function(row[2], other), shown(row[0])] for row, other in found]
