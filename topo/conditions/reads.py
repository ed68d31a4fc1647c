"""What a condition reads: fields of the event, of taken ones, and aggregates over taken ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Field:
    """A field of the event, or `ts` or `source`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class PartField:
    """A field of the last event that a part took, or of the first."""

    part: str
    field: str
    first: bool = False

    def __str__(self) -> str:
        return f"{self.part}{'[0]' if self.first else ''}.{self.field}"


@dataclass(frozen=True)
class Aggregate:
    """An aggregate over a field of all events that a part took; without a part, of all counted."""

    function: str
    part: str | None = None
    field: str | None = None

    def __str__(self) -> str:
        return f"{self.function}({'.'.join(name for name in (self.part, self.field) if name)})"


Read: TypeAlias = Field | PartField | Aggregate
