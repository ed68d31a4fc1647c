"""The user's hook, written anew to take values of fields and to append to columns.

Much of what a small bolt costs is the tuple object, its attributes, the list and the call of each
emit. Where the text of `execute` shows that it only reads fields of its tuple, its code is compiled
once more: a field read becomes a parameter, `self.emit([a, b])` becomes an append to a column for
each value, `yield [a, b]` of a function too. A `process` takes values as it is written; what it
emits, yields and returns becomes appends. A bolt that anchors and acks by hand gets the link of
its input beside the values, and `self.ack(tup)` becomes what it returns, if nothing comes after it:
no statement, and no end of a `with`, a `try` or a loop around it.
The rest stays as it is, with its lines, names, globals and closure, so that what it does and how
its errors read is the same.

`tests/property/test_rewriting_laws.py` compares both ways. Whatever is not understood, or would be
seen (`locals()`, a debugger, a tuple that is passed on), leaves the bolt as it was written; so does
text that no longer is that of the code which runs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from inspect import (
    CO_ASYNC_GENERATOR,
    CO_COROUTINE,
    CO_GENERATOR,
    CO_VARARGS,
    CO_VARKEYWORDS,
)
from types import CodeType, FunctionType
from typing import Any

from topo.runtime.function_text import compiled, definition_of, names_in
from topo.runtime.text_change import OWN, NotUnderstood, Reading, Style, TextChange, Writing

_NOT_PLAIN = CO_VARARGS | CO_VARKEYWORDS | CO_COROUTINE | CO_ASYNC_GENERATOR


@dataclass(frozen=True)
class Rewritten:
    """The code of `execute` that takes values, and what it is to be called with.

    The parameters are those of the original without the tuple; the values of the fields at `reads`;
    by hand, the input's link; for each stream of `writes` the appends to its columns and, by hand
    and tracked, to its parents; and that to the order of emits if there is a common one. By hand,
    it returns True for an input that is acked, (reason,) for one that failed, else None.
    """

    function: FunctionType
    reads: tuple[int, ...]
    writes: tuple[str, ...]
    notes_parents: bool = False


def rewritten(
    function: FunctionType,
    reading: Reading,
    writings: tuple[Writing, ...],
    style: Style,
) -> Rewritten | str:
    """Return the function that takes values in place of its tuple, or why there is none."""
    code = function.__code__
    asked = (reading, writings, style)
    key = (code, code.co_filename, function.__qualname__, asked)  # equal code may be of two files
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:  # of classes that are made anew, as in tests
            _known.clear()
        _known[key] = _rewritten(function, *asked)
    made = _known[key]
    if isinstance(made, str):
        return made
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in made.code.co_freevars)
    new = FunctionType(made.code, function.__globals__, function.__name__, None, closure)
    return Rewritten(new, made.reads, made.writes, style.notes_parents)


@dataclass(frozen=True)
class _NewCode:
    code: CodeType
    reads: tuple[int, ...]
    writes: tuple[str, ...]


_known: dict[Any, _NewCode | str] = {}
"""All that was asked for: tasks of one component ask for the same."""
_MOST_KNOWN = 1000


def _rewritten(
    function: FunctionType,
    reading: Reading,
    writings: tuple[Writing, ...],
    style: Style,
) -> _NewCode | str:
    code = function.__code__
    by_tuple = style.tuple_at >= 0
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    plain = not (code.co_kwonlyargcount or code.co_posonlyargcount or function.__defaults__)
    if (by_tuple and not plain) or code.co_flags & _NOT_PLAIN or "__class__" in code.co_freevars:
        return "its parameters are not plain, or it calls super()"
    if bool(code.co_flags & CO_GENERATOR) != style.yields or style.tuple_at >= len(parameters):
        return "it has no parameter for its tuple"
    if any(name.startswith(OWN) for name in names_in(code)):
        return "it uses names that are reserved"
    definition = definition_of(function)
    if definition is None:
        return "its text is not there, or not that of the code which runs"
    tup = parameters[style.tuple_at] if by_tuple else ""
    others = [name for name in parameters[: code.co_argcount] if name != tup]
    values: list[str] = []
    if not by_tuple:
        others, values = list(parameters[: style.owner]), list(parameters[style.owner :])
    streams = {writing.stream: writing for writing in writings}
    work = TextChange(tup, others, values, reading, streams, style)
    try:
        new = compiled(work.definition(copy.deepcopy(definition)), function)
    except NotUnderstood as error:
        return f"it {error}"
    except (SyntaxError, RecursionError):
        return "its text cannot be compiled"
    if by_tuple and tup in names_in(new):
        return "it passes its tuple on"
    new = new.replace(co_qualname=code.co_qualname)
    return _NewCode(new, tuple(sorted(work.reads)), tuple(work.writes))
