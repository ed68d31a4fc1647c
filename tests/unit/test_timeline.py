"""The batches of a run far back, over restarts of its driver."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from topo.manage.timeline import MOST_BATCHES, Timeline
from topo.metrics.figures import BatchRecord


def records(numbers: Iterable[int], since: float = 0.0) -> list[BatchRecord]:
    return [BatchRecord(n, since + n, 10.0, 1.0, 5, {"addBatch": 9.0}) for n in numbers]


def ids(batches: Iterable[BatchRecord]) -> list[int]:
    return [batch.id for batch in batches]


def test_what_was_taken_is_not_taken_again_and_goes_far_back() -> None:
    timeline = Timeline()
    for last in range(0, 3 * MOST_BATCHES, 37):
        timeline.take(records(range(max(0, last - 99), last + 1)))
    assert ids(timeline.page(limit=MOST_BATCHES)) == list(range(last - MOST_BATCHES + 1, last + 1))


def test_it_is_gone_through_by_number() -> None:
    timeline = Timeline()
    timeline.take(records(range(1, 251)))
    assert ids(timeline.page()) == list(range(151, 251))
    assert ids(timeline.page(151, 100)) == list(range(51, 151))
    assert ids(timeline.page(51, 100)) == list(range(1, 51))
    assert timeline.page(1, 100) == []
    assert ids(timeline.page(9999, 2)) == [249, 250]


def test_what_is_done_again_takes_the_place_of_what_was_undone() -> None:
    timeline = Timeline()
    timeline.take(records(range(1, 11)))
    timeline.take(records(range(1, 11)) + records((7, 8), since=100.0))
    assert [(b.id, b.ended_at) for b in timeline.page(limit=4)] == [
        (5, 5.0), (6, 6.0), (7, 107.0), (8, 108.0)
    ]  # fmt: skip


def test_it_goes_on_with_the_next_driver() -> None:
    first = Timeline()
    first.take(records(range(1, 6)))
    second = Timeline(first.dump())
    second.take(records((5, 6), since=100.0))
    assert [(b.id, b.ended_at) for b in second.page(limit=3)] == [(4, 4.0), (5, 105.0), (6, 106.0)]
    assert Timeline(second.dump()).page() == second.page()


@pytest.mark.parametrize(
    "written",
    [None, {}, "x", [1, None, [], {"id": "one"}], [{"id": 2, "ended_at": "now"}]],
)
def test_a_damaged_file_is_no_timeline(written: object) -> None:
    assert Timeline(written).page() == []
