"""One DuckDB in memory: the tables a query reads, and its results as rows.

A batch's columns become an Arrow table, which DuckDB reads where it lies. A column's type is what
Arrow finds in its values, unless `types` names it; a query is tried on empty tables when its
topology is built, where a column without a named type has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from topo.connectors.base import load_client
from topo.connectors.exact import check_exact
from topo.errors import ComponentError, TopoError, did_you_mean

NAME = "QueryBolt"
Source = "str | Iterable[Mapping[str, Any]]"


class QueryError(TopoError):
    """An error of the query or of what it reads, in DuckDB's words."""


class QueryEngine:
    """The tables and the query of one task."""

    def __init__(self, sql: str, types: Mapping[str, str], tables: Mapping[str, Any]) -> None:
        self._duckdb = load_client("duckdb", NAME, "query")
        import pyarrow as pa

        self._pa = pa
        self.sql = sql
        self._types = {name: arrow_type(pa, name, text) for name, text in types.items()}
        self._db = self._duckdb.connect(":memory:", config={"threads": 1})
        self._db.execute("SET python_enable_replacements = false")  # no variable is a table
        for name, source in tables.items():
            self._add_table(name, source)

    def _add_table(self, name: str, source: Any) -> None:
        """Copy a fixed table into memory: a file that DuckDB reads, or a list of dicts."""
        quoted = quote(name)
        try:
            if isinstance(source, str):
                text = source.replace("'", "''")
                self._db.execute(f"CREATE TABLE {quoted} AS SELECT * FROM '{text}'")
            else:
                rows = list(source)
                names = dict.fromkeys(chain.from_iterable(rows))  # which a row need not have
                columns = {name: [row.get(name) for row in rows] for name in names}
                self._db.register("given", self._pa.table(columns))
                self._db.execute(f"CREATE TABLE {quoted} AS SELECT * FROM given")
                self._db.unregister("given")
        except (self._duckdb.Error, self._pa.ArrowInvalid, TypeError, AttributeError) as error:
            raise ComponentError(
                f"{NAME}: table {name!r} cannot be read: {first_line(error)}",
                hint="a table is the path of a Parquet, CSV or JSON file, or a list of dicts",
            ) from error

    def table(self, fields: Sequence[str], columns: Sequence[Sequence[Any]]) -> Any:
        """Return an Arrow table of these columns."""
        return self._pa.table(
            {name: self._column(name, column) for name, column in zip(fields, columns, strict=True)}
        )

    def _column(self, name: str, column: Sequence[Any]) -> Any:
        try:
            array = self._pa.array(column, type=self._types.get(name))
            if name in self._types:
                check_exact(self._pa, column, array.type)
            return array
        except (ValueError, self._pa.ArrowTypeError, OverflowError) as error:
            kinds = ", ".join(sorted({type(value).__name__ for value in column}))
            raise QueryError(
                f"column {name!r} holds {kinds}, which is no one type: {first_line(error)}",
                hint=f'make them one type before, or name it: types={{"{name}": "string"}}',
            ) from error

    def joined(self, tables: Iterable[Any]) -> Any:
        """Return the rows of several tables of the same columns, without copying them."""
        return self._pa.concat_tables(list(tables), promote_options="permissive")

    def rows(self, inputs: Mapping[str, Any]) -> list[list[Any]]:
        """Run the query over these inputs and return its result."""
        return [list(row) for row in self._run(inputs).fetchall()]

    def result_fields(self, inputs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """Return the columns of the result; raise a QueryError if the query is wrong."""
        empty = {
            name: self._pa.table(
                {field: self._pa.array([], self._types.get(field, self._pa.null())) for field in of}
            )
            for name, of in inputs.items()
        }
        return tuple(column[0] for column in self._run(empty).description)

    def _run(self, inputs: Mapping[str, Any]) -> Any:
        for name, table in inputs.items():
            self._db.register(name, table)
        try:
            return self._db.execute(self.sql)
        except self._duckdb.Error as error:
            raise QueryError(f"{first_line(error)}, in {self.sql!r}", hint=_hint(error)) from error

    def close(self) -> None:
        self._db.close()


def arrow_type(pa: Any, name: str, text: str) -> Any:
    """Return the Arrow type of that name."""
    try:
        return pa.type_for_alias(text)
    except (ValueError, TypeError):
        known = ("bool", "int64", "float64", "string", "binary", "date32", "timestamp[us]")
        raise ComponentError(
            f"{NAME}: types names {text!r} for {name!r}, which is no type of Arrow's",
            hint=did_you_mean(str(text), known) or f"such as {', '.join(known)}",
        ) from None


def quote(name: str) -> str:
    """Return a name as SQL takes any name."""
    return '"' + name.replace('"', '""') + '"'


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].removesuffix("!")


def _hint(error: BaseException) -> str:
    lines = str(error).splitlines()[1:]
    if "type casts" in str(error):
        return 'name the types of the columns: types={"amount": "float64", "at": "timestamp[us]"}'
    near = [line.strip() for line in lines if line.startswith(("Candidate", "Did you"))]
    return near[0] if near else ""
