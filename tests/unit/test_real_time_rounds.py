"""What goes round in a slot of real-time mode: saved, executed and forgotten, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.parity.loop_doubles import Countdown
from topo import EngineError, TopologyBuilder
from topo.engine.spark.plan import make_plan
from topo.engine.spark.realtime.align import Marker
from topo.engine.spark.realtime.epochs import Staged
from topo.engine.spark.realtime.level import Level, link
from topo.engine.spark.realtime.messages import SlotSetup, Start
from topo.engine.spark.realtime.rounds import send_round
from topo.engine.spark.worker.report import Report
from topo.engine.spark.worker.run_spec import RunSpec
from topo.runtime.slot import full_conf
from topo.testing import FeederSpout
from topo.tracking.plan import Mode
from topo.wire.frame import Frame, Section

NOW = 1000.0


class Slot:
    """A spout's level and that of a countdown, whose input goes back, in the only slot."""

    def __init__(self, saved: Mapping[int, Mapping[str, bytes]] | None = None, epoch: int = 0):
        builder = TopologyBuilder()
        builder.set_spout("spout", FeederSpout(["n"]))
        count = builder.set_bolt("count", Countdown()).shuffle_grouping("spout")
        count.shuffle_grouping("count", stream="again", loop=True)
        topology, settings = builder.create_topology(), full_conf({})
        self.plan = make_plan(topology, 1, settings)
        spec = RunSpec("t", topology.to_bytes(), settings, self.plan)
        setup = SlotSetup(spec, 0, (0, 1), acks_at_once=False, import_path=())
        start = Start((0, 1), epoch, NOW, Mode.ACTIVE, "x", now=NOW, saved=saved or {})
        environment = spec.environment(0, lambda: NOW)
        self.levels = {number: Level(setup, number, environment, start) for number in (0, 1)}
        link(self.levels)
        (self.spout,) = self.plan.component("spout").tasks
        (self.count,) = self.plan.component("count").tasks

    def feed(self, number: int) -> None:
        """Give the countdown a number, as if the spout had emitted it."""
        section = Section("default", 1, [[number]])
        for frame in Frame(self.spout, self.count, 0, [section]).pack():
            self.levels[0].output.add(frame)

    def end_epoch(self) -> Staged:
        """End the epoch in the spout's level, and then in the other; return what that stages."""
        self.levels[0].finish(Mode.ACTIVE, NOW)
        level = self.levels[1]
        assert level.alignment is not None
        level.work(NOW)
        marker: Marker = level.alignment.marker
        staged = level.finish(Mode(marker.mode), marker.clock)
        level.alignment.advance()
        return staged

    def laps(self, keys: Any) -> list[str]:
        return [name for task, name in keys if task == self.count and name.startswith("lap/")]


def looping(slot: Slot, staged: Staged) -> int:
    """Return what the driver is told of the countdown in this epoch; -1 if nothing."""
    if not staged.report:
        return -1
    figures = Report.unpack(staged.report).metrics.get(slot.count)
    return figures.looping if figures is not None else -1


def test_a_lap_is_deleted_by_the_epoch_that_executes_it() -> None:
    slot = Slot()
    slot.feed(2)
    first = slot.end_epoch()
    assert (len(slot.laps(first.puts)), slot.laps(first.deletes)) == (1, [])
    assert looping(slot, first) == 1
    assert send_round(slot.levels) > 0
    assert send_round(slot.levels) == 0
    second = slot.end_epoch()
    assert slot.laps(second.deletes) == slot.laps(first.puts)
    assert len(slot.laps(second.puts)) == 1
    send_round(slot.levels)
    third = slot.end_epoch()
    assert slot.laps(third.deletes) == slot.laps(second.puts)
    assert slot.laps(third.puts) == []
    assert looping(slot, third) == 0
    assert slot.end_epoch().report == b""


def test_what_is_made_before_the_commit_waits_for_its_own() -> None:
    slot = Slot()
    slot.feed(1)
    first = slot.end_epoch()
    slot.feed(1)
    slot.levels[0].output.send()
    slot.levels[1].work(NOW)  # before the slot hears that the first epoch is committed
    send_round(slot.levels)
    second = slot.end_epoch()
    assert slot.laps(second.deletes) == slot.laps(first.puts)
    assert len(slot.laps(second.puts)) == 1
    send_round(slot.levels)
    assert slot.laps(slot.end_epoch().deletes) == slot.laps(second.puts)


def test_a_start_sends_what_the_log_has_and_tells_when_it_is_done() -> None:
    slot = Slot()
    slot.feed(1)
    first = slot.end_epoch()
    saved: dict[int, dict[str, bytes]] = {}
    for (task, name), blob in first.puts.items():
        saved.setdefault(task, {})[name] = blob
    resumed = Slot(saved, epoch=1)
    send_round(resumed.levels)
    second = resumed.end_epoch()
    assert resumed.laps(second.deletes) == slot.laps(first.puts)
    assert looping(resumed, second) == 0


def test_a_task_whose_lap_another_has_executed_says_so() -> None:
    slot = Slot()
    slot.feed(1)
    slot.end_epoch()
    level = slot.levels[1]
    assert level.saved_round is not None
    level.saved_round.take()  # as if they were for another slot
    assert looping(slot, slot.end_epoch()) == 0


def test_levels_in_several_epochs_end_the_start() -> None:
    slot = Slot()
    slot.feed(1)
    slot.levels[0].finish(Mode.ACTIVE, NOW)
    with pytest.raises(EngineError, match=r"level 1 is in epoch 1, .* in epoch 2"):
        send_round(slot.levels)
