"""Records: the values of a spout with several fields, as elements of a stream.

A tuple of the runtime belongs to its task, and may be filled again once nobody holds it. What goes
on to another bolt is therefore a record: a plain tuple of the values whose fields have names.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import Any

from topo.tuples import Tuple


class Record(tuple[Any, ...]):
    """The values of a tuple, by position, field name and attribute."""

    _fields: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[self._fields.index(name)]
        except ValueError:
            known = ", ".join(map(repr, self._fields)) or "none"
            raise AttributeError(f"the record has no field {name!r}; it has {known}") from None

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True))
        return f"Record({shown})"

    def __reduce__(self) -> tuple[object, ...]:
        return (make_record, (self._fields, tuple(self)))


@lru_cache(maxsize=1024)
def record_type(fields: tuple[str, ...]) -> type[Record]:
    """Return the class of records with these fields."""
    # A field may be named as a method of tuples is: "count", "index".
    places = {name: property(itemgetter(at)) for at, name in enumerate(fields) if name[:1] != "_"}
    return type("Record", (Record,), {**places, "_fields": fields, "__slots__": ()})


def make_record(fields: tuple[str, ...], values: tuple[Any, ...]) -> Record:
    return record_type(fields)(values)


def lasting(value: Any) -> Any:
    """Return the value, or a record in place of a tuple of the runtime."""
    if isinstance(value, Tuple):
        return record_type(tuple(value.fields))(value.values)
    return value
