"""`emit_many`: many tuples in one call, given as rows, columns by field, or an Arrow table.

Many rows that come as columns stay columns: they are dealt at once, as the bolts' frames will have
them. As rows, each would be a list of its own, to be made columns again by the flush.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np

from topo.errors import EmitError, EmitTypeError
from topo.runtime.arrow_columns import columns_for
from topo.runtime.emitter import Emitter
from topo.runtime.threads import CallsFromThreads
from topo.tuples import DEFAULT_STREAM
from topo.wire.arrow import ArrowColumn
from topo.wire.frame import I64, Column
from topo.wire.plain_arrays import LEAST_OF_COLUMNS, column_of


class BulkEmit:
    """The `emit_many` of a spout."""

    def __init__(
        self,
        outlet: Emitter,
        track: Callable[[Any], int],
        track_many: Callable[[list[Any]], Sequence[int]],
        threads: CallsFromThreads,
        types_of: Callable[[str], Mapping[str, Any]],
    ) -> None:
        self._types_of = types_of
        self._outlet = outlet
        self._track = track
        self._track_many = track_many
        self._threads = threads

    def __call__(
        self, rows: Any, *, stream: str = DEFAULT_STREAM, msg_ids: Iterable[Any] | None = None
    ) -> int:
        columns = columns_of(rows, self._outlet, stream)
        listed = rows_of(rows, self._outlet, stream) if columns is None else []
        return self._emit(columns, listed, stream, msg_ids)

    def batch(
        self, columns: Any, *, stream: str = DEFAULT_STREAM, msg_ids: Iterable[Any] | None = None
    ) -> int:
        """Emit the rows of Arrow columns, which stay as they are: the spout's `emit_batch`."""
        outlet = self._outlet
        fields, types = outlet.fields_of(stream), self._types_of(stream)
        arrays: list[Column] = [*columns_for(outlet.owner, stream, fields, columns, types)]
        return self._emit(arrays, [], stream, msg_ids)

    def _emit(
        self,
        columns: list[Column] | None,
        listed: list[Any],
        stream: str,
        msg_ids: Iterable[Any] | None,
    ) -> int:
        outlet = self._outlet
        if columns is not None and not self._takes(columns, stream):
            listed = _rows(columns)
        count = len(columns[0]) if columns else len(listed)
        ids = None if msg_ids is None else list(msg_ids)
        if ids is not None and len(ids) != count:
            raise EmitError(
                f"{outlet.owner} emitted {count} rows with {len(ids)} message ids",
                hint="give one id a row; None leaves a row untracked",
            )
        if not count:
            return 0
        if self._threads.leave(self, listed, stream=stream, msg_ids=ids):
            return count
        if columns is not None and not listed:
            if ids is None:
                outlet.flush_untracked(outlet.streams[stream], columns, count)
            else:
                parents = self._parents(ids, count)
                outlet.flush_columns(outlet.streams[stream], columns, parents)
            return count
        out = outlet.checked(listed[0], stream, direct=False)
        if outlet.strict or outlet.keeps_order:
            for values in listed:
                outlet.added(out, values)
        out.add_many(listed)
        out.parents.extend(np.asarray(self._parents(ids, count)).tolist())
        return count

    def _takes(self, columns: list[Column], stream: str) -> bool:
        """True iff columns are dealt as they are: enough of them, and nothing looks at rows."""
        if not columns or len(columns[0]) < LEAST_OF_COLUMNS or self._threads.is_elsewhere:
            return False
        out = self._outlet.streams[stream]
        return not out.takes_direct and self._outlet.takes_columns

    def _parents(self, ids: list[Any] | None, count: int) -> Sequence[int] | I64:
        """Return the parents of rows with these message ids."""
        if ids is None:
            return np.zeros(count, np.int64)
        if NoneType in set(map(type, ids)):
            track = self._track
            return [0 if one is None else track(one) for one in ids]
        return self._track_many(ids)


def columns_of(given: Any, outlet: Emitter, stream: str) -> list[Column] | None:
    """Return the columns that `emit_many` was given, in the order of the fields; None for rows.

    They are copies: the caller may change its own.
    """
    if hasattr(given, "column_names") and hasattr(given, "column"):  # an Arrow table or batch
        given = {name: given.column(name) for name in given.column_names}
    if not isinstance(given, Mapping):
        return None
    fields = outlet.fields_of(stream)
    if set(given) != set(fields):
        raise EmitError(
            f"{outlet.owner} emitted columns {', '.join(map(str, given))} on stream "
            f"{stream!r}, whose fields are {', '.join(fields)}",
            hint="give one column for each field, named as the field",
        )
    lengths = {name: len(given[name]) for name in fields}
    if len(set(lengths.values())) > 1:
        raise EmitError(f"{outlet.owner} emitted columns of different lengths: {lengths}")
    return [_column(given[name]) for name in fields]


def _column(values: Any) -> Column:
    """Return the column of what was given as one: as Arrow has it, if it is Arrow's."""
    if isinstance(values, ArrowColumn):
        return values.own()
    return column_of(values) if hasattr(values, "to_pylist") else list(values)


def rows_of(given: Any, outlet: Emitter, stream: str) -> list[Any]:
    """Return what `emit_many` was given as rows that fit the stream; raise for the first unfit."""
    columns = columns_of(given, outlet, stream)
    if columns is not None:
        return _rows(columns)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise EmitTypeError(
            f"{outlet.owner} called emit_many with a {type(given).__name__}",
            hint="emit_many([[value, ...], ...]), or emit_many({field: column})",
        )
    rows = list(given)
    width = len(outlet.fields_of(stream))
    if not (set(map(type, rows)) <= {list, tuple} and set(map(len, rows)) <= {width}):
        for values in rows:
            outlet.checked(values, stream, direct=False)
    return rows


def _rows(columns: list[Column]) -> list[Any]:
    return list(map(list, zip(*columns, strict=True)))
