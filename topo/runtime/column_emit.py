"""The emits of a task with one plain stream: they append the values to its columns at once.

A row that waits as a list is made columns again by the flush, which costs more than the list. So
the text of these functions has a name for each column. Their parameters are positional, by the rule
of `ports`; a number of values that does not fit takes the long way, which raises the error.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from topo.runtime.out_streams import OutStream
from topo.runtime.threads import CallsFromThreads
from topo.traces import GENERATED
from topo.tuples import DEFAULT_STREAM

Emit = Callable[..., Any]

_TEXT = """
def emit(values, stream=DEFAULT_STREAM, task_ids=None):
    if (type(values) is list and len(values) == {width} and stream is DEFAULT_STREAM
            and task_ids is None and get_ident() == threads.fast):
        {names}, = values
        {appends}
        return None
    return emit_otherwise(values, stream=stream, task_ids=bool(task_ids))

def emit_values({parameters}, *more, stream=DEFAULT_STREAM):
    if ({last} is not MISSING and not more and stream is DEFAULT_STREAM
            and get_ident() == threads.fast):
        {appends}
        return
    values = [value for value in ({names}, *more) if value is not MISSING]
    emit_values_otherwise(*values, stream=stream)
"""


def column_emits(
    out: OutStream, threads: CallsFromThreads, emit: Emit, emit_values: Emit
) -> tuple[Emit, Emit]:
    """Return `emit` and `emit_values` for a stream; those given are for what is not plain."""
    names = [f"v{place}" for place in range(out.width)]
    text = _TEXT.format(
        width=out.width,
        names=", ".join(names),
        parameters=", ".join(f"{name}=MISSING" for name in names),
        last=names[-1],
        appends="; ".join(f"append{place}({name})" for place, name in enumerate(names)),
    )
    namespace: dict[str, Any] = {
        "DEFAULT_STREAM": DEFAULT_STREAM,
        "MISSING": object(),
        "get_ident": get_ident,
        "threads": threads,
        "emit_otherwise": emit,
        "emit_values_otherwise": emit_values,
        **{f"append{place}": append for place, append in enumerate(out.appends())},
    }
    exec(compile(text, GENERATED, "exec"), namespace)
    return namespace["emit"], namespace["emit_values"]
