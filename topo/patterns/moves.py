"""What an event does to the partial matches of a state: a table that fills itself.

States have small numbers, 0 for the start. A row of the table is for a mask of events and has a
move by state; what was never looked up is not there, and what changes nothing is None. A move says
beforehand which of the common ways it goes, so that the machine has code for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from topo.patterns.chains import ENDED, MASK, Event, Node
from topo.patterns.pattern import ANY, STRICT
from topo.patterns.positions import Position, Positions

State: TypeAlias = "tuple[int, int, bool, bool]"
"""The position, the open edges as bits, whether no event has come since, whether it waits."""

Ask: TypeAlias = Callable[[Event, "Node | None"], bool]

BEGINNING: Final = 0
"""The number of the state in which every match starts."""

_MOST_MOVES = 100_000
"""The table of moves begins anew when it has more."""


@dataclass(frozen=True)
class Asked:
    """How a question of the pattern is answered."""

    bit: int | None
    """The bit of an event's mask that must be set; None: none."""
    ask: Ask | None = None
    """What is asked of event and match then; None: nothing."""


@dataclass(frozen=True, slots=True)
class Move:
    """What an event does to the partial matches of a state."""

    targets: tuple[int, ...] = ()
    """The positions that take the event."""
    after: int = ENDED
    """The state that they are in afterwards; `ENDED`: they end."""
    is_whole: bool = False
    """They are matches, since nothing forbidden came next."""
    asking: tuple[int, ...] = ()
    """The questions to ask of each first; with any, all else is unknown."""
    advance: int = ENDED
    """The state in which they all continue with the event, and do nothing else."""
    completes: bool = False
    """They are all whole at the only target, and end."""
    target: int = -1
    """The only target; -1: there are none, or several."""


Row: TypeAlias = "dict[int, Move | None]"
"""By state, what the events of one mask do."""


class Moves:
    """The table of a pattern's moves, and its states by number."""

    def __init__(self, positions: Positions, questions: Sequence[Asked]) -> None:
        self._positions = positions.positions
        self._questions = questions
        self.states: list[State] = []
        self._numbers: dict[State, int] = {}
        self.rows: dict[int, Row] = {}
        """By the mask of an event."""
        self._size = 0
        self._gaps: dict[int, tuple[int, ...]] = {}
        self._answered: dict[tuple[int, int, int], Move] = {}
        self.number_of((0, _all_edges(self._positions[0]), False, False))
        self.first_states = [self._first_state(position) for position in self._positions]
        """By position, the number of the state of what has just reached it; `ENDED`: none."""
        self.has_times = [
            position.quiet is not None or any(edge.gap is not None for edge in position.edges)
            for position in self._positions
        ]
        """By position, whether something ends there by itself after a while."""

    def number_of(self, state: State) -> int:
        """Return the number of a state."""
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self.states)
            self.states.append(state)
        return number

    def _first_state(self, position: Position) -> int:
        waits = position.waits or position.waits_for_next
        if not position.edges and not waits:
            return ENDED
        is_fresh = bool(position.never_next) or position.waits_for_next
        return self.number_of((position.number, _all_edges(position), is_fresh, waits))

    def gaps_in(self, number: int) -> tuple[int, ...]:
        """Return the gaps that close an edge of a state, in ticks."""
        gaps = self._gaps.get(number)
        if gaps is None:
            place, is_open, _, _ = self.states[number]
            edges = enumerate(self._positions[place].edges)
            own = {edge.gap for n, edge in edges if is_open >> n & 1 and edge.gap is not None}
            gaps = self._gaps[number] = tuple(own)
        return gaps

    @property
    def needs_every_event(self) -> bool:
        """True iff an event that fulfils no condition may change something."""
        later = self._positions[1:]
        strict = any(edge.way == STRICT for position in later for edge in position.edges)
        is_open = any(question.bit is None for question in self._questions)
        return is_open or strict or any(p.never_next or p.waits_for_next for p in later)

    def fill(self, row: Row, number: int, mask: int) -> Move | None:
        """Return what an event does to a state, and note it in the row."""
        state = self.states[number]
        asking = tuple(
            question
            for question in sorted(self._asked_in(state))
            if self._questions[question].ask is not None and self._may_hold(question, mask)
        )
        move: Move | None = Move(asking=asking)
        if not asking:
            move = self._resolved(state, lambda question: self._may_hold(question, mask))
            if not move.targets and (
                number == BEGINNING or (move.after == number and not move.is_whole)
            ):
                move = None
            elif number != BEGINNING:
                move = self._with_short_ways(state, move)
        if self._size > _MOST_MOVES:
            self.rows.clear()
            self._answered.clear()
            self._size = 0
        row[number] = move
        self._size += 1
        return move

    def answered(
        self, number: int, event: Event, node: Node | None, asking: tuple[int, ...]
    ) -> Move:
        """Return what an event does to one partial match, of which questions are asked."""
        answers = 0
        for place, question in enumerate(asking):
            ask = self._questions[question].ask
            if ask is not None and ask(event, node):
                answers |= 1 << place
        mask = event[MASK]
        known_move = self._answered.get((number, mask, answers))
        if known_move is not None:
            return known_move
        holding = {question for place, question in enumerate(asking) if answers >> place & 1}
        asked_of = set(asking)

        def truth(question: int) -> bool:
            return question in holding if question in asked_of else self._may_hold(question, mask)

        move = self._resolved(self.states[number], truth)
        self._answered[number, mask, answers] = move
        self._size += 1
        return move

    def _with_short_ways(self, state: State, move: Move) -> Move:
        """Note in a move what all do at once, if they do nothing else.

        They may then stay the partial matches that they are. Where something ends by itself after a
        while, each position has its own entries in the heap, so there they may not.
        """
        if move.after != ENDED or move.target < 0 or move.is_whole:
            return move
        target = move.target
        first, is_last = self.first_states[target], self._positions[target].is_last
        if first == ENDED:
            return replace(move, completes=is_last)
        if is_last or self.has_times[state[0]] or self.has_times[target]:
            return move
        return replace(move, advance=first)

    def _may_hold(self, question: int, mask: int) -> bool:
        bit = self._questions[question].bit
        return bit is None or bool(mask >> bit & 1)

    def _asked_in(self, state: State) -> set[int]:
        """Return the questions that decide what an event does to a state."""
        position = self._positions[state[0]]
        questions = {*position.never, *(position.never_next if state[2] else ())}
        for number, edge in enumerate(position.edges):
            if state[1] >> number & 1:
                target = self._positions[edge.target]
                questions |= {target.question, *edge.blocks, *edge.closes, *edge.siblings}
        return questions

    def _resolved(self, state: State, holds: Callable[[int], bool]) -> Move:
        number, is_open, is_fresh, waits = state
        position = self._positions[number]
        forbidden = [*position.never, *(position.never_next if is_fresh else ())]
        if any(map(holds, forbidden)):
            return Move()
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
        return Move(
            tuple(targets),
            self.number_of(after) if left or after[3] else ENDED,
            is_whole,
            target=targets[0] if len(targets) == 1 else -1,
        )


def _all_edges(position: Position) -> int:
    return (1 << len(position.edges)) - 1
