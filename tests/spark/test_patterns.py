"""Patterns on Spark give what the inline engine gives: several slots, levels, parallel sources."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from topo import EventTime, Pattern, PatternBolt, Spout, Topology, TopologyBuilder
from topo.config import layers
from topo.patterns import any_order, either
from topo.streams import StreamBuilder
from topo.testing import complete_topology

pytestmark = pytest.mark.spark

PER_TASK = 240
SECOND = timedelta(seconds=1)
TIME = EventTime("ts", lag=SECOND)
KINDS = "abcadbbcda"


class Steps(Spout):
    """Emits events with times that jump back and forth a little; no two have one time."""

    outputs = ("key", "ts", "kind", "n")

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.number = 0
        self.index = context.this_task_index

    def next_tuple(self) -> None:
        for _ in range(30):
            if self.number < PER_TASK:
                n = self.number
                ts = 100 * n + 74 * (n % 5) + self.index
                self.emit([f"k{n * 7 % 11}", ts, KINDS[(n + n // 11) % 10], n % 7], msg_id=n)
                self.number += 1

    def is_exhausted(self) -> bool:
        return self.number >= PER_TASK


A = Pattern("a", "kind == 'a'")
PATTERNS = {
    "pairs": A.followed_by("b", "kind == 'b'").within(3 * SECOND),
    "any": A.followed_by_any("b", "kind == 'b' and n >= a.n").within(3 * SECOND),
    "strict": A.next("b", "kind == 'b'", times="+", inner="strict")
    .within(5 * SECOND)
    .skip("past_last"),
    "greedy": A.followed_by("b", "kind == 'b'", times="+", greedy=True)
    .followed_by("c", "kind == 'c' and n <= sum(b.n)")
    .within(9 * SECOND)
    .skip("past_last"),
    "negated": A.not_followed_by("n", "kind == 'd'").followed_by("c", "kind == 'c'").within(SECOND),
    "absent": A.not_followed_by("n", "kind == 'b'").within(2 * SECOND),
    "groups": Pattern(A.followed_by("b", "kind == 'b'"), times=2)
    .followed_by("c", lambda e, m: e.kind == "c" and e.n != m["a"][0].n)
    .within(9 * SECOND),
    "either": Pattern(either(A, Pattern("b", "kind == 'b'")))
    .next("c", "kind == 'c'")
    .within(SECOND),
    "orders": Pattern(any_order(A, Pattern("b", "kind == 'b'"), Pattern("c", "kind == 'c'")))
    .within(3 * SECOND)
    .skip("to_next"),
}


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("steps", Steps(), 2)
    for name, pattern in PATTERNS.items():
        counts = {part: f"count({part})" for part in pattern.names}
        bolt = PatternBolt(
            pattern, key="key", time=TIME, timed_out_stream="out",
            select={"key": "key", "start": "start", "end": "end", **counts},
        )  # fmt: skip
        builder.set_bolt(name, bolt, 3).fields_grouping("steps", ["key"])
    return builder.create_topology()


@pytest.fixture
def real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {**layers.DEFAULTS.values, "topology.mode": "real-time"}
    monkeypatch.setattr(layers, "DEFAULTS", layers.Layer("default", defaults))


def check_patterns() -> None:
    inline = complete_topology(topology())
    on_spark = complete_topology(topology(), engine="spark")
    for name in PATTERNS:
        for stream in ("default", "out"):
            rows = sorted(map(tuple, on_spark.tuples(name, stream)))
            assert rows == sorted(map(tuple, inline.tuples(name, stream))), (name, stream)
        assert inline.tuples(name), name


def test_patterns_on_spark() -> None:
    check_patterns()


@pytest.mark.usefixtures("real_time")
def test_patterns_on_spark_in_real_time() -> None:
    check_patterns()


def test_patterns_of_streams_on_spark() -> None:
    streams = StreamBuilder()
    keyed = streams.stream(Steps(), time=TIME, parallelism=2).key_by("key")
    matches = keyed.detect(PATTERNS["greedy"], parallelism=2)
    matches.map(lambda m: (m.key, m.start, m.end, len(m["b"]))).named("matches")
    matches.timed_out.map(lambda m: (m.key, m.start)).named("given_up")
    inline = complete_topology(streams.build())
    on_spark = complete_topology(streams.build(), engine="spark")
    for name in ("matches", "given_up"):
        rows = sorted(map(repr, on_spark.tuples(name)))
        assert rows == sorted(map(repr, inline.tuples(name)))
        assert rows
