"""What a bolt declares of a join of two streams, as far as its operator has to know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from topo.event_time import EventTime
from topo.operators.inputs import KeyedInput
from topo.operators.selection import Shape


class PairDeclaration(Protocol):
    """A declared join of two inputs: a `PairJoin`."""

    sides: list[KeyedInput]
    how: str
    event_time: EventTime | None
    result_ts: str | None

    def shape(self, owner: str, own: Mapping[str, str], names: Mapping[str, Any]) -> Shape:
        """Return what makes results; `own` are expressions of the join's own fields."""
