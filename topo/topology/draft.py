"""A component between the builder, which collects what is set of it, and the validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from topo.components import Component
from topo.errors import Problem
from topo.topology.model import InputDef


@dataclass
class Draft:
    """A component as it was set, before the topology is checked."""

    id: str
    kind: str
    component: Component
    parallelism: int
    place: str
    conf: dict[str, Any] = field(default_factory=dict)
    inputs: list[InputDef] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"{self.kind} {self.id!r}"
