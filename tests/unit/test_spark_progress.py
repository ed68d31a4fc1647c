"""The sums of committed reports: figures, captured tuples, reasons of a stall."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.doubles import Total
from tests.spark.doubles import Endless
from tests.unit.test_spark_ending import IDLE
from tests.wiring import line
from topo import EngineError
from topo.engine.spark.driver.progress import Progress
from topo.engine.spark.worker.report import Report
from topo.metrics.counters import TaskMetrics
from topo.running import BatchStats
from topo.runtime.slot import full_conf
from topo.topology.layout import TaskLayout
from topo.tracking.exchange import CommittedPayload
from topo.tracking.figures import AckerStatus

TOPOLOGY = line(Endless(), Total())


def progress(conf: dict[str, Any] | None = None, clock: list[float] | None = None) -> Progress:
    now = clock or [0.0]
    seen = Progress(TOPOLOGY, full_conf(conf or {}), monotonic=lambda: now[0])
    seen.begin_epoch(1)
    return seen


def status(first: int, *reports: Report, level: int = 0, **changes: Any) -> AckerStatus:
    """A status with these reports, numbered from `first`; slots in their order."""
    payloads = tuple(
        CommittedPayload(first + slot, 4, level, slot, report.pack())
        for slot, report in enumerate(reports)
    )
    return replace(IDLE, payloads=payloads, **changes)


def test_reports_are_taken_in_once_and_in_order() -> None:
    seen = progress()
    rows = [("b1", "default", 1, [[1], [2]])]
    concluded = [("s", 7, None), ("s", 8, "timeout")]
    assert seen.take_in(status(1, Report({}, 3), Report({}, 2)), 5.0)
    assert not seen.take_in(IDLE, 0.0)
    assert seen.take_in(status(3, Report({}, rows=rows, concluded=concluded), level=1), 7.0)
    assert seen.last_payload == 3
    assert seen.rows == {("b1", "default"): [[1], [2]]}
    assert (seen.acked, seen.failed) == ({"s": [7]}, {"s": [8]})
    assert (seen.batch().id, seen.batch().ms) == (4, 7.0)


def test_an_epoch_that_reports_nothing_is_committed_all_the_same() -> None:
    clock = [0.0]
    seen = progress(clock=clock)
    assert seen.take_in(status(1, spouts(0)), 5.0)
    clock[0] += 100
    busy = replace(IDLE, next_batch=IDLE.next_batch + 1)
    assert seen.take_in(busy, 7.0)
    assert not seen.take_in(busy, 0.0)
    assert (seen.batch().id, seen.batch().ms) == (IDLE.next_batch, 7.0)
    assert seen.stall() == ""
    clock[0] += 61
    assert "has made no progress for 61 s" in seen.stall()
    seen.begin_epoch(1)  # a later number is what this query begins with
    assert not seen.take_in(replace(busy, next_batch=9), 0.0)


def test_how_batches_went_leaves_out_what_they_waited_for_spouts() -> None:
    clock = [0.0]
    seen = progress(clock=clock)
    assert seen.batch() == BatchStats()
    waits = Report({}, 10, waited_secs=0.5, exhausted=False)
    waits_longer = Report({}, 20, waited_secs=0.7, exhausted=False)
    has_no_spouts = Report({})
    for number in range(100):  # batches of 1 to 100 ms beside waiting
        clock[0] += 0.5
        reports = (waits, waits_longer, has_no_spouts)
        seen.take_in(status(3 * number + 1, *reports), 501.0 + number)
    batch = seen.batch()
    assert (batch.ms, batch.waited_ms, batch.rows) == (600.0, 500.0, 30)
    assert (batch.p50_ms, batch.p99_ms) == (50.0, 99.0)
    assert batch.rows_per_sec == pytest.approx(100 * 30 / (99 * 0.5 + 0.501))
    clock[0] += 30
    assert seen.batch().rows_per_sec == pytest.approx(60 * 30 / 60, rel=0.05)
    clock[0] += 60
    assert seen.batch().rows_per_sec == 0


def spouts(pending: int, oldest_secs: float = 0.0) -> Report:
    """The report of a slot whose spout has pending messages."""
    counted = TaskMetrics()
    counted.pending, counted.oldest_pending_secs = pending, oldest_secs
    (task,) = TaskLayout(TOPOLOGY).tasks_of("s")
    return Report({task: counted}, exhausted=False)


def test_the_lag_is_the_age_of_what_spouts_have_not_heard_of() -> None:
    """The ackers settle a batch's messages at its end; its spouts hear of them in the next one."""
    clock = [0.0]
    seen = progress(clock=clock)
    assert seen.acker() is None
    seen.take_in(status(1, spouts(200_000), unheard=200_000), 800.0)
    clock[0] += 0.5
    acker = seen.acker()
    assert acker is not None
    assert (acker.pending, acker.lag_secs, acker.unheard) == (200_000, 1.3, 200_000)
    assert (acker.quiet_secs, acker.executors) == (0.5, 1)
    seen.take_in(status(2, spouts(7, oldest_secs=3.0), pending=7, oldest_secs=3.5), 200.0)
    assert lag(seen) == (7, 3.5)
    clock[0] += 2
    assert lag(seen) == (7, pytest.approx(5.2))
    off = progress({"topology.acker.executors": 0})
    off.take_in(status(1, Report({})), 1.0)
    assert off.acker() is None


