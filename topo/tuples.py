"""Fields and tuples: the data that flows through a topology.

A tuple class is made once for every (component, stream, task) that tuples come from: the fields are
slots and the origin is a class attribute, so that making a tuple and reading a field cost the
minimum that Python allows. Two ways were tried and dropped: subclasses of `tuple` (as fast, but
`"%s" % tup` unpacks them) and a generic object with a list (a field read costs three times as
much).

The tuple's place in its tuple tree is `_topo_link`, an int: its index among the inputs being
processed, or one of the negative constants below.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NoReturn, overload

from topo.errors import (
    ConfigError,
    UnknownFieldAttribute,
    UnknownFieldIndex,
    UnknownFieldKey,
    did_you_mean,
)

UNTRACKED = -1  # belongs to no tuple tree, or comes from a test
SETTLED = -2  # acked or failed
HELD = -3  # kept beyond the execute that got it; `_topo_held` knows its place in the tree
BASIC = -4  # input of a basic bolt, which is settled for it
COPIED = -5  # a copy that came through a pickle, of a tuple that is settled by itself

DEFAULT_STREAM = "default"
TICK_STREAM = "__tick"
SYSTEM_COMPONENT = "__system"


class Fields(Sequence[str]):
    """An ordered set of field names; a str is one name."""

    __slots__ = ("_names",)

    def __init__(self, *names: str | Iterable[str]) -> None:
        flat: list[str] = []
        for name in names:
            flat.extend([name] if isinstance(name, str) else name)
        for name in flat:
            if not isinstance(name, str):
                raise ConfigError(f"a field name is a str; got {name!r}")
        doubled = sorted({name for name in flat if flat.count(name) > 1})
        if doubled:
            raise ConfigError(
                f"duplicate field {', '.join(map(repr, doubled))} in {flat}",
                hint="every field of a stream needs a name of its own",
            )
        self._names = tuple(flat)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self._names[index]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Fields):
            return self._names == other._names
        if isinstance(other, tuple | list):
            return self._names == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._names)

    def select(self, selector: str | Iterable[str], values: Sequence[Any]) -> list[Any]:
        """Return those of `values`, given for all fields, that belong to the selected fields."""
        places = {name: place for place, name in enumerate(self._names)}
        chosen = Fields(selector)
        for name in chosen:
            if name not in places:
                hint = did_you_mean(name, self._names)
                raise UnknownFieldKey(f"no field {name!r} in {self!r}", hint=hint)
        return [values[places[name]] for name in chosen]

    def __repr__(self) -> str:
        return f"Fields({', '.join(map(repr, self._names))})"


@dataclass(frozen=True)
class Source:
    """The origin of tuples: component, stream, task and fields."""

    component: str
    stream: str
    task: int
    fields: tuple[str, ...]


class Held:
    """The place in the tuple tree of a tuple that its bolt holds.

    `roots` and `edges` are pairs; `children` is the XOR of the edges of all tuples anchored to the
    tuple so far. Only the tuple itself refers to this strongly, so a tuple that its bolt has
    dropped disappears here too.
    """

    __slots__ = ("__weakref__", "children", "edges", "key", "roots", "since")

    def __init__(
        self, key: int, roots: tuple[int, ...], edges: tuple[int, ...], children: int, since: float
    ) -> None:
        self.key = key
        self.roots = roots
        self.edges = edges
        self.children = children
        self.since = since


class HeldTuples:
    """The held tuples of one task, by key; a restored tuple finds its place through them."""

    def __init__(self) -> None:
        self.by_key: weakref.WeakValueDictionary[int, Held] = weakref.WeakValueDictionary()
        # A tuple held in keyed state and in an attribute is in two pickles, but is one tuple.
        self._restored: dict[int, Tuple] = {}

    def add(self, held: Held) -> None:
        self.by_key[held.key] = held

    def find(self, key: int) -> Held | None:
        return self.by_key.get(key)

    def __enter__(self) -> HeldTuples:
        _restoring.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _restoring.set(None)
        self._restored.clear()

    @classmethod
    def is_restoring(cls) -> bool:
        return _restoring.get() is not None

    @classmethod
    def of_this_restore(cls, key: int, source: Source, values: list[Any]) -> Tuple | None:
        """Return the held tuple with this key, if its task is being restored."""
        restoring = _restoring.get()
        held = restoring.find(key) if restoring is not None else None
        if restoring is None or held is None:
            return None
        tup = restoring._restored.get(key)
        if tup is None:
            tup = restoring._restored[key] = new_tuple(source, values, HELD)
            tup._topo_held = held
        return tup


_restoring: ContextVar[HeldTuples | None] = ContextVar("_restoring", default=None)
"""Those of the task that is being restored in this thread; others run other topologies."""


class Tuple:
    """One tuple: its values by field name, attribute or position.

    Equality and hash are by identity: two tuples with equal values in a set stay two.
    """

    __slots__ = ("_topo_held", "_topo_link")

    _topo_link: int
    _topo_held: Held
    _topo_source: Source
    _topo_getters: Mapping[object, Callable[[Tuple], Any]]

    source_component: str
    source_stream: str
    source_task: int
    fields: Fields
    is_tick: bool

    @property
    def values(self) -> list[Any]:
        return [get(self) for get in self._value_getters()]

    def _value_getters(self) -> Iterable[Callable[[Tuple], Any]]:
        getters = self._topo_getters
        return (getters[index] for index in range(len(self.fields)))

    def __getitem__(self, key: str | int | slice) -> Any:
        try:
            return self._topo_getters[key](self)
        except (KeyError, TypeError):
            if isinstance(key, slice):
                return self.values[key]
            self._unknown(key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"'Tuple' object has no attribute {name!r}")
        raise UnknownFieldAttribute(*self._no_field(name), at=self._origin())

    def get(self, name: str, default: Any = None) -> Any:
        getter = self._topo_getters.get(name)
        return default if getter is None else getter(self)

    def select(self, fields: str | Iterable[str], *more: str) -> list[Any]:
        """Return the values of these fields, in this order."""
        return [self[name] for name in Fields(fields, *more)]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def __repr__(self) -> str:
        values = ", ".join(f"{n}={v!r}" for n, v in zip(self.fields, self.values, strict=True))
        return f"<Tuple of {self._origin()}: {values}>"

    def __copy__(self) -> Tuple:
        return self

    def __deepcopy__(self, memo: object) -> Tuple:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        link = self._topo_link
        key = self._topo_held.key if link == HELD else None
        return (_restore, (self._topo_source, self.values, link, key))

    def _origin(self) -> str:
        text = f"{self.source_component!r}"
        if self.source_stream != DEFAULT_STREAM:
            text += f" stream {self.source_stream!r}"
        return f"{text} task {self.source_task}"

    def _no_field(self, name: object) -> tuple[str]:
        known = ", ".join(map(repr, self.fields)) or "none"
        text = f"no field {name!r} in a tuple of {self.source_component!r}; its fields are {known}"
        if isinstance(name, str) and (hint := did_you_mean(name, self.fields)):
            text += f"; {hint}"
        return (text,)

    def _unknown(self, key: object) -> NoReturn:
        if isinstance(key, str):
            raise UnknownFieldKey(*self._no_field(key), at=self._origin())
        if isinstance(key, int):
            raise UnknownFieldIndex(
                f"no position {key} in a tuple of {len(self)} values "
                f"({', '.join(map(repr, self.fields))})",
                at=self._origin(),
            )
        raise TypeError(f"a tuple is read by name, position or slice, not by {key!r}")


# A field of one of these names is read by tup["name"] only.
RESERVED_FIELD_NAMES = frozenset(
    name for name in vars(Tuple) | Tuple.__annotations__ if not name.startswith("_")
)


# Attribute by attribute, which takes half the time of calls of the class.
_MANY = """
def many(cls, rows, link, new=object.__new__):
    made = []
    keep = made.append
    for ({values},) in rows:
        t = new(cls); {fill}; t._topo_link = link
        keep(t)
    return made
