"""What was taken: chains of nodes that partial matches share, and matches read out of them.

A node is one event in one position, and knows the node before it; so all that began alike share
their beginning. What conditions ask of taken events (the last price of a part, its sum) is carried
along in `sums`, a tuple that each node computes from the one before, so that no condition walks it.

Events and nodes are tuples, and partial matches lists, with names for their places: to make an
object of a class takes five times as long, and an event of a pattern makes one or more. None of
them knows its bucket: what has ended is freed at once, not by the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from topo.conditions import Aggregate, PartField
from topo.traces import GENERATED

Event: TypeAlias = tuple[int, Any, int, tuple[Any, ...], Any, str]
"""An event, as far as it is kept, by these places."""

TS: Final = 0
KEY: Final = 1
MASK: Final = 2
"""Which of the conditions of one event hold."""
VALUES: Final = 3
"""The values that conditions ask for."""
PAYLOAD: Final = 4
"""The event as functions get it; None if none is called."""
COMPONENT: Final = 5

Node: TypeAlias = "tuple[Any, Event, int, int, tuple[Any, ...], int]"
"""One event that was taken, behind those that were taken before it, by these places."""

PARENT: Final = 0
"""The node before it; None if it is the first."""
EVENT: Final = 1
ORDER: Final = 2
"""The number of its event by time."""
POSITION: Final = 3
SUMS: Final = 4
SERIAL: Final = 5
"""Its own number, by which it is saved."""


def chain_of(node: Node) -> list[Node]:
    """Return the nodes from the first one to this."""
    nodes: list[Node] = []
    each: Node | None = node
    while each is not None:
        nodes.append(each)
        each = each[PARENT]
    nodes.reverse()
    return nodes


def path_of(node: Node) -> tuple[list[int], list[int]]:
    """Return the orders of the events that were taken, and then their positions."""
    chain = chain_of(node)
    return [each[ORDER] for each in chain], [each[POSITION] for each in chain]


Partial: TypeAlias = list[Any]
"""A match that is not whole yet, by these places."""

NODE: Final = 0
"""Its last node; None once it has ended."""
START: Final = 1
"""The order of its first event."""
START_TS: Final = 2
"""The time of its first event."""
STATE: Final = 3
"""The number of its state, which is that of its bucket; or `ENDED` or `TIMED_OUT`."""
NUMBER: Final = 4
"""Its number by its beginning, by which it is saved."""
FIRST: Final = 5
"""The first partial match that began with the same event; None: this is it."""
OF: Final = 6
"""The value of the key."""
BRANCHED: Final = 7
"""Of a first one: whether there were others of its start."""
WRITTEN: Final = 8
"""The commit that has written its record last; 0: it has none."""
SAVED: Final = 9
"""Of a first one: what is saved of its start; None: nothing."""

ENDED: Final = -1
"""The state of a partial match that has ended."""
TIMED_OUT: Final = -2
"""The state of one that has ended since the pattern's time was over."""


class Match(Mapping[str, list[Any]]):
    """What a pattern matched: its parts by name, each the list of its events, in order.

    A part that took nothing has an empty list. `start` is the time of the first event, `end` that
    of the result, both in the unit of the time field; `key` is the value of the key, or a tuple.
    """

    __slots__ = ("_events", "end", "key", "start")

    def __init__(self, events: dict[str, list[Any]], start: Any, end: Any, key: Any) -> None:
        self._events = events
        self.start = start
        self.end = end
        self.key = key

    def __getitem__(self, part: str) -> list[Any]:
        return self._events[part]

    def __iter__(self) -> Iterator[str]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Match) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self.start, self.end, tuple(self._events)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Match, (self._events, self.start, self.end, self.key)

    def __repr__(self) -> str:
        return f"<match {self.start} to {self.end}: {self._events!r}>"


Update: TypeAlias = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]


class Sums:
    """What nodes carry for conditions, by part: where it is, and how a taken event changes it."""

    def __init__(self, names: Sequence[str], fields: Sequence[str]) -> None:
        self._names = names
        self._fields = fields
        self._slots: dict[tuple[str, str, str | None], int] = {}

    def text(self, read: PartField | Aggregate) -> str:
        """Return the text of a read, of the sums `k`; what it needs is carried from now on."""
        if isinstance(read, PartField):
            return self._slot("first" if read.first else "last", read.part, read.field)
        part, function = read.part or "", read.function
        if function == "avg":
            count = self._slot("values", part, read.field)
            return f"({self._slot('sum', part, read.field)} / {count} if {count} else None)"
        slot = self._slot(function, part, read.field)
        return f"len({slot})" if function == "distinct" else slot

    def _slot(self, what: str, part: str, name: str | None) -> str:
        if what == "first":
            self._slot("count", part, None)
        place = self._slots.setdefault((what, part, name), len(self._slots))
        return f"k[{place}]"

    @property
    def first(self) -> tuple[Any, ...]:
        """What is carried before the first event."""
        zeros = {"count": 0, "sum": 0, "values": 0, "distinct": frozenset()}
        return tuple(zeros.get(what) for what, _, _ in self._slots)

    def updates(self) -> list[Update | None]:
        """Return, by part, the function of sums and an event's values; None: nothing changes."""
        return [self._update(name) for name in self._names]

    def _update(self, part: str) -> Update | None:
        if not any(of == part for _, of, _ in self._slots):
            return None
        texts = [
            self._changed(what, place, name) if of == part else f"k[{place}]"
            for (what, of, name), place in self._slots.items()
        ]
        namespace: dict[str, Any] = {"__builtins__": {}}
        text = f"def update(k, v):\n    return ({', '.join(texts)},)\n"
        exec(compile(text, GENERATED, "exec"), namespace)
        update: Update = namespace["update"]
        return update

    def _changed(self, what: str, place: int, name: str | None) -> str:
        k = f"k[{place}]"
        if what == "count":
            return f"{k} + 1"
        v = f"v[{self._fields.index(name or '')}]"
        if what == "last":
            return v
        if what == "first":
            return f"{k} if k[{self._count(place)}] else {v}"
        if what in ("min", "max"):
            sign = "<" if what == "min" else ">"
            return f"{v} if {k} is None or {v} is not None and {v} {sign} {k} else {k}"
        more = {"sum": f"{k} + {v}", "values": f"{k} + 1", "distinct": f"{k} | {{{v}}}"}
        return f"{k} if {v} is None else {more[what]}"

    def _count(self, place: int) -> int:
        """Return the place of the number of events of the same part."""
        part = next(of for (_, of, _), at in self._slots.items() if at == place)
        return self._slots["count", part, None]
