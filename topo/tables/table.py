"""A table as an input, and the rules of looking its rows up: what was declared, checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from topo.errors import JoinError
from topo.event_time import Duration, EventTime
from topo.operators.inputs import (
    INNER,
    LEFT,
    StreamName,
    check_how,
    stream_named,
)
from topo.tuples import Fields, Tuple


@dataclass(frozen=True)
class Table:
    """A table: the tuples of a component, each the new row of its key.

    `name` is the component, or component and stream. A tuple deletes its key if all its fields but
    the key and the time are None, or as `deleted` says: a field, or a function of the tuple.
    `versioned` keeps the history for so long. A row is forgotten `ttl` after it was written, by the
    clock; with `max_keys`, each task keeps those that were written last.
    """

    name: StreamName
    key: str | Sequence[str]
    versioned: Duration | None = None
    ttl: timedelta | None = None
    max_keys: int | None = None
    deleted: str | Callable[[Tuple], Any] | None = None

    def __post_init__(self) -> None:
        stream_named("Table: name", self.name)
        object.__setattr__(self, "key", tuple(Fields(self.key)))
        if not self.key:
            raise JoinError(f"table {self.name!r} has no key", hint='write Table(..., key="id")')
        check_limits(f"table {self.name!r}", self.ttl, self.max_keys)
        if self.versioned is not None and self.max_keys is not None:
            raise JoinError(
                f"table {self.name!r}: max_keys goes without versioned",
                hint="bound a versioned table by ttl",
            )

    @property
    def stream(self) -> tuple[str, str]:
        """The component and its stream."""
        return stream_named("Table: name", self.name)

    @property
    def keys(self) -> tuple[str, ...]:
        """The fields of the key."""
        return tuple(self.key)


def check_limits(what: str, ttl: Any, max_keys: Any) -> None:
    """Raise a JoinError unless these can bound a table."""
    if ttl is not None and (not isinstance(ttl, timedelta) or ttl <= timedelta(0)):
        raise JoinError(
            f"{what}: ttl is {ttl!r}; it takes a timedelta above zero",
            hint="write ttl=timedelta(days=1)",
        )
    whole = isinstance(max_keys, int) and not isinstance(max_keys, bool)
    if max_keys is not None and (not whole or max_keys < 1):
        raise JoinError(f"{what}: max_keys is {max_keys!r}; it must be a whole number above zero")


@dataclass(frozen=True)
class LookupRules:
    """The rules of a lookup, with durations in ticks."""

    left: bool
    """Rows without a match come out too."""
    history: int | None = None
    waits: bool = False
    grace: int | None = None
    ttl: float | None = None
    max_keys: int | None = None


def lookup_rules(
    *,
    how: str,
    time: EventTime | None,
    versioned: Duration | None,
    wait: bool,
    grace: Duration | None,
    ttl: timedelta | None = None,
    max_keys: int | None = None,
) -> LookupRules:
    """Return the rules of a lookup; raise a JoinError if they cannot be."""
    how = check_how(how, (INNER, LEFT))
    if versioned is None:
        if grace is not None:
            raise JoinError(
                "grace needs a versioned table: the latest row does not depend on time",
                hint="write Table(..., versioned=timedelta(hours=1))",
            )
        return LookupRules(how == "left", ttl=_seconds(ttl), max_keys=max_keys)
    if time is None:
        raise JoinError("a versioned table needs event time", hint='write time=EventTime("ts")')
    ticks = None if grace is None else time.ticks(grace, "grace", at_least=0)
    history = time.ticks(versioned, "versioned", at_least=0)
    return LookupRules(how == "left", history, wait or ticks is not None, ticks, _seconds(ttl))


def _seconds(ttl: timedelta | None) -> float | None:
    return None if ttl is None else ttl.total_seconds()
