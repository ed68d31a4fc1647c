"""The batches of a run, or its epochs, far beyond the latest ones that an engine keeps.

A driver takes the engine's latest after each turn, and what the driver before has written first, so
that a timeline goes on over restarts. A batch that is done again takes the place of its number and
of all after it, since these were undone. One thread takes; any thread may read a page.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from topo.manage.documents import made_of
from topo.metrics.figures import BatchRecord

MOST_BATCHES = 2000
"""Some 400 kB when written: at three batches a second eleven minutes."""
PAGE = 100


class Timeline:
    """The latest batches in the order of their numbers."""

    def __init__(self, written: object = None) -> None:
        self._batches: list[BatchRecord] = []
        self._last: tuple[int, float] | None = None  # of the engine's, taken last
        for document in written if isinstance(written, list) else []:
            with suppress(TypeError, ValueError, AttributeError, OverflowError):
                self._batches.append(made_of(BatchRecord, document))
        self._batches.sort(key=_number)

    def take(self, latest: Sequence[BatchRecord]) -> None:
        """Add those of the engine's latest batches, the oldest first, that are new."""
        new: list[BatchRecord] = []
        for batch in reversed(latest):
            if (batch.id, batch.ended_at) == self._last:
                break
            new.insert(0, batch)
        if new:
            self._add(new)
            self._last = (new[-1].id, new[-1].ended_at)

    def page(self, before: int | None = None, limit: int = PAGE) -> list[BatchRecord]:
        """Return so many batches before that of a number, or the latest, the oldest first."""
        batches = self._batches  # which is not changed, but replaced
        ends = len(batches) if before is None else bisect_left(batches, before, key=_number)
        return batches[max(0, ends - limit) : ends]

    def dump(self) -> Any:
        return [vars(batch) for batch in self._batches]

    def _add(self, new: Sequence[BatchRecord]) -> None:
        before = self._batches[: bisect_left(self._batches, new[0].id, key=_number)]
        self._batches = [*before, *new][-MOST_BATCHES:]


def _number(batch: BatchRecord) -> int:
    return batch.id
