"""Another number of slots for the state of a micro-batch checkpoint: whole tasks move.

What a task has saved is a few records by name, and between two batches no tuple is anywhere else.
So the records of a committed batch are all there is, they are moved undecoded, and a task finds the
same after the move as after a restart: keyed state, held tuples, pending messages, windows.

Spark cannot move them itself: it files state by partitions of a number that is fixed in the
checkpoint. The records are therefore dealt into a **new generation** of the checkpoint, a directory
of its own with a query that begins anew, whose stages take them for their initial state. Its first
batch has the number after the last committed one, so markers in sinks and journals stay right.

The new generation counts once the plan names it, by one rename. Whatever fails before that leaves
the old one as it was, and what was written of the new one is deleted by the next try. Whatever
fails after it, the first batch reads the same files again, which are deleted when it is committed,
together with the old generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from topo.engine.spark.driver.checkpoint import Checkpoint
from topo.engine.spark.plan import Plan
from topo.engine.spark.worker.messages import COMMITTED, LAST_TICKED
from topo.engine.spark.worker.stages import named
from topo.errors import CheckpointError
from topo.runtime.dealing import Dealer, Resize, deal_all
from topo.storage.checkpoints import Generation

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PORTION_BYTES = 64 << 20
_SCHEMA = "key int, name string, record binary, level int"
_STATE_NAME, _STATE_RECORD = "user_map_key.name", "user_map_value.record"


def deal(
    session: SparkSession,
    checkpoint: Checkpoint,
    plan: Plan,
    resized: Sequence[Resize] = (),
    dealing: Mapping[str, Dealer] | None = None,
) -> None:
    """Make the checkpoint's next generation, of this plan, from its last committed batch.

    `session` has the settings of a query: the state is read by them. Whole tasks move, except those
    of components with another number of them (`resized`): what these have saved goes through this
    process, where `dealing` takes it apart.
    """
    refuse_sources(plan)
    following = checkpoint.following()
    checkpoint.clear(following.place)
    records = committed_records(session, checkpoint)
    if records is not None:
        place = checkpoint.place_of(following.initial)
        dealt_tasks = [task for each in resized for task in each.before]
        dealt = (
            deal_all(dealing or {}, resized, _saved_by(records, dealt_tasks)) if dealt_tasks else {}
        )
        marks = _marks(plan, following.place, ticked=had_last_tick(records))
        placed = _placed(records, plan).unionByName(session.createDataFrame(marks, _SCHEMA))
        placed.write.partitionBy("level").parquet(place)
        rows = ((task, *record) for task, of in dealt.items() for record in of.items())
        _append(session, place, plan, rows, [])
    checkpoint.sync(following)
    checkpoint.begin(following, plan)


def refuse_sources(plan: Plan) -> None:
    """Raise a CheckpointError if Spark keeps positions of its own, which a new query would lack."""
    for placed in plan.sources:
        raise CheckpointError(
            f"spout {placed.id!r} is read by Spark, whose log of offsets is of the number of slots "
            "that the checkpoint was begun with",
            hint="keep topology.workers, or read by one of topo's own connectors",
        )


def initial_of(session: SparkSession, checkpoint: Checkpoint, level: int) -> DataFrame | None:
    """Return what the first batch of a generation begins with at a level; None in later ones."""
    generation = checkpoint.generation
    if checkpoint.next_batch() > generation.first_batch or not checkpoint.exists(
        generation.initial
    ):
        return None
    written = session.read.schema(_SCHEMA).parquet(checkpoint.place_of(generation.initial))
    return written.where(written.level == level).select("key", "name", "record")


def write_initial(
    session: SparkSession,
    checkpoint: Checkpoint,
    generation: Generation,
    plan: Plan,
    rows: Iterable[tuple[int, str, bytes]],
    *,
    ticked: bool,
) -> None:
    """Write what a generation begins with, out of (task, name, record)."""
    place = checkpoint.place_of(generation.initial)
    _append(session, place, plan, rows, _marks(plan, generation.place, ticked=ticked))


def _append(
    session: SparkSession,
    place: str,
    plan: Plan,
    rows: Iterable[tuple[int, str, bytes]],
    pending: list[Any],
) -> None:
    """Add (task, name, record) to what a generation begins with, after what is `pending`."""
    size = 0

    def write() -> None:
        frame = session.createDataFrame(pending, _SCHEMA)
        frame.write.partitionBy("level").mode("append").parquet(place)

    for task, name, record in rows:
        level, slot = plan.place_of(task)
        pending.append((plan.keys[slot], f"{task}/{name}", bytearray(record), level))
        size += len(record)
        if size >= _PORTION_BYTES:
            write()
            pending, size = [], 0
    if pending:
        write()


def _saved_by(records: DataFrame, tasks: Sequence[int]) -> dict[int, dict[str, bytes]]:
    """Return what these tasks have saved, by task and name."""
    from pyspark.sql import functions as f

    own = records.where(f.substring_index("name", "/", 1).cast("int").isin(list(tasks)))
    saved: dict[int, dict[str, bytes]] = {}
    for row in own.select("name", "record").toLocalIterator(prefetchPartitions=True):
        task, _, name = row.name.partition("/")
        saved.setdefault(int(task), {})[name] = bytes(row.record)
    return saved


def committed_records(
    session: SparkSession, checkpoint: Checkpoint, batch: int | None = None
) -> DataFrame | None:
    """Return (name, record) of a committed batch, the last one; None if nothing was ever committed.

    A query that goes on commits others meanwhile: with `batch`, all records are of that one.
    """
    generation = checkpoint.generation
    if checkpoint.next_batch() == generation.first_batch:  # of which no batch is committed yet
        if not checkpoint.exists(generation.initial):
            return None
        return session.read.schema(_SCHEMA).parquet(checkpoint.place_of(generation.initial))
    place = checkpoint.query_place
    metadata = session.read.format("state-metadata").load(place)
    records: DataFrame | None = None
    for row in metadata.select("operatorId").distinct().collect():
        reader = session.read.format("statestore").option("operatorId", row.operatorId)
        if batch is not None:
            reader = reader.option("batchId", batch - generation.first_batch)
        state = reader.option("stateVarName", "records").load(place)
        rows = state.selectExpr(f"{_STATE_NAME} AS name", f"{_STATE_RECORD} AS record")
        records = rows if records is None else records.unionByName(rows)
    return records


def _placed(records: DataFrame, plan: Plan) -> DataFrame:
    """Return the records of the tasks, with the key of the slot and the level where each is now."""
    from pyspark.sql import functions as f

    tasks = [task for placed in plan.components for task in placed.tasks]
    places = {task: plan.place_of(task) for task in tasks}
    task = f.substring_index("name", "/", 1).cast("int")
    keys = {number: plan.keys[slot] for number, (_, slot) in places.items()}
    levels = {number: level for number, (level, _) in places.items()}
    return records.where(task.isin(list(places))).select(  # 0 is the slots' own
        _mapped(keys, task).alias("key"), "name", "record", _mapped(levels, task).alias("level")
    )


def _mapped(numbers: dict[int, int], key: Column) -> Column:
    from pyspark.sql import functions as f

    pairs = [f.lit(number) for pair in numbers.items() for number in pair]
    return f.create_map(*pairs)[key]


def had_last_tick(records: DataFrame) -> bool:
    """Return True if all slots have had their last tick.

    One tick too many is better than none for what came after it.
    """
    from pyspark.sql import functions as f

    committed, ticked = named(COMMITTED), named(LAST_TICKED)
    rows = records.where(f.col("name").isin(committed, ticked)).groupBy("name").count().collect()
    counts = {row["name"]: row["count"] for row in rows}
    return bool(counts.get(ticked)) and counts[ticked] == counts.get(committed)


def _marks(plan: Plan, mark: str, *, ticked: bool) -> list[tuple[int, str, bytearray, int]]:
    """Return the records of the slots themselves: that they have state, and had their last tick."""
    names = [(named(COMMITTED), mark.encode())]
    if ticked:
        names.append((named(LAST_TICKED), b"\1"))
    places = {plan.place_of(task) for each in plan.components for task in each.tasks}
    return [
        (plan.keys[slot], name, bytearray(record), level)
        for level, slot in sorted(places)
        if plan.keeps_state(level)
        for name, record in names
    ]
