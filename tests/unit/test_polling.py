"""The budget of a slot's spouts in a batch."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from topo.engine.spark.worker.polling import Budget, Polling
from topo.runtime.slot import full_conf
from topo.tracking.client import BatchStart
from topo.tracking.plan import Mode

MOST = 100_000


def batch(
    budget: Budget, worked: float, emitted: int | None = None, moved: int = 0, fixed: float = 0.0
) -> int:
    """One batch, of so many seconds of work and others; by default the budget is used up."""
    budget.taken(budget.tuples if emitted is None else emitted, since=50.0)
    budget.moved(moved)
    budget.worked(40.0, 50.0 + worked / 2)  # the first level waited before there was data
    budget.worked(51.0, 51.0 + worked / 2)
    budget.adapt(now=50.0 + worked + fixed)
    return budget.tuples


def grown(target_secs: float = 2.0) -> Budget:
    budget = Budget(target_secs, MOST)
    while budget.tuples < 40_000:
        batch(budget, target_secs / 4)
    return budget


def test_it_grows_while_it_is_used_up_early() -> None:
    budget = Budget(2.0, MOST)
    first = budget.tuples
    assert batch(budget, 0.25) == 4 * first
    assert batch(budget, 1.0) == 8 * first


def test_it_settles_where_a_batch_takes_the_target_whatever_is_fixed_in_it() -> None:
    budget = Budget(2.0, 1_000_000)
    for _ in range(30):
        batch(budget, budget.tuples * 10e-6, fixed=0.2)
    assert budget.tuples == pytest.approx(1.8 / 10e-6, rel=0.01)


def test_it_shrinks_when_a_batch_takes_longer() -> None:
    budget = grown()
    before = budget.tuples
    assert batch(budget, 4.0) == pytest.approx(before / 2, abs=1)


def test_a_machine_too_busy_for_the_target_still_gets_half_of_it_for_tuples() -> None:
    budget = Budget(2.0, 1_000_000)
    for _ in range(30):
        batch(budget, budget.tuples * 10e-6, fixed=5.0)
    assert budget.tuples == pytest.approx(1.0 / 10e-6, rel=0.01)


def test_spouts_that_run_dry_say_nothing_of_what_would_fit() -> None:
    budget = grown()
    before = budget.tuples
    assert batch(budget, 0.3, emitted=10) == before


def test_a_batch_cut_short_by_time_shrinks_it_to_what_came() -> None:
    budget = grown()
    assert batch(budget, 4.0, emitted=1_000) == 500


def test_it_never_grows_beyond_the_most() -> None:
    budget = Budget(2.0, 3_000)
    for _ in range(5):
        batch(budget, 0.1)
    assert budget.tuples == 3_000


def test_a_small_most_is_kept_even_under_the_smallest_budget() -> None:
    budget = Budget(2.0, 1)
    assert batch(budget, 10.0) == 1


def test_bolts_that_make_much_of_a_tuple_shrink_it() -> None:
    budget = Budget(2.0, MOST, most_bytes=1 << 20)
    before = budget.tuples
    assert batch(budget, 0.2, moved=8 << 20) == before // 8
    assert batch(budget, 0.2, moved=1 << 19) == pytest.approx(before // 4, abs=2)


def test_an_empty_batch_teaches_nothing() -> None:
    budget = grown()
    before = budget.tuples
    budget.adapt(now=1_000.0)
    assert budget.tuples == before


class Coordinator:
    """Answers those who wait; counts the slots that have said that all are to resume."""

    def __init__(self) -> None:
        self.resumes = False
        self.busy = 0

    def wait(self, start: BatchStart, slot: int, secs: float, busy: bool = False) -> bool:
        self.busy += busy
        return self.resumes


def test_a_batch_whose_clock_has_passed_a_time_does_not_wait_but_only_one_does() -> None:
    polling, coordinator = Polling(full_conf({})), Coordinator()

    def wait(batch: int, clock: float) -> int:
        start = BatchStart(batch, clock, clock, Mode.ACTIVE, 0, {}, {}, None)
        before = coordinator.busy
        client: Any = cast(Any, coordinator)
        polling.wait(client, start, 0, None, lambda: False, lambda: False, wake_at=100.0)
        return coordinator.busy - before

    assert wait(1, clock=99.999) == 1  # until the time
    assert wait(2, clock=100.5) == 1  # the batch that does what is due
    coordinator.resumes = True
    assert wait(3, clock=101.0) == 0


class Plenty:
    """Spouts that emit chunks without end, of which some are columns."""

    CHUNK = 100

    def __init__(self, *, by_columns: bool) -> None:
        self.by_columns = by_columns
        self.emitted = 0

    @property
    def polled_as_columns(self) -> int:
        return self.emitted if self.by_columns else 0

    def poll(self, most: int, until: float) -> int:
        given = -(-most // self.CHUNK) * self.CHUNK
        self.emitted += given
        return given


def filled(polling: Polling, *, by_columns: bool) -> int:
    """One batch that takes next to no time; return how many tuples it has."""
    plenty = Plenty(by_columns=by_columns)
    assert polling.fill(cast(Any, plenty)) == plenty.emitted
    polling.budget.adapt(now=time.monotonic())
    return plenty.emitted


def test_a_batch_may_have_sixteen_times_as_many_tuples_that_came_as_columns() -> None:
    polling = Polling(full_conf({"topology.batch.max.tuples": MOST}))
    by_tuple = [filled(polling, by_columns=False) for _ in range(12)]
    assert max(by_tuple) == by_tuple[-1] == MOST
    by_columns = [filled(polling, by_columns=True) for _ in range(12)]
    assert by_columns == sorted(by_columns)
    assert by_columns[-1] == 16 * MOST
    assert filled(polling, by_columns=False) == MOST  # in the very first batch of others
    assert filled(polling, by_columns=True) == MOST
    assert filled(polling, by_columns=True) == 4 * MOST


def test_columns_that_spark_has_read_are_none_that_spouts_were_asked_for() -> None:
    budget = grown()
    before = budget.tuples
    assert budget.room(10, as_columns=1_000_000) == before - 10
    budget.taken(10, since=50.0, as_columns=1_000_000)
    budget.worked(50.0, 50.1)
    budget.adapt(now=50.1)
    assert budget.tuples == before


class Trickle:
    """Spouts that have something whenever they are asked, until they are exhausted."""

    def __init__(self, has: int) -> None:
        self.left = has

    @property
    def exhausted(self) -> bool:
        return self.left == 0

    def poll(self, most: int, until: float) -> int:
        given = min(1, self.left, most)
        self.left -= given
        return given


def lingered(least_ms: int, trickle: Trickle, most: int = 1000, abandoned: bool = False) -> int:
    conf = {"topology.batch.least.ms": least_ms, "topology.batch.poll.ms": 1}
    polling = Polling(full_conf({**conf, "topology.batch.max.tuples": most}))
    return polling.linger(cast(Any, trickle), time.monotonic(), lambda: abandoned)


def test_a_batch_gathers_a_trickle_until_it_is_full_or_nothing_more_comes() -> None:
    hours = 3_600_000
    assert lingered(hours, Trickle(7)) == 7
    assert lingered(hours, Trickle(100), most=5) == 5
    assert lingered(hours, Trickle(100), abandoned=True) == 0
    assert lingered(0, Trickle(100)) == 0


def test_a_batch_that_is_long_enough_does_not_linger() -> None:
    polling = Polling(full_conf({"topology.batch.least.ms": 60_000}))
    assert polling.linger(cast(Any, Trickle(9)), time.monotonic() - 61, lambda: False) == 0
