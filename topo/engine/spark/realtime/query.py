"""The streaming query of real-time mode: the source, one relay a further level, the sink.

It is one batch that never ends, since the end of a batch makes every stage stop, plan anew and
start. So Spark's checkpoint holds nothing, and each start has a fresh one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.engine.spark.plan import Plan
from topo.engine.spark.process.spawn import slot_program
from topo.engine.spark.realtime.java import SOURCE_CLASS, load_classes
from topo.engine.spark.realtime.start import SLOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_ENDLESS = "36500 days"


def home_on_cluster(coordinator: str, python: str, archive: str) -> str:
    """Return what a task needs to know to start the process of its slot."""
    begins = slot_program(SLOT, f"import os; sys.path.append(os.path.abspath({archive!r}))")
    return "\n".join((coordinator, python, begins))


def build_rows(session: SparkSession, plan: Plan, home: str, token: str) -> DataFrame:
    """Build the levels; their tasks find the slots' processes by `home`.

    It is the directory of their sockets, or how to start them.
    """
    from pyspark.sql import DataFrame

    own = load_classes(session.sparkContext)
    jvm: Any = session._jvm
    reader = session.readStream.format(SOURCE_CLASS).option("slots", str(plan.slots))
    rows = reader.option("home", home).option("token", token).load()
    encoder = jvm.org.apache.spark.sql.Encoders.row(own.Spouts.schema())
    for level in range(1, len(plan.levels)):
        by_slot: Any = rows.repartition(plan.slots, "key")._jdf
        relay = own.Relay(home, token, level)
        rows = DataFrame(by_slot.mapPartitions(relay, encoder), session)
    return rows


def start_streaming(rows: DataFrame, name: str, checkpoint: str) -> StreamingQuery:
    """Run the levels; nothing comes out of the last one."""
    from pyspark.sql.streaming import StreamingQuery

    jvm: Any = rows.sparkSession._jvm
    writer: Any = rows.writeStream.outputMode("update").queryName(name)
    # The directory is the driver's own, whatever Hadoop takes for its default file system.
    where = Path(checkpoint).absolute().as_uri()
    writer = writer.trigger(realTime=_ENDLESS).option("checkpointLocation", where)
    return StreamingQuery(writer._jwrite.foreach(jvm.topo.Sink()).start())
