"""Keyed state as a DataFrame of the user's Spark session, and savepoints out of DataFrames.

A savepoint's tasks are read where Spark runs tasks, one Spark task each: there the pickles are
undone, so nothing of a large state comes through the driver. It is written by the driver, which
writes all savepoints: the keys of a component are in its memory once.

A key that was saved stays with the task that had it. A new one goes to the task to which the
grouping sends its tuples; the saved keys have to prove that they lie so, as when tasks get another
number, because a key that lies elsewhere would never be found, and nobody would tell.
"""

from __future__ import annotations

import atexit
import json
import math
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local
from topo.distribution import VERSION
from topo.engine.spark.driver.savepoints import save_checkpoint
from topo.errors import CheckpointError, sentence_of, shown
from topo.runtime.dealing import BITS, places_of
from topo.storage.checkpoints import PLAN_FILE, SAVEPOINT_FILE, local_path
from topo.storage.classes import load_saved, saved_by
from topo.storage.entries import Entry, component_in, entries_of, plain, text_of_key
from topo.storage.opaque import fields_of
from topo.storage.savepoints import (
    Component,
    Savepoint,
    read_savepoint,
    tasks_of,
    write_savepoint,
)
from topo.storage.saving import Changes, SavedMapping, with_one_nan
from topo.tracking.clock import SteadyClock
from topo.wire.column import dump

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SCHEMA = (
    "component string, task int, key string, value string, pickled_key binary, pickled_value binary"
)
_OWN = ("component", "task", "key", "value", "pickled_key", "pickled_value")
_PICKLED = ("pickled_key", "pickled_value")
_ROWS = 4096  # of a batch of Arrow's
_STATE = "state"


def _is_state(names: Iterable[str]) -> bool:
    """Return True if a frame with these columns has keys and values."""
    own = set(names)
    return own <= set(_OWN) and ({"key", "value"} <= own or set(_PICKLED) <= own)


# -- reading --------------------------------------------------------------------------------------


