"""The rows of one side of an interval join: by key to be matched, by time to be let go.

An entry is a tuple (ts, row, key, number): tuples of plain values are no work for the garbage
collector, which lists, of which there would be one for each row, are. A key has one entry, or
`SeveralEntries` in the order of time, then of arrival, so that a match reads a stretch of them. By
time, entries lie in buckets of an eighth of the reach: letting go costs a bucket's one sort, never
a look at what stays, and a bucket is what is saved and deleted as a whole. Saved are the columns of
what came, as they came.

Of a side whose rows are results when nothing matches them, `reported` has the numbers of the rows
that were in a result.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from operator import itemgetter
from typing import Any, TypeAlias

from topo.storage.chunks import SavedChunks
from topo.storage.saving import Changes, column_with_one_nan

Entry: TypeAlias = "tuple[int, Any, Any, int]"
"""Time, row, key and number."""

_ts: Callable[[Entry], int] = itemgetter(0)
_number: Callable[[Entry], int] = itemgetter(3)
_FEW = 8


class SeveralEntries(list[Entry]):
    """The entries of a key that has more than one."""


class TimeQueue:
    """Entries in the order of their times, as far as they have to be."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._buckets: dict[int, list[Entry]] = {}
        self._order: list[int] = []
        self._sorted: dict[int, int] = {}  # bucket -> how many of its entries are gone, if sorted
        self._looked_at: dict[int, tuple[int, int]] = {}  # the first: how many, and their lowest

    def add(self, bucket: int, entries: list[Entry]) -> None:
        """Take in entries of one bucket."""
        known = self._buckets.get(bucket)
        if known is None:
            self._buckets[bucket] = list(entries)
            insort(self._order, bucket)
            return
        gone = self._sorted.pop(bucket, 0)
        if gone:
            del known[:gone]
            self._looked_at.pop(bucket, None)
        known += entries

    def pop(self, before: int) -> tuple[list[Entry], list[int]]:
        """Take out what is before a time, in order; return it, and the buckets that are empty."""
        found: list[Entry] = []
        emptied: list[int] = []
        while self._order and self._order[0] * self.size < before:
            bucket = self._order[0]
            entries = self._buckets[bucket]
            gone = self._in_order(bucket)
            end = len(entries)
            if (bucket + 1) * self.size > before:
                end = bisect_left(entries, before, lo=gone, key=_ts)
            found += entries[gone:end]
            if end < len(entries):
                self._sorted[bucket] = end
                break
            emptied.append(bucket)
            del self._buckets[bucket], self._sorted[bucket], self._order[0]
        return found, emptied

    def first(self) -> int | None:
        """Return the lowest time there is."""
        if not self._order:
            return None
        bucket = self._order[0]
        entries = self._buckets[bucket]
        if bucket in self._sorted:
            return entries[self._sorted[bucket]][0]
        seen, lowest = self._looked_at.get(bucket, (0, entries[0][0]))
        lowest = min([lowest, *map(_ts, entries[seen:])])
        self._looked_at = {bucket: (len(entries), lowest)}
        return lowest

    def _in_order(self, bucket: int) -> int:
        gone = self._sorted.get(bucket)
        if gone is None:
            self._buckets[bucket].sort(key=_ts)
            gone = self._sorted[bucket] = 0
        return gone


