"""The rows that bolts hand out, on their way from the last level into Spark's sinks.

The rows of each sink are of a level of their own, below all others, and pass through the stages
untouched. Whatever reads the query's output runs all its levels, and levels must run once in a
batch; so the output is kept before it is looked at, and each sink writes from what was kept.

Files of a batch are in a directory of their own, `topo_checkpoint=ID/topo_batch=N`: a batch that
runs again replaces the whole of it, also where it has nothing to write this time. Partitions that
are overwritten dynamically would keep what only the first attempt had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from topo.config.secrets import revealed
from topo.engine.spark.datasets.words import is_wrong, words_of
from topo.engine.spark.plan import Plan
from topo.errors import ComponentError, TopoError, Unavailable
from topo.topology.model import Topology
from topo.wire.rows import unpack_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

CHECKPOINT_COLUMN, BATCH_COLUMN = "topo_checkpoint", "topo_batch"


class SinkWriter:
    """The function that Spark calls with the output of each batch.

    Spark calls it in a thread of its own; `failure` is what it raised in the query's last batch.
    Spark counts from the first batch of the checkpoint's generation, which is `generation_batch`.
    """

    def __init__(
        self,
        plan: Plan,
        topology: Topology,
        checkpoint_id: str,
        first_batch: int,
        generation_batch: int = 0,
    ) -> None:
        self._sinks = {
            len(plan.levels) + at: _Sink(
                placed.id, topology.component(placed.id).external["sink"], checkpoint_id
            )
            for at, placed in enumerate(plan.sinks)
        }
        self._first_batch = first_batch
        self._generation_batch = generation_batch
        self.failure: TopoError | None = None

    def __call__(self, output: DataFrame, sparks_batch: int) -> None:
        batch = self._generation_batch + sparks_batch
        output.persist()
        try:
            found = {row.level for row in output.select("level").collect()}
            for level, sink in self._sinks.items():
                if level in found:
                    self._write(sink, output.where(output.level == level), batch)
                elif batch == self._first_batch:  # which may have run before
                    sink.clear(output, batch)
        finally:
            output.unpersist()

    def _write(self, sink: _Sink, rows: DataFrame, batch: int) -> None:
        try:
            sink.write(rows.select("payload").mapInArrow(_unpacked, sink.schema), batch)
        except Exception as error:
            self.failure = sink.error(error, batch)
            raise self.failure from error


class _Sink:
    def __init__(self, component: str, sink: Mapping[str, Any], checkpoint_id: str) -> None:
        self._component, self._format = component, sink["format"]
        self._options = dict(revealed(sink["options"]))
        self._path, self._guarantee = sink["path"], sink["guarantee"]
        self._partition_by = list(sink["partition_by"])
        self._checkpoint_id = checkpoint_id
        self.schema = sink["schema"]

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write the rows of a batch; replace what it wrote before, where that can be."""
        writer = rows.write.format(self._format).options(**self._options)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        if self._guarantee == "by_batch":
            writer.mode("overwrite").save(self._place(batch))
        else:
            writer.mode("append").save(self._path)

    def clear(self, output: DataFrame, batch: int) -> None:
        """Remove what an earlier attempt of a batch wrote, which has nothing to write now."""
        if self._guarantee == "by_batch":
            session: Any = output.sparkSession
            path = session._jvm.org.apache.hadoop.fs.Path(self._place(batch))
            path.getFileSystem(session._jsc.hadoopConfiguration()).delete(path, True)

    def error(self, error: Exception, batch: int) -> TopoError:
        """Return the error of a write in the user's words: it may pass, or it is of the query."""
        what = f"Spark cannot write batch {batch} as {self._format}"
        text = f"bolt {self._component!r}: {what}: {words_of(error)}"
        if is_wrong(error):
            return ComponentError(text, hint="the options of the SparkSink are Spark's own")
        return Unavailable(text)

    def _place(self, batch: int) -> str:
        return f"{self._path}/{CHECKPOINT_COLUMN}={self._checkpoint_id}/{BATCH_COLUMN}={batch}"


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for payload in batch.column("payload"):
            _, rows = unpack_rows(payload.as_buffer())
            yield from pa.ipc.open_stream(rows)
