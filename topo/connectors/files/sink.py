"""Writes tuples to files, as they are in committed batches.

`exactly_once` appends the rows of each batch to a hidden file and keeps the file's length in state:
after a crash the file is cut to the length that is committed. When it is large or old enough it
gets its name, in `committed`; a file under its final name never changes. The other guarantees write
one file a batch; what an attempt that was rolled back has written is removed or replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from topo.components import StatefulBasicBolt
from topo.connectors.base import (
    REJECTED_FIELDS,
    Guarantee,
    OnBad,
    as_record,
    check_choice,
    check_positive,
)
from topo.connectors.files.spout import FORMATS
from topo.connectors.files.writers import SUFFIXES, finish, packed
from topo.errors import ComponentError, Unavailable
from topo.tuples import Fields, Tuple

_NAME = "FileBolt"
_OPEN = "_open"
_PARTS = "parts"  # by partition, the file that is being written
_ENDING = "ending"  # the files that get their names once the batch has committed
_NUMBER = "number"
_LAST = "last"  # batch that wrote a file, where each batch writes its own


class FileBolt(StatefulBasicBolt):
    """A sink of files below a directory.

    Rows are dicts of a tuple's fields, or what `map` makes of a tuple; of `format="lines"`, the
    tuple's only field. `partition_by` names fields: their values become directories,
    `city=Rome/day=3`. With `guarantee="exactly_once"` a file ends when it has `roll_bytes`, or is
    `roll_secs` old; `after_roll` is then called with its path, at least once.
    """

    transient = ("_rows", "_swept")

    def __init__(
        self,
        directory: str | Path,
        format: Literal["lines", "json", "csv", "parquet", "arrow"] = "json",
        *,
        guarantee: Guarantee = "at_least_once",
        map: Callable[[Tuple], Any] | None = None,
        partition_by: str | Iterable[str] = (),
        roll_secs: float = 300,
        roll_bytes: int = 128 << 20,
        prefix: str = "part",
        on_bad: OnBad = "stop",
        after_roll: Callable[[str], None] | None = None,
    ) -> None:
        check_choice(_NAME, "format", format, FORMATS)
        check_choice(
            _NAME, "guarantee", guarantee, ("none", "at_least_once", "by_batch", "exactly_once")
        )
        check_choice(_NAME, "on_bad", on_bad, ("stop", "stream", "skip"))
        check_positive(_NAME, roll_secs=roll_secs, roll_bytes=roll_bytes)
        if not prefix or prefix.startswith((".", "_")) or "/" in prefix:
            raise ComponentError(f"{_NAME}: prefix={prefix!r}; readers skip hidden files")
        self.directory, self.format, self.guarantee = str(directory), format, guarantee
        self.map, self.partition_by = map, tuple(Fields(partition_by))
        self.roll_secs, self.roll_bytes = roll_secs, roll_bytes
        self.prefix, self.on_bad, self.after_roll = prefix, on_bad, after_roll
        self.outputs: Any = {"rejected": REJECTED_FIELDS} if on_bad == "stream" else ()

    def get_component_configuration(self) -> dict[str, Any]:
        """Tick, so that a file ends in time though no tuple comes."""
        if self.guarantee != "exactly_once":
            return {}
        return {"topology.tick.tuple.freq.secs": max(1.0, min(60.0, self.roll_secs / 2))}

    # -- life ---------------------------------------------------------------------------------

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self._rows: dict[str, list[Any]] = {}
        self._swept = False

    def restored(self) -> None:
        """Remove what batches have written that did not commit."""
        with self._reaching("cleaning up"):
            if self.guarantee == "exactly_once":
                self._cut_open_files()
            else:
                self._remove_later_files()

    def cleanup(self) -> None:
        """Give every open file its name: the run ends in good order, and all of it is committed."""
        for part in self.state.get(_PARTS, {}).values():
            self._finish(part)
        self.state[_PARTS] = {}

    @property
    def _task(self) -> str:
        """The beginning of the names of this task's files; other checkpoints have others."""
        context = self.context
        component = quote(context.this_component_id, safe="")
        return f"{self.prefix}-{context.checkpoint_id[:8]}-{component}-{context.this_task_index}-"

    def _cut_open_files(self) -> None:
        directory = Path(self.directory, _OPEN)
        parts = self.state.get(_PARTS, {})
        wanted = {part["name"]: part for part in [*parts.values(), *self.state.get(_ENDING, [])]}
        for path in directory.glob(f"{self._task}*") if directory.is_dir() else ():
            part = wanted.get(path.name)
            if part is None:
                path.unlink()
            elif path.stat().st_size > part["bytes"]:
                os.truncate(path, part["bytes"])
        for partition, part in list(parts.items()):
            if not self._path_of(part).exists():
                if not self._target_of(part).exists():
                    raise ComponentError(
                        f"{_NAME}: {self._path_of(part)} is gone, with {part['bytes']} bytes that "
                        "are committed",
                        hint="put it back, or start with a fresh checkpoint",
                    )
                del parts[partition]  # it got its name when the run ended

    def _remove_later_files(self) -> None:
        last = self.state.get(_LAST, -1)
        root = Path(self.directory)
        for path in root.rglob(f"{self._task}*") if root.is_dir() else ():
            number = path.name.removeprefix(self._task).partition(".")[0]
            if number.isdigit() and int(number) > last:
                path.unlink()

    # -- a batch ------------------------------------------------------------------------------

    def execute(self, tup: Tuple) -> None:
        try:
            partition = self._partition_of(tup)
            row = self._row_of(tup)
        except Exception as error:
            self._reject(tup, error)
            return
        self._rows.setdefault(partition, []).append(row)

    def on_tick(self, tup: Tuple) -> None:
        """Do nothing but work in this batch: `pre_commit` looks how old files are."""

    def _row_of(self, tup: Tuple) -> Any:
        if self.format == "lines" and self.map is None:
            if len(tup.fields) != 1:
                raise ValueError(f"a line is one field; got {len(tup.fields)}: give map=")
            row: Any = tup[0]
        else:
            row = as_record(tup, self.map)
            if self.format != "lines" and isinstance(row, Mapping):
                row = {k: v for k, v in row.items() if k not in self.partition_by}
        if self.format in ("lines", "json"):
            packed(self.format, [row], first=False)
        elif not isinstance(row, Mapping):
            raise TypeError(f"a row of {self.format} is a mapping; got a {type(row).__name__}")
        return row

    def _partition_of(self, tup: Tuple) -> str:
        pairs = ((name, str(tup[name])) for name in self.partition_by)
        return "/".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)

    def _reject(self, tup: Tuple, error: Exception) -> None:
        self.context.counter("rejected")
        if self.on_bad == "stop":
            raise error
        if self.on_bad == "stream":
            self.emit([list(tup.values), f"{type(error).__name__}: {error}"], stream="rejected")

    def pre_commit(self, batch_id: int) -> None:
        rows, self._rows = self._rows, {}
        with self._reaching("writing"):
            if self.guarantee == "exactly_once":
                self._append(rows, batch_id)
            elif rows:
                self._write(rows, batch_id)

    def _write(self, rows: dict[str, list[Any]], batch_id: int) -> None:
        for partition, listed in rows.items():
            name = f"{self._task}{batch_id}.{SUFFIXES[self.format]}"
            unfinished = self._made(_OPEN) / f"{name}.{len(partition)}"
            unfinished.write_bytes(packed(self.format, listed, first=True))
            finish(self.format, unfinished, self._made(partition) / name)
        self.state[_LAST] = batch_id

    def _append(self, rows: dict[str, list[Any]], batch_id: int) -> None:
        parts: dict[str, Any] = self.state.get(_PARTS, {}) if rows else self._parts()
        now = self.context.now()
        for partition, listed in rows.items():
            part = parts.get(partition) or self._new_part(partition, batch_id, now)
            data = packed(self.format, listed, first=part["bytes"] == 0)
            with self._path_of(part).open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            parts[partition] = {**part, "bytes": part["bytes"] + len(data)}
        ended = [
            partition
            for partition, part in parts.items()
            if part["bytes"] >= self.roll_bytes or now - part["since"] >= self.roll_secs
        ]
        if ended:
            ending = self.state.get(_ENDING, [])
            self.state[_ENDING] = [*ending, *(parts[partition] for partition in ended)]
        if rows or ended:
            self.state[_PARTS] = {k: part for k, part in parts.items() if k not in ended}

    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = self.state.raw().get(_PARTS, {})
        return parts

    def _new_part(self, partition: str, batch_id: int, now: float) -> dict[str, Any]:
        number = self.state.get(_NUMBER, 0)
        self.state[_NUMBER] = number + 1
        self._made(_OPEN)
        name = f"{self._task}{batch_id}-{number}.{SUFFIXES[self.format]}"
        return {"name": name, "partition": partition, "bytes": 0, "since": now}

    def committed(self, batch_id: int) -> None:
        """Give the files that have ended their names."""
        ending: list[Any] = self.state.raw().get(_ENDING, [])
        if not ending:
            return
        with self._reaching("finishing"):
            for part in ending:
                self._finish(part)
        self.state[_ENDING] = []

    def _finish(self, part: Mapping[str, Any]) -> None:
        source, target = self._path_of(part), self._target_of(part)
        if source.exists():
            self._made(part["partition"])
            finish(self.format, source, target)
            self.context.counter("files")
        if self.after_roll is not None:
            self.after_roll(str(target))

    def _path_of(self, part: Mapping[str, Any]) -> Path:
        return Path(self.directory, _OPEN, part["name"])

    def _target_of(self, part: Mapping[str, Any]) -> Path:
        return Path(self.directory, part["partition"], part["name"])

    def _made(self, partition: str) -> Path:
        path = Path(self.directory, partition)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _reaching(self, doing: str) -> _Reaching:
        return _Reaching(f"{_NAME}: {doing} in {self.directory}")


class _Reaching:
    """Turns an error of the file system into one that may pass: a full disk, a lost mount."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, OSError) and error.errno:
            raise Unavailable(f"{self._doing}: {error.strerror}") from error
