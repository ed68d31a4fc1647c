"""The state machine of a pattern, without input and output: events in, matches out.

Partial matches of a key lie in *buckets* by state: the position, the edges that are open, whether
an event has come since the last taken one, and whether it waits to be whole. What an event does to
a bucket is the same for all that is in it, and is looked up by the event's mask in a table that
fills itself: a bucket that stays as it is costs one look-up, however many matches it holds. Only a
condition over what was taken is asked of each.

A bucket is a list of partial matches in the order of their starts, and a key is a dict of its
buckets by state. So what began first is in front: it leaves there when the pattern's time is over,
and a skip strategy cuts off what began too early. In a long list what has ended stays in front
until it is an eighth of it, so that the rest is not moved up for each; `_live` takes it away.

Events come in the order of time. Before each, what is over by then is dealt with, in the order of
its times: `pass_to`. With a skip strategy whole matches wait until nothing that began earlier is
open; an event's own matches are settled before the next event.

Most events do one of three things: they begin a partial match, they move one bucket on, or they
make all of one bucket whole. These have code of their own in `take`, without a call; `_step` is for
all else. Measured on three parts in a row, 1,000 keys, 30 % of the events in the pattern: 0.35 us
an event, where an object for each event, node, start and partial match took 1.0.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import ge, itemgetter
from typing import Any, TypeAlias

from topo.event_time import AFTER_ALL
from topo.patterns.chains import (
    BRANCHED,
    ENDED,
    EVENT,
    FIRST,
    KEY,
    NODE,
    NUMBER,
    OF,
    ORDER,
    POSITION,
    START,
    START_TS,
    STATE,
    SUMS,
    TIMED_OUT,
    TS,
    VALUES,
    Event,
    Node,
    Partial,
    Update,
    chain_of,
    path_of,
)
from topo.patterns.moves import BEGINNING, Asked, Move, Moves, Row, State
from topo.patterns.pattern import NONE, PAST_LAST, TO_FIRST, TO_LAST, TO_NEXT
from topo.patterns.positions import Positions

Arrival: TypeAlias = tuple[int, Any, int, tuple[Any, ...], Any, Any]
"""An event that has come: as an `Event`, but for what makes its payload."""

Key: TypeAlias = dict[int, list[Partial]]
"""What is open of one key: its buckets by state, none of which is without an open one."""

_START_OF = itemgetter(START)
_NUMBER_OF = itemgetter(NUMBER)
_AGE_OF = itemgetter(START_TS, START)
_SHORT = 512
"""So long a list is moved up at once when its first has ended."""
_SWEPT_AT = 10_000
_QUIET = -1
"""Stands for the gap after which a match that waits is whole."""


def _is_live(partial: Partial) -> bool:
    return bool(partial[STATE] >= 0)


def _live(bucket: list[Partial]) -> list[Partial]:
    """Return a bucket without those in front that have ended."""
    if bucket[0][STATE] < 0:
        del bucket[: bisect_left(bucket, True, key=_is_live)]
    return bucket


class WholeMatch:
    """A whole match that waits for what began earlier."""

    __slots__ = ("_is_written", "end", "first", "node", "number", "order", "waits")

    def __init__(self, number: int, node: Node, first: Partial, end: int, order: int) -> None:
        self.waits = False
        self._is_written = False
        self.number = number
        self.node = node
        self.first = first
        """The first partial match of its start."""
        self.end = end
        self.order = order
        """The event at which it became whole."""

    def note_written(self, is_written: bool) -> bool:
        """Note whether it has a record from now on; return True if that is new."""
        before, self._is_written = self._is_written, is_written
        return before != is_written

    @property
    def rank(self) -> tuple[Any, ...]:
        """Its place in the order in which matches come out."""
        return (self.first[START], self.order, *path_of(self.node), self.number)


class Result:
    """A match, or a partial one that timed out."""

    __slots__ = ("end", "is_match", "key", "node", "start")

    def __init__(self, key: Any, node: Node, start: int, end: int, is_match: bool) -> None:
        self.key = key
        self.node = node
        self.start = start
        self.end = end
        self.is_match = is_match


@dataclass(frozen=True)
class MatchRules:
    """What holds for all matches of a pattern; durations are in ticks."""

    within: int | None = None
    strategy: tuple[str, ...] = (NONE,)
    limit: int | None = None


class Journal:
    """What has changed since the last commit, for whoever saves it."""

    def __init__(self) -> None:
        self.partials: list[Partial] = []
        """The partial matches that are new, have moved or have ended, as it happened."""
        self.wholes: list[WholeMatch] = []
        """The whole matches that wait since, or no more."""


Reached: TypeAlias = tuple[Node, Partial, int]
"""A match that has become whole: its last node, the first partial match of its start, its end."""


class Machine:
    """All partial matches of one task."""

    def __init__(
        self,
        positions: Positions,
        questions: Sequence[Asked],
        updates: Sequence[Update | None],
        sums: tuple[Any, ...],
        rules: MatchRules,
        journal: Journal,
        event_of: Callable[[Arrival], Event] | None,
    ) -> None:
        self._positions = positions.positions
        self._names = positions.names
        self._moves = Moves(positions, questions)
        self._updates = [updates[position.part] for position in self._positions]
        """By position, how sums change."""
        self._begins = [
            state != ENDED and not position.is_last
            for position, state in zip(self._positions, self._moves.first_states, strict=True)
        ]
        self._begins.append(False)
        """By target, whether a partial match begins there and nothing else; not so without one."""
        self._sums = sums
        self._rules = rules
        self._limit = AFTER_ALL if rules.limit is None else rules.limit
        self._skips = rules.strategy[0] != NONE
        self._changed = journal.partials
        self._changed_wholes = journal.wholes
        self._event_of = event_of
        """Makes an event of an arrival; None: they are."""
        self._keys: dict[Any, Key] = {}
        """Those of which something is open."""
        self._wholes: dict[Any, list[tuple[tuple[Any, ...], WholeMatch]]] = {}
        """By key, the whole matches that wait, as a heap."""
        self._within = rules.within or 0
        self._aging: deque[Partial] = deque()
        """The first partial matches of starts that the pattern's time will end, by their times."""
        self._due: list[tuple[int, int, int, int, Partial]] = []
        """Gaps that end: (when, order of the start, number, gap, partial match)."""
        self._most_aging = self._most_due = _SWEPT_AT
        """With so many of them, those that have ended already are swept out."""
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
    def states(self) -> Sequence[State]:
        """The states of partial matches, by their numbers."""
        return self._moves.states

    @property
    def needs_every_event(self) -> bool:
        """True iff an event that fulfils no condition may change something."""
        return self._moves.needs_every_event

    # -- an event -----------------------------------------------------------------------------

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Take in events, each once what is over by its time has been dealt with.

        What is counted lies in local names, and in the machine whenever something is called.
        """
        keys, rows, fill, changed = self._keys, self._moves.rows, self._moves.fill, self._changed
        first_states, begins, event_of = self._moves.first_states, self._begins, self._event_of
        updates, no_sums, limit = self._updates, self._sums, self._limit
        aging, ages = self._aging, self._rules.within is not None
        has_times = self._moves.has_times
        order, number, count, looks = self.next_order - 1, self.next_number, self.count, self.looks
        soonest = self._soonest()
        for order, arrival in enumerate(arrivals, self.next_order):
            ts, value, mask, values, _, _ = arrival
            if ts >= soonest:
                while aging and aging[0][STATE] < 0 and not aging[0][BRANCHED]:
                    aging.popleft()
                soonest = self._soonest()
                if ts >= soonest:
                    self.next_order, self.next_number, self.count = order, number, count
                    self.pass_to(ts)
                    soonest, number, count = self._soonest(), self.next_number, self.count
            key = keys.get(value)
            try:
                row = rows[mask]
                beginning = row[BEGINNING]
            except KeyError:
                row = rows.setdefault(mask, {})
                beginning = fill(row, BEGINNING, mask)
            if key is None:
                if beginning is None:
                    continue
                acts = 0
            else:
                acts = 0
                looks += len(key)
                for state in key:
                    try:
                        move = row[state]
                    except KeyError:
                        move = fill(row, state, mask)
                    if move is not None:
                        acts += 1
                        acting, at = move, state
                if beginning is None:
                    if not acts:
                        continue
                    if acts == 1:
                        if acting.advance >= 0:
                            # All of one bucket continue with the event, as what they are.
                            event: Event = arrival if event_of is None else event_of(arrival)
                            target, after = acting.target, acting.advance
                            update = updates[target]
                            bucket = _live(key.pop(at))
                            looks += len(bucket)
                            for partial in bucket:
                                node = partial[NODE]
                                sums = node[SUMS] if update is None else update(node[SUMS], values)
                                number += 1
                                partial[NODE] = (node, event, order, target, sums, number)
                                partial[STATE] = after
                            changed += bucket
                            if after in key:
                                _merge(key[after], bucket)
                            else:
                                key[after] = bucket
                            continue
                        if acting.completes:
                            event = arrival if event_of is None else event_of(arrival)
                            self.next_number, self.count, self.looks = number, count, looks
                            self._complete(key, value, at, acting.target, event, order)
                            number, count, looks = self.next_number, self.count, self.looks
                            continue
            if not acts and beginning is not None and begins[beginning.target]:
                # A partial match begins.
                event = arrival if event_of is None else event_of(arrival)
                target = beginning.target
                state = first_states[target]
                number += 1
                count += 1
                update = updates[target]
                sums = no_sums if update is None else update(no_sums, values)
                node = (None, event, order, target, sums, number)
                partial = [node, order, ts, state, number, None, value, False, 0, None]
                changed.append(partial)
                if ages:
                    if not aging or ts < aging[-1][START_TS]:
                        self._age(partial)
                        soonest = self._soonest()
                    else:
                        aging.append(partial)
                if has_times[target]:
                    self._set_times(partial)
                    soonest = self._soonest()
                if key is None:
                    keys[value] = {state: [partial]}
                    continue
                if state in key:
                    key[state].append(partial)
                else:
                    key[state] = [partial]
                if count > limit:
                    self.count = count
                    self._drop_oldest(key, value)
                    count = self.count
                continue
            self.next_number, self.count, self.looks = number, count, looks
            self._step(key, value, row, arrival, order, beginning)
            soonest, number, count = self._soonest(), self.next_number, self.count
            looks = self.looks
        self.next_order, self.next_number, self.count = order + 1, number, count
        self.looks = looks

    def _step(
        self, key: Key | None, value: Any, row: Row, arrival: Arrival, order: int,
        beginning: Move | None,
    ) -> None:  # fmt: skip
        """Do what an event does to a key; nothing comes into a bucket until all were seen."""
        event: Event = arrival if self._event_of is None else self._event_of(arrival)
        if beginning is not None and beginning.asking:
            beginning = self._moves.answered(BEGINNING, event, None, beginning.asking)
        if key is None:
            if beginning is None or not beginning.targets:
                return
            key = self._keys[value] = {}
        step = _Step(event, order)
        for state, move in [(state, row[state]) for state in key]:
            if move is not None:
                self._meet(key, state, move, step)
        for node, first in step.fresh:
            self._branch(node, first, step)
        if beginning is not None and beginning.targets:
            self._begin(value, beginning.targets, step)
        for state, bucket in step.coming.items():
            if len(bucket) > 1:
                bucket.sort(key=_START_OF)
            _merge(key.setdefault(state, []), bucket)
        if step.reached or value in self._wholes:
            self._finish(key, value, step.reached, order)
        if self.count > self._limit:
            self._drop_oldest(key, value)
        if not key:
            self._keys.pop(value, None)

    def _meet(self, key: Key, state: int, move: Move, step: _Step) -> None:
        """Do what an event does to a bucket, but for what comes into others."""
        bucket = _live(key[state])
        self.looks += len(bucket)
        if move.asking:
            answered, asking, event = self._moves.answered, move.asking, step.event
            stay: list[Partial] = []
            for partial in bucket:
                own = answered(state, event, partial[NODE], asking)
                if own.targets or own.is_whole:
                    self._take_by(partial, own, step)
                if own.after == state:
                    stay.append(partial)
                else:
                    self._leave([partial], own.after, step)
            if stay:
                key[state] = stay
            else:
                del key[state]
            return
        if move.advance >= 0:
            del key[state]
            for partial in bucket:
                partial[NODE] = self._node(partial[NODE], step.event, step.order, move.target)
            self._leave(bucket, move.advance, step)
            return
        if move.targets or move.is_whole:
            for partial in bucket:
                self._take_by(partial, move, step)
        if move.after != state:
            del key[state]
            self._leave(bucket, move.after, step)

    def _complete(
        self, key: Key, value: Any, state: int, target: int, event: Event, order: int
    ) -> None:
        """Let all of a bucket be whole at a position where nothing more may follow."""
        bucket = _live(key.pop(state))
        self.looks += len(bucket)
        if self._skips and value not in self._wholes:
            partial = bucket[0]
            start = partial[START]
            if (len(bucket) == 1 or bucket[1][START] > start) and self._none_before(key, start):
                node = self._node(partial[NODE], event, order, target)
                bound = self._bound(node, start)
                if len(bucket) == 1 or bucket[-1][START] < bound:  # all but the first go
                    self._results.append(
                        Result(partial[OF], node, partial[START_TS], event[TS], True)
                    )
                    self._end(bucket)
                    if key:
                        self._skip(key, value, bound)
                    if not key:
                        del self._keys[value]
                    return
        ts = event[TS]
        reached = [
            (self._node(partial[NODE], event, order, target), partial[FIRST] or partial, ts)
            for partial in bucket
        ]
        self._end(bucket)
        self._finish(key, value, reached, order)
        if not key:
            self._keys.pop(value, None)

    def _take_by(self, partial: Partial, move: Move, step: _Step) -> None:
        first: Partial = partial[FIRST] or partial
        ts = step.event[TS]
        for target in move.targets:
            node = self._node(partial[NODE], step.event, step.order, target)
            if self._positions[target].is_last:
                step.reached.append((node, first, ts))
            if self._moves.first_states[target] != ENDED:
                step.fresh.append((node, first))
        if move.is_whole:
            step.reached.append((partial[NODE], first, ts))

    def _leave(self, bucket: list[Partial], after: int, step: _Step) -> None:
        """Bring what is in no bucket any more into another state, or end it."""
        if after == ENDED:
            self._end(bucket)
            return
        for partial in bucket:
            partial[STATE] = after
        self._changed += bucket
        step.coming.setdefault(after, []).extend(bucket)

    def _end(self, bucket: list[Partial], state: int = ENDED) -> None:
        """End what is in no bucket any more, or will be in none."""
        count = 0
        for partial in bucket:
            if partial[STATE] >= 0:
                partial[STATE], partial[NODE] = state, None
                count += 1
        self.count -= count
        self._changed += bucket

    def _node(self, parent: Node | None, event: Event, order: int, position: int) -> Node:
        """Return the node of an event that is taken."""
        sums: tuple[Any, ...] = self._sums if parent is None else parent[SUMS]
        update = self._updates[position]
        if update is not None:
            sums = update(sums, event[VALUES])
        self.next_number += 1
        return parent, event, order, position, sums, self.next_number

    def _begin(self, value: Any, targets: Sequence[int], step: _Step) -> None:
        """Begin with an event at some positions."""
        ts, first = step.event[TS], None
        last: list[Node] = []
        for target in targets:
            node = self._node(None, step.event, step.order, target)
            if self._positions[target].is_last:
                last.append(node)
            state = self._moves.first_states[target]
            if state != ENDED:
                self.next_number += 1
                opened = [node, step.order, ts, state, self.next_number, first, value, False, 0,
                          None]  # fmt: skip
                self._open(opened, step)
                first = first or opened
        if first is None:
            first = [None, step.order, ts, ENDED, 0, None, value, False, 0, None]
        elif self._rules.within is not None:
            self._age(first)
        step.reached += [(node, first, ts) for node in last]

    def _branch(self, node: Node, first: Partial, step: _Step) -> None:
        """Open a partial match where something may follow, of a start that has had others."""
        self.next_number += 1
        state = self._moves.first_states[node[POSITION]]
        self._open(
            [node, first[START], first[START_TS], state, self.next_number, first, first[OF], False,
             0, None], step,
        )  # fmt: skip

    def _open(self, partial: Partial, step: _Step) -> None:
        """Take a partial match in, whose bucket gets it with the step."""
        self.count += 1
        if partial[FIRST] is not None:
            partial[FIRST][BRANCHED] = True
        self._changed.append(partial)
        if self._moves.has_times[partial[NODE][POSITION]]:
            self._set_times(partial)
        step.coming.setdefault(partial[STATE], []).append(partial)

    def _set_times(self, partial: Partial) -> None:
        """Note when edges of a partial match close, and when nothing more may come."""
        ts, start, number = partial[NODE][EVENT][TS], partial[START], partial[NUMBER]
        for gap in self._moves.gaps_in(partial[STATE]):
            heapq.heappush(self._due, (ts + gap, start, number, gap, partial))
        position, _, _, waits = self._moves.states[partial[STATE]]
        quiet = self._positions[position].quiet
        if waits and quiet is not None:
            heapq.heappush(self._due, (ts + quiet, start, number, _QUIET, partial))

    def _age(self, first: Partial) -> None:
        """Note a start that the pattern's time will end; the clock of arrivals may go back."""
        aging = self._aging
        if aging and first[START_TS] < aging[-1][START_TS]:
            insort(aging, first, key=_AGE_OF)
        else:
            aging.append(first)

    # -- buckets ------------------------------------------------------------------------------

    def _earliest(self, key: Key) -> int:
        """Return the order of the earliest start that is open."""
        return min([int(_live(bucket)[0][START]) for bucket in key.values()])

    def _none_before(self, key: Key, start: int) -> bool:
        """Return True if nothing is open that began before a start."""
        return not key or self._earliest(key) >= start

    def _cut_out(self, key: Key, start: int) -> list[Partial]:
        """Take what began with an event out of its buckets, and return it; the caller ends it."""
        partials: list[Partial] = []
        for state in list(key):
            bucket = key[state]
            if bucket[-1][START] < start or bucket[0][START] > start:
                continue
            place = 0
            if bucket[0][START] < start:
                place = bisect_left(bucket, start, key=_START_OF)
            end, count = place, len(bucket)
            while end < count and bucket[end][START] == start:
                end += 1
            partials += bucket[place:end]
            if place and _is_live(bucket[place - 1]):  # it is younger by the clock of arrivals
                del bucket[place:end]
            elif end == count:
                del key[state]
            elif count <= _SHORT or 8 * end > count:
                del bucket[:end]
        if len(partials) > 1:
            partials.sort(key=_NUMBER_OF)
        return partials

    def _take_out(self, key: Key, partial: Partial) -> None:
        """Take a partial match out of its bucket."""
        bucket = _live(key[partial[STATE]])
        place = bisect_left(bucket, partial[START], key=_START_OF)
        while bucket[place] is not partial:
            place += 1
        del bucket[place]
        if not bucket:
            del key[partial[STATE]]

    def _drop_oldest(self, key: Key, value: Any) -> None:
        """End the oldest of a key that has too many."""
        if sum(map(len, key.values())) <= self._limit:
            return
        too_many = sum([len(_live(bucket)) for bucket in key.values()]) - self._limit
        for _ in range(too_many):
            start = self._earliest(key)
            began_then = [p for bucket in key.values() for p in _began_at(bucket, start)]
            oldest = min(began_then, key=_NUMBER_OF)
            self._take_out(key, oldest)
            self._end([oldest])
            self._dropped.append(value)
        if too_many > 0 and value in self._wholes:
            self._settle(key, value)
        if not key:
            self._keys.pop(value, None)

    # -- whole matches ------------------------------------------------------------------------

    def _finish(self, key: Key, value: Any, reached: list[Reached], order: int) -> None:
        """Deal with matches that became whole at one event."""
        if not self._skips:
            starts = [first[START] for _, first, _ in reached]
            if any(map(ge, starts, starts[1:])):  # paths are read only where starts are the same
                reached.sort(key=_rank)
            for node, first, end in reached:
                self._come_out(node, first, end)
            return
        if reached and value not in self._wholes:
            node, first, end = _first_of(reached)
            if self._none_before(key, first[START]):  # it need not wait
                bound = self._bound(node, first[START])
                if len(reached) == 1 or max([whole[1][START] for whole in reached]) < bound:
                    self._come_out(node, first, end)
                    self._skip(key, value, bound)
                    return
        for node, first, end in reached:
            self.next_number += 1
            self._keep(WholeMatch(self.next_number, node, first, end, order))
        self._settle(key, value)

    def _come_out(self, node: Node, first: Partial, end: int) -> None:
        self._results.append(Result(first[OF], node, first[START_TS], end, True))

    def _keep(self, whole: WholeMatch) -> None:
        whole.waits = True
        self.waiting += 1
        heapq.heappush(self._wholes.setdefault(whole.first[OF], []), (whole.rank, whole))
        self._changed_wholes.append(whole)

    def _let_go(self, whole: WholeMatch) -> None:
        whole.waits = False
        self.waiting -= 1
        self._changed_wholes.append(whole)

    def _settle(self, key: Key, value: Any) -> None:
        """Let whole matches come out as long as nothing that began earlier is open."""
        while value in self._wholes:
            wholes = self._wholes[value]
            whole = wholes[0][1]
            start = whole.first[START]
            if not self._none_before(key, start):
                return
            heapq.heappop(wholes)
            if not wholes:
                del self._wholes[value]
            self._come_out(whole.node, whole.first, whole.end)
            self._let_go(whole)
            self._skip(key, value, self._bound(whole.node, start))

    def _bound(self, node: Node, start: int) -> int:
        """Return the order of events before which nothing may have begun, after a match."""
        word, *names = self._rules.strategy
        if word == TO_NEXT:
            return start + 1
        if word == PAST_LAST:
            return node[ORDER] + 1
        assert word in (TO_FIRST, TO_LAST), "the words were looked at"
        part = self._names.index(names[0])
        chain = chain_of(node)
        orders = [each[ORDER] for each in chain if self._positions[each[POSITION]].part == part]
        bound = orders[0 if word == TO_FIRST else -1] if orders else 0
        return 0 if bound == start else bound

    def _skip(self, key: Key, value: Any, bound: int) -> None:
        """End what began before an event, and forget the matches that wait and did."""
        for state in list(key):
            bucket = key[state]
            if bucket[-1][START] < bound:
                del key[state]
                self._end(bucket)
            elif bucket[0][START] < bound:
                count = bisect_left(bucket, bound, key=_START_OF)
                self._end(bucket[:count])
                del bucket[:count]
        if value not in self._wholes:
            return
        wholes = self._wholes.pop(value)
        left = [entry for entry in wholes if entry[1].first[START] >= bound]
        if left:
            heapq.heapify(left)
            self._wholes[value] = left
        for _, whole in wholes:
            if whole.first[START] < bound:
                self._let_go(whole)

    # -- time ---------------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """Return when something is over by itself; None: nothing is."""
        times = [int(self._aging[0][START_TS]) + self._within] if self._aging else []
        if self._due:
            times.append(self._due[0][0])
        return min(times, default=None)

    def _soonest(self) -> int:
        soonest = self._aging[0][START_TS] + self._within if self._aging else AFTER_ALL
        return min(soonest, self._due[0][0]) if self._due else soonest

    def oldest(self) -> int | None:
        """Return the time of the earliest start that is open, of those that end by themselves."""
        return int(self._aging[0][START_TS]) if self._aging else None

    def pass_to(self, ts: int) -> None:
        """Deal with all that is over at a time, in the order in which it is."""
        aging, due, within = self._aging, self._due, self._within
        while True:
            first = aging[0] if aging and aging[0][START_TS] + within <= ts else None
            if due and due[0][0] <= ts:
                at, order, _, gap, partial = due[0]
                if first is None or (at, order) < (first[START_TS] + within, first[START]):
                    heapq.heappop(due)
                    if partial[STATE] >= 0:
                        self._end_gap(partial, gap, at)
                    continue
            if first is None:
                break
            aging.popleft()
            if first[STATE] >= 0 or first[BRANCHED]:
                self._end_start(first, first[START_TS] + within)
        if len(aging) > self._most_aging:
            branches = {
                partial[START]
                for key in self._keys.values()
                for bucket in key.values()
                for partial in bucket
                if partial[FIRST] is not None
            }
            still_aging = [
                first for first in aging if first[STATE] >= 0 or first[START] in branches
            ]
            aging.clear()
            aging.extend(still_aging)
            self._most_aging = 2 * len(aging) + _SWEPT_AT
        if len(due) > self._most_due:
            due[:] = [entry for entry in due if entry[4][STATE] >= 0]
            heapq.heapify(due)
            self._most_due = 2 * len(due) + _SWEPT_AT

    def _end_start(self, first: Partial, at: int) -> None:
        """End what began so long ago that it can take no event any more."""
        value = first[OF]
        key = self._keys.get(value)
        ended = [] if key is None else self._cut_out(key, first[START])
        if key is None or not ended:
            return
        self.expired += 1
        reached: list[Reached] = []
        for partial in ended:
            if self._moves.states[partial[STATE]][3]:
                reached.append((partial[NODE], first, at))
            else:
                self._time_out(partial, at)
        self._end(ended, TIMED_OUT)
        if reached or value in self._wholes:
            self._finish(key, value, reached, self.next_order)
        if not key:
            self._keys.pop(value, None)

    def _end_gap(self, partial: Partial, gap: int, at: int) -> None:
        """Close the edges whose time is over since the last taken event."""
        value = partial[OF]
        key = self._keys[value]
        number, is_open, is_fresh, waits = self._moves.states[partial[STATE]]
        reached: list[Reached] = []
        if gap == _QUIET:
            if not waits:
                return
            reached.append((partial[NODE], partial[FIRST] or partial, at))
            waits = False
        else:
            edges = enumerate(self._positions[number].edges)
            closed = sum(1 << n for n, edge in edges if edge.gap == gap)
            if not is_open & closed:
                return
            is_open &= ~closed
            if not is_open and not waits:
                self._time_out(partial, at)
        self._take_out(key, partial)
        if is_open or waits:
            state = partial[STATE] = self._moves.number_of((number, is_open, is_fresh, waits))
            self._changed.append(partial)
            _merge(key.setdefault(state, []), [partial])
        else:
            self._end([partial])
        if reached or value in self._wholes:
            self._finish(key, value, reached, self.next_order)
        if not key:
            self._keys.pop(value, None)

    def _time_out(self, partial: Partial, at: int) -> None:
        self._results.append(Result(partial[OF], partial[NODE], partial[START_TS], at, False))

    def end(self) -> None:
        """Deal with the end of all input: what waits is whole, and the rest ends."""
        self.pass_to(AFTER_ALL)
        for value, key in list(self._keys.items()):
            while key:
                ended = self._cut_out(key, self._earliest(key))
                reached: list[Reached] = [
                    (partial[NODE], partial[FIRST] or partial, partial[NODE][EVENT][TS])
                    for partial in ended
                    if self._moves.states[partial[STATE]][3]
                ]
                self._end(ended)
                self._finish(key, value, reached, self.next_order)
            self._keys.pop(value, None)

    # -- what was saved -----------------------------------------------------------------------

    def node_again(
        self, parent: Node | None, event: Event, order: int, position: int, serial: int
    ) -> Node:
        """Return the node of an event that was taken before."""
        _, _, _, _, sums, _ = self._node(parent, event, order, position)
        return parent, event, order, position, sums, serial

    def open_again(
        self, number: int, node: Node, state: State, first: Partial | None, root: Node
    ) -> Partial:
        """Take over a partial match; they come in the order of their numbers."""
        value, ts = root[EVENT][KEY], root[EVENT][TS]
        place = self._moves.number_of(state)
        partial = [node, root[ORDER], ts, place, number, first, value, False, 0, None]
        if first is not None:
            first[BRANCHED] = True
        elif self._rules.within is not None:
            self._aging.append(partial)
        self._keys.setdefault(value, {}).setdefault(place, []).append(partial)
        self.count += 1
        if self._moves.has_times[node[POSITION]]:
            self._set_times(partial)
        return partial

    def ended_again(self, root: Node) -> Partial:
        """Return what stands for the first partial match of a start that only has whole ones."""
        ts, value = root[EVENT][TS], root[EVENT][KEY]
        return [None, root[ORDER], ts, ENDED, 0, None, value, False, 0, None]

    def keep_again(self, whole: WholeMatch) -> None:
        """Take over a whole match that waits."""
        self._keep(whole)

    def sort_again(self) -> None:
        """Put all that was taken over into order."""
        for key in self._keys.values():
            for bucket in key.values():
                bucket.sort(key=_START_OF)
        self._aging = deque(sorted(self._aging, key=_AGE_OF))


