"""KafkaSpout without Kafka: what it emits, keeps and commits, case by case.

The names in brackets are the cases of cases/kafka.jsonl.
"""

from __future__ import annotations

import gc
import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, cast

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.cases import read_cases
from tests.connectors.moving import moved_until
from tests.connectors.scripted_kafka import (
    Broker,
    Keeps,
    Log,
    Reading,
    ScriptedClient,
    ScriptedSpout,
)
from topo import (
    Bolt,
    ComponentError,
    Count,
    EventTime,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    Unavailable,
    WindowAggregate,
)
from topo.connectors.kafka import Backoff, KafkaBolt, KafkaSpout, client, publisher
from topo.connectors.kafka.client import TP
from topo.connectors.kafka.dead_letters import DeadLetters
from topo.connectors.kafka.offsets import Offsets
from topo.connectors.kafka.partitions import Partition
from topo.testing import TestCluster

CASES = {case["id"]: case for case in read_cases(Path(__file__).parent / "cases" / "kafka.jsonl")}


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(ScriptedSpout, "broker", broker)
    return broker


class Told(Bolt):
    """Acks or fails by the test's word: what is in `held` waits, what is in `fails` fails."""

    held: ClassVar[set[int]] = set()
    fails: ClassVar[Counter[int]] = Counter()

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.waiting: list[Tuple] = []

    def get_component_configuration(self) -> dict[str, Any]:
        return {"topology.tick.tuple.freq.secs": 1}

    def on_tick(self, tup: Tuple) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            self.execute(one)

    def execute(self, tup: Tuple) -> None:
        offset = tup["offset"]
        if offset in self.held:
            self.waiting.append(tup)
        elif self.fails[offset]:
            self.fails[offset] -= 1
            self.fail(tup, "told so")
        else:
            self.ack(tup)


@pytest.fixture(autouse=True)
def told() -> type[Told]:
    Told.held.clear()
    Told.fails.clear()
    return Told


# -- assignment ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("partitions", "tasks"), [(11, 3), (1, 3), (5, 4)])
def test_partitions_go_round_the_tasks(broker: Broker, partitions: int, tasks: int) -> None:
    """[A-01, A-09, A-10]"""
    for number in range(partitions):
        broker.write("t", number, 2)

    class Says(ScriptedSpout):
        def open(self, conf: Any, context: Any, collector: Any) -> None:
            super().open(conf, context, collector)
            mine = [number for number in range(partitions) if self.owns(("t", number))]
            self.report_error(f"{context.this_task_index}: {mine}")

    reading = Reading(Says("t"), tasks=tasks).settle()
    assert Counter(reading.offsets(1)) == dict.fromkeys(range(partitions), 2)
    owned = [json.loads(e.message.partition(": ")[2]) for e in reading.run.errors()]
    assert all(b - a == tasks for mine in owned for a, b in pairwise(mine))
    assert sorted(number for mine in owned for number in mine) == list(range(partitions))


@pytest.mark.parametrize("start", ["earliest", "latest", "committed-latest"])
def test_a_partition_or_topic_that_appears_later_is_read_from_its_beginning(
    broker: Broker, start: str
) -> None:
    """[A-06, A-08]"""
    broker.write("t-1", 0, 3)
    reading = Reading(ScriptedSpout(re.compile(r"t-\d"), start=start)).settle()
    before = len(reading.offsets())
    broker.write("t-1", 1, 5)
    broker.write("t-2", 0, 4)
    broker.write("t-10", 0, 1)
    reading.settle()
    rows = Counter(row[0] for row in reading.run.tuples("kafka")[before:])
    assert rows == {"t-1": 5, "t-2": 4}
    assert [set(one) for one in broker.assigned[1:]] == [{("t-1", 1), ("t-2", 0)}]


def test_acks_of_what_is_not_read_here_are_ignored(broker: Broker) -> None:
    """[A-04, E-03]"""
    broker.write("t", 0, 1)
    spout = ScriptedSpout("t")
    reading = Reading(spout).settle()
    live: Any = reading.run
    component = live._host.spouts[0].component
    component.ack(("t", 7, 0))
    component.fail(("t", 7, 0), "late")
    component.ack(("t", 0, 0))
    component.fail(("t", 0, 0), "late")
    assert reading.settle().offsets() == [0]


# -- start --------------------------------------------------------------------------------------

NAMES = {
    "EARLIEST": "earliest",
    "LATEST": "latest",
    "UNCOMMITTED_EARLIEST": "committed-earliest",
    "UNCOMMITTED_LATEST": "committed-latest",
}


