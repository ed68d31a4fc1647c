"""The ways in which changes of a table leave its bolt.

- As they are, for bolts that keep the table by the same key: `(key, old, new)`.
- As a stream: `(key, new)`, or both rows as a `Change`.
- By group, for an aggregate: what is taken away from a group and what is added to it. A row that
  stays in its group is one tuple, so that nobody sees the group without it; only a row that moves
  is two.
- By foreign key, for a join: the row goes to the task of the key it points to, and, if it pointed
  elsewhere before, a note of its leaving goes there.

With event time, each has the time of the change as its last field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

Change: TypeAlias = list[Any]
"""Key, old row, new row, and the time in ticks."""

KEY, VALUE, OLD, NEW, TIME = "key", "value", "old", "new", "ts"
GROUP, WHAT = "group", "what"
FOREIGN = "foreign"

ADDED, REMOVED, REPLACED = 1, 2, 3
"""The kinds of a contribution to a group."""


@dataclass(frozen=True)
class ByKey:
    """The changelog itself."""

    fields = (KEY, OLD, NEW)
    grouped_by = KEY

    def rows(self, changes: Sequence[Change], timed: bool) -> list[list[Any]]:
        """Return what comes out for some changes."""
        if timed:
            return [change[:] for change in changes]
        return [[key, old, new] for key, old, new, _ in changes]


class RowChange(NamedTuple):
    """The row of a key before and after a change; None is no row."""

    old: Any
    new: Any


@dataclass(frozen=True)
class AsStream:
    """The new row of each change, or both rows."""

    both: bool

    fields = (KEY, VALUE)
    grouped_by = KEY

    def rows(self, changes: Sequence[Change], timed: bool) -> list[list[Any]]:
        """Return what comes out for some changes."""
        if self.both:
            return _cut([[key, RowChange(old, new), ts] for key, old, new, ts in changes], timed)
        if not timed:
            return [[key, new] for key, _, new, _ in changes]
        return [[key, new, ts] for key, _, new, ts in changes]


@dataclass(frozen=True)
class ByGroup:
    """The contributions of the rows to their groups."""

    group: Callable[[Any, Any], Any]
    part: Callable[[Any], Any] | None
    """What is added up of a row; None: the row itself."""
    label: str = ""

    fields = (GROUP, WHAT, OLD, NEW)
    grouped_by = GROUP

    def rows(self, changes: Sequence[Change], timed: bool) -> list[list[Any]]:
        """Return a contribution for each group that a change touches; None is no group."""
        group, part = self.group, self.part
        out: list[list[Any]] = []
        try:
            for key, old, new, ts in changes:
                before = None if old is None else group(key, old)
                after = None if new is None else group(key, new)
                if part is not None:
                    old = None if before is None else part(old)
                    new = None if after is None else part(new)
                if before is not None and before == after:
                    out.append([after, REPLACED, old, new, ts])
                    continue
                if before is not None:
                    out.append([before, REMOVED, old, None, ts])
                if after is not None:
                    out.append([after, ADDED, None, new, ts])
        except Exception as error:
            error.add_note(f"in {self.label}")
            raise
        return _cut(out, timed)


@dataclass(frozen=True)
class ByForeignKey:
    """The rows, for the tasks of the keys that they point to."""

    foreign: Callable[[Any], Any]
    label: str = ""

    fields = (FOREIGN, KEY, NEW)
    grouped_by = FOREIGN

    def rows(self, changes: Sequence[Change], timed: bool) -> list[list[Any]]:
        """Return the row for the key it points to, and None for the one it pointed to before."""
        foreign = self.foreign
        out: list[list[Any]] = []
        try:
            for key, old, new, ts in changes:
                before = None if old is None else foreign(old)
                after = None if new is None else foreign(new)
                if old is not None and (new is None or before != after):
                    out.append([before, key, None, ts])
                if new is not None:
                    out.append([after, key, new, ts])
        except Exception as error:
            error.add_note(f"in {self.label}")
            raise
        return _cut(out, timed)


Leaving: TypeAlias = ByKey | AsStream | ByGroup | ByForeignKey


def _cut(rows: list[list[Any]], timed: bool) -> list[list[Any]]:
    """Return rows without their times, unless these have a meaning."""
    if not timed:
        for row in rows:
            del row[-1]
    return rows
