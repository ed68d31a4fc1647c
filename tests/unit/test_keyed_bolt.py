"""Keyed bolts: what belongs to a key and what to all, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import PurePosixPath
from threading import Lock
from typing import Any

import numpy as np
import pytest

from topo import (
    BasicBolt,
    ComponentError,
    EventTime,
    FailTuple,
    InvalidTopologyError,
    KeyedBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    UncaughtError,
    UnsavableAttributeError,
)
from topo.testing import FeederSpout, TestCluster


class Count(KeyedBolt):
    outputs = ("key", "n")

    def created(self) -> None:
        self.n = 0

    def execute(self, tup: Tuple) -> None:
        self.n += 1
        self.emit([self.key, self.n])

    def removed(self, why: str) -> None:
        self.emit([self.key, why])


class Fed:
    """A keyed bolt `b` behind a feeder of the fields k and v."""

    def __init__(
        self,
        bolt: KeyedBolt,
        tasks: int = 1,
        by: tuple[str, ...] = ("k",),
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        self.feeder = FeederSpout(["k", "v"])
        builder = TopologyBuilder()
        builder.set_spout("s", self.feeder)
        builder.set_bolt("b", bolt, tasks).fields_grouping("s", by)
        self.cluster = TestCluster()
        self.run = self.cluster.submit_topology("t", builder.create_topology(), conf)

    def feed(self, *rows: Any) -> None:
        for row in rows:
            self.feeder.feed(list(row), msg_id=object())
        self.run.settle()

    @property
    def rows(self) -> list[list[Any]]:
        return self.run.tuples("b")


def test_the_longest_silent_key_leaves_for_a_new_one() -> None:
    class Few(Count):
        max_keys = 2

    fed = Fed(Few())
    for key in "abacd":
        fed.feed([key, 0])
        fed.run.restart()
    removed = [key for key, n in fed.rows if n == "evicted"]
    assert removed == ["b", "a"]
    figures = fed.run.stats().components["b"]
    assert figures.state_rows == 2
    assert figures.counters == {'keys_removed{why="evicted"}': 2}


def test_several_fields_make_a_tuple_and_every_nan_is_one_key() -> None:
    nan = float("nan")
    fed = Fed(Count(), by=("k", "v"))
    fed.feed(["a", 1], ["a", 1], ["a", 2])
    assert fed.rows == [[("a", 1), 1], [("a", 1), 2], [("a", 2), 1]]
    fed = Fed(Count())
    fed.feed([nan, 0])
    fed.run.restart()
    fed.feed([float("nan"), 0])
    assert [n for _, n in fed.rows] == [1, 2]


def test_inputs_of_several_components_have_their_keys_under_other_names() -> None:
    left, right = FeederSpout(["user"]), FeederSpout(["x", "id"])
    builder = TopologyBuilder()
    builder.set_spout("left", left)
    builder.set_spout("right", right)
    declared = builder.set_bolt("b", Count(), 3)
    declared.fields_grouping("left", "user").fields_grouping("right", "id")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        left.feed(["ann"])
        right.feed([0, "ann"])
        run.settle()
        assert run.tuples("b") == [["ann", 1], ["ann", 2]]


def test_a_client_of_prepare_is_shared_and_a_transient_of_a_key_is_not_saved() -> None:
    class Shared(Count):
        transient = ("lock", "cache")

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.lock = Lock()

        def execute(self, tup: Tuple) -> None:
            had = hasattr(self, "cache")
            self.cache = Lock()
            with self.lock:
                self.emit([self.key, had])

    fed = Fed(Shared())
    fed.feed(["a", 0], ["a", 0])
    fed.run.restart()
    fed.feed(["a", 0])
    assert fed.rows == [["a", False], ["a", True], ["a", False]]


def test_a_method_and_a_slot_of_the_users_class_work_as_ever() -> None:
    class Slotted(Count):
        __slots__ = ("total",)

        def __init__(self, step: int) -> None:
            self.step = step

        def created(self) -> None:
            self.total = 0

        @property
        def twice(self) -> int:
            return 2 * self.total

        def execute(self, tup: Tuple) -> None:
            self.total += self.step
            self.emit([self.key, self.twice])

    fed = Fed(Slotted(5))
    fed.feed(["a", 0])
    fed.run.restart()
    fed.feed(["a", 0], ["b", 0])
    assert fed.rows == [["a", 10], ["a", 20], ["b", 10]]


def test_a_container_that_all_keys_share_must_not_change() -> None:
    class Shared(Count):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def execute(self, tup: Tuple) -> None:
            self.seen.append(tup.v)

    with pytest.raises(UnsavableAttributeError, match="'seen' is shared by all keys") as caught:
        Fed(Shared()).feed(["a", 0])
    assert "self.seen = ..." in caught.value.hint


@pytest.mark.parametrize("batches", [[["a", "b"]], [["a"], ["b"]]])
def test_two_keys_must_not_share_an_object(batches: list[list[str]]) -> None:
    both: list[Any] = []

    class Sharing(Count):
        def execute(self, tup: Tuple) -> None:
            self.mine = both

    fed = Fed(Sharing())
    *before, last = batches
    for batch in before:
        fed.feed(*([key, 0] for key in batch))
    with pytest.raises(UnsavableAttributeError, match="are one object"):
        fed.feed(*([key, 0] for key in last))


@dataclass(frozen=True)
class Place:
    city: str


@pytest.mark.parametrize(
    "value", [np.True_, np.float32(1), Place("Rome"), ip_address("::1"), PurePosixPath("a")]
)
def test_two_keys_may_share_what_cannot_change(value: Any) -> None:
    class Sharing(Count):
        def execute(self, tup: Tuple) -> None:
            self.mine = value

    fed = Fed(Sharing())
    fed.feed(["a", 0], ["b", 0])
    fed.feed(["a", 0])


def test_a_key_must_not_share_an_object_with_all() -> None:
    class Sharing(Count):
        def __init__(self) -> None:
            self.first = {"x": 1}

        def created(self) -> None:
            self.mine = self.first

        def execute(self, tup: Tuple) -> None:
            pass

    with pytest.raises(UnsavableAttributeError, match="'first', which all keys share"):
        Fed(Sharing()).feed(["a", 0])


def test_what_cannot_be_saved_of_a_key_is_named() -> None:
    class Locked(Count):
        def execute(self, tup: Tuple) -> None:
            self.lock = Lock()

    with pytest.raises(UnsavableAttributeError, match="instance of key 'a' holds a _thread"):
        Fed(Locked()).feed(["a", 0])


def test_a_key_that_is_not_hashable_fails_or_stops_as_configured() -> None:
    with pytest.raises(UncaughtError, match=r"key of a tuple is \[1\], a list"):
        Fed(Count()).feed([[1], 0])


def test_an_error_of_created_leaves_nothing_behind() -> None:
    class Picky(Count):
        def created(self) -> None:
            super().created()
            self.set_timer("t", after=1)
            self.forget()
            if self.key == "bad":
                raise ValueError("bad")

    fed = Fed(Picky(), conf={"topology.uncaught.error": "fail"})
    fed.feed(["bad", 0], ["good", 0])
    fed.cluster.advance(2)
    assert fed.rows == [["good", 1], ["good", "forgotten"]]
    assert "ValueError: bad" in next(iter(fed.feeder.reasons.values()))


def test_emits_of_a_timer_are_in_no_tree_and_those_of_execute_are() -> None:
    class Timed(Count):
        def execute(self, tup: Tuple) -> None:
            self.emit([self.key, "now"])
            self.set_timer("t", after=timedelta(seconds=1))

        def on_timer(self, name: str, at: Any) -> None:
            self.emit([self.key, at])

    class Fails(BasicBolt):
        def execute(self, tup: Tuple) -> None:
            raise FailTuple("no")

    feeder = FeederSpout(["k"])
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    builder.set_bolt("b", Timed()).fields_grouping("s", "k")
    builder.set_bolt("end", Fails()).shuffle_grouping("b")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        feeder.feed(["a"], msg_id=1)
        cluster.advance(2)
        assert run.tuples("b") == [["a", "now"], ["a", 1.0]]
        assert feeder.failed == [1]


def test_the_time_to_live_in_event_time_is_the_tuples() -> None:
    class Timed(Count):
        time = EventTime("v")
        ttl = 10

    fed = Fed(Timed(), tasks=2)
    fed.feed(["a", 100], ["b", 105])
    fed.feed(["b", 109])
    assert ["a", "ttl"] not in fed.rows
    fed.feed(["b", 112])
    assert fed.rows[-1] == ["a", "ttl"]
    fed.run.restart()
    fed.feed(["c", 130])
    assert fed.rows[-1] == ["b", "ttl"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda bolt: bolt.set_timer("t"), "takes a time or after"),
        (lambda bolt: bolt.set_timer("t", 3, after=3), "takes a time or after"),
        (lambda bolt: bolt.set_timer("t", "noon"), "a number of seconds"),
        (lambda bolt: bolt.set_timer("t", after=-1), "zero or more"),
        (lambda bolt: bolt.set_timer("t", after="1s"), "zero or more"),
    ],
)
def test_a_timer_that_cannot_be_is_an_error_of_the_call(call: Any, words: str) -> None:
    class Calling(Count):
        def execute(self, tup: Tuple) -> None:
            call(self)

    with pytest.raises(UncaughtError, match=words):
        Fed(Calling()).feed(["a", 0])


def test_a_key_that_leaves_sets_no_timer() -> None:
    class Leaving(Count):
        def execute(self, tup: Tuple) -> None:
            self.forget()

        def removed(self, why: str) -> None:
            self.set_timer("t", after=1)

    with pytest.raises(UncaughtError, match="in removed"):
        Fed(Leaving()).feed(["a", 0])


def test_a_hook_of_the_task_has_no_key() -> None:
    class Early(Count):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.set_timer("t", after=1)

    with pytest.raises(UncaughtError, match="where there is no key"):
        Fed(Early()).feed(["a", 0])
    with pytest.raises(ComponentError):
        Early().forget()


def wired(bolt: KeyedBolt, tasks: int, *calls: tuple[str, Any]) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("s", FeederSpout(["k", "v"]))
    builder.set_spout("s2", FeederSpout(["k", "v"]))
    declared = builder.set_bolt("b", bolt, tasks)
    for name, arguments in calls:
        getattr(declared, name)(*arguments)
    return builder.create_topology()


class ByV(Count):
    key = "v"


class ByW(Count):
    key = "w"


class NoRule(KeyedBolt):
    outputs = ()
    max_keys = 0
    ttl = -1


@pytest.mark.parametrize(
    ("bolt", "tasks", "calls", "words"),
    [
        (Count(), 2, [("all_grouping", ["s"])], "fields_grouping('s', 'k')"),
        (Count(), 1, [("shuffle_grouping", ["s"])], "or key = 'k' in the class"),
        (Count(), 1, [("global_grouping", ["s"])], "nothing says what the key"),
        (ByW(), 1, [("shuffle_grouping", ["s"])], "it emits 'k', 'v'"),
        (
            Count(),
            2,
            [("fields_grouping", ["s", "k"]), ("fields_grouping", ["s2", ["k", "v"]])],
            "a key of 1 and of 2 fields",
        ),
        (NoRule(), 1, [("fields_grouping", ["s", "k"])], "max_keys is 0"),
        (NoRule(), 1, [("fields_grouping", ["s", "k"])], "ttl is -1"),
        (NoRule(), 1, [("fields_grouping", ["s", "k"])], "does not override 'execute'"),
    ],
)
def test_a_declaration_that_cannot_be_is_a_problem(
    bolt: KeyedBolt, tasks: int, calls: list[tuple[str, Any]], words: str
) -> None:
    with pytest.raises(InvalidTopologyError) as caught:
        wired(bolt, tasks, *calls)
    assert any(words in f"{found.message} {found.hint}" for found in caught.value.problems)


def test_one_task_gets_its_key_from_the_class() -> None:
    feeder = FeederSpout(["k", "v"])
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    builder.set_bolt("b", ByV()).shuffle_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        feeder.feed(["a", 7])
        run.settle()
        assert run.tuples("b") == [[7, 1]]
