"""What a task has sent over its loops: frames that wait for the batch after the one they are of.

A loop leads to a bolt that has run already when its tuples are made, so they wait until the batch
is committed, and begin the next one. Until a batch that took them is committed itself, they are
part of what their task has saved: a batch that runs again finds the same frames, under the same
numbers, and so does one that resumes after a kill. The level that takes frames names the
last number; the task that made them deletes up to it in the same batch, so both are committed or
neither is.

Between batches these tuples are the only ones that are on their way. So what a lost acker's trees
are rebuilt from has them as well: see `topo/tracking/open_edges.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from topo.storage.saving import Changes
from topo.tracking.ids import U64, spout_task_of
from topo.wire.frame import LOOPED, SEQUENCE_STEP, PackedFrame

_PREFIX = "lap/"
_KNOWN_BY = "laps known by"


def has_laps(saved: Mapping[str, bytes]) -> bool:
    """Return True if what a task has saved has tuples that go round."""
    return any(name.startswith(_PREFIX) for name in saved)


class Laps:
    """The frames of one task that go round, by their numbers."""

    def __init__(self) -> None:
        self._frames: dict[int, PackedFrame] = {}
        self._counts: dict[int, int] = {}
        self._new: dict[int, PackedFrame] = {}
        self._gone: list[int] = []
        self._known_by: frozenset[int] = frozenset()  # incarnations that have heard of all this
        self._saved_known_by = self._known_by
        self.count = self.nbytes = 0
        """The tuples that wait, and their bytes."""

    def load(self, saved: Mapping[str, bytes]) -> int:
        """Take over the saved frames; return the next one's number."""
        for name in sorted(name for name in saved if name.startswith(_PREFIX)):
            self._keep(PackedFrame.of(saved[name]))
        if _KNOWN_BY in saved:
            self._known_by = self._saved_known_by = frozenset(json.loads(saved[_KNOWN_BY]))
        return max(self._frames, default=LOOPED) + SEQUENCE_STEP

    def add(self, frame: PackedFrame) -> None:
        """Let a frame wait for the next batch."""
        self._keep(frame)
        self._new[frame.sequence] = frame

    def _keep(self, frame: PackedFrame) -> None:
        count = len(frame.without_values())
        self._frames[frame.sequence] = frame
        self._counts[frame.sequence] = count
        self.count += count
        self.nbytes += frame.nbytes

    def __iter__(self) -> Iterator[PackedFrame]:
        """Return the frames that wait, in the order in which they were made."""
        return iter(list(self._frames.values()))

    @property
    def last(self) -> int:
        """The number of the last frame that waits; 0 if none does."""
        return max(self._frames, default=0)

    def drop(self, upto: int) -> None:
        """Forget the frames up to this number: the present batch has taken them."""
        for number in [number for number in self._frames if number <= upto]:
            self.nbytes -= self._frames.pop(number).nbytes
            self.count -= self._counts.pop(number)
            if self._new.pop(number, None) is None:
                self._gone.append(number)

    def save(self, changes: Changes) -> None:
        """Add what has changed since the last call."""
        changes.puts.update({_name(number): bytes(f.data) for number, f in self._new.items()})
        changes.deletes.extend(map(_name, self._gone))
        self._new, self._gone = {}, []
        if self._known_by != self._saved_known_by:
            self._saved_known_by = self._known_by
            changes.puts[_KNOWN_BY] = json.dumps(sorted(self._known_by)).encode()

    def owed_to(self, incarnations: Mapping[int, int]) -> tuple[U64, U64]:
        """Return roots and edges for the ackers that have lost their trees.

        `incarnations` has the present one by spout task. Call it before the batch drops frames.
        """
        present = frozenset(incarnations.values())
        before, self._known_by = self._known_by, present
        if present <= before or not self._frames:
            return _NONE
        roots, edges = _edges(self._frames.values())
        lost = [incarnations.get(spout_task_of(root)) not in before for root in roots.tolist()]
        return roots[lost], edges[lost]


_NONE = (np.empty(0, np.uint64), np.empty(0, np.uint64))


def _edges(frames: Iterable[PackedFrame]) -> tuple[U64, U64]:
    parts = [
        section.trees
        for frame in frames
        for section in frame.without_values().sections
        if section.trees is not None
    ]
    if not parts:
        return _NONE
    return (
        np.concatenate([trees.roots for trees in parts]),
        np.concatenate([trees.edges for trees in parts]),
    )


def _name(number: int) -> str:
    return f"{_PREFIX}{number - LOOPED:020d}"