@pytest.mark.parametrize("row", CASES["S-01"]["data"]["rows"], ids=str)
def test_where_reading_begins(broker: Broker, row: dict[str, Any]) -> None:
    """[S-01]"""
    broker.write("t", 0, 100)
    if row["group_offset"] is not None:
        owner = "topo another" if "another" in row["group_offset"] else "topo reading"
        broker.committed["t", 0] = (60, owner)
    name = row["strategy"].removeprefix("UNCOMMITTED_")
    start: Any = NAMES.get(row["strategy"])
    if name == "TIMESTAMP":
        time = datetime.fromtimestamp(0.020, UTC)
        start = time if row["strategy"] == name else ("committed", time)
    spout = ScriptedSpout("t", start=start, group="g")
    reading = Reading(spout)
    if row["saved_position"] is not None:
        full, broker.logs["t", 0] = broker.logs["t", 0], Log(end=42)
        broker.committed.clear()
        spout_of_before = ScriptedSpout("t", start="latest", group="g")
        reading = Reading(spout_of_before).settle()
        broker.logs["t", 0] = full
        reading.run.restart()
    first = {"beginning": 0, "end": 100, "committed": 60, "timestamp": 20, "saved": 42}
    expected = list(range(first[row["start"]], 100))
    assert reading.settle().offsets() == expected


def test_a_position_at_the_end_is_kept_though_nothing_was_emitted(broker: Broker) -> None:
    """[B-03, B-04, B-05]"""
    broker.write("t", 0, 100)
    reading = Reading(ScriptedSpout("t", start="latest"))
    for _ in range(10):
        reading.run.step()
    broker.write("t", 0, 10)
    reading.run.restart()
    assert reading.settle().offsets() == list(range(100, 110))


def test_a_time_beyond_the_end_is_the_end(broker: Broker) -> None:
    """[X-03]"""
    broker.write("t", 0, 3)
    broker.write("t", 1, 0)
    reading = Reading(ScriptedSpout("t", start=datetime(2100, 1, 1, tzinfo=UTC))).settle()
    assert reading.offsets() == []
    broker.write("t", 1, 1)
    assert reading.settle().offsets(1) == [1]


def test_given_offsets_then_committed_ones_then_the_beginning(broker: Broker) -> None:
    """[X-04]"""
    for number in range(3):
        broker.write("t", number, 6)
    broker.committed["t", 1] = (5, "anybody")
    reading = Reading(ScriptedSpout("t", start={0: 3}, group="g")).settle()
    assert Counter(reading.offsets(1)) == {0: 3, 1: 1, 2: 6}


def test_committed_offsets_that_are_not_there(broker: Broker) -> None:
    """[X-05]"""
    broker.write("t", 0, 1)
    with pytest.raises(ComponentError, match="the group has committed no offset of t-0"):
        Reading(ScriptedSpout("t", start="committed", group="g")).settle()


def test_deactivating_changes_no_position(broker: Broker) -> None:
    """[S-02, S-05]"""
    broker.write("t", 0, 20)
    reading = Reading(ScriptedSpout("t", start="earliest"), Told())
    Told.held.add(6)
    reading.run.step()
    reading.run.deactivate()
    Told.held.clear()
    reading.cluster.advance(2)
    reading.run.activate()
    assert reading.settle().offsets() == list(range(20))
    assert len(reading.run.acked["kafka"]) == 20


# -- emitting, failing, limits ------------------------------------------------------------------


def test_every_record_once_in_order_and_the_group_hears_of_it(broker: Broker) -> None:
    """[E-02, X-07, I-06]"""
    broker.write("t", 0, 10, name=b"key")
    reading = Reading(ScriptedSpout("t", group="g", key="str"))
    for _ in range(5):
        reading.run.step()
        reading.run.restart()
    rows = reading.settle().run.tuples("kafka")
    assert rows == [["t", 0, offset, "key", str(offset)] for offset in range(10)]
    assert broker.committed["t", 0] == (10, "topo reading")


def test_without_a_group_nothing_is_committed(broker: Broker) -> None:
    """[X-06]"""
    broker.write("t", 0, 10)
    assert len(Reading(ScriptedSpout("t")).settle().offsets()) == 10
    assert broker.commits == 0


def test_a_commit_that_fails_is_a_counter(broker: Broker) -> None:
    """[X-08]"""
    broker.write("t", 0, 3)
    broker.commits_fail = True
    reading = Reading(ScriptedSpout("t", group="g")).settle()
    broker.write("t", 0, 1)
    stats = reading.settle().run.stats().components["kafka"]
    assert reading.run.status == "ACTIVE"
    assert stats.counters["commits_failed"] >= 1


@pytest.mark.parametrize("failing", [(1,), (0,), (0, 3, 4), tuple(range(10))])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_fails_comes_again_and_the_others_once(
    broker: Broker, failing: tuple[int, ...], restarts: bool
) -> None:
    """[E-04, E-05, E-16, I-01]"""
    broker.write("t", 0, 10)
    Told.fails.update(failing)
    reading = Reading(ScriptedSpout("t", group="g", max_in_flight=10), Told())
    for _ in range(10):
        reading.run.step()
        if restarts:
            reading.run.restart()
    reading.settle()
    assert Counter(reading.offsets()) == {o: 2 if o in failing else 1 for o in range(10)}
    broker.write("t", 0, 1)
    reading.cluster.advance(1)
    assert broker.committed["t", 0][0] == 11


