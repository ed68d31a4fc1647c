"""A slow matcher of patterns, written from their rules: a list of partial matches, no buckets.

It reads the plain data of a pattern (`Pattern.to_dict`), not what topo makes of it: where an event
may be taken next is found by walking the tree of parts from the part that took the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

_WAYS = {"first": "any", "next": "strict", "followed_by": "relaxed", "followed_by_any": "any"}

Document = Mapping[str, Any]
Place = tuple[tuple[int, int], ...]
"""By depth, which part of the sequence, and in which round."""


class Event(NamedTuple):
    """An event: its time, its key and what conditions read."""

    number: int
    ts: int
    key: Any
    kind: str
    n: int


class Option(NamedTuple):
    """A part that may take the next event."""

    place: Place
    way: str
    gap: int | None
    passed: frozenset[Place]


@dataclass
class Open:
    """A partial match."""

    number: int
    start: Event
    taken: list[tuple[str, Event]]
    place: Place
    options: list[Option]
    is_fresh: bool = True
    waits: bool = False

    @property
    def last(self) -> Event:
        return self.taken[-1][1]


@dataclass
class Whole:
    """A whole match that waits."""

    taken: list[tuple[str, Event]]
    end: int
    reached: int


@dataclass
class Truth:
    """What the rules give for a pattern and events in the order of time."""

    document: Document
    matches: list[tuple[Any, list[tuple[str, int]], int]] = field(default_factory=list)
    timed_out: list[tuple[Any, list[tuple[str, int]], int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parts: Sequence[Document] = self.document["parts"]
        self.within: int | None = self.document.get("within")
        skip = self.document.get("skip", "none")
        self.skip: Any = skip if isinstance(skip, str) else next(iter(skip.items()))
        self.open: dict[Any, list[Open]] = {}
        self.wholes: dict[Any, list[Whole]] = {}
        self.count = 0
        self.reached = 0
        self.has_ties = False
        """Two ways to read the same events: no rule says which match comes first."""

    # -- the tree of parts --------------------------------------------------------------------

    def _sequence(self, path: Place) -> Sequence[Document]:
        """Return the parts among which the last step of a path chooses."""
        parts = self.parts
        for index, _ in path[:-1]:
            parts = parts[index]["group"]
        return parts

    def _part(self, path: Place) -> Document:
        return self._sequence(path)[path[-1][0]]

    def _enter(self, path: Place, way: str, gap: int | None) -> Iterator[Option]:
        """Yield the ways into a part, in a round."""
        part = self._part(path)
        if "group" not in part:
            yield Option(path, way, gap, frozenset())
            return
        passed: frozenset[Place] = frozenset()
        for index, inner in enumerate(part["group"]):
            if _is_negation(inner):
                continue
            own = (way, gap) if index == 0 else (_WAYS[inner["how"]], inner.get("gap"))
            here = (*path, (index, 1))
            for option in self._enter(here, *own):
                yield option._replace(passed=option.passed | passed)
            if not _can_be_empty(inner):
                return
            if inner.get("greedy"):
                passed |= {_loop(here)}

    def _leave(self, path: Place, passed: frozenset[Place]) -> Iterator[Option | None]:
        """Yield what may follow when a part has done a round; None: the end of the pattern."""
        part, (index, done) = self._part(path), path[-1]
        low, high = _bounds(part)
        if high is None or done < high:
            again = done + 1 if high is not None else max(low, min(done + 1, low))
            here = (*path[:-1], (index, again))
            for option in self._enter(here, part.get("inner", "relaxed"), part.get("inner_gap")):
                yield option._replace(passed=option.passed | passed)
        if done < low and not _is_nothing(part):
            return
        sequence = self._sequence(path)
        for later in range(index + 1, len(sequence)):
            follower = sequence[later]
            if _is_negation(follower):
                continue
            here = (*path[:-1], (later, 1))
            for option in self._enter(here, _WAYS[follower["how"]], follower.get("gap")):
                yield option._replace(passed=option.passed | passed)
            if not _can_be_empty(follower):
                return
            if follower.get("greedy"):
                passed |= {_loop(here)}
        if len(path) == 1:
            yield None
        else:
            yield from self._leave(path[:-1], passed)

    def _begin(self) -> list[Option]:
        options: list[Option] = []
        passed: frozenset[Place] = frozenset()
        for index, part in enumerate(self.parts):
            if _is_negation(part):
                continue
            path: Place = ((index, 1),)
            for option in self._enter(path, "any", None):
                options.append(option._replace(passed=option.passed | passed))
            if not _can_be_empty(part):
                return options
            if part.get("greedy"):
                passed |= {_loop(path)}
        return options

    def _loops(self, path: Place) -> dict[Place, Document]:
        """Return the loops that a place is in."""
        steps = [path[: depth + 1] for depth in range(len(path))]
        return {
            _loop(step): self._part(step) for step in steps if _bounds(self._part(step))[1] != 1
        }

    def _forbidden(self, path: Place) -> list[Document]:
        """Return the negations that count at a place."""
        found = []
        for depth in range(len(path)):
            deeper = (path[: d + 1] for d in range(depth + 1, len(path)))
            ends = all(
                _can_be_empty(rest) or _is_negation(rest)
                for step in deeper
                for rest in self._sequence(step)[step[-1][0] + 1 :]
            )
            if not ends:
                continue
            sequence, index = self._sequence(path[: depth + 1]), path[depth][0] + 1
            while index < len(sequence) and _is_negation(sequence[index]):
                found.append(sequence[index])
                index += 1
        return found

    # -- an event -----------------------------------------------------------------------------

    def play(self, events: Sequence[Event], end: int) -> None:
        """Take in events in the order of time; the time at last is `end`."""
        for order, event in enumerate(events):
            self._pass_to(event.ts)
            self.reached = order
            self._take(event)
        self._pass_to(end)

    def _take(self, event: Event) -> None:
        key = event.key
        left: list[Open] = []
        fresh: list[Open] = []
        wholes: list[tuple[list[tuple[str, Event]], int]] = []
        for partial in self.open.get(key, []):
            if self._is_forbidden(partial, event):
                continue
            if partial.waits and self._waits_for_next():
                wholes.append((partial.taken, event.ts))
                partial.waits = False
            new, staying = self._look(partial.options, partial.place, partial.taken, event)
            for option in new:
                fresh.append(self._opened(partial.start, partial.taken, option, event))
            partial.options, partial.is_fresh = staying, False
            if staying or partial.waits:
                left.append(partial)
        new, _ = self._look(self._begin(), None, [], event)
        fresh += [self._opened(event, [], option, event) for option in new]
        for partial in fresh:
            follows = list(self._leave(partial.place, frozenset()))
            partial.options = list(dict.fromkeys(o for o in follows if o is not None))
            is_end = None in follows
            last = [part for part in self.parts if _is_negation(part)]
            is_last_negated = bool(last) and _is_negation(self.parts[-1])
            partial.waits = is_end and is_last_negated
            if is_end and not is_last_negated:
                wholes.append((partial.taken, event.ts))
            if partial.options or partial.waits:
                left.append(partial)
        self.open[key] = left
        for taken, end in wholes:
            self.wholes.setdefault(key, []).append(Whole(taken, end, self.reached))
        self._settle(key)

    def _opened(
        self, start: Event, taken: list[tuple[str, Event]], option: Option, event: Event
    ) -> Open:
        self.count += 1
        name = self._part(option.place)["name"]
        return Open(self.count, start, [*taken, (name, event)], option.place, [])

    def _is_forbidden(self, partial: Open, event: Event) -> bool:
        return any(
            self._holds(part, "where", event, partial.taken)
            for part in self._forbidden(partial.place)
            if part["how"] == "not_followed_by" or partial.is_fresh
        )

    def _holds(
        self, part: Document, word: str, event: Event, taken: list[tuple[str, Event]]
    ) -> bool:
        text = part.get(word)
        return text is None or bool(holds(text, event, taken))

    def _look(
        self,
        options: list[Option],
        place: Place | None,
        taken: list[tuple[str, Event]],
        event: Event,
    ) -> tuple[list[Option], list[Option]]:
        """Return the options that take an event, and those that stay open."""
        mine = {} if place is None else self._loops(place)

        def fulfils(option: Option) -> bool:
            return self._holds(self._part(option.place), "where", event, taken)

        def ends(loops: Mapping[Place, Document]) -> bool:
            ending = [part for part in loops.values() if part.get("until") is not None]
            return any(self._holds(part, "until", event, taken) for part in ending)

        def can(option: Option) -> bool:
            return fulfils(option) and not ends(self._loops(option.place))

        taking, staying = [], []
        for option in options:
            there = self._loops(option.place)
            jealous = set(option.passed)
            jealous |= {loop for loop, part in mine.items() if part.get("greedy")} - set(there)
            rivals = [o for o in options if o != option and jealous & set(self._loops(o.place))]
            if any(map(can, rivals)):
                continue
            if can(option):
                taking.append(option)
            if ends({loop: part for loop, part in there.items() if loop in mine}):
                continue
            if option.way == "any" or (option.way == "relaxed" and not fulfils(option)):
                staying.append(option)
        return taking, staying

    def _waits_for_next(self) -> bool:
        return not self._waits_for_time()

    def _waits_for_time(self) -> bool:
        return any(part["how"] == "not_followed_by" for part in self._last_negations())

    def _last_negations(self) -> list[Document]:
        last = []
        for part in reversed(self.parts):
            if not _is_negation(part):
                break
            last.append(part)
        return last

    # -- time ---------------------------------------------------------------------------------

    def _due(self) -> Iterator[tuple[int, int, int, Any, Open]]:
        """Yield when each partial match is over or changes by itself, the pattern's time first."""
        quiet = [p["gap"] for p in self._last_negations() if p.get("gap") is not None]
        for key, partials in self.open.items():
            for partial in partials:
                start = partial.start
                if self.within is not None:
                    yield start.ts + self.within, start.number, 0, key, partial
                if partial.waits and quiet:
                    yield partial.last.ts + max(quiet), start.number, 1, key, partial
                for option in partial.options:
                    if option.gap is not None:
                        yield partial.last.ts + option.gap, start.number, 2, key, partial

    def _pass_to(self, ts: int) -> None:
        while True:
            due = [entry for entry in self._due() if entry[0] <= ts]
            if not due:
                return
            at, _, what, key, partial = min(due, key=lambda e: (e[0], e[1], e[2], e[4].number))
            self.reached += 1
            if what == 0:
                ending = [p for p in self.open[key] if p.start is partial.start]
                self.open[key] = [p for p in self.open[key] if p.start is not partial.start]
                for one in ending:
                    if one.waits:
                        self.wholes.setdefault(key, []).append(Whole(one.taken, at, self.reached))
                    else:
                        self.timed_out.append((key, _labels(one.taken), at))
            elif what == 1:
                partial.waits = False
                self.wholes.setdefault(key, []).append(Whole(partial.taken, at, self.reached))
                if not partial.options:
                    self.open[key].remove(partial)
            else:
                gone = [o for o in partial.options
                        if o.gap is not None and partial.last.ts + o.gap == at]  # fmt: skip
                partial.options = [o for o in partial.options if o not in gone]
                if not partial.options and not partial.waits:
                    self.timed_out.append((key, _labels(partial.taken), at))
                    self.open[key].remove(partial)
            self._settle(key)
            self.reached -= 1

    # -- whole matches ------------------------------------------------------------------------

    def _settle(self, key: Any) -> None:
        """Let matches out in the order of their starts, and skip what the strategy says."""

        def rank(whole: Whole) -> tuple[int, int, list[int]]:
            orders = [event.number for _, event in whole.taken]
            return orders[0], (0 if self.skip == "none" else whole.reached), orders

        wholes = sorted(self.wholes.get(key, []), key=rank)
        self.has_ties |= any(rank(a) == rank(b) for a, b in pairwise(wholes))
        while wholes:
            first = wholes[0]
            began = first.taken[0][1].number
            earlier = any(partial.start.number < began for partial in self.open.get(key, []))
            if earlier and self.skip != "none":
                break
            wholes.pop(0)
            self.matches.append((key, _labels(first.taken), first.end))
            bound = self._bound(first)
            wholes = [whole for whole in wholes if whole.taken[0][1].number >= bound]
            self.open[key] = [p for p in self.open.get(key, []) if p.start.number >= bound]
        self.wholes[key] = wholes

    def _bound(self, whole: Whole) -> int:
        events = [event for _, event in whole.taken]
        if self.skip == "none":
            return -1
        if self.skip == "to_next":
            return events[0].number + 1
        if self.skip == "past_last":
            return events[-1].number + 1
        word, name = self.skip
        own = [event.number for part, event in whole.taken if part == name]
        if not own:
            return -1
        bound = own[0] if word == "to_first" else own[-1]
        return -1 if bound == events[0].number else bound


