"""The orders of a topology: of its components, of a bolt's inputs; and the cycles that prevent one.

An input that is marked as a loop orders nothing: what comes over it is of an earlier batch.

A bolt's inputs have an order of their own, which no name decides: a shorter way comes first, as it
nearly always does where every tuple travels by itself. Programs rely on that: an object reaches the
bolt that collects its parts before the parts do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from topo.topology.model import ComponentDef, Topology


def producers_first(topology: Topology) -> list[ComponentDef]:
    """Return the components, each after all components that it reads, otherwise by name.

    Where a component comes decides the slots of its tasks: another order would be another plan,
    and refuse every checkpoint.
    """
    done: dict[str, ComponentDef] = {}
    waiting = dict(topology.components)
    while waiting:
        ready = [c for c in waiting.values() if all(read.component in done for read in c.forward)]
        for definition in ready:
            done[definition.id] = waiting.pop(definition.id)
    return list(done.values())


def arrival_order(topology: Topology) -> dict[str, list[str]]:
    """Return, for each bolt, the components that it reads, in the order in which their tuples come.

    What passed fewer bolts comes first. Of two that passed equally many, the bolt declares first
    the one that comes first.
    """
    passed: dict[str, int] = {}
    for definition in producers_first(topology):
        passed[definition.id] = max(
            (1 + passed[r.component] for r in definition.forward), default=0
        )
    return {
        bolt.id: sorted(dict.fromkeys(r.component for r in bolt.inputs), key=passed.__getitem__)
        for bolt in topology.bolts
    }


def reached(starts: Iterable[str], leads: Mapping[str, Iterable[str]]) -> set[str]:
    """Return what can be reached from the starts, which count as reached."""
    reached_so_far: set[str] = set()
    rest = list(starts)
    while rest:
        name = rest.pop()
        if name not in reached_so_far:
            reached_so_far.add(name)
            rest += leads.get(name, ())
    return reached_so_far


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
