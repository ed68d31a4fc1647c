"""Values as bytes: one column of a frame at a time.

A column of text alone is joined, which is several times faster than pickling it; any other column
is one pickle, or an Arrow stream if it is an array. Values that plain pickle refuses (a lambda, a
local class) go through cloudpickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle

from topo.errors import EmitError, MissingExtra
from topo.wire.arrow import ArrowColumn
from topo.wire.payload import ColumnKind

_TEXT, _PICKLE = bytes([ColumnKind.TEXT]), bytes([ColumnKind.PICKLE])
_ARROW = bytes([ColumnKind.ARROW])
_SEPARATOR = "\0"


def dump(value: Any) -> bytes:
    """Pickle a value, with cloudpickle if plain pickle refuses it."""
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        made: bytes = cloudpickle.dumps(value, protocol=5)
        return made


load = pickle.loads


class UnreadableValues(Exception):
    """The refusal of emitted values to be unpickled, whatever their classes raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def dump_emitted(values: Any) -> bytes:
    """Pickle emitted values; raise an EmitError that names the value without a pickle."""
    try:
        return dump(values)
    except Exception as error:
        raise _unpicklable(values, error) from error


def encode_column(column: list[Any] | tuple[Any, ...] | ArrowColumn) -> bytes:
    if isinstance(column, ArrowColumn):
        return _ARROW + column.encode()
    if set(map(type, column)) == {str}:
        joined = _SEPARATOR.join(column)
        if joined.count(_SEPARATOR) == len(column) - 1:
            try:
                return _TEXT + joined.encode()
            except UnicodeEncodeError:  # lone surrogates, which pickle knows how to keep
                pass
    try:
        return _PICKLE + dump(list(column))
    except Exception as error:
        raise _unpicklable(column, error) from error


def decode_column(
    data: bytes | memoryview, load: Callable[[memoryview], Any] = load
) -> list[Any] | ArrowColumn:
    view = memoryview(data)
    if view[:1] == _TEXT:
        return str(view[1:], "utf-8").split(_SEPARATOR)
    if view[:1] == _ARROW:
        try:
            return ArrowColumn.decode(view[1:])
        except MissingExtra:
            raise
        except Exception as error:
            raise ValueError(f"an Arrow column cannot be read: {error}") from error
    try:
        made: list[Any] = load(view[1:])
    except BaseException as error:  # of the user's classes, which may raise anything
        raise UnreadableValues(error) from error
    return made


def _unpicklable(column: list[Any] | tuple[Any, ...], error: Exception) -> EmitError:
    for value in column:
        try:
            dump(value)
        except Exception as reason:
            return EmitError(
                f"a {type(value).__name__} was emitted, which does not pickle: {reason}",
                hint="emit plain data; what stays in the process belongs into an attribute",
            )
    return EmitError(f"emitted values do not pickle: {error}")
