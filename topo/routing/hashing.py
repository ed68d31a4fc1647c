"""A hash of values that is the same in every process, for fields grouping.

Equal values must hash alike, whatever their types: 1, 1.0, True and Decimal(1) are equal, and so
are a list subclass and its list, or two sets filled in another order. Numbers therefore go through
Python's own number hash, which is not randomised; text and bytes through a polynomial; containers
are combined; any other object is taken apart as pickle would. An object whose class has an
`__eq__` of its own cannot be: what it compares is known to nobody else. It is refused, unless its
`__topo_key__()` returns a value that is equal where the objects are.
"""

from __future__ import annotations

import copyreg
import dataclasses
import datetime
import enum
import numbers
import sys
from collections import UserList, UserString, deque
from collections.abc import Callable, ItemsView, Mapping, Set
from hashlib import blake2b
from pathlib import PurePath, PureWindowsPath
from typing import Any
from uuid import UUID

from topo.errors import EmitError

_MASK = (1 << 64) - 1
BASE = 0x9FB21C651E98DF25  # of the polynomial that text is hashed by
LONG = 64  # bytes; longer text is hashed down to as many first
_NAN = 0x7FF8_0000_0000_0001
_LONGEST_WALK = 4096
_RANGE = 0xC2B2
_SEQUENCE, _SET, _MAPPING, _TIME, _OBJECT, _SPAN = (0x9E37, 0x7F4A, 0x94D0, 0x2545, 0xF491, 0x51ED)


def stable_hash(value: Any) -> int:
    """Return 64 bits that depend on the value alone, not on the process, hash seed or platform."""
    kind = value.__class__
    if kind is str:
        return _bytes_hash(value.encode("utf-8", "surrogatepass"))
    if kind is int or kind is float or kind is bool:
        return _number_hash(value)
    return _general_hash(value, ())


def mix(seed: int, part: int) -> int:
    """Combine two hashes in order, by splitmix64's finaliser over both."""
    z = (seed * 0x9E3779B97F4A7C15 + part + 0x632BE59BD9B4E019) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _bytes_hash(data: bytes) -> int:
    if len(data) > LONG:
        data = blake2b(data, digest_size=LONG).digest()
    total = 0
    for byte in reversed(data):
        total = (total * BASE + byte) & _MASK
    return mix(total, len(data))


def _number_hash(value: Any) -> int:
    try:
        if value != value:  # NaN: equal to nothing, yet to go somewhere
            return _NAN
    except ArithmeticError:  # a signalling NaN
        return _NAN
    return mix(0, hash(value) & _MASK)