def test_what_fails_is_given_up_after_its_retries(broker: Broker) -> None:
    """[E-07, E-08, I-03]"""
    broker.write("t", 0, 4, name=b"k")
    Told.fails.update({1: 9})
    spout = ScriptedSpout("t", group="g", retry=Backoff(first=0, period=0, most=1, retries=3))
    reading = Reading(spout, Told(), dead=Keeps())
    reading.cluster.advance(20)
    assert Counter(reading.offsets()) == {0: 1, 1: 4, 2: 1, 3: 1}
    (dead,) = reading.run.tuples("kafka", "dead")
    assert dead[:5] == ["t", 0, 1, b"k", b"1"]
    assert "told so" in dead[6]
    assert dead[7] == 4
    assert broker.committed["t", 0][0] == 4


def test_what_is_given_up_is_reported_where_nobody_reads_it(broker: Broker) -> None:
    broker.write("t", 0, 2)
    Told.fails.update({0: 9})
    reading = Reading(ScriptedSpout("t", retry=Backoff(retries=0)), Told())
    reading.cluster.advance(5)
    (error,) = [e for e in reading.run.errors() if e.kind == "reported"]
    assert error.message.startswith("t-0 at 0 failed 1 times, and is given up")


def test_no_more_than_the_limit_is_read_ahead(broker: Broker) -> None:
    """[E-11, E-12, E-13, E-09]"""
    broker.write("t", 0, 100)
    Told.held.update(range(100))
    reading = Reading(ScriptedSpout("t", max_in_flight=10), Told())
    reading.settle()
    assert reading.offsets() == list(range(10))
    Told.held.difference_update(range(1, 10))  # acked ones behind one that is open count
    reading.cluster.advance(3)
    assert len(reading.offsets()) == 10
    Told.held.discard(0)
    reading.cluster.advance(1)
    assert reading.offsets() == list(range(20))


def test_another_partition_goes_on_where_one_is_at_its_limit(broker: Broker) -> None:
    broker.write("t", 0, 30)
    broker.write("t", 1, 30)

    class HoldsOne(Told):
        def execute(self, tup: Tuple) -> None:
            if tup["partition"] == 0:
                self.waiting.append(tup)
            else:
                self.ack(tup)

    reading = Reading(ScriptedSpout("t", max_in_flight=10), HoldsOne()).settle()
    assert Counter(reading.offsets(1)) == {0: 10, 1: 30}


def test_what_waited_at_a_limit_comes_in_the_order_of_its_partition(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.write("t", 0, 5)
    broker.write("t", 1, 3)
    came = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (0, 4)]
    fetch = ScriptedClient.fetch

    def as_it_came(client: ScriptedClient, most: int) -> Sequence[Any]:
        fetched = fetch(client, most)
        return sorted(fetched, key=lambda one: came.index((one.partition(), one.offset())))

    monkeypatch.setattr(ScriptedClient, "fetch", as_it_came)
    Told.held.update(range(5))
    spout, conf = ScriptedSpout("t", max_in_flight=3), {"topology.max.spout.pending": 5}
    reading = Reading(spout, Told(), conf=conf).settle()
    assert reading.offsets() == [0, 1, 2, 0, 1]  # the limit of a partition, and of all
    Told.held.clear()
    reading.cluster.advance(3)
    rows = reading.run.tuples("kafka")
    assert [row[2] for row in rows if row[1] == 0] == [0, 1, 2, 3, 4]
    assert [row[2] for row in rows if row[1] == 1] == [0, 1, 2]


def test_no_ackers_track_nothing_and_lose_nothing(broker: Broker) -> None:
    """[E-19, G-02, G-07]"""
    broker.write("t", 0, 100)
    for guarantee in ("at_least_once", None):
        spout = ScriptedSpout("t", guarantee=guarantee, max_in_flight=50, group="g")
        reading = Reading(spout, conf={"topology.acker.executors": 0}).settle()
        assert reading.offsets() == list(range(100))
        broker.committed.clear()


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_most_once", "none"])
def test_without_tracking_what_fails_does_not_come_again(broker: Broker, guarantee: str) -> None:
    """[G-03, G-04, G-06]"""
    broker.write("t", 0, 10)
    Told.fails.update(range(10))
    reading = Reading(ScriptedSpout("t", guarantee=guarantee, max_in_flight=2), Told())
    assert reading.settle().offsets() == list(range(10))
    assert reading.run.acked.get("kafka", []) == []


def test_at_most_once_loses_rather_than_repeats(broker: Broker) -> None:
    broker.write("t", 0, 10)
    reading = Reading(ScriptedSpout("t", guarantee="at_most_once"))
    live: Any = reading.run
    live._batch(1)  # fetched, and its position is kept
    reading.run.restart()
    assert reading.settle().offsets() == []
    broker.write("t", 0, 2)
    assert reading.settle().offsets() == [10, 11]


def test_a_record_translated_to_none_is_done(broker: Broker) -> None:
    """[E-18]"""
    broker.write("t", 0, 10)
    for guarantee in ("at_least_once", "at_most_once", "none"):
        spout = ScriptedSpout(
            "t", group="g", fields="x", guarantee=guarantee, translate=lambda record: None
        )
        reading = Reading(spout).settle()
        assert reading.offsets() == []
        assert broker.committed.pop(("t", 0))[0] == 10


# -- compaction, transactions, loss -------------------------------------------------------------


