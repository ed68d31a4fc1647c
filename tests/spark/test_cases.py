"""The cases of windows, joins, tables and streams on Spark: they give what the inline engine gives.

The runners of `tests/conformance` say what each case is: here they run with a world that notes the
bolt and what it is fed. On Spark all rows come at once and the input ends, so the cases whose
result depends on neither batches nor the clock are compared: a third of them, or all in `--all`.
All bolts of a kind are in one topology, and all programs of streams in one program.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest

from tests.conformance import (
    join_world,
    test_join_cases,
    test_storm_windows,
    test_streams,
    test_table_cases,
    test_window_cases,
)
from tests.conformance.window_world import World
from tests.property.scale import scaled
from topo import Topology, TopologyBuilder, WindowAggregate
from topo.event_time import BEFORE_ALL
from topo.lists import FromList
from topo.shipping.pickling import load_component
from topo.streams import StreamBuilder
from topo.testing import FeederSpout, complete_topology, laws_of_batches
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
        for case in cases_run(module):
            for note in notes:
                note.name = case["name"]
                yield note
            notes.clear()


def cases_run(module: ModuleType) -> Iterator[dict[str, Any]]:
    """Run the cases of a module of runners, and yield each when it has run."""
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
                yield case


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
    compare(topology(some(notes)), [f"w_{n}" for n in range(len(some(notes)))], mode)


def some(notes: list[Any]) -> list[Any]:
    """Return a third of them, or all in `--all`."""
    return notes[:: 1 if scaled(3) == 3 else 3]


def compare(program: Topology, components: list[str], mode: str) -> None:
    """Raise an AssertionError unless Spark gives the tuples that the inline engine gives."""
    inline = complete_topology(program)
    spark = complete_topology(program, engine="spark", mode=mode)
    tuples = {
        name: tuple(Counter(map(repr, run.tuples(name))) for run in (inline, spark))
        for name in components
    }
    assert {name: both for name, both in tuples.items() if both[0] != both[1]} == {}


FED: dict[int, list[list[Any]]] = {}
"""What each feeder was fed, by its number."""


class NotingFeeder(FeederSpout):
    """A feeder that notes what it is fed."""

    def feed(self, values: list[Any] | tuple[Any, ...], msg_id: Any = None) -> None:
        FED.setdefault(self.number, []).append(list(values))
        super().feed(values, msg_id)


@dataclass
class Join:
    """A join of a case, and the rows of its sides."""

    bolt: Any
    rows: dict[str, list[list[Any]]]

    def topology(self, builder: TopologyBuilder, number: int, tasks: int = 2) -> None:
        """Add the join and its sources to a topology, under names with this number."""
        bolt = copy(self.bolt)
        sides = [replace(one, component=f"{one.component}_{number}") for one in bolt.sides]
        bolt.sides = sides
        declarer = builder.set_bolt(f"j_{number}", bolt, tasks)
        for side, rows in self.rows.items():
            builder.set_spout(f"{side}_{number}", FromList(rows, FIELDS))
            declarer.fields_grouping(f"{side}_{number}", ["key"])

    @property
    def depends_on_batches(self) -> bool:
        """True iff it gives something else if its input is cut otherwise."""
        rows = {f"{side}_0": rows for side, rows in self.rows.items()}
        try:
            laws_of_batches(joins([self]), rows, results="j_0", most=4, to_end=True)
        except AssertionError:
            return True
        return False


def joins(notes: list[Join]) -> Topology:
    builder = TopologyBuilder()
    for number, note in enumerate(notes):
        note.topology(builder, number)
    return builder.create_topology()


def recorded_joins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Join]:
    """Run the cases of joins of two streams, and yield what they run."""
    worlds: list[tuple[Any, Any]] = []

    class NotingWorld(join_world.JoinWorld):
        def __init__(self, bolt: Any, seed: int, *, alone: bool = False, tasks: int = 1) -> None:
            super().__init__(bolt, seed, alone=alone, tasks=tasks)
            worlds.append((bolt, self.feeders))

    monkeypatch.setattr(join_world, "FeederSpout", NotingFeeder)
    monkeypatch.setattr(test_join_cases, "JoinWorld", NotingWorld)
    for _ in cases_run(test_join_cases):
        for bolt, feeders in worlds:
            fed = {side: FED.get(f.number, []) for side, f in feeders.items()}
            if all(fed.values()):
                yield Join(bolt, fed)
        worlds.clear()


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_cases_of_joins_give_the_same_on_spark(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = [note for note in recorded_joins(monkeypatch) if not note.depends_on_batches]
    assert len(notes) > 25
    notes = some(notes)
    compare(joins(notes), [f"j_{number}" for number in range(len(notes))], mode)


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_cases_of_streams_give_the_same_on_spark(mode: str) -> None:
    builder = StreamBuilder()
    cases = [case for case in test_streams.CASES if case["topo"] == "must"]
    programs = some([case for case in cases if is_program(case)])
    assert len(programs) > 6
    for number, case in enumerate(programs):
        written = stream_of(builder, case)
        written.to(test_streams.Sink(), name=f"sink_{number}")
    compare(builder.build(), [f"sink_{number}" for number in range(len(programs))], mode)


def is_program(case: dict[str, Any]) -> bool:
    """Return True if the runner of a case has its program."""
    if case["kind"] == "trident":
        return case["settings"]["program"] in test_streams.TRIDENT
    return case["kind"] == "operators" and case["name"] in test_streams.PROGRAMS


def stream_of(builder: StreamBuilder, case: dict[str, Any]) -> Any:
    """Write the program of a case."""
    if case["kind"] == "trident":
        write = test_streams.TRIDENT[case["settings"]["program"]]
        return write(builder, case["steps"][0]["batch"])
    inputs: dict[str, list[Any]] = {}
    for step in case["steps"]:
        if "in" in step:
            inputs.setdefault(step.get("from", ""), []).append(step["in"])
    streams = {name: builder.stream(test_streams.Items(items)) for name, items in inputs.items()}
    return test_streams.PROGRAMS[case["name"]](builder, streams)


TABLES = {"table-join", "foreign-key-join", "table-aggregate"}
"""The kinds of cases whose last state depends on their rows alone.

