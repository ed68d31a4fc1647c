"""Trees rebuilt after a crash of everything: what was processed is acked, what is kept is pending.

Messages are kept, dropped, failed, released and passed on by bolts, and at random moments between
two batches the ledger is lost and every instance is rebuilt from what was saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo import BasicBolt, Bolt, Spout, Topology, TopologyBuilder, Tuple
from topo.engine.inline.run import InlineRun

TIMEOUT = 1000.0
ACTIONS = ("ack", "fail", "keep", "drop", "pass", "pass and keep")


class Script(Spout):
    """Emits one scripted message a call; records what it hears."""

    outputs = ("number", "action")

    def __init__(self, actions: list[str]) -> None:
        self.left = list(enumerate(actions))
        self.heard: list[tuple[int, str | None]] = []

    def next_tuple(self) -> None:
        if self.left:
            number, action = self.left.pop(0)
            self.emit([number, action], msg_id=number)

    def ack(self, msg_id: int) -> None:
        self.heard.append((msg_id, None))

    def fail(self, msg_id: int, reason: str = "") -> None:
        self.heard.append((msg_id, reason))


class Keeper(Bolt):
    """Does with each tuple what it says; releases all kept ones when told."""

    outputs = ("number", "action")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        number, action = tup
        if action == "release":
            for kept in self.kept:
                self.emit([kept.number, "pass"], anchors=kept)
                self.ack(kept)
            self.kept = []
        if action in ("pass", "pass and keep"):
            self.emit([number, action], anchors=tup)
        if action in ("keep", "pass and keep"):
            self.kept.append(tup)
        elif action == "fail":
            self.fail(tup, "as told")
        elif action != "drop":
            self.ack(tup)


class Sink(BasicBolt):
    stateless = True

    def execute(self, tup: Tuple) -> None: ...


class CrashingRun(InlineRun):
    """A run that a test moves a single batch at a time."""

    def batch(self, rounds: int) -> None:
        self._batch(rounds)

    def heard(self) -> list[tuple[int, str | None]]:
        assert self._host is not None
        (spout,) = self._host.spouts
        heard: list[tuple[int, str | None]] = vars(spout.component)["heard"]
        return list(heard)


def _topology(actions: list[str], keepers: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("script", Script(actions))
    builder.set_bolt("first", Keeper(), keepers).all_grouping("script")
    builder.set_bolt("second", Keeper(), 2).shuffle_grouping("first")
    builder.set_bolt("sink", Sink()).shuffle_grouping("second")
    return builder.create_topology()


def _expected(actions: list[str]) -> Iterator[tuple[int, str]]:
    """Yield what must become of each message: "ack", "fail" or "pending"."""
    last_release = max((n for n, action in enumerate(actions) if action == "release"), default=-1)
    for number, action in enumerate(actions):
        if action == "fail":
            yield number, "fail"
        elif action == "drop" or action == "pass and keep":
            yield number, "pending"
        elif action == "keep":
            yield number, "ack" if number < last_release else "pending"
        else:
            yield number, "ack"


@examples(40)
@given(
    actions=st.lists(st.sampled_from([*ACTIONS, "release"]), max_size=12),
    crashes=st.sets(st.integers(0, 24)),
    keepers=st.integers(1, 2),
)
def test_a_crash_changes_no_verdict(actions: list[str], crashes: set[int], keepers: int) -> None:
    run = CrashingRun(
        "t",
        _topology(actions, keepers),
        {"topology.message.timeout.secs": TIMEOUT},
        now=lambda: 100.0,
    )
    for moment in range(len(actions) + 12):
        run.batch(1)
        if moment in crashes:
            run.restart()
    for _ in range(3):  # to start the trees anew, to settle them, and to hear of it
        run.batch(0)
    outcomes: dict[int, str] = dict.fromkeys(range(len(actions)), "pending")
    for number, reason in run.heard():
        verdict = "ack" if reason is None else "fail"
        assert outcomes[number] in ("pending", verdict), "one message, two verdicts"
        assert reason is None or "as told" in reason
        outcomes[number] = verdict
    assert outcomes == dict(_expected(actions))


@pytest.mark.parametrize("action", ["drop", "pass and keep"])
def test_what_is_pending_still_times_out_after_a_crash(action: str) -> None:
    clock = [100.0]
    run = CrashingRun(
        "t",
        _topology([action], 1),
        {"topology.message.timeout.secs": TIMEOUT},
        now=lambda: clock[0],
    )
    run.batch(1)
    run.restart()
    run.batch(0)
    assert run.heard() == []
    clock[0] += TIMEOUT + 1
    run.batch(0)
    run.batch(0)
    ((number, reason),) = run.heard()
    assert number == 0
    assert reason is not None
    assert reason.startswith("timeout")
