"""Load shedding: what is dropped, what never is, and how the share follows the load."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from topo import (
    Bolt,
    EventTime,
    FromList,
    InvalidTopologyError,
    Spout,
    Stream,
    TopologyBuilder,
    Tuple,
)
from topo.runtime.shedding import Shedder
from topo.testing import FeederSpout, TestCluster
from topo.topology.shedding import Shedding

AFTER = timedelta(seconds=5)
FIELDS = ("ts", "user", "value", "w")


def shedder(**options: Any) -> Shedder:
    rules = {"age": "ts", "keep": None, "sample_by": (), "least": 0.05, "weight": None, **options}
    return Shedder(Shedding("default", AFTER, **rules), FIELDS, "spout 's' task 1", lambda _: [])


def rows(count: int, age: float, now: float, value: Any = float) -> list[Any]:
    """Return columns of so many rows, whose tuples are of an age."""
    numbers = list(range(count))
    times = [int(1000 * (now - age))] * count
    return [times, [f"u{n % 97}" for n in numbers], [value(n) for n in numbers], [1.0] * count]


def admitted(shed: Shedder, columns: list[Any]) -> list[int]:
    chosen, _ = shed.admit(columns, len(columns[0]), [0] * len(columns[0]))
    return list(range(len(columns[0]))) if chosen is None else chosen.tolist()


def overload(shed: Shedder, *, until: float = 1.0) -> float:
    """Let tuples grow old by half a second a second; return the time at which that ends."""
    now, age = 100.0, 0.0
    while shed.share >= until and now < 200:
        shed.begin(now, 0.0)
        admitted(shed, rows(100, age, now))
        now, age = now + 1, age + 0.5
    return now


def test_nothing_is_dropped_while_tuples_are_young() -> None:
    shed = shedder()
    for second in range(100):
        shed.begin(100.0 + second, 0.0)
        assert len(admitted(shed, rows(500, 4.9, 100.0 + second))) == 500
    assert shed.share == 1.0


def test_the_share_follows_what_the_topology_manages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "topo.shedding")
    shed = shedder()
    now = overload(shed)
    assert 0.4 <= shed.share <= 0.6
    assert 0.4 <= len(admitted(shed, rows(10_000, 5.0, now))) / 10_000 <= 0.6
    assert "sheds" in caplog.text
    for second in range(20):
        shed.begin(now + second, 0.0)
        admitted(shed, rows(100, 0.1, now + second))
    assert shed.share == 1.0
    assert "sheds no more" in caplog.text


def test_the_share_never_falls_below_the_least() -> None:
    shed = shedder(least=0.2)
    for second in range(50):
        shed.begin(100.0 + second, 0.0)
        admitted(shed, rows(100, 100.0 + 10 * second, 100.0 + second))
    assert shed.share == 0.2


def test_a_source_that_falls_silent_sheds_no_more() -> None:
    shed = shedder()
    now = overload(shed)
    for second in range(30):
        shed.begin(now + second, 0.0)
    assert shed.share == 1.0


def test_a_few_stragglers_are_no_overload() -> None:
    shed = shedder()
    for second in range(20):
        now = 100.0 + second
        shed.begin(now, 0.0)
        columns = rows(100, 0.5, now)
        columns[0][:5] = [0] * 5
        admitted(shed, columns)
    assert shed.share == 1.0


def test_without_a_time_the_age_is_of_pending_messages() -> None:
    shed = shedder(age=None)
    for second in range(20):
        shed.begin(100.0 + second, float(second))
    assert shed.share < 1.0


@pytest.mark.parametrize("options", [{"sample_by": ("user",)}, {"keep": "value"}, {}])
def test_a_smaller_share_keeps_a_subset(options: dict[str, Any]) -> None:
    columns = rows(5_000, 0.0, 100.0)
    before: set[int] = set()
    for share in (0.1, 0.3, 0.6, 0.9):
        shed = shedder(**options)
        admitted(shed, columns)
        shed.restore({"share": share, "number": 0, "failed": []})
        shed._set_threshold()
        chosen = set(admitted(shed, columns))
        assert before <= chosen
        assert abs(len(chosen) / 5_000 - share) < 0.1
        before = chosen


def test_whole_keys_are_kept_or_dropped_in_every_task() -> None:
    columns = rows(5_000, 0.0, 100.0)
    kept = []
    for _ in range(2):
        shed = shedder(sample_by=("user",))
        shed.restore({"share": 0.4, "number": 17, "failed": []})
        users = [columns[1][place] for place in admitted(shed, columns)]
        counts = Counter(users)
        assert all(counts[user] == columns[1].count(user) for user in counts)
        kept.append(set(users))
    assert kept[0] == kept[1]


def test_the_highest_values_are_kept_and_equal_ones_by_sample() -> None:
    for value, least in ((float, 0.95), (lambda n: n % 3, 0.6)):
        shed = shedder(keep="value")
        columns = rows(10_000, 0.0, 100.0, value)
        admitted(shed, columns)
        shed.restore({"share": 0.5, "number": 0, "failed": []})
        shed._set_threshold()
        chosen = [columns[2][place] for place in admitted(shed, columns)]
        best = sorted(columns[2], reverse=True)[: len(chosen)]
        assert sum(chosen) >= least * sum(best)
        assert abs(len(chosen) - 5_000) < 300


def test_what_is_no_number_is_dropped_first() -> None:
    shed = shedder(keep=lambda values: values[2])
    columns = rows(1_000, 0.0, 100.0, lambda n: None if n % 2 else "7")
    admitted(shed, columns)
    shed.restore({"share": 0.5, "number": 0, "failed": []})
    shed._set_threshold()
    assert {columns[2][place] for place in admitted(shed, columns)} == {"7"}


# -- in a topology --------------------------------------------------------------------------------


class Noting(Bolt):
    outputs = ("n", "w")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n, tup.w], anchors=tup)
        self.ack(tup)


class Fails(Bolt):
    """Fails each tuple the first time."""

    outputs = ("n",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.failed: set[Any] = set()

    def execute(self, tup: Tuple) -> None:
        if tup.n in self.failed:
            self.emit([tup.n], anchors=tup)
            self.ack(tup)
        else:
            self.failed.add(tup.n)
            self.fail(tup)


def overloaded(
    cluster: TestCluster, bolt: Bolt, tasks: int = 2, **options: Any
) -> tuple[Any, FeederSpout]:
    """Run a topology until its spout sheds."""
    feeder = FeederSpout(["n", "ts", "w"])
    builder = TopologyBuilder()
    builder.set_spout("s", feeder).shed(after=AFTER, age="ts", **options)
    builder.set_bolt("b", bolt, tasks).shuffle_grouping("s")
    run = cluster.submit_topology("t", builder.create_topology())
    for second in range(16):
        feeder.feed([f"old {second}", int(1000 * (cluster.now - 0.8 * second)), 0], msg_id=second)
        cluster.advance(1)
    return run, feeder


def test_dropped_messages_are_acked_and_counted_and_the_kept_weigh_more() -> None:
    with TestCluster() as cluster:
        run, feeder = overloaded(cluster, Noting(), weight="w")
        figures = run.stats().components["s"]
        share = figures.gauges['kept_share{stream="default"}']
        assert 0.05 <= share < 1.0
        before = len(run.tuples("b"))
        for number in range(400):
            feeder.feed([number, int(1000 * (cluster.now - 6)), 0], msg_id=("m", number))
        run.settle()
        outcome = run.tuples("b")[before:]
        assert len(outcome) == len(run.tuples("s")) - before
        assert 0 < len(outcome) < 400
        assert {w for _, w in outcome} == {1 / share}
        assert {msg_id for msg_id in feeder.acked if isinstance(msg_id, tuple)} == {
            ("m", number) for number in range(400)
        }
        counters = run.stats().components["s"].counters
        assert counters['shed{stream="default"}'] >= 400 - len(outcome)
        run.restart()
        run.settle()
        assert run.stats().components["s"].gauges['kept_share{stream="default"}'] == share


def test_what_is_emitted_again_after_a_failure_is_not_dropped() -> None:
    with TestCluster() as cluster:
        run, feeder = overloaded(cluster, Fails(), tasks=1, least=0.05)
        feeder.failed.clear()
        for number in range(200):
            feeder.feed([number, int(1000 * (cluster.now - 60)), 0], msg_id=("m", number))
        run.settle()
        failed = [msg_id for msg_id in feeder.failed if isinstance(msg_id, tuple)]
        assert 0 < len(failed) < 200
        for msg_id in failed:
            feeder.feed([msg_id[1], int(1000 * (cluster.now - 60)), 0], msg_id=msg_id)
        run.settle()
        assert sorted(n for (n,) in run.tuples("b") if isinstance(n, int)) == sorted(
            number for _, number in failed
        )


class Direct(Spout):
    outputs = {"default": ("n",), "d": Stream("n", direct=True)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"age": "tss"}, "did you mean 'ts'"),
        ({"keep": "x"}, "keep='x'"),
        ({"sample_by": ["n", "y"]}, "sample_by='y'"),
        ({"weight": "w"}, "weight='w'"),
        ({"after": 5}, "after=5) is no time"),
        ({"least": 0}, "least=0) is no share"),
        ({"least": True}, "is no share"),
        ({"keep": 3}, "no field and no function"),
        ({"keep": "n", "sample_by": "n"}, "exclude each other"),
        ({"stream": "other"}, "does not declare"),
    ],
)
def test_a_declaration_that_cannot_be_is_a_problem(options: dict[str, Any], words: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", FromList([[1, 2]], ["n", "ts"])).shed(**{"after": AFTER, **options})
    with pytest.raises(InvalidTopologyError) as caught:
        builder.create_topology()
    (problem,) = caught.value.problems
    assert problem.code == "shed"
    assert words in f"{problem.message} {problem.hint}"


def test_a_direct_stream_is_not_shed() -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", Direct()).shed(after=AFTER, stream="d")
    with pytest.raises(InvalidTopologyError, match="a direct one"):
        builder.create_topology()


def test_the_time_may_have_another_unit() -> None:
    rules = {"keep": None, "sample_by": (), "least": 0.05, "weight": None}
    age = EventTime("ts", unit="s")
    shed = Shedder(Shedding("default", AFTER, age, **rules), FIELDS, "s", lambda _: [])  # type: ignore[arg-type]
    for second in range(20):
        now = 100.0 + second
        shed.begin(now, 0.0)
        shed.admit([[now - second] * 10, ["u"] * 10, [1] * 10, [1] * 10], 10, [0] * 10)
    assert shed.share < 1.0
