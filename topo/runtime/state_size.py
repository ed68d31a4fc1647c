"""The sizes of the saved state of the tasks of one slot and level, for `topo stats`."""

from __future__ import annotations

from collections.abc import Mapping

from topo.metrics.counters import TaskMetrics
from topo.storage.saving import Changes


class StoredSizes:
    """The bytes of each task's records, updated by the changes of each batch."""

    def __init__(self, saved: Mapping[int, Mapping[str, bytes]]) -> None:
        self._records: dict[tuple[int, str], int] = {}
        self._tasks: dict[int, int] = {}
        self._news: set[int] = set()
        for task, records in saved.items():
            for name, record in records.items():
                self._put(task, name, len(record))

    def change(self, task: int, changes: Changes) -> None:
        for name, blob in changes.puts.items():
            self._put(task, name, len(blob))
        for name in changes.deletes:
            self._put(task, name, 0)
            del self._records[task, name]

    def report(self, metrics: Mapping[int, TaskMetrics]) -> None:
        """Note the sizes that changed since the last report in the metrics."""
        for task in self._news & metrics.keys():
            metrics[task].note_saved(self._tasks[task])
        self._news.clear()

    def _put(self, task: int, name: str, size: int) -> None:
        before = self._records.get((task, name), 0)
        self._tasks[task] = self._tasks.get(task, 0) + size - before
        self._records[task, name] = size
        self._news.add(task)
