"""The state machine of a pattern, without input and output: events in, matches out.

Partial matches of a key lie in *buckets* by state: the position, the edges that are open, whether
an event has come since the last taken one, and whether it waits to be whole. What an event does to
a bucket is the same for all that is in it, and is looked up by the event's mask in a table that
fills itself: a bucket that stays as it is costs one look-up, however many matches it holds. Only a
condition over what was taken is asked of each.

Events come in the order of time. Before each, what is over by then is dealt with, in the order of
its times: `pass_to`. With a skip strategy whole matches wait until nothing that began earlier is
open; an event's own matches are settled before the next event.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

from topo.event_time import AFTER_ALL
from topo.patterns.chains import Event, Node, Update
from topo.patterns.pattern import ANY, NONE, PAST_LAST, STRICT, TO_FIRST, TO_LAST, TO_NEXT
from topo.patterns.positions import Position, Positions

State: TypeAlias = "tuple[int, int, bool, bool]"
"""The position, the open edges as bits, whether no event has come since, whether it waits."""

Arrival: TypeAlias = tuple[int, Any, int, Any, Any, Any]
"""An event that has come: its time, its key, its mask, and what makes an `Event` of it."""

Ask: TypeAlias = Callable[[Event, "Node | None"], bool]


@dataclass(frozen=True)
class Asked:
    """How a question of the pattern is answered."""

    bit: int | None
    """The bit of an event's mask that must be set; None: none."""
    ask: Ask | None = None
    """What is asked of event and match then; None: nothing."""


@dataclass(frozen=True)
class Move:
    """What an event does to the partial matches of a state."""

    dies: bool
    """They end, with all their branches."""
    targets: tuple[int, ...]
    """The positions that take the event."""
    after: State | None
    """The state that they are in afterwards; None: they end."""
    is_whole: bool
    """They are matches, since nothing forbidden came next."""
    advance: State | None = None
    """The state in which they all continue with the event, and do nothing else."""


Moves: TypeAlias = "dict[int, Move | tuple[int, ...] | None]"
"""What an event does to a state, by its mask: nothing, a move, or the questions to ask first."""


class Start:
    """All that began with one event."""

    __slots__ = ("key", "nodes", "only", "order", "others", "ts", "wholes")

    def __init__(self, key: Key, event: Event) -> None:
        self.key = key
        self.ts = event.ts
        self.order = event.order
        self.only: Partial | None = None
        """Its partial match, if it has one: most never have more, and need no dict."""
        self.others: dict[int, Partial] | None = None
        """All of them by number, once it has had several."""
        self.wholes = 0
        self.nodes: list[Node] | None = None
        """Those that were saved."""

    @property
    def is_open(self) -> bool:
        """True iff it has partial matches."""
        return self.only is not None or bool(self.others)

    def has(self, partial: Partial) -> bool:
        """Return True if a partial match of it has not ended."""
        return self.only is partial or (self.others is not None and partial.number in self.others)

    def partials(self) -> list[Partial]:
        """Return its partial matches."""
        if self.others is not None:
            return list(self.others.values())
        return [] if self.only is None else [self.only]

    def first(self) -> Partial:
        """Return the oldest of its partial matches, of which it has one at least."""
        if self.others is not None:
            return next(iter(self.others.values()))
        assert self.only is not None
        return self.only

    def add(self, partial: Partial) -> None:
        """Take a partial match in."""
        others = self.others
        if others is not None:
            others[partial.number] = partial
        elif self.only is None:
            self.only = partial
        else:
            self.others = {self.only.number: self.only, partial.number: partial}
            self.only = None

    def remove(self, partial: Partial) -> None:
        """Let go of a partial match that has ended."""
        if self.others is None:
            self.only = None
        else:
            del self.others[partial.number]

    def sort(self) -> None:
        """Put its partial matches into the order of their numbers."""
        if self.others is not None:
            self.others = dict(sorted(self.others.items()))

    def note_saved(self, node: Node) -> None:
        """Note a node that was saved."""
        if self.nodes is None:
            self.nodes = []
        self.nodes.append(node)

    def take_nodes(self) -> list[Node]:
        """Return the nodes that were saved, which are not from now on."""
        nodes, self.nodes = self.nodes or [], None
        return nodes


