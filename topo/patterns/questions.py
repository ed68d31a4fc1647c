"""The questions of a pattern, as functions: over the columns of what comes, and of what was taken.

A condition that does not look at the match is asked once for each event, when it comes, for a whole
frame at once; so is the beginning of one that does, up to the first of its `and`s that reads taken
events. The rest of that one is asked of each partial match, of the sums that its nodes carry.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from topo.conditions import (
    NAMES,
    PATTERN,
    Condition,
    Field,
    Read,
    mask_function,
    parse,
    raised_by,
    value_function,
)
from topo.errors import shown
from topo.event_time import EventTime
from topo.patterns.chains import COMPONENT, KEY, PAYLOAD, SUMS, TS, VALUES, Event, Match, Node, Sums
from topo.patterns.moves import Ask, Asked
from topo.patterns.pattern import RESERVED, parameters
from topo.patterns.positions import Positions, Question

View: TypeAlias = Callable[["Node | None", Any], Match]
"""Makes a Match of what was taken."""

OfEvent: TypeAlias = "Condition | Callable[..., Any] | None"


class Questions:
    """The questions of a pattern: what is asked of events, and what of matches."""

    def __init__(
        self, positions: Positions, fields: Sequence[str], time: EventTime, view: View
    ) -> None:
        self.fields = list(fields)
        """The values of an event that are kept."""
        self.of_events: list[tuple[OfEvent, str | None]] = []
        """What is asked of events, with the component that it is asked of: bit n for number n."""
        self.sums = Sums(positions.names, self.fields)
        self._time = time
        self._view = view
        self._bits: dict[tuple[Any, str | None], int] = {}
        self._parts: dict[Any, str] = {}
        self.asked = [self._asked(question) for question in positions.questions]

    @property
    def calls_functions(self) -> bool:
        """True iff a function gets events, and so needs them as they came."""
        functions = [what for what, _ in self.of_events if callable(what)]
        return bool(functions) or any(each.ask is not None for each in self.asked)

    def read_of_events(self) -> list[str]:
        """Return the fields that conditions of one event read."""
        conditions = [what for what, _ in self.of_events if isinstance(what, Condition)]
        names = [name for condition in conditions for name in condition.fields]
        return [name for name in dict.fromkeys(names) if name not in RESERVED]

    def _asked(self, question: Question) -> Asked:
        where, of = question.where, question.of
        if where is None:
            return Asked(None if of is None else self._bit(None, of))
        if not isinstance(where, Condition):
            if parameters(where, question.part) == 1:
                self._parts[where] = question.part
                return Asked(self._bit(where, of))
            ask = self._call(where, question.part)
            return Asked(None if of is None else self._bit(None, of), ask)
        own, rest = split(where)
        bit = self._bit(own, of) if own is not None or of is not None else None
        return Asked(bit, None if rest is None else self._ask(rest))

    def _bit(self, condition: OfEvent, of: str | None) -> int:
        bit = self._bits.get((condition, of))
        if bit is None:
            bit = self._bits[condition, of] = len(self.of_events)
            self.of_events.append((condition, of))
        return bit

    def _call(self, function: Callable[..., Any], part: str) -> Ask:
        view = self._view

        def ask(event: Event, node: Node | None) -> bool:
            try:
                return bool(function(event[PAYLOAD], view(node, event[KEY])))
            except Exception as error:
                error.add_note(f"in the condition of {part}, asked of {shown(event[PAYLOAD])}")
                raise

        return ask

    def call(self, function: Callable[..., Any], event: Any) -> bool:
        """Return what a function of one event says; an error names the part that asks."""
        try:
            return bool(function(event))
        except Exception as error:
            part = self._parts.get(function, "a part")
            error.add_note(f"in the condition of {part}, asked of {shown(event)}")
            raise

    def _ask(self, condition: Condition) -> Ask:
        value = value_function(condition, self.read, "v, ts, source, k")
        first = self.sums
        in_unit = self._time.shown

        def ask(event: Event, node: Node | None) -> bool:
            sums = first.first if node is None else node[SUMS]
            ts = in_unit(event[TS])
            try:
                return bool(value(event[VALUES], ts, event[COMPONENT], sums))
            except Exception as error:
                values = self.values_of(condition, event, ts, sums)
                raise raised_by(condition, error, values) from error

        return ask

    def read(self, read: Read) -> str:
        """Return the text of a read of an event `v` and the sums `k`."""
        if not isinstance(read, Field):
            return self.sums.text(read)
        return read.name if read.name in RESERVED else f"v[{self.fields.index(read.name)}]"

    def values_of(
        self, condition: Condition, event: Event, ts: Any, sums: tuple[Any, ...]
    ) -> dict[str, Any]:
        """Return what a condition read, for messages."""
        known_names = {**NAMES, "v": event[VALUES], "ts": ts, "source": event[COMPONENT], "k": sums}
        return {str(read): eval(self.read(read), known_names) for read in condition.reads}


def split(condition: Condition) -> tuple[Condition | None, Condition | None]:
    """Return the beginning of a condition that only reads the event, and the rest of it."""
    if all(isinstance(read, Field) for read in condition.reads):
        return condition, None
    tree = condition.tree
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    texts = [f"({ast.unparse(part)})" for part in parts]
    alone = [_reads_event(text, condition) for text in texts]
    count = alone.index(False)
    if not count:
        return None, condition
    own = parse(" and ".join(texts[:count]), condition.what, PATTERN)
    return own, parse(" and ".join(texts[count:]), condition.what, PATTERN)


def _reads_event(text: str, condition: Condition) -> bool:
    reads = parse(text, condition.what, PATTERN).reads
    return all(isinstance(read, Field) for read in reads)


Masks: TypeAlias = Callable[
    [Sequence[Sequence[Any]], Sequence[Any], int, Callable[[int], Any]], list[int]
]


def masks_of(questions: Questions, component: str, fields: Sequence[str]) -> Masks:
    """Return the function of (columns, times, count, payload) that gives each row's mask.

    `fields` are those of the columns; a name that they lack is None in all rows.
    """
    texts: list[tuple[int, Condition]] = []
    functions: list[tuple[int, Callable[..., Any]]] = []
    always = 0
    for bit, (condition, of) in enumerate(questions.of_events):
        if of is not None and of != component:
            continue
        if condition is None:
            always |= 1 << bit
        elif isinstance(condition, Condition):
            texts.append((bit, condition))
        else:
            functions.append((bit, condition))
    names = ["" if name in RESERVED else name for name in fields]
    missing = sorted(
        {n for _, c in texts for n in c.fields if n not in names and n not in RESERVED}
    )
    of_texts = mask_function([condition for _, condition in texts], [*names, *missing])
    places = [1 << bit for bit, _ in texts]
    is_plain = places == [1 << n for n in range(len(places))] and not always

    def masks(
        columns: Sequence[Sequence[Any]], times: Sequence[Any], count: int,
        payload: Callable[[int], Any],
    ) -> list[int]:  # fmt: skip
        nones = [None] * count
        whole = [*columns, *([nones] * len(missing))]
        out = of_texts(whole, times, component, count) if texts else [0] * count
        if not is_plain:
            out = [always | _spread(mask, places) for mask in out]
        for bit, function in functions:
            for place in range(count):
                if questions.call(function, payload(place)):
                    out[place] |= 1 << bit
        return out

    return masks


def _spread(mask: int, places: Sequence[int]) -> int:
    """Return a mask with each bit in its place."""
    spread = 0
    for place in places:
        if mask & 1:
            spread |= place
        mask >>= 1
    return spread
