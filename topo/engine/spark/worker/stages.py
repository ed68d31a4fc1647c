"""The stages that Spark's Python workers run: one per level, which passes frames to a runner.

Rows are `(key, level, payload)`: the key of the target slot, the target level, a frame or the
batch's header. Rows for deeper levels pass through untouched. A level without state is `MapStage`,
behind `mapInArrow`; any other is `StateStage`, whose records are in a MapState.
"""

from __future__ import annotations

import gc
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topo.engine.spark.worker.messages import COMMITTED, Outcome, Payload, RecordKey, Runner, Work
from topo.engine.spark.worker.remote import RemoteRunner
from topo.engine.spark.worker.stage_errors import STATE_REFUSED, StageError
from topo.errors import EngineError, TopoError, sentence_of
from topo.logs.capture import collected_lines

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from topo.tracking.client import Lease

ROW_SCHEMA = "key int, level int, payload binary"

_BATCH_BYTES = 8 << 20
_LINES_OF_ERROR = 200


@dataclass(frozen=True)
class StageSetup:
    """The configuration of a stage; it travels to the workers with the query."""

    level: int
    run: str
    """The id of one start of a topology: instances of another start, even of the same checkpoint,
    may have other code, or be closed."""
    lease: Lease
    keys: tuple[int, ...]
    """The key of each slot: Spark's hash puts it in the partition of the slot's number."""
    paths: tuple[str, ...] = ()
    """The addresses of the slot processes; () if instances live in the workers themselves."""
    first_batch: int = 0
    """Of the checkpoint's generation: Spark counts the batches of each from 0."""
    factory: bytes = b""
    """In the latter case, the pickle of a factory of runners, called with a slot."""

    def runner(self, slot: int, batch: int) -> Runner:
        if self.paths:
            return RemoteRunner(self.paths[slot])
        return _local_runner(self.run, slot, batch, self.factory)


_runners: dict[tuple[str, int], Runner] = {}
_last_batches: dict[tuple[str, int], int] = {}
_KEPT_BATCHES = 20


def _local_runner(run: str, slot: int, batch: int, factory: bytes) -> Runner:
    """Return the runner of a slot in this worker.

    Runners of other runs are dropped, as are those of slots that other workers have executed for
    long: the state of their instances will not come again.
    """
    for known, last in list(_last_batches.items()):
        if known[0] != run or last < batch - _KEPT_BATCHES:
            del _runners[known], _last_batches[known]
    key = run, slot
    if key not in _runners:
        make: Callable[[int], Runner] = pickle.loads(factory)
        _runners[key] = make(slot)
    _last_batches[key] = batch
    return _runners[key]


class MapStage:
    """A level without state."""

    def __init__(self, setup: StageSetup) -> None:
        self._setup = setup

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        _freeze_worker()
        context = _task_context()
        setup = self._setup
        payloads: list[Payload] = []
        kept = []  # the payloads point into these
        for batch in batches:
            own = pc.equal(batch.column("level"), setup.level)
            if pc.all(own).as_py():
                mine = batch
            else:
                mine = batch.filter(own)
                yield batch.filter(pc.invert(own))
            kept.append(mine)
            payloads += [memoryview(value.as_buffer()) for value in mine.column("payload")]
        slot = context.partitionId()
        batch = setup.first_batch + _batch_id(context)
        work = Work(setup.lease, batch, setup.level, slot, b"", payloads)
        outcome = _run(setup, work, dict)
        if outcome.writes or outcome.removes:
            raise EngineError(f"level {setup.level} keeps nothing, yet has records to write")
        del kept
        for part in _in_batches(outcome.sends):
            yield _record_batch(setup, part)


