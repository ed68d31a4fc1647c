"""The shape of a join's results: which fields they have, and how rows become one.

`select` names the fields: "rate" is the first side's that has it, "rates:rate" that of one input,
and a mapping gives names of its own. Without it all fields come out, and `merge` says what happens
to a name that both sides have. Either way a result is described by `ResultFields`:
names, and for each the places that it may come from, of which the first counts whose side has a
row.

A join keeps of each row only what its results need. The functions that make a result are generated
from those places, so that a match costs one call and one list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from topo.errors import EmitError, JoinError, Problem, did_you_mean
from topo.operators.codegen import function_of
from topo.operators.inputs import KeyedInput
from topo.timed import Rows
from topo.tuples import Fields

Merge: TypeAlias = "Callable[[Any, Any], Any]"
Selection: TypeAlias = "Sequence[str] | Mapping[str, str]"
MERGES = ("prefix", "keep-left", "keep-right", "raise")
"""What happens to a name that both sides have."""
Place: TypeAlias = "tuple[int, int]"
"""A side, and the position of a field in its rows."""


@dataclass(frozen=True)
class ResultFields:
    """The fields of a result, and for each the places that it may come from, the best one first."""

    names: tuple[str, ...]
    places: tuple[tuple[Place, ...], ...]

    def sources(self, missing: int | None) -> list[Place | None]:
        """Return where each value is if a side has no row: of the other one, or None."""
        return [
            next((place for place in several if place[0] != missing), None)
            for several in self.places
        ]

    def name_of(self, place: Place) -> str | None:
        """Return the name under which a field comes out, whichever side is missing."""
        best = [several[0] if several else None for several in self.places]
        return self.names[best.index(place)] if place in best else None


def parse_select(select: Any) -> dict[str, str]:
    """Return the selected fields by the names they have in the output."""
    if isinstance(select, str):
        select = [name.strip() for name in select.split(",")]
    if isinstance(select, Mapping):
        chosen = {str(name): str(of) for name, of in select.items()}
    elif isinstance(select, Iterable):
        chosen = {name: name for name in Fields(*select)}
    else:
        chosen = {}
    if not chosen or not all(chosen) or not all(chosen.values()):
        raise JoinError(
            f"select is {select!r}; it takes the names of fields",
            hint='write select=("id", "views:ts"), or {"viewed": "views:ts"}',
        )
    return chosen


def check_output(merge: Any, select: Any, outputs: Any) -> None:
    """Raise a JoinError if these cannot say together what comes out of a join."""
    if merge is not None and not callable(merge) and merge not in MERGES:
        words = ", ".join(map(repr, MERGES))
        raise JoinError(
            f"merge is {merge!r}; it takes a function of the left and the right row, or one of "
            f"{words}",
            hint='write merge=lambda left, right: ..., or merge="keep-left"',
        )
    if merge not in (None, "prefix") and select is not None:
        raise JoinError("a join has select or merge, not both: each says what comes out")
    if outputs and not callable(merge):
        raise JoinError("outputs goes with merge, a function; select names the fields of a result")


class SidePair:
    """The two inputs of a join by the words that select takes for them: "views:ts", "left:ts"."""

    def __init__(self, inputs: Sequence[KeyedInput]) -> None:
        self.inputs = inputs

    def side_of(self, word: str) -> int:
        """Return which input a word means; raise a JoinError if none or both."""
        if word in ("left", "right"):
            return int(word == "right")
        found = [i for i, one in enumerate(self.inputs) if word in (one.component, one.stream)]
        if len(found) == 1:
            return found[0]
        names = sorted({one.component for one in self.inputs})
        if found:
            raise JoinError(f"{word!r} is on both sides", hint="write 'left:...' or 'right:...'")
        raise JoinError(
            f"{word!r} is no input of the join",
            hint=did_you_mean(word, names) or f"it has {', '.join(map(repr, names))}",
        )

    def check(self, select: Mapping[str, str]) -> None:
        """Raise a JoinError if a selected field names no input."""
        for of in select.values():
            word, colon, _ = of.partition(":")
            if colon:
                self.side_of(word.strip())

    def places(self, of: str, fields: Sequence[Sequence[str]]) -> tuple[Place, ...]:
        """Return where a selected field is found: nowhere, or in several places.

        A bare name is of the first side that has it; a part of the key is on both, whatever it is
        called there.
        """
        word, colon, name = of.partition(":")
        if colon:
            side, name = self.side_of(word.strip()), name.strip()
            return ((side, fields[side].index(name)),) if name in fields[side] else ()
        places = [(side, fields[side].index(of)) for side in (0, 1) if of in fields[side]]
        for side in (0, 1):
            key = self.inputs[side].key
            if of in key:
                other = self.inputs[1 - side].key[key.index(of)]
                if other in fields[1 - side]:
                    places.append((1 - side, fields[1 - side].index(other)))
        return tuple(places)

    def problems(
        self,
        select: Mapping[str, str],
        where: str,
        fields: Sequence[Sequence[str]],
        own: Sequence[str] = (),
    ) -> Iterator[Problem]:
        """Yield the mistakes in a selection; `own` are fields of the result."""
        for of in select.values():
            text = self._mistake(of, fields, own)
            if text:
                yield Problem("join-select", where, f"{where}: {text}")

    def _mistake(self, of: str, fields: Sequence[Sequence[str]], own: Sequence[str]) -> str:
        word, colon, name = of.partition(":")
        try:
            known = fields[self.side_of(word.strip())] if colon else [*fields[0], *fields[1], *own]
        except JoinError:
            return ""  # it was raised when the bolt was made
        name = name.strip() if colon else of
        if name in known:
            return ""
        hint = did_you_mean(name, known) or f"there are {', '.join(map(repr, known))}"
        return f"select has {of!r}, which no input has; {hint}"


def selected(
    select: Mapping[str, str], pair: SidePair, fields: Sequence[Sequence[str]]
) -> ResultFields:
    """Return the output that a selection names."""
    return ResultFields(tuple(select), tuple(pair.places(of, fields) for of in select.values()))


def merged(
    merge: str, pair: SidePair, fields: Sequence[Sequence[str]], left_out: Sequence[str]
) -> ResultFields:
    """Return all fields of both sides, clashes being dealt with as `merge` says.

    Of the names in `left_out`, the key for one, only the left side's comes out.
    """
    left, right = fields
    both = {name for name in right if name in left and name not in left_out}
    if merge == "raise" and both:
        components = " and ".join(repr(side.component) for side in pair.inputs)
        raise JoinError(
            f"{components} both have {', '.join(name for name in right if name in both)}",
            hint='write merge="prefix", "keep-left" or "keep-right", or select=(...)',
        )
    prefixes = merge == "prefix"
    outputs: list[tuple[str, tuple[Place, ...]]] = []
    for position, name in enumerate(left):
        places = [(0, position)]
        if name in right and not (prefixes and name in both):
            places.append((1, right.index(name)))
        if name in both and merge == "keep-right":
            places.reverse()
        outputs.append((f"left_{name}" if prefixes and name in both else name, tuple(places)))
    for position, name in enumerate(right):
        if name not in left_out and (prefixes or name not in both):
            outputs.append((f"right_{name}" if name in both else name, ((1, position),)))
    return ResultFields(tuple(name for name, _ in outputs), tuple(places for _, places in outputs))


def rows_of(output: ResultFields) -> Callable[[Any, Any], list[Any]]:
    """Return the function that makes a result of a left row and a right row, which may be None."""
    matched, alone = (
        f"[{', '.join(map(_source, output.sources(missing)))}]" for missing in (None, 1)
    )
    return function_of("l, r", f"{alone} if r is None else {matched}", {})


def _source(place: Place | None) -> str:
    """Return the expression of a value of a row `l` or `r`."""
    return "None" if place is None else f"{'lr'[place[0]]}[{place[1]}]"


@dataclass(frozen=True)
class Shape:
    """A selection: the functions that keep parts of each side's rows and make results of them."""

    keep: tuple[Callable[[Rows], list[Sequence[Any]]], Callable[[Rows], list[Sequence[Any]]]]
    """Of each side: the columns of the rows that are kept; a row is a tuple of their values."""
    both: Callable[[Any, Any, Any], list[Any]]
    left_only: Callable[[Any, Any], list[Any]]
    right_only: Callable[[Any, Any], list[Any]]


