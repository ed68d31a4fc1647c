"""The saved state of a component, and the value that wins when it is restored."""

from __future__ import annotations

import io
from typing import Any

from tests.lives import Life
from tests.wiring import Fed, line
from topo import (
    BasicBolt,
    Bolt,
    Spout,
    StatefulBasicBolt,
    Tuple,
)
from topo.testing import complete_topology


class Sums(BasicBolt):
    """Adds up, scaled by a constructor argument and a setting."""

    transient = ("cache",)

    def __init__(self, scale: int = 1) -> None:
        self.scale = scale

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.offset = conf.get("offset", 0)
        self.total = 0
        self.cache: list[int] = []

    def execute(self, tup: Tuple) -> None:
        self.total += tup[0] * self.scale + self.offset
        self.cache.append(tup[0])


def test_what_execute_changed_comes_back() -> None:
    life = Life(Sums()).execute(1, 2)
    again = Life(Sums(), life.saved)
    assert again.bolt.total == 3


def test_new_constructor_arguments_and_settings_win_over_saved_ones() -> None:
    saved = Life(Sums(scale=1)).execute(1).saved
    again = Life(Sums(scale=10), saved, offset=100).execute(1)
    assert (again.bolt.scale, again.bolt.offset) == (10, 100)
    assert again.bolt.total == 1 + 110


def test_an_attribute_that_is_back_to_what_prepare_left_is_not_saved() -> None:
    life = Life(Sums()).execute(1)
    assert "attributes" in life.saved[1]
    life.execute(-1)
    assert "attributes" not in life.saved[1]
    assert Life(Sums(), life.saved).bolt.total == 0


def test_a_batch_that_changes_nothing_writes_nothing() -> None:
    life = Life(Sums()).execute(1)
    assert life.written
    assert not life.execute(0).written
    assert not life.execute().written


def test_transient_attributes_are_as_prepare_left_them() -> None:
    life = Life(Sums()).execute(1)
    assert life.bolt.cache == [1]
    assert Life(Sums(), life.saved).bolt.cache == []


def test_transient_may_be_one_name() -> None:
    class One(Sums):
        transient = "cache"  # type: ignore[assignment]

    assert Life(One(), Life(One()).execute(1).saved).bolt.cache == []


def test_attributes_of_every_name_are_the_users() -> None:
    class Named(BasicBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.state = 0
            self.a = self.context.this_task_id
            self.calls = {"emit": self.emit}.keys()

        def execute(self, tup: Tuple) -> None:
            self.state += tup[0]

    class Named2(Named):
        transient = ("calls",)

    assert Life(Named2(), Life(Named2()).execute(5).saved).bolt.state == 5


def test_new_and_deleted_attributes() -> None:
    class Comes(BasicBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.goes = 1

        def execute(self, tup: Tuple) -> None:
            self.comes = tup[0]
            del self.goes

    again = Life(Comes(), Life(Comes()).execute(7).saved).bolt
    assert again.comes == 7
    assert not hasattr(again, "goes")


def test_attributes_that_share_an_object_share_it_again() -> None:
    class Shares(BasicBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.by_name: dict[str, list[int]] = {}
            self.in_order: list[list[int]] = []

        def execute(self, tup: Tuple) -> None:
            self.in_order.append(self.by_name.setdefault(str(tup[0]), []))

    again = Life(Shares(), Life(Shares()).execute(1, 2).saved).bolt
    assert again.in_order[0] is again.by_name["1"]


def test_restored_comes_last_on_the_first_start_too() -> None:
    class Seeks(BasicBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.position = 0
            self.sought: Any = None

        def restored(self) -> None:
            self.client = io.BytesIO(bytes(range(10)))
            self.client.seek(self.position)

        def execute(self, tup: Tuple) -> None:
            self.position = self.client.read(1)[0] + 1

        transient = ("client",)

    life = Life(Seeks())
    assert life.bolt.client.tell() == 0
    life.execute(0, 0, 0)
    assert Life(Seeks(), life.saved).bolt.client.tell() == 3


def test_keyed_state_and_plain_attributes_go_together() -> None:
    class Both(StatefulBasicBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.seen = 0

        def execute(self, tup: Tuple) -> None:
            self.seen += 1
            self.state.setdefault(tup[0] % 3, []).append(tup[0])
            if tup[0] % 3 == 2:
                del self.state[2]

    life = Life(Both()).execute(0, 1, 2).execute(3, 4, 5)
    again = Life(Both(), life.saved)
    assert (again.bolt.seen, dict(again.bolt.state)) == (6, {0: [0, 3], 1: [1, 4]})
    assert dict(Life(Both(), again.execute(6, 7).saved).bolt.state) == {0: [0, 3, 6], 1: [1, 4, 7]}


# -- spouts ----------------------------------------------------------------------------------------


class Countdown(Spout):
    outputs = ("x",)
    opened: list[int] = []

    def __init__(self, start: int) -> None:
        self.start = start

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.left = self.start
        type(self).opened.append(1)

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([self.left], msg_id=("id", self.left))

    def is_exhausted(self) -> bool:
        return not self.left


def test_a_spout_goes_on_where_it_was() -> None:
    assert complete_topology(line(Countdown(3))).acked == {"s": [("id", 2), ("id", 1), ("id", 0)]}


def test_pending_messages_survive_a_restart() -> None:
    class Late(Bolt):
        """Keeps everything, and acks it when 3 comes."""

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.kept: list[Tuple] = []

        def execute(self, tup: Tuple) -> None:
            self.kept.append(tup)
            if tup.x == 3:
                for kept in self.kept:
                    self.ack(kept)
                self.kept = []

    fed = Fed(Late()).feed(1, 2)
    fed.run.restart()
    fed.run.settle()
    assert fed.run.stats().components["s"].pending == 2
    fed.run.restart()
    assert sorted(fed.feed(3).feeder.acked) == [1, 2, 3]


def test_a_tuple_kept_in_two_places_is_one_tuple_again() -> None:
    class Twice(Bolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.by_value: dict[int, Tuple] = {}
            self.waiting: set[Tuple] = set()

        def execute(self, tup: Tuple) -> None:
            self.by_value[tup.x] = tup
            self.waiting.add(tup)
            if tup.x == 2:
                assert self.waiting == set(self.by_value.values())
                for kept in self.waiting:
                    self.ack(kept)

    fed = Fed(Twice()).feed(1)
    fed.run.restart()
    assert sorted(fed.feed(2).feeder.acked) == [1, 2]
