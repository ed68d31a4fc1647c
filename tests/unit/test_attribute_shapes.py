"""Attributes of every kind come back as they were, or an error names the one that cannot."""

from __future__ import annotations

import csv
import dataclasses
import queue
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.lives import Life
from tests.wiring import Fed, line
from topo import BasicBolt, Bolt, Spout, StatefulBasicBolt, Tuple, UnsavableAttributeError
from topo.state import KeyValueState
from topo.testing import FeederSpout, TestCluster


@dataclasses.dataclass(slots=True)
class Slots(BasicBolt):
    n: int = 0

    def execute(self, tup: Tuple) -> None:
        self.n += 1


@dataclasses.dataclass(frozen=True)
class Frozen(BasicBolt):
    seen: list[Any] = dataclasses.field(default_factory=list)

    def execute(self, tup: Tuple) -> None:
        self.seen.append(tup[0])


@pytest.mark.parametrize("bolt", [Slots, Frozen])
def test_dataclasses_are_components(bolt: Any) -> None:
    life = Life(bolt()).execute(1, 2)
    again = Life(bolt(), life.saved).execute(3).bolt
    assert dataclasses.asdict(again) in ({"n": 3}, {"seen": [1, 2, 3]})


def test_names_that_a_rich_bolt_has_as_calls_are_a_basic_bolts_own() -> None:
    class Counts(BasicBolt):
        def __init__(self) -> None:
            self.fail = self.ack = 0

        def execute(self, tup: Tuple) -> None:
            self.fail += 1
            self.ack += 2

    again = Life(Counts(), Life(Counts()).execute(1).saved).bolt
    assert (again.fail, again.ack) == (1, 2)


def test_what_the_task_handed_out_is_the_new_tasks_under_every_name() -> None:
    class Keeps(StatefulBasicBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.cfg, self.ctx, self.out = conf, context, collector
            self.deep = {"all": [context, collector, self.add]}

        def init_state(self, state: Any) -> None:
            self.counts = state

        def add(self, word: str) -> None:
            self.counts[word] = self.counts.get(word, 0) + 1

        def execute(self, tup: Tuple) -> None:
            self.add(tup[0])
            self.deep["count"] = self.counts
            self.late = self.context

    life = Life(Keeps()).execute("a", "b")
    assert len(life.saved[1]["attributes"]) < 1000, "the state is not in it"
    again = Life(Keeps(), life.saved).execute("a").bolt
    assert again.counts is again.state is again.deep["count"]
    assert dict(again.state) == {"a": 2, "b": 1}
    assert again.ctx is again.late is again.context is again.deep["all"][0]
    assert again.cfg is again.context.conf
    assert again.out is again.collector is again.deep["all"][1]
    again.deep["all"][2]("b")
    assert again.state["b"] == 2


def test_an_object_that_refers_to_its_component_does_so_again() -> None:
    class Helper:
        def __init__(self, bolt: Any) -> None:
            self.bolt, self.calls = bolt, 0

    class Helped(Bolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.helper = Helper(self)

        def execute(self, tup: Tuple) -> None:
            self.helper.calls += 1
            self.ack(tup)

    again = Life(Helped(), Life(Helped()).execute(1, 2).saved).bolt
    assert again.helper.bolt is again
    assert again.helper.calls == 2


def test_keyed_state_does_not_pickle() -> None:
    import pickle

    with pytest.raises(TypeError, match=r"dict\(state\) is a copy"):
        pickle.dumps(KeyValueState())


class Holds(BasicBolt):
    """Makes something in prepare and uses it in execute."""

    def __init__(self, make: Callable[[], Any], use: Callable[[Any], Any]) -> None:
        self.make, self.use = make, use

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.held = self.make()

    def execute(self, tup: Tuple) -> None:
        self.use(self.held)


class Client:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent = 0

    def send(self) -> None:
        self.sent += 1

    def look(self) -> None:
        pass


CHANGING: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "object with a lock": (Client, lambda client: client.send()),
    "queue": (queue.Queue, lambda held: held.put(1)),
    "simple queue": (queue.SimpleQueue, lambda held: held.put(1)),
    "generator": (lambda: (n for n in range(9)), next),
    "iterator": (lambda: csv.reader(["a", "b"]), next),
}


@pytest.mark.parametrize(("make", "use"), CHANGING.values(), ids=CHANGING)
def test_what_does_not_pickle_and_changes_is_an_error_that_names_it(make: Any, use: Any) -> None:
    with pytest.raises(UnsavableAttributeError, match=r"attribute 'held' holds a .* has changed"):
        Life(Holds(make, use)).execute(1)


@pytest.mark.parametrize(("make", "use"), CHANGING.values(), ids=CHANGING)
def test_it_is_no_error_once_it_is_transient(make: Any, use: Any) -> None:
    class Says(Holds):
        transient = ("held",)

    Life(Says(make, use)).execute(1)


def test_what_does_not_pickle_and_does_not_change_is_left_out() -> None:
    Life(Holds(Client, Client.look)).execute(1, 2)


def test_a_generator_of_a_spout_that_was_advanced_is_an_error() -> None:
    class Reads(Spout):
        outputs = ("x",)

        def open(self, conf: Any, context: Any, collector: Any) -> None:
            self.lines = (n for n in range(3))

        def next_tuple(self) -> None:
            self.emit([next(self.lines)])

    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Reads()))
        with pytest.raises(UnsavableAttributeError, match=r"spout 's' task 1: attribute 'lines'"):
            run.step()