class Bucket:
    """The partial matches of a key in one state."""

    __slots__ = ("moves", "partials", "state")

    def __init__(self, state: State, moves: Moves) -> None:
        self.state = state
        self.moves = moves
        self.partials: dict[int, Partial] = {}


class Partial:
    """A match that is not whole yet."""

    __slots__ = ("bucket", "node", "number", "start")

    def __init__(self, number: int, start: Start, node: Node, bucket: Bucket) -> None:
        self.number = number
        self.start = start
        self.node = node
        self.bucket = bucket


class Whole:
    """A whole match that waits for what began earlier."""

    __slots__ = ("end", "node", "number", "order", "start", "waits")

    def __init__(self, number: int, start: Start, node: Node, end: int, order: int) -> None:
        self.waits = False
        self.number = number
        self.start = start
        self.node = node
        self.end = end
        self.order = order
        """The event at which it became whole."""

    @property
    def rank(self) -> tuple[Any, ...]:
        """Its place in the order in which matches come out."""
        return (self.start.order, self.order, *path_of(self.node), self.number)


class Key:
    """What is open of one key."""

    __slots__ = ("buckets", "count", "starts", "value", "wholes")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.buckets: dict[State, Bucket] = {}
        self.starts: dict[int, Start] = {}
        """Those with partial matches, by the order of their events."""
        self.wholes: list[tuple[tuple[Any, ...], Whole]] = []
        self.count = 0
        """The number of partial matches."""


class Result:
    """A match, or a partial one that timed out."""

    __slots__ = ("end", "is_match", "key", "node", "start")

    def __init__(self, key: Any, node: Node, start: int, end: int, is_match: bool) -> None:
        self.key = key
        self.node = node
        self.start = start
        self.end = end
        self.is_match = is_match


class Journal(Protocol):
    """Whoever saves what changes."""

    @property
    def changed_partials(self) -> dict[int, Partial]:
        """The partial matches that are new, have moved or have ended, by number; to be added to."""

    def whole(self, whole: Whole) -> None:
        """Note a whole match that waits, or does no more."""

    def timed_out(self, partial: Partial) -> None:
        """Note a partial match that has ended since the pattern's time is over."""

    def over(self, start: Start, by_time: bool) -> None:
        """Note that nothing is left of a start; `by_time`: since the pattern's time is over."""


def path_of(node: Node) -> tuple[list[int], list[int]]:
    """Return the orders of the events that were taken, and then their positions."""
    chain = node.chain()
    return [each.event.order for each in chain], [each.position for each in chain]


class Reached:
    """A match that has become whole."""

    __slots__ = ("_event", "_node", "_position", "end", "start")

    def __init__(
        self, start: Start, node: Node | None, end: int, event: Event | None = None,
        position: int = -1,
    ) -> None:  # fmt: skip
        self.start = start
        self.end = end
        self._node = node
        """The last node; with an event, the one before it."""
        self._event = event
        self._position = position

    def node(self, node_of: Callable[[Node | None, Event, int], Node]) -> Node:
        """Return the last node, which is made if the match comes out, or has to wait."""
        if self._event is not None:
            self._node, self._event = node_of(self._node, self._event, self._position), None
        assert self._node is not None, "it was reached by an event or from a node"
        return self._node


@dataclass(frozen=True)
class Rules:
    """What holds for all matches of a pattern; durations are in ticks."""

    within: int | None = None
    strategy: tuple[str, ...] = (NONE,)
    limit: int | None = None


class _Step:
    """What one event does to one key, besides beginning anew."""

    __slots__ = ("ended", "fresh", "moving", "moving_buckets", "reached")

    def __init__(self) -> None:
        self.fresh: list[tuple[Start, Node]] = []
        self.reached: list[Reached] = []
        self.moving: list[tuple[Partial, State | None]] = []
        self.moving_buckets: list[tuple[Bucket, State | None]] = []
        self.ended: dict[Start, None] = {}


_MOST_MOVES = 100_000
"""The table of moves begins anew when it has more."""
_QUIET = -1
"""Stands for the gap after which a match that waits is whole."""


