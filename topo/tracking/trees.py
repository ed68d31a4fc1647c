"""Tuple trees within one execution: the edges of the tuples a task makes, and its acks.

For each emitted tuple, each target task and each anchor a fresh edge id is drawn: it becomes the
child's edge for every root of the anchor, and is XORed into the value that the anchor's ack
reports. All rows of a flush are computed at once in numpy; only rows with several anchors, or with
an anchor that was held from an earlier batch, are computed singly. A few rows are not left to numpy
where it would take several calls: each costs a microsecond, as much as ten numbers take here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from topo.tracking.ids import EdgeIds, Updates, root_ids
from topo.tuples import Held
from topo.wire.frame import I64, U64, Section, Trees

if TYPE_CHECKING:
    from topo.runtime.out_streams import OutStream
    from topo.tracing.spans import TaskTracer

# The entries of `parents` for rows that have no single anchor among the inputs.
NO_ANCHOR, SEVERAL, NOT_ANCHORED = -1, -2, -3
_FEW = 64

Anchor: TypeAlias = "int | Held"


class Inputs:
    """The tuples of one run, by link: their roots and edges, and the edges anchored to them."""

    def __init__(self, roots: U64, edges: U64, counts: I64 | None, size: int) -> None:
        self.roots = roots
        self.edges = edges
        self.counts = counts
        self.children = np.zeros(size, np.uint64)
        self.size = size
        self._starts = None if counts is None else np.cumsum(counts) - counts

    @classmethod
    def of(cls, sections: Sequence[Section]) -> Inputs | None:
        """Join the trees of these sections, end to end; return None if nothing is tracked."""
        if all(section.trees is None for section in sections):
            return None
        size = sum(section.count for section in sections)
        trees = [s.trees or Trees(*_no_trees(), np.zeros(s.count, np.int64)) for s in sections]
        counts = None
        if any(tree.counts is not None for tree in trees):
            counts = np.concatenate(
                [
                    np.ones(section.count, np.int64) if tree.counts is None else tree.counts
                    for section, tree in zip(sections, trees, strict=True)
                ]
            )
        if len(trees) == 1:
            return cls(trees[0].roots, trees[0].edges, counts, size)
        return cls(
            np.concatenate([tree.roots for tree in trees]),
            np.concatenate([tree.edges for tree in trees]),
            counts,
            size,
        )

    def span(self, link: int) -> slice:
        if self.counts is None or self._starts is None:
            return slice(link, link + 1)
        start = int(self._starts[link])
        return slice(start, start + int(self.counts[link]))

    def children_trees(self, parents: I64, ids: EdgeIds) -> Trees | None:
        """Return the trees of tuples with these single anchors; a negative parent is no anchor."""
        if self.counts is None and len(parents) and parents.min() >= 0:
            edges = ids.take(len(parents))
            _xor_at(self.children, parents, edges)
            return Trees(self.roots[parents], edges)
        anchored = parents >= 0
        if not anchored.any():
            return None
        edges = ids.take(len(parents))
        links = parents[anchored]
        edges = edges[anchored]
        _xor_at(self.children, links, edges)
        own = np.ones(len(links), np.int64) if self.counts is None else self.counts[links]
        counts = np.zeros(len(parents), np.int64)
        counts[anchored] = own
        return Trees(self.roots[self._entries(links)], np.repeat(edges, own), counts)

    def acks(self, links: I64) -> tuple[U64, U64]:
        """Return the roots and values that acking these inputs reports.

        Neighbours often have the same root, as the words of a sentence do; they become one update.
        """
        if self.counts is None:
            roots, values = self.roots[links], self.edges[links] ^ self.children[links]
        else:
            entries = self._entries(links)
            roots = self.roots[entries]
            values = self.edges[entries] ^ np.repeat(self.children[links], self.counts[links])
        if len(roots) <= _FEW:
            return _merged_few(roots, values)
        starts = np.flatnonzero(np.concatenate(([True], roots[1:] != roots[:-1])))
        if len(starts) == len(roots):
            return roots, values
        return roots[starts], np.bitwise_xor.reduceat(values, starts)

    def _entries(self, links: I64) -> I64:
        if self.counts is None or self._starts is None:
            return links
        counts = self.counts[links]
        ends = np.cumsum(counts)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
        entries: I64 = np.repeat(self._starts[links], counts) + within
        return entries

    def edges_in(self, link: int, root: int) -> list[int]:
        """Return the edges of an input in the tree of this root."""
        span = self.span(link)
        edges: list[int] = self.edges[span][self.roots[span] == np.uint64(root)].tolist()
        return edges

    def hold(self, link: int, key: int, now: float) -> Held:
        span = self.span(link)
        return Held(
            key,
            tuple(self.roots[span].tolist()),
            tuple(self.edges[span].tolist()),
            int(self.children[link]),
            now,
        )


class BoltTrees:
    """A maker of the trees of a bolt's emitted tuples."""

    def __init__(self, tracer: TaskTracer | None = None) -> None:
        self.ids = EdgeIds(0)
        self.inputs: Inputs | None = None
        self._tracer = tracer
        self._stream = ""
        self._parents = np.empty(0, np.int64)
        self._several: dict[int, list[Anchor]] = {}

    def start_batch(self, ids: EdgeIds) -> None:
        self.ids = ids

    def begin(self, stream: OutStream, order: list[int], count: int) -> None:
        self._stream = stream.name
        self._parents = np.array(stream.waiting_parents, np.int64)
        self._several = stream.several

    def trees(self, rows: I64 | None, copies: int) -> Trees | None:
        own = self._parents if rows is None else self._parents[rows]
        trees = None if self.inputs is None else self.inputs.children_trees(own, self.ids)
        places = np.flatnonzero(own == SEVERAL) if self._several else ()
        if len(places):
            numbers = np.arange(len(own)) if rows is None else rows
            singly = {int(p): self._edges(self._several[int(numbers[p])]) for p in places}
            trees = _merged(trees, singly, len(own))
        if self._tracer is not None and trees is not None:
            self._tracer.emitted(self._stream, trees, partial(self._edges_above, rows))
        return trees

    def end(self) -> None:
        """Do nothing: the children's edges are already in `inputs` and the held tuples."""

    def flushed(self) -> None:
        """Nothing to do."""

    def _edges_above(self, rows: I64 | None, place: int, root: int) -> list[int]:
        """Return the edges, in the tree of a root, of what a row of a deal is anchored to."""
        row = place if rows is None else int(rows[place])
        link = int(self._parents[row])
        found: list[int] = []
        for anchor in self._several[row] if link == SEVERAL else (link,):
            if isinstance(anchor, Held):
                found += [e for r, e in zip(anchor.roots, anchor.edges, strict=True) if r == root]
            elif self.inputs is not None:
                found += self.inputs.edges_in(anchor, root)
        return found

    def _edges(self, anchors: list[Anchor]) -> dict[int, int]:
        """Return one child's edge for each of its roots."""
        found: dict[int, int] = {}
        for anchor in anchors:
            edge = self.ids.take_one()
            if isinstance(anchor, Held):
                anchor.children ^= edge
                roots: Sequence[int] = anchor.roots
            else:
                assert self.inputs is not None, "a link is an input's"
                self.inputs.children[anchor] ^= np.uint64(edge)
                roots = self.inputs.roots[self.inputs.span(anchor)].tolist()
            for root in roots:
                found[root] = found.get(root, 0) ^ edge
        return found


