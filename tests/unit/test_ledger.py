"""The ledger's bounds: memory follows what is pending, and what is far away costs little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from topo.tracking.ids import EdgeIds, Updates, root_id, root_ids
from topo.tracking.ledger import MAX_EARLY, Ledger


def emits(task: int, first: int, count: int, ids: EdgeIds) -> Updates:
    roots = root_ids(task, np.arange(first, first + count, dtype=np.uint64))
    return Updates(init_roots=roots, init_values=ids.take(count))


def acks(inits: Updates, which: slice | Any = slice(None)) -> Updates:
    return Updates(ack_roots=inits.init_roots[which], ack_values=inits.init_values[which])


def test_a_million_pending_roots_fit_in_200_mb_and_go_away() -> None:
    ledger, ids = Ledger(30.0), EdgeIds(1)
    parts = [emits(task, 1, 250_000, ids) for task in (1, 2, 3, 4)]
    for part in parts:
        ledger.apply(part, 0.0)
    assert ledger.pending() == 1_000_000
    assert ledger.nbytes < 200e6
    for part in parts:
        ledger.apply(acks(part), 1.0)
        ledger.forget(part.init_roots[0] >> 48, 250_000)
    assert ledger.pending() == 0
    assert ledger.nbytes < 1e6


def test_a_long_stream_leaves_only_what_is_pending() -> None:
    ledger, ids = Ledger(None), EdgeIds(2)
    held = root_id(5, 1)
    ledger.apply(Updates(init_roots=np.array([held], np.uint64), init_values=ids.take(1)), 0.0)
    for batch in range(200):
        part = emits(5, 2 + batch * 1000, 1000, ids)
        ledger.apply([part, acks(part)], float(batch))
        ledger.forget(5, (batch + 1) * 1000)
        assert ledger.pending(5) == 1
        assert ledger.nbytes < 1e6
    counts = ledger.counts(250.0, 5)
    assert (counts.pending, counts.acked, counts.failed_by) == (1, 200_000, {})
    assert counts.oldest_secs == 250.0
    assert counts.updates == 400_001


def test_stragglers_far_apart_cost_one_page_each() -> None:
    ledger, ids = Ledger(30.0), EdgeIds(3)
    for batch in range(100):
        part = emits(1, 1 + batch * 5000, 5000, ids)
        ledger.apply([part, acks(part, slice(1, None))], 0.0)
    ledger.forget(1, 10**9)
    assert ledger.pending() == 100
    assert ledger.nbytes < 3e6
    ledger.expire(30.0)
    assert ledger.verdicts(1, 499_900).sequences.tolist() == list(range(1, 500_000, 5000))
    assert ledger.nbytes < 1e6


def test_sequences_far_away_are_held_without_those_between() -> None:
    ledger = Ledger(30.0)
    far = [root_id(1, 1), root_id(1, 1 << 47), root_id(65_535, (1 << 48) - 1)]
    roots = np.array(far, np.uint64)
    ledger.apply(Updates(init_roots=roots, init_values=np.array([5, 5, 5], np.uint64)), 0.0)
    assert ledger.pending() == 3
    assert ledger.nbytes < 1e6
    ledger.apply(Updates(ack_roots=roots, ack_values=np.array([5, 5, 5], np.uint64)), 0.0)
    assert ledger.pending() == 0
    assert ledger.verdicts(65_535).sequences.tolist() == [(1 << 48) - 1]


def test_what_is_said_too_early_is_bounded_and_gone_after_the_timeout() -> None:
    ledger = Ledger(30.0)
    count = MAX_EARLY + 10
    roots = root_ids(1, np.arange(1, count + 1, dtype=np.uint64))
    ledger.apply(Updates(ack_roots=roots, ack_values=np.ones(count, np.uint64)), 0.0)
    assert ledger.counts(0.0).dropped == 10
    assert ledger.next_timeout() is None
    ledger.expire(30.0)
    assert ledger.counts(30.0).dropped == count
    assert ledger.nbytes < 1e6


def test_a_root_emitted_again_or_out_of_order_changes_nothing() -> None:
    ledger, ids = Ledger(30.0), EdgeIds(4)
    part = emits(1, 1, 3, ids)
    ledger.apply(part, 0.0)
    ledger.apply([part, acks(part)], 1.0)
    assert ledger.verdicts(1).sequences.tolist() == [1, 2, 3]
    ledger.apply(part, 2.0)
    assert ledger.pending() == 0
    assert len(ledger.verdicts(1)) == 3


def test_pages_move_and_shrink_without_losing_a_value() -> None:
    ledger, ids = Ledger(30.0), EdgeIds(5)
    parts = [emits(task, 1, 40_000, ids) for task in range(1, 6)]
    ledger.apply(parts, 0.0)
    survivors = []
    for part in parts:
        ledger.apply(acks(part, slice(0, 39_000)), 1.0)
        survivors.append(acks(part, slice(39_000, None)))
    assert ledger.pending() == 5_000
    ledger.apply(survivors, 2.0)
    assert ledger.pending() == 0
    assert ledger.counts(2.0).failed_by == {}


def test_holders_are_named_and_only_the_first_few() -> None:
    ledger = Ledger(30.0, component_of=lambda task: {5: "count"}.get(task, "agg"))
    root = np.array([root_id(1, 1)], np.uint64)
    ledger.apply(Updates(init_roots=root, init_values=np.array([5], np.uint64)), 0.0)
    tasks = np.array([5, 7, 7, 8, 9, 10], np.uint32)
    ledger.apply(Updates(held_roots=np.repeat(root, 6), held_tasks=tasks), 1.0)
    released = np.array([5, 7], np.uint32)
    ledger.apply(Updates(released_roots=np.repeat(root, 2), released_tasks=released), 2.0)
    ledger.expire(30.0)
    assert ledger.verdicts(1).reasons == [
        "timeout after 30 s; held by 'agg' task 7, 'agg' task 8, 'agg' task 9 and 1 more"
    ]


@pytest.mark.parametrize("started", [0.1, 1e9 + 0.1, 1763464000.123])
def test_what_next_timeout_names_is_overdue_by_then(started: float) -> None:
    ledger = Ledger(0.3)
    ledger.apply(emits(1, 1, 1, EdgeIds(6)), started)
    due = ledger.next_timeout()
    assert due is not None
    ledger.expire(due)
    assert ledger.pending() == 0