class Machine:
    """All partial matches of one task."""

    def __init__(
        self,
        positions: Positions,
        questions: Sequence[Asked],
        updates: Sequence[Update | None],
        sums: tuple[Any, ...],
        rules: Rules,
        journal: Journal,
        event_of: Callable[[Arrival, int], Event],
    ) -> None:
        self._positions = positions.positions
        self._names = positions.names
        self._questions = questions
        self._sums = sums
        self._rules = rules
        self._skips = rules.strategy[0] != NONE
        self._journal = journal
        self._changed = journal.changed_partials
        self._event_of = event_of
        self._keys: dict[Any, Key] = {}
        """Those of which something is open."""
        self._idle_masks: set[int] = set()
        """Masks of events that begin nothing, as far as known: they are nothing to other keys."""
        self._tables: dict[State, Moves] = {}
        self._table_size = 0
        self._answered_moves: dict[Any, Move] = {}
        self._within = rules.within or 0
        self._aging: deque[Start] = deque()
        """The starts that the pattern's time will end, by their times."""
        self._ended = 0  # of those, how many are over already
        self._due: list[tuple[int, int, int, int, Partial]] = []
        """Gaps that end: (when, order of the start, number, gap, partial match)."""
        self._start_state: State = (0, self._all_edges(self._positions[0]), False, False)
        self._start_moves = self._table_of(self._start_state)
        self._first_states = [self._first_state(position) for position in self._positions]
        self._final = {
            position.number
            for position, state in zip(self._positions, self._first_states, strict=True)
            if position.is_last and state is None
        }
        """Positions at which a match is whole, and ends."""
        self._position_updates = [updates[position.part] for position in self._positions]
        self._has_times = [
            position.quiet is not None or any(edge.gap is not None for edge in position.edges)
            for position in self._positions
        ]
        self._results: list[Result] = []
        self.count = 0
        """The number of partial matches of all keys."""
        self.waiting = 0
        """The number of whole matches that wait."""
        self._dropped: list[Any] = []
        self.looks = 0
        """How often a state, or a partial match by itself, was looked at: the work done."""
        self.expired = 0
        """How many starts the time has ended."""
        self.next_order = 0
        self.next_number = 0

    def take_results(self) -> list[Result]:
        """Return the results since the last call."""
        results, self._results = self._results, []
        return results

    def take_dropped(self) -> list[Any]:
        """Return the keys that had too many since then, once for each match that was dropped."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def resume(self, order: int, number: int) -> None:
        """Count events and matches on from where it was saved."""
        self.next_order, self.next_number = order, number

    @property
    def needs_every_event(self) -> bool:
        """True iff an event that fulfils no condition may change something."""
        later = self._positions[1:]
        strict = any(edge.way == STRICT for position in later for edge in position.edges)
        is_open = any(question.bit is None for question in self._questions)
        return is_open or strict or any(p.never_next or p.waits_for_next for p in later)

    # -- an event -----------------------------------------------------------------------------

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Take in events, each once what is over by its time has been dealt with.

        Those that change nothing are passed over, and need no object.
        """
        keys, idle_masks, start_moves = self._keys, self._idle_masks, self._start_moves
        aging, due, within, limit = self._aging, self._due, self._within, self._rules.limit
        looks = 0
        for arrival in arrivals:
            ts, key_value, mask, _, _, _ = arrival
            if mask in idle_masks and key_value not in keys:
                continue
            if (aging and aging[0].ts + within <= ts) or (due and due[0][0] <= ts):
                self.pass_to(ts)
            order = self.next_order
            self.next_order = order + 1
            key = keys.get(key_value)
            event: Event | None = None
            targets: tuple[int, ...] = ()
            try:
                start_move = start_moves[mask]
            except KeyError:
                start_move = self._move(self._start_state, mask)
            if start_move is not None:
                if isinstance(start_move, tuple):
                    event = self._event_of(arrival, order)
                    start_move = self._answered(self._start_state, event, None, start_move)
                targets = start_move.targets
            if key is None:
                if not targets:
                    continue
                key = keys[key_value] = Key(key_value)
            acting = None
            for bucket in key.buckets.values():
                try:
                    move = bucket.moves[mask]
                except KeyError:
                    move = self._move(bucket.state, mask)
                if move is not None:
                    if acting is None:
                        acting = []
                    acting.append((bucket, move))
            looks += len(key.buckets)
            if acting is None and not targets:
                continue
            if event is None:
                event = self._event_of(arrival, order)
            if acting is None:
                self._start(key, event, targets, None)
            else:
                step = _Step()
                for bucket, move in acting:
                    self._meet(bucket, move, event, step)
                self._do(key, step, event, targets)
            if limit is not None and key.count > limit:
                self._drop_oldest(key, limit)
            if not key.count:
                self._forget_if_empty(key)
        self.looks += looks

    def _do(self, key: Key, step: _Step, event: Event, targets: tuple[int, ...]) -> None:
        """Do what an event does, once all buckets were seen."""
        if step.moving_buckets or step.moving:
            self._move_on(key, step)
        for start, node in step.fresh:
            self._open(key, start, node)
        if targets:
            self._start(key, event, targets, step.reached)
        for start in step.ended:
            self._leave_out(start)  # not before: what it has taken now may have opened it again
        if step.reached or key.wholes:
            self._finish(key, step.reached, event.order)
        for start in step.ended:
            if start.nodes is not None:
                self._check_over(start)

    def _start(
        self, key: Key, event: Event, targets: tuple[int, ...], reached: list[Reached] | None
    ) -> None:
        """Begin with an event; without `reached`, nothing else is whole at it."""
        start = Start(key, event)
        if self._rules.within is not None:
            self._age(start)
        own = [] if reached is None else reached
        for target in targets:
            if self._positions[target].is_last:
                own.append(Reached(start, None, event.ts, event, target))
            if self._first_states[target] is not None:
                self._open(key, start, self._node(None, event, target))
        if own and reached is None:
            self._finish(key, own, event.order)

    def _age(self, start: Start) -> None:
        """Note a start that the pattern's time will end; the clock of arrivals may go back."""
        aging = self._aging
        if aging and (start.ts, start.order) < (aging[-1].ts, aging[-1].order):
            insort(aging, start, key=attrgetter("ts", "order"))
        else:
            aging.append(start)

    def _meet(
        self, bucket: Bucket, move: Move | tuple[int, ...], event: Event, step: _Step
    ) -> None:
        """See what an event does to a bucket; nothing moves until all buckets were seen."""
        state = bucket.state
        if isinstance(move, tuple):
            for partial in bucket.partials.values():
                self.looks += 1
                own = self._answered(state, event, partial.node, move)
                self._take_by(partial, own, event, step)
                if own.after != state:
                    step.moving.append((partial, own.after))
            return
        if move.advance is not None:
            target = move.targets[0]
            update = self._position_updates[target]
            self.looks += len(bucket.partials)
            for partial in bucket.partials.values():
                node = partial.node
                sums = node.sums if update is None else update(node.sums, event.values)
                partial.node = Node(node, event, target, sums)
            step.moving_buckets.append((bucket, move.advance))
            return
        if move.targets or move.is_whole:
            self.looks += len(bucket.partials)
            if not move.is_whole and len(move.targets) == 1 and move.targets[0] in self._final:
                ts, target, reached = event.ts, move.targets[0], step.reached
                for partial in bucket.partials.values():
                    reached.append(Reached(partial.start, partial.node, ts, event, target))
            else:
                for partial in bucket.partials.values():
                    self._take_by(partial, move, event, step)
        if move.after != state:
            step.moving_buckets.append((bucket, move.after))

    def _take_by(self, partial: Partial, move: Move, event: Event, step: _Step) -> None:
        start, node = partial.start, partial.node
        for target in move.targets:
            if self._positions[target].is_last:
                step.reached.append(Reached(start, node, event.ts, event, target))
            if self._first_states[target] is not None:
                step.fresh.append((start, self._node(node, event, target)))
        if move.is_whole:
            step.reached.append(Reached(start, node, event.ts))

    def _move_on(self, key: Key, step: _Step) -> None:
        """Bring what has moved into its states: all is taken out before anything is put in."""
        moving: list[tuple[Bucket | Partial, State]] = []
        for bucket, after in step.moving_buckets:
            if after is None:
                self._end_bucket(key, bucket, step)
            else:
                del key.buckets[bucket.state]
                moving.append((bucket, after))
        for partial, after in step.moving:
            if after is None:
                self._remove(partial)
                step.ended[partial.start] = None
            else:
                self._take_out(key, partial)
                moving.append((partial, after))
        for what, after in moving:
            if isinstance(what, Partial):
                self._put(key, what, after)
                self._changed[what.number] = what
                continue
            self._changed.update(what.partials)
            if after not in key.buckets:
                what.state = after  # nothing is there, so it is the bucket
                what.moves = self._table_of(after)
                key.buckets[after] = what
            else:
                for partial in what.partials.values():
                    self._put(key, partial, after)

    def _end_bucket(self, key: Key, bucket: Bucket, step: _Step) -> None:
        """End all partial matches of a bucket."""
        del key.buckets[bucket.state]
        ended = step.ended
        for partial in bucket.partials.values():
            start = partial.start
            start.remove(partial)
            ended[start] = None
        self._changed.update(bucket.partials)
        count = len(bucket.partials)
        key.count -= count
        self.count -= count
        bucket.partials.clear()  # they know the bucket: only the garbage collector would free them

    def _node(self, parent: Node | None, event: Event, position: int) -> Node:
        sums = self._sums if parent is None else parent.sums
        update = self._position_updates[position]
        return Node(parent, event, position, sums if update is None else update(sums, event.values))

    # -- the table of moves -------------------------------------------------------------------

    def _table_of(self, state: State) -> Moves:
        table = self._tables.get(state)
        if table is None:
            table = self._tables[state] = {}
        return table

    def _move(self, state: State, mask: int) -> Move | tuple[int, ...] | None:
        """Return what an event does to a state, and note it in the table."""
        asking = tuple(
            number
            for number in sorted(self._numbers_of(state))
            if self._questions[number].ask is not None and self._may_hold(number, mask)
        )
        move: Move | tuple[int, ...] | None = asking
        if not asking:
            own = self._resolved(state, lambda number: self._may_hold(number, mask))
            is_idle = own.after == state and not own.targets and not own.is_whole
            move = None if is_idle else self._with_advance(state, own)
            if state == self._start_state and not own.targets:
                self._idle_masks.add(mask)
        if self._table_size > _MOST_MOVES:
            for table in self._tables.values():
                table.clear()
            self._answered_moves.clear()
            self._table_size = 0
        self._table_of(state)[mask] = move
        self._table_size += 1
        return move

    def _with_advance(self, state: State, move: Move) -> Move:
        """Note in a move the state that all take over, if they do nothing else.

        They may then stay the objects that they are. Where something ends by itself after a while,
        each position has its own entries in the heap, so there they may not.
        """
        if move.after is not None or len(move.targets) != 1 or move.is_whole:
            return move
        [target] = move.targets
        after = self._first_states[target] if state != self._start_state else None
        if after is None or self._positions[target].is_last:
            return move
        if self._has_times[state[0]] or self._has_times[target]:
            return move
        return replace(move, advance=after)

    def _may_hold(self, number: int, mask: int) -> bool:
        bit = self._questions[number].bit
        return bit is None or bool(mask >> bit & 1)

    def _answered(
        self, state: State, event: Event, node: Node | None, asking: tuple[int, ...]
    ) -> Move:
        answers = 0
        for place, number in enumerate(asking):
            ask = self._questions[number].ask
            if ask is not None and ask(event, node):
                answers |= 1 << place
        known_move = self._answered_moves.get((state, event.mask, answers))
        if known_move is not None:
            return known_move
        holding = {number for place, number in enumerate(asking) if answers >> place & 1}
        asked_of = set(asking)

        def truth(number: int) -> bool:
            return number in holding if number in asked_of else self._may_hold(number, event.mask)

        move = self._answered_moves[state, event.mask, answers] = self._resolved(state, truth)
        self._table_size += 1
        return move

    def _numbers_of(self, state: State) -> set[int]:
        """Return the questions that decide what an event does to a state."""
        position = self._positions[state[0]]
        numbers = {*position.never, *(position.never_next if state[2] else ())}
        for number, edge in enumerate(position.edges):
            if state[1] >> number & 1:
                target = self._positions[edge.target]
                numbers |= {target.question, *edge.blocks, *edge.closes, *edge.siblings}
        return numbers

    def _resolved(self, state: State, holds: Callable[[int], bool]) -> Move:
        number, is_open, is_fresh, waits = state
        position = self._positions[number]
        forbidden = [*position.never, *(position.never_next if is_fresh else ())]
        if any(map(holds, forbidden)):
            return Move(True, (), None, False)
        edges = [(n, e) for n, e in enumerate(position.edges) if is_open >> n & 1]
        fulfils = {n: holds(self._positions[e.target].question) for n, e in edges}
        can = {n: fulfils[n] and not any(map(holds, e.blocks)) for n, e in edges}
        targets = []
        left = 0
        for n, edge in edges:
            is_guarded = any(can.get(guard, False) for guard in edge.guards)
            if can[n] and not is_guarded:
                targets.append(edge.target)
            if is_guarded or edge.way == STRICT or any(map(holds, edge.closes)):
                continue
            if edge.way == ANY or not (fulfils[n] or any(map(holds, edge.siblings))):
                left |= 1 << n
        is_whole = waits and position.waits_for_next
        after = (number, left, False, waits and not is_whole)
        return Move(False, tuple(targets), after if left or after[3] else None, is_whole)

    def _all_edges(self, position: Position) -> int:
        return (1 << len(position.edges)) - 1

    # -- partial matches ----------------------------------------------------------------------

    def _open(self, key: Key, start: Start, node: Node) -> None:
        """Begin a partial match at a node, where something may follow."""
        number = self.next_number = self.next_number + 1
        self._changed[number] = self._add(key, number, start, node)

    def _first_state(self, position: Position) -> State | None:
        """Return the state of what has just reached a position; None if nothing may follow."""
        waits = position.waits or position.waits_for_next
        if not position.edges and not waits:
            return None
        is_fresh = bool(position.never_next) or position.waits_for_next
        return position.number, self._all_edges(position), is_fresh, waits

    def _add(
        self, key: Key, number: int, start: Start, node: Node, state: State | None = None
    ) -> Partial:
        """Take a partial match in; without a state, it has just reached its node."""
        if state is None:
            state = self._first_states[node.position]
            assert state is not None, "something may follow"
        bucket = key.buckets.get(state)
        if bucket is None:
            bucket = key.buckets[state] = Bucket(state, self._table_of(state))
        partial = bucket.partials[number] = Partial(number, start, node, bucket)
        if start.only is None and start.others is None:
            start.only = partial
            key.starts[start.order] = start
        else:
            key.starts.setdefault(start.order, start)
            start.add(partial)
        key.count += 1
        self.count += 1
        if self._has_times[state[0]]:
            self._set_times(partial, state)
        return partial

    def _set_times(self, partial: Partial, state: State) -> None:
        """Note when edges of a partial match close, and when nothing more may come."""
        position, start, ts = self._positions[state[0]], partial.start, partial.node.event.ts
        gaps = {edge.gap for n, edge in enumerate(position.edges) if state[1] >> n & 1}
        for gap in gaps - {None}:
            assert gap is not None, "it was taken out"
            heapq.heappush(self._due, (ts + gap, start.order, partial.number, gap, partial))
        if state[3] and position.quiet is not None:
            at = ts + position.quiet
            heapq.heappush(self._due, (at, start.order, partial.number, _QUIET, partial))

    def _put(self, key: Key, partial: Partial, state: State) -> None:
        """Put a partial match that is in no bucket into one."""
        bucket = key.buckets.get(state)
        if bucket is None:
            bucket = key.buckets[state] = Bucket(state, self._table_of(state))
        bucket.partials[partial.number] = partial
        partial.bucket = bucket

    def _take_out(self, key: Key, partial: Partial) -> None:
        bucket = partial.bucket
        del bucket.partials[partial.number]
        if not bucket.partials:
            del key.buckets[bucket.state]

    def _remove(self, partial: Partial, by_time: bool = False) -> None:
        """End a partial match; somebody asks then whether its start is over."""
        start = partial.start
        key = start.key
        self._take_out(key, partial)
        start.remove(partial)
        key.count -= 1
        self.count -= 1
        if by_time:
            self._journal.timed_out(partial)
        else:
            self._changed[partial.number] = partial

    def _leave_out(self, start: Start) -> None:
        """Take a start out of its key's if nothing of it is open; it would come back last."""
        if not start.is_open and start.key.starts.pop(start.order, None) is not None:
            self._ended += 1

    def _check_over(self, start: Start, by_time: bool = False) -> None:
        """Tell the journal if nothing is left of a start."""
        self._leave_out(start)
        if start.nodes is not None and not start.is_open and not start.wholes:
            self._journal.over(start, by_time)

    def _forget_if_empty(self, key: Key) -> None:
        if not key.count and not key.wholes:
            self._keys.pop(key.value, None)

    def _drop_oldest(self, key: Key, limit: int) -> None:
        while key.count > limit:
            start = next(iter(key.starts.values()))
            self._remove(start.first())
            self._check_over(start)
            self._dropped.append(key.value)
        if self._skips:
            self._settle(key)

    # -- whole matches ------------------------------------------------------------------------

    def _finish(self, key: Key, reached: list[Reached], order: int) -> None:
        """Deal with matches that became whole at one event."""
        if not self._skips:
            if len(reached) > 1:
                reached = sorted(reached, key=self._rank)
            for whole in reached:
                self._come_out(key, whole.start, whole.node(self._node), whole.end)
            return
        if reached and not key.wholes:
            first = self._first_of(reached)
            start = first.start
            if not key.starts or next(iter(key.starts)) >= start.order:  # it need not wait
                node = first.node(self._node)
                bound = self._bound(start, node)
                if len(reached) == 1 or max([w.start.order for w in reached]) < bound:
                    self._come_out(key, start, node, first.end)
                    self._skip(key, bound)
                    return
        for whole in reached:
            self.next_number += 1
            node = whole.node(self._node)
            self._keep(key, Whole(self.next_number, whole.start, node, whole.end, order))
        self._settle(key)

    def _rank(self, whole: Reached) -> tuple[Any, ...]:
        return (whole.start.order, *path_of(whole.node(self._node)))

    def _first_of(self, reached: Sequence[Reached]) -> Reached:
        """Return the match that comes out first; paths are read only where starts are the same."""
        if len(reached) == 1:
            return reached[0]
        order = min([whole.start.order for whole in reached])
        earliest = [whole for whole in reached if whole.start.order == order]
        return earliest[0] if len(earliest) == 1 else min(earliest, key=self._rank)

    def _come_out(self, key: Key, start: Start, node: Node, end: int) -> None:
        self._results.append(Result(key.value, node, start.ts, end, True))

    def _keep(self, key: Key, whole: Whole) -> None:
        whole.waits = True
        whole.start.wholes += 1
        self.waiting += 1
        heapq.heappush(key.wholes, (whole.rank, whole))
        self._journal.whole(whole)

    def _let_go(self, whole: Whole) -> None:
        start = whole.start
        whole.waits = False
        start.wholes -= 1
        self.waiting -= 1
        self._journal.whole(whole)
        self._check_over(start)

    def _settle(self, key: Key) -> None:
        """Let whole matches come out as long as nothing that began earlier is open."""
        while key.wholes:
            whole = key.wholes[0][1]
            if key.starts and next(iter(key.starts)) < whole.start.order:
                return
            heapq.heappop(key.wholes)
            self._come_out(key, whole.start, whole.node, whole.end)
            self._let_go(whole)
            self._skip(key, self._bound(whole.start, whole.node))

    def _bound(self, start: Start, node: Node) -> int:
        """Return the order of events before which nothing may have begun, after a match."""
        word, *names = self._rules.strategy
        if word == TO_NEXT:
            return start.order + 1
        if word == PAST_LAST:
            return node.event.order + 1
        assert word in (TO_FIRST, TO_LAST), "the words were looked at"
        part = self._names.index(names[0])
        chain = node.chain()
        orders = [n.event.order for n in chain if self._positions[n.position].part == part]
        bound = orders[0 if word == TO_FIRST else -1] if orders else 0
        return 0 if bound == start.order else bound

    def _skip(self, key: Key, bound: int) -> None:
        while key.starts:
            start = next(iter(key.starts.values()))
            if start.order >= bound:
                break
            for partial in start.partials():
                self._remove(partial)
            self._check_over(start)
        skipped = [whole for _, whole in key.wholes if whole.start.order < bound]
        if skipped:
            key.wholes = [entry for entry in key.wholes if entry[1].start.order >= bound]
            heapq.heapify(key.wholes)
            for whole in skipped:
                self._let_go(whole)

    # -- time ---------------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """Return when something is over by itself; None: nothing is."""
        times = [self._aging[0].ts + self._within] if self._aging else []
        if self._due:
            times.append(self._due[0][0])
        return min(times, default=None)

    def oldest(self) -> int | None:
        """Return the time of the earliest start that is open, of those that end by themselves."""
        return self._aging[0].ts if self._aging else None

    def pass_to(self, ts: int) -> None:
        """Deal with all that is over at a time, in the order in which it is."""
        aging, due, within = self._aging, self._due, self._within
        while True:
            start = aging[0] if aging and aging[0].ts + within <= ts else None
            if due and due[0][0] <= ts:
                at, order, _, gap, partial = due[0]
                if start is None or (at, order) < (start.ts + within, start.order):
                    heapq.heappop(due)
                    if partial.start.has(partial):
                        self._end_gap(partial, gap, at)
                    continue
            if start is None:
                break
            aging.popleft()
            self._end_start(start, start.ts + within)
        if self._ended > 1_000 + max(len(aging), len(due)) // 2:
            still_open = [start for start in aging if start.is_open]
            aging.clear()
            aging.extend(still_open)
            due[:] = [entry for entry in due if entry[4].start.has(entry[4])]
            heapq.heapify(due)
            self._ended = 0

    def _end_start(self, start: Start, at: int) -> None:
        """End what began so long ago that it can take no event any more."""
        if not start.is_open:
            return
        self.expired += 1
        key = start.key
        reached = []
        for partial in start.partials():
            if partial.bucket.state[3]:
                reached.append(Reached(start, partial.node, at))
            else:
                self._time_out(partial, at)
            self._remove(partial, by_time=True)
        self._leave_out(start)
        self._finish(key, reached, self.next_order)
        self._settle(key)
        self._check_over(start, by_time=True)
        self._forget_if_empty(key)

    def _end_gap(self, partial: Partial, gap: int, at: int) -> None:
        """Close the edges whose time is over since the last taken event."""
        key, (number, is_open, is_fresh, waits) = partial.start.key, partial.bucket.state
        position = self._positions[number]
        if gap == _QUIET:
            if not waits:
                return
            reached = [Reached(partial.start, partial.node, at)]
            self._change(partial, (number, is_open, is_fresh, False))
            self._finish(key, reached, self.next_order)
        else:
            closed = sum(1 << n for n, edge in enumerate(position.edges) if edge.gap == gap)
            if not is_open & closed:
                return
            state = (number, is_open & ~closed, is_fresh, waits)
            if not state[1] and not waits:
                self._time_out(partial, at)
            self._change(partial, state)
        self._settle(key)
        self._forget_if_empty(key)

    def _change(self, partial: Partial, state: State) -> None:
        if not state[1] and not state[3]:
            self._remove(partial)
            self._check_over(partial.start)
            return
        self._take_out(partial.start.key, partial)
        self._put(partial.start.key, partial, state)
        self._changed[partial.number] = partial

    def _time_out(self, partial: Partial, at: int) -> None:
        start = partial.start
        self._results.append(Result(start.key.value, partial.node, start.ts, at, False))

    def end(self) -> None:
        """Deal with the end of all input: what waits is whole, and the rest ends."""
        self.pass_to(AFTER_ALL)
        for key in list(self._keys.values()):
            for start in list(key.starts.values()):
                reached = []
                for partial in start.partials():
                    if partial.bucket.state[3]:
                        reached.append(Reached(start, partial.node, partial.node.event.ts))
                    self._remove(partial)
                self._leave_out(start)
                self._finish(key, reached, self.next_order)
                self._check_over(start)
            self._settle(key)
            self._forget_if_empty(key)

    # -- what was saved -----------------------------------------------------------------------

    def node_behind(self, parent: Node | None, event: Event, position: int) -> Node:
        """Return the node of an event that was taken before."""
        return self._node(parent, event, position)

    def start_again(self, key_value: Any, event: Event) -> Start:
        """Return the start of an event that was saved."""
        key = self._keys.get(key_value)
        if key is None:
            key = self._keys[key_value] = Key(key_value)
        start = Start(key, event)
        if self._rules.within is not None:
            self._age(start)
        return start

    def open_again(self, number: int, start: Start, node: Node, state: State) -> Partial:
        """Take over a partial match; they come in the order of their numbers."""
        return self._add(start.key, number, start, node, state)

    def keep_again(self, whole: Whole) -> None:
        """Take over a whole match that waits."""
        self._keep(whole.start.key, whole)

    def sort_again(self) -> None:
        """Put the starts into order, when all is taken over."""
        for key in self._keys.values():
            key.starts = dict(sorted(key.starts.items()))
            for start in key.starts.values():
                start.sort()