def holds(text: str, event: Event, taken: Sequence[tuple[str, Event]] = ()) -> bool:
    """Return what a condition of these tests says: over kind and n, and `a.n`, `sum(a.n)`."""
    parts: dict[str, list[Event]] = {}
    for name, one in taken:
        parts.setdefault(name, []).append(one)
    names: dict[str, Any] = {"kind": event.kind, "n": event.n}
    for name in NAMES:
        events = parts.get(name, [])
        names[name] = _Taken(events)
    names |= {"sum": lambda of: sum(of), "count": lambda of: len(of.events)}
    try:
        return bool(eval(text, {"__builtins__": {}}, names))
    except TypeError:  # a comparison with None
        return False


class _Taken:
    """A part in a condition: `a.n` is a list in an aggregate, the last one's elsewhere."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    @property
    def n(self) -> Any:
        return _Numbers([event.n for event in self.events])


class _Numbers(list[int]):
    """The numbers of a part, which compare as the last of them."""

    def __lt__(self, other: Any) -> Any:
        return bool(self) and self[-1] < other

    def __gt__(self, other: Any) -> Any:
        return bool(self) and self[-1] > other


NAMES = [f"{letter}{number}" for letter in "pg" for number in range(9)]


def _labels(taken: Sequence[tuple[str, Event]]) -> list[tuple[str, int]]:
    return [(name, event.number) for name, event in taken]


def _is_negation(part: Document) -> bool:
    return str(part.get("how", "first")).startswith("not_")


def _bounds(part: Document) -> tuple[int, int | None]:
    low, high = part.get("times", (1, 1))
    return low, high


def _is_nothing(part: Document) -> bool:
    """Return True if a round of a part may take nothing."""
    return "group" in part and all(_can_be_empty(inner) for inner in part["group"])


def _can_be_empty(part: Document) -> bool:
    return bool(part.get("optional")) or _is_nothing(part)


def _loop(path: Place) -> Place:
    """Return the name of a loop: its place, in any round of its own."""
    return (*path[:-1], (path[-1][0], 0))
