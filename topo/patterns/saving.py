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
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

from topo.errors import CheckpointError
from topo.event_time import AFTER_ALL
from topo.patterns.chains import (
    EVENT,
    FIRST,
    NODE,
    NUMBER,
    ORDER,
    PARENT,
    POSITION,
    SAVED,
    SERIAL,
    START_TS,
    STATE,
    TIMED_OUT,
    TS,
    WRITTEN,
    Event,
    Node,
    Partial,
)
from topo.patterns.machine import Journal, Machine, WholeMatch
from topo.patterns.moves import State
from topo.storage.namespaces import SavedNamespaces
from topo.storage.saving import with_one_nan

T = TypeVar("T")

_STRETCHES = 8
"""A pattern's time is divided into so many stretches."""


_thing = dict.__getitem__


class _Records(dict[int, Any]):
    """Things by number, which are read as the records that are saved of them."""

    def __init__(self, record: Callable[[Any], Any]) -> None:
        super().__init__()
        self._record = record

    def __getitem__(self, number: int) -> Any:
        return self._record(_thing(self, number))


class _Kind(Generic[T]):
    """One kind of record, by stretch of time."""

    def __init__(self, name: str, owner: str, record: Callable[[T], Any]) -> None:
        self._saved = SavedNamespaces(name, owner)
        self._record = record
        self._stretches: dict[int, _Records] = {}
        self._both: dict[int, tuple[dict[int, T], list[int]]] = {}
        """By stretch, its things by number and the numbers of those that have changed."""
        self._open: list[int] = []

    def of(self, stretch: int) -> tuple[dict[int, T], list[int]]:
        """Return the things of a stretch by number, and the list of what changes.

        Who puts a thing there or takes it away adds its number, unless its record may stay until
        the stretch ends. Both are the same as long as the stretch lasts.
        """
        both = self._both.get(stretch)
        if both is None:
            both = self._both[stretch] = self._records_of(stretch), []
        return both

    def _records_of(self, stretch: int) -> _Records:
        records = self._stretches.get(stretch)
        if records is None:
            records = self._stretches[stretch] = _Records(self._record)
            heapq.heappush(self._open, stretch)
        return records

    def put(self, stretch: int, number: int, thing: T) -> None:
        """Note a thing that is new or has changed."""
        self._records_of(stretch)[number] = thing
        self._saved.touch(stretch, number)

    def delete(self, stretch: int, number: int) -> None:
        """Note that a thing is ended_partials."""
        records = self._stretches.get(stretch)
        if records is not None and records.pop(number, None) is not None:
            self._saved.touch(stretch, number)

    def forget(self, stretch: int, number: int) -> None:
        """Let go of a thing whose record goes with its stretch."""
        records = self._stretches.get(stretch)
        if records is not None:
            records.pop(number, None)

    def drop_before(self, stretch: int) -> list[int]:
        """Drop all stretches before one, and return them."""
        dropped = []
        while self._open and self._open[0] < stretch:
            first = heapq.heappop(self._open)
            del self._stretches[first]
            self._both.pop(first, None)
            self._saved.drop(first)
            dropped.append(first)
        return dropped

    def load(self, saved: Mapping[str, bytes]) -> list[tuple[int, int, Any]]:
        """Return the stretch, the number and the record of each thing, by number."""
        tables = self._saved.load(saved)
        for stretch in tables:
            self._stretches[stretch] = _Records(self._record)
        self._open = sorted(tables)
        rows = [(s, number, row) for s, table in tables.items() for number, row in table.items()]
        return sorted(rows, key=itemgetter(1))

    def adopt(self, stretch: int, number: int, thing: T) -> None:
        """Take a thing over that was loaded."""
        self._stretches[stretch][number] = thing

    def save(self, changes: Any) -> None:
        for stretch, (_, touched) in self._both.items():
            if touched:
                self._saved.touch_all(stretch, touched)
                touched.clear()
        self._saved.save(self._stretches, changes)