class BasicBoltTrees(BoltTrees):
    """The trees of a basic bolt: tuples are anchored to the input executed at their emit.

    `marks` has, for each executed input, the number of emits up to its end.
    """

    def __init__(self, tracer: TaskTracer | None = None) -> None:
        super().__init__(tracer)
        self.marks: list[int] = []
        self.first = 0
        self._links: I64 | None = None

    def begin(self, stream: OutStream, order: list[int], count: int) -> None:
        self._stream = stream.name
        if self.inputs is None:
            self._parents = np.full(count, NO_ANCHOR)
            return
        if len(stream.waiting_parents):  # of a batch, which says them
            self._parents = np.array(stream.waiting_parents, np.int64)
            return
        emits = len(order) or count
        ends = [*self.marks, emits]
        if emits <= _FEW:
            parents = np.array(self._few_parents(ends), np.int64)
        else:
            inputs = np.arange(self.first, self.first + len(ends))
            parents = np.repeat(inputs, np.diff(np.array([0, *ends])))
        if self._links is not None:
            parents = self._links[parents]
        self._parents = parents[np.array(order) == stream.index] if order else parents

    def _few_parents(self, ends: list[int]) -> list[int]:
        """Return the place of the input of each emit; `ends` counts the emits up to its end."""
        parents: list[int] = []
        for place, end in enumerate(ends, self.first):
            parents += [place] * (end - len(parents))
        return parents

    def flushed(self) -> None:
        self.first += len(self.marks)
        self.marks.clear()

    def run(self, inputs: Inputs | None, links: I64 | None = None) -> None:
        """Begin with these inputs; `links` gives the order of execution, None the natural one."""
        self.inputs = inputs
        self._links = links
        self.first = 0
        self.marks.clear()

    def link_of(self, number: int) -> int:
        """Return the link of the input that is executed at this place."""
        return number if self._links is None else int(self._links[number])


