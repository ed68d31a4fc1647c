"""Failures that spouts have not heard of yet, stored where they outlive the acker.

A spout hears of a batch's failures in the next batch. If the acker dies between the two, its
successor rebuilds the trees from what the tasks have saved: a pending root to which no task
contributes an open edge is complete. A failure leaves no open edge, so it must come from elsewhere:
each shard writes the failures of a batch to the journal as soon as the batch is staged in full,
that is, before it can be committed. Batches without failures, which is nearly all, write nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol


class FailureJournal(Protocol):
    """A place for the failures of a batch; called by the acker's threads, one at a time."""

    def begin(self, shard: int, first_batch: int) -> dict[int, str]:
        """Return the failures of the batch before `first_batch`; forget those of all others."""

    def forget(self, shard: int, first_batch: int) -> None:
        """Forget the failures of batches from `first_batch` on, which are executed again."""

    def write(self, shard: int, batch: int, failures: Mapping[int, str]) -> None:
        """Store the failures of a batch; those of batches before the one before are needless."""


def pack_failures(failures: Mapping[int, str]) -> str:
    """Return the text of a journal's file: reasons once each, with the roots they are of."""
    roots: dict[str, list[int]] = {}
    for root, reason in failures.items():
        roots.setdefault(reason, []).append(root)
    return json.dumps(roots)


def unpack_failures(text: str) -> dict[int, str]:
    """Return the failures in a journal's file."""
    return {int(root): reason for reason, roots in json.loads(text).items() for root in roots}
