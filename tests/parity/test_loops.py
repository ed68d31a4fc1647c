"""The cases of loops, on the inline engine with several seeds, cuts into batches and restarts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import Case
from tests.parity.areas import Runner, parameters
from tests.parity.loop_doubles import TOPOLOGIES, Same
from tests.property.scale import seeds
from topo import InvalidTopologyError, Spout, TopologyBuilder
from topo.engine.inline.realtime import RealTimeRun
from topo.errors import TopoError
from topo.running import ACTIVE
from topo.testing import FeederSpout, TestCluster
from topo.testing.feeder import EndingFeeder


class Numbers(Spout):
    outputs = ("n",)

    def next_tuple(self) -> None:
        pass


def ring_of(reads: dict[str, list[str]], marked: list[list[str]]) -> TopologyBuilder:
    builder = TopologyBuilder()
    names = {name for read in reads.values() for name in read} - set(reads)
    for spout in sorted(names):
        builder.set_spout(spout, Numbers())
    for name, read in reads.items():
        declared = builder.set_bolt(name, Same())
        for producer in read:
            declared.shuffle_grouping(producer, loop=[producer, name] in marked)
    return builder


def run_cycle_found(case: Case, seed: int = 0, restarts: bool = False) -> None:
    reads, expect = case["settings"]["reads"], case["expect"]
    if not expect["problem cycle"]:
        ring_of(reads, []).create_topology()
    else:
        with pytest.raises(InvalidTopologyError) as caught:
            ring_of(reads, []).create_topology()
        assert {problem.code for problem in caught.value.problems} == {"cycle"}
        assert all("loop=True" in problem.hint for problem in caught.value.problems)
    for marked in expect["any of these sets of [from, to], marked loop=True, makes it valid"]:
        ring_of(reads, marked).create_topology()
        with pytest.raises(InvalidTopologyError):  # none of the marks is one too many
            ring_of(reads, marked[1:]).create_topology()


class World:
    """A topology with a loop, fed by hand, in batches of any size."""

    def __init__(self, case: Case, seed: int) -> None:
        self.settings = settings = case["settings"]
        fields, make = TOPOLOGIES[settings["topology"]]
        self.feeder = EndingFeeder(fields)
        self.topology = make(self.feeder)
        self.cluster = TestCluster(seed)
        conf = {"topology.loop.max.mb": 1} if case["expect"].get("error") else {}
        self.run: Any = self.cluster.submit_topology("t", self.topology, conf)
        for values in settings.get("feed", []):
            if fields == ("n",):
                self.feeder.feed(values[:1], msg_id=values[1])
            else:
                self.feeder.feed(values, msg_id=tuple(values))

    def finish(self, restart_each: bool = False) -> None:
        """Run until nothing moves; with restarts, after each batch."""
        while restart_each and self.run.step():
            self.run.restart()
        self.run.settle(10_000_000)


def run_loop(case: Case, seed: int = 0, restarts: bool = False) -> None:
    settings, expect = case["settings"], case["expect"]
    if "problem" in expect:
        fields, make = TOPOLOGIES[settings["topology"]]
        with pytest.raises(InvalidTopologyError) as caught:
            make(FeederSpout(fields))
        (problem,) = caught.value.problems
        assert problem.code == expect["problem"]
        assert all(word in problem.message for word in expect["words"])
        return
    if settings.get("finite"):
        run_endless(case)
        return
    world = World(case, seed)
    if "error" in expect:
        world.feeder.feed(["a long one" * 100])  # the sooner it is too much
        with pytest.raises(TopoError) as failed:
            world.finish()
        assert failed.value.code == expect["error"]
        assert all(repr(word) in failed.value.message for word in expect["words"])
        return
    if settings.get("batches"):
        check_batches(world, expect)
        return
    if "executions" in expect:
        for n in range(20_000):
            world.feeder.feed([f"key {n % 100}", n])
        world.finish(restarts)
        stats = world.run.stats().components
        assert stats["a"].executed + stats["b"].executed == expect["executions"]
        assert stats["a"].looping == stats["b"].looping == 0
        return
    if "restart after" in settings:
        for _ in range(settings["restart after"]):
            world.run.step()
        assert world.run.looping == 1
        world.run.restart()
    elif settings.get("kill"):
        # The end of all processes; tests/fault has it with real ones.
        for _ in range(300 + seed):
            world.run.step()
        world.run.restart()
        while not restarts and world.run.step():
            pass  # to settle is to ask the feeder a thousand times a lap
    world.finish(restarts)
    check(world, case)


def check(world: World, case: Case) -> None:
    for name, value in case["expect"].items():
        rows = world.run.tuples("a")
        match name, value:
            case "out", "1000 down to 0, each once":
                assert rows == [[n] for n in range(1000, -1, -1)]
            case "out", list():
                assert rows == [[n] for n in value]
            case "acked", list():
                assert world.feeder.acked == value
            case "failed", dict():
                reasons = {str(key): text for key, text in world.feeder.reasons.items()}
                assert {key: _without_task(text) for key, text in reasons.items()} == value
            case "sum", int():
                assert rows[-1][1] == value
            case "each lap", _:
                laps = {lap: [n for _, n, of in rows if of == lap] for lap in (1, 2, 3)}
                assert laps[1] == laps[2] == laps[3] == list(range(20))
            case _:
                raise AssertionError(f"nobody knows the expectation {name}")


def _without_task(reason: str) -> str:
    before, _, after = reason.partition(" task ")
    return f"{before} task N:{after.partition(':')[2]}"


def check_batches(world: World, expect: Case) -> None:
    assert expect == {"batches of the executions": "strictly growing"}
    seen = []
    while world.run.step():
        seen.append([n for (n,) in world.run.tuples("a")])
    assert seen[:4] == [[3], [3, 2], [3, 2, 1], [3, 2, 1, 0]]


def run_endless(case: Case) -> None:
    fields, make = TOPOLOGIES[case["settings"]["topology"]]
    feeder = EndingFeeder(fields)
    for values in case["settings"]["feed"]:
        feeder.feed(values[:1], msg_id=values[1])
    feeder.end()
    run: RealTimeRun = RealTimeRun("t", make(feeder), {}).start()
    try:
        with pytest.raises(TimeoutError) as caught:
            run.await_completion(0.3)
        assert run.status == case["expect"]["status"] == ACTIVE
        for text in (run.reason, str(caught.value)):
            assert all(word in text for word in case["expect"]["reason has"])
    finally:
        run.stop()


RUNNERS: dict[str, Runner] = {"cycle-found": run_cycle_found, "loop": run_loop}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("case", parameters(RUNNERS))
def test_loops(case: Case, seed: int, restarts: bool) -> None:
    if restarts and not {"feed", "batches"} & set(case["settings"]):
        pytest.skip("nothing is restarted here")
    RUNNERS[case["kind"]](case, seed, restarts)  # type: ignore[call-arg]
