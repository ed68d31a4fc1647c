"""Writes tuples to files, as they are in committed batches.

`exactly_once` appends the rows of each batch to a hidden file and keeps the file's length in state:
after a crash the file is cut to the length that is committed. When it is large or old enough it
gets its name, in `committed`; a file under its final name never changes. The other guarantees write
one file a batch; what an attempt that was rolled back has written is removed or replaced. Objects
of a store are written by the same rules (`places.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import quote

from topo.components import StatefulBasicBolt
from topo.connectors.arguments import answering
from topo.connectors.base import (
    Guarantee,
    OnBad,
    as_record,
    check_choice,
    check_positive,
)
from topo.connectors.files.objects import check_place, is_object
from topo.connectors.files.places import Directory, Objects, Place
from topo.connectors.files.spout import FORMATS
from topo.connectors.files.writers import SUFFIXES, TEXT, packed
from topo.connectors.publication import RejectingSink
from topo.errors import ComponentError, Unavailable
from topo.tuples import Fields, Tuple

_NAME = "FileBolt"
log = logging.getLogger("topo.connectors")
_FILE_BYTES = 128 << 20
_OBJECT_BYTES = 8 << 20  # in state, until the object is whole; text has parts
_PARTS = "parts"  # by partition, the file that is being written
_ENDING = "ending"  # the files that get their names once the batch has committed
_NUMBER = "number"
_LAST = "last"  # batch that wrote a file, where each batch writes its own


class FileBolt(RejectingSink, StatefulBasicBolt):
    """A sink of files below a directory, or of objects below a prefix, `s3://BUCKET/PREFIX`.

    Rows are dicts of a tuple's fields, or what `map` makes of a tuple; of `format="lines"`, the
    tuple's only field. `partition_by` names fields: their values become directories,
    `city=Rome/day=3`. With `guarantee="exactly_once"` a file ends when it has `roll_bytes`, or is
    `roll_secs` old; `after_roll` is then called with its path, at least once.
    """

    connector = _NAME
    transient = ("_place", "_rows", "_checked")

    @answering()
    def __init__(
        self,
        directory: str | Path,
        format: Literal["lines", "json", "csv", "parquet", "arrow"] = "json",
        *,
        guarantee: Guarantee = "at_least_once",
        map: Callable[[Tuple], Any] | None = None,
        partition_by: str | Iterable[str] = (),
        roll_secs: float = 300,
        roll_bytes: int | None = None,
        prefix: str = "part",
        on_bad: OnBad = "stop",
        after_roll: Callable[[str], None] | None = None,
        storage: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        check_choice(_NAME, "format", format, FORMATS)
        check_choice(
            _NAME, "guarantee", guarantee, ("none", "at_least_once", "by_batch", "exactly_once")
        )
        check_positive(_NAME, roll_secs=roll_secs, roll_bytes=roll_bytes)
        if not prefix or prefix.startswith((".", "_")) or "/" in prefix:
            raise ComponentError(f"{_NAME}: prefix={prefix!r}; readers skip hidden files")
        self.directory, self.format, self.guarantee = str(directory), format, guarantee
        self.storage = dict(storage)
        self.requires = check_place(_NAME, self.directory, self.storage)
        self.map, self.partition_by = map, tuple(Fields(partition_by))
        has_parts = format in TEXT or not is_object(self.directory)
        usual = _FILE_BYTES if has_parts else _OBJECT_BYTES
        self.roll_secs, self.roll_bytes = roll_secs, roll_bytes or usual
        self.prefix, self.after_roll = prefix, after_roll
        self.set_on_bad(on_bad)

    def get_component_configuration(self) -> dict[str, Any]:
        """Tick, so that a file ends in time though no tuple comes."""
        if self.guarantee != "exactly_once":
            return {}
        return {"topology.tick.tuple.freq.secs": max(1.0, min(60.0, self.roll_secs / 2))}

    # -- life ---------------------------------------------------------------------------------

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self._rows: dict[str, list[Any]] = {}
        self._place: Place
        self._checked: set[str] = set()  # partitions that can have files

    def restored(self) -> None:
        """Remove what batches have written that did not commit."""
        if is_object(self.directory):
            self._place = Objects(_NAME, self.directory, self.storage, self.state)
        else:
            self._place = Directory(_NAME, self.directory)
        if self.guarantee == "exactly_once":
            self._place.recover(
                self._task, self.state.get(_PARTS, {}), self.state.raw().get(_ENDING, [])
            )
        else:
            self._place.remove_later(self._task, self.state.get(_LAST, -1))

    def cleanup(self) -> None:
        """Give every open file its name: the run ends in good order, and all of it is committed."""
        left = {}
        for partition, part in self.state.get(_PARTS, {}).items():
            try:
                self._finish(part)
            except Exception as error:  # the others are whole files, whatever is wrong with it
                left[partition] = part
                log.error("%s stays open, and gets its name at the next start: %s",
                          self._place.target(part), error)  # fmt: skip
        self.state[_PARTS] = left
        self._place.close()

    @property
    def _task(self) -> str:
        """The beginning of the names of this task's files; other checkpoints have others."""
        context = self.context
        component = quote(context.this_component_id, safe="")
        return f"{self.prefix}-{context.checkpoint_id[:8]}-{component}-{context.this_task_index}-"

    # -- a batch ------------------------------------------------------------------------------

    def execute(self, tup: Tuple) -> None:
        try:
            partition = self._partition_of(tup)
            row = self._row_of(tup)
        except (ComponentError, Unavailable):
            raise
        except Exception as error:
            self.reject(list(tup.values), error)
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
        directory = "/".join(
            f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs
        )
        if directory not in self._checked:
            self._place.check(directory, self._name(self.context.batch_id, 0))
            self._checked.add(directory)
        return directory

    def _name(self, batch_id: int, number: int) -> str:
        return f"{self._task}{batch_id}-{number}.{SUFFIXES[self.format]}"

    def pre_commit(self, batch_id: int) -> None:
        rows, self._rows = self._rows, {}
        if self.guarantee == "exactly_once":
            self._append(rows, batch_id)
        elif rows:
            self._write(rows, batch_id)

    def _write(self, rows: dict[str, list[Any]], batch_id: int) -> None:
        for partition, listed in rows.items():
            name = f"{self._task}{batch_id}.{SUFFIXES[self.format]}"
            data = packed(self.format, listed, first=True)
            self._place.write(self.format, partition, name, data)
        self.state[_LAST] = batch_id

    def _append(self, rows: dict[str, list[Any]], batch_id: int) -> None:
        parts: dict[str, Any] = self.state.get(_PARTS, {}) if rows else self._parts()
        now = self.context.now()
        for partition, listed in rows.items():
            part = parts.get(partition) or self._new_part(partition, batch_id, now)
            data = packed(self.format, listed, first=part["bytes"] == 0)
            self._place.append(part, data)
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
        name = self._name(batch_id, number)
        return {"name": name, "partition": partition, "bytes": 0, "since": now}

    def committed(self, batch_id: int) -> None:
        """Give the files that have ended their names."""
        if self.guarantee != "exactly_once":
            return
        for part in self._parts().values():
            self._place.committed(self.format, part)
        ending: list[Any] = self.state.raw().get(_ENDING, [])
        if not ending:
            return
        for part in ending:
            self._finish(part)
        self.state[_ENDING] = []

    def _finish(self, part: Mapping[str, Any]) -> None:
        if self._place.finish(self.format, part) is not None:
            self.context.counter("files")
        if self.after_roll is not None:
            self.after_roll(self._place.target(part))
