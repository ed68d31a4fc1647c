"""Loops over columns for the bolts of users, whose hook could be rewritten to append to them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MethodType
from typing import Any

from topo.columns import ByColumns, EmitText, LoopText, field_name
from topo.components import BasicBolt, Bolt
from topo.functions import FunctionBolt
from topo.runtime.column_loops import ColumnEmits, ColumnLoops
from topo.runtime.emitter import Emitter
from topo.runtime.loops import LINK
from topo.runtime.replaced_calls import replaces
from topo.runtime.rewriting import Rewritten, rewritten
from topo.runtime.text_change import Reading, Style, Writing
from topo.tuples import UNTRACKED
from topo.ways import BY_VALUES, Argument, asked_by

CALLS_OF_BASIC = ("emit", "emit_values")
CALLS_BY_HAND = ("emit", "ack", "fail")
"""The calls of bolts that may become appends, as long as they are topo's own."""


class UsersLoops:
    """The loops of one task over its inputs, as far as its bolt could be rewritten for them.

    They are asked for before the bolt is prepared, since its emits have to be bound by then, and
    made after it: `prepare` may have replaced what was rewritten. A bolt whose code may do so later
    is left as it is; whether another one's does is asked before each frame.
    """

    def __init__(
        self,
        component: Bolt | BasicBolt,
        outlet: Emitter,
        readings: Iterable[Reading],
        calls: Iterable[str],
        *,
        hook: str,
        tracking: bool,
    ) -> None:
        self._component = component
        self._outlet = outlet
        self._hook = hook
        self._function = _function_of(component, hook)
        self._asked = asked_by(component) if hook == BY_VALUES else None
        self._made: dict[Reading, Rewritten] = {}
        self._calls: Mapping[str, object] = {}
        self.refusal = self._refusal(calls)
        """Why the bolt runs as it is written; "" if it does not."""
        if self._function is None or self.refusal:
            return
        streams = (out for out in outlet.streams.values() if out.width)
        writings = tuple(Writing(out.name, out.index, out.width) for out in streams)
        is_function = isinstance(component, FunctionBolt)
        style = Style(
            tuple_at=-1 if self._asked is not None else 0 if is_function else 1,
            owner=0 if is_function else 1,
            yields=inspect.isgeneratorfunction(self._function),
            by_hand=isinstance(component, Bolt),
            tracking=tracking,
            keeps_order=outlet.keeps_order,
        )
        for reading in readings:
            made = rewritten(self._function, reading, writings, style)
            if isinstance(made, str):
                self.refusal = self.refusal or made
            elif reading.fields:
                self._made[reading] = made

    def _refusal(self, calls: Iterable[str]) -> str:
        """Return why the bolt is left as it is, whatever its text is."""
        if self._function is None:
            return "its hook is no plain function, or gets the collector"
        if any(out.takes_direct for out in self._outlet.streams.values()):
            return "it emits to single tasks"
        if _is_watched():
            return "a debugger is watching"
        for name in calls:
            defined = next(cls for cls in type(self._component).__mro__ if name in vars(cls))
            if defined.__module__ != "topo.components":
                return f"it has a call of its own, {name}"
        if replaces(self._component, *calls, self._hook, "collector"):
            return "its code may replace its hook or a call"
        if self._asked is not None and self._asked.asks_for_more:
            return "it asks for more than values"
        return ""

    @property
    def emit_columns(self) -> bool:
        """True iff one of them appends to columns."""
        return any(made.writes for made in self._made.values())

    def loops(
        self, calls: Mapping[str, object], settling: Settling | None = None
    ) -> dict[tuple[str, str], ColumnLoops]:
        """Return the loops by component and stream; none if a call does not reach its port."""
        self._calls = calls
        if not self.are_of_what_runs:
            return {}
        for out in self._outlet.streams.values():
            out.is_by_columns = True
        return {
            (reading.component, reading.stream): ColumnLoops(
                _UsersWork(self._component, made, self._passed(reading), settling), self._outlet
            )
            for reading, made in self._made.items()
        }

    def _passed(self, reading: Reading) -> list[Argument] | None:
        """Return the arguments of a `process` for these inputs."""
        return None if self._asked is None else self._asked.arguments(reading.fields)

    @property
    def are_of_what_runs(self) -> bool:
        """True iff the bolt's `execute` and its calls are those that were rewritten."""
        own = vars(self._component)
        return _function_of(self._component, self._hook) is self._function and all(
            own.get(name) == call for name, call in self._calls.items()
        )


def _function_of(component: Bolt | BasicBolt, hook: str) -> FunctionType | None:
    """Return the function to rewrite, if it is one that a call would reach directly."""
    if isinstance(component, FunctionBolt):
        function = component.function
        if not isinstance(function, FunctionType):
            return None
        is_generator = inspect.isgeneratorfunction(function) and not component.takes_collector
        return function if hook == BY_VALUES or is_generator else None
    method = getattr(component, hook)
    if not isinstance(method, MethodType) or method.__self__ is not component:
        return None
    return method.__func__ if isinstance(method.__func__, FunctionType) else None


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
        self,
        component: Bolt | BasicBolt,
        made: Rewritten,
        passed: list[Argument] | None,
        settling: Settling | None,
    ) -> None:
        self._passed = passed
        self._component = component
        self._made = made
        self._settling = settling

    def loop_text(self, emits: EmitText) -> LoopText:
        assert isinstance(emits, ColumnEmits)
        made, settling = self._made, self._settling
        given = [] if isinstance(self._component, FunctionBolt) else ["component"]
        names: dict[str, Any] = {"work": made.function, "component": self._component}
        reads = [*made.reads]
        for number, argument in enumerate(self._passed or ()):
            if argument.place is None:
                names[f"fixed{number}"] = argument.fixed
                given.append(f"fixed{number}")
            else:
                reads.append(argument.place)
                given.append(field_name(argument.place))
        given += map(field_name, made.reads)
        given += [LINK] if settling is not None else []
        for stream in made.writes:
            given += emits.appends(stream)
            given += [emits.parents(stream)] if made.notes_parents else []
        given += emits.order if made.writes else []
        call = f"work({', '.join(given)})"
        if settling is None:
            return LoopText([call], names, reads or (0,))
        names |= {"acked": settling.acked, "left": settling.left}
        lines = [
            f"done = {call}",
            f"if done is True: acked({LINK})",
            f"elif done or {LINK} != {UNTRACKED}: left({LINK}, done)",
        ]
        return LoopText(lines, names, made.reads or (0,), reads_link=True)
