"""The tolls of `examples/linear_road.py` are those that its rules give, read again and again."""

from __future__ import annotations

import ast
from statistics import fmean
from typing import Any

import pytest

from examples import linear_road
from examples.linear_road import Report, Segment
from topo.testing import TestCluster

REPORTS = linear_road.traffic()
BY_MINUTE: dict[tuple[Segment, int], list[Report]] = {}
for each in REPORTS:
    BY_MINUTE.setdefault(((each.xway, each.dir, each.seg), each.time // 60), []).append(each)


def speed(segment: Segment, minute: int) -> float | None:
    """Return the mean over the cars in a segment in a minute, if there were any."""
    reports = BY_MINUTE.get((segment, minute), [])
    cars = {r.vid for r in reports}
    means = [fmean(r.speed for r in reports if r.vid == vid) for vid in cars]
    return fmean(means) if means else None


def mean_speed(segment: Segment, minute: int) -> float | None:
    """Return the mean over the five minutes before, of those with traffic."""
    speeds = [speed(segment, before) for before in range(minute - 5, minute)]
    known = [one for one in speeds if one is not None]
    return fmean(known) if known else None


def cars_in(segment: Segment, minute: int) -> int:
    return len({r.vid for r in BY_MINUTE.get((segment, minute), [])})


def stopped(report: Report) -> bool:
    own = [r for r in REPORTS if r.vid == report.vid and r.time <= report.time][-4:]
    return len(own) == 4 and len({(r.xway, r.lane, r.dir, r.pos) for r in own}) == 1


STOPPED = [r for r in REPORTS if r.speed == 0 and stopped(r)]


def has_accident(segment: Segment, minute: int) -> bool:
    """True iff two cars stood at one place in the segment or the four that follow it."""
    xway, direction, number = segment
    ahead = 1 if direction == 0 else -1
    reach = {number + ahead * n for n in range(5)}
    here = [
        r
        for r in STOPPED
        if r.time // 60 == minute and (r.xway, r.dir) == (xway, direction) and r.seg in reach
    ]
    return any(
        one.vid != other.vid and (one.lane, one.pos) == (other.lane, other.pos)
        for one in here
        for other in here
    )


def wanted() -> list[Any]:
    """Return each notice: the vehicle, the time, the mean speed, the toll."""
    notices: list[Any] = []
    for vid in sorted({r.vid for r in REPORTS}):
        before = None
        for r in (r for r in REPORTS if r.vid == vid):
            segment, minute = (r.xway, r.dir, r.seg), r.time // 60
            if segment != before and r.lane != 4:
                mean, cars = mean_speed(segment, minute), cars_in(segment, minute - 1)
                due = mean is not None and mean < 40 and cars > 50
                free = not due or has_accident(segment, minute - 1)
                notices.append((vid, r.time, mean, 0 if free else 2 * (cars - 50) ** 2))
            before = segment
    return notices


def told(seed: int, restarts: bool, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    with TestCluster(seed=seed) as cluster:
        run = cluster.submit_topology("tolls", linear_road.topology())
        for _ in range(5 if restarts else 0):
            run.step(n=20)
            run.restart()
        run.settle()
        assert run.status == "COMPLETED"
    lines = [line.partition(" ") for line in capsys.readouterr().out.splitlines()]
    return sorted(ast.literal_eval(element)[1] for _, _, element in lines)


@pytest.mark.parametrize(("seed", "restarts"), [(0, False), (1, False), (2, True)])
def test_every_vehicle_is_told_the_toll_of_its_segment(
    seed: int, restarts: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    expected, found = wanted(), told(seed, restarts, capsys)
    assert [(vid, time, toll) for vid, time, _, toll in found] == [
        (vid, time, toll) for vid, time, _, toll in expected
    ]
    assert [mean is None for *_, mean, _ in found] == [mean is None for *_, mean, _ in expected]
    assert [mean or 0.0 for *_, mean, _ in found] == pytest.approx(
        [mean or 0.0 for *_, mean, _ in expected]
    )


def test_the_traffic_has_tolls_and_an_accident_that_spares_some() -> None:
    notices = wanted()
    segments = {(r.vid, r.time): (r.xway, r.dir, r.seg) for r in REPORTS}
    assert sum(1 for *_, toll in notices if toll) > 10
    spared = [
        (vid, time)
        for vid, time, mean, _ in notices
        if mean is not None
        and mean < 40
        and cars_in(segments[vid, time], time // 60 - 1) > 50
        and has_accident(segments[vid, time], time // 60 - 1)
    ]
    assert len(spared) > 5
    assert any(r.lane == 4 for r in REPORTS)
    assert [(r.vid, r.time) for r in REPORTS] != sorted((r.vid, r.time) for r in REPORTS)


@pytest.mark.parametrize(
    ("cars", "mean", "accidents", "due"),
    [
        (50, 39.9, [], 0),
        (51, 39.9, [], 2),
        (60, 40.0, [], 0),
        (60, 0.0, [], 200),
        (60, 0.0, [1], 0),
    ],
)
def test_a_toll_begins_with_51_cars_below_40_miles_an_hour(
    cars: int, mean: float, accidents: list[int], due: int
) -> None:
    minutes = [linear_road.Minute(60, 99, mean), linear_road.Minute(120, cars, mean)]
    assert linear_road.toll(([(120, minutes)], accidents)) == (mean, due)


def test_a_segment_that_was_empty_for_a_minute_costs_nothing() -> None:
    assert linear_road.toll(([(120, [linear_road.Minute(60, 99, 9.0)])], [])) == (9.0, 0)