def test_spouts_that_wait_for_data_have_heard_of_everything() -> None:
    clock = [0.0]
    seen = progress(clock=clock)
    seen.take_in(status(1, spouts(3)), 100.0)
    clock[0] += 30
    seen.take_in(replace(IDLE, waiting=0), 0.0)
    assert lag(seen) == (3, pytest.approx(30.1))
    seen.take_in(replace(IDLE, waiting=1), 0.0)
    assert lag(seen) == (0, 0.0)
    assert seen.book.components()["s"].pending == 0
    seen.take_in(status(2, spouts(2)), 100.0)
    seen.take_in(replace(IDLE, waiting=1, pending=2, oldest_secs=9.0), 0.0)  # a bolt holds them
    assert lag(seen)[0] == 2


def test_in_real_time_mode_spouts_hear_at_once() -> None:
    seen = progress({"topology.mode": "real-time"})
    seen.take_in(status(1, spouts(3), pending=3, oldest_secs=0.02), 1000.0)
    assert lag(seen) == (3, 0.02)


def lag(seen: Progress) -> Any:
    acker = seen.acker()
    assert acker is not None
    return acker.pending, acker.lag_secs


def test_reports_that_are_missing_are_not_passed_over() -> None:
    seen = progress()
    seen.take_in(status(1, Report({})), 1.0)
    with pytest.raises(EngineError, match="3 reports of committed batches were lost"):
        seen.take_in(status(5, Report({})), 1.0)


def test_a_spout_at_its_limit_stalls_only_where_nothing_times_out() -> None:
    clock = [0.0]
    for timeouts, reason in ((True, ""), (False, "spout 's' at its pending limit")):
        seen = progress({"topology.enable.message.timeouts": timeouts}, clock)
        seen.take_in(status(1, Report({}, exhausted=False, at_limit=(2,))), 1.0)
        assert seen.stall() == ""
        clock[0] += 2
        assert seen.stall().startswith(reason)
        assert bool(seen.stall()) is bool(reason)


def test_a_batch_without_progress_says_who_is_done() -> None:
    clock = [0.0]
    seen = progress(clock=clock)
    assert seen.stall() == ""
    seen.take_in(status(1, Report({}, exhausted=False), staged=((0, 0), (1, 1)), waiting=0), 1.0)
    clock[0] += 61
    assert seen.stall() == (
        "batch 5 has made no progress for 61 s; done: level 0 slot 0, level 1 slot 1"
    )
    seen.take_in(replace(IDLE, waiting=1), 0.0)  # it waits for the spout, which has nothing
    assert seen.stall() == ""


@pytest.mark.parametrize("restarts", [False, True])
def test_a_first_batch_that_hangs_is_a_stall(restarts: bool) -> None:
    clock = [0.0]
    seen = progress(clock=clock)
    if restarts:
        seen.take_in(status(1, Report({}, exhausted=False)), 1.0)
        clock[0] += 3600
        seen.begin_epoch(1)
    hangs = replace(IDLE, waiting=0, staged=())
    seen.take_in(hangs, 0.0)
    clock[0] += 59
    assert seen.stall() == ""
    clock[0] += 2
    assert seen.stall() == "batch 5 has made no progress for 61 s; done: nothing"


def test_a_batch_without_progress_says_what_hangs_in_it() -> None:
    clock = [0.0]
    seen = progress(clock=clock)
    seen.take_in(replace(IDLE, waiting=0, staged=((0, 0),)), 0.0)
    seen.note_hanging("bolt 'bank' task 2 has been executed for 60 s")
    clock[0] += 61
    assert seen.stall() == (
        "batch 5 has made no progress for 61 s; bolt 'bank' task 2 has been executed for 60 s; "
        "done: level 0 slot 0"
    )
    seen.begin_epoch(1)
    clock[0] += 61
    assert "bank" not in seen.stall(), "that process may have gone"


def test_the_status_is_asked_for_while_reports_come_in() -> None:
    seen = progress()

    class Meanwhile(tuple[int, ...]):
        def __iter__(self) -> Iterator[int]:
            seen.reports[len(seen.reports)] = Report({})  # as the run's thread may do right then
            return super().__iter__()

    seen.take_in(status(1, Report({}), Report({})), 1.0)
    seen.reports[0].at_limit = Meanwhile()
    assert seen.stall() == ""
    assert len(seen.reports) == 3