def test_what_is_gone_by_its_retry_counts_as_done(broker: Broker) -> None:
    """[L-02, L-03, L-04]"""
    for partition, count in enumerate((0, 3, 3)):
        broker.write("t", partition, count)
    Told.fails.update({0: 2, 1: 2, 2: 2})
    spout = ScriptedSpout("t", group="g", retry=Backoff(first=5, most=5))
    reading = Reading(spout, Told()).settle()
    broker.remove("t", 1, 0, 1)
    reading.cluster.advance(6)
    again = Counter((row[1], row[2]) for row in reading.run.tuples("kafka")[6:])
    assert again == {(1, 2): 1, (2, 0): 1, (2, 1): 1, (2, 2): 1}
    assert broker.committed["t", 1][0] == 3


def test_markers_leave_holes_that_are_no_lag(broker: Broker) -> None:
    """[L-05, M-01, X-11]"""
    for _ in range(2):
        broker.write("t", 0, 3)
        broker.hole("t", 0)
    reading = Reading(ScriptedSpout("t", group="g")).settle()
    assert reading.offsets() == [0, 1, 2, 4, 5, 6]
    reading.run.step()
    assert broker.committed["t", 0][0] == 8
    gauges = reading.run.stats().components["kafka"].gauges
    assert gauges == {'lag{partition="0",topic="t"}': 0.0}


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [7, 8, 9]), ("latest", [])])
def test_lost_data_is_told_and_passed_over(
    broker: Broker, policy: str, expected: list[int]
) -> None:
    """[S-06]"""
    broker.write("t", 0, 5)
    for spout in (ScriptedSpout("t", on_data_loss=policy), ScriptedSpout("t")):
        reading = Reading(spout).settle()
        if spout.on_data_loss != "stop":
            broker.write("t", 0, 5)
            broker.truncate("t", 0, 7)
            reading.settle()
            assert reading.offsets()[5:] == expected
            assert "the position 5 is not in the log, which has 7 to 10" in (
                reading.run.errors()[0].message
            )
        else:
            broker.logs["t", 0] = Log(end=3)  # the topic was made anew
            reading.run.restart()
            with pytest.raises(ComponentError, match=r"t-0: the position 10 is not in the log"):
                reading.settle()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("policy", ["stop", "earliest", "latest"])
def test_a_topic_made_anew_is_known_by_its_id(broker: Broker, policy: str, restarts: bool) -> None:
    """[I-05] Though the new log has the position."""
    broker.write("t", 0, 3)
    broker.ids["t"] = "first"
    reading = Reading(ScriptedSpout("t", on_data_loss=policy)).settle()
    reading.run.restart()
    broker.write("t", 0, 1)
    reading.settle()
    assert reading.offsets() == [0, 1, 2, 3]
    broker.logs["t", 0] = Log()
    broker.write("t", 0, 6)
    broker.ids["t"] = "second"
    if restarts:
        reading.run.restart()
    if policy == "stop":
        with pytest.raises(ComponentError, match="position 4 is of an earlier topic of this name"):
            reading.settle()
        return
    reading.settle()
    broker.write("t", 0, 1)
    reading.settle()
    assert reading.offsets()[4:] == ([*range(7)] if policy == "earliest" else [6])
    assert reading.run.stats().components["kafka"].counters["data_losses"] == 1


def test_an_id_that_was_not_known_is_taken_over(broker: Broker) -> None:
    """[I-05] As the position of a checkpoint of an earlier topo, or of an old broker."""
    broker.write("t", 0, 3)
    reading = Reading(ScriptedSpout("t")).settle()
    broker.ids["t"] = "first"
    broker.write("t", 0, 3)
    reading.run.restart()
    assert reading.settle().offsets() == [0, 1, 2, 3, 4, 5]
    old = Partition.__new__(Partition)
    old.__setstate__((3, Offsets(3), None, {}, {}))
    assert (old.position, old.topic_id) == (3, "")


def test_a_broker_that_is_away_stalls_with_its_address(broker: Broker) -> None:
    """[C-06]"""
    broker.write("t", 0, 1)
    broker.away = "Kafka at scripted:1: connection refused"
    reading = Reading(ScriptedSpout("t")).settle()
    assert reading.run.status == "STALLED"
    assert "scripted:1: connection refused" in reading.run.reason
    broker.away = ""
    reading.cluster.advance(10)
    assert reading.offsets() == [0]
    assert reading.run.status == "ACTIVE"


class Letters(DeadLetters):
    """Writes to a list what is flushed; away, while the test says so."""

    away: ClassVar[bool] = False
    buried: ClassVar[list[Any]] = []

    def connect(self) -> Any:
        self.waiting: list[Any] = []
        return Lists(self)


class Lists:
    """What writes for `Letters`."""

    def __init__(self, letters: Letters) -> None:
        self.letters = letters

    def send(self, records: Iterable[Any]) -> list[Any]:
        self.letters.waiting.extend(records)
        return []

    def flush(self, secs: float) -> list[Any]:
        if self.letters.away:
            raise Unavailable("Kafka at scripted:1: 1 records are not delivered")
        self.letters.buried.extend(self.letters.waiting)
        self.letters.waiting.clear()
        return []


