"""The innermost loops: make a tuple, call the user's code, next.

They are generated for each class of tuples, since making the tuple in the loop itself, attribute by
attribute, is a fifth cheaper than calling its class. A loop ends when its items do, or hands back
the tuple and the error that ended it; called again with the same items it goes on behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

from topo.task.frames import Section
from topo.tuples import Tuple

Stopped: TypeAlias = "tuple[Tuple | None, Exception] | None"
Loop: TypeAlias = Callable[..., Stopped]

# What is done with each tuple. `mark` notes how many emits there are by now, `keep` the tuple.
EXECUTE = "execute(tup)"
EXECUTE_AND_MARK = "execute(tup); mark(len(emits))"
COLLECT = "extend(execute(tup))"
COLLECT_AND_MARK = "extend(execute(tup)); mark(len(emits))"
KEEP_AND_EXECUTE = "keep(tup); execute(tup)"

GENERATED = "<topo loop>"  # where tracebacks say that a loop is from

_PARAMETERS = "items, execute, mark=None, emits=None, extend=None, keep=None"
_FRAME = """
def loop({parameters}, new=object.__new__, cls=cls):
    tup = None
    try:
        for {item} in items:
            {make}
            {body}
    except Exception as error:
        return tup, error
    return None
"""


@lru_cache(maxsize=65536)
def loop_over_values(cls: Any, body: str, linked: bool) -> Loop:
    """A loop over the items of `values_of`."""
    slots = [f"_topo_{index}" for index in range(len(cls.fields))]
    if linked:
        slots.append("_topo_link")
    names = [f"value{index}" for index in range(len(slots))]
    sets = [f"tup.{slot} = {name}" for slot, name in zip(slots, names, strict=True)]
    make = "; ".join(["tup = new(cls)", *sets])
    return _compiled(cls, names[0] if len(names) == 1 else ", ".join(names), make, body)


@lru_cache(maxsize=16)
def loop_over_tuples(body: str) -> Loop:
    """A loop over tuples that are made already."""
    return _compiled(Tuple, "tup", "pass", body)


def _compiled(cls: type[Tuple], item: str, make: str, body: str) -> Loop:
    made: dict[str, Any] = {"cls": cls}
    code = _FRAME.format(parameters=_PARAMETERS, item=item, make=make, body=body)
    exec(compile(code, GENERATED, "exec"), made)
    loop: Loop = made["loop"]
    return loop


def values_of(section: Section, links: Iterable[int] | None) -> Iterator[Any] | None:
    """What a loop makes tuples of, one item each; None where there is nothing to iterate over."""
    columns: list[Iterable[Any]] = [*section.columns]
    if links is not None:
        columns.append(links)
    if not columns:
        return None
    return iter(columns[0]) if len(columns) == 1 else zip(*columns, strict=True)
