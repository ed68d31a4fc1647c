"""The cases of lookups and pairs on Spark.

What a row finds in a table depends on which of the two came first, and two spouts promise no order.
So here they take turns: a spout emits its next row when the row before it, its own or the other's,
was acked, so that each is in a batch of its own, on every engine. Where a case moves the clock, the
clock of the batches is a test's: it shows the time of the next row. Slots in real-time mode have
clocks that leap for nobody, so that such cases run in micro-batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import test_join_cases, test_table_cases
from tests.conformance.join_world import cases as join_cases
from tests.property.scale import scaled
from tests.spark.test_cases import cases_run, worlds_of_tables
from topo import Spout, Topology
from topo.shipping.pickling import load_component, pickle_locally, pickle_to_travel
from topo.testing import FeederSpout, complete_topology
from topo.tracking import service

pytestmark = pytest.mark.spark

LOOKUPS = {"stream-table-join", "as-of-join", "temporal-join"}
"""The kinds of cases in which rows of a stream look a table up."""

TURNS = count()
FED: dict[int, list[tuple[int, list[Any]]]] = {}
"""The rows that each feeder was fed, with their turns among the rows of all."""
AT: dict[int, float] = {}
"""What the clock of a case showed at each turn, in seconds."""
START = 1_000_000_000.0
"""What a run's clock shows where that of a case begins."""


class NotingFeeder(FeederSpout):
    """A feeder that notes when it is fed what."""

    now = 0.0

    def feed(self, values: list[Any] | tuple[Any, ...], msg_id: Any = None) -> None:
        turn = next(TURNS)
        AT[turn] = NotingFeeder.now
        FED.setdefault(self.number, []).append((turn, list(values)))
        super().feed(values, msg_id)


class InTurns(Spout):
    """Emits its rows, each when the one before it was acked, whosever it was.

    What was acked are files in a directory, since the spouts of a run may be in several processes.
    """

    def __init__(
        self, fields: tuple[str, ...], rows: list[tuple[int, list[Any]]], end: int
    ) -> None:
        self.outputs = fields
        self.rows = rows
        self.end = end
        self.directory = ""

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.left = self.rows[::-1]
        self.emitted: int | None = None

    def next_tuple(self) -> None:
        if self.left and self.is_done(self.left[-1][0] - 1):
            self.emitted, values = self.left.pop()
            self.emit(values, msg_id=self.emitted)

    def pre_commit(self, batch_id: int) -> None:
        """Tell the clock, which the next batch reads before the row of this one is acked."""
        if self.emitted is not None:
            (Path(self.directory) / f"emitted-{self.emitted}").touch()

    def is_done(self, turn: int) -> bool:
        return turn < 0 or (Path(self.directory) / str(turn)).exists()

    def ack(self, msg_id: Any) -> None:
        (Path(self.directory) / str(msg_id)).touch()

    def is_exhausted(self) -> bool:
        return self.is_done(self.end)


@dataclass
class Lookups:
    """A topology of a case, and the spouts that take turns in it."""

    name: str
    topology: Topology
    component: str
    spouts: dict[str, InTurns]
    feeders: Any
    """They live as long as the topology may run."""
    times: list[float]
    """What the clock shows at each turn."""

    def turns(self) -> int:
        """Return how many rows there are."""
        return sum(len(spout.rows) for spout in self.spouts.values())

    def results(self, directory: Path, mode: str | None = None) -> list[str]:
        """Return what comes out, in order."""
        directory.mkdir()
        components = dict(self.topology.components)
        for name, spout in self.spouts.items():
            spout.directory = str(directory)
            components[name] = replace(
                components[name],
                class_name="InTurns",
                pickled=pickle_to_travel(spout),
                local=pickle_locally(spout),
                finite=True,
            )
        topology = Topology(components.values(), (), self.topology.user_classes)
        engine = "inline" if mode is None else "spark"
        done = complete_topology(topology, engine=engine, mode=mode)
        return list(map(repr, done.tuples(self.component)))


def recorded_lookups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lookups]:
    """Run the cases of lookups, and yield what they run."""
    for case, topology, component, feeders in worlds_of_tables(monkeypatch, NotingFeeder):
        says_more = any("now" in step or "watermark" in step for step in case["steps"])
        if case["kind"] in LOOKUPS and not says_more:
            yield _lookups(case["name"], topology, component, feeders)