class Burying(ScriptedSpout):
    def dead_letters(self) -> Any:
        return Letters("scripted:1", {}, "t-dead")


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> type[Letters]:
    monkeypatch.setattr(Letters, "away", False)
    Letters.buried.clear()
    return Letters


def test_what_is_given_up_goes_to_its_topic_as_it_was(
    broker: Broker, letters: type[Letters]
) -> None:
    broker.write("t", 0, 4, name=b"k", more=[("own", b"1")])
    Told.fails.update({1: 9, 3: 1})
    spout = Burying("t", retry=Backoff(retries=2), dead_letter="t-dead")
    letters.away = True
    reading = Reading(spout, Told())
    reading.cluster.advance(5)
    assert reading.run.status == "STALLED"  # and nothing is given up before the brokers have it
    assert letters.buried == []
    letters.away = False
    reading.cluster.advance(30)
    assert reading.run.status == "ACTIVE"
    topic, key, value, _, _, headers = letters.buried[-1]
    assert (topic, key, value) == ("t-dead", b"k", b"1")
    assert headers == [("own", b"1"), ("topo-topic", b"t"), ("topo-partition", b"0"),
                       ("topo-offset", b"1"), ("topo-reason", b"failed by 'b' task 1: told so"),
                       ("topo-failures", b"3")]  # fmt: skip
    assert {record[2] for record in letters.buried} == {b"1"}
    assert reading.run.stats().components["kafka"].counters["dead"] == 1
    partition = cast(Any, reading.run)._host.spouts[0].component.state["t", 0]
    assert (partition.committable, partition.dead) == (4, {})


def test_what_cannot_be_read_goes_to_the_topic_of_dead_letters(
    broker: Broker, letters: type[Letters]
) -> None:
    broker.write("t", 0, 1, data=b"{")
    broker.write("t", 0, 1, data=b"7")
    spout = Burying("t", value="json", fields="value", dead_letter="t-dead", on_bad="dead_letter")
    reading = Reading(spout).settle()
    assert reading.run.tuples("kafka") == [[7]]
    ((_, _, value, _, _, headers),) = letters.buried
    assert value == b"{"
    assert "JSON" in dict(headers)["topo-reason"].decode()


def test_what_is_given_up_and_gone_is_reported(broker: Broker, letters: type[Letters]) -> None:
    broker.write("t", 0, 2)
    Told.fails.update({0: 9})
    spout = Burying("t", retry=Backoff(retries=0), dead_letter="t-dead")
    reading = Reading(spout, Told())
    reading.run.step()
    broker.truncate("t", 0, 1)
    reading.settle()
    assert letters.buried == []
    assert "given up, and the log has it no longer" in str(reading.run.errors())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"dead_letter": "d"}, "nothing is ever given up"),
        ({"dead_letter": "d", "retry": Backoff(retries=1), "guarantee": "none"}, "nothing is ever"),
        ({"on_bad": "dead_letter"}, "without a topic"),
        ({"dead_letter": "t", "on_bad": "dead_letter"}, "a topic that it reads itself"),
    ],
)
def test_dead_letters_that_cannot_be_meant(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ComponentError, match=words):
        ScriptedSpout("t", **more)


# -- bounded, topics, translation, settings -----------------------------------------------------


def test_a_bounded_reading_ends(broker: Broker) -> None:
    """[X-01]"""
    broker.write("t", 0, 5)
    broker.write("t", 1, 0)
    reading = Reading(ScriptedSpout("t", until="latest"), Told(), tasks=3)
    Told.fails.update([2])
    reading.cluster.advance(1)
    assert reading.run.status == "COMPLETED"
    assert Counter(reading.offsets()) == {0: 1, 1: 1, 2: 2, 3: 1, 4: 1}
    reading = Reading(ScriptedSpout("t", until={0: 2, 1: 0})).settle()
    assert (reading.run.status, reading.offsets()) == ("COMPLETED", [0, 1])


def test_a_bounded_reading_of_a_pattern_ends(broker: Broker) -> None:
    broker.write("t", 0, 2)
    broker.write("tt", 0, 3)
    reading = Reading(ScriptedSpout(re.compile("t+"), until="latest")).settle()
    assert reading.run.status == "COMPLETED"
    assert Counter(reading.offsets(0)) == {"t": 2, "tt": 3}
    reading = Reading(ScriptedSpout(re.compile("t+"), until={("tt", 0): 1})).settle()
    assert Counter(reading.offsets(0)) == {"t": 2, "tt": 1}


class SlowToFind(ScriptedSpout):
    """Hears of the partitions when it has been asked some times, after each start."""

    transient = (*ScriptedSpout.transient, "asked")

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        super().open(conf, context, collector)
        self.asked = 0

    def discover(self) -> frozenset[TP] | None:
        self.asked += 1
        return super().discover() if self.asked > 5 else None


