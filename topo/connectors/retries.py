"""The pauses before a failed message comes again: longer with each failure, as Storm's are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from topo.connectors.base import check_positive
from topo.errors import ComponentError

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Backoff:
    """The pauses before a failed message is emitted again; seconds.

    After the first failure it is `first`, then `period` * 2, * 4, ..., at most `most`. After
    `retries` of them the message is given up; None: never.
    """

    first: float = 0.0
    period: float = 0.002
    most: float = 10.0
    retries: int | None = None

    def __post_init__(self) -> None:
        check_positive("Backoff", most=self.most or None)
        if min(self.first, self.period) < 0 or (self.retries is not None and self.retries < 0):
            raise ComponentError(f"{self}: pauses and retries are not negative")

    def gives_up(self, failures: int) -> bool:
        """Return True if a message that failed so often is not emitted again."""
        return self.retries is not None and failures > self.retries

    def pause(self, failures: int) -> float:
        """Return the pause after so many failures."""
        if failures <= 1:
            return min(self.first, self.most)
        return float(min(self.period * 2 ** min(failures - 1, 1000), self.most))


@dataclass
class _Failed:
    failures: int = 0
    due: float | None = None
    """When to emit it again; None: it is out again."""


class Retries(Generic[K]):
    """The failed messages of some partitions, by partition and offset."""

    def __init__(self, backoff: Backoff, now: Callable[[], float]) -> None:
        self._backoff = backoff
        self._now = now
        self._failed: dict[K, dict[int, _Failed]] = {}
        self._soonest = 0.0  # nothing is due before

    def fail(self, partition: K, offset: int) -> int:
        """Count a failure; return how many there are."""
        failed = self._failed.setdefault(partition, {}).setdefault(offset, _Failed())
        failed.failures += 1
        return failed.failures

    def schedule(self, partition: K, offset: int) -> bool:
        """Have the message emitted again after a pause; False: it is given up."""
        failed = self._failed.setdefault(partition, {}).setdefault(offset, _Failed())
        if self._backoff.gives_up(failed.failures):
            self.forget(partition, offset)
            return False
        failed.due = self._now() + self._backoff.pause(failed.failures)
        self._soonest = min(self._soonest, failed.due)
        return True

    def remove(self, partition: K, offset: int) -> bool:
        """Take the message from the schedule, its failures kept; False: it was not there."""
        failed = self._failed.get(partition, {}).get(offset)
        if failed is None or failed.due is None:
            return False
        failed.due = None
        return True

    def forget(self, partition: K, offset: int) -> None:
        """Forget a message that is done with."""
        offsets = self._failed.get(partition)
        if offsets is not None:
            offsets.pop(offset, None)
            if not offsets:
                del self._failed[partition]

    def failures(self, partition: K, offset: int) -> int:
        """Return how often the message has failed."""
        failed = self._failed.get(partition, {}).get(offset)
        return failed.failures if failed is not None else 0

    def is_scheduled(self, partition: K, offset: int) -> bool:
        failed = self._failed.get(partition, {}).get(offset)
        return failed is not None and failed.due is not None

    def is_ready(self, partition: K, offset: int) -> bool:
        failed = self._failed.get(partition, {}).get(offset)
        return failed is not None and failed.due is not None and failed.due <= self._now()

    def ready(self) -> dict[K, list[int]]:
        """Return the offsets whose pause is over, in ascending order, by partition."""
        now = self._now()
        found: dict[K, list[int]] = {}
        if now < self._soonest:
            return found
        self._soonest = float("inf")
        for partition, offset, failed in self._each():
            if failed.due is None:
                continue
            self._soonest = min(self._soonest, failed.due)
            if failed.due <= now:
                found.setdefault(partition, []).append(offset)
        return {partition: sorted(offsets) for partition, offsets in found.items()}

    def earliest(self) -> dict[K, int]:
        """Return the lowest ready offset of each partition: where reading again starts."""
        return {partition: offsets[0] for partition, offsets in self.ready().items()}

    def ready_count(self) -> int:
        return sum(map(len, self.ready().values()))

    def retain(self, partitions: Collection[K]) -> None:
        """Forget the messages of all other partitions."""
        self._failed = {key: kept for key, kept in self._failed.items() if key in partitions}

    def saved(self, partition: K) -> dict[int, tuple[int, float | None]]:
        """Return what is to be saved of a partition."""
        offsets = self._failed.get(partition, {})
        return {offset: (failed.failures, failed.due) for offset, failed in offsets.items()}

    def restore(self, partition: K, saved: dict[int, tuple[int, float | None]]) -> None:
        """Take over what was saved of a partition."""
        if saved:
            self._soonest = 0.0
            self._failed[partition] = {o: _Failed(*each) for o, each in saved.items()}

    def __len__(self) -> int:
        return sum(map(len, self._failed.values()))

    def _each(self) -> Iterator[tuple[K, int, _Failed]]:
        for partition, offsets in self._failed.items():
            for offset, failed in offsets.items():
                yield partition, offset, failed
