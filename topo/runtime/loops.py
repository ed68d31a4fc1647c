"""The innermost loops: make a tuple, call the user's code, next.

They are generated for each class of tuples, since making the tuple in the loop itself, attribute by
attribute, is a fifth cheaper than calling its class. When the user's code has returned and nobody
refers to the tuple any more, it gets the next values: nobody can see that, and making an object
costs as much as all else that a loop does. A loop ends when its items do, or hands back the tuple
and the error that ended it; called again with the same items it goes on behind them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import length_hint
from typing import Any, TypeAlias

from topo.tuples import DEFAULT_STREAM, Source, Tuple, tuple_class
from topo.wire.frame import Section

Stopped: TypeAlias = "tuple[Tuple | None, Exception] | None"
Loop: TypeAlias = Callable[..., Stopped]

# What is done with each tuple. `mark` notes how many emits there are by now; `keep` gets those that
# are neither acked nor failed.
EXECUTE = "execute(tup)"
EXECUTE_AND_MARK = "execute(tup); mark(len(emits))"
COLLECT = "extend(execute(tup))"
COLLECT_AND_MARK = "extend(execute(tup)); mark(len(emits))"
EXECUTE_AND_KEEP = """execute(tup)
            if tup._topo_link >= 0: keep(tup)"""

GENERATED = "<topo loop>"  # where tracebacks say that a loop is from

_PARAMETERS = "items, execute, mark=None, emits=None, extend=None, keep=None"
_OVER_VALUES = """
def loop({parameters}, new=object.__new__, cls=cls, references=references):
    tup = new(cls)
    alone = references(tup)
    try:
        for {item} in items:
            {fill}
            {body}
            if references(tup) != alone: tup = new(cls)
    except (Exception, SystemExit) as error:
        return tup, error
    return None
"""
_OVER_TUPLES = """
def loop({parameters}):
    tup = None
    try:
        for tup in items:
            {body}
    except (Exception, SystemExit) as error:
        return tup, error
    return None
"""


@lru_cache(maxsize=65536)
def loop_over_values(cls: Any, body: str, linked: bool) -> Loop:
    """A loop over the items of `values_of`."""
    if not can_tell_who_is_alone():
        return _loop_over_values(cls, body, linked, lambda tup: object())
    return _loop_over_values(cls, body, linked, sys.getrefcount)


def _loop_over_values(
    cls: Any, body: str, linked: bool, references: Callable[[object], Any]
) -> Loop:
    slots = [f"_topo_{index}" for index in range(len(cls.fields))]
    if linked:
        slots.append("_topo_link")
    names = [f"value{index}" for index in range(len(slots))]
    fill = "; ".join(f"tup.{slot} = {name}" for slot, name in zip(slots, names, strict=True))
    item = names[0] if len(names) == 1 else ", ".join(names)
    return _compiled(_OVER_VALUES, cls=cls, references=references, item=item, fill=fill, body=body)


@cache
def can_tell_who_is_alone() -> bool:
    """Whether this Python's reference counts say that a tuple was kept: tried, not assumed."""
    cls = tuple_class(Source("", DEFAULT_STREAM, 0, ("number",)), basic=True)
    kept: list[Tuple] = []
    _loop_over_values(cls, EXECUTE, False, sys.getrefcount)(iter(range(3)), kept.append)
    return [tup[0] for tup in kept] == [0, 1, 2]


@lru_cache(maxsize=16)
def loop_over_tuples(body: str) -> Loop:
    """A loop over tuples that are made already."""
    return _compiled(_OVER_TUPLES, body=body)


def _compiled(template: str, *, body: str, item: str = "", fill: str = "", **names: Any) -> Loop:
    code = template.format(parameters=_PARAMETERS, item=item, fill=fill, body=body)
    exec(compile(code, GENERATED, "exec"), names)
    loop: Loop = names["loop"]
    return loop


@dataclass
class Values:
    """The values of some tuples, one item each, and how many are left to come."""

    items: Iterator[Any]
    left: Callable[[], int]


def values_of(section: Section, links: Iterable[int] | None) -> Values | None:
    """What a loop makes tuples of; None where there is nothing to iterate over."""
    if not section.columns and links is None:
        return None
    first, *rest = section.columns if links is None else [*section.columns, links]
    items: Any = iter(first)
    return Values(zip(items, *rest, strict=True) if rest else items, partial(length_hint, items))
