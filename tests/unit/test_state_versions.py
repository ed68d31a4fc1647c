"""State of an earlier form is upgraded when it is loaded, once, and never read by older code."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wiring import Fed
from topo import CheckpointError, StatefulBasicBolt, StatefulBolt, Tuple, UncaughtError


class Visits(StatefulBasicBolt):
    """Counts visits; later versions of the code keep more than the number."""

    outputs = ("value",)
    first: Any = 1

    def execute(self, tup: Tuple) -> None:
        before = self.state.get(tup.x)
        self.state[tup.x] = self.first if before is None else self.more(before)
        self.emit([self.state[tup.x]])

    def more(self, before: Any) -> Any:
        return before + 1


def upgrade(self: Visits, key: Any, value: Any, version: int) -> Any:
    upgraded.append((key, version))
    return {"n": value} if version == 1 else {**value, "more": True}


def more(self: Visits, before: Any) -> Any:
    return {**before, "n": before["n"] + 1}


upgraded: list[tuple[Any, int]] = []


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    upgraded.clear()


def use(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """The code of that version is deployed."""
    monkeypatch.setattr(Visits, "state_version", version)
    monkeypatch.setattr(Visits, "upgrade", upgrade)
    monkeypatch.setattr(Visits, "more", more)
    monkeypatch.setattr(Visits, "first", {"n": 1})


def test_each_entry_is_upgraded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Fed(Visits())
    fed.feed("ann", "bob", "ann")
    use(monkeypatch, 2)
    fed.run.restart()
    fed.feed("ann", "eve")
    assert fed.out() == [1, 1, 2, {"n": 3}, {"n": 1}]
    assert sorted(upgraded) == [("ann", 1), ("bob", 1)]
    fed.run.restart()
    fed.feed("bob")
    assert fed.out()[-1] == {"n": 2}, "also what nobody had touched was saved in its new form"
    assert len(upgraded) == 2
    use(monkeypatch, 3)
    fed.run.restart()
    fed.feed("ann")
    assert fed.out()[-1] == {"n": 4, "more": True}
    assert ("ann", 2) in upgraded


def test_nothing_is_upgraded_where_nothing_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, 2)
    fed = Fed(Visits())
    fed.feed("ann")
    fed.run.restart()
    fed.feed("bob")
    assert upgraded == []


def test_older_code_does_not_read_newer_state(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        use(newer, 2)
        fed = Fed(Visits())
        fed.feed("ann")
    fed.run.restart()
    with pytest.raises(CheckpointError, match="has state of version 2, and its class has state_v"):
        fed.feed("bob")


def test_a_mistake_names_the_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Fed(Visits())
    fed.feed("ann")
    use(monkeypatch, 2)
    monkeypatch.setattr(Visits, "upgrade", lambda self, key, value, version: value["n"])
    fed.run.restart()
    with pytest.raises(UncaughtError, match=r"the state's entry .*ann.* of version 1: TypeError"):
        fed.feed("bob")


class Held(StatefulBolt):
    """The same for a bolt that acks by itself."""

    outputs = ("value",)

    def execute(self, tup: Tuple) -> None:
        before, self.state["last"] = self.state.get("last"), tup.x
        self.emit([before], anchors=tup)
        self.ack(tup)


def test_bolts_that_ack_have_versions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Fed(Held())
    fed.feed(1)
    monkeypatch.setattr(Held, "state_version", 5)
    monkeypatch.setattr(Held, "upgrade", lambda self, key, value, version: (value, version))
    fed.run.restart()
    assert fed.feed(2).out() == [None, (1, 1)]
