"""The journal of failures: written before its batch can commit, read by the next acker."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from topo.tracking.epochs import Tracking
from topo.tracking.exchange import Cursor, Registration, StagedExecution
from topo.tracking.ids import Updates, root_id
from topo.tracking.journal import pack_failures, unpack_failures
from topo.tracking.plan import TrackingPlan
from topo.tracking.refusals import Refusal, Refused

ROOT = root_id(1, 1)
PLAN = TrackingPlan(levels=2, slots=1, spout_tasks=(1,), components={"s": (1, 1)}, timeout_secs=30)


class Memory:
    """A journal in memory."""

    def __init__(self) -> None:
        self.files: dict[int, dict[int, str]] = {}

    def begin(self, shard: int, first_batch: int) -> dict[int, str]:
        self.files = {b: f for b, f in self.files.items() if b == first_batch - 1}
        return self.files.get(first_batch - 1, {})

    def forget(self, shard: int, first_batch: int) -> None:
        self.files = {b: f for b, f in self.files.items() if b < first_batch}

    def write(self, shard: int, batch: int, failures: Mapping[int, str]) -> None:
        self.files[batch] = dict(failures)


def _registered(journal: Memory, first_batch: int) -> Tracking:
    return Tracking(Registration(PLAN, first_batch, "run", nonce=first_batch), 0.0, journal)


def _stage(tracking: Tracking, batch: int, level: int, updates: Updates) -> None:
    execution = StagedExecution(level + 1, updates, b"", 0)
    tracking.stage(tracking.epoch, batch, level, 0, 0.0, execution, True, 0.0)


def _failure() -> Updates:
    return Updates(fail_roots=np.array([ROOT], np.uint64), fail_reasons=["no good"])


def _init(value: int) -> Updates:
    return Updates(init_roots=np.array([ROOT], np.uint64), init_values=np.array([value], np.uint64))


def test_a_failure_is_written_when_its_batch_is_staged_in_full() -> None:
    journal = Memory()
    tracking = _registered(journal, 0)
    _stage(tracking, 0, 1, _failure())
    assert journal.files == {}
    _stage(tracking, 0, 0, _init(5))
    assert journal.files == {0: {ROOT: "no good"}}


@pytest.mark.parametrize(
    ("first_batch", "verdict"),
    [(1, ["no good"]), (0, [None])],  # the batch of the failure has committed, or is run again
)
def test_the_next_acker_fails_the_root_instead_of_acking_it(
    first_batch: int, verdict: list[str | None]
) -> None:
    journal = Memory()
    before = _registered(journal, 0)
    _stage(before, 0, 0, _init(5))
    _stage(before, 0, 1, _failure())
    after = _registered(journal, first_batch)
    _stage(after, first_batch, 0, _init(0))  # rebuilt: no task has an open edge of it
    _stage(after, first_batch, 1, Updates())
    cursor = Cursor(1, 0, 0)
    begun = after.begin(after.epoch, first_batch + 1, 0, 0.0, [cursor], 0.0)
    assert begun.verdicts[1].reasons == verdict
    assert list(journal.files) == ([0, 1] if first_batch else [])


def test_what_is_written_is_read() -> None:
    failures = {ROOT: "no good", root_id(2, 7): "no good", root_id(1, 2): "\ud800 and \n"}
    assert unpack_failures(pack_failures(failures)) == failures


def test_a_failure_survives_two_ackers_that_die_before_it_is_heard() -> None:
    journal = Memory()
    first = _registered(journal, 0)
    _stage(first, 0, 0, _init(5))
    _stage(first, 0, 1, _failure())
    second = _registered(journal, 1)
    _stage(second, 1, 0, _init(0))
    _stage(second, 1, 1, Updates())
    third = _registered(journal, 2)
    _stage(third, 2, 0, _init(0))
    _stage(third, 2, 1, Updates())
    begun = third.begin(third.epoch, 3, 0, 0.0, [Cursor(1, 0, 0)], 0.0)
    assert begun.verdicts[1].reasons == ["no good"]


def test_a_batch_that_is_executed_again_leaves_no_failure_of_its_first_attempt() -> None:
    journal = Memory()
    tracking = _registered(journal, 0)
    _stage(tracking, 0, 0, _init(5))
    _stage(tracking, 0, 1, _failure())
    tracking.register(Registration(PLAN, 0, "run", nonce=99), 0.0)
    _stage(tracking, 0, 0, _init(5))
    _stage(tracking, 0, 1, Updates())
    assert journal.files == {}


def test_a_batch_is_not_staged_if_its_failures_cannot_be_written() -> None:
    class Full(Memory):
        def write(self, shard: int, batch: int, failures: Mapping[int, str]) -> None:
            raise OSError("no space left")

    tracking = _registered(Full(), 0)
    _stage(tracking, 0, 0, _init(5))
    for _ in range(2):
        with pytest.raises(Refused, match="failures of batch 0 cannot be written") as no:
            _stage(tracking, 0, 1, _failure())
        assert no.value.kind is Refusal.JOURNAL