def _general_hash(value: Any, above: tuple[int, ...]) -> int:
    if value is None:
        return mix(_OBJECT, 0)
    if isinstance(value, str):
        return _bytes_hash(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes_hash(bytes(value))
    if isinstance(value, numbers.Number):
        return _number_hash(value)
    if id(value) in above:
        return mix(_OBJECT, len(above) - above.index(id(value)))
    above = (*above, id(value))
    if isinstance(value, UserString | UserList):
        return _general_hash(value.data, above)
    if isinstance(value, Mapping | ItemsView):
        items = value if isinstance(value, ItemsView) else value.items()
        return _unordered(
            _MAPPING, (mix(_general_hash(k, above), _general_hash(v, above)) for k, v in items)
        )
    if isinstance(value, Set):
        return _unordered(_SET, (_general_hash(item, above) for item in value))
    if isinstance(value, datetime.datetime | datetime.time):
        return _time_hash(value)
    if isinstance(value, datetime.timedelta):
        return _ordered(_SPAN, (value.days, value.seconds, value.microseconds), above)
    if isinstance(value, range) and _is_long(value):
        return _ordered(_RANGE, (value[0], value[-1], value.step), above)
    if isinstance(value, list | tuple | range | deque):
        return _ordered(_SEQUENCE, value, above)
    if _is_array(value):
        return _general_hash(value.tolist(), above)
    return _object_hash(value, above)


def _is_long(value: range) -> bool:
    """Return True for a range that is not to be walked through; its `len` may be no index."""
    return -((value.start - value.stop) // value.step) > _LONGEST_WALK


def _ordered(seed: int, items: Any, above: tuple[int, ...]) -> int:
    for item in items:
        seed = mix(seed, _general_hash(item, above))
    return seed


def _unordered(seed: int, hashes: Any) -> int:
    total = count = 0
    for one in hashes:
        total = (total + mix(seed, one)) & _MASK
        count += 1
    return mix(total, count)


def _time_hash(value: datetime.datetime | datetime.time) -> int:
    if value != value:  # a time that is none, of pandas
        return _NAN
    # Equal are the two times of a clock put back, which differ in `fold` only.
    offset = value.replace(fold=0).utcoffset()
    moment = datetime.timedelta(
        hours=value.hour,
        minutes=value.minute,
        seconds=value.second,
        microseconds=value.microsecond,
    ) - (offset or datetime.timedelta())
    if isinstance(value, datetime.datetime):
        moment += datetime.timedelta(days=value.toordinal() - 1)
    return mix(_TIME + (offset is not None), hash(moment.total_seconds()) & _MASK)


def _is_array(value: Any) -> bool:
    return type(value).__module__ in ("array", "numpy") and hasattr(value, "tolist")


def _object_hash(value: Any, above: tuple[int, ...]) -> int:
    cls: Any = type(value)
    if (key := getattr(cls, "__topo_key__", None)) is not None:
        return mix(_name_hash(cls), _general_hash(key(value), above))
    if isinstance(value, UUID):
        return mix(_OBJECT, hash(value.int) & _MASK)
    if isinstance(value, PurePath):
        text = str(value).lower() if isinstance(value, PureWindowsPath) else str(value)
        return mix(_OBJECT, _bytes_hash(text.encode("utf-8", "surrogatepass")))
    if isinstance(value, datetime.timezone):
        return mix(_OBJECT, _general_hash(value.utcoffset(None), above))
    if isinstance(value, enum.Enum):
        # A composite flag may have no name.
        return mix(_name_hash(cls), _general_hash(value.name or value.value, above))
    if isinstance(value, type) or _is_function(value):
        return mix(_OBJECT, _name_hash(value))
    _refuse_own_equality(cls)
    if dataclasses.is_dataclass(value) and cls.__eq__ is not object.__eq__:
        compared = [getattr(value, f.name) for f in dataclasses.fields(value) if f.compare]
        return _ordered(_name_hash(cls), compared, above)
    reducer = copyreg.dispatch_table.get(cls)
    made = reducer(value) if reducer is not None else value.__reduce_ex__(4)
    if isinstance(made, str):
        return mix(_OBJECT, _bytes_hash(made.encode()))
    seed = _name_hash(cls)
    for part in made[1:3]:
        seed = mix(seed, _general_hash(_plain(part), above))
    for part in made[3:5]:
        seed = mix(seed, _ordered(_SEQUENCE, part, above) if part is not None else 0)
    return seed


def _refuse_own_equality(cls: Any) -> None:
    equal = cls.__eq__
    if equal is object.__eq__:
        return
    code = getattr(equal, "__code__", None)
    if code is not None and code.co_filename.startswith("<"):  # made for a dataclass, or by attrs
        return
    package = cls.__module__.partition(".")[0]
    if package in sys.stdlib_module_names and package != "__main__":
        return
    raise EmitError(
        f"a {cls.__module__}.{cls.__qualname__} cannot be grouped by: its class has an __eq__ of "
        "its own, so that nobody knows which of them are to go to one task",
        hint="group by a plain value, such as its str or a tuple of its parts; or give it a method "
        "__topo_key__(self) that returns one",
    )


def _plain(part: Any) -> Any:
    """Drop the class from `copyreg.__newobj__`'s arguments, since `_name_hash` covers it."""
    if isinstance(part, tuple):
        return tuple(item for item in part if not isinstance(item, type))
    return part


def _is_function(value: Any) -> bool:
    return isinstance(value, Callable) and hasattr(value, "__qualname__")  # type: ignore[arg-type]


def _name_hash(thing: Any) -> int:
    return _bytes_hash(f"{thing.__module__}.{thing.__qualname__}".encode())
