"""Tuples that wait in windows to be acked by hand, when they leave: each a record of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from topo.storage.namespaces import SavedNamespaces
from topo.storage.saving import Changes, with_one_nan
from topo.timed import OperatorTask
from topo.tuples import Tuple

_TUPLES = 0


class WaitingTuples:
    """The tuples that wait in all windows of one task, and are acked when they do not any more."""

    def __init__(self, task: OperatorTask) -> None:
        self._task = task
        self._tuples: dict[int, tuple[int, Any, Tuple]] = {}
        self._gone: list[int] = []
        self._saved = SavedNamespaces("held", task.owner)
        self.next_number = 0

    @property
    def count(self) -> int:
        """The number of tuples that wait."""
        return len(self._tuples) - len(self._gone)

    def add(self, tuples: Iterable[Tuple], times: Sequence[int], keys: Iterable[Any]) -> range:
        """Take tuples in; return their numbers."""
        numbers = range(self.next_number, self.next_number + len(times))
        self.next_number = numbers.stop
        kept = zip(times, keys, tuples, strict=True)
        self._tuples.update(zip(numbers, kept, strict=True))
        self._saved.touch_all(_TUPLES, numbers)
        return numbers

    def unread(self, numbers: Sequence[int]) -> list[Tuple]:
        """Return the tuples with these numbers, in the order of their arrival."""
        return [self._tuples[number][2] for number in sorted(numbers)]

    def remove(self, numbers: Sequence[int]) -> None:
        """Note that tuples have left; `settle` acks them, once the windows with them are over."""
        self._gone += numbers

    def settle(self) -> None:
        """Ack and forget the tuples that wait no more.

        Several windows may be complete at once: a tuple that leaves with the second is in the
        first one, which is still to be executed and may anchor to it.
        """
        self._task.acks(self.unread(self._gone))
        for number in self._gone:
            del self._tuples[number]
        self._saved.touch_all(_TUPLES, self._gone)
        self._gone = []

    def load(self, saved: Mapping[str, bytes], still: Any) -> Iterator[tuple[Any, int, int]]:
        """Take over what was saved; yield key, time and number of each tuple."""
        self._tuples = self._saved.load(saved).get(_TUPLES, {})
        self.next_number = max(self.next_number, 1 + max(self._tuples, default=-1))
        for number, (ts, key, _) in self._tuples.items():
            yield with_one_nan(key), ts, number

    def save(self, changes: Changes, still: Any) -> None:
        """Write what changed."""
        self._saved.save({_TUPLES: self._tuples}, changes)
