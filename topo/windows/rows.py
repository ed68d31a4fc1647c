"""Tuples that wait in windows, as columns: made into tuples when a window is read.

The rows of a frame are a chunk, which is saved once, when it comes, and goes as a whole. Which of
its rows still wait follows from the positions of the windows, so that a row costs no record of its
own. Chunks of few rows are joined with the one before, each row a dozen times at most; one of which
hardly a row waits is written again without the others. With a record for each tuple, a windowed
bolt had 0.4 times the speed of a bolt that keeps its tuples in a list.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from topo.storage.chunks import pack_columns, unpack_columns
from topo.storage.saving import MAX_BLOB, Changes
from topo.tuples import Source, Tuple, make_tuples, new_tuple

_PREFIX = "waiting/"
_MOST = 4096
"""The most rows of a chunk that was joined."""
_SPARSE = 8
"""A chunk is written again when less than this part of its rows wait."""

StillWaits = Callable[[Any, int, int], bool]
KeysOf = Callable[[Source, Sequence[Sequence[Any]], int], Iterable[Any]]


class Chunk:
    """Rows with rising numbers, of one source by column, or of several by row."""

    __slots__ = ("_made", "columns", "is_saved", "live", "numbers", "sources", "times")

    def __init__(
        self,
        numbers: range | list[int],
        times: Sequence[int],
        sources: Source | list[Source],
        columns: Sequence[Sequence[Any]],
    ) -> None:
        self.numbers = numbers
        self.times = times
        self.sources = sources
        """The source of all rows, or of each; then `columns` has one column, of rows."""
        self.columns = columns
        self.live = len(numbers)
        self.is_saved = False
        self._made: list[Tuple] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def is_sparse(self) -> bool:
        """True iff so few rows wait that the others are worth leaving out."""
        return self.live * _SPARSE < len(self)

    @property
    def name(self) -> str:
        return f"{_PREFIX}{self.numbers[0]:012d}"

    def rows(self) -> Iterator[tuple[Source, Sequence[Any]]]:
        """Yield the source and the values of each row."""
        if isinstance(self.sources, list):
            return zip(self.sources, self.columns[0], strict=True)
        values = zip(*self.columns, strict=True) if self.columns else repeat((), len(self))
        return zip(repeat(self.sources, len(self)), values, strict=True)

    def tuples(self) -> list[Tuple]:
        """Return the tuples, the same ones each time."""
        made = self._made
        if made is None:
            if isinstance(self.sources, list):
                made = [new_tuple(source, values) for source, values in self.rows()]
            else:
                made = make_tuples(self.sources, self.columns, len(self))
            self._made = made
        return made

    def read(self, numbers: Sequence[int]) -> list[Tuple]:
        """Return the tuples with these numbers, which rise."""
        made = self.tuples()
        first = self.numbers[0]
        if isinstance(self.numbers, range):
            start, stop = numbers[0] - first, numbers[-1] - first + 1
            if stop - start == len(numbers):
                return made[start:stop]
            return [made[number - first] for number in numbers]
        places = dict(zip(self.numbers, made, strict=True))
        return [places[number] for number in numbers]

    def keys(self, keys_of: KeysOf) -> Iterable[Any]:
        """Return the key of each row."""
        if isinstance(self.sources, list):
            return [
                next(iter(keys_of(source, [(value,) for value in values], 1)))
                for source, values in self.rows()
            ]
        return keys_of(self.sources, self.columns, len(self))

    def select(self, places: Sequence[int]) -> Chunk:
        """Return a chunk of some of the rows, of which all wait."""
        sources = self.sources
        if isinstance(sources, list):
            sources = [sources[place] for place in places]
        made = Chunk(
            [self.numbers[place] for place in places],
            [self.times[place] for place in places],
            sources,
            [[column[place] for place in places] for column in self.columns],
        )
        if self._made is not None:
            made._made = [self._made[place] for place in places]
        return made

    def joined(self, other: Chunk) -> Chunk:
        """Return a chunk of these rows and the ones of a later chunk."""
        one, two = self.numbers, other.numbers
        numbers: range | list[int] = [*one, *two]
        if isinstance(one, range) and isinstance(two, range) and one.stop == two.start:
            numbers = range(one.start, two.stop)
        times = [*self.times, *other.times]
        if isinstance(self.sources, Source) and self.sources == other.sources:
            columns = [[*a, *b] for a, b in zip(self.columns, other.columns, strict=True)]
            made = Chunk(numbers, times, self.sources, columns)
        else:
            rows = [*self.rows(), *other.rows()]
            made = Chunk(numbers, times, [s for s, _ in rows], [[tuple(v) for _, v in rows]])
        made.live = self.live + other.live
        if self._made is not None or other._made is not None:
            made._made = self.tuples() + other.tuples()  # the same ones for the next window
        return made

    def pack(self) -> bytes:
        """Return what `unpack` takes; times that are one of the columns are saved once."""
        same = [place for place, column in enumerate(self.columns) if column is self.times]
        columns = self.columns if same else [*self.columns, self.times]
        place = same[0] if same else len(self.columns)
        return pack_columns((self.numbers, self.sources, place), columns)

    @classmethod
    def unpack(cls, data: bytes) -> Chunk:
        """Return a chunk that was packed."""
        (numbers, sources, place), columns = unpack_columns(data)
        width = 1 if isinstance(sources, list) else len(sources.fields)
        made = cls(numbers, columns[place], sources, columns[:width])
        made.is_saved = True
        return made


class Unread:
    """Tuples of a window that nobody has looked at: what is kept of it is also kept of them."""

    __slots__ = ("_chunks", "_numbers")

    def __init__(self, chunks: list[Chunk], numbers: Sequence[int]) -> None:
        self._chunks = chunks
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def read(self) -> list[Tuple]:
        """Return the tuples in the order of their arrival."""
        numbers, chunks = sorted(self._numbers), self._chunks
        found: list[Tuple] = []
        if not numbers:
            return found
        place = bisect_right(chunks, numbers[0], key=_first) - 1
        start = 0
        while start < len(numbers):
            chunk = chunks[place]
            stop = bisect_left(numbers, chunk.numbers[-1] + 1, start)
            if stop > start:
                found += chunk.read(numbers[start:stop])
            start = stop
            place += 1
        return found


class WaitingRows:
    """The rows that wait in all windows of one task."""

    def __init__(self, keys_of: KeysOf) -> None:
        self._keys_of = keys_of
        self._chunks: list[Chunk] = []  # a new list when some go: what is unread has the old one
        self._fresh: list[Chunk] = []
        self._gone: list[int] = []
        self._deleted: list[str] = []
        self._has_sparse = False
        self.next_number = 0
        self.count = 0
        """The number of rows that wait."""

    def add(self, source: Source, columns: Sequence[Sequence[Any]], times: Sequence[int]) -> range:
        """Take rows in; return their numbers."""
        numbers = range(self.next_number, self.next_number + len(times))
        self.next_number = numbers.stop
        chunk = Chunk(numbers, times, source, columns)
        self._chunks.append(chunk)
        self._fresh.append(chunk)
        self.count += len(times)
        return numbers

    def leave_out(self, numbers: Sequence[int]) -> None:
        """Take back some rows of those that came last: nothing has them."""
        gone = set(numbers)
        last = self._chunks[-1]
        self._fresh.pop()
        self._chunks = self._chunks[:-1]
        self.count -= len(gone)
        places = [place for place, number in enumerate(last.numbers) if number not in gone]
        if places:
            self._chunks.append(last.select(places))
            self._fresh.append(self._chunks[-1])

    def unread(self, numbers: Sequence[int]) -> Unread:
        """Return the tuples with these numbers, to be made when they are looked at."""
        return Unread(self._chunks, numbers)

    def remove(self, numbers: Sequence[int]) -> None:
        """Note that rows wait no more; `settle` lets them go."""
        self._gone += numbers
        self.count -= len(numbers)

    def settle(self) -> None:
        """Let chunks go of which no row waits."""
        if not self._gone:
            return
        chunks = self._chunks
        starts = np.fromiter(map(_first, chunks), np.int64, len(chunks))
        places = np.searchsorted(starts, np.array(self._gone, np.int64), side="right") - 1
        self._gone = []
        emptied = False
        counts = np.bincount(places)
        for place in np.flatnonzero(counts).tolist():
            chunk = chunks[place]
            chunk.live -= int(counts[place])
            emptied = emptied or not chunk.live
            self._has_sparse = self._has_sparse or chunk.is_sparse
        if emptied:
            self._deleted += [chunk.name for chunk in chunks if not chunk.live and chunk.is_saved]
            self._chunks = [chunk for chunk in chunks if chunk.live]

    # -- what is saved ------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], still: StillWaits) -> Iterator[tuple[Any, int, int]]:
        """Take over what was saved; yield key, time and number of what still waits."""
        for name in sorted(name for name in saved if name.startswith(_PREFIX)):
            chunk = Chunk.unpack(saved[name])
            self.next_number = max(self.next_number, chunk.numbers[-1] + 1)
            rows = zip(chunk.keys(self._keys_of), chunk.times, chunk.numbers, strict=True)
            waits = [row for row in rows if still(*row)]
            chunk.live = len(waits)
            if not waits:
                self._deleted.append(name)
                continue
            self._has_sparse = self._has_sparse or chunk.is_sparse
            self._chunks.append(chunk)
            self.count += len(waits)
            yield from waits

    def save(self, changes: Changes, still: StillWaits) -> None:
        """Write what is new, and what few rows wait of."""
        written = self._join_fresh() if self._fresh else []
        if self._has_sparse:
            written += self._thin_out(still)
        for chunk in written:
            if chunk.live and not chunk.is_saved:
                self._write(chunk, changes, still)
        changes.deletes += [name for name in self._deleted if name not in changes.puts]
        self._deleted = []

    def _write(self, chunk: Chunk, changes: Changes, still: StillWaits) -> None:
        """Write a chunk, in parts if its values are large."""
        data = chunk.pack()
        if len(data) > MAX_BLOB and len(chunk) > 1:
            del data
            places = self._live_places(chunk, still)
            middle = len(places) // 2
            parts = [chunk.select(part) for part in (places[:middle], places[middle:]) if part]
            at = self._chunks.index(chunk)
            self._chunks = [*self._chunks[:at], *parts, *self._chunks[at + 1 :]]
            for part in parts:
                self._write(part, changes, still)
            return
        chunk.is_saved = True
        changes.puts[chunk.name] = data

    def _join_fresh(self) -> list[Chunk]:
        """Join the chunks of this batch, as far as they are small; return them."""
        fresh = [chunk for chunk in self._fresh if chunk.live]
        self._fresh = []
        chunks = self._chunks[: len(self._chunks) - len(fresh)]
        start = len(chunks)
        for chunk in fresh:
            while chunks and len(chunks[-1]) <= len(chunk) <= _MOST - len(chunks[-1]):
                last = chunks.pop()
                self._forget(last)
                chunk = last.joined(chunk)
            chunks.append(chunk)
            start = min(start, len(chunks) - 1)
        self._chunks = chunks
        return chunks[start:]

    def _thin_out(self, still: StillWaits) -> list[Chunk]:
        """Leave rows out that do not wait, where they are most of a chunk; return such chunks."""
        self._has_sparse = False
        thinned = []
        chunks = []
        for chunk in self._chunks:
            if chunk.is_sparse:
                self._forget(chunk)
                places = self._live_places(chunk, still)
                chunk.live = 0  # it may be one of this batch's, and is not to be written
                chunk = chunk.select(places)
                thinned.append(chunk)
            chunks.append(chunk)
        self._chunks = chunks
        return thinned

    def _forget(self, chunk: Chunk) -> None:
        if chunk.is_saved:
            self._deleted.append(chunk.name)

    def _live_places(self, chunk: Chunk, still: StillWaits) -> list[int]:
        rows = zip(chunk.keys(self._keys_of), chunk.times, chunk.numbers, strict=True)
        return [place for place, (key, ts, n) in enumerate(rows) if still(key, ts, n)]


def _first(chunk: Chunk) -> int:
    return chunk.numbers[0]
