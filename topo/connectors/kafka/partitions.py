"""The saved state of a partition: the position, and the books of what was emitted from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from topo.connectors.kafka.offsets import Offsets


@dataclass(slots=True)
class Partition:
    """The state of one partition, saved with the batch that changed it."""

    position: int
    """The offset that is fetched next."""
    offsets: Offsets
    """The books; only of messages that are tracked."""
    until: int | None = None
    """Where a bounded reading ends."""
    again: dict[int, tuple[int, float | None]] = field(default_factory=dict)
    """Failed messages: how often, and when they are due."""
    dead: dict[int, str] = field(default_factory=dict)
    """Messages that are given up and not told of yet, with the reason of the last failure."""

    topic_id: str = ""
    """The id of the topic that the position is of; "" if the broker has told none."""

    def know_topic(self, topic_id: str) -> None:
        """Note the id of the topic that the position is of."""
        self.topic_id = topic_id

    @property
    def is_finished(self) -> bool:
        return self.until is not None and self.position >= self.until

    @property
    def committable(self) -> int:
        """The offset below which everything is done."""
        if self.offsets.open_count:
            return self.offsets.next() or self.offsets.committed
        return self.position

    def __getstate__(self) -> tuple[Any, ...]:
        return self.position, self.offsets, self.until, self.again, self.dead, self.topic_id

    def __setstate__(self, saved: tuple[Any, ...]) -> None:
        self.position, self.offsets, self.until, self.again, self.dead, *topic_id = saved
        self.topic_id = topic_id[0] if topic_id else ""  # an earlier topo has saved none
