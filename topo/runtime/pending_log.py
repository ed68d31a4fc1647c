"""The saved form of a spout's pending messages: a blob for those of each batch.

A message is written once, with its batch, and its blob is deleted when nothing of it is pending any
more; until then later blobs name the messages of it that are concluded. So a batch costs what it
adds and concludes. A blob of which little is left is given up: what is left goes into the next one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from topo.errors import UnsavableAttributeError
from topo.shipping.pickling import find_unpicklable
from topo.storage.classes import load_saved
from topo.storage.saving import MAX_BLOB, Changes, type_of
from topo.tracking.ids import U64
from topo.wire.column import dump

_PREFIX = "pending/"
_SMALL = 1000
"""Messages: a blob of fewer is kept until the last is concluded."""
_LITTLE = 4
"""A blob is given up if no more than one in so many of its messages is left."""
_FEW = 8
"""So many are looked up one by one: numpy would be slower."""


class Pending(Protocol):
    """The messages that are pending."""

    last: int

    def __len__(self) -> int: ...
    def sequences(self, first: int = 1, last: int | None = None) -> U64: ...
    def known(self, sequences: U64) -> U64: ...
    def ids_of(self, sequences: U64) -> list[Any]: ...


@dataclass
class _Blob:
    """The messages of a blob: which they are, how many are left, and whose ends it tells."""

    first: int
    last: int
    count: int
    left: int
    moved: set[int] = field(default_factory=set)
    """Messages of it that are not between `first` and `last`."""
    names: set[int] = field(default_factory=set)
    """The blobs with messages that this one says are concluded."""


def pending_in(saved: Mapping[str, bytes]) -> int:
    """Return how many messages are pending by what a task has saved."""
    return len(PendingLog("").load(saved, 0))


class PendingLog:
    """The log of one spout task."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._next = 0
        self._blobs: dict[int, _Blob] = {}  # the oldest first
        self._numbers: list[int] = []  # of blobs with a range of messages, in order
        self._firsts: list[int] = []  # of those ranges
        self._lasts: list[int] = []
        self._empty: set[int] = set()  # blobs without messages that others are read with
        self._moved: dict[int, int] = {}  # message -> its blob, if it is in no range
        self._saved = 0  # the last sequence that has been saved, or has not had to be

    def load(self, saved: Mapping[str, bytes], last: int) -> dict[int, Any]:
        """Return the messages, of which `last` is the last sequence that was dealt."""
        self._saved = last
        messages: dict[int, Any] = {}
        for key in sorted(key for key in saved if key.startswith(_PREFIX)):
            number = int(key.removeprefix(_PREFIX))
            sequences, ids, concluded = load_saved(saved[key])
            blob = self._blobs[number] = _Blob(0, 0, len(ids), 0)
            for sequence, msg_id in zip(sequences, ids, strict=True):
                messages[sequence] = msg_id
                self._moved[sequence] = number
            if isinstance(concluded, bytes):  # it is a list in checkpoints of earlier versions
                concluded = np.frombuffer(concluded, np.uint64).tolist()
            for sequence in concluded:
                messages.pop(sequence, None)
                if (of := self._moved.pop(sequence, None)) is not None:
                    blob.names.add(of)
            self._next = number + 1
        for number, left in Counter(self._moved.values()).items():
            self._blobs[number].left = left
        for sequence, number in self._moved.items():
            self._blobs[number].moved.add(sequence)
        self._empty = {number for number, blob in self._blobs.items() if not blob.left}
        return messages

    def save(self, pending: Pending, concluded: Sequence[U64], changes: Changes) -> None:
        """Add to `changes` what to write, given what was concluded since the last call."""
        if not len(pending):
            self._delete(list(self._blobs), changes)
            self._moved.clear()
            self._saved = pending.last
            return
        gone = self._saved_ones(concluded)
        named = self._take_out(gone)
        given_up = {n for n in named if self._is_given_up(self._blobs[n])}
        moving = self._move_out(pending, given_up)
        fresh = pending.sequences(self._saved + 1) if pending.last > self._saved else gone[:0]
        self._saved = pending.last
        self._empty |= {number for number in named if not self._blobs[number].left}
        self._delete(self._unneeded(), changes)
        named &= self._blobs.keys()
        if not named:
            gone = gone[:0]
        if len(fresh) or len(moving) or len(gone):
            self._put(pending, fresh, moving, gone, named, changes)

    # -- what is over -------------------------------------------------------------------------

    def _saved_ones(self, concluded: Sequence[U64]) -> U64:
        parts = [part[part <= self._saved] for part in concluded if len(part)]
        if not parts:
            return np.empty(0, np.uint64)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _take_out(self, gone: U64) -> set[int]:
        """Count messages out of their blobs; return those blobs."""
        if not len(gone):
            return set()
        found: Counter[int] = Counter()
        rest: list[int] = []
        if len(gone) > _FEW and self._numbers:
            at = np.searchsorted(np.array(self._firsts, np.uint64), gone, side="right") - 1
            inside = (at >= 0) & (gone <= np.array(self._lasts, np.uint64)[np.maximum(at, 0)])
            counts = np.bincount(at[inside], minlength=len(self._numbers))
            for place in np.flatnonzero(counts).tolist():
                found[self._numbers[place]] += int(counts[place])
            rest = gone[~inside].tolist()
        else:
            for sequence in gone.tolist():
                place = bisect_right(self._firsts, sequence) - 1
                if place >= 0 and sequence <= self._lasts[place]:
                    found[self._numbers[place]] += 1
                else:
                    rest.append(sequence)
        for sequence in rest:
            number = self._moved.pop(sequence)
            self._blobs[number].moved.discard(sequence)
            found[number] += 1
        for number, count in found.items():
            self._blobs[number].left -= count
        return set(found)

    def _is_given_up(self, blob: _Blob) -> bool:
        """True iff little is left of a blob, and it says nothing of others that they need."""
        has_little = blob.count > _SMALL and 0 < blob.left * _LITTLE <= blob.count
        return has_little and not (blob.names & self._blobs.keys())

    def _unneeded(self) -> list[int]:
        """Return those of the blobs without messages that no other blob is to be read with."""
        gone: list[int] = []
        for number in sorted(self._empty):  # what it names is older
            if (self._blobs[number].names & self._blobs.keys()).issubset(gone):
                gone.append(number)
        return gone

    def _delete(self, numbers: Collection[int], changes: Changes) -> None:
        for number in numbers:
            blob = self._blobs.pop(number)
            self._empty.discard(number)
            changes.deletes.append(_key(number))
            if blob.last:
                place = bisect_left(self._numbers, number)
                del self._numbers[place], self._firsts[place], self._lasts[place]

    def _move_out(self, pending: Pending, given_up: Collection[int]) -> U64:
        """Return the messages of these blobs, which the next one will have."""
        parts = [np.empty(0, np.uint64)]
        for number in given_up:
            blob = self._blobs[number]
            if blob.last:
                parts.append(pending.sequences(blob.first, blob.last))
            parts.append(np.array(sorted(blob.moved), np.uint64))
            blob.left = 0
        return np.concatenate(parts)

    # -- what is written ----------------------------------------------------------------------

    def _put(
        self,
        pending: Pending,
        fresh: U64,
        moving: U64,
        gone: U64,
        named: set[int],
        changes: Changes,
    ) -> None:
        ids = pending.ids_of(np.concatenate([moving, fresh]))
        concluded = gone.tobytes()
        sequences: Sequence[int] = [*moving.tolist(), *fresh.tolist()]
        if not len(moving) and len(fresh) and int(fresh[-1]) - int(fresh[0]) + 1 == len(fresh):
            sequences = range(int(fresh[0]), int(fresh[-1]) + 1)
        blob = self._dump(sequences, ids, concluded)
        if len(blob) > MAX_BLOB and len(ids) > 1:
            half, moved = len(ids) // 2, len(moving)
            del blob
            self._put(pending, fresh[: max(0, half - moved)], moving[:half], gone, named, changes)
            self._put(
                pending, fresh[max(0, half - moved) :], moving[half:], gone[:0], set(), changes
            )
            return
        number, self._next = self._next, self._next + 1
        changes.puts[_key(number)] = blob
        made = self._blobs[number] = _Blob(0, 0, len(ids), len(ids), names=named)
        for sequence in moving.tolist():
            self._moved[sequence] = number
            made.moved.add(sequence)
        if len(fresh):
            made.first, made.last = int(fresh[0]), int(fresh[-1])
            self._numbers.append(number)
            self._firsts.append(made.first)
            self._lasts.append(made.last)

    def _dump(self, sequences: Sequence[int], ids: list[Any], concluded: bytes) -> bytes:
        try:
            return dump((sequences, ids, concluded))
        except Exception as error:
            for msg_id in ids:
                found = find_unpicklable(msg_id)
                if found is not None:
                    raise UnsavableAttributeError(
                        f"{self._owner}: a msg_id holds {type_of(found[1])}, which cannot be saved",
                        hint="keep plain data in the state; make the rest in prepare",
                    ) from error
            raise


def _key(number: int) -> str:
    return f"{_PREFIX}{number:012d}"
