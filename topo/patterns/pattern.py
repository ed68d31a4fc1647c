"""`Pattern`: the declaration of what is looked for, as data.

A pattern is frozen: each call returns a new one, so that one beginning may serve two patterns. What
a part shows by itself is refused when it is written; what depends on the whole is looked at by
`check`, when a bolt takes the pattern. `to_dict` and `from_dict` are the form of files, whose
conditions are texts.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias

from topo.conditions import PATTERN, Aggregate, Condition, PartField, parse
from topo.durations import duration_of, duration_text
from topo.errors import PatternError, did_you_mean
from topo.event_time import Duration

Where: TypeAlias = "str | Callable[..., Any] | None"
Times: TypeAlias = "int | str | tuple[int, int | None]"

STRICT, RELAXED, ANY = "strict", "relaxed", "any"
FIRST, NEXT, FOLLOWED_BY, FOLLOWED_BY_ANY = "first", "next", "followed_by", "followed_by_any"
NOT_NEXT, NOT_FOLLOWED_BY = "not_next", "not_followed_by"
NEGATIONS = (NOT_NEXT, NOT_FOLLOWED_BY)
WAYS = {FIRST: ANY, NEXT: STRICT, FOLLOWED_BY: RELAXED, FOLLOWED_BY_ANY: ANY}
"""By method, which events may come before a part."""

NONE, TO_NEXT, PAST_LAST, TO_FIRST, TO_LAST = (
    "none", "to_next", "past_last", "to_first", "to_last",
)  # fmt: skip
_SIGNS: dict[str, tuple[int, int | None]] = {"?": (0, 1), "+": (1, None), "*": (0, None)}
RESERVED = ("ts", "source")
"""Names that conditions have for the time of an event and for its component."""


@dataclass(frozen=True)
class Part:
    """One element of a pattern: an event, a loop, a group, or one that must not come."""

    name: str | None = None
    """None for a group."""
    where: Condition | Callable[..., Any] | None = None
    of: str | None = None
    how: str = FIRST
    low: int = 1
    high: int | None = 1
    """None: without an end."""
    optional: bool = False
    inner: str = RELAXED
    greedy: bool = False
    until: Condition | Callable[..., Any] | None = None
    inner_gap: Duration | None = None
    gap: Duration | None = None
    group: tuple[Part, ...] = ()
    either: tuple[tuple[Part, ...], ...] = ()
    any_order: tuple[tuple[Part, ...], ...] = ()

    @property
    def is_negation(self) -> bool:
        """True iff it must not come."""
        return self.how in NEGATIONS

    @property
    def is_loop(self) -> bool:
        """True iff it may take more than one event, or its group be repeated."""
        return self.high != 1

    @property
    def groups(self) -> tuple[tuple[Part, ...], ...]:
        """The sequences of parts within it."""
        return (self.group,) if self.group else self.either or self.any_order

    @property
    def can_be_empty(self) -> bool:
        """True iff it may take nothing."""
        if self.optional:
            return True
        inner = [all(part.can_be_empty for part in parts) for parts in self.groups]
        return any(inner) if self.either else bool(inner) and all(inner)

    def every(self) -> Iterator[Part]:
        """Yield it and all parts within it, in their order."""
        yield self
        for parts in self.groups:
            for part in parts:
                yield from part.every()

    @property
    def shown(self) -> str:
        """It, for messages: "part 'a'"."""
        return f"part {self.name!r}" if self.name is not None else "a group"


@dataclass(frozen=True, init=False, repr=False)
class Pattern:
    """A sequence of parts, each an event that fulfils a condition or a group of such.

    `where` is a text in the language of conditions, or a function of the event, or of the event and
    the `Match` so far. `of` binds the part to what comes from one component. `times` is how often:
    `n`, `(n, m)`, `(n, None)`, `"?"`, `"+"` or `"*"`. Between two events of a part, `inner` says
    which may come: none ("strict"), those that do not fulfil the condition ("relaxed"), or any
    ("any"), and `inner_gap` how much later the second may come. A `greedy` loop leaves the next
    part only what it does not want itself; `until` ends it. A pattern in the place of the name is
    a group.
    """

    parts: tuple[Part, ...]
    duration: Duration | None
    strategy: tuple[str, ...]

    def __init__(
        self,
        name: str | Pattern,
        where: Where = None,
        *,
        of: str | None = None,
        times: Times = 1,
        inner: str = RELAXED,
        greedy: bool = False,
        until: Where = None,
        inner_gap: Duration | None = None,
    ) -> None:
        part = _part(
            FIRST, name, where, of=of, times=times, inner=inner, greedy=greedy, until=until,
            inner_gap=inner_gap,
        )  # fmt: skip
        self._set((part,), None, (NONE,))

    def _set(
        self, parts: tuple[Part, ...], duration: Duration | None, strategy: tuple[str, ...]
    ) -> None:
        for name, value in (("parts", parts), ("duration", duration), ("strategy", strategy)):
            object.__setattr__(self, name, value)

    @classmethod
    def _of(
        cls,
        parts: tuple[Part, ...],
        duration: Duration | None = None,
        strategy: tuple[str, ...] = (NONE,),
    ) -> Pattern:
        pattern = object.__new__(cls)
        pattern._set(parts, duration, strategy)
        return pattern

    # -- parts --------------------------------------------------------------------------------

    def next(
        self,
        name: str | Pattern,
        where: Where = None,
        *,
        of: str | None = None,
        times: Times = 1,
        inner: str = RELAXED,
        greedy: bool = False,
        until: Where = None,
        inner_gap: Duration | None = None,
        gap: Duration | None = None,
    ) -> Pattern:
        """Return the pattern with a part that takes the very next event."""
        options = _options(of, times, inner, greedy, until, inner_gap)
        return self._then(_part(NEXT, name, where, gap=gap, **options))

    def followed_by(
        self,
        name: str | Pattern,
        where: Where = None,
        *,
        of: str | None = None,
        times: Times = 1,
        inner: str = RELAXED,
        greedy: bool = False,
        until: Where = None,
        inner_gap: Duration | None = None,
        gap: Duration | None = None,
    ) -> Pattern:
        """Return the pattern with a part that takes the next event that fulfils its condition."""
        options = _options(of, times, inner, greedy, until, inner_gap)
        return self._then(_part(FOLLOWED_BY, name, where, gap=gap, **options))

    def followed_by_any(
        self,
        name: str | Pattern,
        where: Where = None,
        *,
        of: str | None = None,
        times: Times = 1,
        inner: str = RELAXED,
        greedy: bool = False,
        until: Where = None,
        inner_gap: Duration | None = None,
        gap: Duration | None = None,
    ) -> Pattern:
        """Return the pattern with a part that takes each later event that fulfils its condition."""
        options = _options(of, times, inner, greedy, until, inner_gap)
        return self._then(_part(FOLLOWED_BY_ANY, name, where, gap=gap, **options))

    def not_next(self, name: str, where: Where = None, *, of: str | None = None) -> Pattern:
        """Return the pattern with an event that must not come next."""
        return self._then(_part(NOT_NEXT, name, where, of=of))

    def not_followed_by(
        self, name: str, where: Where = None, *, of: str | None = None, gap: Duration | None = None
    ) -> Pattern:
        """Return the pattern with an event that must not come before the next part.

        Last in a pattern it must not come within `gap`, or within the pattern's time.
        """
        return self._then(_part(NOT_FOLLOWED_BY, name, where, of=of, gap=gap))

    def _then(self, part: Part) -> Pattern:
        before = self.parts[-1]
        names = {p.name for p in self.every() if p.name is not None}
        for inner in part.every():
            if inner.name in names:
                raise PatternError(
                    f"two parts have the name {inner.name!r}: names differ",
                    hint="give the second one another name",
                    code="pattern-name",
                )
        if part.is_negation and before.can_be_empty:
            raise PatternError(
                f"{part.shown} must not come after {before.shown}, which is optional before a "
                "negation: nobody could say from when on it must not come",
                hint="put the negation before the optional part, or make that one mandatory",
                code="pattern-negation",
            )
        taking = [p for p in self.parts if not p.is_negation]
        if part.can_be_empty and taking and taking[-1].greedy:
            raise PatternError(
                f"{part.shown} is optional after greedy {taking[-1].shown}: nobody could say where "
                "the loop ends",
                hint="make it mandatory, or the loop not greedy",
                code="pattern-option",
            )
        if before.is_negation and before.gap is not None:
            raise PatternError(
                f"{before.shown} has a gap, which is only for a negation that is last",
                hint=f"give {part.shown} a gap",
                code="pattern-negation",
            )
        return Pattern._of((*self.parts, part), self.duration, self.strategy)

    def within(self, duration: Duration) -> Pattern:
        """Return the pattern whose last event comes less than so long after its first."""
        _check_duration(duration, "within")
        return Pattern._of(self.parts, duration, self.strategy)

    def skip(self, strategy: str, part: str | None = None) -> Pattern:
        """Return the pattern of which a match takes others away: those that began too early.

        `"to_next"`: with the same event; `"past_last"`: not after its last event; `"to_first",
        "b"` and `"to_last", "b"`: before the first or last event of part b. `"none"`: none.
        """
        words = (NONE, TO_NEXT, PAST_LAST, TO_FIRST, TO_LAST)
        if strategy not in words:
            hint = did_you_mean(strategy, words) or f"it is one of {', '.join(map(repr, words))}"
            raise PatternError(f"skip has no strategy {strategy!r}", hint=hint, code="pattern-skip")
        if (part is None) == (strategy in (TO_FIRST, TO_LAST)):
            raise PatternError(
                f"skip({strategy!r}) takes {'the name of a part' if part is None else 'no part'}",
                hint='write .skip("past_last"), or .skip("to_first", "b")',
                code="pattern-skip",
            )
        return Pattern._of(
            self.parts, self.duration, (strategy,) if part is None else (strategy, part)
        )

    # -- as a whole ---------------------------------------------------------------------------

    def every(self) -> Iterator[Part]:
        """Yield all parts, those of groups as well."""
        for part in self.parts:
            yield from part.every()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts that take events, in their order."""
        return tuple(p.name for p in self.every() if p.name is not None and not p.is_negation)

    def check(self) -> None:
        """Raise a PatternError for what only the whole pattern shows."""
        last = self.parts[-1]
        if last.how == NOT_FOLLOWED_BY and self.duration is None and last.gap is None:
            raise PatternError(
                f"{last.shown} is a negation at the end: it needs within, or a gap",
                hint="write .within(timedelta(minutes=10)), or gap=timedelta(minutes=10)",
                code="pattern-negation",
            )
        if len(self.strategy) > 1 and self.strategy[1] not in self.names:
            hint = did_you_mean(self.strategy[1], self.names)
            raise PatternError(
                f"skip names {self.strategy[1]!r}: there is no such part that takes events",
                hint=hint or f"the parts are {', '.join(map(repr, self.names))}",
                code="pattern-skip",
            )
        for part in self.every():
            self._check_reads(part)

    def _check_reads(self, part: Part) -> None:
        for condition in (part.where, part.until):
            if not isinstance(condition, Condition):
                continue
            for read in condition.reads:
                if isinstance(read, PartField | Aggregate) and read.part not in self.names:
                    hint = did_you_mean(read.part, self.names)
                    raise condition.refusal(
                        read,
                        f"{read.part!r} is no part that takes events",
                        hint or f"the parts are {', '.join(map(repr, self.names))}",
                    )

    def warnings(self) -> Iterator[str]:
        """Yield what is allowed, and is hardly what was meant."""
        ends = [part for part in (self.parts[0], self.parts[-1]) if part.low != part.high]
        if self.strategy == (NONE,) and ends:
            yield (
                f"{ends[-1].shown} is a loop at an end of the pattern and nothing is skipped: "
                'there is a match for each length; write .skip("past_last")'
            )
        if self.parts[-1].greedy:
            yield f"{self.parts[-1].shown} is greedy and last, which has no effect"
        for place, part in enumerate(self.parts):
            rest = self.parts[place + 1 :]
            if part.is_negation and rest and all(later.can_be_empty for later in rest):
                yield (
                    f"{part.shown} must not come, and only optional parts are behind it: a match "
                    "without them is told before it could come"
                )

    # -- in files -----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the pattern as plain data; raise a PatternError if it has a function."""
        document: dict[str, Any] = {"parts": [_part_to_dict(part) for part in self.parts]}
        if self.duration is not None:
            document["within"] = duration_text(self.duration)
        if self.strategy != (NONE,):
            word, *names = self.strategy
            document["skip"] = {word: names[0]} if names else word
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Pattern:
        """Return the pattern of plain data, as `to_dict` gives it; durations may be "10m"."""
        _check_keys(document, ("parts", "within", "skip"), "a pattern")
        pattern = cls._of_dicts(document.get("parts"))
        if document.get("within") is not None:
            pattern = pattern.within(_duration(document, "within"))
        skip = document.get("skip", NONE)
        if isinstance(skip, Mapping):
            if len(skip) != 1:
                raise PatternError(
                    f"skip is {dict(skip)!r}; it names one part",
                    hint='write {"to_first": "b"}', code="pattern-skip",
                )  # fmt: skip
            [(word, name)] = skip.items()
            return pattern.skip(word, name)
        return pattern.skip(skip)

    @classmethod
    def _of_dicts(cls, documents: Any) -> Pattern:
        if not isinstance(documents, list | tuple) or not documents:
            raise PatternError(f"a pattern has a list of parts; got {documents!r:.80}")
        pattern: Pattern | None = None
        for document in documents:
            part = _part_of_dict(document, FIRST if pattern is None else FOLLOWED_BY)
            pattern = cls._of((part,)) if pattern is None else pattern._then(part)
        assert pattern is not None, "there is a part"
        return pattern

    def __repr__(self) -> str:
        names = " ".join(part.name or "(...)" for part in self.parts)
        return f"<pattern {names}>"


