"""The acker's figures: merged over shards, and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topo._pb import acker_pb2 as pb
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


def status_of(replies: Sequence[pb.StatusReply]) -> AckerStatus:
    """Merge the replies of all shards, the coordinator's first, into one status."""
    first = replies[0]
    failed_by: Counter[str] = Counter()
    for reply in replies:
        failed_by.update(dict(reply.failed_by))
    return AckerStatus(
        epoch=first.epoch,
        incarnations=tuple(reply.incarnation for reply in replies),
        next_batch=first.next_batch,
        staged=tuple((execution.level, execution.slot) for execution in first.staged),
        poisoned=any(reply.poisoned for reply in replies),
        mode=Mode(first.mode),
        mode_version=first.mode_version,
        mode_version_begun=first.mode_version_begun,
        waiting=first.waiting,
        clock=first.clock,
        pending=sum(reply.pending for reply in replies),
        acked=sum(reply.acked for reply in replies),
        failed_by=dict(failed_by),
        oldest_secs=max(reply.oldest_secs for reply in replies),
        updates=sum(reply.updates for reply in replies),
        updates_per_sec=sum(reply.updates_per_sec for reply in replies),
        held_bytes=sum(reply.held_bytes for reply in replies),
        unheard=sum(reply.unheard for reply in replies),
        dropped=sum(reply.dropped for reply in replies),
        payloads=tuple(
            CommittedPayload(kept.number, kept.batch, kept.level, kept.slot, kept.payload)
            for kept in first.payloads
        ),
        payloads_lost=first.payloads_lost,
    )


def for_people(figures: Mapping[str, TrackingFigures]) -> str:
    """Return the figures as text, one line per topology."""
    lines = []
    for name, shown in sorted(figures.items()):
        counts = shown.counts
        failed = ", ".join(f"{reason} {count:,}" for reason, count in counts.failed_by.items())
        lines.append(
            f"{name}: batch {shown.next_batch}, {shown.mode.name}; "
            f"{counts.pending:,} pending (oldest {counts.oldest_secs:.0f} s), "
            f"{counts.acked:,} acked, {sum(counts.failed_by.values()):,} failed"
            f"{f' ({failed})' if failed else ''}; "
            f"{shown.updates_per_sec:,.0f} updates/s, {shown.held_bytes / 1e6:.1f} MB"
        )
    return "\n".join(lines)
