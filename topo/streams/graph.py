"""A program of streams as data: operators that read operators.

The builder makes these nodes and nothing runs. An operator without state is compiled into the bolt
of its source (`compile.chains`); one with state becomes a bolt of its own (`process`, `totals`,
`trident`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import KEY_HINT, StreamError, did_you_mean
from topo.operators.aggregates.combiners import Combiner
from topo.operators.aggregates.inputs import Bound
from topo.traces import GENERATED


@dataclass(eq=False)
class Node:
    """One operator: what it is, what it reads, and where the user wrote it."""

    kind: str
    inputs: tuple[Node, ...] = ()
    keyed: bool = False
    """Its elements are pairs of a key and a value."""
    function: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    name: str = ""
    needs_reader: bool = False
    """It is only made if another operator reads it."""

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The fields of its elements, or of their values if it has keys; None if unknown."""
        if self.kind == "window" and not self.keyed:
            return ("key", "start", "end", *self.function)
        if self.kind in _NAMES_FIELDS:
            return _declared(self.options["spout" if self.kind == "stream" else "bolt"])
        if self.kind in _KEEPS_FIELDS:
            known = {node.fields for node in self.inputs}
            return known.pop() if len(known) == 1 else None
        return None

    @property
    def is_by_window(self) -> bool:
        """True iff its elements are pairs whose key is (key, window)."""
        if not self.keyed:
            return False
        if self.kind == "window":
            return True
        return self.kind in _KEEPS_KEYS and all(node.is_by_window for node in self.inputs)

    def make_only_if_read(self) -> None:
        """Leave the operator out of the topology unless another one reads it."""
        self.needs_reader = True

    def check_parallelism(self) -> None:
        """Raise a StreamError if the operator has an impossible number of tasks."""
        tasks = self.options.get("parallelism", 0)
        at_least = 1 if self.kind in ("stream", "repartition", "to", "through") else 0
        if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < at_least:
            raise StreamError(
                f"{self.kind}: parallelism is {tasks!r}; it is a whole number of tasks",
                hint="write parallelism=2"
                + ("" if at_least else "; without it, there are as many as before"),
                at=self.place,
            )

    def check_parts(self) -> None:
        """Raise a StreamError if the operator names a part that its elements do not have."""
        fields = self.inputs[0].fields if self.inputs else None
        if fields is None:
            return
        for name in _parts_of(self.function):
            if name not in fields:
                raise StreamError(
                    f"{self.kind} reads {name!r}, and its elements have "
                    f"{', '.join(map(repr, fields))}",
                    hint=did_you_mean(name, fields),
                    at=self.place,
                )

    def __getstate__(self) -> dict[str, Any]:
        """Leave components out: a chain is pickled with its operators, not with its source."""
        options = {name: of for name, of in self.options.items() if name not in _COMPONENTS}
        return {**vars(self), "options": options}

    def __str__(self) -> str:
        at = f" at {self.place}" if self.place else ""
        return f"{self.kind}{at}"


KEY, VALUE, TIME = "key", "value", "ts"
"""The fields of the tuples that elements travel in."""

GROUPINGS = {"shuffle": "shuffle", "broadcast": "all", "global": "global"}
"""The groupings of topologies by their names in programs of streams."""

_COMPONENTS = {"spout", "bolt", "outside"}
"""The options of an operator that are the user's components, or stores."""
_NAMES_FIELDS = {"stream", "through"}
_KEEPS_FIELDS = {
    "filter", "peek", "branch", "merge", "repartition", "relay", "dedupe", "key_by", "values",
    "with_value", "times",
}  # fmt: skip
_KEEPS_KEYS = {
    "filter", "peek", "branch", "merge", "repartition", "relay", "times", "with_value",
    "map_values", "flat_map_values", "aggregate", "count", "reduce", "fold", "min", "max", "top",
    "collect", "update_state_by_key", "join", "cogroup",
}  # fmt: skip
_MOST_LEVELS = 3  # of objects within an operator's function


def _declared(component: Any) -> tuple[str, ...] | None:
    """Return the fields of a component's default stream, unless it has a single one."""
    declarer = OutputFieldsDeclarer()
    try:
        component.declare_output_fields(declarer)
    except Exception:  # its own error comes when the topology is built
        return None
    stream = declarer.streams.get("default")
    return tuple(stream.fields) if stream is not None and len(stream.fields) > 1 else None


def _parts_of(function: Any, levels: int = _MOST_LEVELS) -> Iterator[str]:
    """Yield the names of the parts that an operator's function reads."""
    if isinstance(function, Part):
        yield function.name
    elif isinstance(function, list | tuple):
        for one in function:
            yield from _parts_of(one, levels)
    elif isinstance(function, Mapping):
        for one in function.values():
            yield from _parts_of(one, levels)
    elif isinstance(function, Bound):
        yield from _parts_of(function.combiner, levels)
    elif isinstance(function, Combiner) and levels:
        if not isinstance(getattr(function, "combiner", None), Combiner):
            yield from (wanted for wanted in function.inputs if isinstance(wanted, str))
        for one in vars(function).values():
            if not isinstance(one, str):
                yield from _parts_of(one, levels - 1)
    elif isinstance(function, ValueReader) and levels:
        yield from _parts_of(function.getters, levels - 1)


def users_place() -> str:
    """Return the first line on the stack outside topo: "orders.py:31"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("topo."):
        frame = frame.f_back
    file = frame.f_code.co_filename.rpartition("/")[2]
    return f"{file}:{frame.f_lineno}"


def check_function(kind: str, function: Any) -> Any:
    """Return the function of an operator; raise if it cannot be called."""
    if not callable(function):
        raise StreamError(
            f"{kind} takes a function; got {function!r}",
            hint=f"write .{kind}(lambda value: ...)",
            at=users_place(),
        )
    return function


def getter(of: str | Callable[[Any], Any] | None, kind: str) -> Any:
    """Return a function that reads a part of a value: by name, by function, or the value itself."""
    if of is None:
        return None
    if isinstance(of, str):
        return Part(of)
    return check_function(kind, of)


def note_unhashable_key(error: BaseException) -> None:
    """Add what to do to an error that topo's own code raised over a key that cannot be one."""
    if type(error) is not TypeError or not str(error).startswith("unhashable type"):
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return
    code, module = trace.tb_frame.f_code, trace.tb_frame.f_globals.get("__name__", "")
    if code.co_filename == GENERATED or module.startswith("topo."):
        error.add_note(f"a key is looked up: {KEY_HINT}")


class ValueReader:
    """The base of what reads several parts of a value."""

    getters: list[Any]


class Part:
    """Reads a named part of a value: a key of a mapping, a field of a record or an attribute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return value[self.name]
        return getattr(value, self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class PartOfValue(Part):
    """Reads a named part of the value of a pair."""

    def __call__(self, pair: Any) -> Any:
        return super().__call__(pair[1])
