"""Writes tuples to files, as they are in committed batches.

`exactly_once` appends the rows of each batch to a hidden file and keeps the file's length in state:
after a crash the file is cut to the length that is committed. When it is large or old enough it
gets its name, in `committed`; a file under its final name never changes. The other guarantees write
one file a batch; what an attempt that was rolled back has written is removed or replaced. Objects
of a store are written by the same rules (`places.py`).

Without `map` nothing is done to a single tuple: rows are collected by the column.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import quote

from topo.columns import TakesColumns
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
from topo.connectors.files.writers import SUFFIXES, TEXT, Collected, only_value, part_of
from topo.connectors.publication import Bad, RejectingSink
from topo.errors import ComponentError, Unavailable, did_you_mean
from topo.tuples import Fields, Tuple
from topo.ways import BY_BATCH, BY_TUPLE

_NAME = "FileBolt"
log = logging.getLogger("topo.connectors")
_FILE_BYTES = 128 << 20
_OBJECT_BYTES = 8 << 20  # in state, until the object is whole; text has parts
_PARTS = "parts"  # by partition, the file that is being written
_ENDING = "ending"  # the files that get their names once the batch has committed
_NUMBER = "number"
_LAST = "last"  # batch that wrote a file, where each batch writes its own


class FileBolt(TakesColumns, RejectingSink, StatefulBasicBolt):
    """A sink of files below a directory, or of objects below a prefix, `s3://BUCKET/PREFIX`.

    Rows are dicts of a tuple's fields, or what `map` makes of a tuple; of `format="lines"`, the
    tuple's only field. `partition_by` names fields: their values become directories,
    `city=Rome/day=3`. With `guarantee="exactly_once"` a file ends when it has `roll_bytes`, or is
    `roll_secs` old; `after_roll` is then called with its path, at least once.

    Without `map` tuples are taken by the column. Rejected rows go to their stream with the tuple
    that each is of, so that `on_bad="stream"` takes tuples.
    """

    connector = _NAME
    transient = ("_place", "_rows", "_checked")
    takes_tuples = True

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
        is_own = type(self).execute is FileBolt.execute and map is None
        self.hook = BY_BATCH if is_own and on_bad != "stream" else BY_TUPLE

    def get_component_configuration(self) -> dict[str, Any]:
        """Tick, so that a file ends in time though no tuple comes."""
        if self.guarantee != "exactly_once":
            return {}
        return {"topology.tick.tuple.freq.secs": max(1.0, min(60.0, self.roll_secs / 2))}

    # -- life ---------------------------------------------------------------------------------

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self._rows: dict[str, Collected] = {}  # by partition
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
            partition = self._directory_of([str(tup[name]) for name in self.partition_by])
            rows = self._rows_of(partition)
            rows.add(self._row_of(tup), tup.values)
        except (ComponentError, Unavailable):
            raise
        except Exception as error:
            self.reject(list(tup.values), error)
        else:
            self._rows[partition] = rows

    def on_tick(self, tup: Tuple) -> None:
        """Do nothing but work in this batch: `pre_commit` looks how old files are."""

    def _row_of(self, tup: Tuple) -> Any:
        if self.format == "lines" and self.map is None:
            return only_value(tup.values)
        row = as_record(tup, self.map)
        if self.format != "lines" and isinstance(row, Mapping):
            row = {k: v for k, v in row.items() if k not in self.partition_by}
        return row

    def process_columns(
        self, fields: Sequence[str], columns: Sequence[Sequence[Any]], count: int
    ) -> None:
        """Collect what can be written of them; reject, skip or stop at the others."""
        bad: Bad = {}
        stays = [self.format == "lines" or name not in self.partition_by for name in fields]
        names = list(compress(fields, stays))
        for partition, places in self._partitions_of(fields, columns, count, bad).items():
            rows = self._rows_of(partition)
            whole = [part_of(each, places) for each in columns]
            try:
                rows.add_columns(names, list(compress(whole, stays)), len(places), whole)
            except Exception:  # it is of one of them, which are added alone
                for place in places:
                    alone = [[each[place]] for each in columns]
                    try:
                        rows.add_columns(names, list(compress(alone, stays)), 1, alone)
                    except Exception as error:
                        bad[place] = [each[place] for each in columns], error
            if not all(place in bad for place in places):
                self._rows[partition] = rows
        self.reject_some(bad)

    def _partitions_of(
        self, fields: Sequence[str], columns: Sequence[Sequence[Any]], count: int, bad: Bad
    ) -> dict[str, Sequence[int]]:
        """Return the places of the tuples of each partition; note those that have none."""

        def note(places: Iterable[int], error: Exception) -> None:
            bad.update({place: ([each[place] for each in columns], error) for place in places})

        missing = [name for name in self.partition_by if name not in fields]
        if missing:
            hint = did_you_mean(missing[0], fields) or f"they are {', '.join(fields)}"
            note(range(count), ValueError(f"partition_by={missing[0]!r} is no field; {hint}"))
            return {}
        alike: dict[tuple[str, ...], list[int]] = {}
        chosen = [columns[fields.index(name)] for name in self.partition_by]
        for place, row in enumerate(zip(*chosen, strict=True)):
            try:
                alike.setdefault(tuple(map(str, row)), []).append(place)
            except Exception as error:  # of whatever the user's class raises
                note([place], error)
        by_directory: dict[str, Sequence[int]] = {}
        for values, places in alike.items() if chosen else [((), range(count))]:
            try:
                by_directory[self._directory_of(values)] = places
            except (ComponentError, Unavailable):
                raise
            except Exception as error:
                note(places, error)
        return by_directory

    def _rows_of(self, partition: str) -> Collected:
        return self._rows.get(partition) or Collected(self.format)

    def _directory_of(self, values: Iterable[str]) -> str:
        """Return the directory of a partition; raise if it can be none."""
        pairs = zip(self.partition_by, values, strict=True)
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

    def _write(self, rows: dict[str, Collected], batch_id: int) -> None:
        for partition, collected in rows.items():
            name = f"{self._task}{batch_id}.{SUFFIXES[self.format]}"
            data = self._packed(collected, self._header_of(collected), first=True)
            if data:
                self._place.write(self.format, partition, name, data)
        self.state[_LAST] = batch_id

    def _append(self, rows: dict[str, Collected], batch_id: int) -> None:
        parts: dict[str, Any] = self.state.get(_PARTS, {}) if rows else self._parts()
        now = self.context.now()
        outgrown = []  # files of CSV whose header lacks a column
        for partition, collected in rows.items():
            part = parts.get(partition)
            if part is not None and not self._has_columns(part, collected):
                outgrown.append(parts.pop(partition))
                part = None
            if part is None:
                part = self._new_part(partition, batch_id, now, collected)
            data = self._packed(collected, part.get("columns", ()), first=part["bytes"] == 0)
            if data:
                self._place.append(part, data)
                parts[partition] = {**part, "bytes": part["bytes"] + len(data)}
        ended = [
            partition
            for partition, part in parts.items()
            if part["bytes"] >= self.roll_bytes or now - part["since"] >= self.roll_secs
        ]
        if ended or outgrown:
            ending = [*self.state.get(_ENDING, []), *outgrown]
            self.state[_ENDING] = [*ending, *(parts[partition] for partition in ended)]
        if rows or ended:
            self.state[_PARTS] = {k: part for k, part in parts.items() if k not in ended}

    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = self.state.raw().get(_PARTS, {})
        return parts

    def _packed(self, collected: Collected, header: Sequence[str], *, first: bool) -> bytes:
        data = collected.packed(header, first=first)
        self.reject_late(collected.bad)
        return data

    def _header_of(self, collected: Collected) -> tuple[str, ...]:
        return collected.fields if self.format == "csv" else ()

    def _has_columns(self, part: Mapping[str, Any], collected: Collected) -> bool:
        """Return True if an open file has a place for every column of these rows."""
        return self.format != "csv" or set(collected.fields).issubset(part.get("columns", ()))

    def _new_part(
        self, partition: str, batch_id: int, now: float, collected: Collected
    ) -> dict[str, Any]:
        number = self.state.get(_NUMBER, 0)
        self.state[_NUMBER] = number + 1
        name = self._name(batch_id, number)
        columns = self._header_of(collected)
        return {"name": name, "partition": partition, "bytes": 0, "since": now, "columns": columns}

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
        new = self._place.finish(self.format, part)
        if new:
            self.context.counter("files", len(new))
        if self.after_roll is not None:
            for name in new or self._place.names(part):
                self.after_roll(name)