def test_a_large_attribute_that_never_changes_is_pointed_out_with_the_remedy() -> None:
    class Looks(BasicBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.table = {number: str(number) for number in range(100_000)}

        def execute(self, tup: Tuple) -> None:
            self.seen = tup[0]

    life = Life(Looks())
    with pytest.warns(UserWarning, match=r"'table' above all; transient = \('table',\)") as warned:
        life.execute(1).execute(2).execute(3).execute(4).execute(5).execute(6)
    assert len(warned) == 1


# -- keyed state -----------------------------------------------------------------------------------


def test_a_value_of_the_state_that_is_referred_to_is_saved_in_every_batch() -> None:
    elsewhere: list[Any] = []

    class Keeps(StatefulBasicBolt):
        def execute(self, tup: Tuple) -> None:
            if tup[0] == 1:
                self.state["k"] = []
                elsewhere.append(self.state["k"])
            else:
                elsewhere[0].append(tup[0])

    life = Life(Keeps()).execute(1).execute(2).execute(3)
    assert dict(Life(Keeps(), life.saved).bolt.state) == {"k": [2, 3]}


deep: list[Any] = []


class Aliases(StatefulBasicBolt):
    def __init__(self, what: str) -> None:
        self.what = what

    def execute(self, tup: Tuple) -> None:
        if self.what == "attribute":
            self.current = self.state.setdefault("k", [])
        elif self.what == "two keys":
            self.state["k"] = self.state["j"] = []
        elif "deep" not in vars(self):
            self.state["k"] = {"deep": []}
            deep[:] = [self.state["k"]["deep"]]
            self.deep = True
        else:
            deep[0].append(1)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("attribute", "attribute 'current' and the state's value for 'k' are one object"),
        ("two keys", "the state's values for 'k' and 'j' are one object"),
        ("deep", "value for 'k' was changed through a reference that was kept"),
    ],
)
def test_a_value_of_the_state_that_would_come_back_as_another_is_an_error(
    what: str, text: str
) -> None:
    with pytest.raises(UnsavableAttributeError, match=text):
        Fed(Aliases(what)).feed(1).feed(2)


class Truths(StatefulBasicBolt):
    def execute(self, tup: Tuple) -> None:
        self.state[tup[0]] = np.any(np.array([tup[0]]))  # numpy has one object of each truth


def test_keys_may_hold_the_same_scalar_of_numpy() -> None:
    life = Life(Truths()).execute(1, 2).execute(3)
    assert dict(Life(Truths(), life.saved).bolt.state) == {1: True, 2: True, 3: True}


def test_reading_what_cannot_be_changed_marks_nothing() -> None:
    values = [1, "a", (1, ("b", None)), frozenset({1}), Decimal(1), dataclasses.make_dataclass(
        "Point", ["x"], frozen=True)(1)]  # fmt: skip
    state: KeyValueState[int, Any] = KeyValueState(dict(enumerate(values)))
    assert list(state.values()) == values
    assert not state.changed_keys()
    state[9] = ([],)
    state.changed_keys()
    assert state[9] == ([],)
    assert list(state.changed_keys()) == [9]


# -- containers of the class -----------------------------------------------------------------------


class OnTheClass(BasicBolt):
    counts: ClassVar[dict[str, int]] = {}
    seen: ClassVar[list[Any]] = []
    all_seen: ClassVar[list[Any]] = []
    own: ClassVar[list[Any]] = []
    table: ClassVar[dict[str, int]] = {"a": 1}

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.own = []  # type: ignore[misc]

    def execute(self, tup: Tuple) -> None:
        self.counts[tup[0]] = self.table.get(tup[0], 0)
        self.seen.append(tup[0])
        self.own.append(tup[0])
        OnTheClass.all_seen.append(tup[0])


def test_a_container_of_the_class_that_is_changed_through_self_is_pointed_out() -> None:
    warnings = line(FeederSpout(["x"]), OnTheClass()).warnings
    assert [text.partition(" is a container of the class")[0] for text in warnings] == [
        "bolt 'b1': self.counts",
        "bolt 'b1': self.seen",
    ]