def either(*patterns: Pattern) -> Pattern:
    """Return the group that is one of several patterns: `Pattern(either(a, b)).next("c")`."""
    return Pattern._of((Part(either=_sequences("either", patterns)),))


def any_order(*patterns: Pattern, inner: str = RELAXED) -> Pattern:
    """Return the group of several patterns in any order; `inner` is the way between them."""
    sequences = _sequences("any_order", patterns)
    _check_inner(inner, "any_order")
    if any(all(part.can_be_empty for part in parts) for parts in sequences):
        raise PatternError(
            "any_order has a pattern that may take nothing",
            hint='leave it out, or give it times="+"', code="pattern-option",
        )  # fmt: skip
    return Pattern._of((Part(any_order=sequences, inner=inner),))


def _sequences(word: str, patterns: Iterable[Pattern]) -> tuple[tuple[Part, ...], ...]:
    sequences = tuple(_group(pattern) for pattern in patterns)
    if len(sequences) < 2:
        raise PatternError(f"{word} takes two patterns or more", code="pattern-option")
    names = [p.name for parts in sequences for part in parts for p in part.every() if p.name]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise PatternError(
            f"two parts have the name {double!r}: names differ",
            hint="give the second one another name", code="pattern-name",
        )  # fmt: skip
    return sequences


