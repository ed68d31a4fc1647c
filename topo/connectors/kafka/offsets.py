"""Books of offsets: which were emitted, which of them are done, and up to where all are.

Sets of offsets are kept as ranges, since nearly all offsets follow one another: a hundred thousand
of them are a few numbers in the checkpoint.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class Ranges:
    """A set of whole numbers, as half-open ranges in ascending order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, number: int) -> None:
        """Add a number; in order, in constant time."""
        starts, ends = self._starts, self._ends
        if ends and ends[-1] == number:
            ends[-1] = number + 1
            return
        place = bisect_right(starts, number)
        if place and number < ends[place - 1]:
            return
        joins_left = place > 0 and ends[place - 1] == number
        joins_right = place < len(starts) and starts[place] == number + 1
        if joins_left and joins_right:
            ends[place - 1] = ends[place]
            del starts[place], ends[place]
        elif joins_left:
            ends[place - 1] = number + 1
        elif joins_right:
            starts[place] = number
        else:
            starts.insert(place, number)
            ends.insert(place, number + 1)

    def drop_below(self, number: int) -> int:
        """Remove all that are lower; return how many there were."""
        count = 0
        while self._ends and self._ends[0] <= number:
            count += self._ends.pop(0) - self._starts.pop(0)
        if self._starts and self._starts[0] < number:
            count += number - self._starts[0]
            self._starts[0] = number
        return count

    def end_of_run(self, number: int) -> int:
        """Return the end of the range that holds the number; the number itself if none does."""
        place = bisect_right(self._starts, number)
        return self._ends[place - 1] if place and number < self._ends[place - 1] else number

    def __contains__(self, number: int) -> bool:
        return self.end_of_run(number) > number

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def __getstate__(self) -> tuple[list[int], list[int]]:
        return self._starts, self._ends

    def __setstate__(self, saved: tuple[list[int], list[int]]) -> None:
        self._starts, self._ends = saved


class Offsets:
    """The books of one partition: the messages that were emitted, and those that are done.

    An offset that was never emitted is no gap: compaction, transactions and filters leave holes.
    """

    __slots__ = ("_acked", "_emitted", "committed", "has_committed")

    def __init__(self, committed: int) -> None:
        self.committed = committed
        """All below are done."""
        self.has_committed = False
        self._emitted = Ranges()
        self._acked = Ranges()

    def emit(self, offset: int) -> None:
        self._emitted.add(offset)

    def ack(self, offset: int) -> None:
        """Note that a message is done; one that is unknown is none of ours."""
        if offset >= self.committed:
            self._acked.add(offset)

    def next(self) -> int | None:
        """Return the offset that may be committed now, after an unbroken run of acks, or None."""
        found = self.committed
        for start, end in self._emitted:
            done = self._acked.end_of_run(start)
            if done > start:
                found = max(found, min(done, end))
            if done < end:
                break
        return found if found > self.committed else None

    def commit(self, offset: int) -> int:
        """Forget what lies below; return how many acked ones that were."""
        self.has_committed = True
        self.committed = max(self.committed, offset)
        self._emitted.drop_below(offset)
        return self._acked.drop_below(offset)

    def settle(self) -> None:
        """Commit what can be committed."""
        found = self.next()
        if found is not None:
            self.commit(found)

    def nth(self, number: int) -> int:
        """Return the n-th offset of those that are not committed, holes not counted."""
        left = number - 1
        for start, end in self._emitted:
            if left < end - start:
                return start + left
            left -= end - start
        raise IndexError(f"{len(self._emitted)} offsets are not committed; asked for {number}")

    def is_acked(self, offset: int) -> bool:
        return offset in self._acked

    def is_emitted(self, offset: int) -> bool:
        return offset in self._emitted

    def is_open(self, offset: int) -> bool:
        """True iff the message is out, and neither acked nor given up."""
        return offset in self._emitted and offset not in self._acked

    @property
    def span(self) -> int:
        """The number of messages in the books, which limits the reading ahead of the acks."""
        return len(self._emitted)

    @property
    def open_count(self) -> int:
        return len(self._emitted) - len(self._acked)

    def __getstate__(self) -> tuple[object, ...]:
        return self.committed, self.has_committed, self._emitted, self._acked

    def __setstate__(self, saved: tuple[int, bool, Ranges, Ranges]) -> None:
        self.committed, self.has_committed, self._emitted, self._acked = saved
