"""Expressions over tables with the same key: joins, filters and functions, as a tree.

The tree is data, so that it travels with the bolt. In a task it becomes one generated function over
the keys that a batch has changed: for each key it takes the rows before and after the batch from
every table, computes the result of both, and says what has changed. A join is thus recomputed from
both sides' rows, whichever of them changed, and a row that comes and goes within a batch is not
seen at all.

The time of a result is the highest of its sides: that of the change, and of each row that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from topo.operators.codegen import Code, functions

Function: TypeAlias = Callable[..., Any]

INNER, LEFT, RIGHT, OUTER = "inner", "left", "right", "outer"
_NEEDS = {INNER: "{0} is None or {1} is None", LEFT: "{0} is None", RIGHT: "{1} is None",
          OUTER: "{0} is None and {1} is None"}  # fmt: skip

NO_TIME = -(1 << 63)
"""The time of a row that is not there."""


@dataclass(frozen=True)
class TableRows:
    """The rows of the table with this number."""

    number: int


@dataclass(frozen=True)
class Projection:
    """The function's result for each row; None for none."""

    of: Expression
    function: Function
    label: str = ""


@dataclass(frozen=True)
class Filter:
    """The rows for which a predicate of key and row holds."""

    of: Expression
    predicate: Function
    label: str = ""


@dataclass(frozen=True)
class Join:
    """The rows of two tables with the same key; without a function, pairs."""

    left: Expression
    right: Expression
    how: str
    function: Function | None = None
    label: str = ""


Expression: TypeAlias = TableRows | Projection | Filter | Join

Changed: TypeAlias = Callable[..., None]


@dataclass(frozen=True)
class GeneratedCode:
    """The functions of a tree, in this process."""

    changed: Changed
    """`changed(keys, out, [known, fresh] of each source)` appends [key, old, new, ts] to `out`."""
    value: Function
    """`value(key, [row] of each source)` returns the result."""
    code: Code[str]

    def name_operator(self, error: BaseException) -> None:
        """Add to an error which operator of the program raised it."""
        label = self.code.owner_of(error)
        if label:
            error.add_note(f"in {label}")


def compiled(tree: Expression, sources: int, *, plain: bool, unchanged: bool) -> GeneratedCode:
    """Generate the functions of a tree; with `unchanged`, equal results come out too.

    The rows of `plain` sources have no times.
    """
    writer = _Writer()
    numbers = range(sources)
    pairs = "".join(f", get{n}, fresh{n}" for n in numbers)
    writer.line(f"def changed(keys, out{pairs}):")
    writer.depth = 1
    writer.line("add = out.append")
    writer.line("for key in keys:")
    writer.depth = 2
    for n in numbers:
        if plain:
            writer.line(f"a{n} = get{n}(key)")
            writer.line(f"b{n} = fresh{n}(key, a{n})")
            continue
        writer.line(f"row = get{n}(key)")
        writer.line(f"a{n} = None if row is None else row[0]")
        writer.line(f"new = fresh{n}(key)")
        writer.line("if new is None:")
        writer.line(f"    b{n} = a{n}")
        writer.line(f"    t{n} = NO_TIME if a{n} is None else row[1]")
        writer.line("else:")
        writer.line(f"    b{n}, t{n} = new")
    before = writer.expression(tree, "a")
    after = writer.expression(tree, "b")
    skip = f"{before} is None and {after} is None"
    if unchanged:
        writer.line(f"if {skip}: continue")
    else:
        writer.line(f"if {before} is {after}: continue")
        writer.line(f"if type({before}) is type({after}) and same({before}, {after}): continue")
    times = ", ".join(f"t{n}" for n in numbers)
    ts = "NO_TIME" if plain else f"max({times})" if sources > 1 else "t0"
    writer.line(f"add([key, {before}, {after}, {ts}])")
    writer.depth = 0
    arguments = "".join(f", b{n}" for n in numbers)
    writer.line(f"def value(key{arguments}):")
    writer.depth = 1
    result = writer.expression(tree, "b")
    writer.line(f"return {result}")
    names = {**writer.names, "same": same, "NO_TIME": NO_TIME}
    generated = functions("\n".join(writer.lines), names)
    return GeneratedCode(generated["changed"], generated["value"], writer)


def same(before: Any, after: Any) -> bool:
    """Return True if two results are equal; what cannot be compared is not."""
    if type(before) is not type(after):
        return False
    try:
        return bool(before == after)
    except Exception:  # arrays, for one, have no truth
        return False


class _Writer(Code[str]):
    """A writer of the text of a tree; the owners of lines are the labels of operators."""

    def expression(self, tree: Expression, letter: str) -> str:
        """Write the lines that compute a tree; return the variable of the result."""
        if isinstance(tree, TableRows):
            return f"{letter}{tree.number}"
        result = self.variable()
        if isinstance(tree, Join):
            left, right = self.expression(tree.left, letter), self.expression(tree.right, letter)
            call = f"({left}, {right})"
            if tree.function is not None:
                call = f"{self.name('function', tree.function)}{call}"
            lacks = _NEEDS[tree.how].format(left, right)
            self.line(f"{result} = None if {lacks} else {call}", tree.label)
            return result
        of = self.expression(tree.of, letter)
        if isinstance(tree, Projection):
            call = f"{self.name('function', tree.function)}({of})"
            self.line(f"{result} = None if {of} is None else {call}", tree.label)
        else:
            call = f"{self.name('predicate', tree.predicate)}(key, {of})"
            self.line(f"{result} = {of} if {of} is not None and {call} else None", tree.label)
        return result
