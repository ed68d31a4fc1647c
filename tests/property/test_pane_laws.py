"""Windows of raw tuples with sessions, triggers and lateness: what they hold, however it is saved.

The oracle is the operator of windows with all values in each cell, which is never restarted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from tests.property.test_storm_window_laws import (
    SOURCES,
    Life,
    Run,
    Told,
    batches_of,
    rows_of,
    tuples,
)
from topo import AfterCount, AtWatermark, EachBatch, EveryEventTime, Then, When, Window
from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.operators.aggregates.accumulators import Accumulators
from topo.operators.aggregates.combiners import Collect
from topo.windows.general import KeyedWindows
from topo.windows.records import Pane, ReportRules
from topo.windows.triggers import prepared
from topo.windows.window import lateness_ticks

MS = timedelta(milliseconds=1)


class Panes(Told):
    """Notes the panes that it is told."""

    def execute(self, window: Window) -> None:
        super().execute(window)
        assert window.pane is not None
        assert window.pane.new == len(window.new)
        self.told[-1] += (window.pane.timing, window.pane.index)


def gap_of(tup: Any) -> timedelta:
    """Return a gap that is another one for each tuple, so that sessions shrink and grow."""
    return MS * (1 + int(tup["n"]) * 7 % 11)


def busy(results: dict[str, Any]) -> bool:
    return len(results["tuples"]) % 4 == 3


def full(results: dict[str, Any], new: dict[str, Any]) -> bool:
    return len(results["tuples"]) + int(new["tuples"]["n"]) % 2 > 3


WINDOWS: dict[str, Callable[[Panes], Told]] = {
    "tumbling": lambda bolt: bolt.with_tumbling_window(7 * MS),
    "sliding": lambda bolt: bolt.with_window(20 * MS, 5 * MS),
    "gaps": lambda bolt: bolt.with_window(4 * MS, 7 * MS),
    "sessions": lambda bolt: bolt.with_session(4 * MS),
    "own gaps": lambda bolt: bolt.with_session(gap_of),
}
TRIGGERS: dict[str, Any] = {
    "at the end": AtWatermark(),
    "each": AtWatermark(early=AfterCount(1), late=AfterCount(1)),
    "by two": AtWatermark(early=AfterCount(2), late=AfterCount(2)),
    "by batch": AtWatermark(early=EachBatch()),
    "by time": AtWatermark(early=EveryEventTime(6)),
    "once": Then(AfterCount(3)),
    "asking": When(busy),
    "asking before": When(full, before=True),
}
MODES = ["accumulate", "discard"]


class Oracle:
    """The same windows, each with the numbers of all its tuples."""

    def __init__(self, bolt: Told) -> None:
        time, rules = bolt.timing(), bolt.rules
        assert time is not None
        self.told: list[Any] = []
        self.late: list[int] = []
        self._reported: dict[Any, set[int]] = {}
        self._starts = bolt.sessions is None  # a tuple of a session is only in that one
        self._windows = KeyedWindows(
            bolt.assigner(time),
            Accumulators({"tuples": Collect()}),
            prepared(rules["trigger"], time),
            ReportRules(rules["mode"], lateness_ticks(rules["lateness"], time)),
            self._report,
        )
        self._keyed = bool(bolt.key_fields())

    def _report(self, pane: Pane) -> None:
        numbers = [tup["n"] for tup in pane.results[0]]
        reported = self._reported.setdefault((pane.key, pane.start if self._starts else 0), set())
        new = [number for number in numbers if number not in reported]
        reported.update(numbers)
        self.told.append(
            (pane.key, pane.start, pane.end, sorted(numbers), sorted(new), [], pane.timing,
             pane.index)
        )  # fmt: skip

    def batch(self, rows: list[Run], watermark: int) -> None:
        for _, batch in rows:
            for values in batch:
                key = values["key"] if self._keyed else None
                if not self._windows.add(key, values["ts"], [values], 0.0, values):
                    self.late.append(values["n"])
        self._windows.end_batch(0.0)
        self._windows.advance(watermark, 0.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("window", WINDOWS)
@given(given_tuples=tuples, seed=st.integers(0, 1 << 30))
@examples(10)
def test_a_window_is_told_its_tuples_whatever_is_saved_and_restored(
    window: str, trigger: str, mode: str, given_tuples: list[Any], seed: int
) -> None:
    random = Random(seed)
    lateness, keyed = random.choice((0, 5, 30)) * MS, random.random() < 0.7

    def made() -> Told:
        bolt = WINDOWS[window](Panes()).with_trigger(TRIGGERS[trigger], mode)
        bolt.with_timestamp_field("ts").with_allowed_lateness(lateness)
        return bolt.with_key("key") if keyed else bolt

    oracle, life = Oracle(made()), Life(made, saves=True)
    for runs, watermark in batches_of(given_tuples, random):
        life.batch([rows_of(source, own, True) for source, own in runs], watermark)
        oracle.batch(runs, watermark)
        if random.random() < 0.4:
            rows = life.executor.state_rows
            life.restart()
            assert life.executor.state_rows == rows
    life.batch([], AFTER_ALL)
    oracle.batch([], AFTER_ALL)
    life.restart()
    # Windows of several keys that are due at one moment may change places in a restart.
    assert sorted(life.told, key=_place) == sorted(oracle.told, key=_place)
    assert life.task.late == oracle.late
    assert [name for name in life.saved if name.startswith("waiting/")] == []


def _place(told: Any) -> tuple[Any, ...]:
    key, start, end, *_, index = told
    return str(key), start, end, index


@pytest.mark.parametrize("window", ["tumbling", "sliding", "sessions"])
def test_a_batch_saves_what_came_whatever_a_window_holds(window: str) -> None:
    def made() -> Told:
        kinds: dict[str, Callable[[Told], Told]] = {
            "tumbling": lambda bolt: bolt.with_tumbling_window(timedelta(hours=1)),
            "sliding": lambda bolt: bolt.with_window(timedelta(hours=1), timedelta(minutes=10)),
            "sessions": lambda bolt: bolt.with_session(timedelta(hours=1)),
        }
        bolt = kinds[window](Told()).with_timestamp_field("ts").with_trigger(
            AtWatermark(early=AfterCount(10))
        )  # fmt: skip
        return bolt.with_allowed_lateness(timedelta(hours=2))

    life = Life(made, saves=True)
    written = []
    for n in range(4000):
        before = dict(life.saved)
        values = {"key": "a", "ts": n, "n": n, "more": None}
        life.batch([rows_of(SOURCES[n % 2], [values], True)], BEFORE_ALL)
        puts = (blob for name, blob in life.saved.items() if before.get(name) != blob)
        written.append(sum(map(len, puts)))
    assert sum(written[3500:]) < 1.5 * sum(written[500:1000])
    life.restart()
    life.batch([], AFTER_ALL)
    assert life.bolt.told[-1][3] == list(range(4000))
    assert not any(name.startswith(("waiting/", "panes:")) for name in life.saved)
