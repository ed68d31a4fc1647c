"""One level of a slot in real-time mode, without its process: epochs, commits, ticks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo import Bolt, TopologyBuilder, Tuple
from topo.engine.spark.plan import make_plan
from topo.engine.spark.realtime.align import Marker
from topo.engine.spark.realtime.epochs import Staged
from topo.engine.spark.realtime.level import Level
from topo.engine.spark.realtime.messages import SlotSetup, Start
from topo.engine.spark.worker.report import Report
from topo.engine.spark.worker.run_spec import RunSpec
from topo.runtime.slot import full_conf
from topo.testing import FeederSpout
from topo.tracking.plan import Mode
from topo.wire.frame import Frame, Section

BEGAN = 1000.0


class Hears(Bolt):
    """Notes which of its batches are committed, and when it is ticked."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.heard: list[tuple[str, float]] = []

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            self.heard.append(("tick", self.context.now()))
        self.ack(tup)

    def committed(self, batch_id: int) -> None:
        self.heard.append(("committed", batch_id))


class Alone:
    """The last level of a slot, between a spout's level and nothing."""

    def __init__(self, conf: Mapping[str, Any] | None = None) -> None:
        builder = TopologyBuilder()
        builder.set_spout("spout", FeederSpout(["n"]))
        builder.set_bolt("bolt", Hears()).fields_grouping("spout", "n")
        topology, settings = builder.create_topology(), full_conf(conf or {})
        self.plan = make_plan(topology, 1, settings)
        self.now = BEGAN
        spec = RunSpec("t", topology.to_bytes(), settings, self.plan)
        setup = SlotSetup(spec, 0, (1,), acks_at_once=False, import_path=())
        start = Start((1,), 0, 0.0, Mode.ACTIVE, "x", now=BEGAN)
        self.level = Level(setup, 1, spec.environment(0, lambda: self.now), start)

    def work_through(self, epoch: int) -> Staged:
        """Give the level a tuple and the end of an epoch, and let it stage that."""
        (spout,), (bolt,) = self.plan.component("spout").tasks, self.plan.component("bolt").tasks
        (frame,) = Frame(spout, bolt, 0, [Section("default", 1, [[epoch]])]).pack()
        self.level.take_in(0, (1, [frame]))
        return self.end(epoch, messages=1)

    def end(self, epoch: int, messages: int = 0) -> Staged:
        """Give the level the end of an epoch, and let it stage that."""
        self.level.take_in(0, Marker(epoch, messages, int(Mode.ACTIVE), self.now))
        self.level.work(self.now)
        assert self.level.has_ended
        staged = self.level.finish(Mode.ACTIVE, self.now)
        assert self.level.alignment is not None
        self.level.alignment.advance()
        return staged

    @property
    def heard(self) -> list[tuple[str, float]]:
        assert self.level.host is not None
        (task,) = self.level.host.tasks.values()
        component: Any = task.component
        return list(component.heard)


def test_a_component_hears_of_the_epochs_that_are_committed_and_of_no_other() -> None:
    alone = Alone()
    alone.work_through(1)
    alone.work_through(2)  # on a cluster, its marker may overtake the word that 1 is committed
    alone.level.tell_committed(1)
    assert alone.heard == [("committed", 1)]
    alone.level.tell_committed(1)
    alone.level.tell_committed(2)
    assert alone.heard == [("committed", 1), ("committed", 2)]


def test_a_task_is_reported_when_it_has_news_and_once_after_a_start() -> None:
    alone = Alone()
    (bolt,) = alone.plan.component("bolt").tasks
    after_start = Report.unpack(alone.end(1).report).metrics
    assert list(after_start) == [bolt]  # what it had before the start may be no more
    assert alone.end(2).report == b""
    busy = Report.unpack(alone.work_through(3).report).metrics[bolt]
    assert (busy.executed, busy.saved_bytes > after_start[bolt].saved_bytes) == (1, True)
    assert alone.end(4).report == b""


def test_a_tick_is_news_which_an_epoch_is_to_commit() -> None:
    alone = Alone({"topology.tick.tuple.freq.secs": 10})
    assert not alone.level.work(alone.now)
    alone.now = alone.level.tick_at
    assert alone.now == BEGAN + 10
    assert alone.level.work(alone.now)
    assert alone.heard == [("tick", BEGAN + 10)]
    assert not alone.level.work(alone.now)