def test_a_bounded_reading_that_is_restarted_is_not_over_before_it_knows_its_partitions(
    broker: Broker,
) -> None:
    broker.write("t", 0, 3)
    reading = Reading(SlowToFind("t", until={0: 6}, guarantee="exactly_once"))
    reading.cluster.advance(1)
    assert reading.offsets() == [0, 1, 2]
    reading.run.restart()
    for _ in range(3):
        reading.run.step()
    assert reading.run.status == "ACTIVE"
    broker.write("t", 0, 3)
    reading.cluster.advance(1)
    assert reading.run.status == "COMPLETED"
    assert reading.offsets() == list(range(6))


def test_topics_that_are_not_there(broker: Broker) -> None:
    """[F-02, F-04]"""
    broker.write("present", 0, 1)
    broker.write("present", 1, 1)
    names = ["present", "absent"]
    reading = Reading(ScriptedSpout(names)).settle()
    assert sorted(reading.offsets(1)) == [0, 1]
    assert reading.run.stats().components["kafka"].gauges["missing_topics"] == 1
    with pytest.raises(ComponentError, match="there is no topic 'absent'"):
        Reading(ScriptedSpout(names, missing="fail")).settle()
    with pytest.raises(ComponentError, match="Partition 'present-2147483647' does not exist"):
        Reading(ScriptedSpout([("present", 0), ("present", 2147483647)])).settle()
    reading = Reading(ScriptedSpout({("present", 1): 1})).settle()
    assert reading.offsets() == []


def test_records_become_tuples(broker: Broker) -> None:
    """[T-01, T-02, T-07]"""
    headers = [("a", b"1"), ("a", b"2")]
    broker.write("t", 0, 1, data=b'{"user": "u", "n": 1}', name=b"THE KEY", time=7, more=headers)
    default = Reading(ScriptedSpout("t", key="str", value="json")).settle()
    assert default.run.tuples("kafka") == [["t", 0, 0, "THE KEY", {"user": "u", "n": 1}]]
    named = Reading(ScriptedSpout("t", value="json", fields=("user", "none"))).settle()
    assert named.run.tuples("kafka") == [["u", None]]
    broker.write("t", 0, 1, data=None)  # a tombstone
    assert named.settle().run.tuples("kafka") == [["u", None], [None, None]]
    broker.remove("t", 0, 1)
    parts = ("headers", "timestamp", "timestamp_type")
    whole = Reading(ScriptedSpout("t", fields=parts)).settle()
    assert whole.run.tuples("kafka") == [[headers, 7, "create"]]
    spout = ScriptedSpout(
        "t",
        fields="x",
        streams={"keys": ("key",)},
        key="str",
        translate=lambda record: ("keys", [record.key]),
    )
    streams = Reading(spout, keys=Keys()).settle()
    assert streams.run.tuples("kafka", "keys") == [["THE KEY"]]


class Keys(Keeps):
    pass


def test_records_that_cannot_be_read(broker: Broker) -> None:
    broker.write("t", 0, 1, data=b"{broken")
    broker.write("t", 0, 1, data=b'{"user": 1}')
    wanted: dict[str, Any] = {"value": "json", "fields": "user"}
    reading = Reading(ScriptedSpout("t", on_bad="stream", **wanted), bad=Keeps()).settle()
    assert reading.run.tuples("kafka") == [[1]]
    ((raw, error, where),) = reading.run.tuples("kafka", "bad")
    assert (raw, where) == (b"{broken", "t-0 at 0")
    assert "Error" in error
    assert Reading(ScriptedSpout("t", on_bad="skip", **wanted)).settle().offsets(0) == [1]
    with pytest.raises(ComponentError, match="cannot be read: t-0 at 0"):
        Reading(ScriptedSpout("t", **wanted, start="earliest")).settle()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"settings": {"enable.auto.commit": True}}, "KafkaSpout sets 'enable.auto.commit' itself"),
        ({"settings": {"auto.offset.reset": "latest"}}, "itself: start= says where reading begins"),
        ({"settings": {"group.id": "g"}}, "it is group="),
        ({"guarantee": "by_batch"}, "guarantee='by_batch'; it is one of"),
        ({"start": "beginning"}, "start='beginning'; it is one of"),
        ({"start": "timestamp"}, "start='timestamp'; it is one of"),
        ({"start": ("committed", 5)}, "start=\\('committed', 5\\); it is one of"),
        ({"start": ["earliest"]}, "start=\\['earliest'\\]; it is one of"),
        ({"until": "earliest"}, "until='earliest'"),
        ({"topics": ["t", "u"], "until": {0: 5}}, "until={0: 5}"),
        ({"topics": []}, "topics=\\[\\]"),
        ({"topics": 7}, "topics=7"),
        ({"translate": len}, "the fields of what translate returns are not known"),
        ({"value": "bytes", "fields": "user"}, "is no part of a record"),
        ({"value": "xml"}, "value='xml'; it is one of"),
        ({"streams": {"default": "x"}}, "'default' has its fields already"),
        ({"max_in_flight": 0}, "max_in_flight=0"),
    ],
)
def test_arguments_that_cannot_be_meant(wrong: dict[str, Any], message: str) -> None:
    """[C-02, C-04, F-05, T-04]"""
    with pytest.raises(ComponentError, match=message):
        ScriptedSpout(**{"topics": "t", **wrong})


