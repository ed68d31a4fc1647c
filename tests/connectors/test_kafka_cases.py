"""Every case of cases/kafka.jsonl has a test that names it, or a reason; and some more of them."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cases import read_cases
from tests.connectors.scripted_kafka import Broker, Reading, ScriptedSpout
from tests.connectors.test_kafka_spout import Told, late_of
from topo.connectors.kafka import Backoff
from topo.connectors.kafka.client import Topics

HERE = Path(__file__).parent
CASES = read_cases(HERE / "cases" / "kafka.jsonl")
BY_DATA = {"offsets", "retry"}
"""The families whose runners read the cases themselves."""

ELSEWHERE = {
    "A-03": "no hooks of an assignment: a task learns of partitions in `discover`",
    "C-05": "no output of topo shows the settings of a client",
    "I-07": "a matter of packages: the extra `kafka` is wheels only",
    "K-13": "a task of the sink aborts what it began itself; ids of tasks that are gone time out",
    "K-21": "it needs a broker with transactions, which the scripted one does not have",
    "M-02": "gauges are of a task's partitions together, not of topics",
    "M-03": "the number of records in a topic is a question to Kafka, not to a spout",
    "M-05": "the committed offset of a partition is not a figure",
    "T-05": "one spout has one way to make tuples of records, whatever their topic",
    "X-12": "nothing wakes a consumer up: a fetch ends by itself",
}
"""The cases without a test, each with its reason."""

_NAMED = re.compile(r"\[([A-Z]+-\d+(?:, [A-Z]+-\d+)*)\]")


def test_no_case_is_left_out() -> None:
    named: set[str] = set()
    for path in HERE.glob("test_kafka_*.py"):
        for names in _NAMED.findall(path.read_text(encoding="utf-8")):
            named.update(names.split(", "))
    ids = {case["id"] for case in CASES if case["family"] not in BY_DATA}
    assert ids - named == set(ELSEWHERE)
    assert not named & set(ELSEWHERE)


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(ScriptedSpout, "broker", broker)
    Told.held.clear()
    Told.fails.clear()
    return broker


def data_of(name: str) -> dict[str, Any]:
    (case,) = (case for case in CASES if case["id"] == name)
    return {**case["data"], "expect": case["expect"]}


def test_new_partitions_do_not_change_whose_the_others_are(broker: Broker) -> None:
    """[A-02]"""
    for number in (4, 0, 2, 3, 1):
        broker.write("t", number, 1)
    reading = Reading(ScriptedSpout("t"), tasks=3).settle()
    live: Any = reading.run
    owners = [task.component for task in live._host.spouts]
    before = [[spout.owns(("t", number)) for number in range(5)] for spout in owners]
    assert [sum(column) for column in zip(*before, strict=True)] == [1] * 5
    for number in (7, 5, 6):
        broker.write("t", number, 1)
    reading.settle()
    assert [[spout.owns(("t", number)) for number in range(5)] for spout in owners] == before
    assert sorted(reading.offsets(1)) == list(range(8))


@pytest.mark.parametrize(
    "start", ["earliest", "committed-earliest", datetime.fromtimestamp(0, UTC)]
)
def test_a_restart_goes_on_behind_the_last_batch(broker: Broker, start: Any) -> None:
    """[B-06]"""
    data = data_of("B-06")
    last = data["last_batch"][1]
    broker.write("t", 0, last + 1)
    reading = Reading(ScriptedSpout("t", start=start)).settle()
    broker.write("t", 0, data["log"] - last - 1)
    reading.run.restart()
    after = reading.settle().offsets()[last + 1 :]
    assert (after[0], after[-1]) == (data["expect"]["first"], data["expect"]["last"])


@pytest.mark.parametrize("name", ["EARLIEST", "LATEST", "TIMESTAMP"])
def test_another_topology_begins_where_it_is_told(broker: Broker, name: str) -> None:
    """[B-07]"""
    data = data_of("B-07")
    broker.write("t", 0, data["log"])
    Reading(ScriptedSpout("t")).settle()
    time = datetime.fromtimestamp(data["timestamp_offset"] / 1000, UTC)
    start: Any = time if name == "TIMESTAMP" else name.lower()
    offsets = Reading(ScriptedSpout("t", start=start)).settle().offsets()
    expected = data["expect"][name]
    assert offsets[:1] == ([] if expected == "none" else [expected])


def test_all_that_failed_within_the_limit_comes_again(broker: Broker) -> None:
    """[E-15] With a retry after a minute, and more records behind."""
    data = data_of("E-15")
    broker.write("t", 0, data["log"])
    failing = [offset for offset in data["expect"]["emitted_again"] if offset < data["limit"]]
    Told.fails.update(failing)
    retry = Backoff(first=data["retry_secs"], period=1, most=data["retry_secs"], retries=3)
    spout = ScriptedSpout("t", max_in_flight=data["limit"], retry=retry)
    reading = Reading(spout, Told()).settle()
    assert set(reading.offsets()) == set(range(data["limit"] + 1))  # one is acked
    reading.cluster.advance(2 * data["retry_secs"])
    again = Counter(reading.offsets())
    assert again == {offset: 2 if offset in failing else 1 for offset in range(data["log"])}


def test_a_pattern_matches_whole_names() -> None:
    """[F-03]"""
    data = data_of("F-03")
    chosen = Topics(re.compile(data["pattern"])).chosen(data["topics"])
    assert chosen == {tuple(partition) for partition in data["expect"]["partitions"]}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rebalance_leaves_no_gap(broker: Broker, restarts: bool) -> None:
    """[I-04]"""
    broker.write("t", 0, 4)
    reading = Reading(ScriptedSpout("t"), tasks=2).settle()
    for partition in (1, 2):
        for number in range(partition + 1):
            broker.write("t", number, 4)
        reading.settle()
        if restarts:
            reading.run.restart()
    read = Counter(zip(reading.offsets(1), reading.offsets(), strict=True))
    assert read == {(p, offset): 1 for p in range(3) for offset in range(4 * (3 - p))}


def test_a_partition_without_data_does_not_hold_up_time(broker: Broker) -> None:
    """[X-10]"""
    broker.write("t", 0, 100)
    broker.write("t", 1, 0)
    assert late_of(ScriptedSpout("t")) == (90, 0)