@dataclass(frozen=True)
class Own:
    """The fields of a result that come from neither side, as expressions.

    They are made of `t`, which is known of a result beside its rows, and of `names`.
    """

    fields: Mapping[str, str]
    names: Mapping[str, Any]
    appended: tuple[str, ...]
    """Those that stand behind the others in any case."""

    @property
    def tail(self) -> list[str]:
        return [self.fields[name] for name in self.appended]


def selecting(output: ResultFields, of: Sequence[str], own: Own) -> Shape:
    """Return the shape of an output; a field without a place is of the join's own, if it has it."""
    sources = {missing: output.sources(missing) for missing in (None, 0, 1)}
    used: list[list[int]] = [[], []]
    for places in sources.values():
        for place in places:
            if place is not None and place[1] not in used[place[0]]:
                used[place[0]].append(place[1])

    def expression(missing: int | None) -> str:
        parts = []
        for name, several, place in zip(of, output.places, sources[missing], strict=True):
            in_row = None if place is None else (place[0], used[place[0]].index(place[1]))
            parts.append(_source(in_row) if several else own.fields.get(name, "None"))
        return f"[{', '.join([*parts, *own.tail])}]"

    return Shape(
        (_Columns(used[0]), _Columns(used[1])),
        function_of("l, r, t", expression(None), own.names),
        function_of("l, t", expression(1), own.names),
        function_of("r, t", expression(0), own.names),
    )


