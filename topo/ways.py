"""The ways to write a bolt, and what its hook asks for.

A bolt has one of three hooks. `execute(self, tup)` gets a tuple: Storm's way, with all of Storm's
calls. `process(self, field, ...)` gets the values of the fields that its parameters name: nothing
has to be made of them, and what the bolt reads stands in its first line. `process_batch(self,
batch)` gets the tuples of a frame as Arrow columns. Which hook it is, and what it asks for, is read
off the class once, so that a wrong name is an error of the topology and not of its first tuple.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from types import CodeType
from typing import Any

from topo.errors import ComponentError, did_you_mean
from topo.tuples import Tuple


class Unanchored(Enum):
    """The type of UNANCHORED."""

    UNANCHORED = "unanchored"

    def __repr__(self) -> str:
        return "topo.UNANCHORED"


UNANCHORED = Unanchored.UNANCHORED
"""Given as `parents`: the rows that are emitted are anchored to no input."""

BY_TUPLE, BY_BATCH, BY_VALUES = HOOKS = ("execute", "process_batch", "process")
"""In the order in which one may call the next for a part of its work."""

TUPLE, COLLECTOR = "tup", "collector"
"""Parameters that are no fields: the tuple itself, and, of a function, the collector."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def hook_of(component: Any) -> str:
    """Return the name of the hook that gets the input of a bolt.

    `execute` is, where a class of the user's has one: a method by another hook's name is a helper
    of it. Raise ComponentError where a class below it has another hook, which nobody calls.
    """
    declared = getattr(component, "hook", "")
    if declared in HOOKS:  # of a function
        return str(declared)
    depths = {name: depth for name in HOOKS if (depth := _depth(component, name)) is not None}
    chosen, *others = [*depths] or [BY_TUPLE]
    for name in others:
        is_helper = chosen == BY_TUPLE and depths[name] >= depths[chosen]
        if not is_helper and not _is_called(component, name):
            raise ComponentError(
                f"{type(component).__name__} has both {chosen} and {name}"
                f"{place_of(getattr(component, name))}, and gets its input by one of them",
                hint="take one away, or give it another name",
            )
    return chosen


def has_tick(component: Any) -> bool:
    """True iff a bolt without `execute` hears of ticks, by a `tick` of its own."""
    return _depth(component, "tick") is not None


def _depth(component: Any, name: str) -> int | None:
    """Return how far up the classes a hook is defined; None if no class of the user's does."""
    if name in vars(component):
        return -1
    for depth, cls in enumerate(type(component).__mro__):
        if name in vars(cls):
            return None if cls.__module__ == "topo.components" else depth
    return None


def _is_called(component: Any, name: str) -> bool:
    """True iff the code of another method names it."""
    return any(
        name in _names_in(code)
        for cls in type(component).__mro__
        if cls.__module__ != "topo.components"
        for method, member in vars(cls).items()
        if method != name and (code := getattr(member, "__code__", None)) is not None
    )


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names_in(inner)


@dataclass(frozen=True)
class Parameter:
    """One parameter of `process`: the field that it names."""

    name: str
    is_optional: bool
    by_keyword: bool
    default: Any = None


@dataclass(frozen=True)
class Argument:
    """What a parameter gets: the value at a place of the input, or a fixed one."""

    keyword: str
    """The name to pass it by; "" for one that is passed by position."""
    place: int | None
    """None: it is the tuple (`is_tuple`), or the fixed value."""
    is_tuple: bool = False
    fixed: Any = None


class Asked:
    """What `process` asks for."""

    def __init__(self, function: Callable[..., Any], name: str, *, takes_collector: bool) -> None:
        self.name = name
        self.place = place_of(function)
        self.special = {TUPLE, COLLECTOR} if takes_collector else {TUPLE}
        """The names of parameters that ask for no field."""
        self.parameters: list[Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in _MANY:
                mark = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else "**"
                raise ComponentError(
                    f"{name} has a parameter {mark}{parameter.name}{self.place}, "
                    "which names no field",
                    hint="name each field; `tup` asks for the whole tuple",
                )
            is_optional = parameter.default is not parameter.empty
            by_keyword = parameter.kind not in _POSITIONAL
            default = parameter.default if is_optional else None
            self.parameters.append(Parameter(parameter.name, is_optional, by_keyword, default))

    @property
    def fields(self) -> list[Parameter]:
        return [parameter for parameter in self.parameters if parameter.name not in self.special]

    @property
    def asks_for_more(self) -> bool:
        """True iff it asks for more than values."""
        return len(self.fields) < len(self.parameters)

    def missing(self, fields: Sequence[str]) -> list[tuple[str, str]]:
        """Return the parameters that need a field which is not there, each with a hint."""
        return [
            (parameter.name, did_you_mean(parameter.name, fields))
            for parameter in self.fields
            if not parameter.is_optional and parameter.name not in fields
        ]

    def refusal(self, fields: Sequence[str], read: str) -> tuple[str, str] | None:
        """Return why an input of these fields is refused, and what to do; None if it is not."""
        missing = self.missing(fields)
        if not missing:
            return None
        names = " and ".join(repr(name) for name, _ in missing)
        names_there = ", ".join(map(repr, fields)) or "none"
        text = f"{self.name} asks for {names}{self.place}, and {read} has the fields {names_there}"
        several = len(missing) > 1
        hints = [f"for {name!r}: {hint}" if several else hint for name, hint in missing if hint]
        other = "a default value makes a parameter optional; `tup` asks for the whole tuple"
        return text, "; ".join(hints) or other

    def arguments(self, fields: Sequence[str], collector: Any = None) -> list[Argument]:
        """Return the arguments for an input of these fields, in the parameters' order."""
        arguments = []
        for parameter in self.parameters:
            keyword = parameter.name if parameter.by_keyword else ""
            if parameter.name in self.special:
                is_tuple = parameter.name == TUPLE
                arguments.append(Argument(keyword, None, is_tuple, None if is_tuple else collector))
            elif parameter.name in fields:
                arguments.append(Argument(keyword, list(fields).index(parameter.name)))
            else:
                arguments.append(Argument(keyword, None, fixed=parameter.default))
        return arguments


def asked_by(component: Any) -> Asked:
    """Return what the `process` of a bolt asks for; raise for a signature that cannot be."""
    function = getattr(component, "function", None)
    if getattr(component, "hook", "") == BY_VALUES and function is not None:
        name = f"@bolt function {function.__name__!r}"
        return Asked(function, name, takes_collector=True)
    return Asked(component.process, BY_VALUES, takes_collector=False)


def asks_for_tuple(function: Callable[..., Any]) -> bool:
    """True iff a function gets a tuple, and perhaps the collector, and names no field."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or any(parameter.kind not in _POSITIONAL for parameter in parameters):
        return False
    if not _is_tuple(parameters[0]):
        return False
    # A name that is bound by a default, as in a loop of definitions, is nobody's field.
    rest = [parameter.name for parameter in parameters[1:] if parameter.default is parameter.empty]
    return not rest or rest[0] == COLLECTOR


def _is_tuple(parameter: inspect.Parameter) -> bool:
    annotated = parameter.annotation
    return parameter.name == TUPLE or annotated is Tuple or annotated in ("Tuple", "topo.Tuple")


def place_of(function: Callable[..., Any]) -> str:
    """Return the line of a function as errors append it: " (bolts.py:7)"; "" if it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
