"""The shape of a join's results: which fields they have, and how rows become one.

A join keeps of each row only what its results need. The functions that make a result are generated
from the places of the selected fields, so that a match costs one call and one list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from topo.errors import EmitError, JoinError, did_you_mean
from topo.operators.inputs import KeyedInput
from topo.timed import InputFields, Rows
from topo.tuples import Fields

Merge: TypeAlias = "Callable[[Any, Any], Any]"
Pick: TypeAlias = "tuple[int, int] | None"
"""The side and the place of a value in a result; None: no side has it."""


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

    def picks(self, of: str, fields: Sequence[Sequence[str]], missing: int | None) -> Pick:
        """Return where a selected field is found, in a result in which a side may be missing.

        A bare name is of the first side that has it; a part of the key is on both, whatever it is
        called there.
        """
        word, colon, name = of.partition(":")
        if colon:
            side = self.side_of(word.strip())
            name = name.strip()
            return (side, fields[side].index(name)) if side != missing else None
        for side in (0, 1):
            if side != missing and of in fields[side]:
                return side, fields[side].index(of)
        for side in (0, 1):
            key = self.inputs[side].key
            if side == missing and of in key:
                other = self.inputs[1 - side].key[key.index(of)]
                return 1 - side, fields[1 - side].index(other)
        return None

    def problem(self, of: str, fields: Sequence[Sequence[str]], own: Sequence[str]) -> str:
        """Return the mistake in a selected field, or ""; `own` are fields of the result."""
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


def selecting(
    select: Mapping[str, str], pair: SidePair, reads: Sequence[InputFields], own: Own
) -> Shape:
    """Return the shape of selected fields."""
    fields = [read.fields for read in reads]
    found = {
        missing: [pair.picks(of, fields, missing) for of in select.values()]
        for missing in (None, 0, 1)
    }
    used: list[list[int]] = [[], []]
    for picks in found.values():
        for pick in picks:
            if pick is not None and pick[1] not in used[pick[0]]:
                used[pick[0]].append(pick[1])

    def expression(missing: int | None) -> str:
        parts = [
            f"{'lr'[pick[0]]}[{used[pick[0]].index(pick[1])}]"
            if pick is not None
            else own.fields.get(of, "None")
            for of, pick in zip(select.values(), found[missing], strict=True)
        ]
        return f"[{', '.join([*parts, *own.tail])}]"

    return Shape(
        (_Columns(used[0]), _Columns(used[1])),
        _function("l, r, t", expression(None), own.names),
        _function("l, t", expression(1), own.names),
        _function("r, t", expression(0), own.names),
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
        _function("l, r, t", f"[{rest % 'l[0], r[0]'}]", known),
        _function("l, t", f"[{rest % 'l[0], None'}]", known),
        _function("r, t", f"[{rest % 'None, r[0]'}]", known),
    )


def pairing(merge: Merge | None, own: Own) -> Shape:
    """Return the shape of a key and a pair of values, of rows that are a key and a value."""
    pair = "({}, {})" if merge is None else "merge({}, {})"
    known = {**own.names, "merge": merge}

    def expression(row: str, left: str, right: str) -> str:
        return f"[{', '.join([f'{row}[0]', pair.format(left, right), *own.tail])}]"

    return Shape(
        (_Columns([0, 1]), _Columns([0, 1])),
        _function("l, r, t", expression("l", "l[1]", "r[1]"), known),
        _function("l, t", expression("l", "l[1]", "None"), known),
        _function("r, t", expression("r", "None", "r[1]"), known),
    )


def all_fields(pair: SidePair, reads: Sequence[InputFields]) -> dict[str, str]:
    """Return the selection of everything: a key of one name once, other clashes with a prefix."""
    left, right = (read.fields for read in reads)
    keys = [one.key for one in pair.inputs]
    same = {mine for mine, other in zip(*keys, strict=True) if mine == other}
    clashes = (set(left) & set(right)) - same
    chosen = {f"left_{name}" if name in clashes else name: f"left:{name}" for name in left}
    chosen = {name: name if name in same else of for name, of in chosen.items()}
    for name in right:
        if name not in same:
            chosen[f"right_{name}" if name in clashes else name] = f"right:{name}"
    return chosen


def _function(arguments: str, expression: str, names: Mapping[str, Any]) -> Any:
    # Made of places and of our own words alone: nothing of the user's is in the text.
    return eval(f"lambda {arguments}: {expression}", dict(names))


def _tuples(rows: Rows) -> list[Sequence[Any]]:
    return [rows.tuples()]


class _Columns:
    """Keeps some columns of what comes."""

    def __init__(self, places: Sequence[int]) -> None:
        self._places = places

    def __call__(self, rows: Rows) -> list[Sequence[Any]]:
        return [rows.columns[place] for place in self._places]
