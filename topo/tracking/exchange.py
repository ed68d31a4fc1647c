"""The requests and answers of one topology on one acker, as the rules of epochs have them."""

from __future__ import annotations

from dataclasses import dataclass, field

from topo.tracking.ids import Updates
from topo.tracking.ledger import LedgerCounts, Verdicts
from topo.tracking.plan import Mode, TrackingPlan, shard_of


@dataclass(frozen=True)
class Registration:
    """The request that begins an epoch."""

    plan: TrackingPlan
    first_batch: int
    run_id: str
    nonce: int
    shard: int = 0
    shards: int = 1
    epoch: int = 0
    clock: float = 0.0
    mode: Mode = Mode.ACTIVE

    @property
    def tasks(self) -> frozenset[int]:
        """Return the spout tasks whose roots this shard has."""
        shards = shard_of(self.plan.spout_tasks, self.shards)
        return frozenset(task for task, shard in shards.items() if shard == self.shard)


@dataclass(frozen=True)
class Cursor:
    """The position up to which a spout task has heard its verdicts, under one incarnation."""

    task: int
    incarnation: int
    number: int


@dataclass(frozen=True)
class BeginAnswer:
    """The reply to a slot that begins its part of a batch."""

    incarnation: int
    clock: float
    previous_clock: float
    mode: Mode
    mode_version: int
    verdicts: dict[int, Verdicts]
    next_timeout: float | None


@dataclass(frozen=True)
class StagedExecution:
    """The updates and the payload of one execution, or a part of them."""

    nonce: int
    updates: Updates
    payload: bytes
    nbytes: int
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class CommittedPayload:
    """The payload that an execution of a committed batch sent for the driver."""

    number: int
    batch: int
    level: int
    slot: int
    payload: bytes


@dataclass(kw_only=True)
class TrackingFigures(LedgerCounts):
    """The figures of one topology at one acker, or at the coordinator of real-time mode.

    A figure of one number is a field here and one of `StatusReply`, of the same name, and a line of
    `figures.status_of`, which says how those of several ackers become one.
    """

    epoch: int = 0
    incarnation: int = 0
    next_batch: int
    staged: list[tuple[int, int]]
    poisoned: bool = False
    mode: Mode
    mode_version: int
    mode_version_begun: int
    waiting: int = 0
    clock: float
    updates_per_sec: float
    held_bytes: int
    payloads_lost: int = 0
    payloads: list[CommittedPayload] = field(default_factory=list)
