"""The cases of keyed components, on the inline engine with several seeds and after restarts.

What a case says of its bolt is in words, which are read for what they ask for: a word that no
reader here knows would be a case that shows nothing, so the texts are compared as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.cases import Case
from tests.parity.areas import Runner, parameters
from tests.property.scale import seeds
from topo import EventTime, FailTuple, InvalidTopologyError, KeyedBolt, TopologyBuilder, Tuple
from topo.testing import FeederSpout, TestCluster


class Counting(KeyedBolt):
    """An instance counts its tuples, and takes the count back when it is removed."""

    outputs = ("key", "n")

    def created(self) -> None:
        self.n = 0

    def execute(self, tup: Tuple) -> None:
        self.n += 1
        self.emit([self.key, self.n])

    def removed(self, why: str) -> None:
        self.emit([self.key, -self.n])


class Announced(Counting):
    def created(self) -> None:
        super().created()
        self.emit([self.key, 0])


class Seeing(KeyedBolt):
    outputs = ("key", "seen", "limit")

    def __init__(self, limit: list[int]) -> None:
        self.limit = limit

    def created(self) -> None:
        self.seen: list[Any] = []

    def execute(self, tup: Tuple) -> None:
        self.seen.append(tup.k)
        self.emit([self.key, list(self.seen), id(self.limit)])


class Forgetting(Counting):
    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        if self.n == 2:
            self.forget()


class Late(KeyedBolt):
    outputs = ("key", "what")

    def execute(self, tup: Tuple) -> None:
        self.set_timer("t", after=5)

    def on_timer(self, name: str, at: Any) -> None:
        self.emit([self.key, "late"])


class LateAndGone(Late):
    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        self.forget()


class InEventTime(KeyedBolt):
    outputs = ("key", "at")
    time = EventTime("ts")

    def execute(self, tup: Tuple) -> None:
        self.set_timer("t", tup.ts + 10)

    def on_timer(self, name: str, at: Any) -> None:
        self.emit([self.key, at])


class Failing(Counting):
    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        if self.n == 2:
            raise FailTuple("two")


_COUNTING = "created(): n = 0; execute: n += 1, emits [key, n]; removed(why): emits [key, -n]"
_LATE = "execute: set_timer('t', after=5)"
BOLTS: dict[str, Callable[[], KeyedBolt]] = {
    _COUNTING: Counting,
    f"{_COUNTING}; created(): emits [key, 0]": Announced,
    "__init__(limit); created(): seen = []": partial(Seeing, [7]),
    f"{_COUNTING}; at n == 2 forget()": Forgetting,
    f"{_LATE}; on_timer('t'): emits [key, 'late']": Late,
    f"{_LATE}; forget()": LateAndGone,
    "execute: set_timer('t', ts + 10); on_timer: emits [key, at]": InEventTime,
    f"{_COUNTING}; at n == 2 raises FailTuple": Failing,
}


class World:
    """A keyed bolt that is fed by hand, and built anew from its saved state now and then."""

    def __init__(self, case: Case, seed: int, *, restarts: bool) -> None:
        settings = case["settings"]
        bolt = BOLTS[settings["bolt"]]()
        if "ttl_secs" in settings:
            bolt.ttl = timedelta(seconds=settings["ttl_secs"])
        fields = ["k", "ts"] if "event time" in settings else ["k"]
        self.feeder = FeederSpout(fields)
        self.cluster = TestCluster(seed)
        self.restarts = restarts
        builder = TopologyBuilder()
        builder.set_spout("s", self.feeder)
        declared = builder.set_bolt("b", bolt, 2)
        if settings.get("grouping") == "shuffle, 2 tasks":
            declared.shuffle_grouping("s")
        else:
            declared.fields_grouping("s", settings["key"])
        self.run = self.cluster.submit_topology("t", builder.create_topology())

    def step(self, step: Case) -> None:
        match step:
            case {"in": values, **more}:
                self.feeder.feed(values, msg_id=more.get("id"))
                self.cluster.advance(0)
            case {"advance": secs}:
                self.cluster.advance(secs)
            case {"out": rows}:
                assert self.run.tuples("b") == rows
            case {"instances": count}:
                assert self.run.stats().components["b"].state_rows == count
            case {"acked": ids}:
                assert sorted(self.feeder.acked) == ids
            case {"failed": ids}:
                assert self.feeder.failed == ids
            case {"seen of": key, "is": values}:
                assert [seen for k, seen, _ in self.run.tuples("b") if k == key][-1] == values
            case {"limit": "the same"}:
                limits = {task for _, _, task in self.run.tuples("b")}
                assert len(limits) <= 2  # one for each task
            case _:
                raise AssertionError(f"nobody knows the step {step}")
        if self.restarts:
            self.run.restart()


def run_keyed(case: Case, seed: int = 0, restarts: bool = False) -> None:
    problem: Case = next((step for step in case["steps"] if "problem" in step), {})
    if problem:
        with pytest.raises(InvalidTopologyError) as caught:
            World(case, seed, restarts=restarts)
        (found,) = caught.value.problems
        assert found.code == problem["problem"]
        assert all(word in f"{found.message} {found.hint}" for word in problem["words"])
        return
    world = World(case, seed, restarts=restarts)
    for step in case["steps"]:
        world.step(step)


RUNNERS: dict[str, Runner] = {"keyed": run_keyed}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("case", parameters(RUNNERS))
def test_keyed_components(case: Case, seed: int, restarts: bool) -> None:
    if restarts and any("limit" in step for step in case["steps"]):
        pytest.skip("a restart makes another object of what all keys share")
    run_keyed(case, seed, restarts)