Waiting: TypeAlias = tuple[int, int, Event]
"""An event that waits for the watermark: its time, its number by arrival, and itself."""


def _waiting_record(waiting: Waiting) -> Any:
    ts, number, (_, key, mask, values, payload, component) = waiting
    return ts, number, key, values, payload, component, mask


def _taken_record(event: Event) -> Any:
    ts, key, mask, values, payload, component = event
    return ts, 0, key, values, payload, component, mask


def _waiting_of(row: Sequence[Any]) -> Waiting:
    ts, number, key, values, payload, component, mask = row
    return ts, number, (ts, with_one_nan(key), mask, values, payload, component)


def _node_record(node: Node) -> Any:
    parent = node[PARENT]
    return -1 if parent is None else parent[SERIAL], node[POSITION], node[ORDER]


def _whole_record(whole: WholeMatch) -> Any:
    return whole.node[SERIAL], whole.end, whole.order


class _Events:
    """The taken events of a stretch, and how many saved nodes have each."""

    __slots__ = ("events", "touched", "uses")

    def __init__(self, events: dict[int, Event], touched: list[int]) -> None:
        self.events = events
        self.touched = touched
        self.uses: dict[int, int] = {}


class _Start:
    """What is saved of all that began with one event."""

    __slots__ = ("chains", "first", "nodes", "partials", "records", "stretch")

    def __init__(
        self,
        stretch: int,
        partials: tuple[dict[int, Partial], list[int]],
        nodes: tuple[dict[int, Node], list[int]],
    ) -> None:
        self.stretch = stretch
        self.partials = partials
        """The partial matches of its stretch, as `_Kind` has them."""
        self.nodes = nodes
        """The nodes of its stretch, in the same way."""
        self.chains: list[Node] = []
        """Its own nodes, in the order of their numbers if they were loaded."""
        self.records = 0
        """How many partial and whole matches of it have records."""
        self.first: Partial | None = None
        """Its first partial match, while it is loaded."""


