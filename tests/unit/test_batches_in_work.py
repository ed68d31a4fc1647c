"""The state machine of a batch, staged and applied, that both modes on Spark share."""

from __future__ import annotations

from topo.tracking.batches import Batches, Rate, Reports
from topo.tracking.plan import Mode, TrackingPlan

PLAN = TrackingPlan(levels=2, slots=2, spout_tasks=(1,))


def test_what_all_executions_have_staged_is_taken_once_and_in_order() -> None:
    batches: Batches[str] = Batches(PLAN, Mode.ACTIVE)
    for execution in ((1, 1), (0, 1), (1, 0)):
        assert batches.is_of_plan(execution)
        batches.stage(execution, f"{execution}")
    assert not batches.is_of_plan((2, 0))
    assert (batches.missing, batches.is_complete) == ([(0, 0)], False)
    batches.stage((0, 0), "(0, 0)")
    assert (batches.missing, batches.is_complete) == ([], True)
    taken = batches.take()
    assert [execution for execution, _ in taken] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(did == f"{execution}" for execution, did in taken)
    assert batches.take() == []
    assert len(batches.missing) == 4


def test_an_execution_that_is_taken_back_stages_again() -> None:
    batches: Batches[int] = Batches(PLAN, Mode.ACTIVE)
    batches.stage((0, 0), 1)
    assert batches.did((0, 0)) == 1
    batches.take_back((0, 0))
    assert batches.did((0, 0)) is None


def test_a_command_is_of_the_batch_after() -> None:
    batches: Batches[int] = Batches(PLAN, Mode.ACTIVE, mode_version=4)
    assert batches.command(Mode.ACTIVE) == 4, "which it is already"
    assert not batches.has_command
    assert batches.command(Mode.DRAIN) == 5
    assert batches.command(Mode.DRAIN) == 5
    assert batches.has_command
    assert (batches.begun_mode, batches.begun_version) == (Mode.ACTIVE, 4)
    assert batches.begin() == Mode.DRAIN
    assert (batches.begun_mode, batches.begun_version) == (Mode.DRAIN, 5)
    assert not batches.has_command


def test_reports_wait_until_the_driver_has_them() -> None:
    reports = Reports(10)
    reports.add(3, (0, 1), b"abc")
    reports.add(3, (1, 1), b"")
    reports.add(4, (1, 0), b"de")
    numbers = [(r.number, r.batch, r.level, r.slot, r.payload) for r in reports.after(0)]
    assert numbers == [(11, 3, 0, 1, b"abc"), (12, 4, 1, 0, b"de")]
    assert (len(reports), reports.nbytes, reports.number) == (2, 5, 12)
    assert [report.number for report in reports.after(11)] == [12]
    assert (len(reports), reports.nbytes, reports.lost) == (1, 2, 0)
    assert reports.after(12) == []
    assert reports.nbytes == 0


def test_the_oldest_reports_are_lost_but_none_of_the_batch_that_is_applied() -> None:
    reports = Reports()
    for batch in range(4):
        reports.add(batch, (0, 0), b"12345")
        reports.add(batch, (0, 1), b"12345")
        reports.lose(12, before=batch)
    assert [report.batch for report in reports.after(0)] == [3, 3]
    assert reports.lost == 6
    reports.add(4, (0, 0), b"1" * 100)
    reports.lose(12, before=4)
    assert [report.batch for report in reports.after(0)] == [4]


def test_a_rate_is_of_the_last_seconds() -> None:
    rate = Rate()
    for tenth in range(200):
        rate.add(5, 100 + tenth / 10)
    assert 45 <= rate.per_sec(120.0) <= 50
    assert rate.per_sec(131.0) == 0
