"""What Arrow cuts short without a word, of values that are given the type of a column.

It takes 1.5 for 1 where a whole number belongs, a moment for its day, infinity for what is too
large for a `float`, and a mapping for those of its keys that a struct has. Other misfits are its
own errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time
from itertools import chain
from math import isfinite
from numbers import Number
from typing import Any

_MOST_OF_FLOAT = float.fromhex("0x1.ffffffp+127")
"""What is less than it is rounded to a finite `float`."""


def check_exact(pa: Any, values: Sequence[Any], kind: Any) -> None:
    """Raise ValueError if a value, which Arrow takes for one of this type, would lose something."""
    kinds = set(map(type, values)) - {type(None), int, str, bytes, bool}
    if not kinds:
        return
    types = pa.types
    if types.is_integer(kind) or types.is_timestamp(kind):
        for value in values:
            if isinstance(value, Number) and value != int(value):  # type: ignore[call-overload]
                raise ValueError(f"{value!r} is no whole number")
    elif types.is_date(kind):
        for value in values:
            if isinstance(value, datetime) and value.time() != time():
                raise ValueError(f"{value!r} is more than a day; give value.date()")
    elif types.is_float32(kind):
        for value in values:
            if isinstance(value, float) and isfinite(value) and abs(value) >= _MOST_OF_FLOAT:
                raise ValueError(f"{value!r} is too large for a float; double takes it")
    elif types.is_struct(kind):
        _check_fields(pa, [value for value in values if isinstance(value, Mapping)], kind)
    elif types.is_map(kind):
        entries = [*chain.from_iterable(map(_entries, _present(values)))]
        check_exact(pa, [key for key, _ in entries], kind.key_type)
        check_exact(pa, [value for _, value in entries], kind.item_type)
    elif types.is_list(kind):
        check_exact(pa, [*chain.from_iterable(_present(values))], kind.value_type)


def _check_fields(pa: Any, values: Sequence[Mapping[Any, Any]], kind: Any) -> None:
    names = [field.name for field in kind]
    for value in values:
        for name in value:
            if name not in names:
                raise ValueError(f"{name!r} is none of its fields, {', '.join(names)}")
    for field in kind:
        check_exact(pa, [value.get(field.name) for value in values], field.type)


def _present(values: Sequence[Any]) -> Iterable[Any]:
    return (value for value in values if value is not None)


def _entries(value: Any) -> Iterable[Any]:
    return value.items() if isinstance(value, Mapping) else value
