"""Columns of frames as Arrow's, and Arrow's as columns of frames, with errors that name the field.

What Arrow would change on the way is refused: whole and broken numbers in one column, which it
would make all broken ones, or not, as the frame falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topo.components import are_types
from topo.distribution import load_client
from topo.errors import ColumnError, EmitError, EmitTypeError, did_you_mean, shown
from topo.wire.arrow import ArrowColumn

EXTRA = "files"
"""The extra that brings pyarrow alone."""


def arrow(user: str) -> Any:
    """Return pyarrow; raise MissingExtra, naming who needs it."""
    return load_client("pyarrow", user, EXTRA)


def record_batch(
    user: str, fields: Sequence[str], columns: Sequence[Any], count: int, read: str
) -> Any:
    """Return a RecordBatch of these columns; `read` says whose they are, for errors."""
    pa = arrow(user)
    if not fields:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    arrays = [
        array_of(pa, field, column, read) for field, column in zip(fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(fields))


def array_of(pa: Any, field: str, column: Any, read: str) -> Any:
    """Return a column as an array."""
    if isinstance(column, ArrowColumn):
        return column.array
    if {int, float} <= set(map(type, column)):
        _refuse_mixed(field, column, read)
    try:
        return pa.array(column)
    except Exception as error:
        raise _untypable(pa, field, column, read, error) from error


def _refuse_mixed(field: str, column: Sequence[Any], read: str) -> None:
    first = next(type(value) for value in column if type(value) in (int, float))
    place, odd = next(
        (place, value)
        for place, value in enumerate(column)
        if type(value) in (int, float) and type(value) is not first
    )
    raise ColumnError(
        f"field {field!r} of {read} has mixed numbers, which are no Arrow column: "
        f"{first.__name__} first, and at row {place} the {type(odd).__name__} {shown(odd)}",
        hint="emit numbers of one type: float(value)",
    )


def _untypable(
    pa: Any, field: str, column: Sequence[Any], read: str, error: Exception
) -> ColumnError:
    """Return the error for a column that has no type, with the first value that does not fit."""
    first = next((value for value in column if value is not None), None)
    place, odd = _first_unfit(pa, column)
    reason = str(error).partition("\n")[0]
    text = f"field {field!r} of {read} is no Arrow column: at row {place}, {shown(odd)}"
    if type(odd) is not type(first):
        text += f", a {type(odd).__name__} among values that began with a {type(first).__name__}"
    return ColumnError(
        f"{text} ({type(error).__name__}: {reason})",
        hint="emit values of one plain type, or write the bolt with process, which takes any",
    )


def _first_unfit(pa: Any, column: Sequence[Any]) -> tuple[int, Any]:
    """Return the place and value of the first value with which the column has no type."""
    low, high = 0, len(column)  # the first `low` values fit together, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            pa.array(column[:middle])
            low = middle
        except Exception:
            high = middle
    return high - 1, column[high - 1]


def columns_for(
    owner: str, stream: str, fields: Sequence[str], data: Any, types: Mapping[str, Any]
) -> list[ArrowColumn]:
    """Return the data of an `emit_batch` as columns of the stream, in the order of its fields."""
    pa = arrow(f"emit_batch of {owner}")
    named = _named(pa, owner, data)
    _check_names(owner, stream, fields, list(named))
    columns = []
    for field in fields:
        array = _one_array(pa, owner, field, named[field])
        declared = types.get(field)
        if declared is not None and array.type != declared:
            try:
                array = array.cast(declared)
            except Exception as error:
                raise EmitTypeError(
                    f"{owner} emitted {array.type} in field {field!r} of stream {stream!r}, which "
                    f"is declared as {declared}: {str(error).partition(chr(10))[0]}"
                ) from error
        columns.append(ArrowColumn(array))
    lengths = {field: len(column) for field, column in zip(fields, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        raise EmitError(f"{owner} emitted columns of different lengths: {lengths}")
    return columns


def _named(pa: Any, owner: str, data: Any) -> dict[str, Any]:
    """Return columns by name, of a mapping, a batch, a table or a data frame."""
    if isinstance(data, Mapping):
        return dict(data)
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        data = pa.Table.from_pandas(data, preserve_index=False)
    elif not isinstance(data, pa.Table | pa.RecordBatch) and hasattr(data, "__arrow_c_stream__"):
        data = pa.table(data)
    if not isinstance(data, pa.Table | pa.RecordBatch):
        raise EmitTypeError(
            f"{owner} called emit_batch with a {type(data).__name__}, {shown(data)}",
            hint="emit_batch({field: array, ...}), or a RecordBatch, a Table or a data frame",
        )
    return dict(zip(data.schema.names, data.columns, strict=True))


def _check_names(owner: str, stream: str, fields: Sequence[str], names: Sequence[Any]) -> None:
    if set(names) == set(fields) and len(names) == len(fields):
        return
    emitted = ", ".join(map(str, names)) or "none"
    text = f"{owner} emitted columns {emitted} on stream {stream!r}, whose fields are "
    text += ", ".join(fields) or "none"
    hints = (did_you_mean(name, fields) for name in names if name not in fields)
    hint = next(filter(None, hints), "give one column for each field, named as the field")
    raise EmitError(text, hint=hint)


def _one_array(pa: Any, owner: str, field: str, column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        chunks = column.chunks
        return chunks[0] if len(chunks) == 1 else column.combine_chunks()
    if isinstance(column, pa.Array):
        return column
    if isinstance(column, (str, bytes, pa.Scalar)):
        raise EmitTypeError(
            f"{owner} emitted {shown(column)} as the column of field {field!r}",
            hint="a column has a value for each row",
        )
    if isinstance(column, list | tuple | range):
        return array_of(pa, field, list(column), f"a batch that {owner} emitted")
    try:
        array = pa.array(column)
    except Exception as error:
        raise EmitTypeError(
            f"{owner} emitted a {type(column).__name__} as the column of field {field!r}: {error}",
            hint="a column is an Arrow array, an array of numpy, a series or a list",
        ) from error
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def declared_types(component: Any, stream: str) -> Mapping[str, Any]:
    """Return the types that `outputs` declares for the fields of a stream; most declare none."""
    outputs = component.outputs
    if not isinstance(outputs, Mapping):
        return {}
    if are_types(outputs):
        return outputs if stream == "default" else {}
    own = outputs.get(stream)
    return own if isinstance(own, Mapping) and are_types(own) else {}
