"""The plan that an acker is told of a topology, and the assignment of roots to ackers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import product

from topo.tracking.ids import MAX_SPOUT_TASK
from topo.tracking.refusals import Refusal, Refused

MAX_LEVELS = 256
MAX_SLOTS = 4096
MAX_TICKS = 1000
MAX_COMPONENTS = 10_000
LEAST_SECS, MOST_SECS = 1e-3, 1e9


class Mode(IntEnum):
    """The mode of a topology from its next batch on; the numbers are those of the protocol."""

    ACTIVE = 0
    INACTIVE = 1
    DRAIN = 2
    LAST_TICK = 3
    CLOSE = 4


@dataclass(frozen=True)
class TrackingPlan:
    """The facts of a plan that tracking needs."""

    levels: int
    slots: int
    spout_tasks: tuple[int, ...]
    components: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Each component's first task and number of tasks, used to name tasks in reasons."""
    timeout_secs: float | None = None
    tick_secs: tuple[float, ...] = ()

    def component_of(self, task: int) -> str:
        for name, (first, count) in self.components.items():
            if first <= task < first + count:
                return name
        return "?"

    def executions(self) -> Iterator[tuple[int, int]]:
        """Yield every (level, slot) that has to stage in a batch."""
        return product(range(self.levels), range(self.slots))

    def next_tick(self, after: float) -> float | None:
        """Return the time of the first tick after this one, or None if there are no ticks."""
        due = [(math.floor(after / period) + 1) * period for period in self.tick_secs]
        return min(due, default=None)

    def check(self) -> None:
        """Refuse a plan that no topology can have."""
        tasks = self.spout_tasks
        periods = self.tick_secs
        wrong = ""
        if not 0 < self.levels <= MAX_LEVELS or not 0 < self.slots <= MAX_SLOTS:
            wrong = f"{self.levels} levels, {self.slots} slots"
        elif any(not 0 < task <= MAX_SPOUT_TASK for task in tasks) or len(set(tasks)) < len(tasks):
            wrong = f"{len(tasks)} spout tasks from {min(tasks)} to {max(tasks)}"
        elif len(self.components) > MAX_COMPONENTS:
            wrong = f"{len(self.components)} components"
        elif self.timeout_secs is not None and not _is_period(self.timeout_secs):
            wrong = f"a timeout of {self.timeout_secs} s"
        elif len(periods) > MAX_TICKS or not all(map(_is_period, periods)):
            wrong = f"ticks every {', '.join(map(str, periods[:3]))} s"
        if wrong:
            raise Refused(Refusal.MALFORMED, f"no topology has {wrong}")


def _is_period(secs: float) -> bool:
    return LEAST_SECS <= secs <= MOST_SECS


def shard_of(spout_tasks: Sequence[int], shards: int) -> dict[int, int]:
    """Assign spout tasks to shards in turn; return the shard by task."""
    return {task: index % shards for index, task in enumerate(sorted(spout_tasks))}
