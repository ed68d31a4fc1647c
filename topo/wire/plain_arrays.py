"""Arrow arrays of files and callers as columns of frames, in which nobody can tell the difference.

A column that stays Arrow reaches a bolt over batches as it is; a list would be made an array again,
with the type that its values have. So an array stays if each of its values is read by Python
without an error, and with the type that Arrow would find for these values: numbers of 8 bits would
overflow in one bolt, and not in the next, which gets them as a list. Any other column is the list
of its values, at once: an error belongs to who brought the array, and not to who reads it.
"""

from __future__ import annotations

from functools import lru_cache
from types import NoneType
from typing import Any

from topo.wire.arrow import ArrowColumn, pyarrow, values_of

LEAST_OF_COLUMNS = 256
"""Fewer rows come cheaper as rows. JSON of a file to a bolt, processor time of a row as columns and
as rows: pages of 128 1.03 and 0.95 (by batch), tracked 1.10, dealt by fields 1.72; pages of 256
0.90 and 0.83, 0.95 and 1.06."""

_ARROW_NAMES = {str: "string", int: "int64", float: "float64", bool: "bool_"}
"""The types of Arrow that it finds for values of these types alone."""


def column_of(array: Any) -> ArrowColumn | list[Any]:
    """Return the values of an array, chunked or not, as a column that shares no memory with it.

    Raise what reading them as Python values raises.
    """
    pa = pyarrow()
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    try:
        plain = [_plain(pa, chunk) for chunk in chunks]
    except Exception:  # whatever it is: the values are read below, and raise it if they need to
        plain = [None]
    if not plain or any(each is None for each in plain):
        return values_of(array)
    return ArrowColumn(pa.concat_arrays(plain))  # a copy, of one array as well


def column_of_values(values: list[Any]) -> ArrowColumn | list[Any]:
    """Return Python values as an Arrow column if that has the type and values which they have."""
    kinds = set(map(type, values))
    kinds.discard(NoneType)
    name = _ARROW_NAMES.get(kinds.pop()) if len(kinds) == 1 else None
    if name is None:
        return values
    try:
        pa = pyarrow()
        array = pa.array(values, getattr(pa, name)())
    except Exception:  # pyarrow is not installed, an integer has more than 64 bits, half a letter
        return values
    return ArrowColumn(array) if isinstance(array, pa.Array) else values


def _plain(pa: Any, array: Any) -> Any:
    """Return an array with the type of its values; None if it has values that are not plain."""
    array.validate(full=True)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = _type_of_values(array.type)
    if kind is None:
        return None
    _read_extremes(pa, array)
    return array if array.type == kind else array.cast(kind)


@lru_cache(maxsize=1000)
def _type_of_values(kind: Any) -> Any:
    """Return the type that Arrow finds for Python values of a type; None if that is not exact."""
    pa = pyarrow()
    is_of = pa.types
    if is_of.is_null(kind) or is_of.is_boolean(kind) or is_of.is_date32(kind):
        return kind
    if is_of.is_integer(kind):
        return None if is_of.is_uint64(kind) else pa.int64()
    if is_of.is_float32(kind) or is_of.is_float64(kind):
        return pa.float64()
    if is_of.is_string(kind) or is_of.is_large_string(kind):
        return pa.string()
    if is_of.is_binary(kind) or is_of.is_large_binary(kind) or is_of.is_fixed_size_binary(kind):
        return pa.binary()
    if is_of.is_timestamp(kind) and kind.unit != "ns":  # those are values of pandas
        return pa.timestamp("us", kind.tz)
    if is_of.is_time(kind) and kind.unit != "ns":
        return pa.time64("us")
    if is_of.is_list(kind) or is_of.is_large_list(kind):
        of = _type_of_values(kind.value_type)
        return None if of is None else pa.list_(of)
    if is_of.is_struct(kind):
        fields = [(field.name, _type_of_values(field.type)) for field in kind]
        # Of dictionaries: a name is there once, and older versions of Arrow order the names.
        inferred = pa.array([dict.fromkeys(name for name, _ in fields)]).type
        is_same = [field.name for field in inferred] == [name for name, _ in fields]
        return pa.struct(fields) if is_same and all(of is not None for _, of in fields) else None
    return None


def _read_extremes(pa: Any, array: Any) -> None:
    """Raise an error if a time is beyond those of Python, or its zone is unknown."""
    if pa.types.is_temporal(array.type):
        import pyarrow.compute as pc

        pc.min_max(array).as_py()
    elif pa.types.is_struct(array.type):
        for field in array.flatten():
            _read_extremes(pa, field)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        _read_extremes(pa, array.flatten())
