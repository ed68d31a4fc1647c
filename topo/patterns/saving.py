"""What is saved of a pattern's matches: by what a batch changed, dropped by stretches of time.

A partial match is a record of its state and of its last node; a node is saved once, when a batch
ends in which something alive has it, and so is its event. What began in one stretch of time is one
namespace: when the pattern's time is over for all of it, it goes as a whole, and what timed out
meanwhile needs no record. What ends in another way is deleted by its number; a start's nodes go
when nothing is left of it. Events that wait for the watermark lie by stretches of their own times.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from topo.errors import CheckpointError
from topo.event_time import AFTER_ALL
from topo.patterns.chains import Event, Node
from topo.patterns.machine import Machine, Partial, Start, Whole
from topo.storage.namespaces import SavedNamespaces
from topo.storage.saving import with_one_nan

T = TypeVar("T")

_STRETCHES = 8
"""A pattern's time is divided into so many stretches."""


class _Records(dict[int, Any]):
    """Things by number, which are read as the records that are saved of them."""

    def __init__(self, record: Callable[[Any], Any]) -> None:
        super().__init__()
        self._record = record

    def __getitem__(self, number: int) -> Any:
        return self._record(super().__getitem__(number))


class _Kind(Generic[T]):
    """One kind of record, by stretch of time."""

    def __init__(self, name: str, owner: str, record: Callable[[T], Any]) -> None:
        self._saved = SavedNamespaces(name, owner)
        self._record = record
        self._stretches: dict[int, _Records] = {}
        self._open: list[int] = []

    def put(self, stretch: int, number: int, thing: T) -> None:
        """Note a thing that is new or has changed."""
        records = self._stretches.get(stretch)
        if records is None:
            records = self._stretches[stretch] = _Records(self._record)
            heapq.heappush(self._open, stretch)
        records[number] = thing
        self._saved.touch(stretch, number)

    def delete(self, stretch: int, number: int) -> None:
        """Note that a thing is gone."""
        records = self._stretches.get(stretch)
        if records is not None and records.pop(number, None) is not None:
            self._saved.touch(stretch, number)

    def forget(self, stretch: int, number: int) -> None:
        """Let go of a thing whose record goes with its stretch."""
        records = self._stretches.get(stretch)
        if records is not None:
            records.pop(number, None)

    def drop_before(self, stretch: int) -> None:
        """Drop all stretches before one."""
        while self._open and self._open[0] < stretch:
            first = heapq.heappop(self._open)
            del self._stretches[first]
            self._saved.drop(first)

    def load(self, saved: Mapping[str, bytes]) -> list[tuple[int, int, Any]]:
        """Return the stretch, the number and the record of each thing, by number."""
        tables = self._saved.load(saved)
        for stretch in tables:
            self._stretches[stretch] = _Records(self._record)
        self._open = sorted(tables)
        rows = [(s, number, row) for s, table in tables.items() for number, row in table.items()]
        return sorted(rows, key=lambda row: row[1])

    def adopt(self, stretch: int, number: int, thing: T) -> None:
        """Take a thing over that was loaded."""
        self._stretches[stretch][number] = thing

    def save(self, changes: Any) -> None:
        self._saved.save(self._stretches, changes)


def _event_record(event: Event) -> Any:
    return (event.ts, event.number, event.key, event.values, event.payload, event.component,
            event.mask)  # fmt: skip


def _event_of(row: Sequence[Any]) -> Event:
    ts, number, key, *rest = row
    return Event(ts, number, with_one_nan(key), *rest)


def _node_record(node: Node) -> Any:
    parent = -1 if node.parent is None else node.parent.number
    return parent, node.position, node.event.order


def _partial_record(partial: Partial) -> Any:
    return partial.node.number, partial.bucket.state


def _whole_record(whole: Whole) -> Any:
    return whole.node.number, whole.end, whole.order


