"""The output of a join of tuples: which fields of both sides it has, and under which names.

`select` names them: "rate" is the first side's that has it, "rates:rate" that of one component,
and a mapping gives names of its own. Without it all fields come out, the right side's without its
key; `merge` says what happens to a name that both sides have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from topo.errors import JoinError, did_you_mean

Selection: TypeAlias = "Sequence[str] | Mapping[str, str]"
MERGES = ("prefix", "keep-left", "keep-right", "raise")


@dataclass(frozen=True)
class Side:
    """One input of a join: its component, its fields, and those that the result has once."""

    component: str
    fields: tuple[str, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Output:
    """The fields of the result, and for each where it is: (side, position)."""

    names: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    fallbacks: Mapping[int, tuple[int, int]]
    """By position in the output, what stands in if the right side has no row."""

    def rows(self) -> Callable[[Any, Any], list[Any]]:
        """Return the function that makes a result of a left row and a right row or None."""
        matched, unmatched = [], []
        for number, (side, place) in enumerate(self.places):
            matched.append(f"{'ab'[side]}[{place}]")
            if side == 0:
                unmatched.append(f"a[{place}]")
            elif number in self.fallbacks:
                unmatched.append(f"a[{self.fallbacks[number][1]}]")
            else:
                unmatched.append("None")
        code = f"lambda a, b: [{', '.join(unmatched)}] if b is None else [{', '.join(matched)}]"
        made: Callable[[Any, Any], list[Any]] = eval(code)
        return made


def selected(select: Selection, sides: Sequence[Side]) -> Output:
    """Return the output that a selection names; raise a JoinError that names a wrong one."""
    wanted = dict(select) if isinstance(select, Mapping) else dict(zip(select, select, strict=True))
    places = [_place(source, sides) for source in wanted.values()]
    return Output(tuple(wanted), tuple(places), {})


def _place(source: Any, sides: Sequence[Side]) -> tuple[int, int]:
    if not isinstance(source, str):
        raise JoinError(
            f"select names {source!r}, which is no field",
            hint='write select=("amount", "rates:rate")',
        )
    component, _, field = source.rpartition(":")
    for number, side in enumerate(sides):
        if component in ("", side.component, ("left", "right")[number]) and field in side.fields:
            return number, side.fields.index(field)
    known = [
        f"{side.component}:{name}" if component else name for side in sides for name in side.fields
    ]
    inputs = " and ".join(repr(side.component) for side in sides)
    raise JoinError(
        f"select names {source!r}, which neither input has: {inputs} have {', '.join(known)}",
        hint=did_you_mean(source, known),
    )


def merged(merge: str, left: Side, right: Side) -> Output:
    """Return all fields of both sides, clashes being dealt with as `merge` says."""
    own = [name for name in right.fields if name not in right.left_out]
    both = [name for name in own if name in left.fields]
    if merge == "raise" and both:
        raise JoinError(
            f"{left.component!r} and {right.component!r} both have {', '.join(both)}",
            hint='write merge="prefix", "keep-left" or "keep-right", or select=(...)',
        )
    names: list[str] = []
    places: list[tuple[int, int]] = []
    fallbacks: dict[int, tuple[int, int]] = {}
    for place, name in enumerate(left.fields):
        if name in both and merge == "keep-right":
            fallbacks[len(names)] = (0, place)
            places.append((1, right.fields.index(name)))
        else:
            places.append((0, place))
        names.append(f"left_{name}" if name in both and merge == "prefix" else name)
    for name in own:
        if name in both and merge != "prefix":
            continue
        names.append(f"right_{name}" if name in both else name)
        places.append((1, right.fields.index(name)))
    return Output(tuple(names), tuple(places), fallbacks)
