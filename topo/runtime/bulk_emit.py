"""Reads what `emit_many` is given: rows, columns by field, or an Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topo.errors import EmitError, EmitTypeError
from topo.runtime.emitter import Emitter


def rows_of(given: Any, outlet: Emitter, stream: str) -> list[Any]:
    """Return what `emit_many` was given as rows that fit the stream; raise for the first unfit."""
    if hasattr(given, "column_names") and hasattr(given, "column"):  # an Arrow table or batch
        given = {name: given.column(name).to_pylist() for name in given.column_names}
    if isinstance(given, Mapping):
        fields = outlet.fields_of(stream)
        if set(given) != set(fields):
            raise EmitError(
                f"{outlet.owner} emitted columns {', '.join(map(str, given))} on stream "
                f"{stream!r}, whose fields are {', '.join(fields)}",
                hint="give one column for each field, named as the field",
            )
        columns = [given[name] for name in fields]
        lengths = {name: len(given[name]) for name in fields}
        if len(set(lengths.values())) > 1:
            raise EmitError(f"{outlet.owner} emitted columns of different lengths: {lengths}")
        return list(map(list, zip(*columns, strict=True)))
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