def _group(pattern: Any) -> tuple[Part, ...]:
    """Return the parts of a pattern that is a group."""
    if not isinstance(pattern, Pattern):
        raise PatternError(f"a group is a Pattern; got {pattern!r:.80}", code="pattern-option")
    if pattern.duration is not None or pattern.strategy != (NONE,):
        raise PatternError(
            "a group has no within and no skip of its own",
            hint="give them to the whole pattern, or the parts a gap", code="pattern-option",
        )  # fmt: skip
    if pattern.parts[-1].is_negation:
        raise PatternError(
            f"{pattern.parts[-1].shown} is a negation at the end of a group",
            hint="put it behind the group", code="pattern-negation",
        )  # fmt: skip
    return pattern.parts


def _options(
    of: str | None,
    times: Times,
    inner: str,
    greedy: bool,
    until: Where,
    inner_gap: Duration | None,
) -> dict[str, Any]:
    return {
        "of": of, "times": times, "inner": inner, "greedy": greedy, "until": until,
        "inner_gap": inner_gap,
    }  # fmt: skip


def _part(
    how: str,
    name: Any,
    where: Where = None,
    *,
    of: str | None = None,
    times: Times = 1,
    inner: str = RELAXED,
    greedy: bool = False,
    until: Where = None,
    inner_gap: Duration | None = None,
    gap: Duration | None = None,
) -> Part:
    """Return the part that a call declares."""
    low, high = _times(times)
    group: tuple[Part, ...] = ()
    if not isinstance(name, str):
        group, name = _group(name), None
    what = "a group" if name is None else f"part {name!r}"
    part = Part(
        name,
        _condition(where, what),
        of,
        how,
        max(1, low),
        high,
        low == 0,
        inner,
        bool(greedy),
        _condition(until, f"until of {what}"),
        inner_gap,
        gap,
        group,
    )
    return _unwrapped(_checked(part))


