"""A spout task's pending messages: their ids by sequence, cheap to add and conclude by thousands.

Sequences are dealt one after the other and mostly concluded thousands at a time, so the messages
lie in blocks of consecutive ones: to add some is to extend a list, to conclude some is a mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np

from topo.tracking.ids import U64

_BITS = 10
_BLOCK = 1 << _BITS
_IN_BLOCK = _BLOCK - 1
_FEW = 8
"""So many are looked up one by one: numpy would be slower."""


class _Block:
    """The messages of `_BLOCK` consecutive sequences, as far as they have been dealt."""

    __slots__ = ("alive", "ids", "left")

    def __init__(self) -> None:
        self.ids: list[Any] = []
        self.alive = bytearray(_BLOCK)
        self.left = 0


class PendingMessages:
    """The messages that are neither acked nor failed, by sequence."""

    def __init__(self) -> None:
        self.last = 0
        """The sequence that was dealt last."""
        self._fresh: list[Any] = []  # the ids of the last ones, not in blocks yet
        self._blocks: dict[int, _Block] = {}
        self._count = 0  # in blocks

    def __len__(self) -> int:
        return self._count + len(self._fresh)

    def __contains__(self, sequence: int) -> bool:
        self._sort_in()
        block = self._blocks.get((sequence - 1) >> _BITS)
        return block is not None and bool(block.alive[(sequence - 1) & _IN_BLOCK])

    @property
    def first(self) -> int | None:
        """The lowest pending sequence; None if no message is pending."""
        if self._blocks:
            number = min(self._blocks)
            return (number << _BITS) + self._blocks[number].alive.index(1) + 1
        return self.last - len(self._fresh) + 1 if self._fresh else None

    def restore(self, messages: dict[int, Any], last: int) -> None:
        """Take over messages that were pending, and the sequence that was dealt last."""
        for sequence in sorted(messages):
            if sequence != self.last + 1:
                self._sort_in()
            self.last = sequence
            self._fresh.append(messages[sequence])
        self._sort_in()
        self.last = last

    def add(self, msg_id: Any) -> int:
        """Add a message; return its sequence."""
        self._fresh.append(msg_id)
        self.last += 1
        return self.last

    def add_all(self, msg_ids: list[Any]) -> range:
        """Add messages; return their sequences."""
        self._fresh.extend(msg_ids)
        first = self.last + 1
        self.last += len(msg_ids)
        return range(first, self.last + 1)

    def take(self, sequence: int) -> Any:
        """Return a message's id, and forget the message."""
        self._sort_in()
        number, place = (sequence - 1) >> _BITS, (sequence - 1) & _IN_BLOCK
        block = self._blocks[number]
        if not block.alive[place]:
            raise KeyError(sequence)
        msg_id, block.ids[place] = block.ids[place], None
        block.alive[place] = 0
        block.left -= 1
        self._count -= 1
        self._drop_if_done(number, block)
        return msg_id

    def known(self, sequences: U64) -> U64:
        """Return those of the sequences whose messages are pending, in the order given."""
        self._sort_in()
        if len(sequences) <= _FEW:
            return np.array([s for s in sequences.tolist() if s in self], np.uint64)
        known = np.zeros(len(sequences), bool)
        for start, stop, block, places in self._in_blocks(sequences):
            known[start:stop] = np.frombuffer(block.alive, bool)[places]
        return sequences if known.all() else sequences[known]

    def ids_of(self, sequences: U64) -> list[Any]:
        """Return the ids of messages that are all pending, in the order given."""
        self._sort_in()
        if len(sequences) <= _FEW:
            found = [(one - 1 >> _BITS, one - 1 & _IN_BLOCK) for one in sequences.tolist()]
            return [self._blocks[number].ids[place] for number, place in found]
        ids: list[Any] = []
        for start, stop, block, places in self._in_blocks(sequences):
            first, last = int(places[0]), int(places[-1])
            if last - first + 1 == stop - start and (np.diff(places) == 1).all():
                ids += block.ids[first : last + 1]
            else:
                ids += [block.ids[place] for place in places.tolist()]
        return ids

    def drop(self, sequences: U64) -> None:
        """Forget messages that are all pending."""
        if len(sequences) == len(self):
            self._blocks.clear()
            self._fresh.clear()
            self._count = 0
            return
        if len(sequences) <= _FEW:
            for sequence in sequences.tolist():
                self.take(sequence)
            return
        self._sort_in()
        for _, _, block, places in self._in_blocks(sequences):
            np.frombuffer(block.alive, bool)[places] = False
            left = block.alive.count(1)
            self._count -= block.left - left
            block.left = left
            if left:
                for place in places.tolist():
                    block.ids[place] = None
        for number in {
            int(one) for one in np.unique((sequences - np.uint64(1)) >> np.uint64(_BITS))
        }:
            self._drop_if_done(number, self._blocks[number])

    def sequences(self, first: int = 1, last: int | None = None) -> U64:
        """Return the pending sequences from `first` to `last`, in order."""
        self._sort_in()
        end = self.last if last is None else last
        wanted = range((first - 1) >> _BITS, ((end - 1) >> _BITS) + 1)
        numbers = wanted if len(wanted) < len(self._blocks) else self._blocks
        found = [np.empty(0, np.uint64)]
        for number in sorted(n for n in numbers if n in self._blocks):
            alive = np.flatnonzero(np.frombuffer(self._blocks[number].alive, bool))
            found.append(alive.astype(np.uint64) + np.uint64((number << _BITS) + 1))
        joined = np.concatenate(found)
        return joined[(joined >= first) & (joined <= end)]

    # -- blocks -------------------------------------------------------------------------------

    def _sort_in(self) -> None:
        """Put the last ones into blocks."""
        fresh = self._fresh
        if not fresh:
            return
        place = self.last - len(fresh)
        done = 0
        while done < len(fresh):
            number, at = place >> _BITS, place & _IN_BLOCK
            block = self._blocks.get(number)
            if block is None:
                block = self._blocks[number] = _Block()
            count = min(_BLOCK - at, len(fresh) - done)
            block.ids.extend(repeat(None, at - len(block.ids)))
            block.ids.extend(fresh[done : done + count])
            block.alive[at : at + count] = b"\1" * count
            block.left += count
            place += count
            done += count
        self._count += done
        fresh.clear()

    def _drop_if_done(self, number: int, block: _Block) -> None:
        if not block.left:
            del self._blocks[number]

    def _in_blocks(self, sequences: U64) -> Iterator[tuple[int, int, _Block, Any]]:
        """Yield runs of sequences of one block: start, stop, the block, and their places in it."""
        places = (sequences - np.uint64(1)).astype(np.int64)
        numbers = places >> _BITS
        ends = np.flatnonzero(np.diff(numbers)) + 1
        places &= _IN_BLOCK
        start = 0
        for stop in [*ends.tolist(), len(numbers)] if len(numbers) else ():
            block = self._blocks.get(int(numbers[start]))
            if block is not None:
                yield start, stop, block, places[start:stop]
            start = stop