class SideRows:
    """The rows of one side that may still be matched, or are still to be reported."""

    def __init__(self, name: str, until: int, lateness: int, size: int, *, reports: bool) -> None:
        """`until`: how long after its time the last row comes that can match one of these.

        It is below zero if that one comes before. `lateness` is how much longer rows are kept, and
        `reports` is True if those without a match are results.
        """
        self.by_key: dict[Any, Any] = {}
        """An Entry, or SeveralEntries."""
        self.reports = reports
        self.reported: set[int] = set()
        self.count = 0
        self.first_number = 0
        """Of the rows of this batch, which are not saved."""
        self._next_number = 0
        self._size = size
        self._until = until
        self._keep = max(0, until) + lateness
        self._kept = TimeQueue(size)
        reports_before = reports and self._keep != until
        self._unreported = TimeQueue(size) if reports_before else None
        self._fresh: dict[int, list[Any]] = {}  # bucket -> columns of what came in this batch
        self._flags: dict[int, list[int]] = {}  # bucket -> saved rows that were reported
        self._saved = SavedChunks(name)

    # -- a batch ------------------------------------------------------------------------------

    def entries(
        self, times: Sequence[int], keys: Sequence[Any], columns: Sequence[Sequence[Any]]
    ) -> list[Entry]:
        """Take rows for a later save and for their time; return them, to be added by key."""
        first = self._next_number
        made = list(zip(times, _rows(columns, len(times)), keys, count(first)))
        self._next_number = first + len(made)
        self.count += len(made)
        size = self._size
        bucket = min(times) // size
        if bucket == max(times) // size:
            self._note(bucket, made, (times, keys, columns, range(first, self._next_number)))
            return made
        places: dict[int, list[int]] = {}
        for place, ts in enumerate(times):
            places.setdefault(ts // size, []).append(place)
        for bucket, own in places.items():
            parts = [[column[place] for place in own] for column in (times, keys, *columns)]
            chunk = (parts[0], parts[1], parts[2:], [first + place for place in own])
            self._note(bucket, [made[place] for place in own], chunk)
        return made

    def _note(self, bucket: int, entries: list[Entry], chunk: Any) -> None:
        self._fresh.setdefault(bucket, []).append(chunk)
        self._kept.add(bucket, entries)
        if self._unreported is not None:
            self._unreported.add(bucket, entries)

    def add_behind(self, known: Any, entry: Entry) -> None:
        """Add an entry by its key, which has an entry or several."""
        if type(known) is not SeveralEntries:
            both = (known, entry) if known[0] <= entry[0] else (entry, known)
            self.by_key[entry[2]] = SeveralEntries(both)
        elif known[-1][0] <= entry[0]:
            known.append(entry)
        else:
            known.insert(bisect_right(known, entry[0], key=_ts), entry)

    def note_reported(self, entry: Entry) -> None:
        """Note that a row was in a result, or was reported."""
        number = entry[3]
        self.reported.add(number)
        if number < self.first_number:
            self._flags.setdefault(entry[0] // self._size, []).append(number)

    def unmatched(self, watermark: int) -> list[Entry]:
        """Return the rows that nothing has matched in time; each is returned once."""
        if self._unreported is None:
            return []
        due, _ = self._unreported.pop(watermark - self._until)
        found = [entry for entry in due if entry[3] not in self.reported]
        for entry in found:
            self.note_reported(entry)
        return found

    def let_go(self, watermark: int) -> list[Entry]:
        """Forget what is out of reach; return those that were to be reported, in order."""
        gone, emptied = self._kept.pop(watermark - self._keep)
        if not gone:
            return []
        self._forget(gone)
        for bucket in emptied:
            self._flags.pop(bucket, None)
            self._fresh.pop(bucket, None)
            self._saved.drop(bucket)
        if not self.reports:
            return []
        reported = self.reported
        found = [entry for entry in gone if entry[3] not in reported]
        reported.difference_update(map(_number, gone))
        return found

    def _forget(self, gone: list[Entry]) -> None:
        """Take entries out of their keys', of which they are the first ones."""
        self.count -= len(gone)
        by_key = self.by_key
        several: dict[Any, int] = {}
        for entry in gone:
            key = entry[2]
            known = by_key.pop(key, None)
            if type(known) is SeveralEntries:
                by_key[key] = known
                several[key] = several.get(key, 0) + 1
        for key, number in several.items():
            rows = by_key[key]
            if number == len(rows):
                del by_key[key]
            elif number == len(rows) - 1:
                by_key[key] = rows[-1]
            else:
                del rows[:number]

    def first_due(self) -> int | None:
        """Return the lowest watermark at which a row is reported or let go."""
        due = []
        if (first := self._kept.first()) is not None:
            due.append(first + self._keep + 1)
        if self._unreported is not None and (first := self._unreported.first()) is not None:
            due.append(first + self._until + 1)
        return min(due, default=None)

    def oldest(self) -> int | None:
        """Return the lowest time of a row."""
        return self._kept.first()

    # -- what is saved ------------------------------------------------------------------------

    def save(self, changes: Changes) -> None:
        """Write what came in this batch, and which rows have become reported."""
        for bucket, chunks in self._fresh.items():
            if self.reports:
                own = (self.reported.intersection(chunk[3]) for chunk in chunks)
                self._saved.add(bucket, (chunks, sorted(set().union(*own))), changes)
            else:
                self._saved.add(bucket, (chunks, []), changes)
        for bucket, changed in self._flags.items():
            self._saved.add(bucket, ([], changed), changes)
        self._saved.save(changes)
        self._fresh = {}
        self._flags = {}
        self.first_number = self._next_number

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        """Take over what was saved, at the committed watermark."""
        keep_from = watermark - self._keep
        report_from = watermark - self._until
        for bucket, parts in self._saved.load(saved).items():
            entries: list[Entry] = []
            reported: set[int] = set()
            for chunks, numbers in parts:
                reported.update(numbers)
                for times, keys, columns, own in chunks:
                    self._next_number = max(self._next_number, own[-1] + 1)
                    keys = column_with_one_nan(keys)
                    rows = zip(times, _rows(columns, len(times)), keys, own, strict=True)
                    entries += [entry for entry in rows if entry[0] >= keep_from]
            if not entries:
                self._saved.drop(bucket)
                continue
            self._kept.add(bucket, entries)
            self.count += len(entries)
            self.reported |= reported.intersection(map(_number, entries))
            late = [entry for entry in entries if entry[0] >= report_from]
            if self._unreported is not None and late:
                self._unreported.add(bucket, late)
            for entry in entries:
                known = self.by_key.setdefault(entry[2], entry)
                if known is not entry:
                    self.add_behind(known, entry)
        self.first_number = self._next_number


def _rows(columns: Sequence[Sequence[Any]], size: int) -> Iterable[Any]:
    return zip(*columns, strict=True) if columns else [()] * size


def stretch(rows: SeveralEntries, low: int, high: int) -> list[Entry]:
    """Return the entries from one time to another, both included."""
    if len(rows) > _FEW:
        return rows[bisect_left(rows, low, key=_ts) : bisect_right(rows, high, key=_ts)]
    return rows


def in_order(right: list[Entry], left: list[Entry]) -> list[tuple[int, Entry]]:
    """Return unmatched rows of both sides by time, the right before the left, then by key."""
    both = [(0, entry) for entry in right] + [(1, entry) for entry in left]
    try:
        both.sort(key=_by_key)
    except TypeError:  # keys of several types
        both.sort(key=_by_time)
    return both


def _by_key(one: tuple[int, Entry]) -> Any:
    return one[1][0], one[0], one[1][2]


def _by_time(one: tuple[int, Entry]) -> Any:
    return one[1][0], one[0]