class SavedMatches:
    """The saved state of one task: the journal of its machine, and the events that wait."""

    def __init__(self, owner: str, pattern: str, within: int | None, waits: int) -> None:
        self._owner = owner
        self._pattern = pattern
        self._within = within
        """How long something may be open; None: for ever."""
        self._stretch = max(1, ((within or 0) + waits) // _STRETCHES)
        self._wait_stretch = max(self._stretch, 1_000)
        self._partials: _Kind[Partial] = _Kind("partials", owner, _partial_record)
        self._wholes: _Kind[Whole] = _Kind("wholes", owner, _whole_record)
        self._nodes: _Kind[Node] = _Kind("nodes", owner, _node_record)
        self._taken: _Kind[Event] = _Kind("taken", owner, _event_record)
        self._waiting: _Kind[Event] = _Kind("waiting", owner, _event_record)
        self._head = SavedNamespaces("pattern", owner)
        self._heads: dict[str, Any] = {}
        self.changed_partials: dict[int, Partial] = {}
        self._changed_wholes: dict[int, Whole] = {}
        """What has changed since the last commit: what came and went is never written."""
        self._next_node = 0

    def _stretch_of(self, ts: int) -> int:
        return 0 if self._within is None else ts // self._stretch

    # -- the machine's journal ----------------------------------------------------------------

    def whole(self, whole: Whole) -> None:
        self._changed_wholes[whole.number] = whole

    def timed_out(self, partial: Partial) -> None:
        self.changed_partials.pop(partial.number, None)
        self._partials.forget(self._stretch_of(partial.start.ts), partial.number)

    def over(self, start: Start, by_time: bool) -> None:
        remove_node = self._nodes.forget if by_time else self._nodes.delete
        remove_event = self._taken.forget if by_time else self._taken.delete
        stretch = self._stretch_of(start.ts)
        for node in start.take_nodes():
            remove_node(stretch, node.number)
            node.number_as(-1)
            event = node.event
            if event.note_use(-1):
                remove_event(self._stretch_of(event.ts), event.order)

    # -- events that wait ---------------------------------------------------------------------

    def wait(self, event: Event) -> None:
        """Note an event that waits for the watermark."""
        self._waiting.put(event.ts // self._wait_stretch, event.number, event)

    def matched(self, event: Event) -> None:
        """Note that an event waits no more."""
        self._waiting.forget(event.ts // self._wait_stretch, event.number)

    def pass_to(self, watermark: int) -> None:
        """Drop the stretches that are over at a watermark."""
        ended = watermark >= AFTER_ALL
        waiting = watermark if ended else (watermark + 1) // self._wait_stretch
        self._waiting.drop_before(waiting)
        if self._within is not None:
            stretch = watermark if ended else (watermark - self._within + 1) // self._stretch
            for kind in (self._partials, self._wholes, self._nodes, self._taken):
                kind.drop_before(stretch)

    # -- a commit -----------------------------------------------------------------------------

    def save(self, head: Mapping[str, Any], changes: Any) -> None:
        """Write what changed; `head` are the machine's counts."""
        for number, partial in self.changed_partials.items():
            start = partial.start
            if start.has(partial):
                self._save_chain(start, partial.node)
                self._partials.put(self._stretch_of(start.ts), number, partial)
            else:
                self._partials.delete(self._stretch_of(start.ts), number)
        for number, whole in self._changed_wholes.items():
            stretch = self._stretch_of(whole.start.ts)
            if whole.waits:
                self._save_chain(whole.start, whole.node)
                self._wholes.put(stretch, number, whole)
            else:
                self._wholes.delete(stretch, number)
        self.changed_partials.clear()
        self._changed_wholes.clear()
        for kind in (self._partials, self._wholes, self._nodes, self._taken, self._waiting):
            kind.save(changes)
        heads = {**head, "pattern": self._pattern, "node": self._next_node}
        if heads != self._heads:
            self._heads = heads
            self._head.touch_all(0, heads)
        self._head.save({0: self._heads}, changes)

    def _save_chain(self, start: Start, last: Node) -> None:
        """Save the nodes of a chain that are not."""
        nodes: list[Node] = []
        node: Node | None = last
        while node is not None and node.number < 0:
            nodes.append(node)
            node = node.parent
        for node in reversed(nodes):
            node.number_as(self._next_node)
            self._next_node += 1
            start.note_saved(node)
            event = node.event
            if event.note_use(1):
                self._taken.put(self._stretch_of(event.ts), event.order, event)
            self._nodes.put(self._stretch_of(start.ts), node.number, node)

    # -- a restore ----------------------------------------------------------------------------

    def load(
        self, saved: Mapping[str, bytes], watermark: int | None, machine: Machine
    ) -> tuple[dict[str, Any], list[Event]]:
        """Bring a machine to what was saved; return the counts, and the events that wait.

        What was over at the watermark is passed over; None: the time that was saved counts.
        """
        self._heads = self._head.load(saved).get(0, {})
        is_open = any(name.startswith(("partials:", "wholes:", "waiting:")) for name in saved)
        if is_open and self._heads.get("pattern", self._pattern) != self._pattern:
            raise CheckpointError(
                f"{self._owner}: the checkpoint has open matches of another pattern",
                hint="name the bolt differently, so that it begins anew, or take the old pattern",
            )
        now = self._heads.get("now", 0) if watermark is None else watermark
        self._next_node = self._heads.get("node", 0)
        nodes = self._load_nodes(saved, now, machine)
        self._load_matches(saved, nodes, machine)
        machine.sort_again()
        self._changed_wholes.clear()
        waiting = []
        for stretch, number, row in self._waiting.load(saved):
            event = _event_of(row)
            if event.ts > now:
                self._waiting.adopt(stretch, number, event)
                waiting.append(event)
        return dict(self._heads), waiting

    def _load_nodes(
        self, saved: Mapping[str, bytes], now: int, machine: Machine
    ) -> dict[int, tuple[Node, Start]]:
        events: dict[int, tuple[int, Event]] = {}
        for stretch, order, row in self._taken.load(saved):
            event = _event_of(row)
            event.place(order)
            events[order] = stretch, event
        nodes: dict[int, tuple[Node, Start]] = {}
        starts: dict[int, Start] = {}
        within = self._within
        for stretch, number, (parent_number, position, order) in self._nodes.load(saved):
            parent = nodes.get(parent_number)
            if order not in events or (parent_number >= 0 and parent is None):
                continue  # of a start that is over, whose stretch is not
            event = events[order][1]
            if parent is None and within is not None and event.ts + within <= now:
                continue
            start = starts.get(order) if parent is None else parent[1]
            if start is None:
                start = starts[order] = machine.start_again(event.key, event)
            node = machine.node_behind(None if parent is None else parent[0], event, position)
            node.number_as(number)
            start.note_saved(node)
            nodes[number] = node, start
            event.note_use(1)
            self._nodes.adopt(stretch, number, node)
            self._taken.adopt(events[order][0], order, event)
        return nodes

    def _load_matches(
        self, saved: Mapping[str, bytes], nodes: Mapping[int, tuple[Node, Start]], machine: Machine
    ) -> None:
        for stretch, number, (last, state) in self._partials.load(saved):
            if last in nodes:
                node, start = nodes[last]
                partial = machine.open_again(number, start, node, state)
                self._partials.adopt(stretch, number, partial)
        for stretch, number, (last, end, order) in self._wholes.load(saved):
            if last in nodes:
                node, start = nodes[last]
                whole = Whole(number, start, node, end, order)
                machine.keep_again(whole)
                self._wholes.adopt(stretch, number, whole)
