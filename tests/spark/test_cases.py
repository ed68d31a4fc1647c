"""The cases of windows on Spark, all in one topology: they give what the inline engine gives.

The runners of `tests/conformance` say what each case is: here they run with a world that notes the
bolt and what it is fed. On Spark all rows come at once and the input ends, so the cases whose
result depends on neither batches nor the clock are compared: a third of them, or all in `--all`.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance import test_storm_windows, test_window_cases
from tests.conformance.window_world import World
from tests.property.scale import scaled
from topo import Topology, TopologyBuilder, WindowAggregate
from topo.event_time import BEFORE_ALL
from topo.lists import FromList
from topo.testing import complete_topology, laws_of_batches
from topo.windows.triggers import AfterDelay, Every

pytestmark = pytest.mark.spark

FIELDS = ("key", "value", "ts")


@dataclass
class Recorded:
    """A bolt of a case, and the rows that it was fed."""

    name: str
    bolt: Any
    rows: list[list[Any]]

    @property
    def goes_by_the_clock(self) -> bool:
        """True iff its results depend on when they are computed."""
        trigger = getattr(self.bolt, "trigger", None)
        parts = () if trigger is None else trigger.walk()
        return self.bolt.timing() is None or any(isinstance(p, AfterDelay | Every) for p in parts)

    @property
    def comes_late(self) -> bool:
        """True iff rows come later than the lag: which of them are late depends on batches."""
        time = self.bolt.timing()
        highest, lag = BEFORE_ALL, time.lag_of("in")
        for *_, ts in self.rows:
            if ts < highest - lag:
                return True
            highest = max(highest, ts)
        return False

    @property
    def depends_on_batches(self) -> bool:
        """True iff it reports differently if its input is cut otherwise."""
        try:
            laws_of_batches(
                topology([self]), {"in_0": self.rows}, results="w_0", most=4, to_end=True
            )
        except AssertionError:
            return True
        return False


def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """Run the cases, and yield what they run."""
    notes: list[Recorded] = []

    class NotingWorld(World):
        def __init__(self, bolt: Any, seed: int, conf: Any = None) -> None:
            self.note = Recorded("", bolt, [])
            if conf is None:
                notes.append(self.note)
            super().__init__(bolt, seed, conf)

        def feed(self, value: Any, ts: int, key: Any = "") -> None:
            self.note.rows.append([key, value, ts])
            super().feed(value, ts, key)

    for module in (test_window_cases, test_storm_windows):
        monkeypatch.setattr(module, "World", NotingWorld)
        for test in list(vars(module).values()):
            for mark in getattr(test, "pytestmark", ()):
                if mark.name != "parametrize" or mark.args[0] != "case":
                    continue
                wanted = inspect.signature(test).parameters
                if not set(wanted) <= {"case", "seed"}:
                    continue
                for case in mark.args[1]:
                    given = {"case": case, "seed": 0}
                    test(**{name: given[name] for name in wanted})
                    for note in notes:
                        note.name = case["name"]
                        yield note
                    notes.clear()


def topology(notes: list[Recorded]) -> Topology:
    builder = TopologyBuilder()
    for number, note in enumerate(notes):
        builder.set_spout(f"in_{number}", FromList(note.rows, FIELDS))
        tasks = 2 if isinstance(note.bolt, WindowAggregate) else 1
        builder.set_bolt(f"w_{number}", note.bolt, tasks).fields_grouping(f"in_{number}", ["key"])
    return builder.create_topology()


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_cases_of_windows_give_the_same_on_spark(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [
        note
        for note in recorded(monkeypatch)
        if note.rows and not (note.goes_by_the_clock or note.comes_late or note.depends_on_batches)
    ]
    assert len(notes) > 60
    notes = notes[:: 1 if scaled(3) == 3 else 3]
    program = topology(notes)
    inline = complete_topology(program)
    spark = complete_topology(program, engine="spark", mode=mode)
    different = [
        note.name
        for number, note in enumerate(notes)
        if Counter(map(repr, inline.tuples(f"w_{number}")))
        != Counter(map(repr, spark.tuples(f"w_{number}")))
    ]
    assert different == []
