"""A topology as a drawing: Mermaid, which many sites render, and Graphviz's DOT.

An input that goes back is a dashed arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from topo.topology.model import ComponentDef, InputDef, Topology


def mermaid(topology: Topology, tasks: Mapping[str, int] | None = None) -> str:
    """Draw a Mermaid flowchart; `tasks` are the counts to show, else the parallelism."""
    ids = {name: f"c{index}" for index, name in enumerate(topology.components)}
    lines = ["flowchart LR"]
    for component in topology.components.values():
        left, right = ("([", "])") if component.is_spout else ("[", "]")
        label = _quoted(_label(component, tasks), "#quot;")
        lines.append(f"    {ids[component.id]}{left}{label}{right}")
    for consumer, read in _edges(topology):
        label = _quoted(_edge_label(read), "#quot;")
        arrow = "-.->" if read.loop else "-->"
        lines.append(f"    {ids[read.component]} {arrow}|{label}| {ids[consumer.id]}")
    return "\n".join(lines)


def dot(topology: Topology, name: str, tasks: Mapping[str, int] | None = None) -> str:
    """Draw a Graphviz digraph; `tasks` are the counts to show, else the parallelism."""
    lines = [f"digraph {_quoted(name)} {{", "    rankdir=LR;", "    node [shape=box];"]
    for component in topology.components.values():
        shape = ", shape=oval" if component.is_spout else ""
        label = _quoted(_label(component, tasks))
        lines.append(f"    {_quoted(component.id)} [label={label}{shape}];")
    for consumer, read in _edges(topology):
        edge = f"{_quoted(read.component)} -> {_quoted(consumer.id)}"
        style = ", style=dashed" if read.loop else ""
        lines.append(f"    {edge} [label={_quoted(_edge_label(read))}{style}];")
    return "\n".join([*lines, "}"])


def _edges(topology: Topology) -> Iterator[tuple[ComponentDef, InputDef]]:
    for consumer in topology.bolts:
        for read in consumer.inputs:
            yield consumer, read


def _label(component: ComponentDef, tasks: Mapping[str, int] | None) -> str:
    count = tasks[component.id] if tasks else component.parallelism
    return f"{component.id} x{count}"


def _edge_label(read: InputDef) -> str:
    stream = "" if read.stream == "default" else f"{read.stream}: "
    return f"{stream}{read.grouping}{', loop' if read.loop else ''}"


def _quoted(text: str, quote: str = '\\"') -> str:
    return '"' + text.replace('"', quote) + '"'