def _lookups(name: str, topology: Topology, component: str, feeders: Any) -> Lookups:
    feeding: dict[str, Any] = {spout.id: load_component(spout) for spout in topology.spouts}
    numbers = {name: spout.number for name, spout in feeding.items()}
    turns = sorted(turn for number in numbers.values() for turn, _ in FED.get(number, ()))
    nth = {turn: place for place, turn in enumerate(turns)}
    spouts = {}
    for id, number in numbers.items():
        rows = [(nth[turn], values) for turn, values in FED.get(number, ())]
        fields = topology.component(id).declared("default").fields
        spouts[id] = InTurns(fields, rows, len(turns) - 1)
    times = [AT[turn] for turn in turns]
    return Lookups(name, topology, component, spouts, feeders, times)


class CaseClock:
    """The clock of a run: that of the case at a row, once the row before it was in a batch."""

    def __init__(self, directory: Path, times: list[float]) -> None:
        self.directory = directory
        self.times = times
        self.turn = 0

    def __call__(self) -> float:
        while self.turn < len(self.times) - 1 and self._has_emitted(self.turn):
            self.turn += 1
        return START + self.times[self.turn]

    def _has_emitted(self, turn: int) -> bool:
        return (self.directory / f"emitted-{turn}").exists()

    def reach(self, least: float) -> None:
        """It shows what the case says."""


def cases_by_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lookups, Counter[str]]]:
    """Run the cases that move the clock, and yield what they run and what came out of it."""
    worlds: list[tuple[Any, Topology, str, Any]] = []

    class NotingWorld(test_table_cases.World):
        def __init__(self, topology: Topology, component: str, seed: int, feeders: Any) -> None:
            super().__init__(topology, component, seed, feeders)
            NotingFeeder.now = 0.0
            worlds.append((self.run, topology, component, feeders))

        def now(self, secs: float) -> None:
            NotingFeeder.now = secs
            super().now(secs)

    monkeypatch.setattr(test_table_cases, "FeederSpout", NotingFeeder)
    monkeypatch.setattr(test_table_cases, "World", NotingWorld)
    for case in cases_run(test_table_cases):
        steps = case["steps"]
        if any("now" in step for step in steps) and not any("watermark" in s for s in steps):
            for run, topology, component, feeders in worlds:
                lookups = _lookups(case["name"], topology, component, feeders)
                yield lookups, Counter(map(repr, run.tuples(component)))
        worlds.clear()


def test_cases_that_move_the_clock_give_the_same_on_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cases = sorted(cases_by_clock(monkeypatch), key=lambda case: case[0].turns())
    assert len(cases) > 5
    different = {}
    for number, (case, wanted) in enumerate(cases if scaled(3) == 3 else cases[:1]):
        directory = tmp_path / str(number)
        clock = CaseClock(directory, case.times)
        monkeypatch.setattr(service, "SteadyClock", lambda clock=clock: clock)
        found = Counter(case.results(directory, "micro-batch"))
        if found != wanted:
            different[case.name] = found, wanted
    assert different == {}


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_cases_of_lookups_give_the_same_on_spark(
    mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cases = sorted(recorded_lookups(monkeypatch), key=Lookups.turns)  # each is a batch
    assert len(cases) > 10
    chosen = cases[:: 1 if scaled(3) == 3 else 7]
    inline = [case.results(tmp_path / f"inline-{n}") for n, case in enumerate(chosen)]
    assert any(inline)
    spark = [case.results(tmp_path / f"spark-{n}", mode) for n, case in enumerate(chosen)]
    different = [
        case.name for case, *both in zip(chosen, inline, spark, strict=True) if both[0] != both[1]
    ]
    assert different == []


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_cases_of_pairs_say_what_comes_out_on_spark(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: Counter[str] = Counter()

    def on_spark(topology: Topology) -> Any:
        runs[mode] += 1
        return complete_topology(topology, engine="spark", mode=mode)

    monkeypatch.setattr(test_join_cases, "complete_topology", on_spark)
    pairs = list(join_cases("pair-join"))
    for case in pairs[:: 1 if scaled(3) == 3 else 4]:
        test_join_cases.test_joins_of_pairs_in_a_window(case)
    for case in list(join_cases("pair-cogroup"))[: 2 if scaled(3) == 3 else 1]:
        test_join_cases.test_cogroups_of_pairs_in_a_window(case)
    assert runs[mode] > 1
