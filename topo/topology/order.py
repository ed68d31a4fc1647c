"""The one topological sort: components after those they read, and the cycles that prevent it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from topo.topology.model import ComponentDef, Topology


def producers_first(topology: Topology) -> list[ComponentDef]:
    """Return the components, each after all components that it reads, otherwise by name.

    Where a component comes decides the slots of its tasks: another order would be another plan,
    and refuse every checkpoint.
    """
    done: dict[str, ComponentDef] = {}
    waiting = dict(topology.components)
    while waiting:
        ready = [c for c in waiting.values() if all(read.component in done for read in c.inputs)]
        for definition in ready:
            done[definition.id] = waiting.pop(definition.id)
    return list(done.values())


def cycles(reads: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Yield every cycle that a walk along the inputs closes, from its end to its start."""
    done: set[str] = set()
    for start in reads:
        path = [start]
        waiting = [(start, iter(reads[start]))]
        while waiting:
            name, rest = waiting[-1]
            step = next((r for r in rest if r not in done), None)
            if step is None:
                done.add(name)
                waiting.pop()
                path.pop()
            elif step in path:
                yield [*path[path.index(step) :], step]
            else:
                path.append(step)
                waiting.append((step, iter(reads[step])))
