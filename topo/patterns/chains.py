"""What was taken: chains of nodes that partial matches share, and matches read out of them.

A node is one event in one position, and knows the node before it; so all that began alike share
their beginning. What conditions ask of taken events (the last price of a part, its sum) is carried
along in `sums`, a tuple that each node computes from the one before, so that no condition walks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from topo.conditions import Aggregate, PartField
from topo.traces import GENERATED

NOT_MATCHED = -1
"""The place in time of an event that waits."""


class Event:
    """An event, as far as it is kept."""

    __slots__ = ("component", "key", "mask", "number", "order", "payload", "ts", "uses", "values")

    def __init__(
        self, ts: int, number: int, key: Any, values: tuple[Any, ...], payload: Any,
        component: str, mask: int, order: int = NOT_MATCHED,
    ) -> None:  # fmt: skip
        self.ts = ts
        self.number = number
        """Its number by arrival, of those that have waited."""
        self.order = order
        """Its number by time, once it is matched."""
        self.key = key
        self.values = values
        """The values that conditions ask for."""
        self.payload = payload
        """The event as functions get it; None if none is called."""
        self.component = component
        self.mask = mask
        """Which of the conditions of one event hold."""
        self.uses = 0
        """How many saved nodes have it."""

    def place(self, order: int) -> None:
        """Give it its number by time."""
        self.order = order

    def note_use(self, by: int) -> bool:
        """Count the saved nodes that have it; return True if it has had none, or has none now."""
        before = self.uses
        self.uses += by
        return not before or not self.uses


class Node:
    """One event that was taken, behind those that were taken before it."""

    __slots__ = ("event", "number", "parent", "position", "sums")

    def __init__(
        self, parent: Node | None, event: Event, position: int, sums: tuple[Any, ...]
    ) -> None:
        self.parent = parent
        self.event = event
        self.position = position
        self.sums = sums
        self.number = -1
        """Its number among the saved ones."""

    def number_as(self, number: int) -> None:
        """Note the number under which it is saved; -1: under none."""
        self.number = number

    def chain(self) -> list[Node]:
        """Return the nodes from the first one to this."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes


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
