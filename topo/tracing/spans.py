"""Spans of the tuples of one slot, sampled by root and kept until their batch has committed.

The same roots are sampled everywhere without a word between tasks, since the decision follows from
the root alone. What a batch did is exported when the next one begins, so an attempt that was
rolled back leaves no trace. Without a sampled root, a flush and a frame cost one look in numpy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from topo.tracking.ids import U64, mix, mix_all, root_ids
from topo.wire.frame import I64, Trees

MESSAGE, EMIT, EXECUTE = "message", "emit", "execute"
_MOST_KEPT = 65536
"""Spans of one batch, and spout messages whose emit is remembered; what is beyond is dropped."""
_WHOLE = 1 << 64

Parents = Callable[[int, int], list[int]]
"""Returns the edges, in one tree, of the tuples that a row is anchored to: (row, root)."""


@dataclass(frozen=True)
class Span:
    """One span: a message, an emit or an execution; times are nanoseconds since 1970."""

    kind: str
    root: int
    id: int
    parent: int | None
    component: str
    task: int
    stream: str
    start: int
    end: int
    error: str | None = None
    links: tuple[int, ...] = ()


@dataclass
class Tracer:
    """The spans of one slot; it lives in the slot's thread."""

    rate: float
    export: Callable[[list[Span]], None]
    clock: Callable[[], int] = time.time_ns
    dropped: int = 0
    _batch: int = -1
    _spans: list[Span] = field(default_factory=list)
    _emitted: dict[int, int] = field(default_factory=dict)
    """When the sampled messages that are pending were emitted, by root."""

    def __post_init__(self) -> None:
        self._below = np.uint64(min(int(self.rate * _WHOLE), _WHOLE - 1))

    def sampled(self, roots: U64) -> I64:
        """Return the places of the roots that are traced."""
        return np.flatnonzero(mix_all(roots) <= self._below)

    def begin(self, batch_id: int) -> None:
        """Export what a committed batch did; forget what an attempt at this batch did."""
        if batch_id > self._batch:
            self.flush()
        self._spans.clear()
        self._batch = batch_id

    def flush(self) -> None:
        if self._spans:
            self.export(self._spans)
            self._spans = []

    def add(self, span: Span) -> None:
        if len(self._spans) < _MOST_KEPT:
            self._spans.append(span)
        else:
            self.dropped += 1


class TaskTracer:
    """The view of a tracer that one task has."""

    def __init__(self, tracer: Tracer, component: str, task: int) -> None:
        self._tracer = tracer
        self._component = component
        self._task = task

    def started(self, roots: U64) -> None:
        """Remember when these messages of a spout were emitted."""
        tracer = self._tracer
        now = tracer.clock()
        for root in roots[tracer.sampled(roots)].tolist():
            if len(tracer._emitted) < _MOST_KEPT:
                tracer._emitted[root] = now

    def concluded(self, sequences: Iterable[int], reason: str | None) -> None:
        """Add the spans of messages that are acked, or failed for this reason."""
        tracer = self._tracer
        roots = root_ids(self._task, np.fromiter(sequences, np.uint64))
        now = tracer.clock()
        for root in roots[tracer.sampled(roots)].tolist():
            start = tracer._emitted.pop(root, now)
            self._add(MESSAGE, root, mix(root), None, "", start, now, reason)

    def emitted(self, stream: str, trees: Trees, parents: Parents | None) -> None:
        """Add the spans of emitted tuples; without parents they are a spout's."""
        tracer = self._tracer
        places = tracer.sampled(trees.roots)
        if not len(places):
            return
        now = tracer.clock()
        rows = places if trees.counts is None else _rows_of(places, trees.counts)
        roots, edges = trees.roots[places].tolist(), trees.edges[places].tolist()
        for row, root, edge in zip(rows.tolist(), roots, edges, strict=True):
            if parents is None:
                self._add(EMIT, root, edge, mix(root), stream, now, now)
                continue
            first, *others = map(mix, parents(row, root))
            self._add(EMIT, root, edge, first, stream, now, now, links=tuple(others))

    def executed(self, stream: str, trees: Trees, starts: Sequence[int], end: int) -> None:
        """Add the spans of executed tuples: tuple i began at `starts[i]`, the last until `end`."""
        places = self._tracer.sampled(trees.roots)
        rows = places if trees.counts is None else _rows_of(places, trees.counts)
        roots, edges = trees.roots[places].tolist(), trees.edges[places].tolist()
        for row, root, edge in zip(rows.tolist(), roots, edges, strict=True):
            start = starts[row] if row < len(starts) else end
            stop = starts[row + 1] if row + 1 < len(starts) else end
            self._add(EXECUTE, root, mix(edge), edge, stream, start, stop)

    def has_sampled(self, trees: Trees | None) -> bool:
        return trees is not None and len(self._tracer.sampled(trees.roots)) > 0

    def now(self) -> int:
        return self._tracer.clock()

    def _add(
        self,
        kind: str,
        root: int,
        span: int,
        parent: int | None,
        stream: str,
        start: int,
        end: int,
        error: str | None = None,
        links: tuple[int, ...] = (),
    ) -> None:
        self._tracer.add(
            Span(
                kind, root, span, parent, self._component, self._task, stream, start, end, error,
                links,
            )
        )  # fmt: skip


def trace_id(checkpoint_id: str, root: int) -> int:
    """Return the id of the trace of a root: 64 bits of the checkpoint, then the root."""
    digest = blake2b(checkpoint_id.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") << 64 | root


def _rows_of(places: I64, counts: I64) -> I64:
    """Return the tuple that each of these entries belongs to."""
    rows: I64 = np.searchsorted(np.cumsum(counts), places, side="right")
    return rows
