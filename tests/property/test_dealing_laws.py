"""The law of dealing: a topology computes the same whatever numbers of tasks its bolts go through.

Random sequences of rows, batches, restarts and other numbers of tasks run over each kind of state
that is dealt. Each bolt numbers the tuples of a key, so that one that goes to another task than its
state shows at once; the sums at the end show what is lost or doubled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from tests.property.scale import scaled, seeds
from topo import (
    AfterCount,
    AtWatermark,
    BasicBolt,
    EventTime,
    KeyedBolt,
    Session,
    Sliding,
    StatefulBasicBolt,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
)
from topo import Count as CountOf
from topo.runtime import dealing
from topo.testing import FeederSpout, TestCluster

KEYS = [f"k{number}" for number in range(60)]
SHARES = (0, 1, 2.0, "three")


class Pairs(StatefulBasicBolt):
    """Keyed state under the two fields of the grouping."""

    outputs = ("key", "n")

    def execute(self, tup: Tuple) -> None:
        key = (tup.key, tup.share)
        self.state[key] = self.state.get(key, 0) + 1
        self.emit([key, self.state[key]])


class Marked(StatefulBolt):
    """State under other keys, a keyed attribute, and one that is made anew."""

    outputs = ("key", "n")
    keyed = ("sums",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.sums: dict[str, int] = {}

    def input_key(self, key: Any) -> Any:
        return key.removeprefix("of ")

    def execute(self, tup: Tuple) -> None:
        mark = f"of {tup.key}"
        self.state[mark] = self.state.get(mark, 0) + 1
        self.sums[tup.key] = self.sums.get(tup.key, 0) + 1
        assert self.sums[tup.key] == self.state[mark]
        self.emit([tup.key, self.sums[tup.key]], anchors=tup)
        self.ack(tup)


class Total(BasicBolt):
    """A total of a task, which nothing but `redistribute` can deal."""

    outputs = ("n",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.total = 0

    @classmethod
    def redistribute(cls, states: list[dict[str, Any]], tasks: int) -> list[dict[str, Any]]:
        whole = sum(state.get("total", 0) for state in states)
        return [{"total": whole}, *({"total": 0} for _ in range(tasks - 1))]

    def execute(self, tup: Tuple) -> None:
        self.total += 1
        self.emit([self.total])


class Mine(KeyedBolt):
    """An instance for each key."""

    outputs = ("key", "n")

    def created(self) -> None:
        self.n = 0

    def execute(self, tup: Tuple) -> None:
        self.n += 1
        self.emit([tup.key, self.n])


def topology(feeder: FeederSpout) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    builder.set_bolt("pairs", Pairs(), 2).fields_grouping("s", ["key", "share"])
    builder.set_bolt("marked", Marked(), 3).fields_grouping("s", "key")
    builder.set_bolt("mine", Mine(), 1).fields_grouping("s", "key")
    builder.set_bolt("total", Total(), 2).shuffle_grouping("s")
    builder.set_bolt("plain", Plain(), 2).shuffle_grouping("s")
    panes = WindowAggregate(
        key="key", window=Tumbling(40), time=EventTime("at"), aggregates={"n": CountOf()}
    )
    builder.set_bolt("panes", panes, 2).fields_grouping("s", "key")
    for name, (window, more) in OTHERS.items():
        others = WindowAggregate(
            key="key", window=window, time=EventTime("at"), aggregates={"n": CountOf()}, **more
        )
        builder.set_bolt(name, others, 2).fields_grouping("s", "key")
    behind = WindowAggregate(  # its watermark is that of tasks which come and go
        key="key", window=Tumbling(80), time=EventTime("end"), aggregates={"n": CountOf()}
    )
    builder.set_bolt("behind", behind, 2).fields_grouping("panes", "key")
    return builder.create_topology()


class Plain(BasicBolt):
    outputs = ("key",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.key])


OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sliding": (Sliding(30, 10), {}),
    "sessions": (Session(45), {}),
    "early": (Tumbling(80), {"trigger": AtWatermark(early=AfterCount(3)), "mode": "retract"}),
    "often": (Session(45), {"trigger": AtWatermark(early=AfterCount(2))}),
}
"""Windows whose results are compared with those of a run in which nothing but batches happens."""
BOLTS = ("pairs", "marked", "mine", "total", "plain", "panes", "behind", *OTHERS)


def run_of(seed: int, steps: int) -> tuple[list[tuple[Any, ...]], Any]:
    """Run a random sequence; return the rows that went in, and the run."""
    random = Random(seed)
    feeder, plain = (FeederSpout(["key", "share", "at"]) for _ in range(2))
    run: Any = TestCluster(seed).submit_topology("t", topology(feeder))
    other = TestCluster(seed).submit_topology("t", topology(plain))
    rows: list[tuple[Any, ...]] = []

    def feed(keys: Sequence[str]) -> None:
        for key in keys:
            rows.append((key, random.choice(SHARES), len(rows)))
            feeder.feed(list(rows[-1]), msg_id=len(rows))
            plain.feed(list(rows[-1]), msg_id=len(rows))
        run.settle()
        other.settle()

    feed(KEYS)  # keys enough to prove what they are
    for _ in range(steps):
        match random.randrange(4):
            case 0:
                run.restart()
            case 1:
                now = {name: len(run.layout.tasks_of(name)) for name in BOLTS}
                if now["pairs"] == 1:  # where all keys lie proves nothing, and its class says none
                    del now["pairs"]
                some = random.sample(sorted(now), random.randint(1, 3))
                wanted = {name: random.randint(1, 5) for name in some}
                wanted = {name: count for name, count in wanted.items() if count != now[name]}
                if wanted:
                    run.rebalance(wanted)
            case _:
                feed(random.choices(KEYS, k=random.randint(1, 30)))
    feed(KEYS)
    for name in ("behind", *OTHERS):
        results, expected = (Counter(map(tuple, each.tuples(name))) for each in (run, other))
        assert results == expected, name
        assert results, name
    return rows, run


def check(rows: list[tuple[Any, ...]], run: Any) -> None:
    numbers: dict[str, list[Any]] = {
        "pairs": [(key, share) for key, share, _ in rows],
        "marked": [key for key, _, _ in rows],
        "mine": [key for key, _, _ in rows],
    }
    for name, keys in numbers.items():
        wanted = Counter[Any]((key, n + 1) for key, c in Counter(keys).items() for n in range(c))
        assert Counter(map(tuple, run.tuples(name))) == wanted, name
    assert Counter(map(tuple, run.tuples("plain"))) == Counter((key,) for key, _, _ in rows)
    stats = run.stats().components["total"]
    assert stats.executed == len(rows), "figures go on, though the tasks are others"
    highest = (len(rows) - 1) // 40 * 40
    windows = Counter((key, at // 40 * 40) for key, _, at in rows if at < highest)
    reported = {(key, start): n for key, start, _, n in run.tuples("panes")}
    assert len(reported) == len(run.tuples("panes")), "no window is reported twice"
    assert reported == windows
    assert run.pending == 0
    assert not run.failed.get("s")


@pytest.mark.parametrize("seed", seeds(15))
def test_results_do_not_depend_on_the_numbers_of_tasks(seed: int) -> None:
    rows, run = run_of(seed, scaled(40, least=12))
    check(rows, run)


def test_the_law_notices_state_that_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    right = dealing.places_of

    def wrong(columns: list[list[Any]], tasks: int) -> list[int]:
        return [(place + (tasks == 5)) % tasks for place in right(columns, tasks)]

    monkeypatch.setattr(dealing, "places_of", wrong)
    feeder = FeederSpout(["key", "share", "at"])
    run: Any = TestCluster().submit_topology("t", topology(feeder))
    rows = [(key, 0, at) for at, key in enumerate(KEYS)]
    for row in rows:
        feeder.feed(list(row), msg_id=row)
    run.settle()
    run.rebalance({"mine": 5})
    for row in rows:
        feeder.feed(list(row), msg_id=row)
    run.settle()
    with pytest.raises(AssertionError, match="mine"):
        check(rows + rows, run)
