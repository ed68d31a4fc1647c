"""conformance.md, "The acker's ledger": one root of spout task 3, and what reaches it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from topo.tracking.ids import Updates, root_id
from topo.tracking.ledger import Ledger

ROOT = root_id(3, 1)
TIMEOUT = 30.0


def u64(*numbers: int) -> Any:
    return np.array(numbers, np.uint64)


def init(value: int, root: int = ROOT) -> Updates:
    return Updates(init_roots=u64(root), init_values=u64(value))


def ack(value: int, root: int = ROOT) -> Updates:
    return Updates(ack_roots=u64(root), ack_values=u64(value))


def fail(root: int = ROOT) -> Updates:
    return Updates(fail_roots=u64(root), fail_reasons=["refused"])


def reset() -> Updates:
    return Updates(reset_roots=u64(ROOT))


NOTHING: list[str | None] = []
COMPLETE: list[str | None] = [None]
FAILED: list[str | None] = ["refused"]

CASES = {
    "init(5), ack(12), ack(9) -> nothing, nothing, complete": [
        (init(5), NOTHING),
        (ack(12), NOTHING),
        (ack(9), COMPLETE),
    ],
    "ack(12), ack(9), init(5) -> complete on init": [
        (ack(12), NOTHING),
        (ack(9), NOTHING),
        (init(5), COMPLETE),
    ],
    "init(5), fail, ack(5) -> failed at fail; the late ack changes nothing": [
        (init(5), NOTHING),
        (fail(), FAILED),
        (ack(5), FAILED),
    ],
    "fail, init(5) -> failed on init": [(fail(), NOTHING), (init(5), FAILED)],
    "init(0) -> complete at once": [(init(0), COMPLETE)],
    "fail before an init of zero fails": [(fail(), NOTHING), (init(0), FAILED)],
}


@pytest.mark.parametrize("sequence", CASES.values(), ids=list(CASES))
def test_ledger_sequence(sequence: list[tuple[Updates, list[str | None]]]) -> None:
    ledger = Ledger(TIMEOUT)
    for updates, heard in sequence:
        ledger.apply(updates, 0.0)
        assert ledger.verdicts(3).reasons == heard
    assert ledger.pending() == (0 if heard else 1)


@pytest.mark.parametrize("sequence", CASES.values(), ids=list(CASES))
def test_ledger_sequence_in_one_batch_ends_the_same(
    sequence: list[tuple[Updates, list[str | None]]],
) -> None:
    ledger = Ledger(TIMEOUT)
    ledger.apply([updates for updates, _ in sequence], 0.0)
    assert ledger.verdicts(3).reasons == sequence[-1][1]


def test_ledger_sequence_init_reset_ack_starts_the_timeout_again_then_completes() -> None:
    ledger = Ledger(TIMEOUT)
    ledger.apply(init(5), 0.0)
    assert ledger.next_timeout() == 30.0
    ledger.apply(reset(), 29.0)
    ledger.expire(58.0)
    assert ledger.verdicts(3).reasons == NOTHING
    assert ledger.next_timeout() == 59.0
    ledger.apply(ack(5), 58.5)
    ledger.expire(1000.0)
    assert ledger.verdicts(3).reasons == COMPLETE


def test_ledger_without_reset_times_out() -> None:
    ledger = Ledger(TIMEOUT, component_of=lambda task: "count")
    ledger.apply(init(5), 0.0)
    held = Updates(held_roots=u64(ROOT), held_tasks=np.array([5], np.uint32))
    ledger.apply(held, 1.0)
    ledger.expire(29.9)
    assert ledger.verdicts(3).reasons == NOTHING
    ledger.expire(30.0)
    assert ledger.verdicts(3).reasons == ["timeout after 30 s; held by 'count' task 5"]


@pytest.mark.parametrize("failed", [False, True], ids=["all acked", "child failed instead"])
def test_ledger_roots_1_and_2_joined_by_one_child(failed: bool) -> None:
    first, second = root_id(3, 1), root_id(3, 2)
    one, two, child = 0b001, 0b010, 0b100  # the edge of each emit, and that of the joined child
    ledger = Ledger(TIMEOUT)
    ledger.apply([init(one, first), init(two, second)], 0.0)
    ledger.apply([ack(one ^ child, first), ack(two ^ child, second)], 1.0)
    assert ledger.verdicts(3).reasons == NOTHING
    ends = [fail(first), fail(second)] if failed else [ack(child, first), ack(child, second)]
    ledger.apply(ends, 2.0)
    assert ledger.verdicts(3).sequences.tolist() == [1, 2]
    assert ledger.verdicts(3).reasons == (FAILED * 2 if failed else COMPLETE * 2)
