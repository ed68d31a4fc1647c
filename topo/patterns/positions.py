"""The positions of a pattern, and the edges between them: what a machine runs.

Every part is expanded into a position for each event that it must or may take; an open end leads to
itself. An edge leads from a position to one that may come next, past optional parts as well, and
says which events may be skipped on it. What holds for a loop as a whole is told by its edges: a
greedy one guards the edges out of it by those back into it, and `until` closes its own.

A negation belongs to the positions after which it counts: those where the part before it, or a
round of it, may end. It is so in force within a loop too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from topo.conditions import Condition
from topo.errors import PatternError
from topo.event_time import Duration
from topo.patterns.pattern import (
    ANY,
    NOT_FOLLOWED_BY,
    RELAXED,
    STRICT,
    WAYS,
    Part,
    Pattern,
)

MOST_POSITIONS = 10_000

Ticks: TypeAlias = Callable[[Duration], int]


@dataclass(frozen=True)
class Question:
    """A condition of a position, a negation or an until: what is asked, of which input."""

    where: Condition | Callable[..., Any] | None
    of: str | None
    part: str
    """The part that asks it first, for messages."""


@dataclass(frozen=True)
class Edge:
    """A way from one position to the next one."""

    target: int
    way: str
    gap: int | None = None
    """In ticks: the event comes less than so long after the one before."""
    blocks: tuple[int, ...] = ()
    """The questions that forbid to take an event."""
    closes: tuple[int, ...] = ()
    """Those that close the edge."""
    guards: tuple[int, ...] = ()
    """The edges of the same position that have the first claim to an event."""
    siblings: tuple[int, ...] = ()
    """The questions of the other ways into the same choice: relaxed, none of them is skipped."""


@dataclass
class Position:
    """A place in the pattern that takes one event; the first of them takes none."""

    number: int
    part: int
    """The place of its part among the names; -1 at the start."""
    name: str
    question: int
    """What an event must fulfil."""
    edges: list[Edge] = field(default_factory=list)
    is_last: bool = False
    """True iff a match may be whole here."""
    waits: bool = False
    """True iff it is whole only when nothing has come for a time."""
    waits_for_next: bool = False
    """True iff it is whole only when another event has come next."""
    quiet: int | None = None
    """How long nothing may come, in ticks; None: for the pattern's time."""
    never: list[int] = field(default_factory=list)
    """The questions that no event may fulfil from here on."""
    never_next: list[int] = field(default_factory=list)
    """Those that the next event may not."""


@dataclass(frozen=True)
class Positions:
    """A pattern as positions; the first is where every match starts."""

    names: tuple[str, ...]
    questions: tuple[Question, ...]
    positions: tuple[Position, ...]

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def ends_by_itself(self) -> bool:
        """True iff a partial match ends without the pattern's time: none skips for ever."""
        edges = [edge for position in self.positions[1:] for edge in position.edges]
        return all(edge.way == STRICT or edge.gap is not None for edge in edges)

    def shown(self) -> list[str]:
        """Return a line for each edge, as `topo explain` prints it."""
        lines = []
        for position in self.positions:
            for edge in position.edges:
                target = self.positions[edge.target]
                words = [] if not position.number else [edge.way]
                if edge.gap is not None:
                    words.append(f"gap {edge.gap}")
                if edge.guards:
                    words.append("unless the loop takes it")
                if edge.blocks:
                    words.append("until " + ", ".join(self._text(n) for n in edge.blocks))
                condition = self._text(target.question)
                tail = f" ({', '.join(words)})" if words else ""
                lines.append(f"{self._label(position)} -> {self._label(target)}: {condition}{tail}")
            for word, numbers in (("not", position.never), ("not next", position.never_next)):
                lines += [f"{self._label(position)} {word}: {self._text(n)}" for n in numbers]
        return lines

    def _label(self, position: Position) -> str:
        mark = "." if position.is_last or position.waits or position.waits_for_next else ""
        return f"{position.number}:{position.name}{mark}"

    def _text(self, number: int) -> str:
        question = self.questions[number]
        where = question.where
        text = "any event"
        if where is not None:
            text = where.text if isinstance(where, Condition) else _name_of(where)
        return text if question.of is None else f"{text} of {question.of!r}"


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


@dataclass(frozen=True)
class _Entry:
    """A position with which a fragment may begin."""

    position: int
    way: str | None = None
    """None: the way of what the fragment belongs to."""
    gap: int | None = None
    passed: frozenset[int] = frozenset()
    """The greedy loops that are left out on the way."""
    choice: int | None = None


@dataclass(frozen=True)
class _Exit:
    """A position with which a fragment may end."""

    position: int
    passed: frozenset[int] = frozenset()


@dataclass
class _Fragment:
    """A part of the pattern, expanded."""

    entries: list[_Entry]
    exits: list[_Exit]
    can_be_empty: bool
    round_ends: list[int]
    """The positions with which a round of its last part may end."""