def test_a_reset_policy_that_is_the_spouts_own_is_taken() -> None:
    """[C-03]"""
    assert ScriptedSpout("t", settings={"auto.offset.reset": "none"}).on_data_loss == "stop"


@pytest.mark.parametrize("connector", ["spout", "bolt"])
def test_settings_that_a_client_would_lose_are_refused(
    monkeypatch: pytest.MonkeyPatch, connector: str
) -> None:
    """[C-04] Whatever a connector puts over the user's settings, the user may not give."""

    class Caught(Exception):
        pass

    def made(name: str, kind: Any, settings: dict[str, Any]) -> Any:
        raise Caught(settings)

    monkeypatch.setattr(client, "made", made)
    monkeypatch.setattr(publisher, "made", made)

    def connect(given: dict[str, Any]) -> Any:
        if connector == "bolt":
            return publisher.Sender("b:1", given)
        return client.KafkaClient("b:1", "g", given)

    def construct(given: dict[str, Any]) -> Any:
        if connector == "bolt":
            return KafkaBolt("b:1", "t", settings=given)
        return ScriptedSpout("t", settings=given)

    def settings_made(given: dict[str, Any]) -> dict[str, Any]:
        with pytest.raises(Caught) as caught:
            connect(given)
        found: dict[str, Any] = caught.value.args[0]
        return found

    names = settings_made({})
    taken = settings_made(dict.fromkeys(names, "the user's"))
    lost = sorted(name for name, value in taken.items() if value != "the user's")
    assert len(lost) > 4
    for name in lost:
        with pytest.raises(ComponentError, match=f"sets '{name}' itself"):
            construct({name: "latest"})


class _Error:
    """An error of librdkafka."""

    def __init__(self, code: int, *, fatal: bool = False) -> None:
        self._code, self._fatal = code, fatal

    def code(self) -> int:
        return self._code

    def fatal(self) -> bool:
        return self._fatal

    def str(self) -> str:
        return "because"


@pytest.mark.parametrize(
    ("name", "fatal", "stays"),
    [
        ("INVALID_TRANSACTION_TIMEOUT", True, True),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", False, True),
        ("TOPIC_AUTHORIZATION_FAILED", False, True),
        ("_AUTHENTICATION", False, True),
        ("UNKNOWN_MEMBER_ID", True, True),
        ("_FENCED", True, False),
        ("INVALID_PRODUCER_EPOCH", True, False),
        ("_TRANSPORT", False, False),
        ("NOT_LEADER_FOR_PARTITION", False, False),
        ("UNKNOWN_TOPIC_OR_PART", False, False),
    ],
)
def test_errors_that_no_waiting_mends_are_no_outage(name: str, fatal: bool, stays: bool) -> None:
    """[K-18]"""
    code = getattr(confluent_kafka.KafkaError, name)
    error = client.in_words(confluent_kafka, _Error(code, fatal=fatal), "b:1", "")
    assert isinstance(error, ComponentError if stays else Unavailable)
    assert "Kafka at b:1: " in str(error)
    assert "because" in str(error)


def test_a_record_that_may_not_be_written_is_an_error() -> None:
    """[K-18] Errors of a delivery are told by a callback."""
    sender = publisher.Sender("127.0.0.1:1", {})
    codes = confluent_kafka.KafkaError

    class Sent:
        topic = key = value = lambda self: b""

    sender.heard.note_delivery(_Error(codes.TOPIC_AUTHORIZATION_FAILED), Sent())
    with pytest.raises(ComponentError, match="no permission for the topic"):
        sender.flush(0.1)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Have reference counting alone free what is let go."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def all_clients() -> list[Any]:
    kinds = (confluent_kafka.Consumer, confluent_kafka.Producer, AdminClient)
    return [each for each in gc.get_objects() if isinstance(each, kinds)]


def clients_alive() -> int:
    return len(all_clients())


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("kind", ["consumer", "sender", "publisher"])
def test_a_client_that_was_closed_is_freed_at_once(kind: str) -> None:
    """Each takes one of a process' 1,024 keys for data of threads, until it is freed."""
    before = clients_alive()
    if kind == "consumer":
        consumer = client.KafkaClient("127.0.0.1:1", "g", {"socket.timeout.ms": 100})
        consumer.assign({("t", 0): 0})
        consumer.fetch(1)
        assert clients_alive() == before + 1
        consumer.close()
        del consumer
    elif kind == "sender":
        sender = publisher.Sender("127.0.0.1:1", {"message.timeout.ms": 50})
        sender.send([("t", None, b"v", None, None, None)])
        with pytest.raises(Unavailable):
            sender.flush(0.1)
        assert clients_alive() == before + 1
        del sender
    else:
        held = publisher.Publisher("127.0.0.1:1", "n", {}, 0.1)
        with pytest.raises(Unavailable):
            held.publish(1, publisher.Batch.of([("t", None, b"v", None, None, None)]))
        del held
    assert clients_alive() == before


