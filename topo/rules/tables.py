"""Reference tables: what `lookup(key, 'TABLE', 'FIELD')` finds.

A table is fixed, a mapping of key to row, or the latest rows of a component, by all grouping and
kept in state. Its changes in a batch are applied before the batch's events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topo.conditions import Condition
from topo.errors import Problem, RuleError, did_you_mean, shown
from topo.tables.lookup import Upserts
from topo.tables.stores import LatestStore
from topo.tables.table import Table
from topo.timed import InputFields, OperatorTask, Rows

Tables = Mapping[str, "Table | Mapping[Any, Mapping[str, Any]]"]


def check_tables(tables: Any) -> Tables:
    """Return reference tables by name; raise a RuleError for what is none."""
    if tables is None:
        return {}
    if not isinstance(tables, Mapping):
        raise RuleError(
            f"tables is {shown(tables)}", hint='tables={"ROUTES": Table("routes", ...)}'
        )
    for name, table in tables.items():
        if not isinstance(table, Table | Mapping):
            raise RuleError(
                f"table {name!r} is {shown(table)}; it takes a Table, or a mapping of key to row",
                hint='write Table("routes", key="id")',
            )
        if isinstance(table, Table) and table.versioned is not None:
            raise RuleError(f"table {name!r} is versioned; a lookup finds the latest row")
        if isinstance(table, Mapping):
            odd = next((row for row in table.values() if not isinstance(row, Mapping)), None)
            if odd is not None:
                raise RuleError(f"table {name!r}: {shown(odd)} is no row, a mapping of fields")
    return dict(tables)


def lookup_problems(
    where: str, tables: Tables, conditions: Iterable[Condition], inputs: Iterable[InputFields]
) -> Iterable[Problem]:
    """Yield a problem for each lookup of a table or field that is not there."""
    fields = {(read.component, read.stream): read for read in inputs}
    for name, table in tables.items():
        if not isinstance(table, Table):
            continue
        read = fields.get(table.stream)
        if read is None:
            text = f"{where}: table {name!r} is of {table.stream[0]!r}, which it does not read"
            yield Problem("rule-table", where, text, f"write .all_grouping({table.stream[0]!r})")
        elif read.grouping not in ("all", "global"):
            text = (
                f"{where}: table {name!r} comes by {read.grouping} grouping: each task has a part"
            )
            yield Problem("rule-table", where, text, f"write .all_grouping({table.stream[0]!r})")
        else:
            for key in (key for key in table.keys if key not in read.fields):
                text = f"{where}: the key {key!r} of table {name!r} is no field of it"
                yield Problem("rule-table", where, text, did_you_mean(key, read.fields))
    for condition in conditions:
        for name, field in condition.tables:
            if name not in tables:
                text = f"{where}: {condition.what}: there is no table {name!r}"
                hint = did_you_mean(name, tables) or f"write tables={{{name!r}: ...}}"
                yield Problem("rule-table", where, text, hint)
                continue
            columns = _fields_of(tables[name], fields)
            if columns is not None and field not in columns:
                text = f"{where}: {condition.what}: table {name!r} has no field {field!r}"
                yield Problem("rule-table", where, text, did_you_mean(field, columns))


def _fields_of(
    table: Table | Mapping[Any, Mapping[str, Any]], inputs: Mapping[tuple[str, str], InputFields]
) -> Iterable[str] | None:
    if isinstance(table, Table):
        read = inputs.get(table.stream)
        return None if read is None else read.fields
    return {field for row in table.values() for field in row} if table else None


class ReferenceTables:
    """The tables of one task."""

    def __init__(self, tables: Tables, inputs: Iterable[InputFields], task: OperatorTask) -> None:
        self._task = task
        self._fixed = {n: table for n, table in tables.items() if not isinstance(table, Table)}
        self._stores: dict[str, LatestStore] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self._upserts: dict[tuple[str, str], list[tuple[LatestStore, Upserts]]] = {}
        fields = {(read.component, read.stream): read.fields for read in inputs}
        for name, table in tables.items():
            if isinstance(table, Table):
                own = fields[table.stream]
                ttl = None if table.ttl is None else table.ttl.total_seconds()
                store = LatestStore(f"table-{name}", task.owner, ttl, table.max_keys)
                self._stores[name], self._columns[name] = store, own
                self._upserts.setdefault(table.stream, []).append((store, Upserts(table, own)))

    def __len__(self) -> int:
        return sum(map(len, self._stores.values()))

    def take(self, rows: Rows) -> bool:
        """Take in changes of tables; return False if these tuples are none."""
        upserts = self._upserts.get((rows.component, rows.stream))
        if upserts is None:
            return False
        for store, changes in upserts:
            keys, values = changes.changes(rows)
            store.put(keys, values, [0] * rows.count, self._task.now())
        return True

    def lookup(self, key: Any, table: str, field: str) -> Any:
        """Return the field of a key's row; None if there is none."""
        try:
            if table in self._fixed:
                return self._fixed[table].get(key, {}).get(field)
            row = self._stores[table].find(key, None)
        except TypeError:  # not hashable, so no key
            return None
        return None if row is None else row[self._columns[table].index(field)]

    def forget_old(self, now: float) -> None:
        """Forget the rows whose time to live is over."""
        for store in self._stores.values():
            store.forget_old(now)

    def end_batch(self, now: float) -> None:
        """Make room, in tables that have a limit."""
        for store in self._stores.values():
            store.end_batch(now, 0)

    def load(self, saved: Mapping[str, bytes]) -> None:
        for store in self._stores.values():
            store.load(saved)

    def save(self, changes: Any) -> None:
        for store in self._stores.values():
            store.save(changes)
