"""Attributes that cannot be saved or are never saved, and stateless components."""

from __future__ import annotations

import io
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.lives import Life
from tests.wiring import Fed
from topo import BasicBolt, Bolt, StatefulBasicBolt, StatelessError, Tuple, UnsavableAttributeError


class Holds(BasicBolt):
    """Puts into `self.held` what it is told to make, in prepare or in execute."""

    def __init__(self, make: Any, early: bool) -> None:
        self.make = make
        self.early = early

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        if self.early:
            self.held = self.make()

    def execute(self, tup: Tuple) -> None:
        if not self.early:
            self.held = self.make()


def test_what_prepare_made_and_does_not_pickle_is_left_out() -> None:
    life = Life(Holds(threading.Lock, early=True)).execute(1)
    lock = life.bolt.held
    assert type(Life(Holds(threading.Lock, early=True), life.saved).bolt.held) is type(lock)


@pytest.mark.parametrize(
    ("make", "culprit", "path"),
    [
        (threading.Lock, "a _thread.lock", ""),
        (lambda: [1, threading.Lock()], "a _thread.lock", "(at self.held[1])"),
        (lambda: {"a": {"b": threading.Lock()}}, "a _thread.lock", "(at self.held['a']['b'])"),
        (lambda: (i for i in [1]), "a generator", ""),
    ],
    ids=["lock", "in a list", "in dicts", "generator"],
)
def test_what_execute_made_and_does_not_pickle_is_an_error(
    make: Any, culprit: str, path: str
) -> None:
    with pytest.raises(UnsavableAttributeError) as refused:
        Life(Holds(make, early=False)).execute(1)
    text = str(refused.value)
    assert f"bolt 'b1' task 1: attribute 'held' holds {culprit}" in text
    assert path in text
    assert "which cannot be saved" in text
    assert "make it in open or prepare, or in restored and name it in transient = ('held',)" in text


def test_a_container_of_what_does_not_pickle_is_an_error_even_from_prepare() -> None:
    with pytest.raises(
        UnsavableAttributeError, match=r"'held' holds a _thread.lock \(at self.held"
    ):
        Life(Holds(lambda: [threading.Lock()], early=True)).execute(1)


def test_an_unpicklable_attribute_that_is_replaced_is_an_error() -> None:
    class Reconnects(Holds):
        def execute(self, tup: Tuple) -> None:
            self.held = self.make()

    with pytest.raises(UnsavableAttributeError, match=r"attribute 'held' holds a _thread.lock"):
        Life(Reconnects(threading.Lock, early=True)).execute(1)


def test_files_and_sockets_are_never_saved(tmp_path: Path) -> None:
    path = tmp_path / "out"

    class Writes(BasicBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.file = path.open("a")
            self.memory = io.StringIO()
            self.socket = socket.socket()

        def execute(self, tup: Tuple) -> None:
            self.file.write(str(tup[0]))
            self.memory.write(str(tup[0]))

        def cleanup(self) -> None:
            self.file.close()
            self.socket.close()

    life = Life(Writes()).execute(1)
    again = Life(Writes(), life.saved).execute(2)
    assert again.bolt.memory.getvalue() == "12"  # no file, though it looks like one
    life.host.close()
    again.host.close()
    assert sorted(path.read_text()) == ["1", "2"]


opened: list[Any] = []


def open_a_file(bolt: Any) -> None:
    bolt.held = Path(__file__).open("rb")  # noqa: SIM115
    opened.append(bolt.held)


def test_a_file_that_execute_opens_is_an_error() -> None:
    with pytest.raises(UnsavableAttributeError, match=r"'held' holds a _io.BufferedReader"):
        Life(Does(open_a_file)).execute(1)
    opened.pop().close()


def test_a_value_of_keyed_state_that_does_not_pickle_is_named_by_its_key() -> None:
    class Keeps(StatefulBasicBolt):
        def execute(self, tup: Tuple) -> None:
            self.state["ok"] = 1
            self.state["bad"] = [threading.Lock()]

    with pytest.raises(UnsavableAttributeError, match=r"state's value for 'bad' holds a _thread"):
        Life(Keeps()).execute(1)


def test_plain_attributes_over_1_mb_warn_once() -> None:
    class Large(BasicBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.data = ""

        def execute(self, tup: Tuple) -> None:
            self.data = str(tup[0]) * 1_100_000

    life = Life(Large())
    with pytest.warns(UserWarning, match=r"bolt 'b1' task 1 saves 1,1.* StatefulBolt") as warned:
        life.execute(1).execute(2)
    assert len(warned) == 1


# -- stateless -------------------------------------------------------------------------------------


class Does(Bolt):
    """Calls what it is told to with itself, for every tuple; held by the class, as no state is."""

    change: Any

    def __init__(self, change: Any) -> None:
        Does.change = staticmethod(change)

    def execute(self, tup: Tuple) -> None:
        Does.change(self)
        self.ack(tup)


class Stateless(Does):
    stateless = True

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.table = {"a": [1]}
        self.number = 1


def test_a_stateless_bolt_saves_nothing() -> None:
    life = Life(Stateless(lambda bolt: None)).execute(1)
    assert life.saved == {}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda bolt: setattr(bolt, "number", 2), "number"),
        (lambda bolt: setattr(bolt, "fresh", 2), "fresh"),
        (lambda bolt: delattr(bolt, "number"), "number"),
        (lambda bolt: bolt.table["a"].append(2), "table"),
    ],
    ids=["set", "new", "deleted", "changed deep inside"],
)
def test_a_stateless_bolt_that_changes_an_attribute_is_an_error(change: Any, name: str) -> None:
    with pytest.raises(StatelessError) as refused:
        Life(Stateless(change)).execute(1)
    assert f"bolt 'b1' task 1 says stateless = True and changed its attribute {name!r}" in str(
        refused.value
    )
    assert "name it in `transient`" in refused.value.hint


def test_a_stateless_bolt_may_change_what_is_transient() -> None:
    class Caches(Stateless):
        transient = ("number",)

    Life(Caches(lambda bolt: setattr(bolt, "number", 2))).execute(1)


def test_the_test_kit_looks_deep_in_every_batch() -> None:
    class Remembers(BasicBolt):
        stateless = True

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.seen: list[Any] = []

        def execute(self, tup: Tuple) -> None:
            if tup[0] == 7:  # not among the first batches, nor at a power of two
                self.seen.append(tup[0])

    fed = Fed(Remembers())
    for number in range(1, 7):
        fed.feed(number)
    with pytest.raises(StatelessError, match="changed its attribute 'seen'"):
        fed.feed(7)