def _unwrapped(part: Part) -> Part:
    """Return the part without a group around nothing but a choice, which has no way of its own."""
    choice = part.group[0] if len(part.group) == 1 else part
    if choice.either and choice == Part(either=choice.either):
        return replace(part, group=(), either=choice.either)
    if (
        choice.any_order
        and not part.is_loop
        and choice == Part(any_order=choice.any_order, inner=choice.inner)
    ):
        return replace(part, group=(), any_order=choice.any_order, inner=choice.inner)
    return part


def _checked(part: Part) -> Part:
    """Return the part; raise a PatternError for what it shows by itself."""
    if part.name is not None and not part.name.strip():
        raise PatternError("a part has a name", hint='write Pattern("a", ...)', code="pattern-name")
    reserved = part.name in RESERVED or keyword.iskeyword(part.name or "")
    if reserved and not part.is_negation:
        raise PatternError(
            f"a part cannot have the name {part.name!r}, which has a meaning in conditions",
            hint="give it another name", code="pattern-name",
        )  # fmt: skip
    if part.groups and (part.where is not None or part.of is not None):
        raise PatternError(
            "a group has no condition of its own",
            hint="give it to the parts of the group", code="pattern-option",
        )  # fmt: skip
    if part.of is not None and not isinstance(part.of, str):
        raise PatternError(f"of is {part.of!r}; it takes the name of a component")
    _check_inner(part.inner, part.shown)
    for name, duration in (("gap", part.gap), ("inner_gap", part.inner_gap)):
        if duration is not None:
            _check_duration(duration, f"{part.shown}: {name}")
    if part.is_negation:
        _check_negation(part)
    else:
        _check_loop(part)
    return part


