"""Savepoints of checkpoints, in both modes, and checkpoints that begin with a savepoint.

What is written is the last committed batch or epoch, also while the run goes on: in micro-batches
Spark keeps the versions of a hundred batches. In real-time mode the log belongs to the driver, so
the run has to be over.

A checkpoint that begins with a savepoint is like one that goes over to other slots: the records are
laid down as the initial state of its first query, or as the first epoch of its log, and count once
the plan names them. Trees of pending messages are rebuilt from what was saved where the ackers do
that, in micro-batches; elsewhere nothing may be pending, which `topo kill` sees to.
"""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.distribution import VERSION
from topo.engine.spark.driver.checkpoint import MICRO_BATCH, REAL_TIME, Checkpoint
from topo.engine.spark.driver.journal import CheckpointJournal
from topo.engine.spark.driver.rescaling import committed_records, had_last_tick, write_initial
from topo.engine.spark.jvm.session import query_session, query_settings, start_session
from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.beginning import (
    Start,
    components_in,
    differences,
    plain_tracking,
    records_for,
    start_of,
)
from topo.engine.spark.realtime.epochs import Committed
from topo.engine.spark.realtime.records import read_values
from topo.engine.spark.realtime.rescaling import ticked_keys
from topo.engine.spark.realtime.store import EpochStore
from topo.errors import CheckpointError
from topo.runtime.pending_log import pending_in
from topo.storage.checkpoints import EPOCHS, local_path
from topo.storage.savepoints import (
    Records,
    Savepoint,
    write_savepoint,
)
from topo.tracking.clock import SteadyClock
from topo.tracking.ids import spout_task_of
from topo.tracking.plan import shard_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def save(session: SparkSession, checkpoint: Checkpoint, directory: Path, name: str) -> Savepoint:
    """Write the last commit of a checkpoint that was adopted, or is nobody's, into a directory.

    `session` has the settings of a query.
    """
    document = checkpoint.document()
    components = components_in(document["plan"])
    saved = Savepoint(
        name=name,
        checkpoint=str(document["id"]),
        batch=checkpoint.next_batch() - 1,
        mode=str(document.get("mode", MICRO_BATCH)),
        made_at=round(SteadyClock()(), 3),
        topo=VERSION,
        python=platform.python_version(),
        components=components,
        directory=directory,
    )
    if saved.mode == REAL_TIME:
        return _save_epochs(checkpoint, saved)
    return _save_batch(session, checkpoint, saved)


def save_checkpoint(
    place: str, directory: Path, name: str, session: SparkSession | None = None
) -> Savepoint:
    """Write the last commit of a checkpoint that no driver has.

    It takes a Spark: that of the session, or one of this machine.
    """
    session = session or start_session("local[2]", {})
    checkpoint = Checkpoint(session, place)
    owned = checkpoint.claim("topo savepoint", f"savepoint-{secrets.token_hex(4)}", time.sleep)
    with closing(owned):
        checkpoint.look()
        reading = query_session(session, query_settings(2, checkpoint.location, {}))
        return save(reading, checkpoint, directory, name)


def _save_batch(session: SparkSession, checkpoint: Checkpoint, saved: Savepoint) -> Savepoint:
    # First: a query that goes on removes the failures of earlier batches.
    journal = CheckpointJournal(checkpoint)
    failures = {str(root): why for root, why in journal.failures_of(saved.batch).items()}
    records = committed_records(session, checkpoint, saved.batch)
    if records is None:
        raise _nothing(checkpoint)
    ticked = had_last_tick(records)
    by_task = records.selectExpr("int(substring_index(name, '/', 1)) AS task", "name", "record")
    rows = by_task.where("task != 0").orderBy("task").toLocalIterator(prefetchPartitions=True)
    tasks = (
        (task, {row.name.partition("/")[2]: bytes(row.record) for row in of_task})
        for task, of_task in groupby(rows, key=lambda row: int(row.task))
    )
    return _write(saved, tasks, failures=failures, last_ticked=ticked)


def _save_epochs(checkpoint: Checkpoint, saved: Savepoint) -> Savepoint:
    where = local_path(checkpoint.location)
    assert where is not None, "a log of epochs is in a local directory"
    store = EpochStore(where / EPOCHS)
    with closing(store):
        committed = store.recover(Committed(plain_tracking(saved.components)))
        if not committed.epoch:
            raise _nothing(checkpoint)
        every = [task for each in saved.components.values() for task in each.ids]
        values = read_values(store.directory, store.places(every))
        ticked = bool(ticked_keys(store))
    saved = replace(saved, batch=committed.epoch)
    return _write(saved, sorted(values.items()), last_ticked=ticked)


def _write(saved: Savepoint, tasks: Iterable[tuple[int, Records]], **more: Any) -> Savepoint:
    """Write the records of tasks, by their ids; count what is pending on the way."""
    places = {
        task: (name, index)
        for name, component in saved.components.items()
        for index, task in enumerate(component.ids)
    }
    pending = 0

    def filed() -> Iterator[tuple[str, int, Records]]:
        nonlocal pending
        for task, records in tasks:
            pending += pending_in(records)
            yield (*places[task], records)

    files = list(filed())  # what is pending is told before the files are
    return write_savepoint(replace(saved, pending=pending, **more), files)


def _nothing(checkpoint: Checkpoint) -> CheckpointError:
    return CheckpointError(f"nothing was committed in {checkpoint.path} yet", at=checkpoint.path)


# -- a checkpoint that begins with one ------------------------------------------------------------


def differences_from(begin: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return what keeps a topology of this plan from beginning so, in words."""
    return differences(start_of(begin), plan)


def begin_batches(
    session: SparkSession, checkpoint: Checkpoint, start: Start, plan: Plan, ackers: int
) -> dict[str, Any]:
    """Lay down what the first query begins with; return what the plan has to say of it."""
    saved = start[0]
    tasks = records_for(start, plan, MICRO_BATCH)
    following = checkpoint.following(saved.batch + 1)
    checkpoint.clear(following.place)
    rows = (
        (task, name, record)
        for task, records in sorted(tasks.items())
        for name, record in records.items()
    )
    write_initial(session, checkpoint, following, plan, rows, ticked=saved.last_ticked)
    _write_failures(checkpoint, saved, plan, ackers)
    checkpoint.sync(following)
    return {"generation": following.number, "first_batch": following.first_batch}


def _write_failures(checkpoint: Checkpoint, saved: Savepoint, plan: Plan, ackers: int) -> None:
    """Write the journal of failures, for each acker what is its own."""
    spouts = [task for placed in plan.components if placed.kind == "spout" for task in placed.tasks]
    shards = shard_of(spouts, ackers)
    failures: dict[int, dict[int, str]] = {}
    for text, why in saved.failures.items():
        shard = shards.get(spout_task_of(int(text)))
        if shard is not None:
            failures.setdefault(shard, {})[int(text)] = why
    for shard, roots in failures.items():
        CheckpointJournal(checkpoint).write(shard, saved.batch, roots)