class SpoutTrees:
    """A maker of the roots of a spout's tracked emits."""

    def __init__(self, task: int, updates: UpdateLog, tracer: TaskTracer | None = None) -> None:
        self.ids = EdgeIds(0)
        self._task = task
        self._updates = updates
        self._tracer = tracer
        self._stream = ""
        self._all_tracked = True
        self._any_tracked = True
        self._tracked = np.empty(0, bool)
        self._roots = self._values = np.empty(0, np.uint64)

    def start_batch(self, ids: EdgeIds) -> None:
        self.ids = ids

    def begin(self, stream: OutStream, order: list[int], count: int) -> None:
        sequences = np.array(stream.waiting_parents, np.uint64)
        self._stream = stream.name
        self._any_tracked = self._all_tracked = bool(sequences.all())
        if not self._all_tracked:
            self._any_tracked = bool(sequences.any())
            if not self._any_tracked:
                return
            self._tracked = sequences > 0
        self._roots = root_ids(self._task, sequences)
        self._values = np.zeros(len(sequences), np.uint64)

    def trees(self, rows: I64 | None, copies: int) -> Trees | None:
        if not self._any_tracked:
            return None
        if not self._all_tracked:
            tracked = self._tracked if rows is None else self._tracked[rows]
            if not tracked.any():
                return None
        edges = self.ids.take(copies)
        roots = self._roots
        if rows is None:
            self._values ^= edges
        else:
            _xor_at(self._values, rows, edges)
            roots = roots[rows]
        trees = Trees(roots, edges)
        if not self._all_tracked and not tracked.all():
            trees = Trees(roots[tracked], edges[tracked], tracked.astype(np.int64))
        if self._tracer is not None:
            self._tracer.emitted(self._stream, trees, None)
        return trees

    def end(self) -> None:
        if not self._any_tracked:
            return
        roots, values = self._roots, self._values
        if not self._all_tracked:
            roots, values = roots[self._tracked], values[self._tracked]
        if len(roots):
            self._updates.init(roots, values)
            if self._tracer is not None:
                self._tracer.started(roots)

    def flushed(self) -> None:
        """Nothing to do."""


def _merged_few(roots: U64, values: U64) -> tuple[U64, U64]:
    """Return neighbours of the same root as one update."""
    found: list[int] = []
    merged: list[int] = []
    for root, value in zip(roots.tolist(), values.tolist(), strict=True):
        if found and found[-1] == root:
            merged[-1] ^= value
        else:
            found.append(root)
            merged.append(value)
    if len(found) == len(roots):
        return roots, values
    return np.array(found, np.uint64), np.array(merged, np.uint64)


def _merged(trees: Trees | None, singly: dict[int, dict[int, int]], count: int) -> Trees:
    if trees is None:
        counts = np.zeros(count, np.int64)
        roots, edges = _no_trees()
    else:
        counts = np.ones(count, np.int64) if trees.counts is None else trees.counts.copy()
        roots, edges = trees.roots, trees.edges
    for place, found in singly.items():
        counts[place] = len(found)
    total = int(counts.sum())
    merged = Trees(np.empty(total, np.uint64), np.empty(total, np.uint64), counts)
    starts = np.cumsum(counts) - counts
    rest = np.ones(total, bool)
    for place, found in singly.items():
        span = slice(int(starts[place]), int(starts[place]) + len(found))
        merged.roots[span] = np.fromiter(found, np.uint64, len(found))
        merged.edges[span] = np.fromiter(found.values(), np.uint64, len(found))
        rest[span] = False
    merged.roots[rest] = roots
    merged.edges[rest] = edges
    return merged


class UpdateLog:
    """A collector of one execution's updates for the acker."""

    def __init__(self) -> None:
        self.parts: list[Updates] = []

    def init(self, roots: U64, values: U64) -> None:
        self.parts.append(Updates(init_roots=roots, init_values=values))

    def ack(self, roots: U64, values: U64) -> None:
        self.parts.append(Updates(ack_roots=roots, ack_values=values))

    def fail(self, roots: Sequence[int], reason: str) -> None:
        """Fail the roots; `reason` has no lone surrogates, which a message cannot hold."""
        if roots:
            self.parts.append(
                Updates(fail_roots=np.array(roots, np.uint64), fail_reasons=[reason] * len(roots))
            )

    def reset(self, roots: Sequence[int]) -> None:
        if roots:
            self.parts.append(Updates(reset_roots=np.array(roots, np.uint64)))

    def held(self, roots: list[int], task: int) -> None:
        if roots:
            tasks = np.full(len(roots), task, np.uint32)
            self.parts.append(Updates(held_roots=np.array(roots, np.uint64), held_tasks=tasks))

    def released(self, roots: list[int], task: int) -> None:
        if roots:
            tasks = np.full(len(roots), task, np.uint32)
            self.parts.append(
                Updates(released_roots=np.array(roots, np.uint64), released_tasks=tasks)
            )

    def take_parts(self) -> list[Updates]:
        """Return what was collected since the last call."""
        if not self.parts:
            return []
        parts, self.parts = self.parts, []
        return parts

    def take(self) -> Updates:
        """Return what was collected since the last call, as one."""
        return Updates.concat(self.take_parts())


def _xor_at(target: U64, places: I64, values: U64) -> None:
    np.bitwise_xor.at(target, places, values)


def _no_trees() -> tuple[U64, U64]:
    return np.empty(0, np.uint64), np.empty(0, np.uint64)