@dataclass(frozen=True)
class _Link:
    """An edge as it is found, before what loops say of it."""

    source: int
    target: int
    way: str
    gap: int | None
    passed: frozenset[int]
    choice: int | None


def expand(pattern: Pattern, ticks: Ticks) -> Positions:
    """Return the positions of a pattern; durations become ticks."""
    return _Expansion(pattern, ticks).positions()


class _Expansion:
    """One expansion."""

    def __init__(self, pattern: Pattern, ticks: Ticks) -> None:
        self._pattern = pattern
        self._ticks = ticks
        self._names = pattern.names
        self._questions: dict[tuple[Any, str | None], int] = {}
        self._listed: list[Question] = []
        self._positions = [Position(0, -1, "start", -1)]
        self._loops: list[frozenset[int]] = [frozenset()]
        """By position, the loops that it is in."""
        self._untils: dict[int, int] = {}
        """By loop, the question that ends it."""
        self._greedy: set[int] = set()
        self._links: dict[_Link, None] = {}
        self._open: list[int] = []
        """The loops around what is being expanded."""
        self._numbers = 0

    def positions(self) -> Positions:
        parts = list(self._pattern.parts)
        last: list[Part] = []
        while parts[-1].is_negation:
            last.insert(0, parts.pop())
        whole = self._sequence(parts)
        self._link([_Exit(0)], whole.entries, ANY, None)
        for leaving in whole.exits:
            position = self._positions[leaving.position]
            for part in last:
                if part.how == NOT_FOLLOWED_BY:
                    position.waits = True
                    quiet = None if part.gap is None else self._ticks(part.gap)
                    if quiet is not None:
                        before = position.quiet
                        position.quiet = quiet if before is None else max(before, quiet)
                elif not position.waits:
                    position.waits_for_next = True
            if position.waits:
                position.waits_for_next = False
            position.is_last = not last
        for part in last:
            self._forbid(part, whole.round_ends)
        self._finish_edges()
        return Positions(self._names, tuple(self._listed), tuple(self._positions))

    def _question(self, where: Any, of: str | None, shown_part: str) -> int:
        number = self._questions.get((where, of))
        if number is None:
            number = self._questions[where, of] = len(self._listed)
            self._listed.append(Question(where, of, shown_part))
        return number

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    # -- fragments ----------------------------------------------------------------------------

    def _sequence(self, parts: Sequence[Part]) -> _Fragment:
        entries: list[_Entry] = []
        exits: list[_Exit] = []
        round_ends: list[int] = []
        is_empty_so_far = True
        passed: frozenset[int] = frozenset()
        for place, part in enumerate(parts):
            if part.is_negation:
                self._forbid(part, round_ends)
                continue
            loop = self._number()
            fragment = self._part(part, loop)
            way = WAYS[part.how]
            gap = None if part.gap is None else self._ticks(part.gap)
            if is_empty_so_far:
                for entry in fragment.entries:
                    own = entry if place == 0 else _with_way(entry, way, gap)
                    entries.append(_passing(own, passed))
            self._link(exits, fragment.entries, way, gap)
            leaving = list(fragment.exits)
            if fragment.can_be_empty:
                around = frozenset((loop,)) if part.greedy else frozenset[int]()
                leaving += [_Exit(exit.position, exit.passed | around) for exit in exits]
                passed |= around
                round_ends = [*round_ends, *fragment.round_ends]
            else:
                round_ends = list(fragment.round_ends)
            exits = leaving
            is_empty_so_far = is_empty_so_far and fragment.can_be_empty
        return _Fragment(entries, exits, is_empty_so_far, round_ends)

    def _forbid(self, part: Part, positions: Iterable[int]) -> None:
        """Put a negation into force at the ends of the part before it."""
        question = self._question(part.where, part.of, part.shown)
        for number in positions:
            position = self._positions[number]
            listed = position.never if part.how == NOT_FOLLOWED_BY else position.never_next
            if question not in listed:
                listed.append(question)

    def _part(self, part: Part, loop: int) -> _Fragment:
        """Expand a part with all its rounds."""
        if part.is_loop:
            self._open.append(loop)
            if part.until is not None:
                self._untils[loop] = self._question(part.until, part.of, f"until of {part.shown}")
            if part.greedy:
                self._greedy.add(loop)
        rounds = part.low if part.high is None else part.high
        gap = None if part.inner_gap is None else self._ticks(part.inner_gap)
        whole = self._round(part)
        exits = list(whole.exits) if part.low == 1 or whole.can_be_empty else []
        round_ends = list(whole.round_ends)
        before = whole
        for number in range(2, rounds + 1):
            following = self._round(part)
            self._link(before.exits, following.entries, part.inner, gap)
            round_ends += following.round_ends
            if number >= part.low or whole.can_be_empty:
                exits += following.exits
            before = following
        if part.high is None:
            self._link(before.exits, before.entries, part.inner, gap)
        if part.is_loop:
            self._open.pop()
        is_empty = part.optional or whole.can_be_empty
        return _Fragment(whole.entries, exits, is_empty, round_ends)

    def _round(self, part: Part) -> _Fragment:
        if part.group:
            return self._sequence(part.group)
        if part.either:
            return self._either(part)
        if part.any_order:
            return self._any_order(part)
        number = self._position(part)
        return _Fragment([_Entry(number)], [_Exit(number)], False, [number])

    def _position(self, part: Part) -> int:
        assert part.name is not None, "a group has no position"
        number = len(self._positions)
        if number > MOST_POSITIONS:
            raise PatternError(
                f"the pattern has more than {MOST_POSITIONS:,} positions, since times of groups "
                "multiply",
                hint="make the upper bounds smaller, or leave them open", code="pattern-times",
            )  # fmt: skip
        question = self._question(part.where, part.of, part.shown)
        place = self._names.index(part.name)
        self._positions.append(Position(number, place, part.name, question))
        self._loops.append(frozenset(self._open))
        return number

    def _either(self, part: Part) -> _Fragment:
        fragments = [self._sequence(parts) for parts in part.either]
        choice = self._number()
        return _Fragment(
            [_chosen(entry, choice) for each in fragments for entry in each.entries],
            [leaving for each in fragments for leaving in each.exits],
            any(each.can_be_empty for each in fragments),
            [number for each in fragments for number in each.round_ends],
        )

    def _any_order(self, part: Part) -> _Fragment:
        """Expand a state for each set of patterns that are done, and each that comes next."""
        count = len(part.any_order)
        entries: list[_Entry] = []
        done: dict[int, list[_Exit]] = {0: []}
        round_ends: list[int] = []
        for size in range(count):
            for taken_bits in [bits for bits in range(1 << count) if bits.bit_count() == size]:
                choice = self._number()
                for number, parts in enumerate(part.any_order):
                    if taken_bits >> number & 1:
                        continue
                    fragment = self._sequence(parts)
                    starts = [_chosen(entry, choice) for entry in fragment.entries]
                    if taken_bits:
                        self._link(done[taken_bits], starts, part.inner, None)
                    else:
                        entries += starts
                    done.setdefault(taken_bits | 1 << number, []).extend(fragment.exits)
                    if size == count - 1:
                        round_ends += fragment.round_ends
        return _Fragment(entries, done[(1 << count) - 1], False, round_ends)

    # -- edges --------------------------------------------------------------------------------

    def _link(
        self, exits: Iterable[_Exit], entries: Sequence[_Entry], way: str, gap: int | None
    ) -> None:
        for leaving in exits:
            for entry in entries:
                own = _with_way(entry, way, gap)
                assert own.way is not None, "it was just given"
                passed = leaving.passed | entry.passed
                link = _Link(
                    leaving.position, entry.position, own.way, own.gap, passed, entry.choice
                )
                self._links[link] = None

    def _finish_edges(self) -> None:
        by_source: dict[int, list[_Link]] = {}
        for link in self._links:
            by_source.setdefault(link.source, []).append(link)
        for source, links in by_source.items():
            self._positions[source].edges = [self._edge(link, links) for link in links]

    def _edge(self, link: _Link, links: list[_Link]) -> Edge:
        here, there = self._loops[link.source], self._loops[link.target]
        guarding = link.passed | {loop for loop in here - there if loop in self._greedy}
        guards = [
            number
            for number, other in enumerate(links)
            if other is not link and guarding & self._loops[other.target]
        ]
        same = [
            self._positions[other.target].question
            for other in links
            if other is not link and link.choice is not None and other.choice == link.choice
        ]
        blocks = [question for loop, question in self._untils.items() if loop in there]
        closes = [question for loop, question in self._untils.items() if loop in here & there]
        return Edge(
            link.target, link.way, link.gap, tuple(blocks), tuple(closes), tuple(guards),
            tuple(dict.fromkeys(same)) if link.way == RELAXED else (),
        )  # fmt: skip


def _with_way(entry: _Entry, way: str, gap: int | None) -> _Entry:
    """Return the entry with the way of what it belongs to, unless it has one."""
    if entry.way is not None:
        return entry
    return _Entry(entry.position, way, gap, entry.passed, entry.choice)


def _passing(entry: _Entry, passed: frozenset[int]) -> _Entry:
    return _Entry(entry.position, entry.way, entry.gap, entry.passed | passed, entry.choice)


def _chosen(entry: _Entry, choice: int) -> _Entry:
    """Return the entry as a way into a choice; of nested ones, into the outermost."""
    if entry.way is not None:
        return entry
    return _Entry(entry.position, entry.way, entry.gap, entry.passed, choice)
