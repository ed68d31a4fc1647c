"""The streaming query of a plan: a source that calls each slot once a batch, then the levels.

The source gives one row per slot and batch. Partition p of each level is slot p: Spark brings rows
there by an exchange on the slot's key, except the source's own, which are there from the start if
the source is topo's. A row for a deeper level passes through the stages between untouched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local
from topo.engine.spark.datasets.sinks import SinkWriter
from topo.engine.spark.datasets.sources import with_sources
from topo.engine.spark.jvm.classes import load
from topo.engine.spark.plan import Plan
from topo.engine.spark.worker.stages import ROW_SCHEMA, MapStage, StageSetup, StateStage
from topo.topology.model import Topology

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, GroupedData, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from topo.tracking.client import Lease

log = logging.getLogger("topo.spark")
_SOURCE_CLASS = "topo.Calls"


def build_query(
    session: SparkSession,
    plan: Plan,
    topology: Topology,
    run: str,
    lease: Lease,
    paths: tuple[str, ...] = (),
    factory: bytes = b"",
    *,
    first_batch: int = 0,
    initial: Callable[[int], DataFrame | None] = lambda level: None,
) -> DataFrame:
    """Build the levels of `plan`, one after the other.

    `initial` is what a level's state begins with, in a query that begins anew with `first_batch`.
    """
    rows = with_sources(session, _slot_rows(session, plan), plan, topology)
    for level in range(len(plan.levels)):
        setup = StageSetup(level, run, lease, plan.keys, paths, first_batch, factory)
        if plan.keeps_state(level):
            rows = rows.groupBy("key").transformWithStateInPandas(
                _processor(setup), ROW_SCHEMA, "append", "none", _by_slot(initial(level))
            )
        else:
            by_slot = rows.repartition(plan.slots, "key")
            rows = by_slot.mapInArrow(MapStage(setup).__call__, ROW_SCHEMA)
    return rows


def start_query(
    rows: DataFrame, name: str, checkpoint: str, sinks: SinkWriter | None
) -> StreamingQuery:
    """Start the query; the last level has no output but what bolts have for Spark's sinks."""
    writer = rows.writeStream.outputMode("append").queryName(name)
    writer = writer.format("noop") if sinks is None else writer.foreachBatch(sinks)
    return writer.option("checkpointLocation", checkpoint).start()


def _slot_rows(session: SparkSession, plan: Plan) -> DataFrame:
    """Return the rows that call the slots; either source resumes what the other has begun."""
    if _has_own_source(session.sparkContext):
        keys = ",".join(map(str, plan.keys))
        return session.readStream.format(_SOURCE_CLASS).option("keys", keys).load()
    return _rows_by_rate(session, plan)


def _has_own_source(context: SparkContext) -> bool:
    """Load topo's own source into a Spark on this machine; return False if it does not take it."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    if not is_local(context.master):
        return False
    try:
        load(context, _SOURCE_CLASS.rpartition(".")[2])
    except (Py4JError, TypeError) as error:  # the latter where a class of Spark's is missing
        log.info("Spark runs with a stage more in each batch: %s", str(error).partition("\n")[0])
        return False
    return True


def _rows_by_rate(session: SparkSession, plan: Plan) -> DataFrame:
    """Return them from a source of Spark's own, from which an exchange brings them to the slots."""
    from pyspark.sql import functions as f

    numbers = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", plan.slots)
        .option("numPartitions", 1)
        .load()
    )
    keys = f.array(*[f.lit(key) for key in plan.keys])
    slot = (f.col("value") % plan.slots + 1).cast("int")
    return numbers.select(
        f.element_at(keys, slot).alias("key"),
        f.lit(0).alias("level"),
        f.lit(b"").alias("payload"),
    )


def _by_slot(records: DataFrame | None) -> GroupedData | None:
    return None if records is None else records.groupBy("key")


def _processor(setup: StageSetup) -> Any:
    from pyspark.sql.streaming import StatefulProcessor

    # The class is made here, since the module of the stages must load without Spark's SQL classes.
    return type("StateProcessor", (StateStage, StatefulProcessor), {})(setup)
