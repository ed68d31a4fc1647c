"""Calls of `process`, which gets the values of the fields that it names.

Over the columns of a frame the call stands in a loop (`column_loops`), and no tuple is made unless
it is asked for. Where inputs are tuples already, as in the test kit, those of several streams and
those that are traced, the same arguments are read from the tuple.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from topo.collectors import BasicOutputCollector
from topo.columns import ByColumns, EmitText, LoopText, field_name
from topo.components import BasicBolt
from topo.errors import EmitTypeError, shown
from topo.runtime.replaced_calls import replaces
from topo.tuples import Tuple
from topo.ways import BY_VALUES, Argument, asked_by


class ProcessCalls:
    """The calls of argument bolt's `process`, and of `emit` for the rows that it yields or returns.

    `prepare` has run: it may have replaced either.
    """

    def __init__(self, component: BasicBolt, collector: BasicOutputCollector, owner: str) -> None:
        self.asked = asked_by(component)
        self.function: Callable[..., Any] = getattr(component, "function", component.process)
        if replaces(component, BY_VALUES):
            self.function = lambda *args, **kwargs: component.process(*args, **kwargs)
        self.emit: Callable[[Any], object] = component.emit
        self.yields = inspect.isgeneratorfunction(inspect.unwrap(self.function))
        self._collector = collector
        self._owner = owner
        self._arguments: dict[tuple[str, ...], list[Argument]] = {}

    def __call__(self, tup: Tuple) -> None:
        """Process a tuple."""
        args, kwargs = [], {}
        for argument in self.arguments(tuple(tup.fields)):
            value = argument.fixed
            if argument.is_tuple:
                value = tup
            elif argument.place is not None:
                value = tup[argument.place]
            if argument.keyword:
                kwargs[argument.keyword] = value
            else:
                args.append(value)
        self.take(self.function(*args, **kwargs))

    def arguments(self, fields: tuple[str, ...]) -> list[Argument]:
        """Return the arguments for a tuple of these fields."""
        if fields not in self._arguments:
            self._arguments[fields] = self.asked.arguments(fields, self._collector)
        return self._arguments[fields]

    def take(self, result: Any) -> None:
        """Emit what `process` has returned: a row, an iterator of rows, or nothing."""
        if result is None:
            return
        if isinstance(result, list | tuple):
            self.emit(result)
        elif hasattr(result, "__next__"):
            for row in result:
                self.emit(row)
        else:
            hint = "return a row, a list or tuple of values; or yield rows"
            if isinstance(result, str | bytes):
                hint = f"a row of argument value is [{shown(result)}]"
            text = f"{self.asked.name} of {self._owner} returned a {type(result).__name__}"
            raise EmitTypeError(f"{text}: {shown(result)}", hint=hint)


class ProcessWork(ByColumns):
    """The work of `process` on the tuples of argument stream, with these fields.

    `appends` are those to the columns of its stream, if a row goes there; otherwise it is emitted.
    """

    def __init__(
        self,
        calls: ProcessCalls,
        fields: tuple[str, ...],
        appends: Sequence[Callable[[Any], None]] = (),
    ) -> None:
        self._calls = calls
        self._arguments = calls.arguments(fields)
        self._appends = appends

    def loop_text(self, emits: EmitText) -> LoopText:
        calls = self._calls
        names: dict[str, Any] = {"process": calls.function, "take": calls.take}
        names |= {"put": calls.emit}
        passed, reads = [], []
        for number, argument in enumerate(self._arguments):
            value = f"fixed{number}"
            if argument.is_tuple:
                value = "tup"
            elif argument.place is not None:
                value = field_name(argument.place)
                reads.append(argument.place)
            else:
                names[value] = argument.fixed
            passed.append(f"{argument.keyword}={value}" if argument.keyword else value)
        call = f"process({', '.join(passed)})"
        if calls.yields and self._appends:
            lines = self._rows_to_columns(call)
            names |= {f"append{place}": append for place, append in enumerate(self._appends)}
        elif calls.yields:
            lines = [f"for row in {call}: put(row)"]
        else:
            lines = [f"result = {call}", "if result is not None: take(result)"]
        by_tuple = any(argument.is_tuple for argument in self._arguments)
        return LoopText(lines, names, reads or (0,), makes_tuple=by_tuple)

    def _rows_to_columns(self, call: str) -> list[str]:
        """Return the lines that append what `process` yields; an odd row is emitted, or refused."""
        width = len(self._appends)
        values = [f"value{place}" for place in range(width)]
        appends = "; ".join(f"append{place}({value})" for place, value in enumerate(values))
        return [
            f"for row in {call}:",
            "    kind = type(row)",
            f"    if (kind is tuple or kind is list) and len(row) == {width}:",
            f"        {', '.join(values)}, = row",
            f"        {appends}",
            "    else: put(row)",
        ]
