"""Topologies in YAML, by the schema of Storm's Flux.

`nodes` makes nodes with places of a text, `substitution` fills placeholders, `schema` says what the
nodes must be, `objects` makes objects, `build` wires them. All problems of a file are told at once.
"""

from topo.flux.build import load

__all__ = ["load"]