"""


@lru_cache(maxsize=65536)
def tuple_class(source: Source, basic: bool = False) -> type[Tuple]:
    """Return the class of the tuples from `source`; its arguments are the values, then the link.

    `basic` makes the class for inputs of basic bolts, which take no link.
    """
    slots = [f"_topo_{index}" for index in range(len(source.fields))]
    arguments = slots if basic else [*slots, "_topo_link"]
    body = "\n".join(f"    self.{name} = {name}" for name in arguments) or "    pass"
    code = f"def __init__({', '.join(['self', *arguments])}):\n{body}\n"
    code += f"def values(self):\n    return [{', '.join(f'self.{name}' for name in slots)}]\n"
    if slots and not basic:
        fill = "; ".join(f"t.{name} = {name}" for name in slots)
        code += _MANY.format(values=", ".join(slots), fill=fill)
    made: dict[str, Any] = {}
    exec(code, made)
    namespace: dict[str, Any] = {
        "__slots__": tuple(slots),
        "__init__": made["__init__"],
        "__module__": __name__,
        "__qualname__": "Tuple",
        "values": property(made["values"]),
        "source_component": source.component,
        "source_stream": source.stream,
        "source_task": source.task,
        "fields": Fields(*source.fields),
        "is_tick": source.component == SYSTEM_COMPONENT and source.stream == TICK_STREAM,
        "_topo_source": source,
    }
    if basic:
        namespace["_topo_link"] = BASIC
    elif slots:
        namespace["_topo_many"] = classmethod(made["many"])
    cls: type[Tuple] = type("Tuple", (Tuple,), namespace)
    getters: dict[object, Callable[[Tuple], Any]] = {}
    for index, (name, slot) in enumerate(zip(source.fields, slots, strict=True)):
        getter = attrgetter(slot)
        getters[name] = getters[index] = getters[index - len(slots)] = getter
        if name not in RESERVED_FIELD_NAMES and not name.startswith(("__", "_topo_")):
            setattr(cls, name, cls.__dict__[slot])
    cls._topo_getters = getters
    return cls


def new_tuple(source: Source, values: Iterable[Any], link: int = UNTRACKED) -> Tuple:
    """Make one tuple, for places where tuples come singly."""
    make: Callable[..., Tuple] = tuple_class(source)
    return make(*values, link)


def make_tuples(source: Source, columns: Sequence[Sequence[Any]], count: int) -> list[Tuple]:
    """Make untracked tuples of columns."""
    cls: Any = tuple_class(source)
    if not columns:
        return [cls(UNTRACKED) for _ in range(count)]
    made: list[Tuple] = cls._topo_many(zip(*columns, strict=True), UNTRACKED)
    return made


def _restore(source: Source, values: list[Any], link: int, key: int | None) -> Tuple:
    if link == BASIC:
        make: Callable[..., Tuple] = tuple_class(source, basic=True)
        return make(*values)
    kept = HeldTuples.of_this_restore(key, source, values) if key is not None else None
    if kept is not None:
        return kept
    if HeldTuples.is_restoring() or link in (UNTRACKED, SETTLED):
        return new_tuple(source, values, SETTLED if link == SETTLED else UNTRACKED)
    return new_tuple(source, values, COPIED)


def tick_source() -> Source:
    return Source(SYSTEM_COMPONENT, TICK_STREAM, -1, ("rate_secs",))
