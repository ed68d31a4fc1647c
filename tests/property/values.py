"""Values that users emit: any that pickle, and for each one equal ones of other types."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import pickle
import sys
import uuid
from collections import OrderedDict, UserList, UserString, deque, namedtuple
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from topo.routing.hashing import stable_hash


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    y: Any
    note: str = dataclasses.field(default="", compare=False)


class NamedPoint(Point):
    """A dataclass by inheritance."""


class Plain:
    """Taken apart as pickle would."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]

    def __topo_key__(self) -> Any:
        return self.value

    def __repr__(self) -> str:
        return f"Plain({self.value!r})"


class Text(str):
    __slots__ = ()


class Listing(list[Any]):
    pass


Pair = namedtuple("Pair", "first second")

ZONES = [datetime.UTC, ZoneInfo("Asia/Kathmandu"), ZoneInfo("America/New_York")]

any_text = st.text(st.characters(exclude_categories=()))  # with NUL and lone surrogates

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 3),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    any_text,
    st.binary(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.sampled_from([*Colour, *Level, Rights.READ, Rights.READ | Rights.WRITE, Rights(0)]),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.datetimes(),
    st.datetimes(
        datetime.datetime(1990, 1, 1),
        datetime.datetime(2040, 1, 1),
        timezones=st.sampled_from(ZONES),
    ),
    st.uuids(),
    st.builds(pathlib.PosixPath, st.text("ab/", max_size=4)),
    st.timedeltas(datetime.timedelta(hours=-23), datetime.timedelta(hours=23)).map(
        datetime.timezone
    ),
)


def keys(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=3),
        st.builds(Point, inner, inner, any_text),
        st.builds(NamedPoint, inner, inner, any_text),
    )


hashables = st.recursive(scalars, keys, max_leaves=5)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(hashables, inner, max_size=4),
        st.sets(hashables, max_size=4),
        st.builds(Point, inner, inner, any_text),
        st.builds(Plain, inner),
        st.builds(deque, st.lists(inner, max_size=3)),
    )


values = st.recursive(st.one_of(scalars, hashables), containers, max_leaves=10)


def described(value: Any) -> str:
    """A text that tells values apart which are equal but not the same, such as 1 and True."""
    name = type(value).__name__
    if isinstance(value, set | frozenset):
        return f"{name}{sorted(map(described, value))}"
    if isinstance(value, dict):
        return f"{name}{[(described(key), described(part)) for key, part in value.items()]}"
    if isinstance(value, list | tuple | deque):
        return f"{name}{list(map(described, value))}"
    if isinstance(value, Point):
        return f"{name}{described([value.x, value.y, value.note])}"
    return f"{name} {described(value.value)}" if isinstance(value, Plain) else repr(value)


@st.composite
def equal_values(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two values that are equal, and often of different types."""
    value = draw(values)
    return value, _reshaped(draw, value, may_be_unhashable=True)


def _reshaped(draw: st.DrawFn, value: Any, may_be_unhashable: bool) -> Any:
    def again(part: Any) -> Any:
        return _reshaped(draw, part, may_be_unhashable)

    def hashable(part: Any) -> Any:
        return _reshaped(draw, part, may_be_unhashable=False)

    options: list[Any] = [value]
    if isinstance(value, enum.Flag | Colour):
        pass
    elif isinstance(value, int | float | decimal.Decimal | fractions.Fraction):
        options += _equal_numbers(value)
    elif isinstance(value, str):
        options += [Text(value), UserString(value)]
    elif isinstance(value, uuid.UUID):
        options.append(uuid.UUID(str(value), is_safe=uuid.SafeUUID.safe))
    elif isinstance(value, pathlib.PurePath):
        options.append(pathlib.PurePosixPath(value))
    elif isinstance(value, datetime.timezone):
        options.append(datetime.timezone(value.utcoffset(None), "named"))
    elif isinstance(value, bytes):
        options += [bytes(bytearray(value))] + ([bytearray(value)] if may_be_unhashable else [])
    elif isinstance(value, datetime.datetime) and value.tzinfo is not None:
        moved = [value.astimezone(zone) for zone in ZONES]
        moved.append(value.replace(fold=1 - value.fold))
        options += [other for other in moved if other == value]  # not where clocks were put back
    elif isinstance(value, Point):
        options = [type(value)(again(value.x), again(value.y), draw(any_text))]
    elif isinstance(value, Plain):
        options = [Plain(again(value.value))]
    elif isinstance(value, deque):
        options = [deque(map(again, value)), deque(map(again, value), maxlen=50)]
    elif isinstance(value, list):
        options = [list(map(again, value)), Listing(map(again, value)), UserList(map(again, value))]
    elif isinstance(value, tuple):
        options = [tuple(map(again, value)), Pair(*map(again, value))]
    elif isinstance(value, set | frozenset):
        other = list(map(hashable, reversed(list(value))))
        options = [frozenset(other)] + ([set(other)] if may_be_unhashable else [])
    elif isinstance(value, dict):
        items = [(hashable(key), again(part)) for key, part in reversed(value.items())]
        options = [dict(items), OrderedDict(items)]
    return draw(st.sampled_from(options))


def _equal_numbers(value: Any) -> list[Any]:
    found: list[Any] = []
    for kind in (int, float, bool, complex, decimal.Decimal, fractions.Fraction):
        try:
            other = kind(value)
            equal = other == value
        except (TypeError, ValueError, OverflowError):
            continue
        if equal:
            found.append(other)
    return found


def serve() -> None:
    """A process that is given pickles and answers with the hashes of their values."""
    while header := sys.stdin.buffer.read(4):
        value = pickle.loads(sys.stdin.buffer.read(int.from_bytes(header, "big")))
        sys.stdout.buffer.write(stable_hash(value).to_bytes(8, "big"))
        sys.stdout.buffer.flush()
