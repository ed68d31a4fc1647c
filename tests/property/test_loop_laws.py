"""A topology with a loop counts each message once, however it is cut, restarted and dealt.

The truth is a loop over a queue, without batches: each number goes round until it is 0. A message
is acked only when its whole tree, over all laps, was executed.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo import BasicBolt, StatefulBasicBolt, TopologyBuilder, Tuple
from topo.runtime.laps import Laps
from topo.testing import FeederSpout, TestCluster

GROUPINGS = ("shuffle", "fields", "global")


class Step(StatefulBasicBolt):
    """Counts each pair of message and number, and says which successors it has."""

    outputs = ("m", "n", "count")

    def execute(self, tup: Tuple) -> None:
        pair = (tup.m, tup.n)
        self.state[pair] = self.state.get(pair, 0) + 1
        self.emit([tup.m, tup.n, self.state[pair]])


class Halve(BasicBolt):
    """Emits n - 1 and, of even numbers, n / 2: on two streams, each of which may go back."""

    outputs = {"less": ("m", "n"), "half": ("m", "n")}
    stateless = True

    def execute(self, tup: Tuple) -> None:
        for stream, n in successors(tup.n):
            self.emit([tup.m, n], stream=stream)


def successors(n: int) -> list[tuple[str, int]]:
    if n <= 0:
        return []
    return [("less", n - 1), *([("half", n // 2)] if n % 2 == 0 else [])]


def truth(messages: list[int]) -> Counter[tuple[int, int]]:
    """Return how often each number comes of each message, by a queue without batches."""
    found: Counter[tuple[int, int]] = Counter()
    queue = deque(enumerate(messages))
    while queue:
        m, n = queue.popleft()
        found[m, n] += 1
        queue.extend((m, less) for _, less in successors(n))
    return found


def size(n: int) -> int:
    return 1 + sum(size(less) for _, less in successors(n))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), st.integers(0, 7)),
        st.tuples(st.just("step"), st.integers(1, 3)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=14,
)


@given(
    steps=steps,
    tasks=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    groupings=st.tuples(*[st.sampled_from(GROUPINGS)] * 3),
    seed=st.integers(0, 5),
)
@examples(120)
def test_each_message_is_counted_once_over_all_laps(
    steps: Any, tasks: tuple[int, int], groupings: tuple[str, str, str], seed: int
) -> None:
    feeder = FeederSpout(["m", "n"])
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    step = builder.set_bolt("step", Step(), tasks[0]).fields_grouping("s", "m")
    halve = builder.set_bolt("halve", Halve(), tasks[1])
    read(halve, groupings[0], "step", "default", loop=False)
    for stream in ("less", "half"):
        step.fields_grouping("halve", "m", stream=stream, loop=True)
    executed: Counter[int] = Counter()
    fed: list[int] = []
    with TestCluster(seed) as cluster:
        run = cluster.submit_topology("laps", builder.create_topology())

        def check_acks() -> None:
            executed.clear()
            executed.update(m for m, _, _ in run.tuples("step"))
            for m in feeder.acked:
                assert executed[m] == size(fed[m]), "acked before its last lap"

        for kind, number in steps:
            if kind == "feed":
                feeder.feed([len(fed), number], msg_id=len(fed))
                fed.append(number)
            elif kind == "step":
                run.step(number)
            else:
                run.restart()
            check_acks()
        run.settle()
        rows = Counter((m, n) for m, n, _ in run.tuples("step"))
        assert rows == truth(fed)
        last = {(m, n): count for m, n, count in run.tuples("step")}
        assert last == dict(rows), "the counts are those of the saved state"
        assert sorted(feeder.acked) == list(range(len(fed)))
        assert run.stats().components["halve"].looping == 0


def read(declared: Any, kind: str, component: str, stream: str, *, loop: bool) -> None:
    if kind == "fields":
        declared.fields_grouping(component, "n", stream=stream, loop=loop)
    else:
        getattr(declared, f"{kind}_grouping")(component, stream=stream, loop=loop)


def test_a_restart_would_lose_what_goes_round_if_it_were_not_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Laps, "save", lambda self, changes: None)
    feeder = FeederSpout(["m", "n"])
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    step = builder.set_bolt("step", Step()).shuffle_grouping("s")
    step.shuffle_grouping("halve", stream="less", loop=True)
    builder.set_bolt("halve", Halve()).shuffle_grouping("step")
    with TestCluster() as cluster:
        run = cluster.submit_topology("laps", builder.create_topology())
        feeder.feed([0, 5], msg_id=0)
        run.step()
        run.restart()
        run.settle()
        assert [n for _, n, _ in run.tuples("step")] == [5]
        assert feeder.acked == []
