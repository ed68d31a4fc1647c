"""Any batch sink of Spark's as a bolt: files in its formats, JDBC, and what others bring as jars.

The bolt hands out rows; they leave the last level with the batch, and Spark writes them before it
commits: one write for each sink and batch. A batch that runs again is written again. Files of a
batch are in a directory of their own, which the second write replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice
from topo.connectors.publication import RejectingSink
from topo.connectors.spark.schemas import arrow_schema
from topo.connectors.spark.source import checked_options
from topo.errors import ComponentError
from topo.tuples import Fields, Tuple

_NAME = "SparkSink"
_FILES = ("avro", "csv", "json", "orc", "parquet", "text", "xml")


class SparkSink(RejectingSink):
    """A bolt whose tuples Spark writes by `df.write.format(format).options(...)`.

    `schema` names the columns and their types as Spark does; a row has the tuple's fields of those
    names, or what `map` makes of a tuple. Of the file formats, `guarantee="by_batch"` is the
    default: `path/topo_checkpoint=ID/topo_batch=N` holds what batch N has written, and
    `partition_by` makes directories below it. Other sinks are appended to, at least once.
    """

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
        try:
            made = self.map(tup) if self.map is not None else None
            self._rows.add(_values(self._rows.names, tup, made))
        except Exception as error:
            self.reject(list(tup.values), error)

    def pre_commit(self, batch_id: int) -> None:
        stream, count, refused = self._rows.take()
        for values, error in refused:
            self.reject(values, error)
        if count:
            self.context.hand_out(stream)
            self.context.counter("rows", count)


def _values(names: list[str], tup: Tuple, made: Mapping[str, Any] | None) -> list[Any]:
    if made is None:
        return [tup[name] for name in names]
    unknown = [name for name in made if name not in names]
    if unknown:
        raise ValueError(f"map gave a column {unknown[0]!r}, which the schema has not")
    return [made.get(name) for name in names]


class _Rows:
    """The rows of a batch, on their way into an Arrow stream of a schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self.names: list[str] = list(schema.names)
        self._rows: list[list[Any]] = []

    def add(self, values: list[Any]) -> None:
        self._rows.append(values)

    def take(self) -> tuple[bytes, int, list[tuple[list[Any], Exception]]]:
        """Return the stream, how many rows it has, and the rows that do not fit the schema."""
        import pyarrow as pa

        rows, self._rows = self._rows, []
        refused: list[tuple[list[Any], Exception]] = []
        try:
            batch = self._batch(pa, rows)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            rows = [row for row in rows if self._fits(pa, row, refused)]
            batch = self._batch(pa, rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as stream:
            stream.write_batch(batch)
        return bytes(sink.getvalue()), len(rows), refused

    def _batch(self, pa: Any, rows: list[list[Any]]) -> Any:
        columns = zip(*rows, strict=True) if rows else ((),) * len(self.names)
        arrays = [
            pa.array(list(column), field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _fits(self, pa: Any, row: list[Any], refused: list[tuple[list[Any], Exception]]) -> bool:
        for name, value, field in zip(self.names, row, self._schema, strict=True):
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                said = str(error).partition("\n")[0]
                refused.append((row, ValueError(f"column {name!r} is {field.type}: {said}")))
                return False
        return True
