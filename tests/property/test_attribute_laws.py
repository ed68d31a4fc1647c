"""A restart and none agree on every shape of attribute, or an error names the attribute."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from tests.wiring import Fed
from topo import BasicBolt, StatefulBasicBolt, Tuple, UnsavableAttributeError
from topo.context import TopologyContext
from topo.state import KeyValueState


class Marked(int):
    """A scalar with attributes."""


@dataclasses.dataclass
class Record:
    items: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Slotted:
    items: list[Any] = dataclasses.field(default_factory=list)


class Locked:
    """Does not pickle."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.items: list[Any] = []


def marked() -> Marked:
    made = Marked(5)
    made.items = []  # type: ignore[attr-defined]
    return made


SHAPES: dict[str, Callable[[Any], Any]] = {
    "zero": lambda bolt: 0.0,
    "text": lambda bolt: "text",
    "list": lambda bolt: [],
    "dict": lambda bolt: {},
    "deque": lambda bolt: collections.deque(),
    "counter": lambda bolt: collections.Counter(),
    "tuple of list": lambda bolt: ([],),
    "record": lambda bolt: Record(),
    "slotted": lambda bolt: Slotted(),
    "marked": lambda bolt: marked(),
    "context": lambda bolt: bolt.context,
    "collector": lambda bolt: [bolt.collector],
    "state": lambda bolt: bolt.state,
    "self": lambda bolt: {"me": bolt},
    "method": lambda bolt: [bolt.put_into],
    "lambda": lambda bolt: [lambda: bolt.a],
    "count": lambda bolt: itertools.count(3),
    "locked": lambda bolt: Locked(),
    "queue": lambda bolt: queue.Queue(),
    "generator": lambda bolt: (n for n in range(100)),
}
OPAQUE = {"locked", "queue", "generator"}
NAMES = ("a", "b", "c", "slot")
KEY = "key"


class Shapes(StatefulBasicBolt):
    """Has attributes of the shapes it is told, and does to them what tuples say."""

    __slots__ = ("slot",)
    outputs = ("seen",)

    def __init__(self, shapes: dict[str, str], aliases: dict[str, str]) -> None:
        self.shapes, self.aliases = shapes, aliases

    def init_state(self, state: Any) -> None:
        for name, shape in self.shapes.items():
            setattr(self, name, SHAPES[shape](self))
        for name, other in self.aliases.items():
            setattr(self, name, getattr(self, other))

    def execute(self, tup: Tuple) -> None:
        what, name, other = tup.x[0]
        if what == "alias":
            setattr(self, name, getattr(self, other, None))
        elif what == "new":
            setattr(self, name, [])
        elif what == "negative":
            setattr(self, name, -0.0)
        elif what == "delete" and hasattr(self, name):
            delattr(self, name)
        elif what == "keyed":
            self.put_into(self.state.setdefault(KEY, []), tup.x[1])
        elif what == "nest":
            self.put_into(getattr(self, name, None), getattr(self, other, None))
        elif what == "write":
            self.put_into(getattr(self, name, None), tup.x[1])
        self.emit([Shown().of([getattr(self, n, "none") for n in NAMES] + [self.state])])

    def put_into(self, target: Any, value: Any) -> None:
        """Change the target in place, whatever it is."""
        if isinstance(target, tuple):
            target = target[0]
        if isinstance(target, KeyValueState):
            target["n"] = target.get("n", 0) + 1
        elif isinstance(target, dict):
            target[str(len(target))] = value
        elif isinstance(target, queue.Queue):
            target.put(1)
        elif hasattr(target, "__next__"):
            next(target)
        elif hasattr(target, "items"):
            target.items.append(value)
        elif hasattr(target, "append"):
            target.append(value)


class Shown:
    """The shape of a graph of objects, with identities."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.kept: list[Any] = []

    def of(self, value: Any) -> Any:
        if isinstance(value, float | str) or type(value) is int or value is None:
            return repr(value)
        if id(value) in self.numbers:
            return self.numbers[id(value)]
        self.kept.append(value)
        self.numbers[id(value)] = len(self.numbers)
        if isinstance(value, BasicBolt | TopologyContext):
            return type(value).__name__
        if isinstance(value, KeyValueState):
            return ["state", *((k, self.of(v)) for k, v in sorted(value.raw().items()))]
        if isinstance(value, itertools.count):
            return repr(value)
        if isinstance(value, dict):
            return [type(value).__name__, *((k, self.of(v)) for k, v in value.items())]
        if isinstance(value, list | tuple | collections.deque):
            return [type(value).__name__, *map(self.of, value)]
        items = getattr(value, "items", None)
        return [type(value).__name__, self.of(items) if isinstance(items, list) else ""]


@dataclasses.dataclass
class Ending:
    """The result of a run of tuples."""

    seen: list[Any]
    error: str = ""


def life(bolt: BasicBolt, operations: list[Any], restart_after: set[int]) -> Ending:
    fed = Fed(bolt)
    for number, operation in enumerate(operations):
        try:
            fed.feed((operation, number))
        except UnsavableAttributeError as error:
            return Ending([], str(error))
        if number in restart_after:
            fed.run.restart()
    return Ending(fed.out())


names = st.sampled_from(NAMES)
# Python 3.14 does not pickle them any more; topo then names the attribute.
PICKLED = sorted(SHAPES if sys.version_info < (3, 14) else SHAPES.keys() - {"count"})
shapes = st.dictionaries(names, st.sampled_from(PICKLED), min_size=1)
kinds = st.sampled_from(["alias", "new", "negative", "delete", "keyed", "nest", "write", "nothing"])


@pytest.mark.filterwarnings("ignore:.*support will be removed from itertools:DeprecationWarning")
@given(
    shapes=shapes,
    aliased=st.dictionaries(names, st.integers(0, 3), max_size=2),
    operations=st.lists(st.tuples(kinds, names, names), min_size=1, max_size=8),
    restart_after=st.sets(st.integers(0, 8), min_size=1),
)
@examples(150)
def test_a_restart_and_none_agree(
    shapes: dict[str, str], aliased: dict[str, int], operations: Any, restart_after: set[int]
) -> None:
    aliases = {name: sorted(shapes)[place % len(shapes)] for name, place in aliased.items()}
    without = life(Shapes(shapes, aliases), operations, set())
    restarted = life(Shapes(shapes, aliases), operations, restart_after)
    assert restarted == without
    if without.error:
        assert any(f"attribute {name!r}" in without.error for name in NAMES)
        # A Counter that holds itself has no pickle.
        known = ("are one object", "holds a collections.Counter")
        assert OPAQUE & set(shapes.values()) or any(text in without.error for text in known)
