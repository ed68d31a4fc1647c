"""The emits of a task with one plain stream: they append the values to its columns at once.

A row that waits as a list is made columns again by the flush, which costs more than the list. So
the text of these functions has a name for each column. Their parameters are positional, by the rule
of `ports`; a number of values that does not fit takes the long way, which raises the error. What a
row comes of, its anchors or its message id, is noted beside the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from topo.runtime.out_streams import OutStream
from topo.runtime.threads import CallsFromThreads
from topo.traces import GENERATED
from topo.tuples import DEFAULT_STREAM

Emit = Callable[..., Any]

_EMIT = """
def emit(values, stream=DEFAULT_STREAM, {parameter}task_ids=None):
    if (type(values) is list and len(values) == {width} and stream is DEFAULT_STREAM
            and task_ids is None and get_ident() == threads.fast):
        {names}, = values
        {note}
        {appends}
        return None
    return emit_otherwise(values, stream=stream, {argument}task_ids=bool(task_ids))
"""
_EMIT_VALUES = """
def emit_values({parameters}, *more, stream=DEFAULT_STREAM):
    if ({last} is not MISSING and not more and stream is DEFAULT_STREAM
            and get_ident() == threads.fast):
        {appends}
        return
    values = [value for value in ({names}, *more) if value is not MISSING]
    emit_values_otherwise(*values, stream=stream)
"""


@dataclass(frozen=True)
class Origin:
    """The way in which an emit says what its row comes of."""

    parameter: str = ""
    note: str = "pass"
    """The statement that notes it, in one line or in indented ones."""
    names: dict[str, Any] = field(default_factory=dict)


def column_emit(
    out: OutStream, threads: CallsFromThreads, emit_otherwise: Emit, origin: Origin
) -> Emit:
    """Return `emit` for a stream; the one given is for what is not plain."""
    names = {"emit_otherwise": emit_otherwise, **origin.names}
    parameter = origin.parameter
    emit: Emit = _compiled(
        _EMIT,
        out,
        threads,
        names,
        parameter=f"{parameter}=None, " if parameter else "",
        argument=f"{parameter}={parameter}, " if parameter else "",
        note=origin.note.replace("\n", "\n" + " " * 8),
    )["emit"]
    return emit


def column_emit_values(
    out: OutStream, threads: CallsFromThreads, emit_values_otherwise: Emit
) -> Emit:
    """Return `emit_values` for a stream; the one given is for what is not plain."""
    names = {"emit_values_otherwise": emit_values_otherwise, "MISSING": object()}
    emit_values: Emit = _compiled(_EMIT_VALUES, out, threads, names)["emit_values"]
    return emit_values


def _compiled(
    template: str, out: OutStream, threads: CallsFromThreads, names: dict[str, Any], **parts: str
) -> dict[str, Any]:
    values = [f"v{place}" for place in range(out.width)]
    text = template.format(
        width=out.width,
        names=", ".join(values),
        parameters=", ".join(f"{value}=MISSING" for value in values),
        last=values[-1],
        appends="; ".join(f"append{place}({value})" for place, value in enumerate(values)),
        **parts,
    )
    namespace: dict[str, Any] = {
        "DEFAULT_STREAM": DEFAULT_STREAM,
        "get_ident": get_ident,
        "threads": threads,
        **names,
        **{f"append{place}": append for place, append in enumerate(out.appends())},
    }
    exec(compile(text, GENERATED, "exec"), namespace)
    return namespace