What a row of a stream finds in a table depends on which came first, and what a table forgets on the
clock.
"""
TRACES = {"taken away, then added", "grouped by value"}
"""Cases whose aggregate is a trace of what came and went between two batches."""


@dataclass
class TableProgram:
    """A program with tables of a case, and the rows of its spouts."""

    name: str
    topology: Topology
    component: str
    rows: dict[str, list[list[Any]]]
    feeders: Any
    """They live as long as the topology may run."""

    def final(self, mode: str | None = None) -> dict[Any, Any]:
        """Return the last value of each key; changes in between depend on batches."""
        engine = "inline" if mode is None else "spark"
        done = complete_topology(self.topology, self.rows, engine=engine, mode=mode)
        values = {key: value for key, value, _ in done.tuples(self.component)}
        return {key: repr(value) for key, value in values.items() if value is not None}


def worlds_of_tables(
    monkeypatch: pytest.MonkeyPatch, feeder: type[FeederSpout]
) -> Iterator[tuple[dict[str, Any], Topology, str, Any]]:
    """Run the cases of tables; yield each with its topologies, what comes out, and the feeders."""
    worlds: list[tuple[Topology, str, Any]] = []

    class NotingWorld(test_table_cases.World):
        def __init__(self, topology: Topology, component: str, seed: int, feeders: Any) -> None:
            super().__init__(topology, component, seed, feeders)
            worlds.append((topology, component, feeders))

    monkeypatch.setattr(test_table_cases, "FeederSpout", feeder)
    monkeypatch.setattr(test_table_cases, "World", NotingWorld)
    for case in cases_run(test_table_cases):
        for world in worlds:
            yield case, *world
        worlds.clear()


def recorded_tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[TableProgram]:
    """Run the cases of tables, and yield what they run."""
    for case, topology, component, feeders in worlds_of_tables(monkeypatch, NotingFeeder):
        if case["kind"] in TABLES and case["name"] not in TRACES:
            spouts: dict[str, Any] = {s.id: load_component(s) for s in topology.spouts}
            rows = {name: FED.get(spout.number, []) for name, spout in spouts.items()}
            yield TableProgram(case["name"], topology, component, rows, feeders)


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_cases_of_tables_give_the_same_on_spark(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = list(recorded_tables(monkeypatch))
    assert len(programs) > 15
    different = [
        program.name
        for program in programs[:: 1 if scaled(3) == 3 else 7]
        if program.final() != program.final(mode)
    ]
    assert different == []