def _check_negation(part: Part) -> None:
    if part.is_loop or part.optional or part.greedy or part.groups or part.until is not None:
        raise PatternError(
            f"{part.shown} must not come: a negation has no quantifier",
            hint="leave times, greedy and until out", code="pattern-negation",
        )  # fmt: skip


def _check_loop(part: Part) -> None:
    hint, text = "", ""
    if part.greedy and part.groups:
        text, hint = "greedy is of a group, which cannot be", "make the parts of the group greedy"
    elif part.greedy and not part.is_loop:
        text, hint = "greedy without a quantifier: it is no loop", 'give it times="+"'
    elif part.greedy and part.inner == ANY:
        text, hint = 'greedy and inner="any": the loop would take all and leave all', "choose one"
    elif part.inner != RELAXED and not part.is_loop and not part.any_order:
        text, hint = "inner is for loops", 'give it times="+"'
    elif part.inner_gap is not None and not part.is_loop:
        text, hint = "inner_gap is for loops", "gap is the time since the part before"
    elif part.until is not None and part.high is not None:
        text = "until goes with a loop without an end: one or more, at least n"
        hint = 'give it times="+", or times=(2, None)'
    if text:
        raise PatternError(f"{part.shown}: {text}", hint=hint, code="pattern-option")


def _check_inner(inner: Any, where: str) -> None:
    words = (STRICT, RELAXED, ANY)
    if inner not in words:
        hint = did_you_mean(inner, words) or f"it is one of {', '.join(map(repr, words))}"
        raise PatternError(f"{where}: inner is {inner!r}", hint=hint, code="pattern-option")


def _times(times: Any) -> tuple[int, int | None]:
    """Return the bounds of how often; raise a PatternError."""
    if isinstance(times, str):
        bounds = _SIGNS.get(times)
    elif isinstance(times, tuple | list) and len(times) == 2:
        bounds = (times[0], times[1])
    else:
        bounds = (times, times)
    whole = bounds is not None and all(
        n is None or (isinstance(n, int) and not isinstance(n, bool)) for n in bounds
    )
    if bounds is None or not whole or bounds[0] is None:
        raise PatternError(
            f"times is {times!r}; it takes whole numbers",
            hint='write 3, (2, 5), (2, None), "?", "+" or "*"', code="pattern-times",
        )  # fmt: skip
    low, high = bounds
    if low < 0 or (high is not None and high < max(low, 1)):
        raise PatternError(
            f"times is {times!r}; the first is zero or more, the second one or more and no less",
            hint='write 3, (2, 5), (2, None), "?", "+" or "*"', code="pattern-times",
        )  # fmt: skip
    return low, high


def _condition(where: Any, what: str) -> Condition | Callable[..., Any] | None:
    if where is None or isinstance(where, Condition):
        return where
    if isinstance(where, str):
        return parse(where, what, PATTERN)
    if not callable(where):
        raise PatternError(
            f"{what}: a condition is text or a function; got {where!r:.80}",
            hint='write "price < 100", or lambda e: e.price < 100', code="condition",
        )  # fmt: skip
    parameters(where, what)
    function: Callable[..., Any] = where
    return function


