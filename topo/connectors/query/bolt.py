"""`QueryBolt`: a SQL query, run over the tuples of each batch or over the latest ones.

    builder.set_bolt("spent", QueryBolt(
        "select country, sum(amount) spent from input join users using (user) group by country",
        tables={"users": "users.parquet"}, over="10m",
    )).shuffle_grouping("orders")

The query runs at the end of each batch in which tuples came; its rows are the bolt's tuples, and
its columns their fields. It runs over an empty input when the topology is built, so that a wrong
column is an error there. A result belongs to no tuple tree: the input is acked with the batch, in
which everything that comes of the result is committed as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.connectors.query.engine import NAME, QueryEngine, QueryError
from topo.connectors.query.retained import RetainedRows
from topo.errors import ComponentError, Problem
from topo.timed import Clock, InputFields, Operator, OperatorTask, Rows, TimedBolt

REQUIRES = "duckdb>=1.1"
_OVER = re.compile(r"\s*(\d+)\s*(rows?|s|m|h|d)\s*")
_SECS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
INPUT = "input"
"""The name of the only input in the query; each input has its component's name as well."""


class QueryBolt(TimedBolt):
    """A bolt that runs a SQL query over its input.

    `over` is "batch", a number of rows of each input and task ("1000 rows"), or a time since they
    came ("30s", "10m", "2h", "1d"). `tables` are fixed: the path of a Parquet, CSV or JSON file, or
    a list of dicts. `types` names columns' types as Arrow does ("int64", "float64", "string",
    "timestamp[us]"), for queries that cannot do without.
    """

    requires: Iterable[str] = (REQUIRES,)

    def __init__(
        self,
        sql: str,
        *,
        tables: Mapping[str, Any] | None = None,
        over: str = "batch",
        types: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(sql, str) or not sql.strip():
            raise ComponentError(f"{NAME}: the query is a str; got {sql!r}")
        self.sql = sql
        self.tables = dict(tables or {})
        self.types = dict(types or {})
        self.over = over
        self.rows, self.secs = look_back(over)
        self.inputs: dict[str, tuple[str, ...]] = {}
        self.fields: tuple[str, ...] = ()

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the result's columns, which `read_inputs` has found."""
        if self.fields:
            declarer.declare(self.fields)

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        """Find the result's columns by running the query over empty inputs."""
        self.inputs = {}
        for read in inputs:
            name = read.component if read.stream == "default" else f"{read.component}.{read.stream}"
            self.inputs[name] = read.fields
        if len(inputs) == 1:
            self.inputs[INPUT] = inputs[0].fields
        if not self.inputs:
            return
        engine = QueryEngine(self.sql, self.types, self.tables)
        try:
            self.fields = engine.result_fields(self.inputs)
        except QueryError as error:
            raise ComponentError(error.message, hint=error.hint) from error
        finally:
            engine.close()

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        """Yield a problem for each named type of a column that no input has."""
        known = {field for read in inputs for field in read.fields}
        for name in self.types:
            if name not in known:
                text = f"{where}: types names column {name!r}, which no input has"
                yield Problem("query", where, text, f"columns: {', '.join(sorted(known))}")

    def describe_time(self) -> str:
        return f"a query over {self.over}"

    def operator(self, task: OperatorTask) -> Operator:
        return _QueryOperator(self, task)


class _QueryOperator(Operator):
    """The query of one task."""

    def __init__(self, bolt: QueryBolt, task: OperatorTask) -> None:
        self._bolt = bolt
        self._task = task
        self._engine = QueryEngine(bolt.sql, bolt.types, bolt.tables)
        self._retained = RetainedRows(task.owner, bolt.rows, bolt.secs)
        self._made: dict[int, Any] = {}  # Arrow tables by chunk
        self._came: dict[str, list[Any]] = {}
        self._columns: dict[str, list[list[Any]]] = {}

    def rows(self, rows: Rows) -> None:
        name = rows.component if rows.stream == "default" else f"{rows.component}.{rows.stream}"
        columns = self._columns.get(name)
        if columns is None:
            self._columns[name] = [list(column) for column in rows.columns]
            return
        for column, more in zip(columns, rows.columns, strict=True):
            column.extend(more)

    def advance(self, clock: Clock) -> int:
        came, self._columns = self._columns, {}
        if self._bolt.over == "batch":
            tables = {
                name: [self._engine.table(self._bolt.inputs[name], columns)]
                for name, columns in came.items()
            }
        else:
            for name, columns in came.items():
                self._retained.add(name, columns, clock.now)
            trimmed = self._retained.trim(clock.now)
            came = came or ({INPUT: []} if trimmed and self._bolt.secs is not None else {})
            tables = self._retained_tables() if came else {}
        self.state_rows = self._retained.count
        if not came:
            return 0
        results = self._query(tables)
        self._task.emit(results)
        return len(results)

    def _query(self, tables: Mapping[str, list[Any]]) -> list[list[Any]]:
        inputs = {}
        for name, fields in self._bolt.inputs.items():
            parts = tables.get(name)
            if name == INPUT and len(self._bolt.inputs) == 2:
                parts = next(iter(tables.values()), None)
            empty = self._engine.table(fields, [[] for _ in fields])
            inputs[name] = self._engine.joined(parts) if parts else empty
        return self._engine.rows(inputs)

    def _retained_tables(self) -> dict[str, list[Any]]:
        before, self._made = self._made, {}
        tables: dict[str, list[Any]] = {}
        for name in self._retained.sources():
            fields = self._bolt.inputs[name]
            for number, columns in self._retained.of(name):
                table = before.get(number)
                if table is None or table.num_rows != len(columns[0]):
                    table = self._engine.table(fields, columns)
                self._made[number] = table
                tables.setdefault(name, []).append(table)
        return tables

    def wakes_at(self) -> float | None:
        return self._retained.next_end()

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._retained.load(saved)
        self.state_rows = self._retained.count

    def save(self, changes: Any) -> None:
        self._retained.save(changes)


def look_back(over: str) -> tuple[int | None, float | None]:
    """Return the rows, or the seconds, that a query looks back on; neither for "batch"."""
    if over == "batch":
        return None, None
    match = _OVER.fullmatch(over) if isinstance(over, str) else None
    if match is None or int(match[1]) == 0:
        raise ComponentError(
            f"{NAME}: over={over!r}",
            hint='over is "batch", "1000 rows", "30s", "10m", "2h" or "1d"',
        )
    number, unit = int(match[1]), match[2]
    return (number, None) if unit.startswith("row") else (None, number * _SECS[unit])
