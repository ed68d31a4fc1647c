"""Topologies under simulated time beside servers that live in real time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, ClassVar

from tests.wiring import line
from topo import BasicBolt, Bolt, Spout, StatefulBasicBolt, Topology, Tuple, Unavailable
from topo.engine.inline.run import InlineRun
from topo.testing import TestCluster
from topo.testing.cluster import SteppedRun


def moved_until(cluster: TestCluster, condition: Callable[[], Any], secs: float = 0.01) -> None:
    """Move the topologies until the condition holds; the test's time-out ends it otherwise."""
    pause = threading.Event()
    while not condition():
        cluster.advance(secs)
        pause.wait(0.01)


def ticking(topology: Topology, conf: Mapping[str, Any] | None = None) -> InlineRun:
    """Return a run of a topology, unrecorded, under a clock that moves whenever it is looked at."""
    clock: Iterator[float] = iter(range(10_000))
    return InlineRun("t", topology, conf or {}, now=lambda: next(clock), strict=False, record=False)


def counters(run: SteppedRun, component: str = "s") -> Any:
    return run.stats().components[component].counters


class Keeps(BasicBolt):
    """Takes what it gets."""

    def execute(self, tup: Tuple) -> None:
        pass


class Told(Bolt):
    """Fails what the test says, as often as it says."""

    fails: ClassVar[dict[Any, int]] = {}
    place: ClassVar[int] = 0
    """The field by which it knows a tuple."""

    def execute(self, tup: Tuple) -> None:
        left = self.fails.get(tup[self.place], 0)
        if left:
            self.fails[tup[self.place]] = left - 1
            self.fail(tup, "as told")
        else:
            self.ack(tup)


class Collects(StatefulBasicBolt):
    """Counts each first value in state; rolls some batches back, before and after the commit."""

    counts: ClassVar[dict[Any, int]] = {}
    rolls_back: ClassVar[bool] = False
    place: ClassVar[int] = 0

    def execute(self, tup: Tuple) -> None:
        value = tup[self.place]
        self.state[value] = self.state.get(value, 0) + 1

    def pre_commit(self, batch_id: int) -> None:
        if self.rolls_back and batch_id % 3 == 1 and not int(self.context.now()) % 2:
            raise Unavailable("now", after_secs=1)

    def committed(self, batch_id: int) -> None:
        self.counts.clear()
        self.counts.update(self.state.raw())
        if self.rolls_back and batch_id % 3 == 2 and not int(self.context.now()) % 2:
            raise Unavailable("now", after_secs=1)


class Once(Spout):
    """Counts up, and never emits a number again, not even when its batch is rolled back."""

    outputs = ("number", "name")
    given: ClassVar[list[int]] = []
    most: ClassVar[int] = 60

    def next_tuple(self) -> None:
        if not self.is_exhausted():
            self.given.append(len(self.given))
            self.emit([self.given[-1], f"n{self.given[-1]}"])

    def is_exhausted(self) -> bool:
        return len(self.given) >= self.most


class RollsBack:
    """A sink that writes, and then fails the batch at random, before the commit or after it."""

    random: ClassVar[Random] = Random(0)
    oracle: ClassVar[list[int]] = []
    """The numbers of committed batches."""
    state: Any

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)  # type: ignore[misc]
        self.state["oracle"] = [*self.state.get("oracle", []), tup[0]]

    def pre_commit(self, batch_id: int) -> None:
        super().pre_commit(batch_id)  # type: ignore[misc]
        self.may_fail()

    def committed(self, batch_id: int) -> None:
        self.oracle[:] = self.state.get("oracle", [])
        super().committed(batch_id)  # type: ignore[misc]
        self.may_fail()

    def may_fail(self) -> None:
        if self.random.random() < 0.25:
            raise Unavailable("now", after_secs=0)


def committed_numbers(sink: Any, seed: int) -> list[int]:
    """Run `Once` into a sink that `RollsBack`; return the numbers that were committed."""
    Once.given.clear()
    RollsBack.oracle.clear()
    RollsBack.random.seed(seed)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Once(), sink))
        while run.status in ("ACTIVE", "STALLED"):
            run.step()
    assert 0 < len(RollsBack.oracle) < Once.most
    return list(RollsBack.oracle)