def parameters(function: Callable[..., Any], what: str) -> int:
    """Return how many parameters a condition's function takes: 1 or 2; raise a PatternError."""
    from inspect import Parameter, signature

    try:
        given_by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        listed = [
            p for p in signature(function).parameters.values()
            if p.kind in given_by_place and p.default is p.empty
        ]  # fmt: skip
    except (TypeError, ValueError):  # a function of C without a signature
        return 1
    if len(listed) not in (1, 2):
        raise PatternError(
            f"{what}: the condition's function takes {len(listed)} parameters",
            hint="it takes the event, or the event and the match: lambda e, m: ...",
            code="condition",
        )
    return len(listed)


def _check_duration(duration: Any, what: str) -> None:
    if isinstance(duration, bool) or not isinstance(duration, int | timedelta):
        raise PatternError(
            f"{what} is {duration!r}; a duration is a timedelta",
            hint="write timedelta(seconds=...): a float is not exact", code="pattern-within",
        )  # fmt: skip
    if (duration <= timedelta(0)) if isinstance(duration, timedelta) else duration <= 0:
        raise PatternError(f"{what} is {duration!r}; it must be above zero", code="pattern-within")


_KEYS = {
    "name", "where", "of", "how", "times", "optional", "inner", "greedy", "until", "gap",
    "inner_gap", "group", "either", "any_order",
}  # fmt: skip


def _check_keys(document: Any, names: Iterable[str], what: str) -> None:
    if not isinstance(document, Mapping):
        raise PatternError(f"{what} is a table of names; got {document!r:.80}")
    for name in document:
        if name not in names:
            hint = did_you_mean(name, names) or f"it has {', '.join(sorted(names))}"
            raise PatternError(f"{what} has no {name!r}", hint=hint, code="pattern-option")


def _part_to_dict(part: Part) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if part.name is not None:
        document["name"] = part.name
    for word in ("group", "either", "any_order"):
        parts = getattr(part, word)
        if parts and word == "group":
            document[word] = [_part_to_dict(inner) for inner in parts]
        elif parts:
            document[word] = [[_part_to_dict(inner) for inner in listed] for listed in parts]
    if part.how != FIRST:
        document["how"] = part.how
    for word in ("where", "until"):
        condition = getattr(part, word)
        if callable(condition):
            raise PatternError(
                f"{part.shown}: {word} is a function, which no file holds",
                hint="write the condition as text",
            )
        if condition is not None:
            document[word] = condition.text
    if (part.low, part.high) != (1, 1):
        document["times"] = [part.low, part.high]
    if part.inner != RELAXED:
        document["inner"] = part.inner
    for word in ("optional", "greedy", "of"):
        if getattr(part, word):
            document[word] = getattr(part, word)
    for word in ("gap", "inner_gap"):
        if getattr(part, word) is not None:
            document[word] = duration_text(getattr(part, word))
    return document


def _part_of_dict(document: Any, how: str) -> Part:
    """Return the part of plain data; `how` is the way if it names none."""
    _check_keys(document, _KEYS, "a part")
    how = document.get("how", how)
    methods = (NEXT, FOLLOWED_BY, FOLLOWED_BY_ANY, *NEGATIONS)
    if how not in (FIRST, *methods):
        hint = did_you_mean(how, methods) or f"it is one of {', '.join(methods)}"
        raise PatternError(f"a part has no way {how!r}", hint=hint, code="pattern-option")
    name: Any = document.get("name")
    sequences = {word: document[word] for word in ("group", "either", "any_order")
                 if word in document}  # fmt: skip
    if (name is None) != (len(sequences) == 1):
        raise PatternError(
            "a part has a name, or one of group, either and any_order", code="pattern-name"
        )
    if "group" in sequences:
        name = Pattern._of_dicts(document["group"])
    elif "either" in sequences:
        name = either(*map(Pattern._of_dicts, document["either"]))
    elif "any_order" in sequences:
        order = document.get("inner", RELAXED)
        name = any_order(*map(Pattern._of_dicts, document["any_order"]), inner=order)
    times = document.get("times", 1)
    is_loop = not isinstance(name, Pattern) or "any_order" not in sequences
    part = _part(
        how,
        name,
        document.get("where"),
        of=document.get("of"),
        times=tuple(times) if isinstance(times, list) else times,
        inner=document.get("inner", RELAXED) if is_loop else RELAXED,
        greedy=document.get("greedy", False),
        until=document.get("until"),
        **{word: _duration(document, word) for word in ("gap", "inner_gap")
           if document.get(word) is not None},
    )  # fmt: skip
    return _checked(replace(part, optional=part.optional or bool(document.get("optional"))))


def _duration(document: Mapping[str, Any], word: str) -> Duration:
    """Return a duration of a document."""
    return duration_of(document[word], word, PatternError, "pattern-within")
