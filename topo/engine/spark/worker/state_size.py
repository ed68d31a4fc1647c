"""The sizes of the saved state of the tasks of one slot and level, for `topo stats`."""

from __future__ import annotations

from collections.abc import Mapping

from topo.engine.spark.worker.messages import Payload, RecordKey
from topo.metrics.counters import TaskMetrics
from topo.storage.saving import Changes


class StoredSizes:
    """The bytes of each task's records, updated by the changes of each batch."""

    def __init__(self, records: Mapping[RecordKey, Payload]) -> None:
        self._records: dict[RecordKey, int] = {}
        self._tasks: dict[int, int] = {}
        self._news: set[int] = set()
        for key, record in records.items():
            self._put(key, len(record))

    def change(self, task: int, changes: Changes) -> None:
        for name, blob in changes.puts.items():
            self._put((task, name), len(blob))
        for name in changes.deletes:
            self._put((task, name), 0)
            del self._records[task, name]

    def report(self, metrics: Mapping[int, TaskMetrics]) -> None:
        """Copy the sizes that changed since the last report into the metrics."""
        for task in self._news & metrics.keys():
            metrics[task].saved_bytes = self._tasks[task]
        self._news.clear()

    def _put(self, key: RecordKey, size: int) -> None:
        task = key[0]
        self._tasks[task] = self._tasks.get(task, 0) + size - self._records.get(key, 0)
        self._records[key] = size
        self._news.add(task)
