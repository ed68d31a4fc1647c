"""Functions as bolts: the decorator `@bolt`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topo.components import BasicBolt, Outputs
from topo.errors import ComponentError, shown
from topo.tuples import Tuple
from topo.ways import BY_TUPLE, BY_VALUES, asks_for_tuple


class FunctionBolt(BasicBolt):
    """A stateless bolt made from a function by `@bolt`."""

    stateless = True

    def __init__(self, function: Callable[..., Any], outputs: Outputs) -> None:
        by_tuple = asks_for_tuple(function)
        parameters = _positional_parameters(function)
        if (by_tuple and len(parameters) > 2) or not inspect.signature(function).parameters:
            raise ComponentError(
                f"@bolt function {function.__name__!r} takes {len(parameters)} parameters",
                hint="write def name(field, ...), whose parameters are fields of its input, "
                "def name(tup) or def name(tup, collector)",
                at=_place(function),
            )
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ComponentError(
                f"@bolt function {function.__name__!r} is a coroutine",
                hint="write it with def, for nobody awaits it; docs/guide/asyncio.md has a remedy",
                at=_place(function),
            )
        functools.update_wrapper(self, function)
        self.function = function
        self.outputs = outputs
        self.takes_collector = by_tuple and len(parameters) == 2
        self.hook = BY_TUPLE if by_tuple else BY_VALUES

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def execute(self, tup: Tuple) -> None:
        made = self.function(tup, self.collector) if self.takes_collector else self.function(tup)
        for values in self.checked_result(made):
            self.emit(values)

    def process(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def checked_result(self, made: Any) -> Iterable[Any]:
        """Return the function's result as an iterable of value lists; refuse a list of them."""
        if made is None:
            return ()
        if isinstance(made, list | tuple | str | bytes | Mapping) or not hasattr(made, "__next__"):
            raise ComponentError(
                f"@bolt function {self.function.__name__!r} returned {_short(made)}",
                hint="yield value lists (yield [word]), or return an iterator of them or None",
                at=_place(self.function),
            )
        iterator: Iterable[Any] = made
        return iterator

    def __reduce__(self) -> str | tuple[object, ...]:
        """Pickle by name, as functions do, if the name resolves to this object."""
        found: Any = sys.modules.get(self.function.__module__)
        for name in self.function.__qualname__.split("."):
            found = getattr(found, name, None)
        return self.function.__qualname__ if found is self else self.taken_apart()

    def taken_apart(self) -> tuple[object, ...]:
        return (FunctionBolt, (self.function, self.outputs))

    def __repr__(self) -> str:
        return f"<bolt {self.function.__qualname__}>"


def bolt(outputs: Outputs = ()) -> Callable[[Callable[..., Any]], FunctionBolt]:
    """Make a bolt of a function that yields rows, or returns one.

    Its parameters are fields of the input; `tup` gets the tuple, and `collector` the collector.
    """
    if callable(outputs):
        raise ComponentError("@bolt needs its outputs", hint='write @bolt(outputs=("word",))')
    return lambda function: FunctionBolt(function, outputs)


def _positional_parameters(function: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in kinds and p.default is p.empty]


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _short(value: object) -> str:
    return f"a {type(value).__name__}: {shown(value, 60)}"
