"""The acker's figures: merged over shards, and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topo.tracking.exchange import CommittedPayload, TrackingFigures
from topo.tracking.plan import Mode


@dataclass(frozen=True)
class AckerStatus:
    """The status of a topology at its ackers; batch, mode and clock are the coordinator's."""

    epoch: int
    incarnations: tuple[int, ...]
    next_batch: int
    """The present batch: all before it are committed and applied."""
    staged: tuple[tuple[int, int], ...]
    """The (level, slot) pairs of the present batch that have staged."""
    poisoned: bool
    mode: Mode
    mode_version: int
    mode_version_begun: int
    """The version of the command that the present batch was begun with."""
    waiting: int
    clock: float
    pending: int
    acked: int
    failed_by: Mapping[str, int]
    oldest_secs: float
    updates: int
    updates_per_sec: float
    held_bytes: int
    unheard: int
    dropped: int
    payloads: tuple[CommittedPayload, ...]
    payloads_lost: int


def status_of(shards: Sequence[TrackingFigures]) -> AckerStatus:
    """Merge the figures of all shards, the coordinator's first, into one status."""
    first = shards[0]
    failed_by: Counter[str] = Counter()
    for shard in shards:
        failed_by.update(shard.failed_by)
    return AckerStatus(
        epoch=first.epoch,
        incarnations=tuple(shard.incarnation for shard in shards),
        next_batch=first.next_batch,
        staged=tuple(first.staged),
        poisoned=any(shard.poisoned for shard in shards),
        mode=first.mode,
        mode_version=first.mode_version,
        mode_version_begun=first.mode_version_begun,
        waiting=first.waiting,
        clock=first.clock,
        pending=sum(shard.pending for shard in shards),
        acked=sum(shard.acked for shard in shards),
        failed_by=dict(failed_by),
        oldest_secs=max(shard.oldest_secs for shard in shards),
        updates=sum(shard.updates for shard in shards),
        updates_per_sec=sum(shard.updates_per_sec for shard in shards),
        held_bytes=sum(shard.held_bytes for shard in shards),
        unheard=sum(shard.unheard for shard in shards),
        dropped=sum(shard.dropped for shard in shards),
        payloads=tuple(first.payloads),
        payloads_lost=first.payloads_lost,
    )


def for_people(figures: Mapping[str, TrackingFigures]) -> str:
    """Return the figures as text, one line per topology."""
    lines = []
    for name, shown in sorted(figures.items()):
        failed = ", ".join(f"{reason} {count:,}" for reason, count in shown.failed_by.items())
        lines.append(
            f"{name}: batch {shown.next_batch}, {shown.mode.name}; "
            f"{shown.pending:,} pending (oldest {shown.oldest_secs:.0f} s), "
            f"{shown.acked:,} acked, {sum(shown.failed_by.values()):,} failed"
            f"{f' ({failed})' if failed else ''}; "
            f"{shown.updates_per_sec:,.0f} updates/s, {shown.held_bytes / 1e6:.1f} MB"
        )
    return "\n".join(lines)
