"""The parts that all connectors share: loading a client, checking arguments, bad records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal, TypeAlias

from topo.distribution import load_client as load_client
from topo.errors import ComponentError, did_you_mean
from topo.tuples import Tuple

Guarantee: TypeAlias = Literal["none", "at_least_once", "by_batch", "exactly_once"]
OnBad: TypeAlias = Literal["stop", "stream", "skip"]

BAD_FIELDS = ("raw", "error", "where")
REJECTED_FIELDS = ("values", "error")


def check_choice(connector: str, name: str, value: object, choices: Iterable[object]) -> None:
    """Raise ComponentError if an argument is none of the values that it may have."""
    known = list(choices)
    if value not in known:
        raise ComponentError(
            f"{connector}: {name}={value!r}; it is one of {', '.join(map(repr, known))}",
            hint=did_you_mean(value, list(map(str, known))),
        )


def check_guarantee(
    connector: str, value: str, choices: Iterable[str], refused: Mapping[str, str]
) -> None:
    """Raise ComponentError for a guarantee that a connector has not.

    `refused` has those that are not to be had: for each the reason, and after "; " the remedy.
    """
    if value in refused:
        reason, _, remedy = refused[value].partition("; ")
        raise ComponentError(
            f"{connector}: guarantee={value!r} is not to be had: {reason}", hint=remedy
        )
    check_choice(connector, "guarantee", value, choices)


def check_positive(connector: str, **values: float | None) -> None:
    """Raise ComponentError if a number that has to be above 0 is not."""
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and value > 0):
            raise ComponentError(f"{connector}: {name}={value!r}; it is a number above 0")


@dataclass(eq=False)
class BadRecord(Exception):
    """A record that could not be read, with the reason and the place where it lies."""

    raw: Any
    error: str
    where: str

    def __str__(self) -> str:
        shown = repr(self.raw)
        return f"{self.where}: {self.error}: {shown if len(shown) <= 200 else shown[:197] + '...'}"


def as_record(tup: Tuple, mapping: Callable[[Tuple], Any] | None) -> Any:
    """Return what a sink writes for a tuple: a dict of its fields, or what `map` makes of it."""
    return record_of(tup.fields, tup.values) if mapping is None else mapping(tup)


def record_of(fields: Sequence[str], values: Iterable[Any]) -> dict[str, Any]:
    """Return the dict of a tuple's fields."""
    return dict(zip(fields, values, strict=True))


def rows_of(columns: Sequence[Sequence[Any]], count: int) -> Iterable[tuple[Any, ...]]:
    """Return the values of each of so many tuples, which came by the column."""
    return zip(*columns, strict=True) if columns else repeat((), count)