class SavedMatches(Journal):
    """The saved state of one task: the journal of its machine, and the events that wait."""

    def __init__(self, owner: str, pattern: str, within: int | None, waits: int) -> None:
        super().__init__()
        self._owner = owner
        self._pattern = pattern
        self._within = within
        """How long something may be open; None: for ever."""
        self._stretch = max(1, ((within or 0) + waits) // _STRETCHES)
        self._wait_stretch = max(self._stretch, 1_000)
        self._states: Sequence[State] = ()
        self._partials: _Kind[Partial] = _Kind("partials", owner, self._partial_record)
        self._wholes: _Kind[WholeMatch] = _Kind("wholes", owner, _whole_record)
        self._nodes: _Kind[Node] = _Kind("nodes", owner, _node_record)
        self._taken: _Kind[Event] = _Kind("taken", owner, _taken_record)
        self._events: dict[int, _Events] = {}
        self._waiting: _Kind[Waiting] = _Kind("waiting", owner, _waiting_record)
        self._head = SavedNamespaces("pattern", owner)
        self._heads: dict[str, Any] = {}
        self._commit = 0
        """The number of the commit, of this process."""

    def _stretch_of(self, ts: int) -> int:
        return 0 if self._within is None else ts // self._stretch

    def _partial_record(self, partial: Partial) -> Any:
        return partial[NODE][SERIAL], self._states[partial[STATE]]

    # -- events that wait ---------------------------------------------------------------------

    def wait(self, waiting: Waiting) -> None:
        """Note an event that waits for the watermark."""
        self._waiting.put(waiting[0] // self._wait_stretch, waiting[1], waiting)

    def matched(self, waiting: Waiting) -> None:
        """Note that an event waits no more."""
        self._waiting.forget(waiting[0] // self._wait_stretch, waiting[1])

    def pass_to(self, watermark: int) -> None:
        """Drop the stretches that are over at a watermark."""
        ended = watermark >= AFTER_ALL
        waiting = watermark if ended else (watermark + 1) // self._wait_stretch
        self._waiting.drop_before(waiting)
        if self._within is not None:
            stretch = watermark if ended else (watermark - self._within + 1) // self._stretch
            for kind in (self._partials, self._wholes, self._nodes):
                kind.drop_before(stretch)
            for dropped in self._taken.drop_before(stretch):
                self._events.pop(dropped, None)

    # -- a commit -----------------------------------------------------------------------------

    def save(self, head: Mapping[str, Any], states: Sequence[State], changes: Any) -> None:
        """Write what changed; `head` are the machine's counts, and `states` are by number."""
        self._states = states
        self._commit += 1
        ended = [*self._save_partials(), *self._save_wholes()]
        for first, is_over in ended:
            self._check_over(first, is_over)
        self.partials.clear()
        self.wholes.clear()
        for kind in (self._partials, self._wholes, self._nodes, self._taken, self._waiting):
            kind.save(changes)
        heads = {**head, "pattern": self._pattern, "node": head["number"] + 1}
        if heads != self._heads:
            self._heads = heads
            self._head.touch_all(0, heads)
        self._head.save({0: self._heads}, changes)

    def _save_partials(self) -> list[tuple[Partial, bool]]:
        """Write what became of partial matches: what came and went is never written.

        Return the first ones of starts that have less than before, and whether their time is over.
        """
        commit = self._commit
        ended_partials: list[Partial] = []
        for partial in self.partials:
            written = partial[WRITTEN]
            if partial[STATE] < 0:
                if written:
                    partial[WRITTEN] = 0
                    ended_partials.append(partial)
            elif written != commit:
                start = self._save_chain(partial[FIRST] or partial, partial[NODE])
                if not written:
                    start.records += 1
                partial[WRITTEN] = commit
                partials, touched = start.partials
                partials[partial[NUMBER]] = partial
                touched.append(partial[NUMBER])
        ended = []
        for partial in ended_partials:
            first, is_over = partial[FIRST] or partial, partial[STATE] == TIMED_OUT
            start = first[SAVED]
            start.records -= 1
            partials, touched = start.partials
            del partials[partial[NUMBER]]
            if not is_over:
                touched.append(partial[NUMBER])
            if not start.records:
                ended.append((first, is_over))
        return ended

    def _save_wholes(self) -> list[tuple[Partial, bool]]:
        """Write which whole matches wait, or no more; return as for partial ones."""
        ended = []
        for whole in self.wholes:
            if whole.waits:
                start = self._save_chain(whole.first, whole.node)
                if whole.note_written(True):
                    start.records += 1
                self._wholes.put(start.stretch, whole.number, whole)
            elif whole.note_written(False):
                start = whole.first[SAVED]
                start.records -= 1
                self._wholes.delete(start.stretch, whole.number)
                ended.append((whole.first, False))
        return ended

    def _save_chain(self, first: Partial, last: Node) -> _Start:
        """Save the nodes of a chain that are not; return what is saved of its start."""
        start: _Start | None = first[SAVED]
        if start is None:
            start = first[SAVED] = self._start_in(self._stretch_of(first[START_TS]))
        nodes, touched = start.nodes
        node: Node | None = last
        while node is not None and node[SERIAL] not in nodes:
            serial, event, order = node[SERIAL], node[EVENT], node[ORDER]
            nodes[serial] = node
            touched.append(serial)
            start.chains.append(node)
            events = self._events_of(self._stretch_of(event[TS]))
            if order in events.uses:
                events.uses[order] += 1
            else:
                events.uses[order] = 1
                events.events[order] = event
                events.touched.append(order)
            node = node[PARENT]
        return start

    def _start_in(self, stretch: int) -> _Start:
        return _Start(stretch, self._partials.of(stretch), self._nodes.of(stretch))

    def _events_of(self, stretch: int) -> _Events:
        """Return the taken events of a stretch."""
        events = self._events.get(stretch)
        if events is None:
            events = self._events[stretch] = _Events(*self._taken.of(stretch))
        return events

    def _check_over(self, first: Partial, is_over: bool) -> None:
        """Remove the nodes and events of a start of which nothing is left."""
        start: _Start | None = first[SAVED]
        if start is None or start.records:
            return
        first[SAVED] = None
        nodes, touched = start.nodes
        for node in start.chains:
            nodes.pop(node[SERIAL], None)
            if not is_over:
                touched.append(node[SERIAL])
            events, order = self._events.get(self._stretch_of(node[EVENT][TS])), node[ORDER]
            if events is None:
                continue  # its stretch has gone
            events.uses[order] -= 1
            if not events.uses[order]:
                del events.uses[order], events.events[order]
                if not is_over:
                    events.touched.append(order)

    # -- a restore ----------------------------------------------------------------------------

    def load(
        self, saved: Mapping[str, bytes], watermark: int | None, machine: Machine
    ) -> tuple[dict[str, Any], list[Waiting]]:
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
        self._commit = 1
        partials, wholes = self._partials.load(saved), self._wholes.load(saved)
        self._load_matches(partials, wholes, self._load_nodes(saved, now, machine), machine)
        machine.sort_again()
        self.partials.clear()
        self.wholes.clear()
        waiting = []
        for stretch, number, row in self._waiting.load(saved):
            entry = _waiting_of(row)
            if entry[0] > now:
                self._waiting.adopt(stretch, number, entry)
                waiting.append(entry)
        # Nodes had numbers of their own once.
        number = max(self._heads.get("number", 0), self._heads.get("node", 0))
        return {**self._heads, "number": number}, waiting

    def _load_nodes(
        self, saved: Mapping[str, bytes], now: int, machine: Machine
    ) -> dict[int, tuple[Node, _Start]]:
        events: dict[int, tuple[int, Event]] = {}
        for stretch, order, row in self._taken.load(saved):
            events[order] = stretch, _waiting_of(row)[2]
        rows = self._nodes.load(saved)
        loaded: dict[int, tuple[Node, _Start]] = {}
        starts: dict[int, _Start] = {}
        within = self._within
        for stretch, serial, (parent_serial, position, order) in rows:
            parent = loaded.get(parent_serial)
            if order not in events or (parent_serial >= 0 and parent is None):
                continue  # of a start that is over, whose stretch is not
            at, event = events[order]
            if parent is not None:
                start = parent[1]
            elif within is not None and event[TS] + within <= now:
                continue
            else:
                start = starts.setdefault(order, self._start_in(stretch))
            before = None if parent is None else parent[0]
            node = machine.node_again(before, event, order, position, serial)
            loaded[serial] = node, start
            start.chains.append(node)
            self._nodes.adopt(stretch, serial, node)
            saved_events = self._events_of(at)
            saved_events.events[order] = event
            saved_events.uses[order] = saved_events.uses.get(order, 0) + 1
        return loaded

    def _load_matches(
        self,
        partials: Sequence[tuple[int, int, Any]],
        wholes: Sequence[tuple[int, int, Any]],
        loaded: Mapping[int, tuple[Node, _Start]],
        machine: Machine,
    ) -> None:
        for stretch, number, (last, state) in partials:
            if last in loaded:
                node, start = loaded[last]
                partial = machine.open_again(number, node, state, start.first, start.chains[0])
                partial[WRITTEN] = 1
                if start.first is None:
                    start.first = partial
                    partial[SAVED] = start
                start.records += 1
                self._partials.adopt(stretch, number, partial)
        for stretch, number, (last, end, order) in wholes:
            if last in loaded:
                node, start = loaded[last]
                if start.first is None:
                    start.first = machine.ended_again(start.chains[0])
                    start.first[SAVED] = start
                whole = WholeMatch(number, node, start.first, end, order)
                whole.note_written(True)
                machine.keep_again(whole)
                start.records += 1
                self._wholes.adopt(stretch, number, whole)