class StateStage:
    """A level with state; it has the shape of a StatefulProcessor."""

    def __init__(self, setup: StageSetup) -> None:
        self._setup = setup
        self._slots = {key: slot for slot, key in enumerate(setup.keys)}

    def init(self, handle: Any) -> None:
        from pyspark.sql.types import BinaryType, StringType, StructType

        # Types instead of a text, which the JVM would parse in every batch for the worker; the key
        # has one column, for each costs Spark a millisecond per batch.
        name = StructType().add("name", StringType())
        record = StructType().add("record", BinaryType())
        self._records = handle.getMapState("records", name, record)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timers: Any
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        _freeze_worker()
        setup = self._setup
        payloads: list[Payload] = []
        for frame in rows:
            own = frame["level"] == setup.level
            payloads += frame["payload"][own].tolist()
            if not own.all():
                yield frame[~own]
        records = self._records
        found = records.getValue((named(COMMITTED),))
        slot = self._slots[int(key[0])]
        batch = setup.first_batch + _batch_id(_task_context())
        committed = bytes(found[0]) if found else b""
        work = Work(setup.lease, batch, setup.level, slot, committed, payloads)
        outcome = _run(setup, work, self._restore)
        try:
            for record_key in outcome.removes:  # first: a name may be removed and be used again
                records.removeKey((named(record_key),))
            for record_key, record in outcome.writes:
                records.updateValue((named(record_key),), (bytes(record),))
        except Exception as error:
            raise StageError.of(
                _not_taken(work, outcome, error), setup.lease.target.token
            ) from None
        for part in _in_batches(outcome.sends):
            yield pd.DataFrame(
                {
                    "key": [setup.keys[target] for target, _, _ in part],
                    "level": [level for _, level, _ in part],
                    "payload": [bytes(payload) for _, _, payload in part],
                }
            )

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timers: Any) -> None:
        """Take the records that a generation of the checkpoint begins with, before its first rows.

        A slot then finds them as if it had saved them itself.
        """
        for name, record in zip(initialState["name"], initialState["record"], strict=True):
            self._records.updateValue((name,), (bytes(record),))

    def _restore(self) -> dict[RecordKey, Payload]:
        found = ((_record_key(name), record[0]) for (name,), record in self._records.iterator())
        return {key: record for key, record in found if key != COMMITTED}

    def close(self) -> None:
        pass


def _not_taken(work: Work, outcome: Outcome, error: Exception) -> EngineError:
    size = sum(memoryview(record).nbytes for _, record in outcome.writes)
    return EngineError(
        f"Spark did not take what slot {work.slot} saves at level {work.level} in batch "
        f"{work.batch} ({size:,} bytes in {len(outcome.writes):,} records): "
        f"{type(error).__name__} {sentence_of(error)}".rstrip(),
        code=STATE_REFUSED,
        hint="Spark's log says why",
    )


def named(key: RecordKey) -> str:
    """Return the name of a record in Spark's state."""
    task, name = key
    return f"{task}/{name}"


def _record_key(text: str) -> RecordKey:
    task, _, name = text.partition("/")
    return int(task), name


def _run(setup: StageSetup, work: Work, restore: Callable[[], dict[RecordKey, Payload]]) -> Outcome:
    token = setup.lease.target.token
    try:
        return setup.runner(work.slot, work.batch).execute(work, restore, lambda: False)
    except TopoError as error:
        raise StageError.of(with_lines(error), token) from None
    except Exception as error:  # nobody's on purpose; another try may get over it
        where = f"level {work.level}, slot {work.slot}"
        failed = EngineError(f"{where}: {type(error).__name__}: {sentence_of(error)}", code="spark")
        failed.hint = f"where it happened:\n{traceback.format_exc()}"
        raise StageError.of(failed, token) from None


def with_lines(error: TopoError) -> TopoError:
    """Add the log lines before the error, whose batch will never report."""
    lines = collected_lines()
    if lines:  # none where it was raised before, and is raised again for Spark's next try
        error.__dict__["lines"] = lines[-_LINES_OF_ERROR:]
    return error


def _in_batches(
    sends: Sequence[tuple[int, int, Payload]],
) -> Iterator[Sequence[tuple[int, int, Payload]]]:
    start = size = 0
    for end, (_, _, payload) in enumerate(sends, 1):
        size += len(payload)
        if size >= _BATCH_BYTES:
            yield sends[start:end]
            start, size = end, 0
    if start < len(sends):
        yield sends[start:]


def _record_batch(setup: StageSetup, sends: Sequence[tuple[int, int, Payload]]) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [
        pa.array([setup.keys[target] for target, _, _ in sends], pa.int32()),
        pa.array([level for _, level, _ in sends], pa.int32()),
        pa.array([bytes(payload) for _, _, payload in sends], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, ["key", "level", "payload"])


def _task_context() -> Any:
    from pyspark import TaskContext

    return TaskContext.get()


def _batch_id(context: Any) -> int:
    return int(context.getLocalProperty("streaming.sql.batchId"))


_frozen = False


def _freeze_worker() -> None:
    """Freeze loaded objects once per worker: Spark collects garbage after every task."""
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