def merging(merge: Merge, width: int | None, owner: str, own: Own) -> Shape:
    """Return the shape of a function's results; `width` None: one value."""

    def row(left: Any, right: Any) -> list[Any]:
        made = merge(left, right)
        if width is None:
            return [made]
        if not isinstance(made, list | tuple) or len(made) != width:
            raise EmitError(
                f"{owner}: merge returned {made!r:.80}, and the join has {width} outputs",
                hint="return a list with a value for each output",
            )
        return list(made)

    rest = f"*row(%s), {', '.join(own.tail)}"
    known = {**own.names, "row": row}
    return Shape(
        (_tuples, _tuples),
        function_of("l, r, t", f"[{rest % 'l[0], r[0]'}]", known),
        function_of("l, t", f"[{rest % 'l[0], None'}]", known),
        function_of("r, t", f"[{rest % 'None, r[0]'}]", known),
    )


def pairing(merge: Merge | None, own: Own) -> Shape:
    """Return the shape of a key and a pair of values, of rows that are a key and a value."""
    pair = "({}, {})" if merge is None else "merge({}, {})"
    known = {**own.names, "merge": merge}

    def expression(row: str, left: str, right: str) -> str:
        return f"[{', '.join([f'{row}[0]', pair.format(left, right), *own.tail])}]"

    return Shape(
        (_Columns([0, 1]), _Columns([0, 1])),
        function_of("l, r, t", expression("l", "l[1]", "r[1]"), known),
        function_of("l, t", expression("l", "l[1]", "None"), known),
        function_of("r, t", expression("r", "None", "r[1]"), known),
    )


def _tuples(rows: Rows) -> list[Sequence[Any]]:
    return [rows.tuples()]


class _Columns:
    """Keeps some columns of what comes."""

    def __init__(self, places: Sequence[int]) -> None:
        self._places = places

    def __call__(self, rows: Rows) -> list[Sequence[Any]]:
        return [rows.columns[place] for place in self._places]
