"""The rows of one side of an interval join: by key to be matched, by time to be let go.

An entry is a list or a tuple [ts, row, key, reported, number]. Entries of a key are in the order of
time, then of arrival, so that a match reads a stretch of them. By time they lie in buckets of an
eighth of the reach: letting go costs a bucket's one sort, never a look at what stays, and a
bucket is what is saved and deleted as a whole.

Of a side whose rows are reported when nothing matched them, `reported` says whether a row was in a
result; what changed of it after the row was saved is saved as the row's number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

from topo.storage.chunks import SavedChunks
from topo.storage.saving import Changes

Entry: TypeAlias = Any
"""(ts, row, key), or [ts, row, key, reported, number]."""

_ts: Callable[[Entry], int] = itemgetter(0)
_FEW = 8


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
            found: int = entries[self._sorted[bucket]][0]
            return found
        seen, lowest = self._looked_at.get(bucket, (0, entries[0][0]))
        lowest = int(min([lowest, *map(_ts, entries[seen:])]))
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

    def __init__(self, name: str, reach: int, lateness: int, size: int, *, reports: bool) -> None:
        """`reach`: how long after its time a row can be matched; `lateness`: how much longer.

        `reports` is True if rows without a match are results.
        """
        self.by_key: dict[Any, list[Entry]] = {}
        self.fresh: dict[int, list[Entry]] = {}
        """By bucket, what was added in this batch."""
        self.size = size
        self.reports = reports
        self.count = 0
        self.next_number = 0
        self._first_number = 0
        self._reach = reach
        self._lateness = lateness
        self._kept = TimeQueue(size)
        self._unreported = TimeQueue(size) if reports and lateness else None
        self._flags: dict[int, list[int]] = {}
        self._saved = SavedChunks(name)

    # -- a batch ------------------------------------------------------------------------------

    def insert(self, rows: list[Entry], entry: Entry) -> None:
        """Add an entry that is not the last of its key's."""
        rows.insert(bisect_right(rows, entry[0], key=_ts), entry)

    def note_reported(self, entry: Entry) -> None:
        """Note that a row was in a result, or was reported."""
        entry[3] = True
        if entry[4] < self._first_number:
            self._flags.setdefault(entry[0] // self.size, []).append(entry[4])

    def end_batch(self) -> None:
        """Put what came in this batch in the order of time."""
        for bucket, entries in self.fresh.items():
            self._kept.add(bucket, entries)
            if self._unreported is not None:
                self._unreported.add(bucket, entries)
            self.count += len(entries)

    def unmatched(self, watermark: int) -> list[Entry]:
        """Return the rows that nothing has matched in time; each is returned once."""
        if self._unreported is None:
            return []
        due, _ = self._unreported.pop(watermark - self._reach)
        found = [entry for entry in due if not entry[3]]
        for entry in found:
            self.note_reported(entry)
        return found

    def let_go(self, watermark: int) -> list[Entry]:
        """Forget what is out of reach; return those that were to be reported, in order."""
        gone, emptied = self._kept.pop(watermark - self._reach - self._lateness)
        if not gone:
            return []
        self._forget(gone)
        for bucket in emptied:
            self._flags.pop(bucket, None)
            self.fresh.pop(bucket, None)
            self._saved.drop(bucket)
        if not self.reports or self._unreported is not None:
            return []
        return [entry for entry in gone if not entry[3]]

    def _forget(self, gone: list[Entry]) -> None:
        """Take entries out of the lists of their keys, of which they are the first ones."""
        self.count -= len(gone)
        by_key = self.by_key
        several: dict[Any, int] = {}
        for entry in gone:
            key = entry[2]
            rows = by_key[key]
            if len(rows) == 1:
                del by_key[key]
            else:
                several[key] = several.get(key, 0) + 1
        for key, number in several.items():
            rows = by_key[key]
            if number == len(rows):
                del by_key[key]
            else:
                del rows[:number]

    def first_due(self) -> int | None:
        """Return the lowest watermark at which a row is reported or let go."""
        due = []
        if (first := self._kept.first()) is not None:
            due.append(first + self._reach + self._lateness + 1)
        if self._unreported is not None and (first := self._unreported.first()) is not None:
            due.append(first + self._reach + 1)
        return min(due, default=None)

    def oldest(self) -> int | None:
        """Return the lowest time of a row."""
        return self._kept.first()

    # -- what is saved ------------------------------------------------------------------------

    def save(self, changes: Changes) -> None:
        """Write what came in this batch, and which rows have become reported."""
        for bucket, entries in self.fresh.items():
            if self.reports:
                times, rows, keys, flags, numbers = zip(*entries, strict=True)
                chunk: Any = (times, rows, keys, flags, numbers)
            else:
                times, rows, keys = zip(*entries, strict=True)
                chunk = (times, rows, keys)
            self._saved.add(bucket, chunk, changes)
        for bucket, changed in self._flags.items():
            self._saved.add(bucket, changed, changes)
        self._saved.save(changes)
        self.fresh = {}
        self._flags = {}
        self._first_number = self.next_number

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        """Take over what was saved, at the committed watermark."""
        keep_from = watermark - self._reach - self._lateness
        report_from = watermark - self._reach
        for bucket, chunks in self._saved.load(saved).items():
            entries: list[Entry] = []
            reported: set[int] = set()
            for chunk in chunks:
                if isinstance(chunk, list):
                    reported.update(chunk)
                    continue
                rows = zip(*chunk, strict=True)
                entries += map(list, rows) if self.reports else rows
            entries = [entry for entry in entries if entry[0] >= keep_from]
            if not entries:
                self._saved.drop(bucket)
                continue
            for entry in entries if self.reports else ():
                entry[3] = entry[3] or entry[4] in reported
                self.next_number = max(self.next_number, entry[4] + 1)
            self._kept.add(bucket, entries)
            self.count += len(entries)
            if self._unreported is not None:
                late = [entry for entry in entries if entry[0] >= report_from]
                if late:
                    self._unreported.add(bucket, late)
            for entry in entries:
                rows_of_key = self.by_key.setdefault(entry[2], [])
                if rows_of_key and rows_of_key[-1][0] > entry[0]:
                    self.insert(rows_of_key, entry)
                else:
                    rows_of_key.append(entry)
        self._first_number = self.next_number


def stretch(rows: list[Entry], low: int, high: int) -> list[Entry]:
    """Return the entries from one time to another, both included."""
    if len(rows) > _FEW:
        return rows[bisect_left(rows, low, key=_ts) : bisect_right(rows, high, key=_ts)]
    return [entry for entry in rows if low <= entry[0] <= high]


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
