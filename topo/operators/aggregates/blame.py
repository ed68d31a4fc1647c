"""Names the value that an aggregate could not take, by adding again once it has failed.

The loops over columns know neither the aggregate nor the tuple at which one of them raised. What
an own combiner raises speaks for itself, with its traceback; a built-in one did nothing but add or
compare two values, so the message is about those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from topo.errors import KEY_HINT, WindowError, shown, unhashable_key
from topo.operators.aggregates.accumulators import Accumulators, Column
from topo.operators.aggregates.combiners import Combiner

_HINT = "aggregate a function of the tuple, or filter such tuples before"


def blamed(
    error: Exception,
    cells: Accumulators,
    keys: Iterable[Any],
    columns: Sequence[Column],
    asks: bool,
) -> Exception:
    """Return the error to raise for one that came while these tuples were added.

    With `asks`, a condition of the user's may have raised it.
    """
    keys = list(keys)
    odd = unhashable_key(keys)
    if odd is not None:
        text = f"the key of a tuple is {odd[0]}, {odd[1]}, which cannot be a key"
        return WindowError(text, hint=KEY_HINT)
    for name, bound, column in zip(cells.names, cells.aggregates, columns, strict=True):
        combiner = bound.combiner
        if column is None or bound.merges or not _is_built_in(combiner):
            continue
        found: dict[Any, Any] = {}
        for key, value in zip(keys, column, strict=False):
            acc = found[key] if key in found else combiner.init()
            try:
                found[key] = bound.add(acc, value)
            except Exception as again:
                return WindowError(
                    f"aggregate {name!r}, {described(combiner)}, cannot add {shown(value)}, "
                    f"{_a(value)}: {again}",
                    hint=_HINT,
                )
    return unmerged(error, cells, asks)


def unmerged(error: Exception, cells: Accumulators, asks: bool) -> Exception:
    """Return the error to raise for one that came while accumulators were put together."""
    if asks or not all(map(_is_built_in, cells.combiners)):
        return error
    names = " or ".join(
        f"{name!r}, {described(combiner)},"
        for name, combiner in zip(cells.names, cells.combiners, strict=True)
    )
    return WindowError(f"aggregate {names} got values that do not go together: {error}", hint=_HINT)


def described(combiner: Combiner) -> str:
    """Return an aggregate in words: "Sum of 'cost'"."""
    named = ", ".join(repr(wanted) for wanted in combiner.inputs if isinstance(wanted, str))
    return type(combiner).__name__ + (f" of {named}" if named else "")


def _is_built_in(combiner: Combiner) -> bool:
    return type(combiner).__module__ == Combiner.__module__


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