class _Step:
    """What an event does to a key, as long as nothing comes into a bucket."""

    __slots__ = ("coming", "event", "fresh", "order", "reached")

    def __init__(self, event: Event, order: int) -> None:
        self.event = event
        self.order = order
        self.reached: list[Reached] = []
        self.fresh: list[tuple[Node, Partial]] = []
        """The nodes behind which something may follow, and the first of their starts."""
        self.coming: dict[int, list[Partial]] = {}
        """By state, what comes into it."""


def _merge(bucket: list[Partial], more: list[Partial]) -> None:
    """Add to a bucket what has come into it; both are in the order of their starts."""
    if not bucket or bucket[-1][START] <= more[0][START]:
        bucket += more
    elif 16 * len(more) < len(bucket):
        for partial in more:
            insort(bucket, partial, key=_START_OF)
    else:
        bucket += more
        bucket.sort(key=_START_OF)


def _began_at(bucket: list[Partial], start: int) -> Iterator[Partial]:
    """Yield the first of a bucket, if they are of a start."""
    return takewhile(lambda partial: partial[START] == start, bucket)


def _rank(reached: Reached) -> tuple[Any, ...]:
    node, first, _ = reached
    return (first[START], *path_of(node))


def _first_of(reached: Sequence[Reached]) -> Reached:
    """Return the match that comes out first; paths are read only where starts are the same."""
    if len(reached) == 1:
        return reached[0]
    start = min([first[START] for _, first, _ in reached])
    earliest = [whole for whole in reached if whole[1][START] == start]
    return earliest[0] if len(earliest) == 1 else min(earliest, key=_rank)