def test_a_call_that_was_given_up_keeps_no_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises when nobody waits for it any more."""
    monkeypatch.setattr(publisher, "_GRACE_SECS", 0.01)
    monkeypatch.setattr(publisher.Publisher, "_begin", lambda self, secs: None)
    held = publisher.Publisher("127.0.0.1:1", "n", {}, 0.1)
    held._producer = publisher.Sender("127.0.0.1:1", {})
    others = set(threading.enumerate())
    before = id(held._producer.producer)
    goes_on = threading.Event()

    def call(producer: Any, secs: float) -> None:
        goes_on.wait(60)
        raise ValueError("too late")

    with pytest.raises(Unavailable, match="does not answer"):
        held._call(0.01, call, held._producer.producer)
    (thread,) = (each for each in set(threading.enumerate()) - others if each.name == "topo-kafka")
    gc.collect()
    gc.disable()
    try:
        held.close()
        goes_on.set()
        thread.join()
        assert before not in [id(each) for each in all_clients()]
    finally:
        gc.enable()


class Discovering(ScriptedSpout):
    """Asks for partitions by its own thread."""

    discover = KafkaSpout.discover
    topic_ids = KafkaSpout.topic_ids


def _discoveries() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "kafka discovery"}


def test_an_instance_that_is_left_behind_keeps_nothing_open(broker: Broker) -> None:
    broker.write("t", 0, 5)
    Told.fails[3] = 1_000_000
    builder = TopologyBuilder()
    others = _discoveries()  # of other tests
    builder.set_spout("s", Discovering("t", retry=Backoff(first=0.1), discover_secs=0.01))
    builder.set_bolt("b", Told()).shuffle_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        earlier: set[object] = set()

        def has_opened_its_own() -> bool:  # it reads, reads again, and looks for partitions
            return len(broker.clients - earlier) == 3

        def has_only_its_own() -> bool:
            return len(broker.clients) == 3 and len(_discoveries() - others) == 1

        for _ in range(4):
            moved_until(cluster, has_opened_its_own, 0.1)
            moved_until(cluster, has_only_its_own)
            earlier |= broker.clients
            run.restart()
        moved_until(cluster, lambda: not broker.clients <= earlier, 0.1)
        run.kill()
        moved_until(cluster, lambda: not broker.clients and _discoveries() <= others)


# -- event time ---------------------------------------------------------------------------------


def windows_of(spout: ScriptedSpout, tasks: int = 1) -> Topology:
    """Return a topology that counts records in windows of 10."""
    window = WindowAggregate(
        window=Tumbling(10), time=EventTime("offset", lag=1), aggregates={"n": Count()}
    )
    builder = TopologyBuilder()
    builder.set_spout("kafka", spout, tasks)
    builder.set_bolt("w", window).global_grouping("kafka")
    return builder.create_topology()


def late_of(spout: ScriptedSpout, tasks: int = 1) -> tuple[int, int]:
    """Return how many records were counted in windows of 10, and how many were late."""
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", windows_of(spout, tasks))
        run.settle()
        cluster.advance(20)  # partitions that are read to their end are idle
        return sum(row[-1] for row in run.tuples("w")), run.stats().components["w"].late


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once", "at_most_once"])
@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_partitions_in_order_of_time_are_not_late_for_each_other(
    broker: Broker, tasks: int, guarantee: str
) -> None:
    for partition in range(4):
        broker.write("t", partition, 5_000)  # the time of a record is its offset
    broker.write("t", 4, 0)  # one is empty
    counted, late = late_of(ScriptedSpout("t", guarantee=guarantee), tasks)
    assert late == 0
    assert counted == 4 * 4_990  # all windows that are over at 4,998


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("tasks", [1, 4])
def test_live_partitions_in_order_of_time_are_not_late_for_each_other(
    broker: Broker, tasks: int, restarts: bool
) -> None:
    """They are written in turn; behind a backlog, beside an empty one and one that ends."""
    for partition in range(4):
        broker.write("t", partition, 500)
    broker.write("t", 4, 0)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", windows_of(ScriptedSpout("t"), tasks))
        for turn in range(40):
            partition = turn % (4 if turn < 20 else 3)
            broker.write("t", partition, 100)
            cluster.advance(0.1)
            if restarts and turn % 7 == 6:
                run.restart()
        run.settle()
        cluster.advance(20)
        assert run.stats().components["w"].late == 0
        ends = [broker.logs["t", partition].end for partition in range(4)]
        assert sum(row[-1] for row in run.tuples("w")) == sum(min(end, 1_690) for end in ends)


def test_a_bounded_partition_that_was_read_holds_nothing_back(broker: Broker) -> None:
    broker.write("t", 0, 5_000)
    broker.write("t", 1, 10)
    counted, late = late_of(ScriptedSpout("t", until="latest"))
    assert (counted, late) == (5_010, 0)


def test_a_batch_may_end_after_a_restart_before_the_server_was_asked(broker: Broker) -> None:
    broker.write("t", 0, 5_000)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", windows_of(ScriptedSpout("t")))
        run.settle()
        run.deactivate()
        run.restart()
        cluster.advance(5)  # nobody asks the spout for tuples
        run.activate()
        cluster.advance(20)
        assert sum(row[-1] for row in run.tuples("w")) == 4_990  # those that are over
