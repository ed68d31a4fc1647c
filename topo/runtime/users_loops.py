"""Loops over columns for the bolts of users, whose `execute` could be rewritten to take values."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from types import FunctionType, MethodType
from typing import Any

from topo.columns import ByColumns, EmitText, LoopText, field_name
from topo.components import BasicBolt
from topo.functions import FunctionBolt
from topo.runtime.column_loops import ColumnEmits, ColumnLoops
from topo.runtime.emitter import Emitter
from topo.runtime.rewriting import Reading, Rewritten, Writing, rewritten


def rewritten_work(
    component: BasicBolt, outlet: Emitter, readings: Iterable[Reading]
) -> dict[Reading, UsersWork]:
    """Return the work of a bolt on each of its inputs that it could be rewritten for."""
    function = _function_of(component)
    if (
        function is None
        or _is_watched()
        or outlet.strict
        or any(s.takes_direct for s in outlet.streams.values())
    ):
        return {}
    is_method = not isinstance(component, FunctionBolt)
    streams = (out for out in outlet.streams.values() if out.width)
    writings = tuple(Writing(out.name, out.index, out.width) for out in streams)
    found = {}
    for reading in readings:
        made = rewritten(
            function,
            reading,
            writings,
            tuple_at=1 if is_method else 0,
            yields=not is_method,
            keeps_order=outlet.keeps_order,
        )
        if made is not None and (made.reads or reading.fields):
            found[reading] = UsersWork(component, function, made)
    return found


def _function_of(component: BasicBolt) -> FunctionType | None:
    """Return the function to rewrite, if it is one that a call would reach directly."""
    if isinstance(component, FunctionBolt):
        function = component.function
        is_generator = inspect.isgeneratorfunction(function) and not component.takes_collector
        return function if isinstance(function, FunctionType) and is_generator else None
    execute = component.execute
    if not isinstance(execute, MethodType) or execute.__self__ is not component:
        return None
    return execute.__func__ if isinstance(execute.__func__, FunctionType) else None


def _is_watched() -> bool:
    """True iff a debugger may look at the tuple in a frame of `execute`."""
    monitoring = getattr(sys, "monitoring", None)  # of Python 3.12
    by_monitoring = monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID)
    return bool(sys.gettrace() or by_monitoring)


class UsersWork(ByColumns):
    """The work of a user's bolt on the tuples of one stream."""

    def __init__(self, component: BasicBolt, function: FunctionType, made: Rewritten) -> None:
        self._component = component
        self._function = function
        self._made = made

    @property
    def emits_columns(self) -> bool:
        return bool(self._made.writes)

    def is_current(self) -> bool:
        """True iff `execute` is still what was rewritten; `prepare` may have replaced it."""
        return _function_of(self._component) is self._function

    def loops(self, outlet: Emitter) -> ColumnLoops:
        return ColumnLoops(self, outlet)

    def loop_text(self, emits: EmitText) -> LoopText:
        assert isinstance(emits, ColumnEmits)
        made = self._made
        given = [] if isinstance(self._component, FunctionBolt) else ["component"]
        given += map(field_name, made.reads)
        for stream in made.writes:
            given += emits.appends(stream)
        if made.writes:
            given += emits.order
        names: dict[str, Any] = {"work": made.function, "component": self._component}
        return LoopText([f"work({', '.join(given)})"], names, made.reads or (0,))
