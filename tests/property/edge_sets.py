"""The ledger as one would write it down: a set of edges per root, and nothing clever.

An id that is named a second time leaves the set again; a root with an empty set is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from topo.tracking.ids import sequence_of, spout_task_of

Verdict = tuple[int, str | None]


@dataclass
class RootSet:
    """One root: the edges that are out, and who holds tuples of it."""

    since: float
    edges: set[int] = field(default_factory=set)
    emitted: bool = False
    reason: str | None = None
    holders: Counter[int] = field(default_factory=Counter)

    def toggle(self, edges: Iterable[int]) -> None:
        for edge in edges:
            self.edges ^= {edge}


@dataclass
class Batch:
    """The updates of one committed batch, by kind."""

    inits: list[tuple[int, list[int]]] = field(default_factory=list)
    acks: list[tuple[int, list[int]]] = field(default_factory=list)
    fails: list[tuple[int, str]] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)
    held: list[tuple[int, int]] = field(default_factory=list)
    released: list[tuple[int, int]] = field(default_factory=list)


class EdgeSets:
    """The model of a `Ledger`."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.roots: dict[int, RootSet] = {}
        self.highest: Counter[int] = Counter()
        self.verdicts: dict[int, list[Verdict]] = {}

    def apply(self, batch: Batch, now: float) -> None:
        for root, edges in sorted(batch.inits, key=lambda init: init[0]):
            task, sequence = spout_task_of(root), sequence_of(root)
            if sequence <= self.highest[task]:
                continue
            self.highest[task] = sequence
            entry = self.roots.setdefault(root, RootSet(now))
            entry.emitted, entry.since = True, now
            entry.toggle(edges)
        for root, entry in list(self.roots.items()):
            if not entry.emitted and self._is_passed(root):
                del self.roots[root]
        for root, edges in batch.acks:
            if found := self._known(root, now):
                found.toggle(edges)
        for root, said in batch.fails:
            if (found := self._known(root, now)) and found.reason is None:
                found.reason = said
        for root in batch.resets:
            if (found := self.roots.get(root)) and found.emitted:
                found.since = now
        for root, holder in batch.held:
            if (found := self.roots.get(root)) and found.emitted:
                found.holders[holder] += 1
        for root, holder in batch.released:
            if (found := self.roots.get(root)) and found.holders[holder] > 0:
                found.holders[holder] -= 1
        emitted = sorted(root for root, entry in self.roots.items() if entry.emitted)
        for root in emitted:
            if (reason := self.roots[root].reason) is not None:
                self._settle(root, reason)
        for root in emitted:
            if root in self.roots and not self.roots[root].edges:
                self._settle(root, None)

    def expire(self, now: float) -> None:
        for root, entry in sorted(self.roots.items()):
            if entry.since + self.timeout > now:
                continue
            if entry.emitted:
                self._settle(root, f"timeout after {self.timeout:g} s")
            else:
                del self.roots[root]

    def next_timeout(self) -> float | None:
        due = [entry.since + self.timeout for entry in self.roots.values() if entry.emitted]
        return min(due, default=None)

    def holders(self, root: int) -> set[int]:
        return {task for task, count in self.roots[root].holders.items() if count > 0}

    def pending(self) -> int:
        return sum(entry.emitted for entry in self.roots.values())

    def _known(self, root: int, now: float) -> RootSet | None:
        if root not in self.roots and self._is_passed(root):
            return None
        return self.roots.setdefault(root, RootSet(now))

    def _is_passed(self, root: int) -> bool:
        return sequence_of(root) <= self.highest[spout_task_of(root)]

    def _settle(self, root: int, reason: str | None) -> None:
        del self.roots[root]
        self.verdicts.setdefault(spout_task_of(root), []).append((sequence_of(root), reason))
