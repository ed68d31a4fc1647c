"""Functions that are written as text: what chains, tables, windows, joins and conditions share.

A call for each tuple costs as much as the work of a small operator, so that what is known when a
topology is built (the operators of a chain, the places of fields) is written into one function.
Closures that call each other took 1.6 times as long, and an operator at a time over a column 1.2
times. The price is that a traceback shows no line of such a function. So each line may have an
owner, the operator that it is of, which `owner_of` finds again from an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from topo.traces import GENERATED

Owner = TypeVar("Owner")


class Code(Generic[Owner]):
    """Lines of a generated function, the names that they use, and the owners of lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.owners: dict[int, Owner] = {}
        """By the place of a line."""
        self.depth = 0
        self._variables = 0

    def line(self, text: str, owner: Owner | None = None) -> None:
        """Add a line; an error in it is the owner's."""
        if owner is not None:
            self.owners[len(self.lines)] = owner
        self.lines.append("    " * self.depth + text)

    def name(self, what: str, value: Any) -> str:
        """Return a name for a value, which begins with what it is."""
        name = f"{what}_{len(self.names)}"
        self.names[name] = value
        return name

    def variable(self) -> str:
        """Return a new variable."""
        self._variables += 1
        return f"v{self._variables}"

    def owner_of(self, error: BaseException) -> Owner | None:
        """Return the owner of the line that raised an error."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != GENERATED:
            trace = trace.tb_next
        return None if trace is None else self.owners.get(trace.tb_lineno - 1)


def functions(text: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a text defines, which may use these names."""
    namespace = dict(names)
    exec(compile(text, GENERATED, "exec"), namespace)
    return namespace


def function_of(parameters: str, expression: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """Return an expression as a function of parameters; it is of topo's own words alone."""
    text = f"lambda {parameters}: {expression}"
    function: Callable[..., Any] = eval(compile(text, GENERATED, "eval"), dict(names))
    return function
