"""Aggregates as they are declared: checked, and their values found in the columns of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topo.errors import WindowError, did_you_mean
from topo.operators.aggregates.combiners import ROW, TIME, Combiner


@dataclass(frozen=True)
class Bound:
    """A combiner, and where its values are: in a stream's tuples, where it says itself."""

    combiner: Combiner
    inputs: tuple[Any, ...]
    merges: bool = False
    """Its values are accumulators, added up before."""
    if_any: bool = False
    """Its first input says whether there is a value; the others are the value."""

    @classmethod
    def of(cls, aggregate: Combiner | Bound) -> Bound:
        """Return a combiner with its own inputs."""
        return aggregate if isinstance(aggregate, Bound) else cls(aggregate, aggregate.inputs)

    @property
    def add(self) -> Callable[[Any, Any], Any]:
        """The function of an accumulator and of the inputs that returns the next accumulator."""
        if self.merges:
            return self.combiner.merge
        return self._add_if_any if self.if_any else self.combiner.add

    @property
    def inline(self) -> tuple[str, str] | None:
        """The source of the first accumulator and of the next; None if it takes calls."""
        if self.merges:
            return self.combiner.inline_merge
        return None if self.if_any else self.combiner.inline

    @property
    def skips_none(self) -> bool:
        return self.combiner.skips_none and not self.merges and not self.if_any

    def _add_if_any(self, acc: Any, value: Any) -> Any:
        is_any, *parts = value
        if not is_any:
            return acc
        return self.combiner.add(acc, parts[0] if len(parts) == 1 else tuple(parts))


def check_aggregates(aggregates: Any) -> dict[str, Bound]:
    """Return the aggregates by name; raise a WindowError if they are none."""
    if not isinstance(aggregates, Mapping) or not aggregates:
        raise WindowError(
            f"aggregates is {aggregates!r}; it takes a dict of names and combiners",
            hint='write aggregates={"views": Count()}',
        )
    for name, combiner in aggregates.items():
        if not isinstance(name, str):
            raise WindowError(f"an aggregate is named {name!r}; it takes a str, an output field")
        if isinstance(combiner, type) or not isinstance(combiner, Combiner | Bound):
            shown = combiner.__name__ if isinstance(combiner, type) else repr(combiner)
            raise WindowError(
                f"aggregate {name!r} is {shown}; it takes an instance of a Combiner",
                hint=f"write {shown}()" if isinstance(combiner, type) else "such as Count()",
            )
    return {
        name: aggregate if isinstance(aggregate, Bound) else Bound.of(aggregate.in_windows())
        for name, aggregate in aggregates.items()
    }


@dataclass(frozen=True)
class OfField:
    """A function of the value of one field, as an input of a combiner: it needs no tuple."""

    field: str
    function: Callable[[Any], Any]


@dataclass(frozen=True)
class AggregateInputs:
    """The places of an aggregate's values in the columns of a stream."""

    getters: tuple[Any, ...]

    @classmethod
    def of(cls, aggregate: Bound, fields: Sequence[str], where: str) -> AggregateInputs:
        """Find the combiner's fields; raise a WindowError that names the one that is missing."""
        getters: list[Any] = []
        for wanted in aggregate.inputs:
            name = wanted.field if isinstance(wanted, OfField) else wanted
            if not isinstance(name, str):
                getters.append(wanted)
                continue
            if name not in fields:
                known = ", ".join(map(repr, fields)) or "none"
                raise WindowError(
                    f"{type(aggregate.combiner).__name__} reads field {name!r}, "
                    f"but {where} has {known}",
                    hint=did_you_mean(name, fields),
                )
            place = fields.index(name)
            getters.append((place, wanted.function) if isinstance(wanted, OfField) else place)
        return cls(tuple(getters))

    def column(
        self,
        columns: Sequence[Sequence[Any]],
        times: Sequence[Any],
        rows: Callable[[], Iterable[Any]],
    ) -> Iterable[Any] | None:
        """Return the values, one for each tuple; None if the combiner needs none."""
        parts: list[Iterable[Any]] = []
        for getter in self.getters:
            if getter is TIME:
                parts.append(times)
            elif getter is ROW:
                parts.append(zip(*columns, strict=True))
            elif isinstance(getter, tuple):
                place, function = getter
                parts.append(map(function, columns[place]))
            elif callable(getter):
                parts.append(map(getter, rows()))
            else:
                parts.append(columns[getter])
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else zip(*parts, strict=True)
