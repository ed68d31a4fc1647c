"""The work of one task of a pattern: events wait for the watermark, and are matched in order.

In event time an event waits until the watermark reaches its time; those it has reached are matched
in the batch, in the order of their times, equal ones as they came. By arrival they are matched as
they come, and the time is the batch's clock. Inputs are acked when they are in, since what is open
is saved with the batch; results belong to no tuple tree.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress, repeat
from operator import itemgetter, length_hint
from typing import Any, NamedTuple, TypeAlias

from topo.errors import PatternError, shown
from topo.event_time import AFTER_ALL, BEFORE_ALL, EventTime
from topo.operators.time import OperatorTime
from topo.patterns.chains import EVENT, KEY, PAYLOAD, POSITION, TS, Event, Match, Node, chain_of
from topo.patterns.inputs import TupleInput
from topo.patterns.machine import Arrival, Machine, MatchRules, Result
from topo.patterns.positions import Positions
from topo.patterns.questions import Masks, Questions, masks_of
from topo.patterns.saving import SavedMatches, Waiting
from topo.timed import Clock, Operator, OperatorTask, Rows, is_in_time

RowOf: TypeAlias = Callable[[Result], Sequence[Any]]


class _Source(NamedTuple):
    """Where arrivals come from, if functions get events: rows of a component."""

    component: str
    payload: Callable[[int], Any]
    """The event at a place as functions get it."""


def _event_of(arrival: Arrival) -> Event:
    """Return an arrival with its payload; few arrivals need one. What has waited has it."""
    ts, key, mask, values, place, source = arrival
    if not isinstance(source, _Source):
        return arrival
    return ts, key, mask, values, source.payload(place), source.component


_TS = itemgetter(TS)

FIGURES = ("partial_matches", "waiting_events", "waiting_matches")
COUNTS = ("matches", "timed_out", "dropped")


class Views:
    """Makes matches of chains of nodes."""

    def __init__(self, positions: Positions, time: EventTime) -> None:
        self._names = positions.names
        self._parts = [position.part for position in positions.positions]
        self._time = time

    def view(self, node: Node | None, key: Any, end: int | None = None) -> Match:
        """Return what was taken so far; `end` is the time of the result, if it is one."""
        events: list[list[Any]] = [[] for _ in self._names]
        nodes = [] if node is None else chain_of(node)
        for each in nodes:
            events[self._parts[each[POSITION]]].append(each[EVENT][PAYLOAD])
        first = self._time.shown(nodes[0][EVENT][TS]) if nodes else None
        if end is None and nodes:
            end = nodes[-1][EVENT][TS]
        last = None if end is None else self._time.shown(end)
        return Match(dict(zip(self._names, events, strict=True)), first, last, key)


class PatternOperator(Operator):
    """One task of a pattern."""

    def __init__(
        self,
        task: OperatorTask,
        name: str,
        positions: Positions,
        questions: Questions,
        reads: TupleInput,
        clock: OperatorTime,
        rules: MatchRules,
        row_of: Mapping[str, RowOf],
        *,
        keeps_events: bool,
        lag: int,
    ) -> None:
        self._task = task
        self._name = name
        self._questions = questions
        self._reads = reads
        self._clock = clock
        self._time = clock.unit
        self._by_arrival = clock.by_arrival
        self._row_of = row_of
        self._keeps_events = keeps_events
        self._limit = rules.limit
        text = "\n".join(positions.shown())
        self._saved = SavedMatches(task.owner, text, rules.within, lag)
        sums = questions.sums
        self._machine = Machine(
            positions, questions.asked, sums.updates(), sums.first, rules, self._saved,
            _event_of if keeps_events else None,
        )  # fmt: skip
        self._passes_over = not self._machine.needs_every_event
        self._masks: dict[str, tuple[tuple[str, ...], Masks]] = {}
        self._fresh: list[Arrival] = []
        self._waiting: list[Waiting] = []
        self._arrivals = 0
        self._watermark = BEFORE_ALL
        self._now = 0
        self._is_busy = False
        self._has_warned = False

    # -- a batch ------------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        if rows.times is None and not self._by_arrival:
            return
        times = self._clock.times(rows, self._task.now())
        arrivals = self._arrived(rows, times)
        if self._by_arrival:
            self._is_busy = True
            self._match(list(arrivals))
        else:
            self._fresh += arrivals

    def _arrived(self, rows: Rows, times: Sequence[Any]) -> Iterable[Arrival]:
        """Return the events of some rows that may change something; those that are late go aside.

        Nothing is done here for one event at a time: most fulfil no condition.
        """
        late: Sequence[int] = ()
        if not self._by_arrival:
            late = self._late(rows, times)
            if late:
                self._task.set_aside(rows, late)
        reads = self._reads
        payload = reads.payload(rows)
        masks = self._masks_of(rows, times, payload, late)
        places: Sequence[int] = range(rows.count)
        if self._passes_over:
            places = list(compress(places, masks))
        if late:
            is_late = set(late)
            places = [place for place in places if place not in is_late]
        columns = reads.columns(rows, self._questions.fields)
        parts = [map(column.__getitem__, places) for column in columns]
        values = zip(*parts, strict=True) if parts else repeat(())
        own_times, own_masks = (map(each.__getitem__, places) for each in (times, masks))
        keys = reads.keys(rows, places)
        if self._keeps_events:
            source = repeat(_Source(rows.component, payload))
            return zip(own_times, keys, own_masks, values, places, source, strict=False)
        component = repeat(rows.component)
        return zip(own_times, keys, own_masks, values, repeat(None), component, strict=False)

    def _late(self, rows: Rows, times: Sequence[Any]) -> Sequence[int]:
        """Return the places of rows before the watermark, and of those without a time."""
        watermark = self._watermark
        if is_in_time(times, watermark):
            return ()
        return [n for n, ts in enumerate(times) if ts is None or ts < watermark]

    def _match(self, arrivals: Sequence[Arrival]) -> None:
        """Match events in their order."""
        left = iter(arrivals)
        try:
            self._machine.take(left)
        except TypeError:
            reached = len(arrivals) - length_hint(left)
            self._check_key(arrivals[reached - 1][KEY])  # or the error is the user's own
            raise

    def _check_key(self, key: Any) -> None:
        """Raise an error if a value cannot be a key."""
        try:
            hash(key)
        except TypeError:
            raise PatternError(
                f"{self._task.owner}: the key {shown(key)} is a {type(key).__name__}, which cannot "
                "be a key",
                hint="emit a str, a number or a tuple of them",
            ) from None

    def _masks_of(
        self, rows: Rows, times: Sequence[Any], payload: Callable[[int], Any], late: Sequence[int]
    ) -> list[int]:
        source = f"{rows.component} {rows.stream}"
        known_masks = self._masks.get(source)
        if known_masks is None:
            fields = tuple(self._reads.names(rows, self._questions.read_of_events()))
            masks = masks_of(self._questions, rows.component, fields)
            known_masks = self._masks[source] = fields, masks
        fields, masks = known_masks
        visible: Sequence[Any] = times
        if late:
            visible = [0 if ts is None else ts for ts in times]
        if not self._time.shows_ticks:
            visible = list(map(self._time.shown, visible))
        columns = self._reads.columns(rows, fields)
        return masks(columns, visible, rows.count, payload)

    def begin(self, clock: Clock) -> None:
        now = self._clock.before_tuples(clock)
        if now is None:
            return
        self._now = now
        expired = self._machine.expired
        self._machine.pass_to(self._now)
        self._is_busy = self._machine.expired > expired

    def advance(self, clock: Clock) -> int:
        machine = self._machine
        if not self._by_arrival:
            self._watermark = clock.watermark
            self._match_until(clock.watermark)
            machine.pass_to(min(clock.watermark, AFTER_ALL - 1))
        if clock.ended:
            machine.end()
        count = self._emit()
        if not self._by_arrival:
            self._saved.pass_to(clock.watermark)
        elif clock.ended or self._is_busy:
            self._saved.pass_to(AFTER_ALL if clock.ended else self._now)
        self.state_rows = machine.count + machine.waiting + len(self._waiting)
        self._show()
        return count

    def _match_until(self, watermark: int) -> None:
        """Match the events whose time has come, in the order of their times."""
        waiting = self._waiting
        due: list[Arrival] = []
        while waiting and waiting[0][0] <= watermark:
            entry = heapq.heappop(waiting)
            self._saved.matched(entry)
            due.append(entry[2])
        fresh, self._fresh = self._fresh, []
        fresh.sort(key=_TS)  # what came first stays first
        first_to_wait = bisect_right(fresh, watermark, key=_TS)
        for arrival in fresh[first_to_wait:]:
            self._arrivals += 1
            entry = (arrival[TS], self._arrivals, _event_of(arrival))
            heapq.heappush(waiting, entry)
            self._saved.wait(entry)
        if due:
            due += fresh[:first_to_wait]
            due.sort(key=_TS)
        else:
            due = fresh[:first_to_wait]
        self._match(due)

    # -- results ------------------------------------------------------------------------------

    def _emit(self) -> int:
        results = self._machine.take_results()
        rows: dict[str, list[list[Any]]] = {}
        matches = timed_out = 0
        for result in results:
            matches += result.is_match
            timed_out += not result.is_match
            stream = "default" if result.is_match else "timed_out"
            row_of = self._row_of.get(stream)
            if row_of is not None:
                rows.setdefault(stream, []).append(list(row_of(result)))
        for stream, listed in rows.items():
            self._task.emit(listed, self._streams.get(stream, stream))
        self._count(matches, timed_out)
        return len(results)

    _streams: Mapping[str, str] = {}

    def name_streams(self, streams: Mapping[str, str]) -> None:
        """Say on which streams matches and what timed out go."""
        self._streams = dict(streams)

    def _count(self, matches: int, timed_out: int) -> None:
        context = self._task.component.context
        dropped = self._machine.take_dropped()
        for name, by in zip(COUNTS, (matches, timed_out, len(dropped)), strict=True):
            if by:
                context.counter(name, by)
        if dropped and not self._has_warned:
            self._has_warned = True
            self._task.warn_once(
                f"{self._task.owner}: the key {dropped[0]!r} has more than {self._limit:,} open "
                f"matches of {self._name}; the oldest are dropped, and counted"
            )

    def _show(self) -> None:
        machine, context = self._machine, self._task.component.context
        levels = (machine.count, len(self._waiting), machine.waiting)
        for name, level in zip(FIGURES, levels, strict=True):
            context.gauge(name, level)

    # -- time ---------------------------------------------------------------------------------

    def next_event(self) -> int | None:
        times = [self._machine.next_due(), self._waiting[0][0] if self._waiting else None]
        return min((ts for ts in times if ts is not None), default=None)

    def wakes_at(self) -> float | None:
        return self._clock.wakes_at(self._machine.next_due)

    def oldest(self) -> int | None:
        return self._machine.oldest()

    # -- what is saved ------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._watermark = watermark
        counts, waiting = self._saved.load(
            saved, None if self._by_arrival else watermark, self._machine
        )
        self._machine.resume(counts.get("order", 0), counts.get("number", 0))
        self._arrivals = counts.get("arrivals", 0)
        self._now = counts.get("now", 0)
        self._waiting = waiting
        heapq.heapify(self._waiting)
        self.state_rows = self._machine.count + self._machine.waiting + len(waiting)

    def save(self, changes: Any) -> None:
        machine = self._machine
        head = {"order": machine.next_order, "number": machine.next_number}
        head["arrivals"] = self._arrivals
        if self._by_arrival:
            head["now"] = self._now if self._is_busy else self._saved_now
            self._saved_now = head["now"]
        self._saved.save(head, machine.states, changes)

    _saved_now = 0
