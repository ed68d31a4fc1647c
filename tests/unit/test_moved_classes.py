"""Saved objects are read after their classes moved, if the component says where they went."""

from __future__ import annotations

import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.wiring import Fed, line
from topo import (
    BasicBolt,
    Bolt,
    CheckpointError,
    InvalidTopologyError,
    StatefulBasicBolt,
    StatefulBolt,
    TopologyBuilder,
    Tuple,
)
from topo.runtime.dealing import Dealer
from topo.runtime.task import full_conf
from topo.storage.classes import load_saved, saved_by
from topo.storage.entries import entries_of
from topo.storage.keyed import saved_state
from topo.storage.savepoints import Component, Savepoint, write_savepoint
from topo.storage.saving import Changes, SavedMapping
from topo.testing import FeederSpout


class Sum:
    """An object of the state; its class is put into other modules here."""

    class Part:
        pass

    def __init__(self, total: int) -> None:
        self.total = total


def place(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    """Make this module and name the only ones that the classes have."""
    for old in (OLD, NEW):
        monkeypatch.delitem(sys.modules, old, raising=False)
    made = types.ModuleType(module)
    setattr(made, name, Sum)
    monkeypatch.setitem(sys.modules, module, made)
    for cls, path in ((Sum, name), (Sum.Part, f"{name}.Part")):
        cls.__module__, cls.__qualname__ = module, path


OLD, NEW = "shop_before", "shop_now"
MOVED = {f"{OLD}:Sum": f"{NEW}:Total"}


@pytest.fixture(autouse=True)
def in_its_old_place(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, OLD, "Sum")


class Adds(StatefulBasicBolt):
    """Adds in its keyed state, and in an attribute."""

    outputs = ("x",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.all = Sum(0)

    def input_key(self, key: Any) -> Any:
        return key

    def execute(self, tup: Tuple) -> None:
        own = self.state.setdefault(tup.x, Sum(0))
        own.total += 1
        self.all.total += 1
        self.emit([(own.total, self.all.total)])


class Holds(StatefulBolt):
    """Neither acks nor fails its first tuple, until the second one comes."""

    outputs = ("x",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: Tuple | None = None

    def execute(self, tup: Tuple) -> None:
        if self.kept is None:
            self.kept = tup
            return
        self.emit([self.kept.x.total])
        self.ack(self.kept)
        self.ack(tup)


def resumed(fed: Fed, bolt: Bolt | BasicBolt) -> Fed:
    """Return a run of newer code that begins with what another one has saved."""
    newer = Fed(bolt)
    vars(newer.run)["_saved"] = {task: dict(of) for task, of in vars(fed.run)["_saved"].items()}
    newer.run.step()
    return newer


def test_state_and_attributes_follow_a_class_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Fed(Adds()).feed("a", "b", "a")
    place(monkeypatch, NEW, "Total")
    monkeypatch.setattr(Adds, "moved", MOVED)
    newer = resumed(fed, Adds()).feed("a")
    assert newer.out() == [(3, 4)]
    monkeypatch.setattr(Adds, "moved", {})
    with pytest.raises(CheckpointError, match="has saved objects of shop_before:Sum"):
        resumed(newer, Adds())  # the key "b" was saved before, and by nobody since


def test_a_class_that_is_not_there_is_named_with_its_owner_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = Fed(Adds()).feed("a")
    place(monkeypatch, NEW, "Total")
    with pytest.raises(CheckpointError) as missing:
        resumed(fed, Adds())
    assert str(missing.value).startswith("bolt 'b1' task 1 has saved objects of shop_before:Sum")
    assert 'moved = {"shop_before:Sum": ' in missing.value.hint
    monkeypatch.setattr(Adds, "moved", {f"{OLD}:Sum": f"{NEW}:Gone"})
    with pytest.raises(CheckpointError, match="which moved says is shop_now:Gone now"):
        resumed(fed, Adds())


def test_held_tuples_follow_a_class_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Fed(Holds()).feed_untracked(Sum(7))
    place(monkeypatch, NEW, "Total")
    with pytest.raises(CheckpointError, match="shop_before:Sum"):
        resumed(fed, Holds())
    monkeypatch.setattr(Holds, "moved", MOVED)
    assert resumed(fed, Holds()).feed_untracked(Sum(8)).out() == [7]


def test_a_class_inside_another_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps([Sum.Part(), Sum(3)], protocol=5)
    place(monkeypatch, NEW, "Total")
    with saved_by("bolt 'b'", MOVED):
        part, total = load_saved(data)
    assert type(part) is Sum.Part
    assert total.total == 3
    with saved_by("bolt 'b'", {**MOVED, f"{OLD}:Sum.Part": "builtins:dict"}):
        assert load_saved(data)[0] == {}


def test_other_errors_of_the_users_classes_stay_what_they_are() -> None:
    class Raises:
        def __reduce__(self) -> Any:
            return getattr, (3, "imag_inary")

    data = pickle.dumps(Raises(), protocol=5)
    for moved in ({}, MOVED):
        with saved_by("bolt 'b'", moved), pytest.raises(AttributeError, match="imag_inary"):
            load_saved(data)


def test_state_that_is_dealt_follows_a_class_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {f"k{number}": Sum(number) for number in range(50)}
    changes = Changes()
    SavedMapping("state", "").save(state, state, changes)
    place(monkeypatch, NEW, "Total")
    builder = TopologyBuilder()
    builder.set_spout("s", FeederSpout(["x"]))
    builder.set_bolt("b", Adds(), parallelism=2).fields_grouping("s", "x")
    topology = builder.create_topology()
    with pytest.raises(CheckpointError, match="shop_before:Sum"):
        Dealer(topology, full_conf({}), "b", 1, 2).deal([changes.puts])
    monkeypatch.setattr(Adds, "moved", MOVED)
    dealt = Dealer(topology, full_conf({}), "b", 1, 2).deal([changes.puts])
    assert all(saved_state(records) for records in dealt)
    both = {key: one for records in dealt for key, one in saved_state(records).items()}
    assert {key: one.total for key, one in both.items()} == {
        f"k{number}": number for number in range(50)
    }


def test_a_savepoint_is_read_after_a_class_moved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changes = Changes()
    SavedMapping("state", "").save({"a": Sum(3)}, ["a"], changes)
    components = {"b": Component("bolt", 1, 1, True)}
    point = Savepoint(
        "t", "c0ffee", 1, "micro-batch", 1.5, "0.2.0", "3.11", components, directory=tmp_path / "p"
    )
    saved = write_savepoint(point, [("b", 0, changes.puts)])
    place(monkeypatch, NEW, "Total")
    with pytest.raises(CheckpointError, match="'b' task 0 cannot be read: shop_before:Sum"):
        list(entries_of(saved, "b", None))
    [entry] = entries_of(saved, "b", None, MOVED)
    assert (entry.key, entry.value.total) == ("a", 3)


@pytest.mark.parametrize("moved", [3, {"old": "new:New"}, {"old:Old": None}, {"old:Old": ":New"}])
def test_what_names_no_class_is_refused(moved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Adds, "moved", moved)
    with pytest.raises(InvalidTopologyError, match="which names no class"):
        line(FeederSpout(["x"]), Adds())
