"""Bolts that replace their own `execute`, or another call, while they run: a state machine does.

Such a bolt is called by the name each time, and never rewritten. Looking that name up for each
tuple makes the call of any bolt a third dearer (39 ns, and 51), so the code of the class is asked
beforehand. What comes from outside of it, `bolt.execute = other` in another class, counts from the
next frame on.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

_BEFORE_WORK = {"__init__", "__post_init__", "prepare"}
_STORES = {"STORE_ATTR", "DELETE_ATTR"}
_EVERYTHING = ("__class__", "__dict__")
"""Whoever sets one of these replaces every call."""
_BY_TEXT = {"setattr", "delattr", "__setattr__", "__dict__", "vars"}
"""Names of what sets an attribute whose name is a text."""


def replaces(component: object, *names: str) -> bool:
    """Return True if the code of its class may set one of these attributes after `prepare`."""
    cls: Any = type(component)
    return _replaces(cls, frozenset([*names, *_EVERYTHING]))


@lru_cache(maxsize=256)
def _replaces(cls: type, names: frozenset[str]) -> bool:
    return any(
        _sets(code, names)
        for base in cls.__mro__
        if base.__module__.partition(".")[0] not in ("topo", "builtins")
        for name, member in vars(base).items()
        if name not in _BEFORE_WORK
        for code in _codes_of(member)
    )


def _codes_of(member: Any) -> Iterator[CodeType]:
    """Yield the code of a function, of the accessors of a property, and of what is wrapped."""
    for part in (member, *(getattr(member, name, None) for name in ("fget", "fset", "func"))):
        for function in (part, getattr(part, "__wrapped__", None)):
            code = getattr(function, "__code__", None)
            if isinstance(code, CodeType):
                yield code


def _sets(code: CodeType, names: frozenset[str]) -> bool:
    if not names.isdisjoint(code.co_names):
        steps = (step for step in dis.get_instructions(code) if step.opname in _STORES)
        if any(step.argval in names for step in steps):
            return True
    by_text = not _BY_TEXT.isdisjoint(code.co_names)
    return any(
        _sets(value, names) if isinstance(value, CodeType) else by_text and value in names
        for value in code.co_consts
        if isinstance(value, CodeType | str)
    )
