"""The failures of tasks that Spark has tried more than once.

Spark tells how the last attempt failed. Once a slot has staged its batch, each further attempt is
refused by the ackers, whatever the first one failed of: a full disk, a JVM without memory.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

_MOST_TASKS = 10_000
_TOLD_MS = 2000


def task_failures(context: Any, query: Any) -> list[str]:
    """Return how tasks of a query's last job failed, the first first; [] if that is unknown."""
    with suppress(Exception):  # a Spark that keeps no such record, or that has died meanwhile
        spark = context._jsc.sc()
        spark.listenerBus().waitUntilEmpty(_TOLD_MS)
        tracker = context.statusTracker()
        job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(str(query.runId))))
        found = []
        for stage in map(tracker.getStageInfo, job.stageIds):
            if stage is None or not stage.numFailedTasks:
                continue
            attempt = stage.currentAttemptId
            tasks = spark.statusStore().taskList(stage.stageId, attempt, _MOST_TASKS)
            for task in map(tasks.apply, range(tasks.length())):
                if task.errorMessage().isDefined():
                    found.append((task.taskId(), str(task.errorMessage().get())))
        return [text for _, text in sorted(found)]
    return []
