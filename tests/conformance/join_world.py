"""One join case on the inline engine: feeders, the join under test, and what came out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cases import read_cases
from tests.property.scale import seeds
from topo import Bolt, EventTime, TopologyBuilder
from topo.testing import FeederSpout, TestCluster

CASES = read_cases(Path(__file__).parent / "cases" / "joins.jsonl")
SEEDS = seeds(3)
LAG = 1 << 40
"""With this lag no tuple moves the watermark: a case that sets it by hand observes W + LAG."""
BY_HAND = EventTime("ts", lag=LAG, idle=None)

every_seed = pytest.mark.parametrize("seed", SEEDS)


def cases(*kinds: str) -> Iterator[dict[str, Any]]:
    """Yield the cases that must hold, of these kinds."""
    return (case for case in CASES if case["kind"] in kinds and case["topo"] == "must")


def chosen(*kinds: str) -> pytest.MarkDecorator:
    found = list(cases(*kinds))
    assert found
    names = [f"{case['name']} ({case['source'].split()[0]})" for case in found]
    return pytest.mark.parametrize("case", found, ids=names)


class JoinWorld:
    """A running join `j` of feeders `left` and `right`, with key, value and ts."""

    def __init__(self, bolt: Bolt, seed: int, *, alone: bool = False, tasks: int = 1) -> None:
        names = ["left"] if alone else ["left", "right"]
        self.feeders = {name: FeederSpout(["key", "value", "ts"]) for name in names}
        builder = TopologyBuilder()
        declarer = builder.set_bolt("j", bolt, tasks)
        for name, feeder in self.feeders.items():
            builder.set_spout(name, feeder)
            declarer.fields_grouping(name, ["key"])
        self.run = TestCluster(seed=seed).submit_topology("t", builder.create_topology())
        self._taken = {"default": 0, "late": 0}

    def feed(self, side: str, key: Any, value: Any, ts: int) -> None:
        """Feed a row and run it."""
        self.feeders[side].feed([key, value, ts], msg_id=object())
        self.run.settle()

    def watermark(self, watermark: int, *sides: str) -> None:
        """Bring the watermark of some inputs, or of all, to a value."""
        for side in sides or self.feeders:
            self.feeders[side].observe_time(watermark + LAG)
        self.run.settle()

    def rows(self, stream: str = "default") -> list[list[Any]]:
        """Return what came out since the last call."""
        found = self.run.tuples("j", stream)
        start, self._taken[stream] = self._taken[stream], len(found)
        return found[start:]

    def late(self) -> list[list[Any]]:
        return [list(row[0].values) for row in self.rows("late")]

    @property
    def operators(self) -> list[Any]:
        host: Any = vars(self.run)["_level"].host
        return [task._operator for task in host.timed]

    def kept(self, side: str) -> list[int]:
        """Return the times of the rows that a side of an interval join holds."""
        number = ("left", "right").index(side)
        held = [
            one for operator in self.operators for one in operator._rows[number].by_key.values()
        ]
        return sorted(
            entry[0] for one in held for entry in (one if isinstance(one, list) else [one])
        )


def same(found: Sequence[Any], wanted: Sequence[Any], case: Mapping[str, Any]) -> None:
    if case.get("unordered"):
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    else:
        assert list(found) == list(wanted)
