"""One slot is killed in the middle of a batch, and what it did counts once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Numbers
from tests.wiring import line
from topo import BasicBolt, KeyedBolt, TopologyBuilder, Tuple
from topo.testing import complete_topology

pytestmark = [pytest.mark.spark, pytest.mark.fault]


class DiesOnce(BasicBolt):
    """A sum that kills its process at one number, the first time it comes."""

    outputs = ("sum",)

    def __init__(self, at: int, mark: Path) -> None:
        self.at, self.mark = at, mark

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.sum = 0

    def execute(self, tup: Tuple) -> None:
        if tup[0] == self.at and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.sum += tup[0]
        self.emit([self.sum])


class KeyedDiesOnce(KeyedBolt):
    """The same with an instance for each of seven keys, whose timers and lives are saved too."""

    outputs = ("key", "what", "sum")

    def __init__(self, at: int, mark: Path) -> None:
        self.at, self.mark = at, mark

    def created(self) -> None:
        self.sum = 0
        self.set_timer("end", after=1e6)  # which comes at the end of the input

    def execute(self, tup: Tuple) -> None:
        if tup.num == self.at and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.sum += tup.num

    def on_timer(self, name: str, at: Any) -> None:
        self.emit([self.key, name, self.sum])


class Sevenths(BasicBolt):
    outputs = ("key", "num")
    stateless = True

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0] % 7, tup[0]])


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_what_instances_of_keys_did_in_a_killed_slot_counts_once(mode: str, tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Numbers(70))
    builder.set_bolt("key", Sevenths(), 2).shuffle_grouping("s")
    bolt = KeyedDiesOnce(35, tmp_path / "died")
    builder.set_bolt("b", bolt, 3).fields_grouping("key", "key")
    conf = {"topology.workers": 2, "topology.mode": mode}
    result = complete_topology(builder.create_topology(), conf=conf, engine="spark")
    assert (tmp_path / "died").exists()
    sums = [[key, "end", sum(range(key, 70, 7))] for key in range(7)]
    assert sorted(result.tuples("b")) == sums
    assert sorted(result.acked["s"]) == list(range(70))


@pytest.mark.parametrize(
    "mode", [pytest.param("micro-batch", marks=pytest.mark.smoke), "real-time"]
)
def test_what_a_killed_slot_did_counts_once(mode: str, tmp_path: Path) -> None:
    topology = line(Numbers(40), DiesOnce(20, tmp_path / "died"))
    conf = {"topology.workers": 2, "topology.mode": mode}
    result = complete_topology(topology, conf=conf, engine="spark")
    assert (tmp_path / "died").exists()
    assert result.tuples("b1")[-1] == [sum(range(40))]
    assert len(result.tuples("b1")) == 40
    assert sorted(result.acked["s"]) == list(range(40))
