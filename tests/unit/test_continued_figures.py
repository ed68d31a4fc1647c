"""The figures of a run that has had several drivers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.doubles import Numbers, Total
from tests.wiring import line
from topo.manage.answers import written_figures
from topo.manage.documents import plain
from topo.metrics.continued import all_errors, continued
from topo.metrics.counters import ErrorReport, TaskMetrics
from topo.metrics.figures import COMPONENT
from topo.metrics.history import Windows
from topo.metrics.totals import RunTotals
from topo.running import AckerStats, RunStats
from topo.runtime.input_seconds import key_of_stream
from topo.topology.layout import TaskLayout

TOPOLOGY = line(Numbers(3), Total())
LAYOUT = TaskLayout(TOPOLOGY)
(SPOUT,), (BOLT,) = LAYOUT.tasks_of("s"), LAYOUT.tasks_of("b1")


class Driver:
    """The counts of one driver."""

    def __init__(self) -> None:
        self.totals = RunTotals(TOPOLOGY, LAYOUT)
        self._batches = 0

    def batch(self, counted: dict[int, TaskMetrics], ms: float) -> None:
        self._batches += 1
        self.totals.add(counted, 1.0)
        self.totals.batch_done(self._batches, 1.0, ms=ms, rows=1, waited_ms=ms / 4)

    @property
    def figures(self) -> dict[str, Any]:
        stats = RunStats(
            "t", "ACTIVE", "", 1.0, "all", self.totals.batch(1.0), self.totals.components(),
            AckerStats(1, 2, 0.5, 0.0, 0, updates=7),
        )  # fmt: skip
        found: dict[str, Any] = plain(stats)
        return found


def metrics(numbers: list[int]) -> TaskMetrics:
    """Counts of a task in one batch, in binary fractions, whose sums are exact."""
    emitted, executed, acked, failed, busy = numbers
    counted = TaskMetrics()
    counted.emitted["default"] = emitted
    counted.executed, counted.acked, counted.failed = executed, acked, failed
    counted.execute_seconds = busy / 8 if executed else 0.0  # nothing takes no time
    counted.complete_seconds = busy / 8 if acked else 0.0
    for name, share in (("a", executed // 2), ("b", executed - executed // 2)):
        key = key_of_stream(name, "default")
        counted.executed_by_input[key] = counted.settled_by_input[key] = share
        counted.execute_seconds_by_input[key] = share * busy / 8
        counted.process_seconds_by_input[key] = share * busy / 4
    counted.counters["polls"] = acked
    counted.gauges["lag"] = float(failed)
    counted.complete_by["0.1"] = acked
    counted.pending = counted.held = failed
    return counted


@given(
    st.lists(
        st.tuples(*[st.lists(st.integers(0, 50), min_size=5, max_size=5)] * 2, st.integers(1, 9)),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_a_run_with_restarts_counts_as_one_without(
    batches: list[tuple[list[int], list[int], int]], data: st.DataObject
) -> None:
    """After each batch the driver may be another, which has read what the last one wrote."""
    whole, driver, before = Driver(), Driver(), None
    for spout, bolt, ms in batches:
        if data.draw(st.booleans()):
            before, driver = continued(before, driver.figures), Driver()
        for one in (whole, driver):
            counted = {SPOUT: metrics(spout), BOLT: metrics(bolt)}
            one.batch(counted, float(ms))
    found, expected = continued(before, driver.figures), whole.figures
    for name, of in expected["components"].items():
        for figure in COMPONENT:
            if figure.kind not in ("gauge", "gauges"):
                mine = found["components"][name][figure.name]
                assert mine == pytest.approx(of[figure.name]), figure.name
        assert found["components"][name]["pending"] == of["pending"], "levels are those of now"
    for name in ("count", "worked_secs", "wait_secs", "by_seconds"):
        assert found["batch"][name] == pytest.approx(expected["batch"][name]), name


def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    assert written_figures(tmp_path) is None
    for text in ("", "{", "[]", '{"components": {"s": {"kind": "spout", "tasks": 1}}}'):
        (tmp_path / "stats.json").write_text(text)
        before = written_figures(tmp_path)
        assert continued(before, Driver().figures)["components"]["s"]["acked"] == 0


def test_a_component_that_was_not_there_counts_from_now() -> None:
    driver = Driver()
    driver.batch({SPOUT: metrics([3, 0, 2, 1, 4])}, 1.0)
    before = driver.figures
    del before["components"]["s"]
    assert continued(before, driver.figures)["components"]["s"]["acked"] == 2


def test_equal_errors_of_several_drivers_are_one() -> None:
    totals = [RunTotals(TOPOLOGY, LAYOUT) for _ in range(2)]
    report = ErrorReport("b1", 2, "reported", "ValueError", "bad")
    totals[0].add_error(report, 1.0)
    totals[0].add_error(replace(report, message="other"), 2.0)
    totals[1].add_error(replace(report, count=3), 9.0)
    before, now = (plain(each.errors()) for each in totals)
    found = all_errors(before, now)
    assert [(e["message"], e["count"], e["first"], e["last"]) for e in found] == [
        ("bad", 4, 1.0, 9.0),
        ("other", 1, 2.0, 2.0),
    ]


def test_a_window_after_a_restart_has_what_was_counted_since() -> None:
    driver = Driver()
    driver.batch({SPOUT: metrics([100, 0, 90, 10, 8])}, 1.0)
    before = driver.figures
    windows = Windows()
    windows.begin(50.0, before)
    driver = Driver()
    driver.batch({SPOUT: metrics([7, 0, 5, 2, 8])}, 1.0)
    spout = windows.last(600, 60.0, continued(before, driver.figures))["components"]["s"]
    assert (spout["emitted"], spout["acked"]) == (7, 5)


def test_a_window_has_the_means_of_each_input_in_it() -> None:
    driver = Driver()
    driver.batch({BOLT: metrics([0, 100, 0, 0, 8])}, 1.0)
    windows = Windows()
    windows.begin(50.0, driver.figures)
    driver.batch({BOLT: metrics([0, 7, 0, 0, 2])}, 1.0)
    bolt = windows.last(600, 60.0, driver.figures)["components"]["b1"]
    a, b = (key_of_stream(name, "default") for name in "ab")
    assert bolt["executed_by_input"] == {a: 3, b: 4}
    assert bolt["execute_ms_by_input"] == pytest.approx({a: 250.0, b: 250.0})
    assert bolt["process_ms_by_input"] == pytest.approx({a: 500.0, b: 500.0})
