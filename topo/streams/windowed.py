"""Windows over streams: the aggregates of the core, over keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from topo.errors import StreamError
from topo.streams.graph import Part, ValueReader, getter, users_place
from topo.windows.assigners import Sliding, Tumbling
from topo.windows.combiners import ROW, TIME, Combiner, Count, Sum, TopK


class Window(NamedTuple):
    """The bounds of a window, beside the key of its result."""

    start: Any
    end: Any


class OfValue:
    """Reads the input of a combiner out of a tuple of key and value."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, tup: Any) -> Any:
        return self.function(tup.value)


class OnValue(Combiner):
    """A combiner whose fields are parts of a stream's values."""

    def __init__(self, combiner: Combiner) -> None:
        super().__init__(None)
        self.combiner = combiner
        self.init = combiner.init  # type: ignore[method-assign]
        self.add = combiner.add  # type: ignore[method-assign]
        self.result = combiner.result  # type: ignore[method-assign]
        self.exact = combiner.exact  # type: ignore[misc]
        self.inline = combiner.inline  # type: ignore[misc]
        self.skips_none = combiner.skips_none  # type: ignore[misc]
        self.grows = combiner.grows  # type: ignore[misc]

    def merge(self, a: Any, b: Any) -> Any:
        return self.combiner.merge(a, b)

    def subtract(self, whole: Any, part: Any) -> Any:
        return self.combiner.subtract(whole, part)

    def can_subtract(self, acc: Any) -> bool:
        return self.combiner.can_subtract(acc)

    @property
    def mergeable(self) -> bool:
        return self.combiner.mergeable

    @property
    def inputs(self) -> tuple[Any, ...]:
        return tuple(map(_of_value, self.combiner.inputs))


class Merging(Combiner):
    """A combiner over partial aggregates of another one."""

    def __init__(self, combiner: Combiner) -> None:
        super().__init__("value")
        self.combiner = combiner
        self.init = combiner.init  # type: ignore[method-assign]
        self.add = combiner.merge  # type: ignore[method-assign, assignment]
        self.result = combiner.result  # type: ignore[method-assign]
        self.exact = combiner.exact  # type: ignore[misc]
        if isinstance(combiner, Count | Sum):
            self.inline = ("{v}", "{a} + {v}")  # type: ignore[misc]

    def merge(self, a: Any, b: Any) -> Any:
        return self.combiner.merge(a, b)

    def subtract(self, whole: Any, part: Any) -> Any:
        return self.combiner.subtract(whole, part)

    def can_subtract(self, acc: Any) -> bool:
        return self.combiner.can_subtract(acc)


def partial_of_window(combiner: Combiner, options: Mapping[str, Any]) -> bool:
    """True iff the windows' panes may be added up before the exchange.

    With triggers, sessions, or combiners that look at the time, each value counts by itself.
    """
    return (
        isinstance(combiner, OnValue)
        and combiner.mergeable
        and TIME not in combiner.combiner.inputs
        and isinstance(options["window"], Tumbling | Sliding)
        and options.get("trigger") is None
    )


def _of_value(wanted: Any) -> Any:
    if wanted is TIME:
        return TIME
    if wanted is ROW:
        return "value"
    return OfValue(Part(wanted) if isinstance(wanted, str) else wanted)


class ValueOf(ValueReader):
    """Reads what a combiner adds out of a value, outside of windows."""

    def __init__(self, combiner: Combiner) -> None:
        self.getters = [
            None if wanted is ROW else Part(wanted) if isinstance(wanted, str) else wanted
            for wanted in combiner.inputs
        ]

    def __call__(self, value: Any) -> Any:
        parts = [value if get is None else get(value) for get in self.getters]
        return parts[0] if len(parts) == 1 else tuple(parts) if parts else value


class Adding(Combiner):
    """A combiner that takes whole values: what it adds is read out of them first."""

    def __init__(self, combiner: Combiner) -> None:
        super().__init__(None)
        self.combiner = combiner
        self.read = ValueOf(combiner)

    def init(self) -> Any:
        return self.combiner.init()

    def add(self, acc: Any, value: Any) -> Any:
        return self.combiner.add(acc, self.read(value))

    def merge(self, a: Any, b: Any) -> Any:
        return self.combiner.merge(a, b)

    def result(self, acc: Any) -> Any:
        return self.combiner.result(acc)

    @property
    def mergeable(self) -> bool:
        return self.combiner.mergeable


def reads_nothing(combiner: Combiner) -> bool:
    """Return True if the values that are added are not looked at."""
    return isinstance(combiner, Adding) and not combiner.combiner.inputs


def running_step(combiner: Combiner) -> tuple[str, str] | None:
    """Return the source of a combiner's first and next accumulators; None if it needs calls.

    The accumulator has to be the result, and the value is {v}, the accumulator {a}.
    """
    inner = combiner.combiner if isinstance(combiner, Adding) else combiner
    reads_whole = all(wanted is ROW for wanted in inner.inputs)
    gives_itself = type(inner).result is Combiner.result
    return inner.inline if reads_whole and gives_itself else None


class Reduce(Combiner):
    """A function of two values as a combiner."""

    def __init__(self, function: Any) -> None:
        super().__init__(None)
        self.function = function

    def init(self) -> Any:
        return NOTHING

    def add(self, acc: Any, value: Any) -> Any:
        return value if acc is NOTHING else self.function(acc, value)

    def merge(self, a: Any, b: Any) -> Any:
        if a is NOTHING or b is NOTHING:
            return b if a is NOTHING else a
        return self.function(a, b)

    def result(self, acc: Any) -> Any:
        return None if acc is NOTHING else acc


class Fold(Combiner):
    """A first accumulator and a function of accumulator and value as a combiner."""

    def __init__(self, first: Any, function: Any) -> None:
        super().__init__(None)
        self.first = first
        self.function = function

    def init(self) -> Any:
        return self.first() if callable(self.first) else self.first

    def add(self, acc: Any, value: Any) -> Any:
        return self.function(acc, value)


class Least(Combiner):
    """The value with the lowest or the highest `by`; of equal ones, the first."""

    def __init__(self, by: Any, sign: int) -> None:
        super().__init__(None)
        self.by = by
        self.sign = sign

    def init(self) -> Any:
        return NOTHING

    def add(self, acc: Any, value: Any) -> Any:
        if acc is NOTHING:
            return value
        old, new = (acc, value) if self.by is None else (self.by(acc), self.by(value))
        return value if (new < old if self.sign < 0 else new > old) else acc

    def merge(self, a: Any, b: Any) -> Any:
        if a is NOTHING or b is NOTHING:
            return b if a is NOTHING else a
        return self.add(a, b)

    def result(self, acc: Any) -> Any:
        return None if acc is NOTHING else acc


def adding(combiner: Any) -> Combiner:
    """Return the combiner over whole values; raise if it is none."""
    if isinstance(combiner, type) or not isinstance(combiner, Combiner):
        raise StreamError(
            f"an aggregate takes an instance of a Combiner; got {combiner!r}",
            hint="such as Count() or Sum('amount')",
            at=users_place(),
        )
    return Adding(combiner)


def top(n: int, by: Any) -> Combiner:
    """Return the combiner of the n highest values."""
    reads = getter(by, "top")
    whole: Any = ROW
    return TopK(n, by=whole) if reads is None else TopK(n, by=reads, field=whole)


class _Nothing:
    """The accumulator before the first value."""

    def __reduce__(self) -> str:
        return "NOTHING"


NOTHING = _Nothing()
