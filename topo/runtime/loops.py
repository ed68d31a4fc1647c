"""The innermost loops: make a tuple, call the user's code, next.

They are generated for each class of tuples, since making the tuple in the loop itself, attribute by
attribute, is a fifth cheaper than calling its class. If the user's code has returned and no
reference to the tuple is left, the tuple gets the next values: no code can see that, and making an
object costs as much as the rest of a loop. A loop ends with its items, or returns the tuple and the
error that ended it; called again with the same items, it resumes after them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import length_hint
from typing import Any, TypeAlias

from topo.traces import GENERATED
from topo.tuples import DEFAULT_STREAM, Source, Tuple, tuple_class
from topo.wire.frame import Section

Stopped: TypeAlias = "tuple[Tuple | None, BaseException] | None"
Loop: TypeAlias = Callable[..., Stopped]

# The work on each tuple. `mark` notes how many emits there are by now; `keep` gets the tuples that
# are neither acked nor failed.
EXECUTE = "execute(tup)"
EXECUTE_AND_MARK = "execute(tup); mark(len(emits))"
COLLECT = "extend(execute(tup))"
COLLECT_AND_MARK = "extend(execute(tup)); mark(len(emits))"
EXECUTE_AND_KEEP = """execute(tup)
            if tup._topo_link >= 0: keep(tup)"""


_PARAMETERS = "items, execute, mark=None, emits=None, extend=None, keep=None"
_OVER_VALUES = """
def loop({parameters}, new=object.__new__, cls=cls, references=references):
    tup = new(cls)
    alone = min(references(tup), ALONE)
    try:
        for {item} in items:
            {fill}
            {body}
            if references(tup) != alone: tup = new(cls)
    except BaseException as error:
        return tup, error
    return None
"""
_OVER_TUPLES = """
def loop({parameters}):
    tup = None
    try:
        for tup in items:
            {body}
    except BaseException as error:
        return tup, error
    return None
"""


_PROBE = """
def probe(new, cls, references):
    tup = new(cls)
    return references(tup)
"""


@cache
def _references_to_one_alone() -> int:
    """Return how many references a loop sees to a tuple that nobody else has.

    In a loop it may see more of them: a tracer that looked at its frame left one behind, which goes
    when the tracer does. By that count a kept tuple would later look as if nobody had it.
    """
    names: dict[str, Any] = {}
    exec(compile(_PROBE, GENERATED, "exec"), names)
    count: int = names["probe"](object.__new__, Tuple, sys.getrefcount)
    return count


@lru_cache(maxsize=65536)
def loop_over_values(cls: Any, body: str, linked: bool) -> Loop:
    """Return a loop over the items of `values_of`."""
    return _loop_over_values(cls, body, linked, tuple_making_names()["references"])


def tuple_making_names() -> dict[str, Any]:
    """Return the names by which a generated loop makes a tuple, and fills it again."""
    return {
        "new": object.__new__,
        "references": sys.getrefcount if refcounts_are_reliable() else _never_alone,
        "ALONE": _references_to_one_alone(),
    }


def _loop_over_values(
    cls: Any, body: str, linked: bool, references: Callable[[object], Any]
) -> Loop:
    slots = [f"_topo_{index}" for index in range(len(cls.fields))]
    if linked:
        slots.append("_topo_link")
    names = [f"value{index}" for index in range(len(slots))]
    fill = "; ".join(f"tup.{slot} = {name}" for slot, name in zip(slots, names, strict=True))
    item = names[0] if len(names) == 1 else ", ".join(names)
    return _compiled(
        _OVER_VALUES,
        cls=cls,
        references=references,
        ALONE=_references_to_one_alone(),
        item=item,
        fill=fill,
        body=body,
    )


def _never_alone(tup: object) -> float:
    return math.nan


@cache
def refcounts_are_reliable() -> bool:
    """True iff this Python's reference counts reveal a tuple that was kept: tried, not assumed."""
    cls = tuple_class(Source("", DEFAULT_STREAM, 0, ("number",)), basic=True)
    kept: list[Tuple] = []
    _loop_over_values(cls, EXECUTE, False, sys.getrefcount)(iter(range(3)), kept.append)
    return [tup[0] for tup in kept] == [0, 1, 2]


@lru_cache(maxsize=16)
def loop_over_tuples(body: str) -> Loop:
    """Return a loop over existing tuples."""
    return _compiled(_OVER_TUPLES, body=body)


def _compiled(template: str, *, body: str, item: str = "", fill: str = "", **names: Any) -> Loop:
    code = template.format(parameters=_PARAMETERS, item=item, fill=fill, body=body)
    exec(compile(code, GENERATED, "exec"), names)
    loop: Loop = names["loop"]
    return loop


@dataclass
class Values:
    """The values of some tuples, one item each, and the number of items that are left."""

    items: Iterator[Any]
    left: Callable[[], int]


def values_of(section: Section, links: Iterable[int] | None) -> Values | None:
    """Return the values that a loop makes tuples of, or None if there is no column."""
    if not section.columns and links is None:
        return None
    first, *rest = section.columns if links is None else [*section.columns, links]
    items: Any = iter(first)
    return Values(zip(items, *rest, strict=True) if rest else items, partial(length_hint, items))
