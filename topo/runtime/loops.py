"""The generator of bolts' innermost loops: take the next input, do the work on it, again.

Whatever a bolt declares comes here as the text of the work on one input (`topo.columns.LoopText`):
a call of `execute` or of `process`, the code of an operator, appends to columns. The generator
writes what is the same for all of them. Inputs come in three ways: as values of columns; as tuples
that are made of those in the loop itself, attribute by attribute, since that is a fifth cheaper
than calling their class; and as tuples that exist. If the user's code has returned and no reference
to a tuple that was made is left, the tuple gets the next values: no code can see that, and making
an object costs as much as the rest of a loop.

A loop ends with its items, or returns the tuple, if it has one, and the error that ended it; called
again with the same items, it resumes after them. Code is compiled once for each text: the tasks of
a component share it, and so do the tuples of all sources with as many fields.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import length_hint
from types import CodeType
from typing import Any, TypeAlias

from topo.columns import LoopText, field_name
from topo.traces import GENERATED
from topo.tuples import DEFAULT_STREAM, Source, Tuple, tuple_class
from topo.wire.frame import Section

Stopped: TypeAlias = "tuple[Tuple | None, BaseException] | None"
Loop: TypeAlias = Callable[..., Stopped]

LINK = "link"
TUPLE = "tup"

# The work of bolts that get tuples; `keep` gets those that are neither acked nor failed.
EXECUTE = LoopText(["execute(tup)"], makes_tuple=True)
COLLECT = LoopText(["extend(execute(tup))"], makes_tuple=True)
EXECUTE_AND_KEEP = LoopText(["execute(tup)", "if tup._topo_link >= 0: keep(tup)"], makes_tuple=True)

_SIGNATURE = (
    "def loop(items, execute=None, mark=None, emits=None, extend=None, keep=None, cls=cls, "
    "new=new, references=references):"
)
_INDENT = " " * 12

_PROBE = """
def probe(new, cls, references):
    tup = new(cls)
    return references(tup)
"""


@dataclass(frozen=True)
class _Form:
    """The parts that the code of a loop depends on."""

    lines: tuple[str, ...]
    start: tuple[str, ...]
    item: tuple[str, ...]
    """The variables that an item is bound to."""
    slots: tuple[str, ...] | None
    """The attributes of the tuple that the loop makes, one for each variable."""
    marks: bool
    """Whether it notes at each input's end how many emits there are."""

    @classmethod
    def of(cls, text: LoopText, tuples: Any, linked: bool, marks: bool) -> _Form:
        """Return the form of a loop over values, which may make tuples of a class."""
        places = range(len(tuples.fields)) if text.makes_tuple else text.reads
        item = [field_name(place) for place in places]
        slots = [f"_topo_{place}" for place in places]
        if linked or text.reads_link:
            item.append(LINK)
            slots.append("_topo_link")
        attributes = tuple(slots) if text.makes_tuple else None
        return cls(tuple(text.lines), tuple(text.start), tuple(item), attributes, marks)


def compiled_loop(text: LoopText, cls: Any, linked: bool, marks: bool) -> tuple[Loop, int]:
    """Return a loop over values, and the line of its code with which the text begins.

    If the text asks for the tuple, that is of the class; `linked`: its link is the last value of
    an item.
    """
    references = sys.getrefcount if refcounts_are_reliable() else _never_alone
    return _loop(_Form.of(text, cls, linked, marks), text.names, cls, references)


@lru_cache(maxsize=65536)
def loop_over_values(cls: Any, text: LoopText, linked: bool, marks: bool) -> Loop:
    """Return a loop over the items of `values_of`, which makes tuples of a class."""
    return compiled_loop(text, cls, linked, marks)[0]


@lru_cache(maxsize=16)
def loop_over_tuples(text: LoopText, marks: bool) -> Loop:
    """Return a loop over existing tuples."""
    return compiled_loop_over_tuples(text, marks)[0]


def compiled_loop_over_tuples(text: LoopText, marks: bool) -> tuple[Loop, int]:
    """Return a loop over existing tuples, and the line of its code with which the text begins.

    What the text reads, it reads from the tuple.
    """
    reads = "; ".join(f"{field_name(place)} = tup._topo_{place}" for place in text.reads)
    lines = ([reads] if reads else []) + [*text.lines]
    form = _Form(tuple(lines), tuple(text.start), (TUPLE,), None, marks)
    loop, first_line = _loop(form, text.names, None, _never_alone)
    return loop, first_line + (1 if reads else 0)


def _loop(
    form: _Form, names: dict[str, Any], cls: Any, references: Callable[[object], Any]
) -> tuple[Loop, int]:
    code, first_line = _compiled(form)
    namespace = {
        **names,
        "new": object.__new__,
        "cls": cls,
        "references": references,
        "ALONE": _references_to_one_alone(),
    }
    exec(code, namespace)
    loop: Loop = namespace["loop"]
    return loop, first_line


@lru_cache(maxsize=4096)
def _compiled(form: _Form) -> tuple[CodeType, int]:
    lines = [_SIGNATURE, *(f"    {line}" for line in form.start)]
    has_tuple = form.slots is not None or form.item == (TUPLE,)
    if form.slots is not None:
        lines += ["    tup = new(cls)", "    alone = min(references(tup), ALONE)"]
    elif has_tuple:
        lines.append("    tup = None")
    lines += ["    try:", f"        for {', '.join(form.item)} in items:"]
    if form.slots is not None:
        filled = zip(form.slots, form.item, strict=True)
        # In one line, so that the text begins with the same one whatever the tuple's width is.
        lines.append(_INDENT + "; ".join(f"tup.{slot} = {name}" for slot, name in filled))
    first_line = len(lines) + 1
    lines += [_INDENT + line for line in form.lines]
    if form.marks:
        lines.append(f"{_INDENT}mark(len(emits))")
    if form.slots is not None:
        lines.append(f"{_INDENT}if references(tup) != alone: tup = new(cls)")
    lines += [
        "    except BaseException as error:",
        f"        return {TUPLE if has_tuple else None}, error",
        "    return None",
    ]
    return compile("\n".join(lines), GENERATED, "exec"), first_line


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


def _never_alone(tup: object) -> float:
    return math.nan


@cache
def refcounts_are_reliable() -> bool:
    """True iff this Python's reference counts reveal a tuple that was kept: tried, not assumed."""
    cls = tuple_class(Source("", DEFAULT_STREAM, 0, ("number",)), basic=True)
    kept: list[Tuple] = []
    form = _Form.of(EXECUTE, cls, linked=False, marks=False)
    loop, _ = _loop(form, EXECUTE.names, cls, sys.getrefcount)
    loop(iter(range(3)), kept.append)
    return [tup[0] for tup in kept] == [0, 1, 2]


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