def read_state(
    spark: SparkSession,
    where: str | Path,
    component: str,
    schema: str | StructType | None = None,
    *,
    moved: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the keyed state of a component; see `topo.state.read_state`."""
    saved = _savepoint_at(spark, where)
    count = component_in(saved, component).tasks
    struct = spark.createDataFrame([], schema or SCHEMA).schema
    if not _is_state(struct.names):
        raise CheckpointError(
            f"a schema of {', '.join(struct.names)} is none of a state",
            hint='it is of key and value, such as "key string, value long", or of pickled_key and '
            "pickled_value; and of task and component, if you like",
        )
    reading = ReadTasks(saved, component, struct, schema is None, dict(moved or {}), list(sys.path))
    return spark.range(0, count, 1, count).mapInArrow(reading.__call__, struct)


@dataclass(frozen=True)
class ReadTasks:
    """A function of Spark's workers, from indexes of tasks to the entries that they saved."""

    saved: Savepoint
    component: str
    struct: StructType
    as_text: bool
    moved: Mapping[str, str]
    import_path: Sequence[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        sys.path.extend(path for path in self.import_path if path not in sys.path)
        schema = to_arrow_schema(self.struct)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                entries = entries_of(self.saved, self.component, index, self.moved)
                while some := list(islice(entries, _ROWS)):
                    columns = [self._column(pa, some, field) for field in schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, pa: Any, entries: list[Entry], field: pa.Field) -> pa.Array:
        values = [self._value(entry, field) for entry in entries]
        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            for entry, value in zip(entries, values, strict=True):
                try:
                    pa.array([value], field.type)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    raise CheckpointError(
                        f"{self.component!r} task {entry.index}: the {field.name} of key "
                        f"{shown(entry.key)} is no {field.type}: {sentence_of(error)}",
                        hint="name another type in the schema, or read it without a schema",
                    ) from error
            raise

    def _value(self, entry: Entry, field: pa.Field) -> Any:
        match field.name:
            case "component":
                return entry.component
            case "task":
                return entry.index
            case "pickled_key":
                return dump(entry.key)
            case "pickled_value":
                return dump(entry.value)
        value = entry.key if field.name == "key" else entry.value
        if not self.as_text:
            return _fitted(value, field.type)
        return text_of_key(value) if field.name == "key" else _json(value)


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def _fitted(value: Any, kind: pa.DataType) -> Any:
    """Return the value as Arrow takes it: tuples and objects are structs by their fields."""
    import pyarrow.types as types

    if types.is_struct(kind):
        parts: dict[str, Any] = {}
        if isinstance(value, tuple):
            names = getattr(value, "_fields", [field.name for field in kind])
            if len(names) == len(value):
                parts = dict(zip(names, value, strict=True))
        else:
            parts = dict(value) if isinstance(value, Mapping) else fields_of(value)
        inner = {field.name: field.type for field in kind}
        if not parts or parts.keys() - inner.keys():
            return value  # None, or Arrow says that it does not fit
        return {name: _fitted(part, inner[name]) for name, part in parts.items()}
    if types.is_list(kind) and isinstance(value, list | tuple | set | frozenset):
        return [_fitted(part, kind.value_type) for part in value]
    if types.is_map(kind) and isinstance(value, Mapping):
        return [(key, _fitted(part, kind.item_type)) for key, part in value.items()]
    return value


def _savepoint_at(spark: SparkSession, where: str | Path) -> Savepoint:
    """Return the savepoint there; of a checkpoint, make one that lasts as long as this process."""
    if Path(where, SAVEPOINT_FILE).exists():
        return read_savepoint(Path(where).absolute())
    local = local_path(str(where))
    if not is_local(spark.sparkContext.master) or (local and not (local / PLAN_FILE).exists()):
        raise CheckpointError(
            f"{where} holds no savepoint, and no checkpoint that can be read from here",
            at=str(where),
            hint="topo savepoint NAME DIR writes one; all workers have to see DIR",
        )
    directory = tempfile.mkdtemp(prefix="topo-state-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # frames are read late
    return save_checkpoint(str(where), Path(directory), Path(where).name, spark)


# -- writing --------------------------------------------------------------------------------------


def write_state(
    frame: DataFrame,
    directory: str | Path,
    *,
    component: str,
    of: str | Path,
    keep: bool = False,
    by_key: bool = False,
    moved: Mapping[str, str] | None = None,
) -> Savepoint:
    """Write a savepoint with other keyed state; see `topo.state.write_state`."""
    saved = _savepoint_at(frame.sparkSession, of)
    before = component_in(saved, component)
    tasks: list[dict[Any, Any]] = [{} for _ in range(before.tasks)]
    for entry in entries_of(saved, component, None, moved):
        tasks[entry.index][entry.key] = entry.value
    home = {key: index for index, of_task in enumerate(tasks) for key in of_task}
    entries = _entries_in(frame, component, moved or {})
    new = [key for key, (_, task) in entries.items() if task is None and key not in home]
    homes = {**home, **dict(zip(new, _homes(component, before, tasks, new, by_key), strict=True))}
    if not keep:
        tasks = [{} for _ in range(before.tasks)]
    for key, (value, task) in entries.items():
        place = task if task is not None else homes[key]
        if not 0 <= place < before.tasks:
            raise CheckpointError(
                f"{component!r} has {before.tasks} tasks, and key {shown(key)} is for task {place}",
                hint="tasks are numbered from 0",
            )
        if keep and key in home:
            tasks[home[key]].pop(key, None)
        tasks[place][key] = value
    changed = {
        (component, index): _with_state(saved.records(component, index), component, of_task)
        for index, of_task in enumerate(tasks)
    }
    described = replace(
        saved,
        directory=Path(directory).absolute(),
        made_at=round(SteadyClock()(), 3),
        topo=VERSION,
        python=platform.python_version(),
    )
    return write_savepoint(
        described,
        ((*at, changed[at] if at in changed else saved.records(*at)) for at in tasks_of(saved)),
    )


def _with_state(
    records: Mapping[str, bytes], component: str, state: Mapping[Any, Any]
) -> dict[str, bytes]:
    """Return what a task has saved with another keyed state."""
    changes = Changes()
    SavedMapping(_STATE, repr(component)).save(state, state, changes)
    others = {name: of for name, of in records.items() if not name.startswith(f"{_STATE}/")}
    return {**others, **changes.puts}


def _entries_in(
    frame: DataFrame, component: str, moved: Mapping[str, str]
) -> dict[Any, tuple[Any, int | None]]:
    """Return the values of a frame, and the tasks that it names, by key."""
    names = set(frame.columns)
    is_pickled = set(_PICKLED) <= names
    if not _is_state(names):
        raise CheckpointError(
            f"a frame with the columns {', '.join(frame.columns)} is no state",
            hint="it has key and value, or pickled_key and pickled_value; and task, if you like",
        )
    if is_pickled and names & {"key", "value"}:
        raise CheckpointError(
            "the frame has key or value beside their pickles, and only one of them can count",
            hint='write frame.drop("key", "value"); to change values, read them by a schema',
        )
    entries: dict[Any, tuple[Any, int | None]] = {}
    for row in frame.toLocalIterator(prefetchPartitions=True):
        if "component" in names and row["component"] != component:
            raise CheckpointError(
                f"the frame has a row of {row['component']!r}, and {component!r} is written",
                hint=f"filter it: frame.where(\"component = '{component}'\")",
            )
        if is_pickled:
            with saved_by("", moved):
                key, value = (load_saved(bytes(row[name])) for name in _PICKLED)
        else:
            key, value = _keyed(row["key"]), _valued(row["value"])
        try:
            key = with_one_nan(key)
            is_double = key in entries
        except TypeError:
            raise CheckpointError(
                f"{shown(key)} is a {type(key).__name__}, which cannot be a key",
                hint="a key of several parts is a struct, which becomes a tuple",
            ) from None
        if is_double:
            raise CheckpointError(f"the frame has the key {shown(key)} twice", at=component)
        entries[key] = value, row["task"] if "task" in names else None
    return entries


def _keyed(key: Any) -> Any:
    """Return a struct as a tuple: a key is compared by its parts."""
    return tuple(map(_keyed, key)) if isinstance(key, tuple) else key


def _valued(value: Any) -> Any:
    """Return a struct as a dict, inside other values too."""
    if isinstance(value, tuple):
        names: Sequence[str] = getattr(value, "__fields__", ())
        return dict(zip(names, map(_valued, value), strict=True))
    if isinstance(value, list):
        return [_valued(part) for part in value]
    if isinstance(value, dict):
        return {key: _valued(part) for key, part in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def _homes(
    name: str, before: Component, tasks: list[dict[Any, Any]], new: list[Any], by_key: bool
) -> list[int]:
    """Return the tasks of new keys; raise if nothing proves where tuples of theirs go."""
    if not new or before.tasks == 1:
        return [0] * len(new)
    remedy = 'give the frame a column "task", the index of the task'
    widths = {
        len(by.removeprefix("fields(").removesuffix(")").split(", "))
        for by in (read.rpartition(" by ")[2] for read in before.reads)
        if by.startswith("fields(")
    }
    if len(widths) != 1:
        raise CheckpointError(
            f"{name!r} has {before.tasks} tasks and no grouping by fields that says to which of "
            f"them the new key {shown(new[0])} belongs",
            hint=remedy,
        )
    width = widths.pop()
    keys = [(key, index) for index, of_task in enumerate(tasks) for key in of_task]
    for (key, index), place in zip(
        keys, _dealt(name, [key for key, _ in keys], width, before.tasks, remedy), strict=True
    ):
        if index != place:
            raise CheckpointError(
                f"{name!r} task {index}: the key {shown(key)} is not what its input is grouped by, "
                "so nothing says where new keys belong",
                hint=remedy,
            )
    if not by_key and len(keys) * math.log2(before.tasks) < BITS:
        raise CheckpointError(
            f"{name!r} has saved {len(keys)} keys in {before.tasks} tasks, which proves nothing "
            "about what its keys are",
            hint="by_key=True says that they are the values of the fields that its input is "
            f"grouped by; or {remedy}",
        )
    return _dealt(name, new, width, before.tasks, remedy)


def _dealt(name: str, keys: list[Any], width: int, tasks: int, remedy: str) -> list[int]:
    if width == 1:
        return places_of([keys], tasks)
    for key in keys:
        if not isinstance(key, tuple) or len(key) != width:
            raise CheckpointError(
                f"{name!r}: the key {shown(key)} is not made of the {width} fields that its input "
                "is grouped by",
                hint=remedy,
            )
    return places_of([list(column) for column in zip(*keys, strict=True)] or [[]], tasks)
