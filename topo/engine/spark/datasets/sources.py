"""The rows of Spark's sources, on their way into level 0 beside the rows that call the slots.

Each source is read by Spark, which writes its offsets ahead: a batch that runs again has the same
rows. They are packed, up to some thousand at once, for the tasks of the spout in turn. The sources
stand in the query in the order of their names, after the slots' rows: Spark files offsets by a
source's place in the query, so that order is part of the checkpoint, and the plan's check holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topo.config.secrets import revealed
from topo.engine.spark.datasets.words import words_of
from topo.engine.spark.plan import Placement, Plan
from topo.engine.spark.worker.stages import ROW_SCHEMA
from topo.errors import ComponentError
from topo.topology.model import Topology
from topo.wire.rows import pack_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_ROWS_AT_ONCE = 4096


def with_sources(
    session: SparkSession, rows: DataFrame, plan: Plan, topology: Topology
) -> DataFrame:
    """Return the slots' rows together with those of every source of the topology."""
    for placed in plan.sources:
        source = topology.component(placed.id).external["source"]
        targets = [(task, plan.keys[slot]) for task, slot in placed.task_slots().items()]
        read = _rows_of(session, placed, source)
        rows = rows.unionAll(read.mapInArrow(PackRows(targets).__call__, ROW_SCHEMA))
    return rows


def _rows_of(session: SparkSession, placed: Placement, source: Mapping[str, Any]) -> DataFrame:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        reader = session.readStream.format(source["format"])
        if source["schema"]:
            reader = reader.schema(source["schema"])
        read = reader.options(**revealed(source["options"])).load()
        read = read.selectExpr(*source["select"])
        if len(read.columns) == len(source["fields"]):
            return read.toDF(*source["fields"])
    except (PySparkException, Py4JError) as error:
        raise ComponentError(
            f"spout {placed.id!r}: Spark cannot read its {source['format']} source: "
            f"{words_of(error)}",
            hint="the options, schema and select of the SparkSource are Spark's own",
        ) from error
    raise ComponentError(
        f"spout {placed.id!r}: its select gives the columns {', '.join(read.columns)}, and its "
        f"fields are {', '.join(source['fields'])}",
        hint="select one column for each field",
    )


@dataclass(frozen=True)
class PackRows:
    """The stage that packs rows for the tasks of a spout, each with the key of its slot."""

    targets: list[tuple[int, int]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        turn = context.partitionId()
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                task, key = self.targets[turn % len(self.targets)]
                turn += 1
                payload = pack_rows(task, _stream_of(pa, batch.slice(start, _ROWS_AT_ONCE)))
                columns = [
                    pa.array([key], pa.int32()),
                    pa.array([0], pa.int32()),
                    pa.array([payload], pa.binary()),
                ]
                yield pa.RecordBatch.from_arrays(columns, ["key", "level", "payload"])


def _stream_of(pa: Any, batch: Any) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return memoryview(sink.getvalue())
