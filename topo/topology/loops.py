"""The problems of a topology's loops: cycles that nobody marked, and marks that make no sense.

One mark decides which edge of a cycle waits for the next batch, and nobody but the author knows
which: so a cycle without a mark is an error that has the line to write, and so is a mark at an
input that no cycle goes through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from topo.errors import Problem
from topo.timed import TimedBolt
from topo.topology.draft import Draft
from topo.topology.model import InputDef
from topo.topology.order import cycles, reached


def forward_reads(drafts: Mapping[str, Draft], name: str) -> list[str]:
    """Return the components that one reads, other than over loops."""
    return producers(drafts, name, loops=False)


def producers(drafts: Mapping[str, Draft], reader: str, *, loops: bool = True) -> list[str]:
    """Return the components that one reads, as far as the topology has them."""
    reads = (read for read in drafts[reader].inputs if loops or not read.loop)
    names = dict.fromkeys(read.component for read in reads)
    return [name for name in names if name in drafts]


def cycle_problems(drafts: Mapping[str, Draft]) -> Iterator[Problem]:
    """Yield one problem for every cycle that a walk along the inputs without a mark closes."""
    reads = {name: forward_reads(drafts, name) for name in drafts}
    for cycle in cycles(reads):
        text = f"cycle: {' -> '.join(reversed(cycle))}; the input that goes back is not marked"
        consumer, read = _goes_back(drafts, cycle)
        hint = f"mark it with loop=True, such as {drafts[consumer].where}: {_line(read)}; "
        hint += "in YAML: loop: true in its grouping"
        yield Problem("cycle", drafts[cycle[-1]].where, text, hint)


def loop_problems(drafts: Mapping[str, Draft]) -> Iterator[Problem]:
    """Yield the problems of the marks of a topology, all cycles of which have one."""
    leads: dict[str, list[str]] = {name: [] for name in drafts}
    for name in drafts:
        for producer in producers(drafts, name):
            leads[producer].append(name)
    behind = {name: reached(leads[name], leads) for name in drafts}
    marked = False
    for draft in drafts.values():
        for read in draft.inputs:
            if not read.loop or read.component not in drafts:
                continue
            marked = True
            if read.component not in behind[draft.id]:
                text = f"{draft.where} reads {read.component!r} with loop=True, and nothing that "
                text += f"{draft.id!r} emits comes to {read.component!r}"
                yield Problem("loop-none", draft.where, text, "take loop=True away")
    if not marked:
        return
    for draft in drafts.values():
        if isinstance(draft.component, TimedBolt):
            yield from _time_problems(draft, behind)
    spouts = [draft.id for draft in drafts.values() if draft.kind == "spout"]
    fed = reached(spouts, leads)
    for draft in drafts.values():
        if spouts and draft.inputs and draft.id not in fed:
            text = f"{draft.where} gets nothing: no spout's tuples come to it"
            hint = "let it read a spout, or a bolt that does"
            yield Problem("unreachable", draft.where, text, hint)


def _time_problems(draft: Draft, behind: Mapping[str, set[str]]) -> Iterator[Problem]:
    on_cycles = {name for name in behind if name in behind[name]}
    assert isinstance(draft.component, TimedBolt)
    if draft.id in on_cycles:
        text = f"{draft.where} is on a loop, and works by time: its watermark would wait for itself"
        yield Problem("loop-time", draft.where, text, "put it before the loop or behind it")
    elif draft.component.needs_whole_requests:
        before = sorted(name for name in on_cycles if draft.id in behind[name])
        if before:
            text = f"{draft.where} is behind the loop of {before[0]!r}, so that a request is not "
            text += "whole when its batch ends"
            hint = "gather requests before the loop, or answer them with ReturnResults"
            yield Problem("drpc-loop", draft.where, text, hint)


def _goes_back(drafts: Mapping[str, Draft], cycle: Sequence[str]) -> tuple[str, InputDef]:
    """Return the likeliest input to mark: of a bolt that also reads from outside of the cycle."""
    pairs = list(pairwise(cycle))  # consumer, producer
    enters = [
        pair for pair in pairs if any(r.component not in cycle for r in drafts[pair[0]].inputs)
    ]
    consumer, producer = (enters or pairs)[0]
    read = next(
        read for read in drafts[consumer].inputs if read.component == producer and not read.loop
    )
    return consumer, read


def _line(read: InputDef) -> str:
    """Return the call that declares an input, with the mark."""
    named = [repr(read.component)]
    if read.grouping.kind == "custom":
        named.append("...")
    elif read.grouping.fields:
        named.append(repr(list(read.grouping.fields)))
    if read.stream != "default":
        named.append(f"stream={read.stream!r}")
    return f".{read.grouping.kind}_grouping({', '.join([*named, 'loop=True'])})"
