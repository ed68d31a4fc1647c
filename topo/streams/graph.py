"""A program of streams as data: operators that read operators.

The builder makes these nodes and nothing runs. An operator without state is compiled into the bolt
of its source (`chains`); one with state becomes a bolt of its own (`keyed`, `windowed`, `trident`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topo.errors import StreamError


@dataclass(eq=False)
class Node:
    """One operator: what it is, what it reads, and where the user wrote it."""

    kind: str
    inputs: tuple[Node, ...] = ()
    keyed: bool = False
    """Its elements are pairs of a key and a value."""
    function: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    name: str = ""

    def __str__(self) -> str:
        at = f" at {self.place}" if self.place else ""
        return f"{self.kind}{at}"


def users_place() -> str:
    """Return the first line on the stack outside topo: "orders.py:31"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("topo."):
        frame = frame.f_back
    file = frame.f_code.co_filename.rpartition("/")[2]
    return f"{file}:{frame.f_lineno}"


def check_function(kind: str, function: Any) -> Any:
    """Return the function of an operator; raise if it cannot be called."""
    if not callable(function):
        raise StreamError(
            f"{kind} takes a function; got {function!r}",
            hint=f"write .{kind}(lambda value: ...)",
            at=users_place(),
        )
    return function


def getter(of: str | Callable[[Any], Any] | None, kind: str) -> Any:
    """Return a function that reads a part of a value: by name, by function, or the value itself."""
    if of is None:
        return None
    if isinstance(of, str):
        return Part(of)
    return check_function(kind, of)


class Part:
    """Reads a named part of a value: a key of a mapping, a field of a record or an attribute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return value[self.name]
        return getattr(value, self.name)

    def __repr__(self) -> str:
        return f"Part({self.name!r})"
