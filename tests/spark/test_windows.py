"""Windows on Spark give what the inline engine gives: several slots, levels, parallel sources."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from topo import (
    AfterCount,
    AtWatermark,
    BasicBolt,
    Count,
    EventTime,
    FailTuple,
    PerEvent,
    Session,
    Sliding,
    Spout,
    Sum,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
    WindowedBolt,
)
from topo.testing import complete_topology

pytestmark = pytest.mark.spark

PER_TASK = 600
KEYS = [f"k{number}" for number in range(7)]


class Numbers(Spout):
    """Emits numbers with times that jump back and forth a little."""

    outputs = ("key", "ts", "v")

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.number = 0
        self.index = context.this_task_index

    def next_tuple(self) -> None:
        for _ in range(40):
            if self.number < PER_TASK:
                self.emit([*made(self.index, self.number), self.number], msg_id=self.number)
                self.number += 1

    def is_exhausted(self) -> bool:
        return self.number >= PER_TASK


def made(task: int, number: int) -> tuple[str, int]:
    return KEYS[number * 3 % 7], 50 * number + 37 * (number % 5) + task


class Replayed(Numbers):
    """Emits each number in order, and again as soon as it has failed."""

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        super().open(conf, context, collector)
        self.again: list[int] = []

    def next_tuple(self) -> None:
        number = self.again.pop() if self.again else self.number
        if number < PER_TASK:
            self.emit([KEYS[number % 7], number, number], msg_id=number)
            self.number = max(self.number, number + 1)

    def is_exhausted(self) -> bool:
        return self.number >= PER_TASK and not self.again

    def fail(self, msg_id: Any, reason: str = "") -> None:
        self.again.append(msg_id)


class Fails(BasicBolt):
    """Fails every ninth tuple that it sees, and so none for ever."""

    outputs = ("key", "ts")

    def __init__(self) -> None:
        self.seen = 0

    def execute(self, tup: Tuple) -> None:
        self.seen += 1
        if self.seen % 9 == 4:
            raise FailTuple("not now")
        self.emit([tup.key, tup.ts])


class Keep(BasicBolt):
    outputs = ("key", "start", "end", "n", "sum")

    def execute(self, tup: Tuple) -> None:
        self.emit(list(tup.values))


class Raw(WindowedBolt):
    outputs = ("key", "end", "n", "new", "expired")

    def execute(self, window: Any) -> None:
        counts = [len(window), len(window.new), len(window.expired)]
        self.emit([window.key, window.end, *counts])


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(), 2)
    time = EventTime("ts", lag=timedelta(seconds=1))

    def aggregate(name: str, window: Any, **more: Any) -> None:
        aggregates = {"n": Count(), "sum": Sum("v")}
        bolt = WindowAggregate(
            key="key", window=window, time=time, aggregates=aggregates, late_stream="late", **more
        )
        builder.set_bolt(name, bolt, 3).fields_grouping("numbers", ["key"])

    aggregate("tumbling", Tumbling(timedelta(seconds=1)))
    aggregate("sliding", Sliding(timedelta(seconds=6), timedelta(seconds=2)))
    aggregate("sessions", Session(timedelta(milliseconds=330)))
    aggregate("around", PerEvent(timedelta(milliseconds=400), after=True))
    aggregate("early", Tumbling(timedelta(seconds=5)), trigger=AtWatermark(early=AfterCount(4)))
    totals = WindowAggregate(
        window=Tumbling(timedelta(seconds=5)),
        time=EventTime(),
        aggregates={"windows": Count(), "total": Sum("n")},
    )
    builder.set_bolt("totals", totals).global_grouping("tumbling")
    builder.set_bolt("keep", Keep(), 2).local_or_shuffle_grouping("tumbling")
    builder.set_spout("replayed", Replayed(), 2)
    builder.set_bolt("fails", Fails(), 2).shuffle_grouping("replayed")
    held = WindowAggregate(
        key="key",
        window=Tumbling(20),
        time=EventTime("ts", hold_pending=True),
        aggregates={"n": Count()},
        late_stream="late",
    )
    builder.set_bolt("held", held, 2).fields_grouping("fails", ["key"])
    raw = Raw().with_window(timedelta(seconds=2), timedelta(seconds=1)).with_key("key")
    raw.with_timestamp_field("ts").with_lag(timedelta(seconds=1))
    builder.set_bolt("raw", raw, 2).fields_grouping("numbers", ["key"])
    return builder.create_topology()


@pytest.mark.smoke
def test_spark_gives_what_the_inline_engine_gives() -> None:
    built = topology()
    names = [bolt.id for bolt in built.bolts]
    results = {}
    for engine in ("inline", "spark"):
        done = complete_topology(built, engine=engine)
        # Which messages fail depends on their order, and which are counted does not.
        own = [name for name in names if name not in ("early", "fails")]
        results[engine] = {name: sorted(done.tuples(name)) for name in own}
        # Which tuples make an early pane depends on their order, its size does not.
        early = Counter((row[0], row[1], row[3], row[5]) for row in done.tuples("early"))
        results[engine]["early"] = sorted(early.items())  # type: ignore[arg-type]
        assert sum(len(done.tuples(name, "late")) for name in ("tumbling", "sessions", "held")) == 0
        assert sorted(done.acked["numbers"]) == sorted([*range(PER_TASK)] * 2)
    assert results["spark"] == results["inline"]
    wanted: Counter[tuple[str, int]] = Counter()
    for task in range(2):
        for number in range(PER_TASK):
            key, ts = made(task, number)
            wanted[(key, ts // 1000 * 1000)] += 1
    assert {(row[0], row[1]): row[3] for row in results["spark"]["tumbling"]} == dict(wanted)
    assert results["spark"]["keep"] == results["spark"]["tumbling"]
    assert sum(row[3] for row in results["spark"]["totals"]) == 2 * PER_TASK
    assert sum(row[3] for row in results["spark"]["held"]) == 2 * PER_TASK
