"""Figures of the last minutes, from what was counted since the start."""

from __future__ import annotations

from typing import Any

import pytest

from topo.metrics.history import Windows


def figures(executed: int, execute_ms: float = 2.0, **more: Any) -> dict[str, Any]:
    component = {
        "kind": "bolt",
        "tasks": 2,
        "emitted": 10 * executed,
        "transferred": 0,
        "executed": executed,
        "acked": executed,
        "failed": 0,
        "failed_by": {},
        "unanchored": 0,
        "held": 7,
        "execute_ms": execute_ms,
        "process_ms": None,
        "complete_ms": None,
        "capacity": 0.1,
    }
    return {"status": "ACTIVE", "components": {"count": component | more}}


def test_counters_are_those_of_the_window_and_gauges_those_of_now() -> None:
    windows = Windows()
    for second in range(0, 1300, 5):
        windows.add(float(second), figures(second))
    count = windows.last(600, 1300.0, figures(1300))["components"]["count"]
    assert (count["executed"], count["emitted"], count["held"]) == (600, 6000, 7)
    assert count["capacity"] == pytest.approx(600 * 0.002 / (600 * 2))


def test_a_mean_is_that_of_what_was_counted_in_the_window() -> None:
    windows = Windows()
    windows.add(0.0, figures(100, execute_ms=1.0))
    count = windows.last(60, 60.0, figures(200, execute_ms=2.0))["components"]["count"]
    assert count["execute_ms"] == pytest.approx(3.0)
    assert windows.last(60, 60.0, figures(100))["components"]["count"]["execute_ms"] is None


def test_a_task_has_its_own_figures_of_the_window() -> None:
    windows = Windows()

    def of_tasks(first: int, second: int) -> dict[str, Any]:
        tasks = {
            str(task): figures(executed)["components"]["count"] | {"tasks": 1}
            for task, executed in ((4, first), (5, second))
        }
        return figures(first + second, by_task=tasks)

    windows.add(0.0, of_tasks(100, 300))
    count = windows.last(60, 60.0, of_tasks(110, 330))["components"]["count"]
    assert count["executed"] == 40
    assert {task: of["executed"] for task, of in count["by_task"].items()} == {"4": 10, "5": 30}
    assert count["by_task"]["5"]["capacity"] == pytest.approx(30 * 0.002 / 60)


def test_failures_by_reason() -> None:
    windows = Windows()
    windows.add(0.0, figures(1, failed=3, failed_by={"timeout": 3}))
    now = figures(2, failed=5, failed_by={"timeout": 3, "count failed": 2})
    count = windows.last(60, 60.0, now)["components"]["count"]
    assert (count["failed"], count["failed_by"]) == (2, {"count failed": 2})


def test_younger_than_the_window_it_is_all_there_is() -> None:
    windows = Windows()
    windows.add(100.0, figures(5))
    assert windows.last(600, 110.0, figures(9)) == figures(9)


def test_what_is_counted_anew_is_not_subtracted_from() -> None:
    windows = Windows()
    windows.add(0.0, figures(500))
    assert windows.last(10, 10.0, figures(3))["components"]["count"]["executed"] == 3


def test_a_day_takes_few_samples() -> None:
    windows = Windows()
    for second in range(0, 90_000, 5):
        windows.add(float(second), figures(second))
    assert sum(len(series) for series in windows._series) < 400
    count = windows.last(86_400, 90_000.0, figures(90_000))["components"]["count"]
    assert count["executed"] == pytest.approx(86_400, abs=900)
