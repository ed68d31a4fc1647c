"""Loops over columns for the bolts of users, whose `execute` could be rewritten to take values."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MethodType
from typing import Any

from topo.columns import ByColumns, EmitText, LoopText, field_name
from topo.components import BasicBolt, Bolt
from topo.functions import FunctionBolt
from topo.runtime.column_loops import LINK, ColumnEmits, ColumnLoops
from topo.runtime.emitter import Emitter
from topo.runtime.rewriting import Rewritten, rewritten
from topo.runtime.text_change import Reading, Style, Writing
from topo.tuples import UNTRACKED


class UsersLoops:
    """The loops of one task over its inputs, as far as its bolt could be rewritten for them.

    They are asked for before the bolt is prepared, since its emits have to be bound by then, and
    made after it: `prepare` may have replaced what was rewritten.
    """

    def __init__(
        self,
        component: Bolt | BasicBolt,
        outlet: Emitter,
        readings: Iterable[Reading],
        *,
        tracking: bool,
    ) -> None:
        self._component = component
        self._outlet = outlet
        self._function = _function_of(component)
        self._made: dict[Reading, Rewritten] = {}
        takes_direct = any(out.takes_direct for out in outlet.streams.values())
        if self._function is None or outlet.strict or takes_direct or _is_watched():
            return
        streams = (out for out in outlet.streams.values() if out.width)
        writings = tuple(Writing(out.name, out.index, out.width) for out in streams)
        style = Style(
            tuple_at=0 if isinstance(component, FunctionBolt) else 1,
            yields=isinstance(component, FunctionBolt),
            by_hand=isinstance(component, Bolt),
            tracking=tracking,
            keeps_order=outlet.keeps_order,
        )
        for reading in readings:
            made = rewritten(self._function, reading, writings, style)
            if made is not None and reading.fields:
                self._made[reading] = made

    @property
    def emit_columns(self) -> bool:
        """True iff one of them appends to columns."""
        return any(made.writes for made in self._made.values())

    def loops(
        self, calls: Mapping[str, object], settling: Settling | None = None
    ) -> dict[tuple[str, str], ColumnLoops]:
        """Return the loops by component and stream; none if a call does not reach its port."""
        own = vars(self._component)
        if not all(own.get(name) == call for name, call in calls.items()):
            return {}
        if _function_of(self._component) is not self._function:
            return {}
        for out in self._outlet.streams.values():
            out.is_by_columns = True
        return {
            (reading.component, reading.stream): ColumnLoops(
                _UsersWork(self._component, made, settling), self._outlet
            )
            for reading, made in self._made.items()
        }


def _function_of(component: Bolt | BasicBolt) -> FunctionType | None:
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


class Settling:
    """The calls that hear what a bolt that acks by hand has returned."""

    def __init__(
        self, acked: Callable[[int], None], left: Callable[[int, tuple[str | None] | None], None]
    ) -> None:
        self.acked = acked
        self.left = left


class _UsersWork(ByColumns):
    """The work of a user's bolt on the tuples of one stream."""

    def __init__(
        self, component: Bolt | BasicBolt, made: Rewritten, settling: Settling | None
    ) -> None:
        self._component = component
        self._made = made
        self._settling = settling

    def loop_text(self, emits: EmitText) -> LoopText:
        assert isinstance(emits, ColumnEmits)
        made, settling = self._made, self._settling
        given = [] if isinstance(self._component, FunctionBolt) else ["component"]
        given += map(field_name, made.reads)
        given += [LINK] if settling is not None else []
        for stream in made.writes:
            given += emits.appends(stream)
            given += [emits.parents(stream)] if made.notes_parents else []
        given += emits.order if made.writes else []
        names: dict[str, Any] = {"work": made.function, "component": self._component}
        call = f"work({', '.join(given)})"
        if settling is None:
            return LoopText([call], names, made.reads or (0,))
        names |= {"acked": settling.acked, "left": settling.left}
        lines = [
            f"done = {call}",
            f"if done is True: acked({LINK})",
            f"elif done or {LINK} != {UNTRACKED}: left({LINK}, done)",
        ]
        return LoopText(lines, names, made.reads or (0,), reads_link=True)
