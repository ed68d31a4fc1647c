"""The open edges of a bolt task between batches: what a lost acker's trees are rebuilt from.

Between batches nothing is on its way, so a tree is open exactly as far as bolts keep tuples of it:
each kept tuple owes its tree its own edge and those of the tuples anchored to it. A tuple that its
bolt has dropped, without an ack or a failure, can never be acked: its tree stays open until the
timeout, so it is recorded as forgotten, with a value that nothing will ever cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from topo.tracking.ids import U64, spout_task_of
from topo.tuples import Held, HeldTuples

_FORGOTTEN_FOR_TIMEOUTS = 4
"""A forgotten root is recorded for this many timeouts: its message has failed long before."""


class OpenEdges:
    """The kept and the forgotten tuples of one task, and the ackers that know of them.

    `forgotten` maps a root to the value it owes and to the time it was recorded.
    """

    def __init__(self, held: HeldTuples) -> None:
        self._held = held
        self._roots: dict[int, tuple[int, ...]] = {}  # of the kept tuples, by key
        self._known_by: frozenset[int] = frozenset()  # incarnations that have heard of all this
        self._restored: list[tuple[int, int]] | None = None
        self.forgotten: dict[int, tuple[int, float]] = {}

    def restore(
        self,
        kept: Iterable[Held],
        known_by: Iterable[int],
        forgotten: dict[int, tuple[int, float]],
    ) -> None:
        """Take over the saved state, before any user code can settle a restored tuple."""
        kept = list(kept)
        self._roots = {held.key: held.roots for held in kept}
        self._known_by = frozenset(known_by)
        self.forgotten = forgotten
        self._restored = [*_owed_by(kept), *self._owed_by_forgotten()]

    @property
    def known_by(self) -> list[int]:
        """The incarnations to save beside the kept tuples."""
        return sorted(self._known_by) if self._roots or self.forgotten else []

    def add(self, held: Held) -> None:
        self._roots[held.key] = held.roots

    def remove(self, held: Held) -> None:
        self._roots.pop(held.key, None)

    def find_forgotten(self) -> list[int]:
        """Return the roots of tuples that were dropped since the last call, and stop tracking them.

        A root is returned once for each tuple.
        """
        self._restored = None  # the batch is over: what was restored has changed since
        gone = [key for key in self._roots if key not in self._held.by_key]
        return [root for key in gone for root in self._roots.pop(key)]

    def record_forgotten(self, roots: Iterable[int], value: int, now: float) -> list[int]:
        """Record forgotten roots with a fresh value; return those whose record changed.

        A root of several tuples takes the value once: twice, it would cancel itself.
        """
        changed = []
        for root in dict.fromkeys(roots):
            before, _ = self.forgotten.get(root, (0, 0.0))
            self.forgotten[root] = (before ^ value, now)
            changed.append(root)
        return changed

    def drop_old(self, timeout_secs: float | None, now: float) -> list[int]:
        """Drop the records whose messages have timed out long ago; return their roots."""
        if timeout_secs is None or not self.forgotten:
            return []
        until = now - _FORGOTTEN_FOR_TIMEOUTS * timeout_secs
        old = []
        for root, (_, since) in self.forgotten.items():  # in the order of their recording, nearly
            if since > until:
                break
            old.append(root)
        for root in old:
            del self.forgotten[root]
        return old

    def owed_to(self, incarnations: Mapping[int, int]) -> tuple[U64, U64]:
        """Return roots and values for the ackers that have lost them, each ack a contribution.

        `incarnations` has the present one by spout task.
        """
        restored, self._restored = self._restored, None
        present = frozenset(incarnations.values())
        if present <= self._known_by:
            self._known_by = present
            return np.empty(0, np.uint64), np.empty(0, np.uint64)
        owed = restored if restored is not None else list(self._owed())
        lost = [
            (root, value)
            for root, value in owed
            if incarnations.get(spout_task_of(root)) not in self._known_by
        ]
        self._known_by = present
        roots = np.array([root for root, _ in lost], np.uint64)
        return roots, np.array([value for _, value in lost], np.uint64)

    def _owed(self) -> Iterator[tuple[int, int]]:
        yield from _owed_by(self._held.by_key.values())
        yield from self._owed_by_forgotten()

    def _owed_by_forgotten(self) -> Iterator[tuple[int, int]]:
        for root, (value, _) in self.forgotten.items():
            yield root, value


def _owed_by(kept: Iterable[Any]) -> Iterator[tuple[int, int]]:
    for held in kept:
        for root, edge in zip(held.roots, held.edges, strict=True):
            yield root, edge ^ held.children
