"""Any batch sink of Spark's as a bolt: files in its formats, JDBC, and what others bring as jars.

The bolt hands out rows; they leave the last level with the batch, and Spark writes them before it
commits: one write for each sink and batch. A batch that runs again is written again. Files of a
batch are in a directory of their own, which the second write replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from topo.columns import TakesColumns
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice
from topo.connectors.exact import check_exact
from topo.connectors.publication import RejectingSink
from topo.connectors.spark.schemas import arrow_schema
from topo.connectors.spark.source import checked_options
from topo.errors import ComponentError, did_you_mean
from topo.tuples import Fields, Tuple
from topo.ways import BY_BATCH, BY_TUPLE
from topo.wire.arrow import ArrowColumn

_NAME = "SparkSink"
_FILES = ("avro", "csv", "json", "orc", "parquet", "text", "xml")


Refused: TypeAlias = "tuple[list[Any], Exception]"


class SparkSink(TakesColumns, RejectingSink):
    """A bolt whose tuples Spark writes by `df.write.format(format).options(...)`.

    `schema` names the columns and their types as Spark does; a row has the tuple's fields of those
    names, or what `map` makes of a tuple. Of the file formats, `guarantee="by_batch"` is the
    default: `path/topo_checkpoint=ID/topo_batch=N` holds what batch N has written, and
    `partition_by` makes directories below it. Other sinks are appended to, at least once.
    """

    requires = ("pyarrow>=18",)
    connector = _NAME
    stateless = True
    transient = ("_rows",)

    @answering()
    def __init__(
        self,
        format: str,
        options: Mapping[str, Any] | None = None,
        *,
        schema: str,
        path: str | None = None,
        map: Callable[[Tuple], Mapping[str, Any]] | None = None,
        partition_by: str | Iterable[str] = (),
        guarantee: Literal["at_least_once", "by_batch"] | None = None,
        on_bad: OnBad = "stop",
    ) -> None:
        if not isinstance(format, str) or not format:
            raise ComponentError(f"{_NAME}: format={format!r}; it is 'parquet', for example")
        chosen = guarantee or ("by_batch" if format in _FILES else "at_least_once")
        check_choice(_NAME, "guarantee", chosen, ("at_least_once", "by_batch"))
        if chosen == "by_batch" and format not in _FILES:
            raise ComponentError(
                f"{_NAME}: guarantee='by_batch' is for files, and format={format!r} is none",
                hint=f"files are {', '.join(_FILES)}; others are appended to, at least once",
            )
        if format in _FILES and not path:
            raise ComponentError(f"{_NAME}: format={format!r} needs path=, a directory")
        names = [field.name for field in arrow_schema(schema)]
        unknown = [name for name in Fields(partition_by) if name not in names]
        if unknown:
            raise ComponentError(f"{_NAME}: partition_by names {unknown[0]!r}, which is no column")
        self.schema, self.map = schema, map
        self.hook = BY_BATCH if map is None else BY_TUPLE
        self.set_on_bad(on_bad)
        self.external = {
            "engine": "spark",
            "sink": {
                "format": format,
                "options": checked_options(_NAME, options),
                "schema": schema,
                "path": path,
                "partition_by": list(Fields(partition_by)),
                "guarantee": chosen,
            },
        }

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self._rows = _Rows(arrow_schema(self.schema))

    def execute(self, tup: Tuple) -> None:
        assert self.map is not None, "columns are taken as they are without it"
        try:
            self._rows.add(_values(self._rows.names, tup, self.map(tup)))
        except Exception as error:
            self.reject(list(tup.values), error)

    def process_columns(
        self, fields: Sequence[str], columns: Sequence[Sequence[Any]], count: int
    ) -> None:
        missing = [name for name in self._rows.names if name not in fields]
        if missing:
            hint = did_you_mean(missing[0], fields) or f"they are {', '.join(fields)}"
            error = ComponentError(f"{_NAME}: no field {missing[0]!r} in the input", hint=hint)
            if self.on_bad == "stop":
                raise error
            self._rows.refuse(zip(*columns, strict=True), error)
        else:
            self._rows.extend([columns[fields.index(name)] for name in self._rows.names])

    def pre_commit(self, batch_id: int) -> None:
        stream, count, refused = self._rows.take()
        for values, error in refused:
            self.reject(values, error)
        if count:
            self.context.hand_out(stream)
            self.context.counter("rows", count)


def _values(names: list[str], tup: Tuple, row: Mapping[str, Any] | None) -> list[Any]:
    if row is None:
        return [tup[name] for name in names]
    unknown = [name for name in row if name not in names]
    if unknown:
        raise ValueError(f"map gave a column {unknown[0]!r}, which the schema has not")
    return [row.get(name) for name in names]


def _array(pa: Any, values: list[Any], kind: Any) -> Any:
    array = pa.array(values, kind)
    check_exact(pa, values, kind)
    return array


class _Rows:
    """The rows of a batch, on their way into an Arrow stream of a schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self.names: list[str] = list(schema.names)
        self._batches: list[Any] = []
        self._columns: list[list[Any]] = [[] for _ in self.names]
        """The values of later rows, which are not Arrow's yet."""
        self._refused: list[Refused] = []

    def add(self, values: Sequence[Any]) -> None:
        """Add a row."""
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def extend(self, columns: Sequence[Sequence[Any]]) -> None:
        """Add rows by the column; those that have the schema's types stay as they are."""
        arrays = [column.array for column in columns if isinstance(column, ArrowColumn)]
        if [array.type for array in arrays] == self._schema.types:
            self._convert()
            self._batches.append(self._batch_of(arrays))
            return
        for own, column in zip(self._columns, columns, strict=True):
            own.extend(column)

    def refuse(self, rows: Iterable[Sequence[Any]], error: Exception) -> None:
        """Keep rows that cannot be written, until they are taken."""
        self._refused += [(list(row), error) for row in rows]

    def take(self) -> tuple[bytes, int, list[Refused]]:
        """Return the stream, how many rows it has, and the rows that do not fit the schema."""
        import pyarrow as pa

        self._convert()
        batches, self._batches = self._batches, []
        refused, self._refused = self._refused, []
        table = pa.Table.from_batches(batches, self._schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as stream:
            stream.write_table(table.combine_chunks())
        return bytes(sink.getvalue()), table.num_rows, refused

    def _convert(self) -> None:
        """Make Arrow's of the rows that are not; refuse those that do not fit."""
        import pyarrow as pa

        columns, self._columns = self._columns, [[] for _ in self.names]
        if not columns[0]:
            return
        try:
            arrays = self._arrays(pa, columns)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            fitting = [row for row in zip(*columns, strict=True) if self._fits(pa, row)]
            columns = [list(column) for column in zip(*fitting, strict=True)]
            arrays = self._arrays(pa, columns) if fitting else []
        if arrays:
            self._batches.append(self._batch_of(arrays))

    def _arrays(self, pa: Any, columns: list[list[Any]]) -> list[Any]:
        typed = zip(columns, self._schema.types, strict=True)
        return [_array(pa, column, kind) for column, kind in typed]

    def _batch_of(self, arrays: list[Any]) -> Any:
        import pyarrow as pa

        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _fits(self, pa: Any, row: Sequence[Any]) -> bool:
        for name, value, field in zip(self.names, row, self._schema, strict=True):
            try:
                _array(pa, [value], field.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                reason = str(error).partition("\n")[0]
                wrong = ValueError(f"column {name!r} is {field.type}: {reason}")
                self.refuse([row], wrong)
                return False
        return True
