"""Windows over streams: the aggregates of the core, over keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from topo.errors import StreamError
from topo.operators.aggregates.combiners import ROW, TIME, Combiner, TopK, first_value
from topo.operators.aggregates.inputs import Bound, OfField
from topo.streams.graph import Part, ValueReader, getter, users_place
from topo.windows.assigners import Session, Sliding, Tumbling


class OfValue:
    """Reads the input of a combiner out of a tuple of key and value."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, tup: Any) -> Any:
        return self.function(tup.value)


def of_values(window: Any) -> Any:
    """Return the window with its function, of a session, called with a stream's values."""
    if isinstance(window, Session) and callable(window.gap):
        return Session(OfValue(window.gap))
    return window


def on_value(combiner: Combiner, *, if_any: bool = False) -> Bound:
    """Return a combiner over parts of a stream's values, in windows.

    With `if_any` it stands beside aggregates that count None: to this one, None is no value.
    """
    combiner = combiner.in_windows()
    inputs = tuple(map(_of_value, combiner.inputs))
    if not if_any:
        return Bound(combiner, inputs)
    parts = (
        OfField(part.field, _IfAny(part.function)) if isinstance(part, OfField) else part
        for part in inputs
    )
    return Bound(combiner, (OfField("value", _is_any), *parts), if_any=True)


class _IfAny:
    """Calls a function with what is not None."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, value: Any) -> Any:
        return None if value is None else self.function(value)


def _is_any(value: Any) -> bool:
    return value is not None


class Several(Combiner):
    """Several aggregates of the same values."""

    def __init__(self, parts: Iterable[Combiner]) -> None:
        super().__init__(None)
        self.parts = tuple(parts)

    def init(self) -> list[Any]:
        return [part.init() for part in self.parts]

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        for place, part in enumerate(self.parts):
            acc[place] = part.add(acc[place], value)
        return acc


def partial_of_window(aggregates: Mapping[str, Bound], options: Mapping[str, Any]) -> bool:
    """True iff the windows' panes may be added up before the exchange.

    With triggers, sessions, or combiners that look at the time, each value counts by itself.
    """
    return (
        isinstance(options["window"], Tumbling | Sliding)
        and options.get("trigger") is None
        and all(
            part.combiner.mergeable and TIME not in part.combiner.inputs
            for part in aggregates.values()
        )
    )


def added_in_parts(aggregates: Mapping[str, Bound]) -> Combiner:
    """Return the combiner that adds up the values of a pane before the exchange."""
    parts = [Adding(bound.combiner, if_any=bound.if_any) for bound in aggregates.values()]
    return parts[0] if len(parts) == 1 else Several(parts)


def merged_parts(aggregates: Mapping[str, Bound]) -> dict[str, Bound]:
    """Return the aggregates of a window over what `added_in_parts` has added up."""
    places = range(len(aggregates))
    inputs = [OfField("value", itemgetter(place)) for place in places]
    return {
        name: Bound(bound.combiner, (inputs[place] if len(places) > 1 else "value",), merges=True)
        for place, (name, bound) in zip(places, aggregates.items(), strict=True)
    }


def _of_value(wanted: Any) -> Any:
    if wanted is TIME:
        return TIME
    if wanted is ROW:
        return "value"
    return OfField("value", Part(wanted) if isinstance(wanted, str) else wanted)


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
    """A combiner that takes whole values: what it adds is read out of them first.

    With `if_any`, None is no value.
    """

    def __init__(self, combiner: Combiner, *, if_any: bool = False) -> None:
        super().__init__(None)
        self.combiner = combiner
        self.read = ValueOf(combiner)
        self.if_any = if_any

    def init(self) -> Any:
        return self.combiner.init()

    def add(self, acc: Any, value: Any) -> Any:
        if self.if_any and value is None:
            return acc
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
        return first_value(self.first)

    def add(self, acc: Any, value: Any) -> Any:
        return self.function(acc, value)


class Least(Combiner):
    """The value with the lowest or the highest `by`; of equal ones, the first.

    As in `Min` and `Max`, NaN gives way to any other.
    """

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
        is_better = new < old if self.sign < 0 else new > old
        return value if is_better or old != old else acc

    def merge(self, a: Any, b: Any) -> Any:
        if a is NOTHING or b is NOTHING:
            return b if a is NOTHING else a
        return self.add(a, b)

    def result(self, acc: Any) -> Any:
        return None if acc is NOTHING else acc


def check_combiner(combiner: Any) -> None:
    """Raise a StreamError if this is no combiner."""
    if not isinstance(combiner, type) and isinstance(combiner, Combiner):
        return
    hint = "such as Count() or Sum('amount')"
    if isinstance(combiner, type) and issubclass(combiner, Combiner):
        hint = f"write {combiner.__name__}() or {combiner.__name__}('amount')"
    elif isinstance(combiner, Mapping | list | tuple):
        hint = "of windows, write .aggregate(n=Count(), mean=Mean('amount'))"
    raise StreamError(
        f"an aggregate takes an instance of a Combiner; got {combiner!r}",
        hint=hint,
        at=users_place(),
    )


def adding(combiner: Any) -> Combiner:
    """Return the combiner over whole values; raise if it is none, or asks for a time."""
    check_combiner(combiner)
    if TIME in combiner.inputs:
        raise StreamError(
            f"{type(combiner).__name__} goes by event time, and only windows give it times",
            hint=".window(...) before it, or .fold(None, lambda kept, value: ...)",
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
