"""The refusal of topologies that read or write by another engine."""

from __future__ import annotations

from topo.errors import EngineError
from topo.topology.model import Topology


def refuse_external(topology: Topology, *, in_tests: bool) -> None:
    """Raise an EngineError for what only another engine can read or write.

    In tests, what a bolt hands out to another engine is checked, and goes nowhere.
    """
    for component in topology.components.values():
        if component.is_spout and component.external:
            what, mock = "reads for", "complete_topology(..., mock_sources={"
            hint = f"give it tuples: {mock}{component.id!r}: [[...], ...]}}); or run it on Spark"
        elif component.external and not in_tests:
            what, hint = "writes for", "run it with --engine spark"
        else:
            continue
        engine = str(component.external["engine"]).capitalize()
        raise EngineError(
            f"{engine} {what} {component.kind} {component.id!r} ({component.class_name}), and the "
            f"inline engine has no {engine}",
            code="needs-engine",
            hint=hint,
        )
