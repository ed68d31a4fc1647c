"""Objects that the tasks of a process share: made once, closed at the end, never saved."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from topo import BasicBolt, FromList, TopologyBuilder, Tuple
from topo.context import SharedObjects
from topo.testing import FeederSpout, TestCluster, complete_topology, make_tuple, run_bolt

events: list[str] = []


class Client:
    def __init__(self) -> None:
        events.append("made")
        self.requests: list[Any] = []

    def close(self) -> None:
        events.append("closed")


class Asks(BasicBolt):
    outputs = ("n", "requests")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.client: Client = context.shared("client", Client)

    def execute(self, tup: Tuple) -> None:
        self.client.requests.append(tup[0])
        self.emit([tup[0], len(self.client.requests)])


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


def test_all_tasks_of_a_process_have_one() -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", FromList(range(10), fields="n"))
    builder.set_bolt("asks", Asks(), parallelism=3).shuffle_grouping("numbers")
    result = complete_topology(builder.create_topology())
    assert sorted(count for _, count in result.tuples("asks")) == list(range(1, 11))
    assert events == ["made", "closed"]


def test_it_is_not_saved_although_it_changes() -> None:
    numbers = FeederSpout("n")
    builder = TopologyBuilder()
    builder.set_spout("numbers", numbers)
    builder.set_bolt("asks", Asks()).shuffle_grouping("numbers")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        numbers.feed([1], msg_id=1)
        run.settle()
        run.restart()
        numbers.feed([2], msg_id=2)
        run.settle()
        counts = [count for _, count in run.tuples("asks")]
    assert counts == [1, 1]
    assert events == ["made", "closed"] * 2


def test_a_test_of_one_bolt_has_its_own() -> None:
    assert run_bolt(Asks(), [make_tuple([1])]).emitted == [[1, 1]]
    assert run_bolt(Asks(), [make_tuple([1])]).emitted == [[1, 1]]


def test_one_that_cannot_be_closed_is_logged_and_the_others_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def close(self) -> None:
            raise OSError("gone")

    shared = SharedObjects()
    shared.add_user(shared)
    for make in (Client, Broken, dict):
        shared.get(make.__name__, make)
    with caplog.at_level(logging.ERROR, "topo.context"):
        shared.remove_user(shared)
    assert events == ["made", "closed"]
    assert "closing the shared object 'Broken'" in caplog.text
